"""The real client sends what `sent.view` says, and after a prune what the level promises.

Skipped where CLAUDE_CLIENT does not name the client's binary, or the shared client tools and transcripts do not lie
beside the project. The tools run the client without network against a scripted server; one client runs at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabled.transcript import rules
from fabled.transcript.differences import cited
from fabled.transcript.rules import Level
from fabled.transcript.said import THOUGHTS, blocks, digest
from fabled.transcript.sent import view
from tests.build import Transcript, line

SHARED = (Path(__file__).resolve().parents[2] / "shared").resolve()
TOOLS = SHARED / "tools" / "client"
FILES = sorted((SHARED / "transcripts" / "client").glob("*/projects/*/*.jsonl"))
CLIENT = os.environ.get("CLAUDE_CLIENT", "")
TOOLED = (TOOLS / "resume_check.py").exists() and bool(FILES)
pytestmark = [
    pytest.mark.skipif(not os.access(CLIENT, os.X_OK), reason="CLAUDE_CLIENT does not name a client"),
    pytest.mark.skipif(not TOOLED, reason="the shared client tools are not beside this project"),
]

BATCH = """
import json, sys
sys.path.insert(0, sys.argv[1])
import sandbox
import resume_check
sandbox.enter()
for path, session, out in json.load(open(sys.argv[2])):
    found = resume_check.check(path, session, sandbox.find_client())
    with open(out, "w") as file:
        json.dump({"status": found["status"], "why": found["why"], "body": found["body"]}, file)
"""
PROMPT = "say OK"
NOTICE = re.compile(r"<task-notification>.*</task-notification>", re.S)
HOME = re.compile(r"[-/]tmp[-/]cc-sandbox-\w+")
Row = tuple[str, str, str | None, Any]
"""role, kind, tool id, and the text, or the digest of anything else"""


@contextmanager
def _alone() -> Iterator[None]:
    """Only one client at a time, however many test processes there are."""
    with open(os.path.join(tempfile.gettempdir(), f"fabled-real-client-{os.getuid()}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def resume(folder: Path, transcripts: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]]:
    """The request with which each transcript, given with its session id, is resumed."""
    folder.mkdir()
    jobs = []
    for number, (session, data) in enumerate(transcripts):
        place = folder / str(number)
        place.mkdir()
        (place / f"{session}.jsonl").write_bytes(data)
        jobs.append((str(place / f"{session}.jsonl"), session, str(folder / f"{number}.json")))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    (folder / "batch.py").write_text(BATCH)
    with _alone():
        subprocess.run([sys.executable, folder / "batch.py", TOOLS, folder / "jobs.json"], check=True, timeout=600)
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(len(jobs))]


def rows(body: dict[str, Any] | None) -> list[Row]:
    """The history in a request: without the new prompt, and with reminders marked, since they may be anyone's."""
    found: list[Row] = []
    for message in (body or {"messages": []})["messages"]:
        content, role = message["content"], message["role"]
        if role == "system":
            continue
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] != "text":
                (one,) = blocks(role, [block])
                # The client puts the arguments of a call in order by the tool's own scheme.
                value: Any = block["name"] if one.kind == "tool_use" else one.digest
                found.append((role, one.kind, one.tool_id, value))
                continue
            text = block["text"]
            notice = NOTICE.search(text) if text.startswith("<system-reminder>\n[SYSTEM NOTIFICATION") else None
            kind = "reminder" if text.startswith("<system-reminder>") and notice is None else "text"
            found.append((role, kind, None, notice[0] if notice else text))
    while found and not (found[-1][1] == "text" and found[-1][3].strip() == PROMPT):
        found.pop()
    return found[:-1]


def told(lines: list[bytes]) -> list[Row]:
    """The same of a transcript, as `view` has it."""
    names = {
        block["id"]: block["name"]
        for record in map(_object, lines)
        if isinstance(record.get("message"), dict) and isinstance(record["message"].get("content"), list)
        for block in record["message"]["content"]
        if block.get("type") == "tool_use"
    }
    return [
        (one.role, one.kind, one.tool_id, names[one.tool_id or ""] if one.kind == "tool_use" else one.digest)
        for one in view(lines)
        if not one.kind.startswith("attachment/")
    ]


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _same(mine: Row, theirs: Row) -> bool:
    if mine[:3] != (theirs[0], "text" if theirs[1] == "reminder" else theirs[1], theirs[2]):
        return False
    if mine[1] != "text":
        return bool(mine[3] == theirs[3])
    text = theirs[3]  # a text that is not the last of its message gets a line feed
    return mine[3] in {digest(text), digest(text.removesuffix("\n"))}


def difference(mine: list[Row], theirs: list[Row]) -> str | None:
    """Where what `view` says and a request part; reminders and what the client adds of itself are passed over."""
    at = 0
    for row in theirs:
        if at < len(mine) and _same(mine[at], row):
            at += 1
        elif row[1] != "reminder" and row[3] != "No response requested.":
            return f"block {at}: {mine[at : at + 1]} against {row}"
    return f"{mine[at:]} were not sent" if at < len(mine) else None


@pytest.mark.timeout(900)
def test_the_view_is_what_the_client_sends(tmp_path: Path) -> None:
    """Every resumable transcript of the client's own making."""
    found = resume(tmp_path / "runs", [(path.stem, path.read_bytes()) for path in FILES])
    assert [one["why"] for one in found] == [""] * len(FILES)
    wrong = {}
    for path, one in zip(FILES, found, strict=True):
        parted = difference(told(path.read_bytes().splitlines(keepends=True)), rows(one["body"]))
        if parted:
            wrong[path.name] = parted
    assert wrong == {}


# Transcripts that were changed, or that no client of today writes


def base() -> Transcript:
    t = Transcript()
    for number in (1, 2, 3):
        t.user(f"u{number}")
        t.assistant(f"a{number}")
    return t


def uuid_of(t: Transcript, at: int) -> str:
    return str(t.records[at]["uuid"])


def _branch(t: Transcript) -> None:
    t.user("b1", parent=uuid_of(t, 1))
    t.assistant("b2")


def _choose(t: Transcript, at: int) -> None:
    t.put({"type": "last-prompt", "lastPrompt": "x", "leafUuid": uuid_of(t, at), "sessionId": t.session})


def _compact(t: Transcript, kept: Sequence[int], by: str = "uuids", anchor: str | None = None) -> None:
    names = [uuid_of(t, at) for at in kept]
    t.compact("summary")
    anchor = anchor or t.last
    meta: dict[str, Any] = {"trigger": "manual", "preTokens": 1}
    if names and by == "uuids":
        meta["preservedMessages"] = {"anchorUuid": anchor, "uuids": names, "allUuids": names}
    elif names:
        meta["preservedSegment"] = {"headUuid": names[0], "anchorUuid": anchor, "tailUuid": names[-1]}
    t.records[-2]["compactMetadata"] = meta


def _turn(t: Transcript, parent: str | None = None) -> None:
    t.user("u9", **({"parent": parent} if parent else {}))
    t.assistant("a9")


def _parallel(t: Transcript, on: int = 1) -> None:
    calls = [t.call("Bash", {"command": str(n)}, call=f"toolu_{n}", message="msg_parallel") for n in (0, 1)]
    results = [t.result(call, f"r{n}") for n, call in enumerate(calls)]
    t.assistant("a9", parent=results[on]["uuid"])


def _many(*steps: Callable[[Transcript], object]) -> Callable[[Transcript], None]:
    def make(t: Transcript) -> None:
        for step in steps:
            step(t)

    return make


def _without(t: Transcript, *at: int) -> None:
    for one in sorted(at, reverse=True):
        del t.records[one]


MUTANTS: dict[str, Callable[[Transcript], object]] = {
    "nothing": lambda t: None,
    "the last branch": _branch,
    "last-prompt names the other branch": _many(_branch, lambda t: _choose(t, 5)),
    "last-prompt names an ancestor": _many(_branch, lambda t: _choose(t, 1)),
    "last-prompt before a branch": _many(lambda t: _choose(t, 5), _branch),
    "a dangling parent, ten seconds on": lambda t: _turn(t, "gone"),
    "a record in the middle is gone": lambda t: _without(t, 2),
    "the first record is gone": lambda t: _without(t, 0),
    "a uuid twice": lambda t: t.put(dict(t.records[2], message={"role": "user", "content": "later"})),
    "a branch, then an old line again": _many(_branch, lambda t: t.put(t.records[5])),
    "a branch, then an older line again": _many(_branch, lambda t: t.put(t.records[4])),
    "progress in the chain": _many(lambda t: t.add("progress", data={"type": "x"}), _turn),
    "progress without parent": _many(lambda t: t.add("progress", data={"type": "x"}, parent=None), _turn),
    "an unknown type in the chain": _many(lambda t: t.add("newfangled"), _turn),
    "a sidechain at the end": lambda t: t.add("user", isSidechain=True, message={"role": "user", "content": "side"}),
    "compacted": _many(lambda t: _compact(t, ()), _turn),
    "compacted, nothing after": lambda t: _compact(t, ()),
    "compacted, kept by uuid": _many(lambda t: _compact(t, (4, 5)), _turn),
    "compacted, kept by segment": _many(lambda t: _compact(t, (2, 5), "segment"), _turn),
    "compacted, kept, nothing after": lambda t: _compact(t, (4, 5)),
    "compacted, some kept": _many(lambda t: _compact(t, (0, 5)), _turn),
    "kept, and the rest removed": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _without(t, 0, 1, 2, 3)),
    "kept, and one of it removed": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _without(t, 4)),
    "kept, and the boundary removed": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _without(t, 6)),
    "kept, and the summary removed": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _without(t, 7)),
    "kept, and a branch off an old record": _many(lambda t: _compact(t, (4, 5)), lambda t: _turn(t, uuid_of(t, 1))),
    "kept, and last-prompt names an old one": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _choose(t, 3)),
    "plain, and a branch off an old record": _many(lambda t: _compact(t, ()), lambda t: _turn(t, uuid_of(t, 1))),
    "twice, the second keeps": _many(lambda t: _compact(t, ()), _turn, lambda t: _compact(t, (8, 9)), _turn),
    "twice, the first keeps": _many(lambda t: _compact(t, (4, 5)), _turn, lambda t: _compact(t, ()), _turn),
    "parallel calls": _parallel,
    "parallel calls, the answer on the first result": lambda t: _parallel(t, 0),
    "parallel calls, a result is gone": _many(_parallel, lambda t: _without(t, 8)),
    "parallel calls, a call is gone": _many(_parallel, lambda t: _without(t, 6)),
    "a call without result": _many(lambda t: t.call("Bash", {}, call="toolu_x"), _turn),
    "thinking alone": _many(lambda t: t.thinking("hm"), _turn),
    "a local command": _many(lambda t: t.add("system", subtype="local_command", content="<command-name>/x"), _turn),
}


@pytest.mark.timeout(900)
def test_the_view_of_changed_transcripts_is_what_the_client_sends(tmp_path: Path) -> None:
    """Dangling parents, doubled uuids, removed and kept compactions, parallel and unpaired calls, chosen leaves."""
    stories = []
    for make in MUTANTS.values():
        t = base()
        make(t)
        for record in t.records:
            if record.get("type") == "assistant":
                record["message"]["model"] = "claude-opus-5-5"
        stories.append([line(record) + b"\n" for record in t.records])
    found = resume(tmp_path / "runs", [(base().session, b"".join(lines)) for lines in stories])
    wrong = {}
    for name, lines, one in zip(MUTANTS, stories, found, strict=True):
        parted = difference(told(lines), rows(one["body"]))
        if parted:
            wrong[name] = parted
    assert wrong == {}


# Prunes


def prune(data: bytes, level: Level) -> bytes:
    """The transcript after a prune with small windows, so that the small transcripts have something outside them."""
    lines = data.splitlines(keepends=True)
    limits = rules.Limits(tool_result_chars=512)
    plan = rules.plan(rules.survey(lines), level, {}, limits, lambda *block: True)
    out: list[bytes] = []
    rules.carry_out(lines, plan, limits, lambda *block: True, None, out.append)
    return b"".join(out)


def messages(body: dict[str, Any]) -> Any:
    """What the request says, without the name of the run's own folder."""
    return json.loads(HOME.sub("/home", json.dumps(body["messages"])))


LEVELS: tuple[Level, ...] = ("gentle", "standard", "aggressive")


@pytest.mark.timeout(900)
def test_a_pruned_transcript_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gentle: the same request. Standard and aggressive: the same roles, kinds, tool pairs, and every text."""
    monkeypatch.setattr(rules, "WINDOWS", {"ui": (1, 2), "standard": (1, 3), "aggressive": (1, 2)})
    jobs: dict[tuple[str, bytes], dict[str, Any]] = {}
    for path in FILES:
        data = path.read_bytes()
        for result in (data, *(prune(data, level) for level in LEVELS)):
            jobs[path.stem, result] = {}
    assert len(jobs) > 2 * len(FILES)
    found = resume(tmp_path / "runs", list(jobs))
    assert [one["why"] for one in found] == [""] * len(found)
    jobs.update(zip(jobs, (one["body"] for one in found), strict=True))
    for path in FILES:
        data = path.read_bytes()
        before = jobs[path.stem, data]
        assert messages(jobs[path.stem, prune(data, "gentle")]) == messages(before), path
        for level in LEVELS[1:]:
            assert _promised(rows(jobs[path.stem, prune(data, level)])) == _promised(rows(before)), (level, path)


def _promised(history: list[Row]) -> list[Row]:
    """What no level changes: all but thinking, results and images; recalled passages count as cited."""
    return [
        (role, kind, tool_id, cited(value) if kind in ("text", "reminder") else value if kind == "tool_use" else None)
        for role, kind, tool_id, value in history
        if kind not in THOUGHTS and kind != "image"
    ]
