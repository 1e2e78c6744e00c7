"""Takes hold of a live transcript, or says why it is not to be touched; and the small steps all replacements share.

Replacing it is left to `replace`, what still arrives at the old file to `drain`.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal, NoReturn

from ..errors import Refused, StorageFault

CHUNK = 1 << 20
TORN_SECONDS = 2.0
"""An unfinished last line of that age belongs to nobody who still writes it."""
_OURS = re.compile(r"\.fabled-(.*)-[0-9a-f]{12}\.(new|old)", re.DOTALL)
_MOUNTS = "/proc/self/mountinfo"
_PROC = "/proc"
_NETWORK = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs davfs2 drvfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs "
    "prl_fs pvfs2 smb3 smbfs vboxsf virtiofs vmhgfs".split()
)
_LOCAL_FUSE = frozenset(
    "fuse.bindfs fuse.cryfs fuse.encfs fuse.fuse-overlayfs fuse.gocryptfs fuse.mergerfs fuse.securefs".split()
)


class Held:
    """A live transcript held open and locked; its snapshot is what lies before `length`.

    The lock is the kernel's and ends with the process. Appending programs do not ask for it; another fabled does.
    """

    __slots__ = (
        "_sha", "ctime_ns", "dev", "fd", "gid", "ino", "length", "mode", "mtime_ns", "path", "size", "uid", "young"
    )  # fmt: skip

    def __init__(self, fd: int, path: str, status: os.stat_result) -> None:
        self.fd = fd
        self.path = path
        self.dev, self.ino = status.st_dev, status.st_ino
        self.size, self.mtime_ns, self.ctime_ns = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        self.mode, self.uid, self.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
        self.young = time.time_ns() - status.st_ctime_ns < 100_000_000
        """its stamps cannot tell this state from one a moment later"""
        self.length = line_end(fd, 0, status.st_size)
        """offset after the last LF"""
        self._sha: bytes | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        return read(self.fd, offset, length)

    def lines(self) -> Iterator[bytes]:
        """The lines of the snapshot, each with its LF. May be called again, and several may run at once."""
        return lines(self.fd, 0, self.length)

    def sha256(self) -> bytes:
        """Of the snapshot; read once."""
        if self._sha is None:
            self._sha = digest(self.fd, self.length)
        return self._sha

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def hold(path: str, *, reserve_bytes: int) -> Held:
    """Opens a live transcript for replacement.

    Raises Refused; its `reason` is vanished, link, not_regular, foreign, linked, mount, network, unseen, space, locked
    or changed. Raises StorageFault where the disk does not answer.
    """
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    try:
        before = os.lstat(path)
        _fit(path, before, os.stat(folder))
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < 2 * before.st_size + reserve_bytes:
            _refuse(path, "space", "the disk has not twice its size and the reserve left", "free space")
        if (kind := network(folder)) is not None:
            _refuse(path, "network", f"it lies on {kind}, where other computers may write to it unseen")
        if (other := unseen()) is not None:
            why = f"from here it cannot be seen whether other programs (process {other}) have it open for writing"
            _refuse(path, "unseen", why, "run the service without its sandbox: fabled service install --no-sandbox")
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        _refuse(path, "vanished", "it is gone")
    except OSError as fault:
        raise storage(path, "read", fault) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse(path, "locked", "another replacement of it is under way", "wait until it has ended")
        status = os.fstat(fd)
        now = os.lstat(path)
        if not (identity(status) == identity(now) == identity(before)):
            _refuse(path, "changed", "another program put a new file in its place", "try again")
        _fit(path, status, os.stat(folder))
        return Held(fd, path, status)
    except FileNotFoundError:
        os.close(fd)
        _refuse(path, "vanished", "it is gone")
    except OSError as fault:
        os.close(fd)
        raise storage(path, "read", fault) from None
    except BaseException:
        os.close(fd)
        raise


def _fit(path: str, status: os.stat_result, folder: os.stat_result) -> None:
    """Raises Refused for a file that a replacement would change in more than its content."""
    if stat.S_ISLNK(status.st_mode):
        _refuse(path, "link", "it is a link")
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "not_regular", "it is no regular file")
    if status.st_uid != os.geteuid():
        _refuse(path, "foreign", "it belongs to another user")
    if status.st_nlink != 1:
        _refuse(path, "linked", "it has another name too (a hard link), which would keep the old content")
    if status.st_dev != folder.st_dev:
        _refuse(path, "mount", "it is mounted on its own")


def _refuse(path: str, reason: str, why: str, hint: str = "") -> NoReturn:
    raise Refused(f"{path} was left alone: {why}", hint, reason) from None


def storage(path: str, verb: str, fault: OSError) -> StorageFault:
    """The disk's refusal, in our words."""
    hint = "free space, then try again" if fault.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return StorageFault(f"{path} could not be {verb}: {fault.strerror or fault}", hint)


def network(folder: str) -> str | None:
    """The kind of a network or shared file system a folder lies on; None for a local one, or where it is not told.

    The drain cannot see writers on other computers. Unknown kinds of FUSE count as network.
    """
    real = os.path.realpath(folder)
    best, kind = -1, ""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            for row in file:
                place, _, rest = row.partition(" - ")
                point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place.split(" ")[4])
                if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= best:
                    best, kind = len(point), rest.split(" ", 1)[0]
    except (OSError, IndexError):
        return None
    return kind if kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE) else None


def unseen() -> int | None:
    """A process of ours whose open files we may not look at, because it lives outside of our user namespace.

    The drain asks the kernel who has the old file open. In a user namespace (a service's sandbox, for one) the answer
    for everybody outside is a refusal, which must not be taken for "nobody". A process that hides from its own user
    anywhere (an ssh-agent) does not count: its files there belong to root.
    """
    try:
        with open(f"{_PROC}/self/uid_map", "rb") as file:
            if file.read().split() == [b"0", b"0", b"4294967295"]:
                return None
        found = sorted(int(name) for name in os.listdir(_PROC) if name.isdecimal())
    except (OSError, ValueError):
        return None  # as on macOS
    for pid in found:
        try:
            if os.stat(f"{_PROC}/{pid}").st_uid == os.geteuid():
                os.readlink(f"{_PROC}/{pid}/ns/user")
        except PermissionError:
            return pid
        except OSError:
            continue  # it has ended
    return None


# Names


def name_beside(path: str, what: Literal["new", "old"]) -> str:
    """A name in the folder of a transcript that no listing of sessions shows and nobody has."""
    folder, name = os.path.split(path)
    stem = name.removesuffix(".jsonl").encode("utf-8", "surrogateescape")[:100].decode("utf-8", "ignore")
    return os.path.join(folder, f".fabled-{stem}-{secrets.token_hex(6)}.{what}")


def ours(name: str) -> tuple[str, str] | None:
    """(stem of the transcript, `new` or `old`) of a name made by `name_beside`."""
    match = _OURS.fullmatch(name)
    return (match[1], match[2]) if match else None


# Steps


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def at(path: str) -> tuple[int, int] | None:
    """The identity of what lies at a path, None where nothing does. Raises OSError where that cannot be told."""
    try:
        return identity(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def sync_folder(folder: str) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock(fd: int) -> bool:
    """Takes the lock of an open file if it is free."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Reading by position: nobody's place in the file moves


class _Span(io.RawIOBase):
    """A span of an open file as a stream of its own."""

    def __init__(self, fd: int, start: int, end: int) -> None:
        self._fd, self._at, self._end = fd, start, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        want = min(len(view), self._end - self._at)
        if want <= 0:
            return 0
        try:
            data = os.pread(self._fd, want, self._at)
        except OSError as fault:
            raise storage("the transcript", "read", fault) from None
        if not data:
            raise Refused("the transcript became shorter while it was read; it was left alone", "", "changed")
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def lines(fd: int, start: int, end: int) -> Iterator[bytes]:
    """The lines of a span, each with its LF; the last may have none. Holds one line and a buffer."""
    return iter(io.BufferedReader(_Span(fd, start, end), CHUNK))


def read(fd: int, offset: int, length: int) -> bytes:
    """Up to `length` bytes; fewer only where the file ends. Raises OSError."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    pieces = [data]  # one system call gives at most 2 GiB
    got = len(data)
    while got < length and (data := os.pread(fd, length - got, offset + got)):
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def digest(fd: int, length: int) -> bytes:
    """The sha256 of the first bytes. Raises Refused where the file is shorter."""
    check = sha256()
    offset = 0
    while offset < length:
        try:
            data = os.pread(fd, min(length - offset, CHUNK), offset)
        except OSError as fault:
            raise storage("the transcript", "read", fault) from None
        if not data:
            raise Refused("the transcript became shorter while it was read; it was left alone", "", "changed")
        check.update(data)
        offset += len(data)
    return check.digest()


def line_end(fd: int, start: int, end: int) -> int:
    """The offset after the last LF of a span; its start where it has none. Raises OSError."""
    step = 4096
    while end > start:
        begin = max(start, end - step)
        found = read(fd, begin, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end, step = begin, CHUNK
    return start


def agree(one: bytes, other: bytes) -> int:
    """How many bytes two strings have in common at their beginning."""
    high = min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    low = 0  # one[:low] is common, one[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low


def common(one: int, a: int, a_end: int, other: int, b: int, b_end: int) -> int:
    """How many bytes two spans of two open files have in common at their beginning. Raises OSError."""
    length = min(a_end - a, b_end - b)
    done = 0
    while done < length:
        x = read(one, a + done, min(CHUNK, length - done))
        y = read(other, b + done, min(CHUNK, length - done))
        same = agree(x, y)
        done += same
        if same < max(len(x), len(y)) or same == 0:
            break
    return done
