"""What makes a thread come first, and the searches that read texts: exact spellings and regular expressions."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fabled.retrieval.pattern as pattern
import fabled.retrieval.rank as ranking
from fabled import errors
from fabled.answers import Reader, answer
from fabled.store.queries import Queries
from tests.build import Transcript, make_uuid
from tests.home import Home
from tests.test_retrieval import put, talk, uuids

Ask = Callable[..., dict[str, Any]]
FUZZ = int(os.environ.get("FABLED_FUZZ", "1500"))
"""Query strings tried; the long form is FABLED_FUZZ=100000."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ask(home: Home) -> Iterator[Ask]:
    queries = Queries(str(home.map_db))
    reader = Reader(queries, home.vault)
    yield lambda query, **params: answer(reader, "search", {"query": query, "all": True, **params})
    queries.close()


def filled(name: str, *words: str) -> Transcript:
    """A session with a prompt for each of `words`, and a reply that says nothing of it."""
    one = talk(name)
    for word in words:
        one.user(word)
        one.assistant("done")
    return one


# The parts


def test_a_session_about_the_words_lifts_its_records(home: Home, ask: Ask) -> None:
    """Of two records that say the same, the one leads whose session says more of what was asked."""
    about = filled("s1", "the dunlin roosts", "where do they feed", "so the estuary it is", "estuary and tide")
    other = filled("s2", "the dunlin roosts", "now the build", "and the release", "one more word")
    put(home, other, about)
    value = ask("dunlin estuary tide", explain=True)
    rows = {row["uuid"]: row for row in value["results"]}
    lifted, plain = rows[about.records[0]["uuid"]], rows[other.records[0]["uuid"]]
    assert value["results"].index(lifted) < value["results"].index(plain)
    assert lifted["explain"]["words"] == plain["explain"]["words"]
    assert lifted["explain"]["session"] > plain["explain"]["session"]


def test_a_prompt_speaks_for_the_replies_to_it(home: Home, ask: Ask) -> None:
    """Words that stand only in the prompt count for the reply that has the others."""
    one, two = talk("s1"), talk("s2")
    one.user("about the ringing scheme")
    reply = one.assistant("the whimbrel whimbrel whimbrel carries a blue band")
    two.user("about the weather")
    two.assistant("the whimbrel whimbrel whimbrel carries a blue band")
    put(home, one, two)
    first = ask("ringing whimbrel band", explain=True)["results"][0]
    assert first["uuid"] == reply["uuid"]
    assert first["explain"]["title"] > 0 and first["explain"]["neighbours"] > 0


def test_words_near_each_other_count_more(home: Home, ask: Ask) -> None:
    """The record where the words stand together comes before the one where they stand apart."""
    one = talk()
    apart = one.user("turnstone on the rocks with many others far away and long before the count")
    together = one.user("the turnstone count on the rocks with many others far away and long before")
    put(home, one)
    value = ask("turnstone count", explain=True)
    assert uuids(value) == [together["uuid"], apart["uuid"]]
    assert value["results"][0]["explain"]["near"] > 0


def test_a_date_in_the_question_counts(home: Home, ask: Ask) -> None:
    """What was said on the day that is named comes first."""
    one = talk()
    early, late = one.user("the avocet nests"), one.user("the avocet nests")
    one.lines.clear()
    one.records.clear()
    for record, day in ((early, "2023-05-08"), (late, "2023-06-09")):
        one.put({**record, "timestamp": f"{day}T12:00:00.000Z"})
    put(home, one)
    for query in ("avocet on 8 May 2023", "avocet on May 8th", "avocet 2023-05-08", "avocet in May", "avocet Monday"):
        value = ask(query, explain=True)
        assert uuids(value)[0] == early["uuid"], query
        assert value["results"][0]["explain"]["dates"] > 0, query


def test_the_parts_add_up(home: Home, ask: Ask) -> None:
    """What --explain lists is what the score is made of."""
    one = filled("s1", "the sanderling runs", "sanderling and tide", "the tide table")
    put(home, one)
    for row in ask("sanderling tide table", explain=True)["results"]:
        why = row["explain"]
        parts = sum(why["words"].values()) + sum(value for name, value in why.items() if name != "words")
        assert parts == pytest.approx(row["score"], rel=0.01)
    assert "explain" not in ask("sanderling")["results"][0]


def test_what_tools_gave_counts_less_than_what_was_said(home: Home, ask: Ask) -> None:
    """A tool's output does not outrank the same words of a person."""
    one = talk()
    one.user("look")
    one.result(one.call("Read", {"file_path": "/x"}), "the ruff lek is open")
    said = one.user("the ruff lek is open")
    put(home, one)
    assert uuids(ask("ruff lek"))[0] == said["uuid"]


def test_very_common_words_are_ranked_by_the_index(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget of rows the answer has the same threads, and the rarer words still tell of sessions."""
    many = filled("s1", *(f"the knot flock number {number}" for number in range(30)), "a rare knot phalarope")
    put(home, many)
    whole = ask("knot phalarope", limit=50, explain=True)
    monkeypatch.setattr(ranking, "ROW_BUDGET", 10)
    bounded = ask("knot phalarope", limit=50, explain=True)
    assert sorted(uuids(bounded)) == sorted(uuids(whole))
    assert bounded["total"] == whole["total"] == 31
    assert uuids(bounded)[0] == uuids(whole)[0]
    assert bounded["results"][0]["explain"]["index"] > 0


def test_a_pasted_sentence_means_its_words(home: Home, ask: Ask) -> None:
    """In running text quotation marks do not demand; in a short query they do."""
    one = talk()
    hit = one.user("the smew came back to the reservoir in spring")
    put(home, one)
    sentence = 'so where did we say that the "bird of the year" was back and was that the smew'
    assert uuids(ask(sentence)) == [hit["uuid"]]
    assert ask('smew "bird of the year"')["total"] == 0


# One segmentation on both sides


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("昨日部署方案を見た", "部署", True),
        ("昨日部署方案を見た", "部署方案", True),
        ("昨日部署方案を見た", "署方", True),
        ("昨日部署方案を見た", "部置", False),
        ("昨日部署方案を見た", '"方案部署"', False),
        ("昨日部署方案を見た", "明日的部署方案怎么样了", True),
        ("サンドボックスで試す", "サンドボックス", True),
        ("サンドボックスで試す", "ボックス", True),
        ("게임을 했다", "게임", True),
        ("게임을 했다", "게임", True),
        ("gen用户itgc", "itgc", True),
        ("gen用户itgc", "用户itgc", True),
        ("Cafe\u0301 Übergröße", "café", True),
        ("Cafe\u0301 Übergröße", "ubergroße", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("parseHTTPHeader now", "http header", True),
        ("parseHTTPHeader now", "parse_http_header", True),
        ("src/app/main_loop.py:42", "main_loop", True),
    ],
)
def test_both_sides_are_cut_the_same_way(home: Home, ask: Ask, text: str, query: str, found: bool) -> None:
    """Words are found across ways to write them, and no others."""
    put(home, filled("s1", text))
    value = ask(query)
    assert bool(value["total"]) is found
    if found:
        assert value["results"][0]["highlights"]


def test_a_mended_full_text_has_the_same_words(home: Home, ask: Ask) -> None:
    """What is written again from the Vault is cut as it was the first time."""
    put(home, filled("s1", "昨日部署方案を見た"))
    home.map.db.execute("INSERT INTO fts(fts) VALUES('delete-all')")
    home.indexer._care.start_fts()
    home.index()
    assert ask("署方")["total"] == 1


# Searches that read texts


def test_an_exact_spelling_is_found_wherever_it_ranks(home: Home, ask: Ask) -> None:
    """However many records hold the words next to each other, the one spelt so is found."""
    one = filled("s1", *(f"foo bar foo bar {number}" for number in range(450)))
    spelt = one.user("a long sentence, of many words that make it rank lower, in which foo-bar stands once")
    put(home, one)
    value = ask("foo-bar", exact=True)
    assert uuids(value) == [spelt["uuid"]]
    assert value["searched"] == {"records": 451, "of": 451, "complete": True}


def test_an_exact_search_says_how_far_it_came(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time is over the answer tells that records were left."""
    put(home, filled("s1", "foo-bar", "foo bar"))
    monkeypatch.setattr(importlib.import_module("fabled.retrieval.search"), "EXACT_SECONDS", -1.0)
    assert ask("foo-bar", exact=True)["searched"] == {"records": 0, "of": 2, "complete": False}


def test_a_regular_expression_reads_whole_texts(home: Home, ask: Ask) -> None:
    """It finds what no word of the index shows, marks it, and goes from the latest thread back."""
    one = talk()
    one.user("first")
    result = one.result(one.call("Bash", {"command": "x"}), "noise " * 400 + "error E4711 at line 9")
    one.user("later, error E0815")
    put(home, one)
    value = ask(r"error E\d{4}\b", regex=True)
    assert value["searched"]["complete"] and value["total"] == 2
    assert uuids(value) == [one.records[-1]["uuid"], result["uuid"]]
    row = value["results"][0]
    assert [row["snippet"][start:end] for start, end in row["highlights"]] == ["error E0815"]
    assert uuids(ask(r"E\d+", regex=True, kind="tool")) == [result["uuid"]]
    assert ask(r"E\d+", regex=True, role="assistant")["total"] == 0
    assert ask("^later", regex=True, project="nowhere")["total"] == 0


def test_a_regular_expression_can_go_on_where_it_stopped(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer says behind how many threads the next begins; together they find everything once."""
    monkeypatch.setattr(pattern, "_THREADS_A_STEP", 3)
    put(home, filled("s1", *(f"reed bunting {number}" for number in range(10))))
    found: list[str] = []
    after = 0
    while True:
        value = ask("bunting [0-9]", regex=True, limit=2, after=after)
        found += uuids(value)
        after = value["searched"]["threads"]
        if value["searched"]["complete"]:
            break
    assert len(found) == len(set(found)) == 10


def test_a_catastrophic_pattern_ends(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that would take for ever is given up on each record, and that is told."""
    monkeypatch.setattr(pattern, "RECORD_SECONDS", 0.02)
    put(home, filled("s1", "a" * 5_000, "aab"))
    value = ask(r"(?:(a+)(\1?)+)+c|^(a|aa)+$(?<!a)", regex=True)
    assert value["total"] == 0
    assert value["searched"]["timed_out"] >= 1 and value["searched"]["complete"]
    assert ask("aab", regex=True)["total"] == 1


def test_other_os_threads_run_while_a_pattern_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many of these searches run at a time, whatever is asked."""
    for _ in range(pattern.AT_ONCE):
        assert pattern._turn.acquire(blocking=False)
    try:
        with pytest.raises(errors.Busy):
            pattern.find(None, None, None, None, 1, 0, 1.0)  # type: ignore[arg-type]
    finally:
        for _ in range(pattern.AT_ONCE):
            pattern._turn.release()


@pytest.mark.parametrize("wrong", ["(", "[a", "*a", "a{2,1}", "x" * 3_000, "(?P<n>a)(?P<n>", "\\"])
def test_what_is_no_regular_expression_is_refused(home: Home, ask: Ask, wrong: str) -> None:
    """A broken pattern is an error in words."""
    put(home, filled("s1", "x"))
    with pytest.raises(errors.BadRequest):
        ask(wrong, regex=True)


# Any text


PIECES = [
    '"', "'", "+", "-", "(", ")", "*", "^", "~", "{", "}", "[", "]", ":", "\\", "/", ".", ",", ";", "|", "&", "%", "$",
    "#", "@", "!", "?", "<", ">", "=", " ", "  ", "\t", "\n", "\x00", "\ud800", "\udfff", "\ufeff", "\u202e", "\u2028",
    "AND", "OR", "NOT", "NEAR", "NEAR(", "NEAR/2", "text:", "fts:", "rank", "rowid", "file:", "tool:", "role:",
    "project:", "since:", "until:", "session:", "term:", "file:*", "file:[", "since:2d", "until:9999-12-31", "-file:x",
    "knot", "foo-bar", "getUserName", "get_user_name", "C++17", "don't", "the", "8 May 2023", "2023-05-08", "in May",
    "May 99", "部署", "部", "サンドボックス", "게임", "\u1112\u1161\u11ab", "é", "e\u0301", "ß", "İ", "😀",
    "👩‍👩‍👧", "ﬁ", "Ⅷ", "١٢٣",
    "\u0300", "\u3099", "a" * 300, "1" * 50, "--", "''; drop table fts; --", "x OR 1=1",
]  # fmt: skip


def test_no_text_is_an_error(tmp_path: Path) -> None:
    """Whatever is typed has an answer, however it is asked for."""
    home = Home(tmp_path)
    one = filled("s1", "knot foo-bar getUserName don't", "the 部署方案 and サンドボックス", "게임 é ß 8 May 2023")
    put(home, one)
    queries = Queries(str(home.map_db))
    reader = Reader(queries, home.vault)
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    try:
        for number in range(FUZZ):
            if dice.random() < 0.8:
                text = "".join(dice.choices(PIECES, k=dice.randrange(12)))
            else:
                text = "".join(chr(dice.randrange(0x11000)) for _ in range(dice.randrange(40)))
            ways = dice.choice(({}, {}, {}, {"exact": True}, {"sort": "time"}, {"explain": True}, {"subagents": True}))
            try:
                value = answer(reader, "search", {"query": text, "all": True, **ways})
            except Exception as fault:
                raise AssertionError(f"seed {seed}, number {number}: {text!r} {ways}") from fault
            assert value["total"] >= len(value["results"])
            if number % 10 == 0:
                with contextlib.suppress(errors.BadRequest):
                    answer(reader, "search", {"query": text, "all": True, "regex": True, "seconds": 1})
    finally:
        queries.close()
        home.close()


def test_the_right_session_is_scored_with_many_in_scope(home: Home, ask: Ask) -> None:
    """A project of many sessions is searched as one, and others' sessions say nothing."""
    talks = [Transcript(session=make_uuid(f"p{number}"), cwd="/home/ana/app") for number in range(40)]
    for number, one in enumerate(talks):
        one.user(f"the heron count of day {number}")
    put(home, *talks)
    value = ask("heron day 7", all=False, project="/home/ana/app", limit=40)
    assert value["total"] == 40 and value["results"][0]["session_id"] == talks[7].session
    assert ask("heron day 7", all=False, project="/nowhere")["total"] == 0
    assert ask("heron day 7", session=talks[3].session)["total"] == 1
    assert ask("heron day 7", all=False, project="/home/ana/app")["total"] == 40
