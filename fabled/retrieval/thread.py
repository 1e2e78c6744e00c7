"""Renders one thread: its turns verbatim and in order, labelled, within a token budget.

What fits is decided by `transcript.render.plan` from sizes the Map knows; only turns that are shown are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadRequest, NotFound, StaleIndexError, Unreadable
from ..store.reading import Reading
from ..store.rows import Copy, Thread, TurnRow
from ..transcript import render
from ..transcript.chain import Link, abandoned
from ..transcript.text import PROMPT, estimate
from .citations import citations
from .common import (
    Params,
    Reader,
    block_id,
    find_record,
    find_thread,
    is_side,
    iso,
    number_of,
    text_of,
    thread_id,
)
from .search import resume
from .titles import title_of

DEFAULT_BUDGET = 8_000
LARGEST_BUDGET = 100_000_000
_STEPS_BACK = 1_000
"""Parents looked at to find what went before a thread."""
_UNREADABLE = "[not readable now: its file changed or went away since it was indexed]"


def thread(reader: Reader, params: Params) -> dict[str, Any]:
    """Answers one thread request. Raises StaleIndexError or Unreadable where not one turn of it reads."""
    given = text_of(params, "id")
    if given is None:
        raise BadRequest("thread needs the id of a thread", "fabled search prints ids")
    budget = number_of(params, "budget", DEFAULT_BUDGET, 0, LARGEST_BUDGET)
    with reader.queries.snapshot():
        found = find_thread(reader, given)
        rows = _placed(reader.queries.turns(found))
        labels = _labels(reader, found, rows)
        anchor = text_of(params, "around")
        around = find_record(reader, anchor)[0].id if anchor is not None else None
        kept = _kept(rows, labels, params, around)
        if around is not None and all(row.id != around for row in kept):
            raise NotFound(f"the record {anchor} is no turn of thread {given}", "fabled search prints both")
        before = _before(reader, found, rows)
        started = reader.queries.started_by(found)
        cited = citations(reader, found)
        called = title_of(reader, found)
    position = next((index for index, row in enumerate(kept) if row.id == around), None)
    steps = render.plan([(row.kind, row.tokens) for row in kept], budget, position)
    writer = _Writer(found.session_id, labels, bool(params.get("raw")), budget)
    writer.copies = reader.queries.copies_of(kept[step.first].id for step in steps if step.tokens is not None)
    with Reading(reader.vault) as reading:
        for step in steps:
            writer.write(reading, kept, step)
        if writer.faults and not writer.read:
            raise writer.faults[0]
        stale = sorted(reading.stale)
    shown = {row.id for row in kept}
    aside = [labels[row.id] for row in rows if row.id not in shown]
    own = [row for row in rows if not is_side(row.flags, row.agent)] or rows
    return {
        "thread": thread_id(found),
        "prompt_id": found.prompt,
        "session_id": found.session_id,
        "project": found.project,
        "title": called,
        "first_ts": iso(found.first_ts),
        "last_ts": iso(found.last_ts),
        "turns": writer.turns,
        "est_tokens": writer.tokens,
        "total_turns": len(own),
        "total_tokens": sum(row.tokens for row in own),
        "omitted": writer.omitted,
        "branch_turns": aside.count("branch"),
        "subagent_turns": aside.count("sidechain"),
        "previous": _name(reader, before),
        "started_by": _name(reader, started),
        **cited,
        "resume": resume(found, reader.queries.live([found.session])),
        **({"stale": stale} if stale else {}),
    }


# Order and labels


def _placed(rows: Sequence[TurnRow]) -> list[TurnRow]:
    """The turns, each subagent's file put as a whole where it was begun, by the clock: files have no common order."""
    main = [row for row in rows if row.agent is None]
    blocks: dict[int, list[TurnRow]] = {}
    for row in rows:
        if row.agent is not None:
            blocks.setdefault(row.agent, []).append(row)
    if not blocks:
        return main
    after: dict[int, list[TurnRow]] = {}
    for block in sorted(blocks.values(), key=lambda turns: _begun(turns) or 0):
        begun = _begun(block)
        place = len(main)
        if begun is not None:
            late = [index for index, row in enumerate(main) if row.ts is not None and row.ts <= begun]
            place = late[-1] + 1 if late else 0
        after.setdefault(place, []).extend(block)
    placed: list[TurnRow] = []
    for index in range(len(main) + 1):
        placed += after.get(index, [])
        placed += main[index : index + 1]
    return placed


def _begun(rows: Sequence[TurnRow]) -> int | None:
    return min((row.ts for row in rows if row.ts is not None), default=None)


def _labels(reader: Reader, found: Thread, rows: Sequence[TurnRow]) -> dict[int, str]:
    """record → main, branch (the session has left it), sidechain (a subagent's), orphan (no thread is known)."""
    left: set[int] = set()
    if found.prompt is not None:
        left = abandoned([Link(*link) for link in reader.queries.chain(found.session)])
    labels = {}
    for row in rows:
        if is_side(row.flags, row.agent):
            labels[row.id] = "sidechain"
        elif found.prompt is None:
            labels[row.id] = "orphan"
        else:
            labels[row.id] = "branch" if row.id in left else "main"
    return labels


def _kept(rows: Sequence[TurnRow], labels: dict[int, str], params: Params, around: int | None) -> list[TurnRow]:
    """The turns asked for. A thread that is nothing but a branch, or a subagent's, is shown as what it is."""
    wanted = {"main", "orphan"}
    if params.get("branches"):
        wanted.add("branch")
    if params.get("subagents"):
        wanted.add("sidechain")
    if around is not None and around in labels:
        wanted.add(labels[around])
    present = set(labels.values())
    for label in ("branch", "sidechain"):
        if not wanted & present:
            wanted.add(label)
    return [row for row in rows if labels[row.id] in wanted]


# What went before


def _before(reader: Reader, found: Thread, rows: Sequence[TurnRow]) -> int | None:
    """The thread that went before: that of the parent of the first turn, else the one before it in the session."""
    if found.prompt is None:
        return None
    first = next((row for row in rows if row.kind == PROMPT and not is_side(row.flags, row.agent)), None)
    first = first or next((row for row in rows if not is_side(row.flags, row.agent)), None)
    parent = first.parent if first is not None else None
    seen: set[int] = set()
    while parent is not None and len(seen) < _STEPS_BACK:
        record = reader.queries.at_uuid(parent, found.session)
        if record is None or record.id in seen:
            break
        seen.add(record.id)
        if record.thread is not None and record.thread != found.id:
            above = reader.queries.thread(record.thread)
            if above is not None and above.prompt is not None:
                return above.id
        parent = record.parent
    return reader.queries.thread_before(found)


def _name(reader: Reader, number: int | None) -> str | None:
    """A thread's id, of a fork's copy the original's."""
    found = reader.queries.thread(number) if number is not None else None
    if found is not None and found.canonical is not None:
        found = reader.queries.thread(found.canonical) or found
    return thread_id(found) if found is not None else None


# Turns


@dataclass(slots=True)
class _Writer:
    """Gathers the turns as they are shown, and keeps them within the budget whatever the Map believed of their sizes.

    A turn a little longer than the Map said is not cut for it, as long as all those together stay within a quarter
    of the budget.
    """

    session_id: str
    labels: dict[int, str]
    raw: bool
    budget: int
    copies: dict[int, list[Copy]] = field(default_factory=dict)
    turns: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0
    omitted: int = 0
    read: int = 0
    faults: list[StaleIndexError | Unreadable] = field(default_factory=list)
    used: int = 0
    """tokens by which turns were longer than the Map said"""

    def write(self, reading: Reading, rows: Sequence[TurnRow], step: render.Step) -> None:
        row = rows[step.first]
        block = block_id(row.uuid, row.hidden, self.session_id)
        if step.tokens is None:
            self.omitted += step.count
            left = "1 turn left out" if step.count == 1 else f"{step.count} turns left out"
            self._add(row, block, f"{render.marker(block)} {left}", True, kind="omitted", count=step.count)
            return
        try:
            record, cut = reading.shown(self.copies[row.id])
            said = render.turn(record, row.kind).text
        except (StaleIndexError, Unreadable) as fault:
            self.faults.append(fault)
            self._add(row, block, _UNREADABLE, False, unreadable=True)
            return
        self.read += 1
        text, truncated = self._fitted(said, step.tokens, row.tokens, block)
        if cut and not truncated and render.has_left_out(said):
            text, truncated = f"{text}\n{render.marker(block)}".lstrip("\n"), True
        self._add(row, block, text, truncated)

    def _fitted(self, said: str, allowed: int, believed: int, block: str) -> tuple[str, bool]:
        size = estimate(said)
        if self.budget > 0 and size > allowed:
            over = size - allowed
            if allowed < believed or over > allowed // 2 + 64 or self.used + over > self.budget // 4:
                head = self._safe(said[: 4 * allowed + 8_192])
                return f"{render.cut(head, allowed - render.MARKER)}\n{render.marker(block)}".lstrip("\n"), True
            self.used += over
        return self._safe(said), False

    def _safe(self, text: str) -> str:
        return render.whole_characters(text) if self.raw else render.tame(text)

    def _add(self, row: TurnRow, block: str, text: str, truncated: bool, kind: str | None = None, **more: Any) -> None:
        self.tokens += estimate(text)
        self.turns.append(
            {
                "uuid": block.partition("@")[0],
                "role": render.role(row.kind, row.type),
                "kind": kind or render.KIND_NAMES.get(row.kind, "other"),
                "ts": iso(row.ts),
                "label": self.labels[row.id],
                "tool": render.flat(row.tool)[:80] if row.tool else None,
                "text": text,
                "truncated": truncated,
                "block": block,
                **more,
            }
        )
