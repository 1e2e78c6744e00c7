"""Tells which records of a session lie on abandoned branches: prompts that were taken back, and the work under them.

Which thread a record belongs to is left to `threads`; this only labels.

The chain is walked from the last record upwards by parent; where a parent is missing or unknown (a compaction, a
record never written) it goes on with the record before in file order. Parallel tool calls leave the walk too, since
only one of them is its parent; so a record is on a branch only if a prompt off the walk stands between it and the walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .text import PROMPT


@dataclass(frozen=True, slots=True)
class Link:
    """A main-chain record as the walk sees it."""

    id: int
    uuid: bytes
    parent: bytes | None
    kind: int


def walk(links: Sequence[Link]) -> set[int]:
    """The positions in `links` (file order) that the chain from the last record passes."""
    where = {link.uuid: position for position, link in enumerate(links)}
    passed: set[int] = set()
    at = len(links) - 1
    before = at
    while at >= 0:
        passed.add(at)
        parent = links[at].parent
        up = where.get(parent, -1) if parent is not None else -1
        if up < 0 or up in passed:
            before = min(before, at) - 1
            while before in passed:
                before -= 1
            up = before
        at = up
    return passed


def abandoned(links: Sequence[Link]) -> set[int]:
    """The ids of the records on branches that the session has left."""
    passed = walk(links)
    if len(passed) == len(links):
        return set()
    where = {link.uuid: position for position, link in enumerate(links)}
    # Position → is there a prompt between it and the walk; None where it does not lead there at all.
    verdict: dict[int, bool | None] = dict.fromkeys(passed, False)
    for position in range(len(links)):
        path: list[int] = []
        at: int | None = position
        while at is not None and at not in verdict:
            path.append(at)
            verdict[at] = None  # so that a cycle ends, without having met the walk
            parent = links[at].parent
            at = where.get(parent) if parent is not None else None
        found = verdict[at] if at is not None else None
        for step in reversed(path):
            if found is not None:
                found = found or links[step].kind == PROMPT
            verdict[step] = found
    return {links[position].id for position, found in verdict.items() if found}
