"""One segmentation for the index and for queries."""

from __future__ import annotations

import unicodedata

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.store.marker import TOKENIZER, Marker
from fabled.transcript.query import match_expression, parse, segment
from fabled.transcript.segment import WIDE, indexed, normal, pairs

WIDE_TEXT = st.text(st.sampled_from("部署方案修正テストしり게임끝々〇ｱ𠮟ab1 .-é\u0301"), max_size=20)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain words", "plain words"),
        ("déjà vu", "déjà vu"),
        ("de\u0301ja\u0300", "déjà"),
        ("部署方案", " 部署 署方 方案 "),
        ("a部b", "a 部 b"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", " 한글 "),
    ],
)
def test_what_the_index_takes_in(text: str, written: str) -> None:
    """Composed letters, and pairs of the wide ones; everything else as it is."""
    assert indexed(text) == written


def test_a_run_of_wide_letters_is_its_pairs() -> None:
    """The pairs overlap; a letter alone stays one."""
    assert pairs("部署方案") == ["部署", "署方", "方案"]
    assert pairs("部") == ["部"]
    assert segment("gen-itgc修复ok") == ["gen", "itgc", "修复", "ok"]


def test_a_long_run_means_its_words() -> None:
    """A sentence without blanks is looked for by its pairs, a word or a quoted one as a whole."""
    assert [token.text for token in parse("部署方案").words] == ["部署方案"]
    assert len(parse("明日的部署方案怎么样了").words) == 10
    assert len(parse('"明日的部署方案怎么样了"').required) == 1
    assert len(parse("サンドボックスサンド").words) == 1


@given(WIDE_TEXT)
@settings(max_examples=300, deadline=None)
def test_a_text_is_found_by_its_own_runs(text: str) -> None:
    """What FTS5 makes of the written text is exactly what a query of the same text asks for, and it is marked."""
    db = apsw.Connection(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{TOKENIZER}')")
    db.execute("INSERT INTO t VALUES(?)", (indexed(text),))
    db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'instance')")
    assert len(segment(text)) == len(list(db.execute("SELECT term FROM v")))
    expression = match_expression(parse('"' + text + '"'))
    if expression is not None:
        assert list(db.execute("SELECT rowid FROM t WHERE t MATCH ?", (expression,))) == [(1,)]
        marker = Marker()
        assert marker.marks(normal(text), [" ".join(segment(text))])
        marker.close()


def test_wide_letters_are_letters_to_the_tokenizer() -> None:
    """unicode61 separates none of them, so that a pair stays one word."""
    marker = Marker()
    for code in (*range(0x2E80, 0x10000), *range(0x20000, 0x20100)):
        char = chr(code)
        if WIDE.match(char) and unicodedata.category(char)[0] in "LN":
            assert marker._plain(f"{char}{char}".encode(), apsw.FTS5_TOKENIZE_DOCUMENT), hex(code)
    marker.close()
