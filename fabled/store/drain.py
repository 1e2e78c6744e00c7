"""What still arrives at the old file after a replacement is carried over to the new one, once, and at the end.

A program that opened the transcript before the rename writes to the old file after it. That file keeps a hidden name
until nobody writes to it any more, so that a kill loses nothing; every carrying-over is journaled before it is made, so
that a kill doubles nothing. Waiting between the visits is left to the caller; `recover` begins here too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from ..errors import StorageFault
from . import hold as h
from .ledger import Entry, Ledger

CARRY = 8 << 20
"""Bytes carried over in one write; a longer line goes alone."""


class Drain:
    """One replaced transcript until its old file is silent. Owns both descriptors and with them the lock."""

    def __init__(
        self,
        ledger: Ledger,
        row: Entry,
        old: int,
        new: int,
        drain_seconds: float,
        step: Callable[[str], None],
        drained: int | None = None,
    ) -> None:
        """`row` is journaled as linked or replaced, and the new file is at its path. `drained`: how far the old file
        was copied, where that is known; else it is found out. Raises OSError."""
        assert row.hidden is not None and row.copied is not None and row.new_length is not None
        self.entry, self.path, self.hidden = row.id, row.path, row.hidden
        self.trouble: str | None = None
        """why the last visit could not do its work; the next tries again"""
        self.note: str | None = None
        """what is to be told once it is over: why the hidden file was kept, and where"""
        self.over = False
        self._ledger, self._step, self._seconds = ledger, step, drain_seconds
        self._old, self._new = old, new
        self._identity = (row.dev, row.new_ino)
        self._based = row.base_length
        """what lies before is in the Vault"""
        self._owed: tuple[int, int, int] | None = None
        """(from, to, at): a carrying-over that was journaled and may be made in part"""
        self._fresh: dict[str, Any] = {} if row.state == "replaced" else {"state": "replaced"}
        """what the journal does not say yet"""
        self._quiet_since: float | None = None
        self._resumed = drained is None
        self._distrust = False
        """the disk failed to make the replacement durable once; asking again proves nothing"""
        self._writer: int | None = None
        if row.drain_from is not None and row.drain_to is not None and row.drain_at is not None:
            self._owed = (row.drain_from, row.drain_to, row.drain_at)
            drained = row.drain_to
        elif drained is None:
            # What was copied between the journal and the rename stands right after the journaled length.
            ends = os.fstat(old).st_size, os.fstat(new).st_size
            same = h.common(old, row.copied, ends[0], new, row.new_length, ends[1])
            drained = h.line_end(old, row.copied, row.copied + same)
        self._drained = drained
        """how far the old file has been carried over"""
        if self._owed is None and drained > row.copied:
            self._fresh |= {"drain_from": row.copied, "drain_to": drained, "drain_at": row.new_length}

    # Visits

    def visit(self, now: float) -> bool:
        """Carries over what has arrived; True once the old file is silent and gone. `now` in seconds of any steady
        clock. Never waits and never raises for the disk: `trouble` says what went wrong."""
        if self.over:
            return True
        try:
            self.trouble = None
            return self._visit(now)
        except OSError as fault:
            self.trouble = f"{self.path} is not drained yet: {fault.strerror or fault}"
        except StorageFault as fault:
            self.trouble = fault.message
        return False

    def finish(self, patience: float = 60.0) -> bool:
        """Visits until it is over, for a process that ends then; False when it is left to the next start."""
        end = time.monotonic() + patience
        while not self.visit(time.monotonic()):
            if time.monotonic() > end:
                self.leave()
                return False
            time.sleep(0.02)
        return True

    def leave(self) -> None:
        """Lets go of the files; journal and hidden name stay, and `recover` goes on from them."""
        if not self.over:
            self.over = True
            os.close(self._old)
            os.close(self._new)

    def _visit(self, now: float) -> bool:
        if self._quiet_since is None:
            age = time.time() - os.fstat(self._old).st_ctime  # a hidden name and every write count
            self._quiet_since = now - max(0.0, age) if self._resumed else now
        ours = h.at(self.path) == self._identity
        if ours and self._carry():
            self._quiet_since = now
            return False
        if self._fresh:
            self._confirm()
        if now - self._quiet_since < self._seconds or self._written():
            return False
        if ours:
            if self._carry():
                self._quiet_since = now
                return False
            self._carry_rest()
        self._end(ours)
        return True

    def confirm(self) -> None:
        """The first steps after the rename: what came until now, then the names made durable. Raises nothing for the
        disk: the replacement is a fact."""
        with contextlib.suppress(OSError, StorageFault):  # the next visit tries again, and says so
            self._carry()
        try:
            self._step("K10")
            os.fsync(self._new)
            h.sync_folder(os.path.dirname(self.path))
            self._confirm()
        except OSError as fault:
            self._distrust = True
            self.trouble = f"{self.path} is not drained yet: {fault.strerror or fault}"
        except StorageFault as fault:
            self.trouble = fault.message

    def _confirm(self) -> None:
        if self._fresh:
            self._ledger.set(self.entry, **self._fresh)
            self._fresh = {}

    # Carrying over

    def _carry(self) -> bool:
        """Appends the whole lines that arrived; whether there were any, or are to be."""
        if self._owed is not None:
            self._settle(*self._owed)
        some = False
        while True:
            if self._half_written():
                return True
            size = os.fstat(self._old).st_size
            end = h.line_end(self._old, self._drained, size)
            if end - self._drained > CARRY:
                end = h.line_end(self._old, self._drained, self._drained + CARRY)
                if end == self._drained:  # one line longer than that
                    end = self._drained + len(next(h.lines(self._old, self._drained, size)))
            if end <= self._drained:
                return some
            self._append(end)
            some = True

    def _half_written(self) -> bool:
        """Whether a program is in the middle of a line of the new file: that line is not to be cut in two."""
        status = os.fstat(self._new)
        if os.fstat(self._old).st_size <= self._drained or status.st_size == 0:
            return False
        if h.read(self._new, status.st_size - 1, 1) == b"\n":
            return False
        return 0 <= time.time() - status.st_mtime < h.TORN_SECONDS

    def _carry_rest(self) -> None:
        """Appends an unfinished last line that nobody finishes any more, closed with an LF."""
        size = os.fstat(self._old).st_size
        if size > self._drained:
            self._append(size)

    def _append(self, end: int) -> None:
        """Carries over the old file's bytes up to `end`: journaled, then written in one piece."""
        size = os.fstat(self._new).st_size
        owed = (self._drained, end, size)
        self._step("K11")
        values = {"drain_from": owed[0], "drain_to": owed[1], "drain_at": owed[2]}
        self._ledger.set(self.entry, **(self._fresh | values))
        self._fresh = {}
        self._owed = owed
        self._write(self._glue(owed[0], size) + self._payload(*owed[:2]))
        self._owed = None
        self._drained = end

    def _payload(self, start: int, end: int) -> bytes:
        data = h.read(self._old, start, end - start)
        return data if data.endswith(b"\n") else data + b"\n"

    def _glue(self, start: int, size: int) -> bytes:
        """What must stand between the new file's end and the old file's bytes from `start`: an LF where the new file
        ends in a torn line, unless that is the very line which these bytes go on with."""
        if size == 0 or h.read(self._new, size - 1, 1) == b"\n":
            return b""
        begin = h.line_end(self._old, 0, start)
        torn = h.read(self._old, begin, start - begin)
        before = h.read(self._new, max(0, size - len(torn) - 1), min(size, len(torn) + 1))
        return b"" if torn and before in (torn, b"\n" + torn) else b"\n"

    def _write(self, data: bytes) -> None:
        """One append; the modification time becomes that of the newest content, not of our writing it."""
        before = os.fstat(self._new)
        written = os.write(self._new, data)
        after = os.fstat(self._new)
        if after.st_size == before.st_size + written:  # nobody else has appended meanwhile
            newest = max(before.st_mtime_ns, os.fstat(self._old).st_mtime_ns)
            os.utime(self._new, ns=(after.st_atime_ns, newest))
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _settle(self, start: int, end: int, at: int) -> None:
        """Completes a carrying-over that was journaled and perhaps made, wholly or in part.

        One append is contiguous, so the longest piece of it found at the start of a line (or where it was to go) is all
        of it that was written.
        """
        payload = self._payload(start, end)
        size = os.fstat(self._new).st_size
        first = payload[: payload.find(b"\n") + 1]
        done, at_end, place = 0, False, at
        for line in h.lines(self._new, at, size):
            if line == first or (place + len(line) == size and first.startswith(line)):
                found = h.agree(h.read(self._new, place, len(payload)), payload)
                ends = place + found == size
                whole = found if ends else payload.rfind(b"\n", 0, found) + 1
                if whole > done:
                    done, at_end = whole, ends
            place += len(line)
        if done < len(payload):
            self._step("K11")
            glue = b"" if at_end else self._glue(start + done, size)
            self._write(glue + payload[done:])
        self._owed = None
        self._drained = end

    # The end

    def _written(self) -> bool:
        """Whether a process that we can see has the old file open for writing."""
        held = h.identity(os.fstat(self._old))
        self._writer = writer(held, self._writer)
        return self._writer is not None

    def _end(self, ours: bool) -> None:
        """Takes the hidden name away, unless bytes would go with it that nothing else has."""
        self._step("K11")
        if ours:
            try:
                os.fsync(self._new)
            except OSError:
                self._distrust = True
                raise
        if ours and self._distrust:
            self.note = f"the disk failed while {self.path} was replaced; its old state is kept as {self.hidden}"
        elif ours:
            drop(self.hidden)
        else:
            self.note = put_away(self.path, self.hidden, self._old, self._based)
        self._ledger.set(self.entry, **(self._fresh | {"state": "done"}))
        self.leave()


def drop(path: str) -> None:
    """Takes a name away, durably; it may be gone already. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    h.sync_folder(os.path.dirname(path))


def put_away(path: str, hidden: str, old: int, start: int) -> str | None:
    """Takes the hidden name of a transcript's earlier state away, unless the file now at the path lacks what stands in
    it from `start` on: then it says so in words. Raises OSError."""
    kept = lacking(path, old, start)
    if kept == 0:
        drop(hidden)
        return None
    gone = "is gone" if h.at(path) is None else "was rewritten by another program"
    return f"{path} {gone}; {kept} bytes written to its earlier state are kept in {hidden}"


def lacking(path: str, old: int, start: int) -> int:
    """How many bytes stand in lines of an old file, from `start` on, that the file now at a path has not.

    Raises OSError.
    """
    wanted: Counter[bytes] = Counter()
    lengths: dict[bytes, int] = {}
    for line in h.lines(old, start, os.fstat(old).st_size):
        if text := line.rstrip(b"\r\n"):
            wanted[key := sha256(text).digest()] += 1
            lengths[key] = len(text)
    if not wanted:
        return 0
    try:
        now = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        now = -1
    if now >= 0:
        try:
            status = os.fstat(now)
            if stat.S_ISREG(status.st_mode):
                for line in h.lines(now, 0, status.st_size):
                    if wanted.get(key := sha256(line.rstrip(b"\r\n")).digest(), 0) > 0:
                        wanted[key] -= 1
        finally:
            os.close(now)
    return sum(lengths[key] * count for key, count in wanted.items())


def writer(held: tuple[int, int], last: int | None = None) -> int | None:
    """A process that has a file open for writing, None where there is none or it cannot be seen. `last`: looked at
    first, so that waiting for one process costs little."""
    try:
        found = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    for pid in [last, *found] if last in found else found:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # ended, or another user's
        for name in names:
            try:
                if h.identity(os.stat(f"/proc/{pid}/fd/{name}")) == held and _for_writing(f"/proc/{pid}/fdinfo/{name}"):
                    return pid
            except OSError:
                continue
    return None


def _for_writing(path: str) -> bool:
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return True
