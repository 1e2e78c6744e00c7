"""Derives the terms of the threads that lack them, when nothing else waits.

When that is, is left to the daemon; what terms are, to `transcript.terms`.

A pass over files only notes which threads it touched: reading them again would cost half as much as a first index, and
a thread that is being written would be read at every turn. A thread whose records are those its terms were taken from
is done without being read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..store.map import Map
from ..store.terms import Source, ThreadTerms
from ..store.vault import Source as Opened
from ..store.vault import Vault
from ..transcript.record import digest, segments, strict_loads
from ..transcript.terms import Known, Tally, Term

_SLICE_SECONDS = 0.3
"""Threads are stored together that were read in so much time."""
_OPEN_FILES = 16


class Changed(Exception):
    """A record is not where the Map says, or its file cannot be read: after its next scan."""


def derive(
    map_: Map, vault: Vault, stop: Callable[[], bool] = lambda: False, before_ts: int | None = None
) -> tuple[int, int]:
    """Derives what is due: (threads done, threads left). `stop` is asked between threads.

    `before_ts`: only threads whose last record is older than that.
    """
    kept = ThreadTerms(map_)
    due = kept.due(before_ts)
    opened: dict[str, Opened] = {}
    done: list[tuple[int, int | None, Sequence[Term]]] = []
    count = 0
    known: Known = {}
    begun = time.monotonic()
    try:
        for thread in due:
            if stop():
                break
            mark, sources = kept.sources(thread)
            try:
                terms = [] if mark is None else _terms(vault, opened, sources, known)
            except Changed:
                continue
            done.append((thread, mark, terms))
            if time.monotonic() - begun > _SLICE_SECONDS:
                kept.store(done)
                count += len(done)
                done, begun = [], time.monotonic()
        if done:
            kept.store(done)
            count += len(done)
    finally:
        for source in opened.values():
            source.close()
    return count, len(due) - count


def due(map_: Map) -> int:
    """How many threads lack their terms."""
    return len(ThreadTerms(map_).due())


def _terms(vault: Vault, opened: dict[str, Opened], sources: Sequence[Source], known: Known) -> list[Term]:
    tally = Tally(known)
    for at in sources:
        tally.add(_object(_data(vault, opened, at)), at.kind)
    return tally.terms()


def _data(vault: Vault, opened: dict[str, Opened], at: Source) -> bytes:
    try:
        source = opened.get(at.path)
        if source is None:
            source = vault.open(at.path)
            if len(opened) >= _OPEN_FILES:
                opened.pop(next(iter(opened))).close()
            opened[at.path] = source
        data = source.read(at.offset, at.length)
    except (OSError, EOFError):
        raise Changed from None
    if len(data) != at.length or digest(data) != at.digest:
        raise Changed
    return data


def _object(data: bytes) -> object:
    try:
        return strict_loads(data)
    except ValueError:
        return next((obj for _, _, _, obj in segments(data, True) if obj is not None), None)
