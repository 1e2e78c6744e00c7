"""Writes generations into the Vault, exclusively and durably, and takes away those that another one holds.

What is to be written, and when, is left to `capture`; reading them, to `vault`.

How one comes to be. The bytes are packed into a file with a hidden name; it is made read-only, fsynced, dropped from
the page cache where the system can do that, read back through the reader of the Vault and compared by sha256. Only
then it is linked to its name, which fails where that is taken, and the folder is fsynced. Whatever ends this early
leaves a hidden file at most, which the next start removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from ..errors import Refused, StorageFault, Unreadable
from ..transcript.record import Read
from .files import open_regular
from .hold import sync_folder
from .vault import SEEK_TABLE, SEEKABLE, Vault, codec, packed

FRAME = 1 << 20
"""Most logical bytes of a frame: one record is read in about a millisecond."""
LEVEL = 3
MOST_META = 1 << 20
"""A subagent's description is a few hundred bytes; a longer one is no description."""

Kind = Literal["raw", "pruned"]

_TEMP = re.compile(r"\.fabled-(\d+)-[0-9a-f]{16}\.tmp")
_STORED = re.compile(r"v(\d{1,9})-(raw|pruned)(\.jsonl)?(\.zst)?")
_NUMBERED = re.compile(r"v(\d{1,9})-(?:raw|pruned)(?:\.jsonl)?(?:\.zst|\.meta\.json)?")
_TRIES = 16


class NoRoom(Refused):
    """Too little space would be left on the Vault's disk."""


class Changed(Refused):
    """The bytes were not the same twice: something rewrites the file."""


@dataclass(frozen=True, slots=True)
class Written:
    """A generation that is durable."""

    path: str
    number: int
    kind: str
    sha256: bytes
    """of the logical bytes"""
    logical: int
    packed: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of the Vault that is named as generations are."""

    path: str
    folder: str
    """name of the project folder"""
    session: str
    part: str
    number: int
    kind: str
    transcript: bool


def write(
    folder: str,
    kind: Kind,
    read: Read,
    length: int,
    *,
    suffix: str = ".jsonl",
    reserve_bytes: int,
    expect: bytes | None = None,
    above: int = -1,
    meta: bytes | None = None,
) -> Written:
    """Stores the first `length` bytes that `read` gives as the next generation in `folder`.

    `suffix`: "" for what is no transcript. `expect`: the sha256 they are to have. `above`: a number that was given
    already. `meta`: the description of a subagent, stored beside it. Raises NoRoom, Changed, StorageFault, Unreadable;
    then nothing is left behind.
    """
    _room(folder, length, reserve_bytes)
    made: list[str] = []
    temps: list[str] = []
    names: list[str] = []
    try:
        try:
            private_tree(folder, made)
            temp, check, size = _pack(folder, temps, read, length)
            if expect is not None and check != expect:
                raise Changed("it was rewritten while it was copied; nothing was kept", "try again when it is quiet")
            described = _plain(folder, temps, meta) if meta is not None else None
            number, path = _publish(folder, kind, suffix, above, temp, described, names)
            for name in temps:
                os.unlink(name)
            temps.clear()
            sync_folder(folder)
            for above_it in made:
                sync_folder(os.path.dirname(above_it))
        except OSError as fault:
            raise StorageFault(
                f"no generation could be written in {folder}: {fault.strerror or fault}; nothing was kept",
                "free space, or look at the disk, then try again",
            ) from fault
    except BaseException:
        for name in (*temps, *names):
            with contextlib.suppress(OSError):
                os.unlink(name)
        for name in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(name)
        raise
    return Written(path, number, kind, check, length, size)


def private_tree(folder: str, made: list[str] | None = None) -> None:
    """Makes a folder of the Vault and those above it that are missing, each 0700; adds the new ones to `made`.

    One that exists and is wider is tightened. Raises OSError, or Refused where it belongs to another user.
    """
    missing = []
    there = folder
    while not os.path.isdir(there):
        missing.append(there)
        there = os.path.dirname(there)
    for name in reversed(missing):
        os.mkdir(name, 0o700)
        if made is not None:
            made.append(name)
    status = os.stat(folder)
    if status.st_uid != os.getuid():
        raise Refused(f"{folder} belongs to another user; nothing was written there", "move it away", "owner")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(folder, 0o700)


def _room(folder: str, length: int, reserve_bytes: int) -> None:
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        disk = os.statvfs(folder)
    except OSError as fault:
        raise StorageFault(f"{folder}: {fault.strerror or fault}", "look at the disk, then try again") from fault
    free = disk.f_bavail * disk.f_frsize
    if free < length + reserve_bytes:
        raise NoRoom(
            f"{length:,} bytes are to be kept and {reserve_bytes:,} to stay free, and the disk of {folder} has {free:,}"
            "; nothing was written",
            "free space, or lower capture.reserve_bytes",
            "no_space",
        )


def _temp(folder: str, temps: list[str]) -> tuple[int, str]:
    name = os.path.join(folder, f".fabled-{os.getpid()}-{os.urandom(8).hex()}.tmp")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    temps.append(name)
    return fd, name


def _put(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _pack(folder: str, temps: list[str], read: Read, length: int) -> tuple[str, bytes, int]:
    """(hidden name, sha256 of the logical bytes, packed size), proven by reading it back."""
    zstd = codec()
    options = {zstd.CompressionParameter.compression_level: LEVEL, zstd.CompressionParameter.checksum_flag: 1}
    check = sha256()
    rows: list[bytes] = []
    fd, name = _temp(folder, temps)
    try:
        for data in pieces(read, length):
            check.update(data)
            frame = zstd.compress(data, options=options)
            _put(fd, frame)
            rows.append(struct.pack("<II", len(frame), len(data)))
        table = b"".join((*rows, struct.pack("<IBI", len(rows), 0, SEEKABLE)))
        _put(fd, struct.pack("<II", SEEK_TABLE, len(table)) + table)
        _seal(fd)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    again = open_regular(name)
    try:
        source = packed(again)
        if source.size != length or source.sha256(0, length) != check.digest():
            raise OSError(errno.EIO, "what was written reads back as other bytes")
    finally:
        os.close(again)
    return name, check.digest(), size


def _plain(folder: str, temps: list[str], data: bytes) -> str:
    fd, name = _temp(folder, temps)
    try:
        _put(fd, data)
        _seal(fd)
        if os.pread(fd, len(data) + 1, 0) != data:
            raise OSError(errno.EIO, "what was written reads back as other bytes")
    finally:
        os.close(fd)
    return name


def _seal(fd: int) -> None:
    """Read-only, durable, and out of the page cache, so that what is read back comes from the disk."""
    os.fchmod(fd, 0o400)
    os.fsync(fd)
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def pieces(read: Read, length: int) -> Iterator[bytes]:
    """The first `length` bytes, cut behind a line where that leaves at least half a frame: most records then lie in
    one frame. Raises Changed where they end before, Unreadable where they cannot be read."""
    at = 0
    while at < length:
        wanted = min(FRAME, length - at)
        try:
            data = read(at, wanted)
        except OSError as fault:
            raise Unreadable(f"byte {at} and what follows: {fault.strerror or fault}", "look at the disk") from fault
        if len(data) < wanted:
            raise Changed("it became shorter while it was read; nothing was kept", "try again when it is quiet")
        cut = data.rfind(b"\n") + 1 if at + wanted < length else 0
        if cut > FRAME // 2:
            data = data[:cut]
        yield data
        at += len(data)


def _publish(
    folder: str, kind: Kind, suffix: str, above: int, temp: str, described: str | None, names: list[str]
) -> tuple[int, str]:
    """Gives a finished file the next free name; the description follows, so that there is never one without its
    transcript."""
    for _ in range(_TRIES):
        number = max((above, *numbers(folder))) + 1
        stem = os.path.join(folder, f"v{number}-{kind}")
        path = f"{stem}{suffix}.zst"
        try:
            os.link(temp, path)
            names.append(path)
            if described is not None:
                os.link(described, f"{stem}.meta.json")
                names.append(f"{stem}.meta.json")
        except FileExistsError:
            for name in names:
                os.unlink(name)
            names.clear()
            above = number
            continue
        return number, path
    raise OSError(errno.EEXIST, "another process keeps taking the next name")


def numbers(folder: str) -> list[int]:
    """The numbers that are taken in a folder of generations."""
    return [int(match[1]) for name in os.listdir(folder) if (match := _NUMBERED.fullmatch(name))]


def meta_of(path: str) -> str | None:
    """Where the description beside a subagent's generation lies; None for what is no transcript."""
    plain = path.removesuffix(".zst")
    return plain.removesuffix(".jsonl") + ".meta.json" if plain.endswith(".jsonl") else None


def read_meta(path: str | None) -> bytes | None:
    """The bytes of a subagent's description; None where there is none. Raises OSError."""
    if path is None:
        return None
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, MOST_META + 1, 0)
    finally:
        os.close(fd)
    return data if len(data) <= MOST_META else None


# Proofs


def begins_alike(one: Read, other: Read, length: int) -> bool:
    """Whether two files hold the same first `length` bytes: read and compared now. Raises OSError."""
    for at in range(0, length, FRAME):
        wanted = min(FRAME, length - at)
        data = one(at, wanted)
        if len(data) != wanted or data != other(at, wanted):
            return False
    return True


def holds(vault: Vault, old: str, logical: int, new: str) -> bool:
    """Whether all of one generation, its description included, is in another: both are read. Raises OSError."""
    if old == new:
        return False
    described = read_meta(meta_of(old))
    if described is not None and described != read_meta(meta_of(new)):
        return False
    small = vault.open(old)
    try:
        large = vault.open(new)
        try:
            return small.size == logical <= large.size and begins_alike(small.read, large.read, logical)
        finally:
            large.close()
    finally:
        small.close()


def remove(path: str) -> None:
    """Takes a retired generation away, its description first, and makes that durable. Raises StorageFault."""
    try:
        for name in filter(None, (meta_of(path), path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        sync_folder(os.path.dirname(path))
    except OSError as fault:
        raise StorageFault(f"{path} could not be removed: {fault.strerror or fault}", "look at the disk") from fault


# What lies in the Vault


def stored(vault_folder: str) -> Iterator[Stored]:
    """Every file named as a generation, of transcripts and of the other files of a session."""
    for top, folders, files in os.walk(vault_folder):
        folders.sort()
        parts = os.path.relpath(top, vault_folder).split(os.sep)
        if len(parts) < 2:
            continue
        for name in sorted(files):
            match = _STORED.fullmatch(name)
            if match is None or (match[3] is None and match[4] is None):
                continue
            yield Stored(
                os.path.join(top, name), parts[0], parts[1], "/".join(parts[2:]), int(match[1]), match[2],
                match[3] is not None,
            )  # fmt: skip


def leftovers(vault_folder: str, running: Callable[[int], bool] | None = None) -> list[str]:
    """Hidden files that a writer left behind; `running` tells which process may still be at work on its own."""
    found = []
    for top, _, files in os.walk(vault_folder):
        for name in files:
            match = _TEMP.fullmatch(name)
            if match is not None and not (running is not None and running(int(match[1]))):
                found.append(os.path.join(top, name))
    return sorted(found)


def sweep(vault_folder: str) -> list[str]:
    """Removes what writers left behind, and takes the rights of group and others from all that is ours.

    For the one writer, at its start: nobody else is at work then. Raises StorageFault.
    """
    found = leftovers(vault_folder)
    try:
        for path in found:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for path, status in entries(vault_folder):
            if status.st_mode & 0o077 and status.st_uid == os.getuid():
                os.chmod(path, stat.S_IMODE(status.st_mode) & 0o700)
    except OSError as fault:
        raise StorageFault(f"{fault.filename}: {fault.strerror or fault}", "look at its rights") from fault
    return found


def entries(vault_folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder and regular file of the Vault."""
    for top, _, files in os.walk(vault_folder):
        for path in (top, *(os.path.join(top, name) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                    yield path, status
