"""Reads a transcript before and after a prune side by side, once, and keeps what the invariants ask of each line.

What the facts prove is left to `proof`. A line is parsed here for its own sake, not as `rules` surveyed it; memory is a
few facts per line, and of an edited line the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from .differences import Difference, Object, Stub, allowed, differences, exact, fits, mute, stub_in
from .record import strict_loads
from .rules import Change, Edit
from .said import CHAIN, DIGEST_BYTES, THOUGHTS, Chosen, Said, digest, first_object, heard

ABSENT = object()
"""The parent of a record that has no `parentUuid`."""
CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))

Held = Callable[[str, str, int, str], bool]


@dataclass(slots=True)
class Fact:
    """What the invariants ask of one line."""

    opaque: bool
    digest: bytes
    type: str = ""
    subtype: str = ""
    uuid: str | None = None
    parent: Any = ABSENT
    sidechain: bool = False
    prompt: bool = False
    summary: bool = False
    said: Said | Chosen | None = None
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    thoughts: tuple[bytes, ...] = ()
    only_thoughts: bool = False
    empty: int = 0
    """contents and texts that are empty or blank"""
    named: tuple[str, ...] = ()
    """what a compaction names as kept"""
    metadata: bytes = b""
    """digest of a compaction's metadata"""
    message: str | None = None
    """of a file snapshot: the prompt it belongs to"""
    leaf: str | None = None

    @property
    def main(self) -> bool:
        """Whether it is a link of the main chain."""
        return self.uuid is not None and not self.sidechain and (self.type in CHAIN or self.type == "progress")


@dataclass(slots=True)
class Seen:
    """Both transcripts as facts, and what was found wrong while they were read."""

    before: list[Fact] = field(default_factory=list)
    after: list[Fact] = field(default_factory=list)
    pairs: list[int | None] = field(default_factory=list)
    """for each line before: its place after, None where it went"""
    changes: dict[int, Change] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    """invariant → what breaks it, as far as a single line shows it"""
    before_bytes: int = 0
    after_bytes: int = 0
    edited: dict[int, frozenset[str]] = field(default_factory=dict)
    """line → the rules that edited its values (a new parent alone does not count)"""

    def fault(self, invariant: str, text: str) -> None:
        self.faults.setdefault(invariant, []).append(text)

    def line_after(self, line: int) -> Fact | None:
        place = self.pairs[line] if line < len(self.pairs) else None
        return self.after[place] if place is not None and place < len(self.after) else None


def fact_of(line: bytes) -> Fact:
    """The facts of one line."""
    return _fact(line, _strict(line))


def _fact(line: bytes, obj: dict[str, Any] | None) -> Fact:
    if obj is None:
        return Fact(bool(line.strip()), sha256(line).digest()[:DIGEST_BYTES], said=heard(first_object(line)))
    uuid, kind, leaf, parent = obj.get("uuid"), obj.get("type"), obj.get("leafUuid"), obj.get("parentUuid", ABSENT)
    fact = Fact(
        False,
        sha256(line).digest()[:DIGEST_BYTES],
        kind if type(kind) is str else "",
        uuid=uuid if type(uuid) is str and uuid else None,
        parent=parent,
        sidechain=bool(obj.get("isSidechain")),
        said=heard(obj),
        leaf=leaf if type(leaf) is str else None,
    )
    if fact.type == "user" or fact.type == "assistant":
        _message(fact, obj)
    elif fact.type == "system":
        _system(fact, obj)
    elif fact.type == "attachment":
        body = obj.get("attachment")
        fact.subtype = str(body.get("type")) if type(body) is dict else ""
    elif fact.type == "file-history-snapshot":
        message = obj.get("messageId")
        fact.message = message if type(message) is str else None
    return fact


def _strict(line: bytes) -> dict[str, Any] | None:
    """The one object of a whole line, None where it is anything else."""
    if not line.startswith(b"{") or not line.endswith(b"\n"):
        return None
    try:
        obj = strict_loads(line)
    except ValueError:
        return None
    return obj if type(obj) is dict else None


def _message(fact: Fact, obj: dict[str, Any]) -> None:
    message = obj.get("message")
    content = message.get("content") if type(message) is dict else None
    fact.summary = obj.get("isCompactSummary") is True
    calls: list[str] = []
    results: list[str] = []
    thoughts: list[bytes] = []
    blocks = content if type(content) is list else ()
    for block in blocks:
        if type(block) is not dict:
            continue
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            fact.empty += type(text) is str and not text.strip()
        elif kind == "tool_result":
            fact.empty += block.get("content") in ("", [])
        if kind in THOUGHTS:
            thoughts.append(digest(block))
        elif kind in CALLS and type(block.get("id")) is str:
            calls.append(block["id"])
        elif type(block.get("tool_use_id")) is str:
            results.append(block["tool_use_id"])
    fact.empty += content in ("", [])
    fact.calls, fact.results, fact.thoughts = tuple(calls), tuple(results), tuple(thoughts)
    fact.only_thoughts = bool(thoughts) and len(thoughts) == len(blocks)
    if fact.type == "user" and not fact.sidechain and fact.uuid is not None:
        fact.prompt = not (results or fact.summary or obj.get("isMeta") is True)


def _system(fact: Fact, obj: dict[str, Any]) -> None:
    fact.subtype = str(obj.get("subtype"))
    if fact.subtype != "compact_boundary":
        return
    meta = obj.get("compactMetadata")
    fact.metadata = digest(meta)
    names: list[Any] = []
    if type(meta) is dict:
        segment, messages = meta.get("preservedSegment"), meta.get("preservedMessages")
        if type(segment) is dict:
            names += (segment.get("headUuid"), segment.get("tailUuid"))
        if type(messages) is dict:
            for key in ("uuids", "allUuids"):
                names += messages[key] if type(messages.get(key)) is list else []
    fact.named = tuple(dict.fromkeys(name for name in names if type(name) is str))


# ── side by side ────────────────────────────────────────────────────────────────────────────────────────────────


def read(before: Iterable[bytes], after: Iterable[bytes], changes: Sequence[Change], vaulted: Held | None) -> Seen:
    """Both transcripts, line for line: what is not listed as changed must be the same bytes, in the same order."""
    seen = Seen()
    for change in changes:
        if change.line in seen.changes:
            seen.fault("I1", f"line {change.line} is listed twice")
        seen.changes[change.line] = change
    rest = iter(after)
    snapshots: dict[str, list[tuple[int, frozenset[str]]]] = {}
    for number, line in enumerate(before):
        change_ = seen.changes.get(number)
        if change_ is not None and (change_.offset, change_.length) != (seen.before_bytes, len(line)):
            seen.fault("I1", f"line {number} is listed with another place or length")
        seen.before_bytes += len(line)
        obj = _strict(line)
        fact = _fact(line, obj)
        seen.before.append(fact)
        if change_ is not None and change_.drop:
            seen.pairs.append(None)
            if fact.opaque:
                seen.fault("I2", f"line {number} is not one record and went")
        else:
            _pair(seen, number, (line, obj), fact, next(rest, None), vaulted)
        if fact.type == "file-history-snapshot" and fact.uuid is None and not fact.opaque:
            _snapshot(seen, number, line, fact, snapshots)
    for line in rest:
        seen.fault("I1", f"line {len(seen.after)} is new")
        seen.after.append(fact_of(line))
        seen.after_bytes += len(line)
    for number in seen.changes.keys() - range(len(seen.before)):
        seen.fault("I1", f"line {number} is listed and does not exist")
    for waiting in snapshots.values():
        for number, _ in waiting:
            seen.fault("I3", f"line {number} went, and no later snapshot of its prompt holds the same")
    return seen


Read = tuple[bytes, dict[str, Any] | None]
"""A line, and the one object it is."""


def _pair(seen: Seen, number: int, before: Read, fact: Fact, after: bytes | None, vaulted: Held | None) -> None:
    line = before[0]
    if after is None:
        seen.pairs.append(None)
        seen.fault("I1", f"line {number} is missing")
        return
    seen.pairs.append(len(seen.after))
    seen.after_bytes += len(after)
    if after == line:
        seen.after.append(fact)
        return
    change = seen.changes.get(number)
    if change is None:
        seen.fault("I1", f"line {number} differs and is not listed")
    _ending(seen, number, line, after)
    if len(after) > len(line):
        seen.fault("I24", f"line {number} became longer")
    now = _strict(after)
    other = _fact(after, now)
    seen.after.append(other)
    if fact.opaque:
        seen.fault("I2", f"line {number} is not one record and was changed")
    elif other.opaque:
        seen.fault("I2", f"line {number} is no longer one record")
        seen.fault("I17", f"line {number} is no strict UTF-8 JSON")
    elif change is not None:
        _edited(seen, number, before, (after, now), fact, change, vaulted)


def _ending(seen: Seen, number: int, line: bytes, after: bytes) -> None:
    one = after.count(b"\n") == 1 and after.endswith(b"\n")
    same = after.endswith(b"\r\n") == line.endswith(b"\r\n") and after.count(b"\r") == line.count(b"\r")
    if not one or not same:
        seen.fault("I17", f"line {number} ends differently or is broken")


def _edited(
    seen: Seen, number: int, before: Read, changed: Read, fact: Fact, change: Change, vaulted: Held | None
) -> None:
    """I9 for one line: each difference is listed, and a rule listed for its place may make it."""
    (line, _), (after, _) = before, changed
    if change.edits == _MUTE_RESULT and change.uuid == fact.uuid and fact.type == "user" and muted(before, changed):
        seen.edited[number] = frozenset({"G2"})
        return
    try:
        original, now = exact(line), exact(after)
    except (ValueError, RecursionError):
        seen.fault("I9", f"line {number} cannot be compared")
        return
    uuid = fact.uuid or ""
    if change.uuid != fact.uuid:
        seen.fault("I9", f"line {number} is listed under another uuid")
    used: set[str] = set()
    for diff in differences(original, now):
        rules = frozenset(edit.rule for edit in change.edits if _covers(edit.path, diff))
        why = allowed(diff, rules, original, uuid) if rules else f"{'.'.join(map(str, diff.path))} is not listed"
        if why is not None:
            seen.fault("I9", f"line {number}: {why}")
        if diff.path != ("parentUuid",):
            used |= rules
        _marked(seen, number, line, uuid, diff, rules, vaulted)
    seen.edited[number] = frozenset(used)


def muted(before: Read, changed: Read) -> bool:
    """Whether all that a line lost is a `toolUseResult` that says nothing to the client, and nothing else changed.

    The same as comparing the values exactly, for the commonest edit: the line lost one run of bytes, which reads as
    that one member, and without it the values are equal. False only means that a closer look is needed.
    """
    (line, whole), (after, rest) = before, changed
    gone = len(line) - len(after)
    if gone <= 0 or whole is None or rest is None or "toolUseResult" in rest:
        return False
    low, high = 0, len(after)
    while low < high:  # the longest common beginning
        middle = (low + high + 1) // 2
        if line[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    if line[low + gone :] != after[low:]:
        return False
    # Where the run begins is open by as much as its beginning repeats behind it.
    key = b'"toolUseResult":'
    start = line.find(key, max(0, low - len(key)), low + len(key) + 2)
    for at, end in ((start - 1, start - 1 + gone), (start, start + gone)):
        if start < 1 or line[:at] + line[end:] != after:
            continue
        try:
            member = strict_loads(b"{" + line[at:end].strip(b",") + b"}")
        except ValueError:
            continue
        return bool(list(member) == ["toolUseResult"] and whole == rest | member and mute(member["toolUseResult"]))
    return False


_MUTE_RESULT = (Edit("G2", ("toolUseResult",)),)


def _covers(path: tuple[str | int, ...], diff: Difference) -> bool:
    if diff.kind == "items":
        return len(path) == len(diff.path) + 1 and path[:-1] == diff.path
    return path == diff.path


def _marked(
    seen: Seen, number: int, line: bytes, uuid: str, diff: Difference, rules: frozenset[str], vaulted: Held | None
) -> None:
    """I14 for one stub: its marker names the bytes that stood there, or what an earlier prune put in the Vault."""
    if not rules & {"S1", "S2", "A2"}:
        return
    text = diff.after.get("text") if type(diff.after) is Object else diff.after
    stub: Stub | None = stub_in(text, uuid, diff.path) if type(text) is str else None
    if stub is None or fits(line, stub):
        return
    earlier = type(diff.before) is str and stub_in(diff.before, uuid, diff.path) == stub
    if not (earlier and vaulted is not None and vaulted(stub.uuid, stub.path, stub.bytes, stub.sha12)):
        seen.fault("I14", f"line {number}: the marker at {stub.path} names other bytes than stood there")


def _snapshot(
    seen: Seen, number: int, line: bytes, fact: Fact, waiting: dict[str, list[tuple[int, frozenset[str]]]]
) -> None:
    """Keeps what of dropped snapshots no later kept one has repeated yet (G3)."""
    if fact.message is None:
        if seen.pairs[number] is None:
            seen.fault("I3", f"line {number} went and is a snapshot of no prompt")
        return
    went = seen.pairs[number] is None
    if not went and fact.message not in waiting:
        return
    entries = frozenset(_entries(strict_loads(line)))
    if went:
        waiting.setdefault(fact.message, []).append((number, entries))
        return
    left = [(one, had) for one, had in waiting[fact.message] if not had <= entries]
    if left:
        waiting[fact.message] = left
    else:
        del waiting[fact.message]


def _entries(obj: dict[str, Any]) -> Iterator[str]:
    body = obj.get("snapshot")
    if type(body) is not dict:
        yield "other"
        return
    yield f"messageId={body.get('messageId')!r}"
    files = body.get("trackedFileBackups")
    for name, entry in files.items() if type(files) is dict else ():
        yield digest((name, entry)).hex()
