"""Each invariant of a prune catches the output of a faulty one, and an honest prune breaks none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest

from fabled.transcript import rules
from fabled.transcript.proof import INVARIANTS, Floors, Proven, prove
from fabled.transcript.rules import Change, Edit, Level, Plan
from tests.build import Transcript, line, make_uuid

LONG = "".join(f"line {number} of the build log\n" for number in range(200))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 90}}


class Story:
    """A session with something for every rule, and the prune of it that a test makes by hand."""

    def __init__(self) -> None:
        t = self.written = Transcript()
        self.at: dict[str, int] = {}
        t.user("old prompt")
        self.mark("old", t.assistant("old answer"))
        self.mark("kept", t.user("kept by the compaction"))
        self.mark("kept reply", t.assistant("and its answer"))
        boundary = self.mark("boundary", t.compact("all that was said"))
        self.mark("summary", t.records[-1])
        boundary = t.records[self.at["boundary"] - 1]
        self.at["boundary"] -= 1
        kept = [t.records[self.at[name]]["uuid"] for name in ("kept", "kept reply")]
        boundary["compactMetadata"] = {
            "trigger": "manual",
            "preservedSegment": {"headUuid": kept[0], "anchorUuid": t.records[-1]["uuid"], "tailUuid": kept[1]},
            "preservedMessages": {"anchorUuid": t.records[-1]["uuid"], "uuids": kept, "allUuids": kept},
        }
        self.mark("prompt", t.user("what does the build say?"))
        prompt = t.records[-1]["uuid"]
        self.mark("first snapshot", self.snapshot(prompt, "a.py"))
        self.mark("snapshot", self.snapshot(prompt, "a.py", "b.py"))
        self.mark("thought", t.thinking("let me look", message="msg_look"))
        self.mark("call", t.call("Bash", {"command": "make"}, message="msg_look"))
        call = t.records[-1]
        self.mark("progress", t.add("progress", data={"type": "bash_progress", "output": "x"}))
        self.mark("result", t.result(call, LONG, parent=t.last, toolUseResult={"stdout": LONG, "interrupted": False}))
        self.mark("doubled", t.add("system", subtype="turn_duration", durationMs=1))
        self.mark("copy", t.put(t.records[-1]))
        self.mark("picture", t.user([{"type": "text", "text": "see this"}, IMAGE]))
        self.mark("both", t._say([self.thinking("hm"), {"type": "text", "text": "a 1.50 % rise"}]))
        self.mark("system prompt", t.add("attachment", attachment={"type": "prompt_snapshot", "systemPrompt": ["be"]}))
        recall = '<historical_context arcs="abc" nonce="n">what we said before</historical_context> and more'
        self.mark("recall", t.add("attachment", attachment={"type": "hook_additional_context", "content": [recall]}))
        self.mark("mode", t.put({"type": "mode", "mode": "normal"}))
        t.raw(b'{"torn": ')
        self.at["torn"] = len(t.lines) - 1
        t.records.append({})
        self.mark("title", t.title("the build"))
        self.mark("recent", t.user("and now?"))
        self.mark("recent thought", t.thinking("well", message="msg_end"))
        self.mark("end", t._say([{"type": "text", "text": "fine"}], message="msg_end"))
        t.records[-1]["message"]["usage"] = {"input_tokens": 900_000, "output_tokens": 5}
        self.mark("last prompt", t.put({"type": "last-prompt", "lastPrompt": "and now?", "leafUuid": t.last}))
        self.records = t.records
        self.before = [
            raw + b"\n" if not record else line(record) + b"\n" for raw, record in zip(t.lines, t.records, strict=True)
        ]
        self.after = list(self.before)
        self.gone: set[int] = set()
        self.changes: dict[int, Change] = {}

    @staticmethod
    def thinking(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text, "signature": "c2ln"}

    def mark(self, name: str, record: dict[str, Any]) -> dict[str, Any]:
        self.at[name] = len(self.written.records) - 1
        return record

    def snapshot(self, prompt: str, *names: str) -> dict[str, Any]:
        files = {name: {"version": 1} for name in names}
        body = {"messageId": prompt, "trackedFileBackups": files}
        return self.written.put({"type": "file-history-snapshot", "messageId": prompt, "snapshot": body})

    def record(self, name: str) -> dict[str, Any]:
        """The record as the prune has left it so far, to be changed."""
        copy: dict[str, Any] = json.loads(self.after[self.at[name]])
        return copy

    def list(self, name: str, drop: bool, rule: str, edits: Sequence[Edit]) -> None:
        at = self.at[name]
        record = self.records[at]
        old = self.changes.get(at)
        edits = (*old.edits, *edits) if old else tuple(edits)
        offset = sum(map(len, self.before[:at]))
        names = tuple(dict.fromkeys(edit.rule for edit in edits)) or (rule,)
        self.changes[at] = Change(
            at, offset, len(self.before[at]), record.get("uuid"), record.get("type", ""), drop, names, tuple(edits)
        )

    def drop(self, name: str, rule: str) -> None:
        self.gone.add(self.at[name])
        self.list(name, True, rule, ())

    def put(self, name: str, record: dict[str, Any] | bytes) -> None:
        self.after[self.at[name]] = record if isinstance(record, bytes) else line(record) + b"\n"

    def edit(self, name: str, rule: str, path: tuple[str | int, ...], record: dict[str, Any] | bytes) -> None:
        self.put(name, record)
        self.list(name, False, rule, [Edit(rule, path)])

    def reparent(self, name: str, rule: str, to: str | None) -> None:
        parent = self.records[self.at[to]]["uuid"] if to else None
        self.edit(name, rule, ("parentUuid",), self.record(name) | {"parentUuid": parent})

    def marker(self, name: str, path: tuple[str | int, ...]) -> str:
        value = self.records[self.at[name]]
        for step in path:
            value = value[step]  # type: ignore[index]
        block = line(value)
        dotted = ".".join(map(str, path))
        uuid = self.records[self.at[name]]["uuid"]
        return f"[fabled block {uuid}#{dotted} {len(block)}B sha256:{sha256(block).hexdigest()[:12]}]"

    def cut(self, mark: str | None = None) -> None:
        """S2 on the long result."""
        record = self.record("result")
        path = ("message", "content", 0, "content")
        mark = mark or self.marker("result", path)
        record["message"]["content"][0]["content"] = f"{LONG[:256]}\n{mark}\n{LONG[-256:]}"
        self.edit("result", "S2", path, record)

    def stub_image(self) -> None:
        """S1 on the picture."""
        record = self.record("picture")
        path = ("message", "content", 1)
        record["message"]["content"][1] = {"type": "text", "text": self.marker("picture", path) + " image/png"}
        self.edit("picture", "S1", path, record)

    def cite(self, text: str = '<consulted_arcs refs="abc"/> and more') -> None:
        """S4 on the recall."""
        record = self.record("recall")
        record["attachment"]["content"] = [text]
        self.edit("recall", "S4", ("attachment", "content", 0), record)

    def honest(self, level: Level) -> None:
        """What a prune of that level rightly makes of this session."""
        self.drop("progress", "G1")
        self.reparent("result", "G1", "call")
        record = self.record("result")
        del record["toolUseResult"]
        self.edit("result", "G2", ("toolUseResult",), record)
        self.drop("first snapshot", "G3")
        self.drop("copy", "G4")
        self.drop("system prompt", "G5")
        self.reparent("recall", "G5", "both")
        if level == "gentle":
            return
        self.drop("old", "S3")
        self.gone.add(0)
        self.at["first"] = 0
        self.list("first", True, "S3", ())
        self.cut()
        self.stub_image()
        self.cite()
        record = self.record("end")
        record["message"]["usage"]["input_tokens"] = 90_000
        self.edit("end", "U1", ("message", "usage", "input_tokens"), record)
        if level == "aggressive":
            self.drop("thought", "A1")
            self.reparent("call", "A1", "snapshot prompt" if "snapshot prompt" in self.at else "prompt")
            record = self.record("both")
            del record["message"]["content"][0]
            self.edit("both", "A1", ("message", "content", 0), record)

    def broken(self, level: Level = "gentle", proven: Proven | None = None, window: str = "recent") -> set[str]:
        """The invariants that the prune breaks."""
        start = self.records[self.at[window]]["uuid"]
        plan = Plan(level, dict.fromkeys(("ui", "standard", "aggressive"), start), ())
        after = [raw for at, raw in enumerate(self.after) if at not in self.gone]
        changes = [self.changes[at] for at in sorted(self.changes)]
        found = prove(lambda: self.before, lambda: after, plan, changes, proven)
        assert all(result.message for result in found)
        return {result.id for result in found if not result.ok}


LEVELS: list[Level] = ["gentle", "standard", "aggressive"]


@pytest.mark.parametrize("level", LEVELS)
def test_an_honest_prune_breaks_nothing(level: Level) -> None:
    """Every rule of the level at work, every invariant holds."""
    story = Story()
    story.honest(level)
    assert story.broken(level) == set()


def test_no_change_breaks_nothing() -> None:
    """The same transcript twice."""
    assert Story().broken() == set()


def test_a_preserved_head_may_go_on_naming_a_parent_that_went() -> None:
    """S3 removes the record above the head; both spellings of its parent are right (I5)."""
    story = Story()
    story.honest("standard")
    assert story.record("kept")["parentUuid"] == story.records[story.at["old"]]["uuid"]
    assert story.broken("standard") == set()


Mutant = Callable[[Story], object]


def _swap(story: Story) -> None:
    one, other = story.at["mode"], story.at["title"]
    story.after[one], story.after[other] = story.after[other], story.after[one]


def _new_record(story: Story) -> None:
    story.after.append(line({"type": "user", "uuid": make_uuid("x"), "message": {"content": "y"}}) + b"\n")


def _edited(name: str, rule: str, path: tuple[str | int, ...], change: Callable[[dict[str, Any]], object]) -> Mutant:
    def make(story: Story) -> None:
        record = story.record(name)
        change(record)
        story.edit(name, rule, path, record)

    return make


def _raw(name: str, old: bytes, new: bytes, *edits: tuple[str, tuple[str | int, ...]]) -> Mutant:
    def make(story: Story) -> None:
        raw = story.after[story.at[name]]
        assert old in raw
        story.put(name, raw.replace(old, new))
        story.list(name, False, edits[0][0] if edits else "G2", [Edit(rule, path) for rule, path in edits])

    return make


def _drop(name: str, rule: str) -> Mutant:
    return lambda story: story.drop(name, rule)


def _silent_change(story: Story) -> None:
    story.put("title", story.record("title") | {"customTitle": "the buile"})


def _silent_loss(story: Story) -> None:
    story.gone.add(story.at["title"])


RESULT = ("message", "content", 0, "content")
MUTANTS: list[tuple[str, Level, str, Mutant]] = [
    ("a line differs and is not listed", "gentle", "I1", _silent_change),
    ("a line is missing and is not listed", "gentle", "I1", _silent_loss),
    ("two lines changed places", "gentle", "I1", _swap),
    ("a line is new", "gentle", "I1", _new_record),
    ("a torn line was mended", "gentle", "I2", _raw("torn", b'{"torn": ', b'{"torn":1}', ("G2", ("torn",)))),
    ("a torn line went", "gentle", "I2", _drop("torn", "G1")),
    ("a record became torn", "gentle", "I2", _raw("result", b'"parentUuid"', b"")),
    ("a record is new", "gentle", "I3", _new_record),
    ("a prompt went as progress", "gentle", "I3", _drop("prompt", "G1")),
    ("a snapshot went that nothing repeats", "gentle", "I3", _drop("snapshot", "G3")),
    ("a record went as a repetition and is none", "gentle", "I3", _drop("doubled", "G4")),
    ("the level has no such rule", "gentle", "I3", _drop("old", "S3")),
    ("what came after the compaction was collapsed", "standard", "I3", _drop("picture", "S3")),
    ("the last record went", "gentle", "I4", _drop("end", "G1")),
    (
        "the last record was edited",
        "standard",
        "I4",
        _edited("end", "S4", (*RESULT[:2], 0, "text"), lambda r: r["message"]["content"][0].update(text="")),
    ),
    ("a child was orphaned", "gentle", "I5", _drop("progress", "G1")),
    (
        "a parent became null",
        "gentle",
        "I5",
        lambda story: (story.drop("progress", "G1"), story.reparent("result", "G1", None)),
    ),
    (
        "a child skipped its nearest ancestor",
        "gentle",
        "I5",
        lambda story: (story.drop("progress", "G1"), story.reparent("result", "G1", "prompt")),
    ),
    ("a parent changed that stands", "gentle", "I5", lambda story: story.reparent("picture", "G1", "prompt")),
    ("a call went without its result", "standard", "I6", _drop("call", "S3")),
    ("a result went without its call", "standard", "I6", _drop("result", "S3")),
    (
        "a result became empty",
        "standard",
        "I7",
        _edited("result", "S2", RESULT, lambda r: r["message"]["content"][0].update(content="")),
    ),
    (
        "content became empty",
        "aggressive",
        "I7",
        _edited("thought", "A1", RESULT[:3], lambda r: r["message"].update(content=[])),
    ),
    (
        "thinking was cut",
        "aggressive",
        "I8",
        _edited("both", "A1", (*RESULT[:3], "thinking"), lambda r: r["message"]["content"][0].update(thinking="h")),
    ),
    (
        "recent thinking went",
        "aggressive",
        "I8",
        lambda story: (story.drop("recent thought", "A1"), story.reparent("end", "A1", "recent")),
    ),
    (
        "a text was changed under another rule",
        "gentle",
        "I9",
        _edited("result", "G2", RESULT, lambda r: r["message"]["content"][0].update(content="x")),
    ),
    (
        "a key went that was not listed",
        "gentle",
        "I9",
        _edited("result", "G2", ("toolUseResult",), lambda r: (r.pop("toolUseResult"), r.pop("cwd"))),
    ),
    (
        "a key is new",
        "gentle",
        "I9",
        _edited("result", "G2", ("toolUseResult",), lambda r: (r.pop("toolUseResult"), r.update(a=1))),
    ),
    (
        "a toolUseResult was cut in half",
        "gentle",
        "I9",
        _edited("result", "G2", ("toolUseResult",), lambda r: r["toolUseResult"].pop("stdout")),
    ),
    (
        "keys changed places",
        "gentle",
        "I9",
        lambda story: story.edit("result", "G2", ("cwd",), dict(reversed(story.record("result").items()))),
    ),
    (
        "a number was spelt anew",
        "gentle",
        "I9",
        _raw("doubled", b'"durationMs":1', b'"durationMs":1e0', ("G2", ("toolUseResult",))),
    ),
    (
        "an image became nothing",
        "standard",
        "I9",
        _edited("picture", "S1", RESULT[:3], lambda r: r["message"]["content"].pop()),
    ),
    (
        "a cut result holds new words",
        "standard",
        "I9",
        _edited("result", "S2", RESULT, lambda r: r["message"]["content"][0].update(content="new words")),
    ),
    ("half a recall was cited", "standard", "I9", lambda story: story.cite('<consulted_arcs refs="abc"/>')),
    (
        "usage grew",
        "standard",
        "I9",
        _edited(
            "end",
            "U1",
            ("message", "usage", "input_tokens"),
            lambda r: r["message"]["usage"].update(input_tokens=990_000),
        ),
    ),
    (
        "output tokens were lowered",
        "standard",
        "I9",
        _edited(
            "end", "U1", ("message", "usage", "output_tokens"), lambda r: r["message"]["usage"].update(output_tokens=1)
        ),
    ),
    ("the compaction went", "standard", "I10", _drop("boundary", "S3")),
    ("the summary went", "standard", "I10", _drop("summary", "S3")),
    ("a preserved record went", "standard", "I10", _drop("kept reply", "S3")),
    (
        "compactMetadata was changed",
        "gentle",
        "I10",
        _edited("boundary", "G2", ("toolUseResult",), lambda r: r["compactMetadata"].pop("preservedSegment")),
    ),
    ("a reply went", "standard", "I11", _drop("both", "S3")),
    (
        "a reply's words went",
        "standard",
        "I11",
        _edited("both", "S2", (*RESULT[:2], 1, "text"), lambda r: r["message"]["content"][1].update(text="a")),
    ),
    ("the last mode went", "gentle", "I12", _drop("mode", "G3")),
    ("the last prompt's record went", "gentle", "I12", _drop("last prompt", "G3")),
    (
        "the last snapshot went",
        "gentle",
        "I13",
        lambda story: (story.drop("first snapshot", "G3"), story.drop("snapshot", "G3")),
    ),
    (
        "a marker names other bytes",
        "standard",
        "I14",
        lambda story: story.cut(story.marker("result", RESULT).replace("sha256:", "sha256:0")[:-2] + "]"),
    ),
    (
        "a lone half of a pair",
        "standard",
        "I17",
        _raw("both", b"a 1.50", b"a \\ud83d 1.50", ("S4", (*RESULT[:2], 1, "text"))),
    ),
    ("a line break inside a line", "gentle", "I17", _raw("result", b',"cwd"', b'\n,"cwd"', ("G2", ("toolUseResult",)))),
    (
        "another line end",
        "gentle",
        "I17",
        lambda story: story.edit("result", "G2", ("toolUseResult",), story.after[story.at["result"]][:-1] + b"\r\n"),
    ),
    (
        "a line became longer",
        "gentle",
        "I24",
        _edited("picture", "G1", ("parentUuid",), lambda r: r.update(parentUuid=r["parentUuid"] + "-and-more")),
    ),
]


@pytest.mark.parametrize(("level", "id_", "mutant"), [case[1:] for case in MUTANTS], ids=[case[0] for case in MUTANTS])
def test_a_faulty_prune_is_caught(level: Level, id_: str, mutant: Mutant) -> None:
    """The invariant that a fault breaks says so."""
    story = Story()
    mutant(story)
    assert id_ in story.broken(level)


@pytest.mark.parametrize("name", ["boundary", "progress", "title"])
def test_a_repetition_may_go_with_its_first_copy_or_alone(name: str) -> None:
    """G4 on a doubled compaction breaks nothing, on doubled progress that went whole neither; metadata has no uuid."""
    story = Story()
    story.honest("gentle")
    at = len(story.before)
    for lines in (story.before, story.after):
        lines.insert(at - 4, story.before[story.at[name]])
    story.records.insert(at - 4, story.records[story.at[name]])
    story.at = {key: place + (place >= at - 4) for key, place in story.at.items()} | {"again": at - 4}
    story.gone = {place + (place >= at - 4) for place in story.gone}
    story.drop("again", "G4")
    assert story.broken() == ({"I3", "I12"} if name == "title" else set())


@pytest.mark.parametrize("rule", ["G2", "S2", "S1", "S4", "A1"])
def test_edits_inside_a_window_are_caught(rule: str) -> None:
    """What is right before the window is wrong inside it (I9)."""
    story = Story()
    if rule == "G2":
        record = story.record("result")
        del record["toolUseResult"]
        story.edit("result", "G2", ("toolUseResult",), record)
    elif rule == "A1":
        record = story.record("both")
        del record["message"]["content"][0]
        story.edit("both", "A1", ("message", "content", 0), record)
    else:
        {"S1": story.stub_image, "S2": story.cut, "S4": story.cite}[rule]()
    assert story.broken("aggressive") == set()
    assert story.broken("aggressive", window="call") == {"I9"}


def test_every_invariant_has_a_mutant() -> None:
    """No check is without a fault that it catches."""
    asked = {"I15", "I16"}
    assert {case[2] for case in MUTANTS} | asked == set(INVARIANTS)


def test_a_line_the_vault_does_not_hold_is_caught() -> None:
    """I14 asks for each changed line."""
    story = Story()
    story.honest("gentle")
    assert story.broken(proven=Proven(held=lambda change: True)) == set()
    assert story.broken(proven=Proven(held=lambda change: not change.drop)) == {"I14"}


def test_a_prune_that_saves_too_little_is_caught() -> None:
    """I15 holds against both floors."""
    story = Story()
    story.honest("gentle")
    assert story.broken(proven=Proven(floors=Floors(1_000, 0.1))) == set()
    assert story.broken(proven=Proven(floors=Floors(1_000_000, 0.1))) == {"I15"}
    assert story.broken(proven=Proven(floors=Floors(1_000, 0.9))) == {"I15"}


def test_a_prune_that_is_not_at_its_end_is_caught() -> None:
    """I16 asks for the plan of the result."""
    story = Story()
    story.honest("gentle")
    change = next(iter(story.changes.values()))
    assert story.broken(proven=Proven(again=lambda: ())) == set()
    assert story.broken(proven=Proven(again=lambda: [change])) == {"I16"}


def test_a_change_listed_at_another_place_is_caught() -> None:
    """The list is what the Vault is asked by, so it must fit the transcript (I1)."""
    story = Story()
    story.drop("copy", "G4")
    ((at, change),) = story.changes.items()
    story.changes[at] = Change(at, change.offset + 1, change.length, change.uuid, change.type, True, ("G4",))
    assert story.broken() == {"I1"}


@pytest.mark.parametrize("level", LEVELS)
def test_the_rules_keep_every_invariant_here(level: Level) -> None:
    """What `rules` makes of the session passes, and a second run finds nothing."""
    story = Story()
    limits = rules.Limits(tool_result_chars=512)
    vault: set[tuple[str, str]] = set()
    plan, made, after = _prune(story.before, level, {}, limits, vault)
    assert made or level == "gentle"
    found = prove(
        lambda: story.before,
        lambda: after,
        plan,
        made,
        Proven(lambda *block: True, again=lambda: _prune(after, level, dict(plan.windows), limits, vault)[1]),
    )
    assert [result for result in found if not result.ok] == []


def _prune(
    lines: list[bytes], level: Level, stored: dict[str, str], limits: rules.Limits, vault: set[tuple[str, str]]
) -> tuple[Plan, Sequence[Change], list[bytes]]:
    def ours(uuid: str, path: str, size: int, check: str) -> bool:
        return True

    plan = rules.plan(rules.survey(lines), level, stored, limits, ours)
    out: list[bytes] = []
    outcome = rules.carry_out(lines, plan, limits, ours, None, out.append)
    return plan, outcome.changes, out
