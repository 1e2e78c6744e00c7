"""Where was I, every project, and what became of a file: over real files and a real Map."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabled import errors
from fabled.answers import Reader, answer
from fabled.present import Style, text
from fabled.store.queries import Queries
from fabled.transcript.text import SUMMARY
from tests.build import Transcript, make_uuid
from tests.home import Home

APP, SHOP = "-home-ana-app", "-home-ana-shop"
KEY = "sk-ant-api03-" + "Ex4mple0" * 10
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    assert made.faults() == []
    made.close()


@pytest.fixture
def ask(home: Home) -> Iterator[Ask]:
    queries = Queries(str(home.map_db))
    yield lambda method, **params: answer(Reader(queries, home.vault), method, params)
    queries.close()


def talk(name: str = "s1", cwd: str = "/home/ana/app", later: int = 0, **more: Any) -> Transcript:
    """A session; `later` moves its times on, so that sessions have an order."""
    made = Transcript(session=make_uuid(name), cwd=cwd, **more)
    made.count = later
    return made


def put(home: Home, *talks: Transcript, folder: str = APP) -> None:
    for one in talks:
        home.write(f"{folder}/{one.session}.jsonl", one.data)
    home.index()


def titles(value: dict[str, Any]) -> list[str]:
    return [row["title"] for row in value["results"]]


def opens(value: dict[str, Any]) -> list[tuple[str, str, str] | None]:
    return [(row["title"], row["open"]["kind"], row["open"]["text"]) if row["open"] else None
            for row in value["results"]]  # fmt: skip


# Recent


def test_the_last_threads_come_first_with_their_files_and_ends(home: Home, ask: Ask) -> None:
    """What a person needs to go on: title, time, open end, changed files, the line to resume."""
    one = talk()
    one.user("mend the gate")
    read = one.call("Read", {"file_path": "/home/ana/app/wall.py"})
    one.result(read, "stone")
    edit = one.call("Edit", {"file_path": "/home/ana/app/gate.py", "old_string": "a", "new_string": "b"})
    one.result(edit, "ok")
    one.assistant("Mended.")
    last = one.user("and the fence?")
    asked = one.assistant("There are two. Which of the fences do you mean?")
    put(home, one)
    value = ask("recent", all=True)
    assert titles(value) == ["and the fence?", "mend the gate"]
    assert opens(value) == [("and the fence?", "asks", "Which of the fences do you mean?"), None]
    fence, gate = value["results"]
    assert (fence["thread"], fence["session_id"], fence["project"]) == (last["promptId"], one.session, one.cwd)
    assert fence["open"]["block"] == asked["uuid"] and fence["open"]["ts"] == asked["timestamp"]
    assert (fence["first_ts"], fence["last_ts"]) == (last["timestamp"], asked["timestamp"])
    assert fence["resume"] == f"cd /home/ana/app && claude --resume {one.session}"
    assert (gate["files"], gate["files_total"], gate["files_read"]) == (["/home/ana/app/gate.py"], 1, 1)
    assert (value["more"], value["wall"], gate["behind_wall"]) == (False, None, False)


def test_a_project_a_session_a_time_and_a_limit_narrow_it(home: Home, ask: Ask) -> None:
    """By name, by the working folder, by session; what is left out is said."""
    one, other = talk("a"), talk("b", cwd="/home/ana/shop", later=100)
    for number in range(3):
        one.user(f"gate {number}")
        one.assistant("done")
    other.user("the till")
    other.assistant("done")
    put(home, one)
    put(home, other, folder=SHOP)
    assert titles(ask("recent")) == ["the till", "gate 2", "gate 1", "gate 0"]
    assert titles(ask("recent", project="shop")) == titles(ask("recent", cwd="/home/ana/shop/src")) == ["the till"]
    assert titles(ask("recent", cwd="/home/ana/shop", all=True))[0] == "the till"
    assert ask("recent", cwd="/home/ana/app")["scope"] == {"by": "cwd", "project": "/home/ana/app"}
    assert titles(ask("recent", session=one.session[:8])) == ["gate 2", "gate 1", "gate 0"]
    value = ask("recent", project="app", limit=1, offset=1)
    assert (titles(value), value["more"]) == (["gate 1"], True)
    assert titles(ask("recent", since=other.records[0]["timestamp"])) == ["the till"]
    assert titles(ask("recent", until=one.records[1]["timestamp"])) == ["gate 0"]
    assert ask("recent", project="nowhere")["results"] == []
    with pytest.raises(errors.NotFound):
        ask("recent", session="abcdef12")
    with pytest.raises(errors.BadRequest):
        ask("recent", since="the day before")
    with pytest.raises(errors.BadRequest):
        ask("recent", limit=0)


def test_only_what_ends_a_session_is_open(home: Home, ask: Ask) -> None:
    """A question that was followed by another prompt has been answered, one before /exit has not."""
    one = talk()
    one.user("first")
    one.assistant("Shall I?")
    one.user("second")
    one.assistant("Shall I really?")
    one.user("<command-name>/exit</command-name>")
    one.user("<local-command-stdout>bye</local-command-stdout>")
    put(home, one)
    value = ask("recent")
    assert opens(value) == [("second", "asks", "Shall I really?"), None]


def test_an_unanswered_call_and_a_failure_are_told(home: Home, ask: Ask) -> None:
    """Each in a session of its own; a later result closes the call."""
    waiting, failed, stopped = talk("w", later=200), talk("f", later=100), talk("s")
    waiting.user("wait")
    call = waiting.call("Bash", {"command": f"deploy --key {KEY}"})
    failed.user("fail")
    result = failed.result(failed.call("Bash", {"command": "false"}), "Exit code 1")
    result["message"]["content"][0]["is_error"] = True
    failed.lines[-1] = json.dumps(result).encode()
    stopped.user("stop")
    stopped.user("[Request interrupted by user]", prompt=stopped.prompt)
    put(home, waiting, failed, stopped)
    value = ask("recent")
    kinds = [(row["open"]["kind"], row["open"]["tool"]) for row in value["results"]]
    assert kinds == [("unanswered", "Bash"), ("failed", "Bash"), ("interrupted", None)]
    assert KEY not in json.dumps(value) and value["results"][0]["open"]["text"].startswith("deploy --key sk-ant")
    waiting.result(call, "deployed")
    waiting.assistant("It is deployed.")
    put(home, waiting)
    assert opens(ask("recent"))[0] is None


def test_a_fork_that_went_on_closes_its_original_and_is_no_second_thread(home: Home, ask: Ask) -> None:
    """The copied threads are named once, by the original; its last question was answered in the fork."""
    one = talk()
    one.user("first")
    one.assistant("Shall I?")
    fork = talk("fork", later=50, salt="fork")
    for record in one.records:
        fork.put({**record, "sessionId": fork.session})
    fork.last, fork.prompt = one.last, one.prompt
    put(home, one, fork)
    assert opens(ask("recent")) == [("first", "asks", "Shall I?")]
    fork.user("yes")
    fork.assistant("Done.")
    put(home, fork)
    value = ask("recent")
    assert (titles(value), opens(value)) == (["yes", "first"], [None, None])
    assert value["results"][1]["session_id"] == one.session


def test_commands_of_the_client_are_no_work_and_a_notification_goes_on_with_its_task(home: Home, ask: Ask) -> None:
    """A thread of /model alone is passed over; a background task's answer stands with the prompt that launched it."""
    one = talk()
    launch = one.user("build in the background")
    call = one.call("Bash", {"command": "make"}, call="toolu_bg")
    one.result(call, "running")
    one.assistant("It builds.")
    one.user("<command-name>/model</command-name>")
    note = one.user("<task-notification>\n<task-id>b1</task-id><tool-use-id>toolu_bg</tool-use-id></task-notification>")
    one.assistant("The build failed. Shall I mend it?")
    put(home, one)
    (row,) = ask("recent")["results"]
    assert (row["thread"], row["title"], row["turns"]) == (launch["promptId"], "build in the background", 6)
    assert row["continued"] == [note["promptId"]]
    assert (row["open"]["kind"], row["last_ts"]) == ("asks", one.records[-1]["timestamp"])


def test_changes_of_subagents_count_as_the_thread_s(home: Home, ask: Ask) -> None:
    """What a launched agent wrote is among the files of the prompt."""
    one = talk()
    one.user("let an agent do it")
    call = one.call("Agent", {"prompt": "write it"}, call="toolu_a")
    result = one.result(call, "done")
    result["toolUseResult"] = {"agentId": "a1"}
    one.lines[-1] = json.dumps(result).encode()
    one.assistant("done")
    side = Transcript(session=one.session, sidechain=True, agent="a1", salt="a1", prompt=one.prompt)
    side.user("write it", prompt=one.prompt)
    side.call("Write", {"file_path": "/home/ana/app/new.py", "content": "x"})
    home.write(f"{APP}/{one.session}/subagents/agent-a1.jsonl", side.data)
    put(home, one)
    value = ask("recent")
    assert [row["files"] for row in value["results"]] == [["/home/ana/app/new.py"]]
    (change,) = ask("file", path="new.py")["results"]
    assert (change["subagent"], change["thread"]) == (True, one.prompt)


# The wall


def walled() -> tuple[Transcript, list[dict[str, Any]]]:
    """A session with two threads before a compaction and one after it."""
    one = talk()
    first = one.user("first")
    one.assistant("done")
    second = one.user("second")
    kept = one.assistant("nearly done")
    boundary_at = len(one.records)
    one.compact("It was about first and second.")
    boundary = one.records[boundary_at]
    boundary["compactMetadata"] = {
        "trigger": "auto", "preTokens": 167_000, "preservedMessages": {"uuids": [kept["uuid"]]},
    }  # fmt: skip
    one.lines[boundary_at] = json.dumps(boundary).encode()
    third = one.user("third")
    one.assistant("done")
    return one, [first, second, third]


def test_a_compaction_hides_threads_from_the_model_but_not_from_here(home: Home, ask: Ask) -> None:
    """The wall of the session last at work lists them, in order, each with the id that opens it."""
    one, (first, second, _) = walled()
    put(home, one)
    value = ask("recent")
    wall = value["wall"]
    assert [row["thread"] for row in wall["threads"]] == [first["promptId"], second["promptId"]]
    assert [row["in_view"] for row in wall["threads"]] == [False, True]
    assert (wall["session_id"], wall["trigger"], wall["tokens_before"]) == (one.session, "auto", 167_000)
    assert (wall["total"], wall["compactions"], wall["ts"]) == (2, 1, one.records[5]["timestamp"])
    assert ask("block", id=wall["summary"])["uuid"] == one.records[5]["uuid"]
    assert [(row["title"], row["behind_wall"]) for row in value["results"]] == [
        ("third", False),
        ("second", True),
        ("first", True),
    ]
    for row in wall["threads"]:
        assert ask("thread", id=row["thread"])["title"] == row["title"]
    shown = text("recent", {"v": 1, **value}, Style(width=100))
    assert "Behind the wall" in shown and second["promptId"][:8] in shown
    assert "in view: the client still has its end" in shown


def test_work_that_a_compaction_cut_in_two_keeps_its_title(home: Home, ask: Ask) -> None:
    """What goes on under the summary is called by the thread it goes on with; the last of several walls counts."""
    one = talk()
    one.user("the long work")
    one.call("Bash", {"command": "make"})
    one.compact("summary one")
    one.assistant("It goes on.")
    one.compact("summary two")
    one.assistant("It goes on and on.")
    put(home, one)
    value = ask("recent")
    assert titles(value) == ["the long work"] * 3
    assert [row["after_compaction"] for row in value["results"]] == [True, True, False]
    assert [row["behind_wall"] for row in value["results"]] == [False, True, True]
    assert (value["wall"]["compactions"], len(value["wall"]["threads"])) == (2, 2)


def test_a_session_without_compaction_has_no_wall(home: Home, ask: Ask) -> None:
    """Also where another one of the project has."""
    one, _ = walled()
    other = talk("b", later=100)
    other.user("later")
    put(home, one, other)
    assert ask("recent")["wall"] is None
    assert ask("recent", session=one.session)["wall"]["session_id"] == one.session


def test_the_kind_of_summaries_is_the_one_the_index_is_for(home: Home) -> None:
    """A partial index names the kind by its number."""
    assert SUMMARY == 7


# Overview


def test_every_project_is_told_with_its_open_ends(home: Home, ask: Ask) -> None:
    """The latest first; open ends of its last sessions; counts."""
    one, two, other = talk("a"), talk("b", later=20), talk("c", cwd="/home/ana/shop", later=100)
    one.user("gate")
    one.assistant("Oak or pine?")
    two.user("fence")
    two.assistant("done")
    other.user("till")
    put(home, one, two)
    put(home, other, folder=SHOP)
    value = ask("overview")
    shop, app = value["results"]
    assert (value["total"], value["sessions"], value["threads"], value["open"]) == (2, 3, 3, 2)
    assert (shop["project"], shop["sessions"], shop["threads"]) == ("/home/ana/shop", 1, 1)
    assert [(row["title"], row["open"]["kind"]) for row in shop["open"]] == [("till", "unanswered")]
    assert [(row["title"], row["open"]["text"]) for row in app["open"]] == [("gate", "Oak or pine?")]
    assert (app["last"]["title"], app["sessions"], app["last_ts"]) == ("fence", 2, two.records[-1]["timestamp"])
    assert [row["project"] for row in ask("overview", since=other.records[0]["timestamp"])["results"]] == [
        "/home/ana/shop"
    ]
    assert [row["project"] for row in ask("overview", limit=1, offset=1)["results"]] == ["/home/ana/app"]
    assert "Oak or pine?" in text("overview", {"v": 1, **value}, Style(width=80))


def test_an_empty_map_has_no_answers(home: Home, ask: Ask) -> None:
    """Nothing indexed: empty lists, no error."""
    home.index()
    assert ask("recent")["results"] == ask("overview")["results"] == ask("file", path="x")["results"] == []


# Files


def edited(one: Transcript, tool: str = "Edit", **arguments: Any) -> dict[str, Any]:
    call = one.call(tool, {"file_path": "/home/ana/app/src/gate.py", **arguments})
    one.result(call, "ok")
    return call


def test_a_file_s_changes_over_all_sessions_in_order(home: Home, ask: Ask) -> None:
    """Edits and writes with thread, time, tool, amount and block; what only read it is counted."""
    one, two = talk("a"), talk("b", cwd="/home/ana/shop", later=100)
    first = one.user("make the gate")
    write = edited(one, "Write", content="wood\nnails\n")
    one.result(one.call("Read", {"file_path": "/home/ana/app/src/gate.py"}), "wood")
    edit = edited(one, old_string="wood", new_string="oak")
    second = two.user("paint it")
    paint = edited(two, old_string="oak", new_string="green oak\nvarnish")
    put(home, one)
    put(home, two, folder=SHOP)
    value = ask("file", path="/home/ana/app/src/gate.py")
    rows = value["results"]
    assert [(row["block"], row["tool"], row["kind"], row["added"], row["removed"]) for row in rows] == [
        (write["uuid"], "Write", "write", 2, 0),
        (edit["uuid"], "Edit", "edit", 1, 1),
        (paint["uuid"], "Edit", "edit", 2, 1),
    ]
    assert [row["thread"] for row in rows] == [first["promptId"], first["promptId"], second["promptId"]]
    assert [row["title"] for row in rows] == ["make the gate", "make the gate", "paint it"]
    assert [row["summary"] for row in rows] == ["whole file, 2 lines", "oak", "green oak"]
    assert {row["outcome"] for row in rows} == {"ok"} and rows[2]["ts"] == paint["timestamp"]
    assert (value["total"], value["read"], value["paths"]) == (3, 1, ["/home/ana/app/src/gate.py"])
    assert rows[2]["resume"] == f"cd /home/ana/shop && claude --resume {two.session}"
    assert [row["block"] for row in ask("file", path="gate.py", limit=1)["results"]] == [paint["uuid"]]
    assert ask("file", path="gate.py", limit=1)["total"] == 3
    assert [row["block"] for row in ask("file", path="gate.py", project="shop")["results"]] == [paint["uuid"]]
    since = ask("file", path="gate.py", since=two.records[0]["timestamp"])
    assert [row["block"] for row in since["results"]] == [paint["uuid"]]
    assert "whole file, 2 lines" in text("file", {"v": 1, **value}, Style(width=100))


def test_a_path_is_meant_as_seen_from_here_else_by_its_end(home: Home, ask: Ask) -> None:
    """Relative to the working folder first; a suffix may mean several files; part of a name means none."""
    one = talk()
    one.user("both")
    here = one.call("Write", {"file_path": "/home/ana/app/src/gate.py", "content": "a"})
    there = one.call("Write", {"file_path": "/home/ana/lib/src/gate.py", "content": "b"})
    win = one.call("Write", {"file_path": "C:\\lib\\src\\fence.py", "content": "b"})
    put(home, one)

    def blocks(path: str, cwd: str | None = None) -> list[str]:
        return [row["block"] for row in ask("file", path=path, cwd=cwd)["results"]]

    assert blocks("src/gate.py", "/home/ana/app") == blocks("../app/src/gate.py", "/home/ana/x") == [here["uuid"]]
    assert blocks("./gate.py", "/home/ana/app/src") == [here["uuid"]]
    assert blocks("src/gate.py") == blocks("gate.py", "/tmp") == [here["uuid"], there["uuid"]]
    assert blocks("/home/ana/lib/src/gate.py") == [there["uuid"]]
    assert blocks("ate.py") == blocks("/src/gate.py") == blocks("..") == []
    assert blocks("src/fence.py") == [win["uuid"]]
    with pytest.raises(errors.BadRequest):
        ask("file", path="")


def test_a_change_as_a_diff(home: Home, ask: Ask) -> None:
    """From the result's own patch where it has one, else from the texts; credentials are masked."""
    one = talk()
    one.user("edit")
    call = one.call("Edit", {"file_path": "/g", "old_string": "a", "new_string": KEY})
    result = one.result(call, "ok")
    hunk = {"oldStart": 7, "oldLines": 1, "newStart": 7, "newLines": 1, "lines": ["-a", f"+{KEY}"]}
    result["toolUseResult"] = {"structuredPatch": [hunk]}
    one.lines[-1] = json.dumps(result).encode()
    one.result(one.call("Write", {"file_path": "/g", "content": "\n".join(map(str, range(900)))}), "ok")
    put(home, one)
    patch, whole = ask("file", path="/g", diff=True)["results"]
    assert patch["diff"].startswith("@@ -7,1 +7,1 @@\n-a\n+sk-ant") and KEY not in patch["diff"]
    assert (patch["placed"], patch["truncated"], whole["placed"], whole["truncated"]) == (True, False, False, True)
    assert whole["diff"].endswith(f"[truncated — fabled block {whole['block']}]")
    assert "diff" not in ask("file", path="/g")["results"][0]


def test_a_change_that_failed_says_so(home: Home, ask: Ask) -> None:
    """A refused edit has changed nothing; one without a result may have."""
    one = talk()
    one.user("edit")
    call = one.call("Edit", {"file_path": "/g", "old_string": "a", "new_string": "b"})
    result = one.result(call, "<tool_use_error>String to replace not found.</tool_use_error>")
    result["message"]["content"][0]["is_error"] = True
    one.lines[-1] = json.dumps(result).encode()
    one.call("Edit", {"file_path": "/g", "old_string": "c", "new_string": "d"})
    put(home, one)
    rows = ask("file", path="/g")["results"]
    assert [(row["outcome"], row["error"]) for row in rows] == [
        ("failed", "String to replace not found."),
        ("unanswered", ""),
    ]


def test_a_step_written_twice_counts_once(home: Home, ask: Ask) -> None:
    """A fork's copy, and a subagent's step repeated as progress, are the change they repeat."""
    one = talk()
    one.user("edit")
    call = edited(one, old_string="a", new_string="b")
    fork = talk("fork", salt="fork")
    for record in one.records:
        fork.put({**record, "sessionId": fork.session})
    side = Transcript(session=one.session, sidechain=True, agent="a1", salt="a1", new_style=False)
    side.user("go")
    step = side.call("Edit", {"file_path": "/home/ana/app/src/gate.py", "old_string": "x", "new_string": "y"})
    one.add("progress", data={"type": "agent_progress", "agentId": "a1", "message": step}, parentToolUseID="t")
    home.write(f"{APP}/{one.session}/subagents/agent-a1.jsonl", side.data)
    put(home, one, fork)
    rows = ask("file", path="gate.py")["results"]
    assert len(rows) == 2 and {row["session_id"] for row in rows} == {one.session}
    assert sorted(row["summary"] for row in rows) == ["b", "y"] and call["uuid"] in {row["block"] for row in rows}


# How it is looked up


def test_no_question_looks_at_all_records(home: Home, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement behind recent and file follows an index; none scans records, copies, touches or citations."""
    one, _ = walled()
    edited(one, old_string="a", new_string="b")
    put(home, one)
    scans: set[str] = set()
    asked: set[str] = set()
    rows = Queries._rows

    def noted(self: Queries, sql: str, *args: Any) -> Any:
        if sql.startswith(("SELECT", "WITH")):
            asked.add(sql)
            plan = [row[3] for row in rows(self, f"EXPLAIN QUERY PLAN {sql}", *args)]
            # Without USING it is a whole table; a parameter's list and a materialized subquery (l, i) are small.
            scans.update(f"{line}: {sql}" for line in plan if re.match(r"SCAN (?!CONSTANT|\(|l$|i$)", line)
                         and "USING" not in line and "VIRTUAL TABLE" not in line)  # fmt: skip
        return rows(self, sql, *args)

    monkeypatch.setattr(Queries, "_rows", noted)
    ask("recent", project="app")
    ask("recent")
    ask("file", path="/home/ana/app/src/gate.py", diff=True)
    ask("thread", id=ask("recent")["results"][0]["thread"])
    assert len(asked) > 20
    assert [one for one in scans if "FROM sessions" not in one] == []
