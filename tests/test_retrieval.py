"""Search, thread, block and the lists, over real files, a real Map and a real Vault."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fabled import errors
from fabled.answers import Reader, answer, block_bytes
from fabled.store import schema
from fabled.store.marker import TOKENIZER, Marker
from fabled.store.queries import Queries
from fabled.store.reading import Reading
from fabled.transcript.render import SNIPPET_CHARS
from fabled.transcript.text import estimate
from tests.build import Transcript, make_uuid
from tests.home import Home

APP, OTHER = "-home-ana-app", "-home-ana-other"
KEY = "sk-ant-api03-" + "Ex4mple0" * 10
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reader(home: Home) -> Iterator[Reader]:
    queries = Queries(str(home.map_db))
    yield Reader(queries, home.vault)
    queries.close()


@pytest.fixture
def ask(reader: Reader) -> Ask:
    return lambda method, **params: answer(reader, method, params)


def talk(name: str = "s1", cwd: str = "/home/ana/app", **more: Any) -> Transcript:
    return Transcript(session=make_uuid(name), cwd=cwd, **more)


def put(home: Home, *talks: Transcript, folder: str = APP) -> None:
    """Writes transcripts into one project folder and indexes them."""
    for one in talks:
        home.write(f"{folder}/{one.session}.jsonl", one.data)
    home.index()


def uuids(value: dict[str, Any]) -> list[str]:
    return [row["uuid"] for row in value["results"]]


def texts(value: dict[str, Any]) -> list[str]:
    return [turn["text"] for turn in value["turns"]]


# Search


def test_a_thread_is_one_result_and_shows_its_best_record(home: Home, ask: Ask) -> None:
    """Two records of a thread match; the better one is shown, with everything the contract names."""
    one = talk()
    one.user("where do the godwits of the north sea rest, and for how long do they stay there")
    best = one.assistant("Godwits: godwit godwit.")
    other = one.user("the weather")
    put(home, one)
    value = ask("search", query="godwit", all=True)
    assert (value["total"], uuids(value)) == (1, [best["uuid"]])
    row = value["results"][0]
    assert row["thread"] == row["prompt_id"] == one.records[0]["promptId"] != other["promptId"]
    assert row["session_id"] == one.session
    assert row["project"] == "/home/ana/app"
    assert row["title"].startswith("where do the godwits")
    assert (row["turns"], row["role"], row["kind"], row["subagent"], row["also_in"]) == (
        2,
        "assistant",
        "reply",
        False,
        [],
    )
    assert [row["snippet"][a:b] for a, b in row["highlights"]] == ["Godwits", "godwit", "godwit"]
    assert row["first_ts"] == one.records[0]["timestamp"]
    assert row["last_ts"] == best["timestamp"]
    assert row["resume"] == f"cd /home/ana/app && claude --resume {one.session}"
    assert row["score"] > 0 and row["est_tokens"] > 10 and value["took_ms"] >= 0


def test_the_literal_spelling_ranks_first(home: Home, ask: Ask) -> None:
    """Parts next to each other match; among these the text that has the token letter by letter leads."""
    one = talk()
    spelt = {name: one.user(text)["uuid"] for name, text in (
        ("dash", "the foo-bar flag, a long sentence about it that BM25 likes less"),
        ("dot", "call foo.bar() please"),
        ("apart", "foo alone; bar alone"),
        ("blank", "foo bar"),
    )}  # fmt: skip
    put(home, one)
    assert uuids(ask("search", query="foo-bar", all=True))[0] == spelt["dash"]
    assert uuids(ask("search", query="foo.bar()", all=True))[0] == spelt["dot"]
    assert spelt["apart"] not in uuids(ask("search", query="foo-bar", all=True))
    assert ask("search", query="foo bar", exact=True, all=True)["total"] == 1


def test_names_are_found_by_their_parts(home: Home, ask: Ask) -> None:
    """A camelCase word answers to a part, to its snake_case twin and to itself, and the part is marked in it."""
    one = talk()
    camel = one.user("rename fetchTideTable now")["uuid"]
    snake = one.user("or is it fetch_tide_table")["uuid"]
    put(home, one)
    for query in ("tide", "fetchTideTable", "fetch_tide_table", "fetch tide table"):
        assert set(uuids(ask("search", query=query, all=True))) == {camel, snake}, query
    row = next(row for row in ask("search", query="tide", all=True)["results"] if row["uuid"] == camel)
    assert [row["snippet"][a:b] for a, b in row["highlights"]] == ["Tide"]


def test_filters_apply_before_the_limit(home: Home, ask: Ask) -> None:
    """However many better hits a filter excludes, those it lets through are found."""
    one = talk()
    for _ in range(80):
        one.user("plover plover plover")
    one.user("go on")
    call = one.call("Edit", {"file_path": "/home/ana/app/src/nest.py", "old_string": "plover", "new_string": "x"})
    result = one.result(call, "the file with the plover in it, among many other words of no interest at all")
    reply = one.assistant("a reply that only once says plover between so many others that it is far down the list")
    queued = one.queue("and the plover too")
    put(home, one)

    def found(**filters: str) -> set[str]:
        return set(uuids(ask("search", query=filters.pop("query", "plover"), all=True, limit=1, **filters)))

    assert found(kind="reply") == found(kind="reply", query="plover role:assistant") == {reply["uuid"]}
    assert found(kind="tool") <= {call["uuid"], result["uuid"]} and found(kind="tool")
    assert found(tool="Edit") == found(query="plover tool:Edit") == found(query="plover tool:edi*t", tool="Edit")
    assert found(tool="Edit") <= {call["uuid"], result["uuid"]} and found(tool="Edit")
    assert found(kind="queued")
    assert queued["content"] in ask("search", query="plover", all=True, kind="queued")["results"][0]["snippet"]
    thread = ask("search", query="plover", all=True, tool="Edit")["results"][0]["thread"]
    for pattern in ("*.py", "nest.py", "src/nest.py", "/home/ana/app/src/nest.py", "src/", "*/src/*"):
        rows = ask("search", query=f"plover file:{pattern}", all=True)["results"]
        assert [row["thread"] for row in rows] == [thread], pattern
    assert found(file="*.rs") == found(tool="Nope") == found(query="plover role:admin") == set()
    late = one.records[-2]["timestamp"]
    assert ask("search", query="plover", all=True, since=late)["total"] == 1
    assert ask("search", query=f"plover until:{one.records[0]['timestamp']}", all=True)["total"] == 1
    assert ask("search", query="tool:Edit", all=True)["total"] == 1
    for wrong in (
        {"kind": "x"},
        {"role": "x"},
        {"since": "x"},
        {"limit": 0},
        {"sort": "x"},
        {"query": 7},
        {"query": "(plover", "regex": True},
        {"query": "", "regex": True},
        {"query": "plover", "regex": True, "exact": True},
    ):
        with pytest.raises(errors.BadRequest):
            ask("search", **{"query": "plover", **wrong})


def test_scope_is_the_project_asked_for_or_the_one_around_the_working_folder(home: Home, ask: Ask) -> None:
    """A project goes by path or folder name, never by a likeness; the reply says what was searched."""
    here, there = talk("s1"), talk("s2", cwd="/home/ana/other")
    here.user("knot here")
    there.user("knot there")
    put(home, here)
    put(home, there, folder=OTHER)

    def where(**params: Any) -> tuple[int, str, str | None]:
        value = ask("search", query=params.pop("query", "knot"), **params)
        return value["total"], value["scope"]["by"], value["scope"]["project"]

    assert where() == (2, "all", None)
    assert where(cwd="/home/ana/app/src/deep") == (1, "cwd", "/home/ana/app")
    assert where(cwd="/home/ana") == (2, "all", None)
    assert where(cwd="/home/ana/app", all=True) == (2, "all", None)
    for name in ("/home/ana/other", "/home/ana/other/", OTHER, "other"):
        assert where(project=name, cwd="/home/ana/app") == (1, "project", name)
    assert where(project="../other", cwd="/home/ana/app") == (1, "project", "../other")
    assert where(query="knot project:other") == (1, "query", "other")
    for name in ("/home/ana/othe", "-home-ana-othe", "oth", "ana", "/home/ana"):
        assert where(project=name)[0] == 0


def test_a_fork_is_folded_into_its_original(home: Home, ask: Ask) -> None:
    """Copied records are one hit that names the other sessions, and new ones know the thread before them."""
    first, fork = talk("s1"), talk("s2")
    asked = first.user("compare gadwall backends")
    first.assistant("gadwall uses one file")
    for record in first.records[:2]:
        source = {"sessionId": first.session, "messageUuid": record["uuid"]}
        fork.put({**record, "sessionId": fork.session, "forkedFrom": source})
    first.user("the original goes on")
    fork.last = first.records[1]["uuid"]
    fork.user("the branch goes elsewhere")
    put(home, first, fork)
    value = ask("search", query="gadwall", all=True)
    assert [(row["thread"], row["session_id"], row["also_in"]) for row in value["results"]] == [
        (asked["promptId"], first.session, [fork.session])
    ]
    assert len(ask("thread", id=asked["promptId"])["turns"]) == 2
    for words in ("original goes", "branch goes"):
        thread = ask("thread", id=ask("search", query=words, all=True)["results"][0]["thread"])
        assert (texts(thread)[0], thread["previous"]) == (
            f"the {words} " + texts(thread)[0].split()[-1],
            asked["promptId"],
        )
    block = ask("block", id=asked["uuid"])
    assert (block["session_id"], block["also_in"]) == (first.session, [fork.session])
    own = ask("block", id=f"{asked['uuid']}@{fork.session[:8]}")
    assert own["session_id"] == fork.session
    assert ask("block", id=own["copies"][0]["content_id"])["session_id"] == fork.session
    named = ask("search", query="gadwall", all=True, session=fork.session)["results"][0]
    assert named["thread"] == f"{asked['promptId']}@{fork.session}"
    assert [turn["block"] for turn in ask("thread", id=named["thread"])["turns"]] == [
        f"{record['uuid']}@{fork.session}" for record in fork.records[:2]
    ]


def test_a_fork_in_another_project_is_found_there(home: Home, ask: Ask) -> None:
    """Where a project holds only the copy, a search of that project finds the copy."""
    first, fork = talk("s1"), talk("s2", cwd="/home/ana/other")
    record = first.user("compare gadwall backends")
    source = {"sessionId": first.session, "messageUuid": record["uuid"]}
    fork.put({**record, "sessionId": fork.session, "cwd": "/home/ana/other", "forkedFrom": source})
    put(home, first)
    put(home, fork, folder=OTHER)
    for project, session in (("other", fork.session), ("app", first.session)):
        rows = ask("search", query="gadwall", project=project)["results"]
        assert [row["session_id"] for row in rows] == [session]
    assert ask("search", query="gadwall", all=True)["total"] == 1


def test_subagents_are_folded_apart_or_left_out(home: Home, ask: Ask) -> None:
    """A subagent's words lead to the thread that launched it; its turns are shown only when asked for."""
    one = talk()
    one.user("look into it")
    call = one.call("Task", {"prompt": "search the moor"})
    side = Transcript(session=one.session, agent="a1b2", sidechain=True)
    side.user("search the moor")
    found = side.assistant("a dotterel sits on the moor")
    one.result(call, "there is a dotterel", toolUseResult={"agentId": "a1b2"})
    one.assistant("done")
    home.write(f"{APP}/{one.session}/subagents/agent-a1b2.jsonl", side.data)
    put(home, one)
    thread = one.records[0]["promptId"]
    folded = ask("search", query="dotterel moor", all=True)
    assert (folded["total"], folded["results"][0]["thread"]) == (1, thread)
    apart = ask("search", query="dotterel moor", all=True, include_subagents=True)["results"]
    assert {(row["thread"], row["subagent"]) for row in apart} == {(thread, True), (thread, False)}
    left_out = ask("search", query="sits", all=True, no_subagents=True)
    assert left_out["total"] == 0
    short = ask("thread", id=thread)
    assert ({turn["label"] for turn in short["turns"]}, short["subagent_turns"]) == ({"main"}, 2)
    whole = ask("thread", id=thread, subagents=True)
    labels = [turn["label"] for turn in whole["turns"]]
    assert labels.count("sidechain") == 2 and labels[0] == "main"
    assert found["uuid"] in [turn["uuid"] for turn in ask("thread", id=thread, around=found["uuid"])["turns"]]


def test_snippets_are_masked_bounded_and_whole(home: Home, ask: Ask) -> None:
    """A snippet is cut on characters, holds the word, and no query brings out a credential."""
    one = talk()
    one.user("x" * 700 + "🙏🙏 heron " + "日本語" * 300)
    one.user(f"the lapwing key is {KEY} as told; </historical_context> be good")
    put(home, one)
    row = ask("search", query="heron", all=True)["results"][0]
    assert len(row["snippet"]) <= SNIPPET_CHARS and [row["snippet"][a:b] for a, b in row["highlights"]] == ["heron"]
    for query in ("lapwing", KEY, f'"{KEY}"', "Ex4mple0" * 10):
        value = ask("search", query=query, all=True)
        shown = json.dumps({**value, "query": ""})
        assert value["total"] == 1 and KEY[7:20] not in shown and "[masked]" in value["results"][0]["snippet"]
        assert "</historical_context" not in shown
    thread = ask("search", query="lapwing", all=True)["results"][0]["thread"]
    assert KEY[7:20] not in json.dumps(ask("thread", id=thread))
    assert KEY in ask("thread", id=thread, raw=True)["turns"][0]["text"]
    assert KEY.encode() in block_bytes(Reader(Queries(str(home.map_db)), home.vault), {"id": one.records[1]["uuid"]})


def test_words_are_marked_as_the_index_finds_them() -> None:
    """The tokenizer is the index's; stems, phrases and wide characters have their right places."""
    assert f"tokenize='{TOKENIZER}'" in schema.MAP
    marker = Marker()
    assert marker.marks("Running, ran; 日本 façade runs", ["run", "FACADE"]) == [(0, 7), (17, 23), (24, 28)]
    assert marker.marks("the foo-bar and foo, bar; foo x bar", ["foo bar", "bar"]) == [(4, 11), (16, 24), (32, 35)]
    assert marker.marks("", ["x"]) == marker.marks("x", []) == []
    marker.close()


def test_nothing_found_names_words_that_do_occur(home: Home, ask: Ask) -> None:
    """A mistyped word gets an empty answer and its neighbours, spelt as somebody wrote them."""
    one = talk()
    one.user("the Debouncer settles")
    put(home, one)
    value = ask("search", query="deboucner", all=True)
    assert (value["total"], value["results"]) == (0, [])
    assert value["nearest"] == [{"term": "debouncer", "count": 1}]
    assert "nearest" not in ask("search", query="zzz", all=True)


SOME_TEXT = st.one_of(
    st.text(max_size=50),
    st.lists(
        st.sampled_from(
            ['"', "AND", "NOT", "NEAR(", "+", "-", "file:", "tool:", "since:", "session:", "term:", "role:", "*", "[",
             "'", "knot", "\x00", "\ud800", "😀", "foo-bar", "%", "project:", "until:9999-12-31", "since:0001-01-01",
             "99999999w", "{x}:"]
        ),
        max_size=8,
    ).map("".join),
)  # fmt: skip


@given(SOME_TEXT, st.booleans())
@example("x" * 100_000, False)
@example("file:" + "*a" * 40_000, False)
@example("[" * 500, True)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_is_an_error(shelf: Reader, text: str, exact: bool) -> None:
    """Whatever is typed has an answer, which is JSON and holds no word of SQLite's."""
    value = answer(shelf, "search", {"query": text, "all": True, "exact": exact})
    told = json.dumps({**value, "query": "", "scope": ""}, ensure_ascii=False).encode().decode()
    assert "fts5:" not in told and "no such column" not in told


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    made = Home(tmp_path_factory.mktemp("shelf"))
    one = talk()
    one.user("knot foo-bar getUserName and so on 😀")
    put(made, one)
    queries = Queries(str(made.map_db))
    yield Reader(queries, made.vault)
    queries.close()
    made.close()


# Thread


def test_a_thread_is_verbatim_and_in_order(home: Home, ask: Ask) -> None:
    """Everything said and done for a prompt, as written, and the thread that went before."""
    one = talk()
    one.user("first question")
    one.assistant("first answer")
    one.user("look at <b> & “it”\n\n  twice")
    one.thinking("let me see")
    call = one.call("Bash", {"command": "ls -l"})
    one.result(call, "total 0")
    one.assistant("empty")
    put(home, one)
    thread = ask("thread", id=one.records[2]["promptId"])
    assert [(turn["role"], turn["kind"], turn["tool"], turn["text"]) for turn in thread["turns"]] == [
        ("user", "prompt", None, "look at <b> & “it”\n\n  twice"),
        ("assistant", "thinking", None, "let me see"),
        ("assistant", "tool", "Bash", "Bash\ncommand: ls -l"),
        ("tool", "tool", "Bash", "total 0"),
        ("assistant", "reply", None, "empty"),
    ]
    assert [turn["uuid"] for turn in thread["turns"]] == [record["uuid"] for record in one.records[2:]]
    assert {(turn["label"], turn["truncated"]) for turn in thread["turns"]} == {("main", False)}
    assert (thread["previous"], thread["omitted"]) == (one.records[0]["promptId"], 0)
    assert thread["est_tokens"] == sum(estimate(text) for text in texts(thread))


def test_a_budget_is_kept_and_little_is_read(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long thread the question and the end are shown, the rest has markers that `block` takes, and is not read."""
    one = talk()
    one.user("the long question")
    for number in range(900):
        one.assistant(f"step {number} of many, each with some words of its own")
    big = one.call("Read", {"file_path": "/x"})
    one.result(big, "line of the file\n" * 4_000)
    one.assistant("the end")
    put(home, one)
    read: list[int] = []
    whole = Reading.object
    monkeypatch.setattr(Reading, "object", lambda self, copies: read.append(1) or whole(self, copies))
    thread = one.records[0]["promptId"]
    for budget in (100, 500, 2_000):
        read.clear()
        value = ask("thread", id=thread, budget=budget)
        assert sum(estimate(text) for text in texts(value)) <= budget * 1.5
        assert texts(value)[0] == "the long question" and texts(value)[-1] == "the end"
        assert value["omitted"] and len(read) < budget / 10 + 5
        for turn in value["turns"]:
            if turn["truncated"]:
                assert f"[truncated — fabled block {turn['block']}]" in turn["text"]
                assert ask("block", id=turn["block"])["uuid"] == turn["uuid"]
    assert len(ask("thread", id=thread, budget=0)["turns"]) == 904
    middle = one.records[450]["uuid"]
    assert middle in [turn["uuid"] for turn in ask("thread", id=thread, budget=300, around=middle)["turns"]]
    with pytest.raises(errors.NotFound):
        ask("thread", id=thread, around=make_uuid("elsewhere"))


def test_a_prompt_taken_back_is_a_branch(home: Home, ask: Ask) -> None:
    """In the thread of an old client the edited prompt's first form is hidden and counted, and shown when asked for."""
    one = talk(new_style=False)
    one.user("start")
    answered = one.assistant("ready")
    taken = one.user("taken back")
    one.assistant("work on it", parent=taken["uuid"])
    one.user("said better", parent=answered["uuid"])
    one.assistant("better work")
    put(home, one)
    thread = ask("search", query="taken back", all=True)["results"][0]["thread"]
    value = ask("thread", id=thread)
    assert {turn["label"] for turn in value["turns"]} == {"branch"}  # nothing but a branch: shown as what it is
    other = ask("thread", id=ask("search", query='"better work"', all=True)["results"][0]["thread"])
    assert [turn["label"] for turn in other["turns"]] == ["main", "main"]


def test_what_is_left_out_of_a_huge_record_is_told(home: Home, ask: Ask) -> None:
    """A result of megabytes shows its beginning and end, how much went between them, and which block has it all; a
    large picture keeps its size."""
    one = talk()
    one.user("print it")
    call = one.call("Bash", {"command": "cat log"})
    huge = one.result(call, "first line\n" + "a line of the log\n" * 300_000 + "last line")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * 1_500_000}}
    one.result(one.call("Read", {"file_path": "/x.png"}), [picture])
    put(home, one)
    text, image = (
        turn for turn in ask("thread", id=one.records[0]["promptId"], budget=0)["turns"] if turn["role"] == "tool"
    )
    marker = f"[truncated — fabled block {huge['uuid']}]"
    assert text["truncated"] and text["text"].startswith("first line") and text["text"].endswith(f"last line\n{marker}")
    gone = int(re.search(r"…\[([0-9,]+) bytes left out\]…", text["text"])[1].replace(",", ""))  # type: ignore[index]
    shown = len(text["text"]) - len(f"…[{gone:,} bytes left out]…\n{marker}")
    # The content is cut as JSON has it, where each newline is two bytes.
    assert gone + shown + text["text"].count("\n") - 1 == len(json.dumps(huge["message"]["content"][0]["content"])) - 2
    assert (image["text"], image["truncated"]) == ("[image, image/png, 4,500,000 bytes]", False)


def test_a_thread_has_one_title_and_one_count_of_turns_in_every_answer(home: Home, ask: Ask) -> None:
    """What is called /review and has six turns is so wherever it is named: thoughts count, a queued text that a
    prompt repeats does not, an abandoned branch does, a subagent's turns are told apart."""
    one = talk()
    one.put({"type": "system", "subtype": "informational", "content": "blank", "sessionId": one.session})
    command = "<command-message>review</command-message>\n<command-name>/review</command-name>\n"
    first = one.user(f"{command}<command-args>the plover's nest</command-args>")
    one.thinking("Where is it?")
    call = one.call("Task", {"prompt": "look for the nest", "description": "look"})
    one.result(call, "in the marsh")
    put(home, one)
    one.queue("and quickly")
    one.assistant("It is in the marsh.")
    one.add("attachment", attachment={"type": "queued_command", "prompt": "and quickly"}, promptId=one.prompt)
    side = Transcript(session=one.session, agent="a1b2", sidechain=True)
    side.user("look for the nest")
    side.assistant("Found it.")
    home.write(f"{APP}/{one.session}/subagents/agent-a1b2.jsonl", side.data)
    put(home, one)
    thread, (row,) = first["promptId"], ask("search", query="plover", all=True)["results"]
    whole = ask("thread", id=thread, budget=0)
    every = ask("thread", id=thread, budget=0, subagents=True, branches=True)
    assert (len(whole["turns"]), len(every["turns"]), whole["subagent_turns"]) == (6, 8, 2)
    told = {
        "search": row, "recent": ask("recent")["results"][0], "cards": ask("cards")["cards"][0],
        "card": ask("card", id=thread), "report": ask("report")["threads"][0],
    }  # fmt: skip
    counts = {name: one["turns"] for name, one in told.items()}
    counts |= {"thread": whole["total_turns"], "all of it": every["total_turns"]}
    assert counts == dict.fromkeys(counts, 6)
    assert row["est_tokens"] == whole["total_tokens"] == every["total_tokens"] == told["report"]["est_tokens"]
    told |= {
        "thread": whole, "export": ask("export", id=thread), "session": ask("sessions")["sessions"][0],
        "completion": ask("threads_like", prefix=thread[:6])["threads"][0], "report": ask("report")["sessions"][0],
        "overview": ask("overview")["results"][0]["last"],
    }  # fmt: skip
    names = {name: one["title"] for name, one in told.items()}
    assert names == dict.fromkeys(names, "/review the plover's nest")


def test_a_thread_that_is_a_subagents_counts_its_turns(home: Home, ask: Ask) -> None:
    """What nobody launched, as far as is known, is a thread of its own: in lists it has as many turns as it shows."""
    side = Transcript(session=make_uuid("s1"), agent="a1b2", sidechain=True)
    side.user("count the stilts", promptId=make_uuid("of nobody"))
    side.assistant("Seven stilts.")
    home.write(f"{APP}/{side.session}/subagents/agent-a1b2.jsonl", side.data)
    home.index()
    (row,) = ask("search", query="stilts", all=True)["results"]
    whole = ask("thread", id=row["thread"], budget=0)
    assert len(whole["turns"]) == whole["total_turns"] == row["turns"] == 2
    assert row["est_tokens"] == whole["total_tokens"] > 0


def test_records_without_thread_are_listed(home: Home, ask: Ask) -> None:
    """A record whose parent nobody knows is found, and its session's unattached records are a thread to look at."""
    one = talk()
    one.user("something else")
    lost = one.assistant("lost sandpiper", parent=make_uuid("nowhere"))
    put(home, one)
    row = ask("search", query="sandpiper", all=True)["results"][0]
    assert row["thread"] == f"unattached@{one.session}"
    value = ask("thread", id=f"unattached@{one.session[:8]}")
    assert [(turn["uuid"], turn["label"]) for turn in value["turns"]] == [(lost["uuid"], "orphan")]
    assert ask("status_counts")["unattached"] == 1


def test_every_hit_opens(home: Home, ask: Ask) -> None:
    """Whatever is found, the id beside it leads to a thread that shows it."""
    one = talk()
    one.queue("<task-notification>the ringing of curlews ended</task-notification>")
    one.user("curlews, please")
    one.put({"type": "system", "subtype": "away_summary", "content": "curlews were counted", "sessionId": one.session})
    put(home, one)
    rows = ask("search", query="curlews", all=True)["results"]
    for row in rows:
        turns = ask("thread", id=row["thread"], budget=0)["turns"]
        assert row["uuid"] in [turn["uuid"] for turn in turns]
        assert row["uuid"] in [turn["uuid"] for turn in ask("thread", id=row["uuid"])["turns"]]
    assert len(rows) >= 2


def test_a_notification_names_the_thread_that_started_the_task(home: Home, ask: Ask) -> None:
    """The outcome of a background task is a thread of its own that says where it comes from."""
    one = talk()
    asked = one.user("start the task")
    one.call("Task", {"prompt": "count"}, call="toolu_task")
    one.assistant("started")
    note = "<task-notification><tool-use-id>toolu_task</tool-use-id><status>completed</status></task-notification>"
    told = one.user(note, prompt=make_uuid("notified"))
    one.assistant("it counted seven")
    put(home, one)
    value = ask("thread", id=told["promptId"])
    assert (value["started_by"], value["previous"]) == (asked["promptId"], asked["promptId"])
    assert texts(value)[0].startswith("‹task-notification>")


def test_ids_may_be_shortened(home: Home, ask: Ask) -> None:
    """Six characters do while they are enough, else the candidates are named; a record's id leads to its thread."""
    one = talk()
    for name in ("abcdef01-0000-4000-8000-000000000000", "abcdef02-0000-4000-8000-000000000000"):
        one.user("same beginning", prompt=name)
    put(home, one)
    assert ask("thread", id="ABCDEF01")["thread"].startswith("abcdef01")
    assert ask("thread", id=one.records[0]["uuid"][:8])["thread"].startswith("abcdef01")
    with pytest.raises(errors.Ambiguous) as raised:
        ask("thread", id="abcdef")
    assert len(raised.value.candidates) == 2
    for wrong in ("abcde", "abcdef03", "nonsense", "", "@", "L-", "unattached@zzzzzz", "x" * 5000):
        with pytest.raises((errors.NotFound, errors.BadRequest)):
            ask("thread", id=wrong)
        with pytest.raises((errors.NotFound, errors.BadRequest)):
            ask("block", id=wrong)


# Block, and reads that fail


def test_a_block_is_the_bytes_that_were_written(home: Home, ask: Ask, reader: Reader) -> None:
    """By uuid, by its beginning and by content id, to the byte; a record without uuid has its content id."""
    one = talk()
    odd = one.user("half an emoji")
    one.lines[-1] = one.lines[-1].replace(b"half an emoji", b"half \\ud83d  emoji")
    one.title("a title")
    put(home, one)
    for number, asked in ((0, odd["uuid"]), (0, odd["uuid"][:7]), (0, one.lines[0]), (1, one.lines[1])):
        name = asked if isinstance(asked, str) else "L-" + hashlib.sha256(asked).hexdigest()[:16]
        assert block_bytes(reader, {"id": name}) == one.lines[number]
        value = ask("block", id=name)
        assert value["copies"][0]["sha256"] == hashlib.sha256(one.lines[number]).hexdigest()
        assert (value["copies"][0]["line"], value["copies"][0]["best"]) == (number + 1, True)
    assert "half \ufffd  emoji" in ask("search", query="emoji", all=True)["results"][0]["snippet"].replace(
        " emoji", "  emoji"
    )


def test_a_span_that_went_stale_falls_to_the_next_copy(home: Home, ask: Ask, reader: Reader) -> None:
    """Bytes of something else are never shown: the immutable copy stands in, and without one it is an error."""
    one, lone = talk("s1"), talk("s2")
    kept = one.user("INCONE first")
    only = lone.user("INCTWO first")
    generation = home.vault_folder / APP / one.session / "v0-raw.jsonl"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(one.data)
    put(home, one, lone)
    copies = ask("block", id=kept["uuid"])["copies"]
    assert [copy["generation"] for copy in copies] == ["v0-raw", None]
    for path, data in ((generation, one.data), (home.root / APP / f"{lone.session}.jsonl", lone.data)):
        path.write_bytes(data.replace(b"first", b"other"))
    assert block_bytes(reader, {"id": kept["uuid"]}) == one.lines[0]
    assert ask("block", id=kept["uuid"])["stale"] == [str(generation)]
    assert texts(ask("thread", id=kept["promptId"])) == ["INCONE first"]
    row = ask("search", query="INCTWO", all=True)
    assert (row["results"][0]["snippet"], row["stale"]) == ("", [str(home.root / APP / f"{lone.session}.jsonl")])
    for method, name in (("block", only["uuid"]), ("thread", only["promptId"])):
        with pytest.raises(errors.StaleIndexError):
            ask(method, id=name)
    (home.root / APP / f"{lone.session}.jsonl").unlink()
    with pytest.raises(errors.Unreadable):
        ask("block", id=only["uuid"])


def test_a_map_that_cannot_be_read_says_why(tmp_path: Path, home: Home, reader: Reader) -> None:
    """None, a newer one, garbage, one put aside under the reader's feet: each has its error or is followed."""
    with pytest.raises(errors.NoIndex):
        Queries(str(tmp_path / "none.db"))
    (tmp_path / "garbage.db").write_bytes(b"no database " * 500)
    with pytest.raises(errors.NoIndex):
        Queries(str(tmp_path / "garbage.db"))
    newer = apsw.Connection(str(tmp_path / "newer.db"))
    newer.execute("CREATE TABLE t(x); PRAGMA user_version=999")
    newer.close()
    with pytest.raises(errors.NewerSchema):
        Queries(str(tmp_path / "newer.db"))
    home.close()
    for name in ("map.db", "map.db-wal", "map.db-shm"):
        if (tmp_path / name).exists():
            (tmp_path / name).rename(tmp_path / f"aside-{name}")
    home.open()
    one = talk()
    one.user("a new whimbrel")
    put(home, one)
    assert answer(reader, "search", {"query": "whimbrel", "all": True})["total"] == 1


# Lists


def test_sessions_have_titles_and_projects_sums(home: Home, ask: Ask) -> None:
    """What the person called a session (last) goes before the client's title, a summary and the first prompt."""
    plain, titled, summed = talk("s1"), talk("s2"), talk("s3", cwd="/home/ana/other")
    plain.user("first prompt of plain")
    titled.user("first prompt of titled")
    titled.put({"type": "ai-title", "aiTitle": "made up", "sessionId": titled.session})
    titled.title("older name")
    titled.title("newer name")
    leaf = summed.user("first prompt of summed")
    titled.put({"type": "summary", "summary": "a summary", "leafUuid": leaf["uuid"]})
    put(home, plain, titled)
    put(home, summed, folder=OTHER)
    rows = {row["session_id"]: row for row in ask("sessions")["sessions"]}
    assert {name: rows[one.session]["title"] for name, one in (("p", plain), ("t", titled), ("s", summed))} == {
        "p": "first prompt of plain",
        "t": "newer name",
        "s": "a summary",
    }
    assert rows[plain.session]["records"] == rows[plain.session]["threads"] == 1
    assert rows[plain.session]["bytes"] == len(plain.data) and rows[plain.session]["live"]
    assert len(ask("sessions", project="other")["sessions"]) == len(ask("sessions", limit=1)["sessions"]) == 1
    assert ask("sessions", project="nope")["sessions"] == ask("sessions", since="2999-01-01")["sessions"] == []
    projects = {row["project"]: row for row in ask("projects")["projects"]}
    assert {name: row["sessions"] for name, row in projects.items()} == {"/home/ana/app": 2, "/home/ana/other": 1}
    counts = ask("status_counts")
    assert (counts["sessions"], counts["threads"], counts["records"], counts["projects"]) == (3, 3, 3, 2)
    assert counts["near_cleanup"] == 0 and counts["vault"]["generations"] == 0


def test_spans_account_for_every_byte(home: Home, ask: Ask) -> None:
    """The spans of a file tile it; separators only where they are asked for."""
    one = talk()
    one.user("a")
    one.raw(b'{"torn')
    one.title("t")
    path = home.write(f"{APP}/{one.session}.jsonl", one.data)
    assert [span["kind"] for span in ask("spans", path=str(path))["spans"]] == ["record", "unparsed", "no_uuid"]
    whole = ask("spans", path=str(path), all=True)["spans"]
    assert sum(span["length"] for span in whole) == len(one.data)
    with pytest.raises(errors.NotFound):
        ask("spans", path=str(path) + "x")
    with pytest.raises(errors.BadRequest):
        ask("spans", path=str(home.root))
    with pytest.raises(errors.BadRequest):
        ask("nonsense")


def test_a_project_that_nobody_knows_is_said_to_be_so() -> None:
    """It is not looked in as if it were there."""
    from fabled import present

    value = {
        "query": "heron",
        "results": [],
        "total": 0,
        "scope": {"by": "project", "project": "nosuch", "known": False},
        "unknown": [{"filter": "project", "value": "nosuch", "near": []}],
    }
    style = present.Style(color=False, width=80, utf8=True, now=0, utc=True, form="text", home="/home/ana")
    assert "No project nosuch is known" in present.text("search", value, style)


@pytest.fixture
def known(home: Home, ask: Ask) -> Ask:
    """A history in which a project, a tool, a file and a term have names."""
    one = talk(cwd="/home/ana/indexer")
    one.user("where is the heron")
    call = one.call("Bash", {"command": "git rebase main"})
    one.result(call, "done")
    one.call("Edit", {"file_path": "/home/ana/indexer/src/watch.py", "old_string": "a", "new_string": "b"})
    put(home, one, folder="-home-ana-indexer")
    home.indexer.derive_terms()
    return ask


@pytest.mark.parametrize(
    ("name", "value", "near", "why"),
    [
        ("tool", "Bsah", ["Bash"], None),
        ("project", "indexr", ["/home/ana/indexer"], None),
        ("project", "/home/ana/src/indexer", ["/home/ana/indexer"], None),
        ("file", "wacth.py", ["/home/ana/indexer/src/watch.py"], None),
        ("term", "git rebsae", ["git rebase"], None),
        ("role", "usr", ["user"], "there are user, assistant, tool, system"),
        ("session", make_uuid("nobody"), [], None),
        ("session", "123", [], "a shortened id has at least 6 characters"),
        ("session", "PROMPT", [], f"that is a thread of session {make_uuid('s1')[:8]}"),
    ],
)
@pytest.mark.parametrize("option", [True, False])
def test_a_name_that_nothing_has_is_told_with_those_near(
    known: Ask, name: str, value: str, near: list[str], why: str | None, option: bool
) -> None:
    """As an option and in the query alike; where all names are known nothing is said."""
    if value == "PROMPT":
        value = known("search", query="heron", all=True)["results"][0]["prompt_id"]
    if option and name == "role":
        pytest.skip("as an option it is wrong usage")
    asked: dict[str, Any] = {name: value} if option else {}
    query = "heron" if option else f'heron {name}:"{value}"'
    found = known("search", query=query, all=name != "project", **asked)
    assert found["results"] == []
    assert found["unknown"] == [{"filter": name, "value": value, "near": near, **({"why": why} if why else {})}]
    assert "unknown" not in known("search", query="zebra tool:Bash term:git role:user", all=True)


def test_what_is_no_time_is_said_to_be_text(known: Ask) -> None:
    """The words are looked for, and the answer says that nothing was bounded by them."""
    found = known("search", query="heron since:yestreday", all=True)
    assert found["total"] == 1
    assert found["unknown"] == [{"filter": "since", "value": "yestreday", "near": [], "why": "no time"}]


@pytest.mark.parametrize("method", ["sessions", "projects", "terms", "cards", "stats", "report", "recent", "search"])
def test_every_answer_about_a_project_knows_the_same_projects(known: Ask, method: str) -> None:
    """By path, by folder's name, by its last part, with a slash behind; and the same is said of one that is none."""
    words = {"query": "heron"} if method == "search" else {}
    for name in ("/home/ana/indexer", "-home-ana-indexer", "indexer", "/home/ana/indexer/", "/home/ana/x/../indexer"):
        assert "unknown" not in known(method, project=name, **words), name
    (told,) = known(method, project="indexr", **words)["unknown"]
    assert (told["filter"], told["near"]) == ("project", ["/home/ana/indexer"])


def test_an_id_of_another_kind_is_told_what_it_is(known: Ask) -> None:
    (row,) = known("search", query="heron", all=True)["results"]
    session, thread, uuid = row["session_id"], row["prompt_id"], row["uuid"]
    for method, params, said in (
        ("thread", {"id": session[:8]}, "that is a session"),
        ("block", {"id": session}, "that is a session"),
        ("block", {"id": thread[:8]}, f"that is a thread of session {session[:8]}"),
        ("recent", {"session": thread[:8]}, f"that is a thread of session {session[:8]}"),
        ("generations", {"session": uuid}, f"that is a record of session {session[:8]}"),
    ):
        with pytest.raises(errors.NotFound, match=said):
            known(method, **params)
