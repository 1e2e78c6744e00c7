"""Finds records by a regular expression: reads texts from the Vault, the latest threads first, within a time.

Which records may be looked at is `store.queries`' answer; showing what was found is left to `search`.

The engine is `regex`, not `re`: it gives up in the middle of a match when its time is over, and lets other OS threads
run meanwhile. So a pattern that would never end costs a tenth of a second for each record it does that on, and the
search as a whole ends in time; what was left is told, and where to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import regex

from ..errors import BadRequest, Busy, FabledError
from ..store.queries import Queries
from ..store.reading import Reading
from ..store.rows import Hit, Where
from ..transcript import render
from ..transcript import text as t

RECORD_SECONDS = 0.1
LONGEST_PATTERN = 2_000
AT_ONCE = 2
"""Searches of this kind that one process runs at a time: they read whole texts, and others want an answer too."""
_THREADS_A_STEP = 40
_MARKS = 50
_turn = threading.BoundedSemaphore(AT_ONCE)


@dataclass(slots=True)
class Found:
    """What one search found, and how far it came."""

    hits: list[Hit] = field(default_factory=list)
    threads: int = 0
    """looked at, those before the start included"""
    of: int = 0
    records: int = 0
    timed_out: int = 0
    """records that the pattern took too long on"""

    @property
    def complete(self) -> bool:
        return self.threads >= self.of


class Pattern:
    """A regular expression as it was typed. Raises BadRequest where it is none."""

    def __init__(self, text: str) -> None:
        if not text:
            raise BadRequest("an empty regular expression matches everything", "give one, or leave --regex out")
        if len(text) > LONGEST_PATTERN:
            raise BadRequest(f"a regular expression has at most {LONGEST_PATTERN:,} characters")
        try:
            self._pattern = regex.compile(text)
        except (regex.error, RecursionError, OverflowError, MemoryError) as fault:
            raise BadRequest(f"this is no regular expression: {fault}", "without --regex the text is literal") from None

    def within(self, text: str) -> bool:
        """Whether it matches somewhere in a text; raises TimeoutError."""
        return self._pattern.search(text, timeout=RECORD_SECONDS, concurrent=True) is not None

    def marks(self, text: str) -> list[tuple[int, int]]:
        """Where it matches in a text, the first places; none where that takes too long."""
        found: list[tuple[int, int]] = []
        try:
            for match in self._pattern.finditer(text, timeout=RECORD_SECONDS, concurrent=True):
                if match.end() > match.start():
                    found.append((match.start(), match.end()))
                if len(found) >= _MARKS:
                    break
        except TimeoutError:
            pass
        return found


def find(
    queries: Queries, reading: Reading, pattern: Pattern, where: Where, wanted: int, after: int, seconds: float
) -> Found:
    """The threads that hold a match, the latest first, from the one numbered `after` on.

    Ends when `wanted` are found, all are looked at, or the time is over. Raises Busy where too many run already.
    """
    if not _turn.acquire(blocking=False):
        raise Busy("other searches by regular expression are running", "try again in a moment")
    try:
        return _find(queries, reading, pattern, where, wanted, after, time.monotonic() + seconds)
    finally:
        _turn.release()


def _find(
    queries: Queries, reading: Reading, pattern: Pattern, where: Where, wanted: int, after: int, deadline: float
) -> Found:
    found = Found()
    if where.nothing:
        return found
    threads = [*queries.threads_by_time(where), None]  # None: the records that belong to no thread
    found.of = len(threads)
    found.threads = min(after, found.of)
    for at in range(after, len(threads), _THREADS_A_STEP):
        step = threads[at : at + _THREADS_A_STEP]
        rows: dict[int | None, list[tuple[Any, ...]]] = {}
        for row in queries.records_in([thread for thread in step if thread is not None], None in step, where):
            rows.setdefault(row[1], []).append(row)
        for thread in step:
            for hit in _of_thread(queries, reading, pattern, rows.get(thread, []), found, deadline):
                found.hits.append(hit)
            found.threads += 1
            if len(found.hits) >= wanted or time.monotonic() >= deadline:
                return found
    return found


def _of_thread(
    queries: Queries,
    reading: Reading,
    pattern: Pattern,
    rows: list[tuple[Any, ...]],
    found: Found,
    deadline: float,
) -> Iterator[Hit]:
    """The first record with a match of a thread, and of each subagent where these count apart."""
    sides: set[tuple[int, int]] = set()
    copies = queries.copies_of(row[0] for row in rows)
    for record, thread, side, ts in rows:
        key = (thread or -record, side)
        if key in sides or time.monotonic() >= deadline:
            continue
        found.records += 1
        try:
            if pattern.within(render.turn(reading.object(copies[record]), t.OTHER).text):
                sides.add(key)
                yield Hit(record, thread or 0, side, 0.0, ts)
        except TimeoutError:
            found.timed_out += 1
        except FabledError:
            continue  # no copy of it reads now
