"""Brings what a kill left of a replacement to an end: the live file is whole old or whole new, and has what arrived.

A file that vanished meanwhile is not brought back; what only a hidden file still holds stays there, and is told.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import Refused, StorageFault
from . import hold as h
from .drain import Drain, drop, put_away
from .ledger import Entry, Ledger


@dataclass(frozen=True, slots=True)
class Recovered:
    """One thing that was found and what became of it."""

    entry: int | None
    """of the journal; None where no row speaks of it"""
    path: str
    """the transcript"""
    what: str
    """in words"""
    drain: Drain | None = None
    """still to be visited like any other"""


def recover(
    ledger: Ledger,
    step: Callable[[str], None] = lambda name: None,
    *,
    folders: Iterable[str] = (),
    drain_seconds: float = 2.0,
) -> list[Recovered]:
    """For the start of a process that owns the Ledger: every row that was begun and not ended, then the leftovers in
    `folders` (and beside those rows). Never raises for one file; what the disk refuses is told and stays unfinished."""
    found: list[Recovered] = []
    beside = {os.path.normpath(folder) for folder in folders}
    told: set[str | None] = set()
    for row in ledger.unfinished():
        told |= {row.temp, row.hidden}
        beside.add(os.path.dirname(row.path))
        try:
            found.append(_row(ledger, row, drain_seconds, step))
        except (OSError, StorageFault, Refused) as fault:
            found.append(Recovered(row.id, row.path, f"could not be finished yet: {fault}"))
    left = leftover_files(sorted(beside))
    rows = {row.hidden: row for row in ledger.journal()} if left else {}
    for path in left:
        if path not in told:
            with contextlib.suppress(OSError, Refused, StorageFault):
                found += _leftover(path, rows.get(path))
    return found


def leftover_files(folders: Iterable[str]) -> list[str]:
    """Every file in these folders (not below them) with a name of ours, in use or not."""
    found = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found += [entry.path for entry in entries if h.ours(entry.name) and entry.is_file(follow_symlinks=False)]
    return sorted(found)


def _row(ledger: Ledger, row: Entry, drain_seconds: float, step: Callable[[str], None]) -> Recovered:
    if row.state == "begun" or row.temp is None:
        ledger.set(row.id, state="given_up")  # what it may have written has no row's name: a leftover
        return Recovered(row.id, row.path, f"a {row.what} was cut off before it changed anything")
    now = h.at(row.path)
    if row.hidden is None:
        return _created(ledger, row, now)
    new = _new_file(row) if now == (row.dev, row.new_ino) else -1
    try:
        old = _open(row.hidden, os.O_RDONLY)
        if old >= 0 and h.identity(os.fstat(old)) != (row.dev, row.old_ino):
            os.close(old)  # not what we named so
            old = -1
        if new >= 0 and old >= 0:
            if not h.lock(new) or not h.lock(old):
                os.close(old)
                return Recovered(row.id, row.path, "another process is still at it")
            drain = Drain(ledger, row, old, new, drain_seconds, step)
            new = -1
            if drain.visit(time.monotonic()):
                return Recovered(row.id, row.path, drain.note or f"a {row.what} was cut off after the rename; finished")
            return Recovered(row.id, row.path, drain.trouble or f"a {row.what} goes on being drained", drain)
        if new >= 0:
            ledger.set(row.id, state="done")
            return Recovered(row.id, row.path, f"a {row.what} was cut off when all was done but the journal")
    finally:
        if new >= 0:
            os.close(new)
    return _not_in_place(ledger, row, now, old)


def _not_in_place(ledger: Ledger, row: Entry, now: tuple[int, int] | None, old: int) -> Recovered:
    """The path holds the old file, another program's, or nothing; `old` is the hidden one if there is one."""
    assert row.hidden is not None and row.temp is not None
    note = None
    try:
        if old >= 0:
            if now == (row.dev, row.old_ino):
                drop(row.hidden)
            else:
                note = put_away(row.path, row.hidden, old, row.base_length)
    finally:
        if old >= 0:
            os.close(old)
    drop(row.temp)
    replaced = row.state == "replaced"
    ledger.set(row.id, state="done" if replaced else "given_up")
    if note is None:
        place = "is gone" if now is None else "was rewritten by another program"
        note = (
            f"a {row.what} was cut off before the rename; nothing was changed"
            if now == (row.dev, row.old_ino)
            else f"{row.path} {place} after a {row.what} was cut off; nothing of it is missing elsewhere"
        )
    return Recovered(row.id, row.path, note)


def _created(ledger: Ledger, row: Entry, now: tuple[int, int] | None) -> Recovered:
    """A file that was to be made where none was."""
    assert row.temp is not None
    there = now is not None and now == (row.dev, row.new_ino)
    drop(row.temp)
    ledger.set(row.id, state="done" if there else "given_up")
    return Recovered(row.id, row.path, f"a {row.what} was cut off {'at its end' if there else 'before it wrote'}")


def _new_file(row: Entry) -> int:
    """The new file of a row if that is what lies at its path, else -1: a number of an inode may be used again, and
    another program may have written it anew."""
    fd = _open(row.path, os.O_RDWR | os.O_APPEND)
    if fd < 0:
        return -1
    try:
        status = os.fstat(fd)
        length = row.new_length or 0
        known = h.identity(status) == (row.dev, row.new_ino) and status.st_size >= length
        if known and h.digest(fd, length) == row.new_sha:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1


def _open(path: str, flags: int) -> int:
    """A descriptor, -1 where there is no file. Raises OSError."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return -1


def _leftover(path: str, row: Entry | None) -> list[Recovered]:
    """A file of ours that no unfinished row speaks of: one that is in use is locked; a new one is worth nothing; an
    old one goes if the transcript holds all of it that no generation does (`row` says where that ends)."""
    folder, name = os.path.split(path)
    named = h.ours(name)
    fd = _open(path, os.O_RDONLY)
    if fd < 0 or named is None:
        return []
    try:
        live = os.path.join(folder, f"{named[0]}.jsonl")
        mine = h.identity(os.fstat(fd))
        if not h.lock(fd):
            return []
        if named[1] == "new":
            drop(path)
            return [Recovered(None, live, "a new file that never took its place was removed")]
        if h.at(live) == mine:
            drop(path)
            return [Recovered(None, live, "a second name of the transcript was removed")]
        note = put_away(live, path, fd, row.base_length if row else 0)
        return [
            Recovered(
                row.id if row else None, live, note or "an old state that the transcript holds as a whole was removed"
            )
        ]
    finally:
        os.close(fd)
