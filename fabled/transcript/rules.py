"""The rules of pruning: what of a transcript may go, planned as data and carried out on bytes.

Files, the Vault and the proof of a result are left to others. The survey comes from `lines`, what may leave the graph
of records from `keeping`, the words of a stub from `stub`.

How a plan is made. The windows are found first: where the recent part begins that no rule touches. Each rule then names
the records or values it would take. `keeping` puts back every record that a kept one cannot do without, and says which
kept record each orphan is to name as its parent. Only then are the changes written down, line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import Refused
from . import keeping, splice, stub
from .lines import (
    ATTACHMENT,
    FIRM,
    FIXED,
    INPUT_FIGURES,
    OTHER,
    PROGRESS,
    PROMPT,
    SHORTEST_CUT,
    SIDE,
    SIDECAR,
    THOUGHT,
    TURN,
    Candidate,
    Fact,
    Survey,
    survey,
)
from .record import strict_loads
from .splice import Splice
from .stub import Vaulted

__all__ = [
    "RULES",
    "Change",
    "Edit",
    "Level",
    "Limits",
    "Outcome",
    "Plan",
    "RuleCount",
    "Survey",
    "Vaulted",
    "carry_out",
    "plan",
    "survey",
]

Level = Literal["gentle", "standard", "aggressive"]

RULES = {
    "G1": "progress records, which the model never sees",
    "G2": "structured copies of tool results, which the model never sees",
    "G3": "file snapshots that a later one of the same message contains",
    "G4": "byte-identical repetitions of a record",
    "G5": "copies of the system prompt, which the client writes anew",
    "S1": "older images",
    "S2": "the middle of long older tool results",
    "S3": "what a compaction has already replaced by its summary",
    "S4": "recalled passages, cited instead of repeated",
    "A1": "older thinking",
    "A2": "older long attachments",
    "U1": "the last reply's token count, lowered to the smaller request",
}
"""Each rule in words, for users."""

WINDOWS: dict[str, tuple[int, int]] = {"ui": (2, 20), "standard": (5, 60), "aggressive": (3, 30)}
"""Name → (real prompts, user and assistant records) that a window holds at least."""
AGGRESSIVE_CHARS = 512
RENDERED_CHARS = 2048
ATTACHMENTS_TOO = False
"""A2 stays off until each client version has been seen to take a shortened attachment."""
USAGE_AT = 0.8
"""A request that shrank to this part or less makes the last reply's usage stale (U1)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user may tune: the characters kept of a tool result, and whether U1 may lower usage figures."""

    tool_result_chars: int = 2048
    lower_usage: bool = True


@dataclass(frozen=True, slots=True)
class Edit:
    """One value of a line that is edited, and the rule that edits it."""

    rule: str
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to one line: it goes (drop) or some of its values are edited.

    `line` counts from 0; `offset` and `length` are those of the input line with its line feed.
    """

    line: int
    offset: int
    length: int
    uuid: str | None
    type: str
    drop: bool
    rules: tuple[str, ...]
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Every change of one prune, and the windows as they are to be stored."""

    level: Level
    windows: Mapping[str, str]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    parents: Mapping[int, str] = field(default_factory=dict)
    """line → the parentUuid it is to have, where that changes"""
    usage_line: int | None = None
    """the line whose usage U1 may lower"""


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many records a rule touched, and how many bytes it saved."""

    rule: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a prune really did: changes as made, counts per rule, size afterwards."""

    changes: tuple[Change, ...]
    rules: tuple[RuleCount, ...]
    after_bytes: int


# ── planning ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Scene:
    """What every rule looks at: the facts, and where the windows begin (positions in `facts`)."""

    survey: Survey
    level: Level
    ui: int
    content: int
    """no content rule touches a record from here on"""
    thinking: int
    """nor A1 one from here on: the last real prompt is inside always"""
    held: frozenset[int]
    """positions of the preserved set, which counts as inside the windows, and of records no rule may edit"""
    result_chars: int


def plan(survey: Survey, level: Level, stored: Mapping[str, str], limits: Limits, vaulted: Vaulted) -> Plan:
    """What a prune at this level would change. `vaulted` decides nothing here: carrying out asks it."""
    starts = windows(survey, stored)
    if not starts:
        return Plan(level, dict(stored), (), ("no record of the conversation is in the transcript",))
    facts = survey.facts
    kept = keeping.Keeping(survey, starts.values(), level != "gentle")
    content = starts["aggressive" if level == "aggressive" else "standard"]
    scene = _Scene(
        survey,
        level,
        starts["ui"],
        content,
        content if kept.last_prompt is None else min(content, kept.last_prompt),
        frozenset(kept.preserved | kept.doubled | kept.named),
        AGGRESSIVE_CHARS if level == "aggressive" else max(limits.tool_result_chars, SHORTEST_CUT),
    )
    goes: dict[int, str] = collapse(scene) if kept.collapsing else {}
    for rule in (progress,) if kept.goes_on_above else (thoughts, prompt_copies, progress):
        goes.update(rule(scene))
    fate = kept.settle(goes)
    gone = {facts[at].line: (fact_rule, facts[at]) for at, fact_rule in (fate.gone | kept.repeated).items()}
    changes = [_drop(survey, line, rule, fact) for line, (rule, fact) in gone.items()]
    changes += [_drop(survey, line, "G3", None) for line in set(survey.snapshots)]
    for at, fact in enumerate(facts):
        if fact.line not in gone and (edits := _edits(scene, fate, at, fact)):
            rules = tuple(dict.fromkeys(edit.rule for edit in edits))
            offset, length = survey.offsets[fact.line], survey.length(fact.line)
            changes.append(Change(fact.line, offset, length, fact.uuid, fact.type, False, rules, edits))
    changes.sort(key=lambda change: change.line)
    usage = kept.usage() if limits.lower_usage and level != "gentle" else None
    return Plan(
        level,
        {**stored, **{name: facts[at].uuid for name, at in starts.items()}},
        tuple(changes),
        notes(survey, fate),
        {facts[at].line: parent for at, (_, parent) in fate.parents.items()},
        usage.line if usage and usage.line not in gone else None,
    )


def _drop(survey: Survey, line: int, rule: str, fact: Fact | None) -> Change:
    uuid, type_ = (fact.uuid, fact.type) if fact else (None, "file-history-snapshot")
    return Change(line, survey.offsets[line], survey.length(line), uuid, type_, True, (rule,))


def _edits(scene: _Scene, fate: keeping.Fate, at: int, fact: Fact) -> tuple[Edit, ...]:
    """Every edit of a record that stays."""
    edits: list[Edit] = []
    if at in fate.parents:
        edits.append(Edit(fate.parents[at][0], ("parentUuid",)))
    if at in fate.emptied:
        edits.append(Edit("G1", ("data",)))
    if fact.flags & FIRM and not fact.flags & FIXED and at not in scene.held:
        edits += sidecar(scene, at, fact)
        edits += contents(scene, at, fact)
    return tuple(edits)


def windows(survey: Survey, stored: Mapping[str, str]) -> dict[str, int]:
    """Where each window begins, as a position in `facts`; none where there is no conversation.

    A window holds so many prompts and so many records at least, never moves back, and never begins before the last
    compaction: recounted ones would take in a little more at every run (PRUNING 2).
    """
    facts = survey.facts
    again = {at for at, _ in survey.repeats}  # a window is stored by uuid, so it begins at the first record that has it
    prompts = [at for at, fact in enumerate(facts) if fact.flags & PROMPT and at not in again]
    turns = [at for at, fact in enumerate(facts) if fact.flags & TURN and at not in again]
    if not turns:
        return {}
    first = next(at for at, fact in enumerate(facts) if fact.flags & FIRM)
    found = {}
    for name, (some_prompts, some_turns) in WINDOWS.items():
        start = min(
            prompts[-some_prompts] if len(prompts) >= some_prompts else first,
            turns[-some_turns] if len(turns) >= some_turns else first,
        )
        if survey.boundary is not None and facts[survey.boundary].flags & FIRM:
            start = max(start, survey.boundary)
        before = survey.where.get(stored.get(name, ""))
        found[name] = start if before is None else max(start, before)
    return found


def progress(scene: _Scene) -> dict[int, str]:
    """G1: every progress record goes."""
    return {at: "G1" for at, fact in enumerate(scene.survey.facts) if fact.kind == PROGRESS and fact.flags & FIRM}


def prompt_copies(scene: _Scene) -> dict[int, str]:
    """G5: attachments that only repeat the system prompt go, outside the UI window."""
    return {
        at: "G5"
        for at, fact in enumerate(scene.survey.facts[: scene.ui])
        if fact.kind == ATTACHMENT and fact.subtype == "prompt_snapshot" and fact.flags & FIRM
    }


def thoughts(scene: _Scene) -> dict[int, str]:
    """A1: records that hold nothing but thinking go, outside the content window."""
    if scene.level != "aggressive":
        return {}
    return {
        at: "A1"
        for at, fact in enumerate(scene.survey.facts[: scene.thinking])
        if fact.flags & THOUGHT and fact.flags & FIRM and at not in scene.held
    }


def collapse(scene: _Scene) -> dict[int, str]:
    """S3: what stands before the last compaction goes, but for what a kept record needs (`keeping`)."""
    return {
        at: "S3"
        for at, fact in enumerate(scene.survey.facts[: scene.survey.boundary])
        if fact.kind != OTHER and fact.flags & FIRM and not fact.flags & SIDE
    }


def sidecar(scene: _Scene, at: int, fact: Fact) -> list[Edit]:
    """G2: a toolUseResult goes whole, outside the UI window."""
    return [Edit("G2", ("toolUseResult",))] if fact.flags & SIDECAR and at < scene.ui else []


def contents(scene: _Scene, at: int, fact: Fact) -> list[Edit]:
    """S1, S2, S4, A1 and A2: images, long results, recalls, thinking and attachments outside the content window."""
    if not fact.candidates or scene.level == "gentle" or at >= scene.content:
        return []
    recalled = {one.path: one.size for one in fact.candidates if one.rule == "S4"}
    return [
        Edit(one.rule, one.path)
        for one in fact.candidates
        if one.rule in ("S1", "S4")
        or (one.rule == "S2" and _too_long(scene, one, recalled.get(one.path, one.size)))
        or (one.rule == "A1" and scene.level == "aggressive" and at < scene.thinking)
        or (one.rule == "A2" and scene.level == "aggressive" and ATTACHMENTS_TOO)
    ]


def _too_long(scene: _Scene, one: Candidate, chars: int) -> bool:
    """S2's reasons: long, no answer of the user's, not dealt with by the client itself."""
    survey = scene.survey
    return chars > scene.result_chars and one.call not in survey.asking and one.call not in survey.compacted


def notes(survey: Survey, fate: keeping.Fate) -> tuple[str, ...]:
    """What the transcript's reader should know besides the changes."""
    calls = Counter(tool for fact in survey.facts if fact.type == "assistant" for tool in fact.tools)
    doubled = sum(1 for times in calls.values() if times > 1)
    told = (
        (survey.opaque, "lines are not exactly one record each; left as they are"),
        (doubled, "tool call ids are used more than once; neither use is removed alone"),
        (sum(1 for _, same in survey.repeats if not same), "records share their uuid with another text; both stay"),
        (survey.empty_texts, "empty text blocks were there before; left as they are"),
        (len(fate.spared), "records would go but for others that need them"),
    )
    return tuple(f"{count} {words}" for count, words in told if count)


# ── carrying out ────────────────────────────────────────────────────────────────────────────────────────────────


def carry_out(
    lines: Iterable[bytes],
    plan: Plan,
    limits: Limits,
    vaulted: Vaulted,
    lower: float | None,
    write: Callable[[bytes], None],
) -> Outcome:
    """Writes the transcript as the plan has it, and says what was really done.

    `lower` is the part of the request that is left; at USAGE_AT or less U1 lowers the last reply's usage by it.
    """
    waiting = iter(plan.changes)
    change = next(waiting, None)
    usage_line = plan.usage_line if plan.changes and lower is not None and lower <= USAGE_AT else None
    made: list[Change] = []
    counts: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    after = at = 0
    for number, raw in enumerate(lines):
        if change is None or change.line != number:
            if number != usage_line:
                write(raw)
                after += len(raw)
                at += len(raw)
                continue
            done, wanted = raw, None
        else:
            wanted, change = change, next(waiting, None)
            if len(raw) != wanted.length or at != wanted.offset:
                raise Refused("the transcript is not the one that was surveyed", "try again")
            if wanted.drop:
                made.append(wanted)
                counts[wanted.rules[0]] += 1
                saved[wanted.rules[0]] += len(raw)
                at += len(raw)
                continue
            done = raw
        edits: list[Edit] = []
        if wanted is not None:
            done, edits = _edited(raw, wanted, plan, limits, vaulted, saved)
        if number == usage_line:
            done = _lowered(done, lower or 0.0, edits, saved)
        if edits:
            rules = tuple(dict.fromkeys(edit.rule for edit in edits))
            counts.update(rules)
            made.append(
                replace(wanted, rules=rules, edits=tuple(edits))
                if wanted is not None
                else _usage_change(number, at, raw, tuple(edits))
            )
        write(done)
        after += len(done)
        at += len(raw)
    if change is not None:
        raise Refused("the transcript is shorter than the one that was surveyed", "try again")
    return Outcome(
        tuple(made), tuple(RuleCount(rule, counts[rule], saved[rule]) for rule in RULES if counts[rule]), after
    )


def _usage_change(number: int, at: int, raw: bytes, edits: tuple[Edit, ...]) -> Change:
    return Change(number, at, len(raw), strict_loads(raw)["uuid"], "assistant", False, ("U1",), edits)


def _edited(
    raw: bytes, wanted: Change, plan: Plan, limits: Limits, vaulted: Vaulted, saved: Counter[str]
) -> tuple[bytes, list[Edit]]:
    """The line with its edits made, and those that were; an edit that cannot be made or makes it longer is left out."""
    obj = None
    done: list[Edit] = []
    splices: list[Splice] = []
    blocks: list[Edit] = []
    together: dict[tuple[str | int, ...], list[Edit]] = {}
    for edit in wanted.edits:
        together.setdefault(edit.path, []).append(edit)
    for path, edits in together.items():
        rule = edits[0].rule
        if path == ("parentUuid",):
            splices.append(_reparent(raw, plan.parents[wanted.line]))
        elif rule == "G2":
            splices.append(_without_member(raw, "toolUseResult"))
        elif path == ("data",):
            splices.append(_replaced(raw, path, b"{}"))
        elif rule == "A1":
            blocks += edits
            continue
        else:
            obj = obj or strict_loads(raw)
            found = _stubbed(raw, obj, wanted, path, {edit.rule for edit in edits}, plan, limits, vaulted)
            if found is None:
                continue
            splices.append(found)
        done += edits
        saved[edits[-1].rule] += _shorter(splices[-1])
    if blocks:
        gone = _without_items(raw, [edit.path for edit in blocks])
        splices += gone
        done += blocks
        saved["A1"] += sum(_shorter(one) for one in gone)
    return splice.apply(raw, splices), done


def _shorter(one: Splice) -> int:
    return one.end - one.start - len(one.data)


def _span(raw: bytes, path: tuple[str | int, ...]) -> tuple[int, int]:
    span = splice.find(raw, path)
    if span is None:
        raise Refused(f"{stub.dotted(path)} cannot be edited by itself; the record holds a key twice")
    return span


def _replaced(raw: bytes, path: tuple[str | int, ...], data: bytes) -> Splice:
    start, end = _span(raw, path)
    return Splice(start, end, data) if len(data) < end - start else Splice(start, start)


def _reparent(raw: bytes, parent: str) -> Splice:
    """Names another parent; the survey saw that the key stands once in the line, plainly spelt."""
    at = raw.index(b'"', raw.index(b'"parentUuid"') + 12)
    return Splice(at, raw.index(b'"', at + 1) + 1, splice.text(parent))


def _without_member(raw: bytes, key: str) -> Splice:
    """Takes a member of the record out, with its comma; the survey saw that the key stands once in the line."""
    name = b'"%s":' % key.encode()
    at = raw.find(name)
    if at > 0 and raw[at - 1] in b",{":  # no blanks, as the client writes it: nothing else need be looked through
        end = splice.end_of(raw, at + len(name))
        if raw[at - 1 : at] == b",":
            return Splice(at - 1, end)
        if raw[end : end + 2] == b',"':
            return Splice(at, end + 1)
    all_ = splice.members(raw, 0)
    (at,) = (at for at, one in enumerate(all_) if one.key == key)
    return splice.cut([(one.start, one.end) for one in all_], {at})[0]


def _without_items(raw: bytes, paths: list[tuple[str | int, ...]]) -> list[Splice]:
    """Takes blocks out of message content."""
    start, _ = _span(raw, ("message", "content"))
    return splice.cut(splice.items(raw, start), {path[-1] for path in paths if isinstance(path[-1], int)})


def _stubbed(
    raw: bytes,
    obj: dict[str, object],
    wanted: Change,
    path: tuple[str | int, ...],
    rules: set[str],
    plan: Plan,
    limits: Limits,
    vaulted: Vaulted,
) -> Splice | None:
    """What S1, S2, S4 and A2 put in the place of a value; None where it would not be shorter."""
    span = splice.find(raw, path)
    if span is None:
        return None
    start, end = span
    value = obj
    for step in path:
        value = value[step]  # type: ignore[index,assignment]  # the path was found in these bytes
    uuid = wanted.uuid or ""
    if "S1" in rules:
        data = _image_stub(uuid, path, raw[start:end], value)
    else:
        text = str(value)
        if "S4" in rules:
            text = stub.consulted(text)
        if "S2" in rules or "A2" in rules:
            limit = AGGRESSIVE_CHARS if plan.level == "aggressive" else max(limits.tool_result_chars, SHORTEST_CUT)
            ours = stub.own_marker(text, uuid, path, vaulted)
            mark = ours[0] if ours else stub.marker(uuid, path, raw[start:end])
            text = stub.shortened(text, RENDERED_CHARS if "A2" in rules else limit, mark)
        data = splice.text(text)
    return Splice(start, end, data) if len(data) < end - start else None


def _image_stub(uuid: str, path: tuple[str | int, ...], block: bytes, value: dict[str, object]) -> bytes:
    """A text block that names the image, its media type and size."""
    source = value["source"]
    kind, data = source.get("media_type"), source["data"]  # type: ignore[attr-defined,index]  # the survey saw both
    size = len(data) * 3 // 4 - data[-2:].count("=")
    kind = kind if type(kind) is str and len(kind) <= 64 else "image"
    return b'{"type":"text","text":' + splice.text(f"{stub.marker(uuid, path, block)} {kind}, {size} bytes") + b"}"


def _lowered(raw: bytes, lower: float, edits: list[Edit], saved: Counter[str]) -> bytes:
    """U1: the line with the input figures of its usage scaled down."""
    usage = strict_loads(raw)["message"]["usage"]
    waiting: list[tuple[tuple[str | int, ...], object]] = [(("message", "usage"), usage)]
    splices: list[Splice] = []
    while waiting:
        path, value = waiting.pop()
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, inner in pairs:
            here = (*path, step)
            if step in INPUT_FIGURES and type(inner) is int and inner > 0:
                start, end = _span(raw, here)
                splices.append(Splice(start, end, b"%d" % int(inner * lower)))
                edits.append(Edit("U1", here))
            else:
                waiting.append((here, inner))
    saved["U1"] += sum(_shorter(one) for one in splices)
    return splice.apply(raw, splices)
