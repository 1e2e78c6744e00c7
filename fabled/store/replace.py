"""Puts a new file in the place of a live transcript while other programs may append to it: whole old or whole new at
any kill, and no byte of theirs lost or doubled.

The order: the new file is written and made durable beside the old one; what was appended meanwhile is copied after it;
the old file gets a hidden second name, and the journal says so; then one rename, with as little as possible between the
last look and it. What arrives at the old file after that is left to `drain`, what a kill leaves behind to `recover`,
whether the content is right to `proof`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Generic, TypeVar

from ..errors import Refused, StorageFault
from . import hold as h
from .drain import Drain, drop, put_away
from .hold import Held, hold
from .ledger import Ledger
from .recover import Recovered, leftover_files, recover

__all__ = ["Drain", "Held", "Recovered", "Temp", "create", "hold", "leftover_files", "recover", "swap", "write_temp"]

T = TypeVar("T")
ROUNDS = 5
"""How often the tail is copied and made durable again while the transcript goes on growing."""
SMALL_GROWTH = 64 << 10
"""Growth during one round that may be left to the last copy, right before the rename."""


def _nothing(name: str) -> None:
    pass


class Temp(Generic[T]):
    """The new file under its hidden name, before it takes the place. `value` is what its writer returned."""

    value: T

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path = path
        self.length = 0
        self.fd = os.open(path, flags, 0o600)
        self._hash = sha256()
        self._waiting: list[bytes] = []
        self._weight = 0

    @property
    def sha256(self) -> bytes:
        """Of what was written so far."""
        return self._hash.digest()

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._weight += len(data)
        if self._weight >= h.CHUNK:
            self.flush()

    def flush(self) -> None:
        """Raises OSError."""
        data = b"".join(self._waiting)
        self._waiting, self._weight = [], 0
        self._hash.update(data)
        self.length += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]

    def copy(self, source: int, start: int, end: int) -> None:
        """Appends a span of another open file. Raises OSError, Refused where the span is not there."""
        while start < end:
            data = h.read(source, start, min(h.CHUNK, end - start))
            if not data:
                raise Refused("the transcript became shorter; it was left alone", "try again", "changed")
            self.write(data)
            start += len(data)
        self.flush()

    def lines(self) -> Iterator[bytes]:
        """Its lines, each with its LF. May be called again, and several may run at once."""
        return h.lines(self.fd, 0, self.length)

    def discard(self) -> None:
        """Removes it, unless it has taken its place."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            os.close(self.fd)
            self.fd = -1


def write_temp(
    held: Held, write_into: Callable[[Callable[[bytes], None]], T], *, step: Callable[[str], None] = _nothing
) -> Temp[T]:
    """The new content, beside the transcript, with its mode, owner and extended attributes; not yet durable.

    Raises Refused (`owner`) or StorageFault, and what `write_into` raises; nothing is left behind then.
    """
    step("K5")
    try:
        temp: Temp[T] = Temp(h.name_beside(held.path, "new"))
    except OSError as fault:
        raise h.storage(held.path, "copied", fault) from None
    try:
        h.lock(temp.fd)
        _dress(temp.fd, held)
        temp.value = write_into(temp.write)
        temp.flush()
    except OSError as fault:
        temp.discard()
        raise h.storage(held.path, "copied", fault) from None
    except BaseException:
        temp.discard()
        raise
    return temp


def _dress(fd: int, held: Held) -> None:
    """Gives a new file the extended attributes, owner and mode of the held one. Raises Refused, OSError."""
    try:
        if hasattr(os, "listxattr"):
            wanted, there = _attributes(held.fd), _attributes(fd)
            for name, value in wanted.items():
                if there.get(name) != value:
                    os.setxattr(fd, name, value)
            for name in there.keys() - wanted.keys():
                os.removexattr(fd, name)
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (held.uid, held.gid):
            os.fchown(fd, held.uid, held.gid)
        if stat.S_IMODE(status.st_mode) != held.mode:
            os.fchmod(fd, held.mode)
        status = os.fstat(fd)
        same = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (held.uid, held.gid, held.mode)
    except PermissionError:
        same = False
    if not same:
        raise Refused(f"{held.path} was left alone: its owner or attributes cannot be given to a new file", "", "owner")


def _attributes(fd: int) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as fault:
        if fault.errno == errno.ENOTSUP:
            return {}
        raise


def swap(
    held: Held,
    temp: Temp[T],
    ledger: Ledger,
    entry: int,
    *,
    still_allowed: Callable[[], None],
    drain_seconds: float,
    step: Callable[[str], None] = _nothing,
) -> Drain:
    """Puts the new file in the transcript's place. The Drain owns `held` and `temp` from then on.

    `still_allowed` raises Refused where the owner has become active; it is asked twice. Raises Refused (draining,
    busy, changed, vanished, no_links, or what `still_allowed` says) or StorageFault: then nothing was changed, the new
    file is gone and the journal row given up; `held` stays the caller's.
    """
    folder = os.path.dirname(held.path)
    hidden = h.name_beside(held.path, "old")
    try:
        if any(row.path == held.path and row.id != entry for row in ledger.unfinished()):
            raise Refused(f"{held.path} was left alone: its last replacement is not over", "try again", "draining")
        still_allowed()
        copied = _catch_up(held, temp, step)
        _as_held(held)
        step("K9")
        ledger.set(
            entry,
            state="linked",
            temp=temp.path,
            hidden=hidden,
            dev=held.dev,
            old_ino=held.ino,
            new_ino=os.fstat(temp.fd).st_ino,
            copied=copied,
            new_length=temp.length,
            new_sha=temp.sha256,
        )
        _link(held.path, hidden)
        h.sync_folder(folder)
        row = ledger.entry(entry)
        still_allowed()
        drained = h.line_end(held.fd, copied, os.fstat(held.fd).st_size)
        if drained > copied:
            temp.copy(held.fd, copied, drained)
        _keep_time(held, temp)
        _in_place(held, hidden)
        os.replace(temp.path, held.path)
    except BaseException as fault:
        if not _took_place(held, temp):
            _take_back(held, temp, ledger, entry, hidden)
            if isinstance(fault, OSError):
                raise h.storage(held.path, "replaced", fault) from None
            raise
        if not isinstance(fault, OSError):
            raise
    drain = Drain(ledger, row, held.fd, temp.fd, drain_seconds, step, drained)
    held.fd = temp.fd = -1
    drain.confirm()
    return drain


def _catch_up(held: Held, temp: Temp[T], step: Callable[[str], None]) -> int:
    """Copies what was appended since the snapshot and makes the new file durable, until nothing much is new; returns
    how far the old file is copied."""
    copied = held.length
    for _ in range(ROUNDS + 1):
        step("K7")
        status = os.fstat(held.fd)
        end = h.line_end(held.fd, copied, status.st_size)
        if end < status.st_size and time.time() - status.st_mtime > h.TORN_SECONDS:
            end = status.st_size  # torn for good: it stays where it is, and as it is
        temp.copy(held.fd, copied, end)
        copied = end
        step("K8")
        _keep_time(held, temp)
        os.fsync(temp.fd)
        _in_place(held)
        size = os.fstat(held.fd).st_size
        if size - copied <= SMALL_GROWTH and h.line_end(held.fd, copied, size) == size:
            return copied
    raise Refused(f"{held.path} was left alone: it is being written to", "try again when it rests", "busy")


def _keep_time(held: Held, temp: Temp[T]) -> None:
    """The modification time is that of the newest content: listings and clean-ups go by it."""
    status = os.fstat(held.fd)
    os.utime(temp.fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def _in_place(held: Held, hidden: str | None = None) -> None:
    """Raises Refused unless the held file is still the one at its path (and at its hidden name)."""
    now = h.at(held.path)
    if now is None:
        raise Refused(f"{held.path} is gone; nothing was written in its place", "", "vanished")
    if now != (held.dev, held.ino) or (hidden is not None and h.at(hidden) != now):
        raise Refused(f"{held.path} was left alone: another program put a new file there", "try again", "changed")
    if os.fstat(held.fd).st_size < held.size:
        raise Refused(f"{held.path} was left alone: it became shorter", "try again", "changed")


def _as_held(held: Held) -> None:
    """Raises Refused where the snapshot is no longer what it was; read again only if something was written."""
    status = os.fstat(held.fd)
    if (status.st_ctime_ns != held.ctime_ns or held.young) and h.digest(held.fd, held.length) != held.sha256():
        raise Refused(f"{held.path} was left alone: its content was changed meanwhile", "try again", "changed")


def _link(path: str, hidden: str) -> None:
    try:
        os.link(path, hidden, follow_symlinks=False)
    except FileNotFoundError:
        raise Refused(f"{path} is gone; nothing was written in its place", "", "vanished") from None
    except OSError as fault:
        if fault.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise Refused(f"{path} was left alone: its file system knows no second names", "", "no_links") from None
        raise


def _took_place(held: Held, temp: Temp[T]) -> bool:
    """Whether the rename was made although it reported a fault."""
    try:
        return h.at(held.path) == h.identity(os.fstat(temp.fd))
    except OSError:
        return False


def _take_back(held: Held, temp: Temp[T], ledger: Ledger, entry: int, hidden: str) -> None:
    """Leaves nothing of a replacement that was not made; what fails here is left to the next start."""
    temp.discard()
    with contextlib.suppress(OSError, StorageFault):
        if (second := h.at(hidden)) is not None:
            if second == h.at(held.path):
                drop(hidden)
            elif second == (held.dev, held.ino):  # the only name the old file has left
                put_away(held.path, hidden, held.fd, held.length)
        ledger.set(entry, state="given_up")


def create(
    path: str,
    chunks: Iterable[bytes],
    ledger: Ledger | None,
    entry: int | None,
    step: Callable[[str], None] = _nothing,
) -> None:
    """A file that is not there, whole or not at all; its folder is made where it is missing. Mode 0600, and its time is
    now, so that no clean-up takes it at once. Without `ledger` and `entry` nothing is journaled (side files).

    Raises Refused (`exists`, `no_links`) or StorageFault: then nothing is left behind.
    """
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    journal = ledger if entry is not None else None
    temp: Temp[None] | None = None
    try:
        _make_folder(folder)
        step("K5")
        temp = Temp(h.name_beside(path, "new"))
        h.lock(temp.fd)
        for data in chunks:
            temp.write(data)
        temp.flush()
        step("K8")
        os.fsync(temp.fd)
        step("K9")
        if journal is not None and entry is not None:
            status = os.fstat(temp.fd)
            journal.set(
                entry,
                state="linked",
                temp=temp.path,
                dev=status.st_dev,
                new_ino=status.st_ino,
                new_length=temp.length,
                new_sha=temp.sha256,
            )
        _link(temp.path, path)
    except BaseException as fault:
        if temp is not None:
            temp.discard()
        with contextlib.suppress(StorageFault):
            if journal is not None and entry is not None:
                journal.set(entry, state="given_up")
        if isinstance(fault, FileExistsError):
            raise Refused(f"{path} is there already; it was left alone", "", "exists") from None
        if isinstance(fault, OSError):
            raise h.storage(path, "written", fault) from None
        raise
    step("K10")
    with contextlib.suppress(OSError, StorageFault):  # it is there; the next start takes what is left away
        os.unlink(temp.path)
        h.sync_folder(folder)
        if journal is not None and entry is not None:
            journal.set(entry, state="done")
    temp.discard()


def _make_folder(folder: str) -> None:
    """Makes a folder and its missing parents, durably. Raises OSError."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, 0o700)
        h.sync_folder(os.path.dirname(one))
