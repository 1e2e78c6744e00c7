"""What a session lost between two of its states, thread by thread: records gone, values cut, and why.

Which states there are is told by `states`; nothing is judged here, and everything named opens with `block` as long as
one of the two states holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import BadRequest, NotFound, Unreadable
from ..store.kept import reading
from ..store.ledger import Entry, Kept
from ..store.reading import Reading
from ..store.rows import Copy, Record, State
from ..transcript import losses, rules, sent
from ..transcript import record as r
from ..transcript import text as t
from .common import Params, Reader, block_id, number_of, thread_id
from .states import one_state, session_of
from .titles import titles

BLOCKS_SHOWN = 5
_OTHERS = "another program rewrote the transcript"
_FINISHED = ("linked", "replaced", "done")


def diff(reader: Reader, params: Params) -> dict[str, Any]:
    """What the later state lacks of the earlier one, and what it has beyond it."""
    limit = number_of(params, "limit", BLOCKS_SHOWN, 0, 10**9)
    session_id, behind = session_of(reader, params)
    with reading(reader.ledger) as ledger:
        kept, journal = ledger.kept(session_id), ledger.journal(session_id)
    a, b = _chosen(reader, session_id, behind, journal)
    told = _Told(reader, session_id, _pruned(a, b, kept, journal))
    with reader.queries.snapshot():
        before, after = reader.queries.copies_in(a.file), reader.queries.copies_in(b.file)
        changes = list(_changes(before, after))
        told.look_up(changes)
    with Reading(reader.vault) as files:
        for change in changes:
            told.take(change, a, b, files)
    size = {one.path: one.logical for one in kept}  # an unfinished last line included, which the Map has not read
    return {
        "session_id": session_id, "a": a.name, "b": b.name,
        "before_bytes": size.get(a.path, a.bytes), "after_bytes": size.get(b.path, b.bytes),
        "est_tokens_before": _sent(reader, a), "est_tokens_after": _sent(reader, b),
        **told.totals.value(), "threads": told.threads(limit),
    }  # fmt: skip


# Which states


def _chosen(reader: Reader, session_id: str, behind: str | None, journal: Sequence[Entry]) -> tuple[State, State]:
    """The two states that `vA..vB`, `vA` or nothing means."""
    states = reader.queries.states(session_id)
    if behind is not None:
        first, dots, second = behind.partition("..")
        if not first or (dots and not second):
            raise BadRequest(f"@{behind} names no two states; write @v1..v2, @v1..live or @v1")
        a, b = one_state(reader, session_id, first), one_state(reader, session_id, second or "live")
        if a.file == b.file:
            raise BadRequest(f"{a.name} and {b.name} are the same state", f"fabled generations {session_id[:8]}")
        return a, b
    if len(states) < 2:
        what = f"only {states[0].name}" if states else "nothing"
        raise NotFound(
            f"there is {what} of session {session_id}: no two states to compare", f"fabled capture {session_id[:8]}"
        )
    b = states[-1]
    if b.generation is None:
        # What the last prune cost; without one, what came of the state kept last.
        for entry in reversed(journal):
            if entry.what == "prune" and entry.state in _FINISHED:
                for state in states[:-1]:
                    if state.path == entry.generation:
                        return state, b
    return states[-2], b


def _pruned(a: State, b: State, kept: Sequence[Kept], journal: Sequence[Entry]) -> bool:
    """Whether a prune of ours lies between two states."""
    written = {one.path: float(one.at) for one in kept}
    begin, end = (written.get(state.path, state.mtime_ns / 1e9) for state in (a, b))
    return any(
        entry.what == "prune"
        and entry.state in _FINISHED
        and (entry.generation == a.path or (entry.at + 1 >= begin and (b.generation is None or entry.at <= end + 1)))
        for entry in journal
    )


def _sent(reader: Reader, state: State) -> int:
    """About how many tokens a resume of a state would send."""
    try:
        source = reader.vault.open(state.path)
    except OSError as fault:
        raise Unreadable(f"{state.path} cannot be read: {fault.strerror or fault}", "fabled check --deep") from None
    try:
        return sent.tokens(sent.view(_lines(source.read, state.read)))
    except OSError as fault:
        raise Unreadable(f"{state.path} cannot be read: {fault.strerror or fault}", "fabled check --deep") from None
    finally:
        source.close()


def _lines(read: r.Read, end: int) -> Iterator[bytes]:
    """The lines up to byte `end`, each with its line feed."""
    begun: list[bytes] = []
    at = 0
    while at < end and (chunk := read(at, min(r.CHUNK, end - at))):
        at += len(chunk)
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for piece in others:
            yield b"".join(begun) + b"\n"
            begun = [piece]
    if begun != [b""] and begun:
        yield b"".join(begun)


# What changed


@dataclass(frozen=True, slots=True)
class _Change:
    """One line that the two states do not share: (offset, length, digest) in either, None where it is missing."""

    record: int
    a: tuple[int, int, bytes] | None
    b: tuple[int, int, bytes] | None
    repeated: bool = False
    """another line of the record is still there"""


def _changes(
    before: dict[int, list[tuple[int, int, bytes]]], after: dict[int, list[tuple[int, int, bytes]]]
) -> Iterator[_Change]:
    """Lines equal by digest are paired off; what is left of a record is paired by length."""
    for record, held in before.items():
        there = after.get(record, [])
        if len(held) == len(there) == 1 and held[0][2] == there[0][2]:
            continue
        left, right = _unshared(held, there), _unshared(there, held)
        for a, b in zip(left, right, strict=False):
            yield _Change(record, a, b)
        for a in left[len(right) :]:
            yield _Change(record, a, None, repeated=bool(there))
        for b in right[len(left) :]:
            yield _Change(record, None, b)
    for record, there in after.items():
        if record not in before:
            for b in there:
                yield _Change(record, None, b)


def _unshared(
    mine: Sequence[tuple[int, int, bytes]], theirs: Sequence[tuple[int, int, bytes]]
) -> list[tuple[int, int, bytes]]:
    shared = Counter(copy[2] for copy in theirs)
    left = []
    for copy in sorted(mine, key=lambda copy: -copy[1]):
        if shared[copy[2]]:
            shared[copy[2]] -= 1
        else:
            left.append(copy)
    return left


# In words


@dataclass(slots=True)
class _Sums:
    """What a thread lost and gained."""

    title: str = ""
    thread: str | None = None
    last_ts: int | None = None
    removed: list[int] = field(default_factory=lambda: [0, 0, 0])
    reduced: list[int] = field(default_factory=lambda: [0, 0, 0])
    rewritten: list[int] = field(default_factory=lambda: [0, 0, 0])
    relinked: list[int] = field(default_factory=lambda: [0, 0, 0])
    added: list[int] = field(default_factory=lambda: [0, 0, 0])
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def value(self) -> dict[str, Any]:
        names = ("records", "bytes", "tokens")
        sums = {name: dict(zip(names, getattr(self, name), strict=True)) for name in ("removed", "reduced", "added")}
        for name in ("rewritten", "relinked"):
            if getattr(self, name)[0]:
                sums[name] = dict(zip(names, getattr(self, name), strict=True))
        return sums


Sum = Literal["removed", "reduced", "rewritten", "relinked", "added"]
"""`rewritten`: not shorter, but with other content; `relinked`: only the parent's name or the token count differs."""


class _Told:
    """Gathers the changes by thread."""

    def __init__(self, reader: Reader, session_id: str, pruned: bool) -> None:
        self._reader = reader
        self._session_id = session_id
        self._pruned = pruned
        self._records: dict[int, Record] = {}
        self._tokens: dict[int, int] = {}
        self._sums: dict[str | None, _Sums] = {}
        self._of_thread: dict[int | None, str | None] = {}
        self._collapsed = -1
        """where the last prompt, reply or result that went stood: before it, S3 took all"""
        self.totals = _Sums()

    def look_up(self, changes: Sequence[_Change]) -> None:
        queries = self._reader.queries
        wanted = {change.record for change in changes}
        self._records = queries.records(wanted)
        self._tokens = queries.tokens_of(wanted)
        threads = queries.threads({one.thread for one in self._records.values() if one.thread is not None})
        self._sums[None] = _Sums(title="records that belong to no thread")
        names = titles(self._reader, threads.values())
        for number, thread in threads.items():
            name = thread_id(thread)
            self._of_thread[number] = name
            self._sums.setdefault(name, _Sums(names[number], name, thread.last_ts))
        for change in changes:
            record = self._records.get(change.record)
            if change.a is not None and change.b is None and record is not None and record.kind in _SAID:
                self._collapsed = max(self._collapsed, change.a[0])

    def take(self, change: _Change, a: State, b: State, files: Reading) -> None:
        record = self._records.get(change.record)
        if record is None:
            return  # forgotten between two looks at the Map
        if change.a is None:
            assert change.b is not None
            self._count(record, "added", change.b[1], self._tokens.get(record.id, 0))
        elif change.b is None:
            tokens = 0 if change.repeated else self._tokens.get(record.id, 0)
            self._count(record, "removed", change.a[1], tokens)
            what, rule = self._gone(record, change, a, files)
            self._block(record, _id(record, change.a[2]), what, change.a[1], tokens, self._why(rule))
        else:
            self._cut(record, change.a, change.b, _data(files, a, change.a), _data(files, b, change.b))

    def _cut(
        self, record: Record, a: tuple[int, int, bytes], b: tuple[int, int, bytes], before: bytes, after: bytes
    ) -> None:
        """A record that both states hold, with other bytes."""
        tokens = 0
        id_ = _id(record, a[2])
        try:
            found = list(losses.removals(r.loads(before), r.loads(after)))
        except (ValueError, RecursionError):
            found = []
        blocks = []
        for path, old, new in found:
            size = losses.size(old) - losses.size(new)
            cost = losses.tokens(path, old) - losses.tokens(path, new)
            tokens += cost
            what, rule = losses.named(record.type, path, old, new)
            if what:
                name = ".".join(map(str, path))
                blocks.append((f"{id_}#{name}", what, max(size, 0), max(cost, 0), self._why(rule)))
        which: Sum = "reduced" if b[1] < a[1] else "rewritten"
        if found and not blocks:
            which = "relinked"
        self._count(record, which, a[1] - b[1], tokens)
        for block in blocks:
            self._block(record, *block)

    def _gone(self, record: Record, change: _Change, state: State, files: Reading) -> tuple[str, str]:
        """What a record that is gone was, and the rule that takes such away."""
        assert change.a is not None
        if change.repeated:
            return "repeated line", "G4"
        if record.type == "progress":
            return "progress record", "G1"
        if record.type == "file-history-snapshot":
            return "file snapshot", "G3"
        if record.type == "attachment":
            snapshot = b'"prompt_snapshot"' in _data(files, state, change.a)
            return "attachment", "G5" if snapshot else "S3"
        if record.kind == t.THINKING:
            return "thinking", "S3" if change.a[0] < self._collapsed else "A1"
        return _SAID.get(record.kind, f"{record.type} record"), "S3"

    def _why(self, rule: str) -> str:
        return rules.RULES.get(rule, "") if self._pruned else _OTHERS

    def _count(self, record: Record, which: Sum, size: int, tokens: int) -> None:
        for sums in (self.totals, self._sums[self._of_thread.get(record.thread)]):
            row = getattr(sums, which)
            row[0] += 1
            row[1] += size
            row[2] += tokens

    def _block(self, record: Record, id_: str, what: str, size: int, tokens: int, reason: str) -> None:
        self._sums[self._of_thread.get(record.thread)].blocks.append(
            {"id": id_, "what": what, "tool": record.tool, "bytes": size, "tokens": tokens, "reason": reason}
        )

    def threads(self, limit: int) -> list[dict[str, Any]]:
        """The threads with a change, those that lost most first; of each the largest blocks."""
        found = []
        for sums in self._sums.values():
            if not any(row[0] for row in (sums.removed, sums.reduced, sums.rewritten, sums.added)):
                continue
            blocks = sorted(sums.blocks, key=lambda block: -block["bytes"])
            found.append(
                {
                    "thread": sums.thread, "title": sums.title, "last_ts": sums.last_ts, **sums.value(),
                    "blocks": blocks[:limit] if limit else blocks, "blocks_total": len(blocks),
                }
            )  # fmt: skip
        found.sort(key=lambda one: one["last_ts"] or 0)
        return sorted(found, key=lambda one: -(one["removed"]["bytes"] + one["reduced"]["bytes"]))


def _data(files: Reading, state: State, copy: tuple[int, int, bytes]) -> bytes:
    offset, length, digest = copy
    return files.data([Copy(state.file, state.path, state.generation, state.rank, offset, length, 0, digest)])[1]


def _id(record: Record, digest: bytes) -> str:
    """What `block` takes for it."""
    if len(record.uuid) != 16:
        return r.content_id(digest)
    return block_id(record.uuid, record.hidden, record.session_id)


_SAID = {
    t.PROMPT: "prompt", t.REPLY: "reply", t.CALL: "tool call", t.RESULT: "tool result", t.SUMMARY: "summary",
}  # fmt: skip
