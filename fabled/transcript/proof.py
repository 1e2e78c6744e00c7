"""Proves a prune: the invariants between a transcript before and after it (PRUNING 3), each a function named after it.

It trusts nothing that `rules` says but which lines and values it claims to have changed; what the two transcripts are
is read by `witness`, what the client would send of them is told by `sent`. Whether the Vault holds a line is asked
of the caller. A broken invariant means that nothing may be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .rules import Change, Plan
from .said import CHAIN, THOUGHTS, Block, Said
from .sent import View, assemble
from .witness import ABSENT, Fact, Held, Seen, read

LEVELS = {"gentle": "G", "standard": "GSU", "aggressive": "GSAU"}
"""The first letters of the rules that each level may use."""
GRAPH = CHAIN | {"progress"}
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Result:
    """Whether one invariant holds, and what breaks it."""

    id: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class Floors:
    """What a prune must save at least, in bytes and as a part of the transcript (I15)."""

    bytes: int = 0
    part: float = 0.0


@dataclass(frozen=True, slots=True)
class Proven:
    """What only the caller can answer; what is left out is not proved here."""

    vaulted: Held | None = None
    """whether a marker names a block that the Vault holds"""
    held: Callable[[Change], bool] | None = None
    """whether an immutable generation holds the original line of a change (I14)"""
    floors: Floors | None = None
    again: Callable[[], Sequence[Change]] | None = None
    """the changes that the same prune would make of its own result (I16)"""
    sent: Callable[[View, View], None] | None = None
    """hears what the client would send before and after, which is found out anyway"""


Faults = Iterator[str]


def prove(
    before: Callable[[], Iterable[bytes]],
    after: Callable[[], Iterable[bytes]],
    plan: Plan,
    changes: Sequence[Change],
    proven: Proven | None = None,
) -> list[Result]:
    """Every invariant of the temporary file. `changes` are those really made; lines come with their line feeds."""
    proven = proven or Proven()
    seen = read(before(), after(), changes, proven.vaulted)
    case = _Case(seen, plan, proven)
    results = []
    for name, check in INVARIANTS.items():
        if name == "I15" and proven.floors is None:
            continue
        if name == "I16" and proven.again is None:
            continue
        found = [*seen.faults.get(name, ()), *check(case)]
        said = "; ".join(found[:SHOWN]) + (f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
        results.append(Result(name, not found, said or HOLDS[name]))
    return results


class _Case:
    """Both transcripts with what several invariants ask of them."""

    def __init__(self, seen: Seen, plan: Plan, proven: Proven) -> None:
        self.seen = seen
        self.plan = plan
        self.proven = proven
        self.boundary = _last(seen.before, lambda fact: fact.subtype == "compact_boundary" and fact.type == "system")
        self.prompt = _last(seen.before, lambda fact: fact.prompt)
        self.where = {fact.uuid: line for line, fact in enumerate(seen.before) if fact.uuid is not None}
        self.left = {fact.uuid for fact in seen.after if fact.uuid is not None}
        self.preserved = self._preserved()
        self.windows: dict[str, int] = {}
        """where each window begins, as a line"""
        for name, uuid in plan.windows.items():
            line = next((line for line, fact in enumerate(seen.before) if fact.uuid == uuid), None)
            if line is not None:
                self.windows[name] = line

    def _preserved(self) -> set[str]:
        """What the last compaction keeps: by name, or else whatever leads from its last to its first."""
        if self.boundary is None:
            return set()
        fact = self.seen.before[self.boundary]
        kept = {name for name in fact.named if name in self.where}
        segment = fact.said.segment if isinstance(fact.said, Said) else None
        if segment is not None:
            head, at = segment
            path: set[str] = set()
            while at in self.where and at not in path:
                path.add(at)
                if at == head:
                    return kept | path
                parent = self.seen.before[self.where[at]].parent
                at = parent if type(parent) is str else ""
        return kept

    def dropped(self) -> Iterator[tuple[int, Fact, Change]]:
        for line, change in self.seen.changes.items():
            if change.drop and line < len(self.seen.before):
                yield line, self.seen.before[line], change


def _last(facts: Sequence[Fact], test: Callable[[Fact], bool]) -> int | None:
    return next((line for line in range(len(facts) - 1, -1, -1) if test(facts[line])), None)


def untouched_lines(case: _Case) -> Faults:
    """I1: a line not listed is the same bytes, and the order stays. (All of it was seen while reading.)"""
    yield from ()


def opaque_lines(case: _Case) -> Faults:
    """I2: what is not exactly one strict object passes through, and no line becomes such."""
    before, after = (sum(fact.opaque for fact in facts) for facts in (case.seen.before, case.seen.after))
    if after > before:
        yield f"{after - before} more lines are not one record each"


def uuids(case: _Case) -> Faults:
    """I3: the uuids are those of before without the removed ones, and each removal is one that its rule may make."""
    want = Counter(fact.uuid for fact in case.seen.before if fact.uuid is not None)
    want.subtract(fact.uuid for _, fact, _ in case.dropped() if fact.uuid is not None)
    have = Counter(fact.uuid for fact in case.seen.after if fact.uuid is not None)
    if +want != have:
        yield f"{(+want - have).total()} records are missing and {(have - want).total()} are new"
    fates: dict[
        tuple[str | None, bytes], str
    ] = {}  # of each record's first copy: the rule that took it, "" if it stands
    dropped = {line: change for line, _, change in case.dropped()}
    for line, fact in enumerate(case.seen.before):
        change = dropped.get(line)
        key = (fact.uuid, fact.digest)
        if change is None:
            fates.setdefault(key, "")
            continue
        rule = change.rules[0] if len(change.rules) == 1 else "several"
        if rule == "G4":  # a repetition shares the fate of its first copy
            rule = fates.get(key, "no earlier copy")
        fates.setdefault(key, rule)
        fine = (rule == "" and fact.uuid is not None) or (rule and _may_go(case, line, fact, rule))
        if fact.opaque or change.uuid != fact.uuid or not fine:
            yield f"line {line} ({fact.type}) went by {'+'.join(change.rules)}"


def _may_go(case: _Case, line: int, fact: Fact, rule: str) -> bool:
    """Whether a rule may take such a line."""
    if rule[0] not in LEVELS[case.plan.level]:
        return False
    if rule == "G3":
        return fact.type == "file-history-snapshot" and fact.uuid is None
    if fact.uuid is None:
        return False
    if rule == "G1":
        return fact.type == "progress"
    if rule == "G5":
        return fact.type == "attachment" and fact.subtype == "prompt_snapshot" and _outside(case, line, "ui")
    if rule == "S3":
        before = case.boundary is not None and line < case.boundary
        return before and fact.type in GRAPH and not fact.sidechain and fact.uuid not in case.preserved
    if rule == "A1":
        recent = case.prompt is not None and line >= case.prompt
        only = fact.type == "assistant" and fact.only_thoughts
        return only and not recent and _outside(case, line, "aggressive")
    return False


def _outside(case: _Case, line: int, window: str) -> bool:
    """Whether a line stands before a window."""
    return line < case.windows.get(window, 0)


def last_record(case: _Case) -> Faults:
    """I4: the last record of the main chain and the last with a uuid stay, unchanged but for U1; so do named leaves."""
    before = case.seen.before
    ends = {_last(before, lambda fact: fact.main), _last(before, lambda fact: fact.uuid is not None)}
    for line in ends - {None}:
        assert line is not None
        now = case.seen.line_after(line)
        if now is None:
            yield f"line {line}, the last record, is gone"
        elif now.digest != before[line].digest and case.seen.edited.get(line, frozenset()) != {"U1"}:
            yield f"line {line}, the last record, was changed"
        elif now.parent != before[line].parent:
            yield f"line {line}, the last record, names another parent"
    newest: dict[str, str] = {}
    for fact in before:
        if fact.leaf is not None and not fact.opaque:
            newest[fact.type] = fact.leaf
    for kind, leaf in newest.items():
        if leaf in case.where and leaf not in case.left:
            yield f"{leaf}, the leaf that {kind} names, is gone"


def parents(case: _Case) -> Faults:
    """I5: a kept record hangs on its nearest kept ancestor, else on what it named; no chain loses its upper part."""
    before = case.seen.before
    up: dict[str, object] = {}
    for fact in before:
        if fact.uuid is not None:
            up[fact.uuid] = fact.parent
    known: dict[str, object] = {}
    collapsing = case.plan.level != "gentle"  # then what is above a preserved head may go
    for line, fact in enumerate(before):
        now = case.seen.line_after(line)
        if now is None or fact.uuid is None:
            continue
        if now.parent is ABSENT and fact.parent is ABSENT:
            continue
        if type(fact.parent) is not str or not fact.parent:
            if now.parent != fact.parent:
                yield f"line {line} had no parent and has one"
            continue
        if fact.parent in case.left or fact.parent not in case.where:
            want: object = fact.parent
        elif collapsing and fact.uuid in case.preserved:
            want = now.parent if now.parent in (fact.parent, _nearest(fact.parent, up, case.left, known)) else None
        else:
            want = _nearest(fact.parent, up, case.left, known)
            if want is None:
                yield f"line {line} lost every ancestor"
                continue
        if now.parent != want:
            yield f"line {line} hangs on another record than its nearest kept ancestor"


def _nearest(start: str, up: dict[str, object], left: set[str], known: dict[str, object]) -> object:
    """The nearest ancestor that is left, None where there is none."""
    path: list[str] = []
    passed: set[str] = set()
    at: object = start
    found: object = None
    while type(at) is str and at not in passed:
        if at in known:
            found = known[at]
            break
        if at in left:
            found = at
            break
        path.append(at)
        passed.add(at)
        at = up.get(at)
    known.update(dict.fromkeys(path, found))
    return found


def pairs(case: _Case) -> Faults:
    """I6: no call loses its result and no result its call."""
    for words, more in zip(("calls", "results"), _unpaired(case.seen.after, case.seen.before), strict=True):
        if more:
            yield f"{len(more)} {words} lost their other half ({', '.join(sorted(more)[:SHOWN])})"


def _unpaired(facts: Sequence[Fact], than: Sequence[Fact]) -> tuple[set[str], set[str]]:
    calls, results = _tools(facts)
    old_calls, old_results = _tools(than)
    return (calls - results) - (old_calls - old_results), (results - calls) - (old_results - old_calls)


def _tools(facts: Sequence[Fact]) -> tuple[set[str], set[str]]:
    return {one for fact in facts for one in fact.calls}, {one for fact in facts for one in fact.results}


def nothing_empty(case: _Case) -> Faults:
    """I7: no content and no text becomes empty."""
    for line, fact in enumerate(case.seen.before):
        now = case.seen.line_after(line)
        if now is not None and now is not fact and now.empty > fact.empty:
            yield f"line {line} holds an empty content or text that it did not"


def thinking(case: _Case) -> Faults:
    """I8: thinking is whole or gone, and all of it stands since the last prompt, be it in another copy."""
    stands = {one.digest for one in case.seen.after if one.thoughts}
    for line, fact in enumerate(case.seen.before):
        if not fact.thoughts:
            continue
        now = case.seen.line_after(line)
        if now is fact:
            continue
        rest = iter(fact.thoughts)
        if now is not None and not all(one in rest for one in now.thoughts):
            yield f"line {line}: a thinking block was changed"
        recent = case.prompt is not None and line >= case.prompt
        collapsed = now is None and case.seen.changes[line].rules == ("S3",) if line in case.seen.changes else False
        if now is None and fact.digest in stands:
            continue
        if recent and not collapsed and (now is None or now.thoughts != fact.thoughts):
            yield f"line {line}: thinking since the last prompt is gone"


def edits(case: _Case) -> Faults:
    """I9: only listed values differ, each by a rule that may change it, at this level and outside its window."""
    for line, change in case.seen.changes.items():
        if change.drop or line >= len(case.seen.before):
            continue
        wrong = sorted({edit.rule for edit in change.edits if edit.rule[0] not in LEVELS[case.plan.level]})
        if wrong:
            yield f"line {line}: {', '.join(wrong)} is no rule of this level"
        used = case.seen.edited.get(line, frozenset())
        if "G2" in used and not _outside(case, line, "ui"):
            yield f"line {line}: G2 inside the window"
        if used & {"S1", "S2", "S4", "A1", "A2"}:
            fact = case.seen.before[line]
            window = "aggressive" if case.plan.level == "aggressive" else "standard"
            if not _outside(case, line, window) or fact.uuid in case.preserved or fact.summary:
                yield f"line {line}: {', '.join(sorted(used))} inside the window"
    lowered = [line for line, used in case.seen.edited.items() if "U1" in used]
    replies = [line for line in lowered if case.seen.before[line].main and case.seen.before[line].type == "assistant"]
    if len(lowered) > 1 or replies != lowered:
        yield "usage was lowered in more than the last reply"


def boundary(case: _Case) -> Faults:
    """I10: the last compaction stands with its summary, its data and every record that it keeps."""
    if case.boundary is None:
        return
    fact, now = case.seen.before[case.boundary], case.seen.line_after(case.boundary)
    stand = {one.digest for one in case.seen.after}
    if now is None and fact.digest in stand:  # the line was a repetition
        now = fact
    if now is None:
        yield "the last compaction is gone"
        return
    if now.metadata != fact.metadata or now.digest != fact.digest:
        yield "the last compaction was changed"
    for line in range(case.boundary + 1, len(case.seen.before)):
        if case.seen.before[line].summary:
            if case.seen.before[line].digest not in stand:
                yield "the summary of the last compaction is gone or changed"
            break
    gone = case.preserved - case.left
    if gone:
        yield f"{len(gone)} records that the last compaction keeps are gone"


def model_view(case: _Case) -> Faults:
    """I11: the client would send the same; at standard and aggressive but for what the listed edits changed."""
    seen = case.seen
    before = assemble(fact.said for fact in seen.before)
    after = assemble(fact.said for fact in seen.after)
    if case.proven.sent is not None:
        case.proven.sent(before, after)
    if before == after:
        return
    if case.plan.level == "gentle":
        yield f"the request differs ({len(before)} blocks, then {len(after)})"
        return
    by: dict[str, set[str]] = {}
    for line, used in seen.edited.items():
        by.setdefault(seen.before[line].uuid or "", set()).update(used)
    thoughts = {fact.uuid for _, fact, change in case.dropped() if change.rules == ("A1",)}
    thoughts |= {uuid for uuid, used in by.items() if "A1" in used}
    yield from _same(before, after, by, thoughts)


def _same(before: View, after: View, by: dict[str, set[str]], thoughts: set[str | None]) -> Faults:
    at = 0
    for block in before:
        other = after[at] if at < len(after) else None
        if other is None or not _corresponds(block, other, by.get(block.uuid, set())):
            if block.kind in THOUGHTS and block.uuid in thoughts:
                continue
            yield f"the request differs at block {at}, a {block.kind} of {block.role} from {block.uuid}"
            return
        at += 1
    if at < len(after):
        yield f"the request has {len(after) - at} more blocks"


def _corresponds(block: Block, other: Block, rules: set[str]) -> bool:
    """Whether a block is the same, or the same in what may not change, its payload changed by a rule that may."""
    if block == other:
        return True
    if (block.role, block.tool_id, block.uuid) != (other.role, other.tool_id, other.uuid):
        return False
    if block.kind == "image" and other.kind == "text":
        return "S1" in rules
    if block.kind != other.kind:
        return False
    if block.kind == "tool_result":
        return bool(rules & {"S1", "S2", "S4"})
    if block.kind.startswith("attachment/"):
        return bool(rules & {"S4", "A2"})
    return block.kind == "text" and "S4" in rules


def last_of_each_type(case: _Case) -> Faults:
    """I12: the last record of every type outside the chain stands as it was. (One that hangs on a parent all the same
    may hang on another: I5.)"""
    last: dict[str, int] = {}
    for line, fact in enumerate(case.seen.before):
        if not fact.opaque and fact.type not in GRAPH:
            last[fact.type] = line
    for kind, line in last.items():
        now, was = case.seen.line_after(line), case.seen.before[line]
        if now is None and was.uuid is not None and any(one.digest == was.digest for one in case.seen.after):
            continue  # a repetition
        moved = now is not None and now.uuid is not None and not case.seen.edited.get(line, frozenset({"more"}))
        if now is None or (now.digest != was.digest and not moved):
            yield f"the last {kind or 'record without type'} is gone or changed"


def snapshots(case: _Case) -> Faults:
    """I13: the last file snapshot of every kept prompt stands."""
    last: dict[str, int] = {}
    for line, fact in enumerate(case.seen.before):
        if fact.message is not None:
            last[fact.message] = line
    for message, line in last.items():
        if (message in case.left or message not in case.where) and case.seen.line_after(line) is None:
            yield f"the last snapshot of {message} is gone"


def vaulted(case: _Case) -> Faults:
    """I14: the Vault holds each line that went or was edited, and every new marker names what stood in its place."""
    if case.proven.held is not None:
        for line, change in case.seen.changes.items():
            if not case.proven.held(change):
                yield f"the Vault does not hold line {line}"


def worth_it(case: _Case) -> Faults:
    """I15: enough is saved."""
    floors = case.proven.floors
    assert floors is not None
    saved = case.seen.before_bytes - case.seen.after_bytes
    if saved < floors.bytes or saved < floors.part * case.seen.before_bytes:
        yield f"{saved} bytes of {case.seen.before_bytes} saved"


def idempotent(case: _Case) -> Faults:
    """I16: the same prune finds nothing to do in its own result."""
    assert case.proven.again is not None
    again = case.proven.again()
    if again:
        yield f"a second run would change {len(again)} lines, first line {again[0].line} by {'+'.join(again[0].rules)}"


def characters(case: _Case) -> Faults:
    """I17: no half character, invalid byte or line break came in. (All of it was seen while reading.)"""
    yield from ()


def never_longer(case: _Case) -> Faults:
    """I24: an edited line is never longer than it was: the longest copy of a record counts as the original."""
    yield from ()


INVARIANTS: dict[str, Callable[[_Case], Faults]] = {
    "I1": untouched_lines,
    "I2": opaque_lines,
    "I3": uuids,
    "I4": last_record,
    "I5": parents,
    "I6": pairs,
    "I7": nothing_empty,
    "I8": thinking,
    "I9": edits,
    "I10": boundary,
    "I11": model_view,
    "I12": last_of_each_type,
    "I13": snapshots,
    "I14": vaulted,
    "I15": worth_it,
    "I16": idempotent,
    "I17": characters,
    "I24": never_longer,
}
HOLDS = {
    "I1": "untouched lines are the same bytes in the same order",
    "I2": "lines that are not one record each passed through",
    "I3": "no record is new, and only what a rule may take is gone",
    "I4": "the last record stands",
    "I5": "every record hangs on its nearest kept ancestor",
    "I6": "calls and results are paired as before",
    "I7": "no content became empty",
    "I8": "thinking is whole or gone",
    "I9": "only listed values differ",
    "I10": "the last compaction and what it keeps stand",
    "I11": "the client would send the same, but for listed stubs",
    "I12": "the last record of every other type stands",
    "I13": "the last file snapshot of every prompt stands",
    "I14": "what was taken out is named by its true bytes",
    "I15": "enough is saved",
    "I16": "a second run would change nothing",
    "I17": "no character was broken",
    "I24": "no edited line became longer",
}
