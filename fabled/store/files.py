"""The safe steps on files: stamps, private folders, the instance lock, reading without being trapped.

What the files hold is left to `vault`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from ..errors import Refused, StorageFault


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one state of a file from another; compared with `==` only (RULES 5)."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def stamp(path: str) -> Stamp | None:
    """The stamp of a regular file, None where there is none. Raises OSError where that cannot be told."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stamp_of(status) if stat.S_ISREG(status.st_mode) else None


def utf8(name: str) -> bool:
    """Whether a file's name is text; the file system allows any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_regular(path: str) -> int:
    """A descriptor for reading a regular file; never waits on a pipe. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(22, "not a regular file", path)
    return fd


def private_folder(path: str) -> None:
    """Makes a folder and its missing parents, 0700 and ours.

    A wider folder is tightened, a folder of another user refused (case C09). Raises Refused, or StorageFault where it
    cannot be made.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
    except OSError as fault:
        raise StorageFault(
            f"the folder {path} cannot be made: {fault.strerror or fault}", "make it writable, or set FABLED_HOME"
        ) from None
    if status.st_uid != os.getuid():
        raise Refused(f"{path} belongs to another user; nothing was written there", "move it away or set FABLED_HOME")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)


def private_file(path: str) -> None:
    """Takes the rights of group and others from an existing file."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            os.chmod(path, mode & 0o700)
    except FileNotFoundError:
        pass


def unopened(
    path: str, fault: BaseException, otherwise: str = "see that its disk is there and not full"
) -> StorageFault:
    """A database that cannot be opened, in words of rights where these are the reason: SQLite writes beside a database
    even to read it."""
    folder = os.path.dirname(path)
    for place, right, said, letters in (
        (folder, os.X_OK | os.R_OK, "its folder may not be read by you", "u+rx"),
        (path, os.R_OK, "you may not read it", "u+rw"),
        (folder, os.W_OK, "its folder cannot be written, which reading it needs, too", "u+w"),
        (path, os.W_OK, "you may not write it", "u+w"),
    ):
        if os.path.exists(place) and not os.access(place, right):
            return StorageFault(f"{path} cannot be opened: {said}", f"chmod {letters} {place}")
    return StorageFault(f"{path} cannot be opened: {fault}", otherwise)


class Lock:
    """One instance at a time, by a kernel lock (RULES 21): it ends with the process, whatever ends it.

    The file holds the owner's pid for people to read; it is never unlinked, which would let two owners in.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> bool:
        """Takes the lock if it is free; False if another process holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def owner(self) -> int | None:
        """The pid in the file, if one stands there."""
        try:
            with open(self.path, "rb") as file:
                return int(file.read(32).strip() or b"x")
        except (OSError, ValueError):
            return None


class Scratch:
    """A file without a name, for content that is weighed and proven before anything is made of it."""

    def __init__(self, folder: str) -> None:
        """Raises OSError where the folder takes no file."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=1 << 20)  # noqa: SIM115 (closed by `close`)
        self._sum = sha256()
        self.length = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sum.update(data)
        self.length += len(data)

    def lines(self) -> Iterator[bytes]:
        """Its lines, each with its LF; from the beginning each time, one reader at a time."""
        self._file.seek(0)
        yield from self._file

    def chunks(self) -> Iterator[bytes]:
        """Its bytes."""
        self._file.seek(0)
        while data := self._file.read(1 << 20):
            yield data

    def sha256(self) -> bytes:
        return self._sum.digest()

    def close(self) -> None:
        """Never raises: on a full disk closing would write once more, and who closes has other files to let go of."""
        with contextlib.suppress(OSError):
            self._file.close()
