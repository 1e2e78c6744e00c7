"""What a typed query means, and that no text whatever can be more than words."""

from __future__ import annotations

import fnmatch
import unicodedata

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabled.transcript.query import (
    MAX_TOKENS,
    STOP_WORDS,
    Query,
    glob,
    match_expression,
    moment,
    parse,
    segment,
)

TEXTS = {
    "k1": "the foo-bar flag don't work on ubuntu 20.04",
    "k2": "POL-358 is blocked; see src/app/main.py:42 and grammar::fa",
    "k3": "NOT a bug AND OR NEAR are words here",
    "k4": "call foo.bar() with --error-on-warnings and C++17 templates",
    "k5": 'he said "quoted phrase" twice, 50% off, a*b, x^2, {curly} [square]',
    "k6": "user@example.com pays $100 (net); col:value",
    "k7": "foo alone; bar alone",
    "k8": "rename get_user_name everywhere",
    "k9": "getUserName was the old spelling",
}
PARTS = {"k9": "get User Name"}


def table() -> apsw.Connection:
    """A table such as the Map's, holding TEXTS."""
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE fts USING fts5(text, thinking, parts, tokenize='porter unicode61 remove_diacritics 2')"
    )
    for number, (name, text) in enumerate(TEXTS.items(), 1):
        db.execute("INSERT INTO fts(rowid, text, parts) VALUES(?,?,?)", (number, text, PARTS.get(name, "")))
    return db


def hits(db: apsw.Connection, text: str) -> list[str]:
    """The names of the texts that `text` finds."""
    expression = match_expression(parse(text))
    if expression is None:
        return []
    names = list(TEXTS)
    rows = db.execute("SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rowid", (expression,))
    return [names[row[0] - 1] for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo-bar", "k1 k4"),
        ('"foo-bar"', "k1 k4"),
        ("don't", "k1"),
        ("20.04", "k1"),
        ("pol-358 blocked", "k2"),
        ("src/app/main.py:42", "k2"),
        ("AND", "k2 k3 k4"),
        ("NOT", "k3"),
        ("NEAR", "k3"),
        ("bug AND", "k3"),
        ("foo.bar()", "k1 k4"),
        ("--error-on-warnings", "k4"),
        ("C++17", "k4"),
        ('"quoted', "k5"),
        ("a*b", "k5"),
        ("x^2", "k5"),
        ("user@example.com", "k6"),
        ("$100", "k6"),
        ("col:value", "k6"),
        ("uuid:k1", ""),
        ("*", ""),
        ('"', ""),
        ('""', ""),
        ("--", ""),
        ("-", ""),
        ("", ""),
        ("   ", ""),
        ("😀", ""),
        ("'; drop table fts; --", ""),
        ("foo bar", "k1 k4 k7"),
        ("foo -alone", "k1 k4"),
        ("-alone", "k7"),
        ("foo -", "k1 k4 k7"),
        ("+foo +alone", "k7"),
        ("+foo templates nonesuch", "k1 k4 k7"),
        ('foo "bar alone"', "k7"),
        ("getUserName", "k8 k9"),
        ("get_user_name", "k8 k9"),
        ("user name", "k6 k8 k9"),
        ('"getUserName"', "k9"),
        ("foo\x00bar", "k1 k4 k7"),
        ("+😀 foo", "k1 k4 k7"),
        ("foo " * 5000, "k1 k4 k7"),
        ("x" * 100_000, ""),
    ],
)
def test_words_are_literal(text: str, expected: str) -> None:
    """Each query finds exactly the texts that hold its words or phrases."""
    assert hits(table(), text) == expected.split()


def test_a_required_word_decides_and_the_others_rank() -> None:
    """Beside `+foo` the other words bring their record to the top, and exclude none."""
    db = table()
    expression = match_expression(parse("+foo templates"))
    rows = db.execute("SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rank", (expression,))
    assert next(rows)[0] == 4


def test_an_owner_is_a_word() -> None:
    """What belongs to somebody is looked for by their name; other apostrophes stay inside their word."""
    assert [token.parts for token in parse("Ana's keys, the users’s and o'clock").words] == [
        ("Ana",), ("keys",), ("users",), ("o", "clock"),
    ]  # fmt: skip
    assert [token.parts for token in parse('+"Ana\'s"').required] == [("Ana", "s")]


def test_a_sentence_demands_nothing() -> None:
    """Quotation marks in running text are its own; signs, and quotation marks in a short query, mean what they say."""
    sentence = 'why did it say that the "lock file" was not there and +stop before the -end of the run'
    query = parse(sentence)
    assert query.prose
    assert [token.text for token in query.required] == ["stop"]
    assert [token.text for token in query.excluded] == ["end"]
    assert {"lock", "file"} <= {token.text for token in query.words}
    assert [token.text for token in parse('why the "lock file"').required] == ["lock file"]


def test_filters_have_exactly_their_names_and_a_value() -> None:
    """`name:value` filters for eight names; any other colon is text."""
    query = parse('file:*.py tool:Bash tool:Read role:user project:"My Dir" session:abc term:x foo')
    assert query.filters.file == ("*.py",)
    assert query.filters.tool == ("Bash", "Read")
    assert query.filters.project == ("My Dir",)
    assert [token.text for token in query.words] == ["foo"]
    for text in (
        "File:x",
        "files:x",
        "file:",
        "session::new",
        "file://x",
        "since:yore",
        '"file:x"',
        "-file:x",
    ):
        assert not parse(text).filters, text
        assert match_expression(parse(text)) is not None, text


def test_only_telling_words_are_looked_for() -> None:
    """Stop words go when a better word stands beside them, and stay when required or alone."""
    assert [token.text for token in parse("why don't we use the mutex").words] == ["use", "mutex"]
    assert [token.text for token in parse("to be or not to be").words] == ["to", "be", "or", "not"]
    assert [token.text for token in parse('+the "who" mutex').required] == ["+the"[1:], "who"]
    assert 170 <= len(STOP_WORDS) <= 230


def test_literals_are_the_punctuated_spellings() -> None:
    """What the ranking looks for letter by letter; sentence marks at the end do not belong to it."""
    assert parse("POL-358, foo.bar(). plain").literals == ("pol-358", "foo.bar()")


def test_long_queries_are_bounded() -> None:
    """A pasted page is cut to its first distinct words."""
    query = parse(" ".join(f"w{number}" for number in range(10_000)))
    assert len(query.words) == MAX_TOKENS
    assert len((match_expression(parse("-".join("ab" * 20_000))) or "").split()) <= 64


def test_times() -> None:
    """Dates and times are local, a relative one counts back from now, and nonsense is no time."""
    now = 1_750_000_000.0
    assert moment("90m", now) == now - 5400
    assert moment("6w", now) == now - 6 * 7 * 86400
    day = moment("2026-03-02", now)
    assert day is not None
    assert moment("2026-03-02", now, end=True) == pytest.approx(day + 86400, abs=1)
    assert moment("2026-03-02T00:00:00Z", now) == 1772409600
    assert moment("2026-03-02T00:00:00Z", now, end=True) == 1772409600
    for text in ("", "soon", "3", "2026-13-01", "9" * 400 + "d", "-3d", "٣d"):
        assert moment(text, now) is None
    assert moment("0001-01-01", now) is None or isinstance(moment("0001-01-01", now), float)


ANY_TEXT = st.one_of(
    st.text(max_size=60),
    st.text(st.sampled_from("\"+-:*(){}^~\\'\x00\ud800 \tabAZ019_.file:ORNEAR😀́日"), max_size=60),
    st.lists(st.sampled_from(['"', "AND", "OR", "NOT", "NEAR(", "+", "-", "file:", "x", "text:", "{a b}:"])).map(
        " ".join
    ),
)


@given(ANY_TEXT)
@example('"' * 99)
@example("-" * 99)
@settings(max_examples=600, deadline=None)
def test_no_text_is_an_error(text: str) -> None:
    """Whatever is typed, FTS5 takes the expression and parsing is stable."""
    query = parse(text)
    assert isinstance(query, Query)
    expression = match_expression(query)
    if expression is not None:
        list(DB.execute("SELECT rowid, rank FROM fts WHERE fts MATCH ? ORDER BY rank", (expression,)))


@given(st.text(st.characters(max_codepoint=0x24F), min_size=1, max_size=30))
@settings(max_examples=300, deadline=None)
def test_segmentation_is_the_index_s(text: str) -> None:
    """A text indexed by FTS5 is found by the phrase of its own runs."""
    text = unicodedata.normalize("NFC", text)
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')")
    db.execute("INSERT INTO t VALUES(?)", (text.replace("\x00", " "),))
    db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'instance')")
    count = len(list(db.execute("SELECT term FROM v")))
    assert len(segment(text)) == count


@given(st.text("ab/*?[]!-.^&|~", max_size=8), st.text("ab/.-]!&", max_size=8))
@example("a*" * 40 + "b", "a" * 2000)
@settings(max_examples=500, deadline=None)
def test_a_glob_is_the_shell_s(pattern: str, text: str) -> None:
    """Patterns mean what `fnmatch` says, as far as no class holds a star, and cost no more with every star."""
    found = glob(pattern)(text)
    if "[" not in pattern and len(pattern) < 20:
        assert found == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*.py", "src/a.py", True),
        ("*.py", "a.pyc", False),
        ("[a-c]?.[!x]", "b1.y", True),
        ("[a-c]?.[!x]", "d1.y", False),
        ("[]]", "]", True),
        ("[", "[", True),
        ("[b-a]", "b", False),
        ("a*a", "a", False),
        ("*", "", True),
    ],
)
def test_globs(pattern: str, text: str, fits: bool) -> None:
    """Stars, single characters and classes."""
    assert glob(pattern)(text) is fits


DB = table()
