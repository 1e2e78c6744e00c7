"""Knows where transcripts and their generations lie, and reads their bytes by span.

Making generations is left to `generations`; what the bytes say, to `transcript`.

Offsets are logical: in a compressed generation they count uncompressed bytes.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ..transcript.record import CHUNK, Span, spans
from .files import Stamp, open_regular, stamp_of, utf8

LIVE_RANK = 1 << 30
"""Rank of a live transcript among the copies of a record: behind every generation."""

_GENERATION = re.compile(r"v(\d{1,9})-(raw|pruned)\.jsonl(\.zst)?")
SEEK_TABLE, SEEKABLE = 0x184D2A5E, 0x8F92EAB1
"""The magic numbers of the zstd seekable format: of the skippable frame with the table, and at the table's end."""
CARD_JOBS = "-fabled-card-jobs"
"""How the project folders end that hold what clients wrote while they made cards for us: never indexed (RULES 11)."""
_NOT_TRANSCRIPTS = frozenset({"tool-results"})


def codec() -> Any:
    """The zstd module: of the standard library where that has one."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd


@dataclass(frozen=True, slots=True)
class Place:
    """What a path is: a live transcript or a generation, of which session or subagent."""

    path: str
    """real path, the file's key"""
    folder: str
    """name of the project folder, as the client encodes it"""
    session: str | None
    """the session the name tells; None for a subagent file beside the sessions"""
    agent: str | None
    generation: str | None
    rank: int
    meta: str | None = None
    """path of the subagent's description beside it, whether or not it exists"""


@dataclass(slots=True)
class Listing:
    """What lies below the roots, and what could not be listed (DESIGN, invariant 4)."""

    found: dict[str, tuple[Place, Stamp]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """roots that do not exist"""
    empty: list[str] = field(default_factory=list)
    """roots, vaults and folders linked into them that exist and hold nothing: an unmounted disk looks like that"""
    dangling: list[str] = field(default_factory=list)
    """links whose target is not there"""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(folder or file, reason)"""
    folders: int = 0
    omitted: set[str] = field(default_factory=set)
    """files that are there and are to stay out of the Map"""


class Vault:
    """The roots of live transcripts and the folders of generations, for reading."""

    def __init__(self, vaults: str | Sequence[str], roots: Sequence[str]) -> None:
        self.vaults = tuple(
            dict.fromkeys(os.path.realpath(v) for v in ([vaults] if isinstance(vaults, str) else vaults))
        )
        self.roots = tuple(dict.fromkeys(os.path.realpath(r) for r in roots))
        self._frames: OrderedDict[tuple[str, int, int, int], _Frames] = OrderedDict()
        self._rested: _Frames | None = None
        """the file that was closed last: only that one, and those that are open, hold a frame as read"""

    # Where things are

    def base_of(self, path: str) -> str | None:
        """The root or vault folder a path lies under."""
        found = [b for b in (*self.vaults, *self.roots) if path == b or path.startswith(b.rstrip("/") + "/")]
        return max(found, key=len) if found else None

    def place(self, path: str) -> Place | None:
        """What a path names, by its shape alone; None for anything that is no transcript.

        A link into a root or vault names what lies there; what a link brings in from outside is named by the link.
        """
        path = os.path.normpath(path)
        if not utf8(path):
            return None  # no key the Map could hold; the sweep says so
        real = os.path.realpath(path)
        folder, name = os.path.split(path)
        for way in (real, path, os.path.join(os.path.realpath(folder), name)):
            base = self.base_of(way)
            if base is not None:
                return self._classify(base, os.path.relpath(way, base).split("/"), real)
        return None

    def _classify(self, base: str, parts: list[str], real: str) -> Place | None:
        name = parts[-1]
        folder = parts[0] if len(parts) > 1 else ""
        if folder.endswith(CARD_JOBS):
            return None
        if base in self.vaults:
            match = _GENERATION.fullmatch(name)
            if match is None or len(parts) < 3:
                return None
            generation, number = f"v{int(match[1])}-{match[2]}", int(match[1])
            if len(parts) == 3:
                return Place(real, folder, parts[1], None, generation, number)
            if parts[2] != "subagents" or len(parts) == 4:
                return None  # another file of the session, however it is named
            return Place(real, folder, parts[1], _agent(parts[-2]), generation, number, _meta(real))
        if not name.endswith(".jsonl") or not _NOT_TRANSCRIPTS.isdisjoint(parts[:-1]):
            return None
        stem = name[: -len(".jsonl")]
        if "subagents" in parts[1:-1]:
            owner = parts[parts.index("subagents", 1) - 1] if parts.index("subagents", 1) > 1 else None
            return Place(real, folder, owner, _agent(stem), None, LIVE_RANK, _meta(real))
        if stem.startswith("agent-"):
            return Place(real, folder, None, _agent(stem), None, LIVE_RANK, _meta(real))
        return Place(real, folder, stem, None, None, LIVE_RANK)

    def listing(self) -> Listing:
        """Everything below the roots and vaults. Never raises: what fails is listed as failed."""
        result = Listing()
        seen: set[tuple[int, int]] = set()
        for base in (*self.vaults, *self.roots):
            try:
                with os.scandir(base) as entries:
                    some = next(entries, None) is not None
            except (FileNotFoundError, NotADirectoryError):
                if base in self.roots:
                    result.missing.append(base)
                continue
            except OSError as fault:
                result.failed.append((base, fault.strerror or str(fault)))
                continue
            if not some:
                result.empty.append(base)
                continue
            self._walk(base, base, [], result, seen)
        return result

    def below(self, path: str) -> Listing:
        """What lies below one folder (an event told of a whole tree)."""
        result = Listing()
        path = os.path.normpath(path)
        real = os.path.realpath(path)
        for way in (real, path):
            base = self.base_of(way)
            if base is not None:
                rel = os.path.relpath(way, base)
                self._walk(base, real, [] if rel == "." else rel.split("/"), result, set())
                break
        return result

    def _walk(self, base: str, top: str, parts: list[str], result: Listing, seen: set[tuple[int, int]]) -> None:
        waiting = [(top, parts)]
        while waiting:
            folder, parts = waiting.pop()
            outside = self.base_of(folder) is None
            try:
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in seen:
                    continue  # a directory reached twice, by a symlink or a loop of them (RULES 8)
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name, reverse=True)
            except FileNotFoundError:
                continue
            except OSError as fault:
                result.failed.append((folder, fault.strerror or str(fault)))
                continue
            result.folders += 1
            if outside and not listed:
                result.empty.append(folder)
            below = []
            for entry in listed:
                name = entry.name
                try:
                    if not utf8(name):
                        if name.endswith((".jsonl", ".jsonl.zst")) or entry.is_dir():
                            shown = os.fsencode(entry.path).decode("utf-8", "backslashreplace")
                            result.failed.append((shown, "its name is not UTF-8; renamed, it is indexed"))
                        continue
                    real = self._beyond(base, entry, result) if entry.is_symlink() else entry.path
                    if real is None:
                        continue
                    if name.endswith((".jsonl", ".jsonl.zst")) and not entry.is_dir():
                        place = self._classify(base, [*parts, name], real)
                        if place is None or real in result.found:
                            continue
                        status = entry.stat()
                        if stat.S_ISREG(status.st_mode):
                            result.found[real] = (place, stamp_of(status))
                    elif (
                        entry.is_dir()
                        and name not in _NOT_TRANSCRIPTS
                        and (parts or not name.endswith(CARD_JOBS))
                        and self.base_of(real) in (None, None if outside else base)  # another root is walked for itself
                    ):
                        below.append((real, [*parts, name]))
                except FileNotFoundError:
                    continue
                except OSError as fault:
                    result.failed.append((entry.path, fault.strerror or str(fault)))
            waiting.extend(below)

    def _beyond(self, base: str, entry: os.DirEntry[str], result: Listing) -> str | None:
        """Where a link leads, None where that is no business of this walk: nowhere, to what is found in its own place
        anyway, or to a folder the root itself lies in."""
        real = os.path.realpath(entry.path)
        if not os.path.exists(real):
            result.dangling.append(entry.path)
            return None
        if self.base_of(real) is not None or base.startswith(real.rstrip("/") + "/"):
            return None
        return real

    # Reading

    def open(self, path: str) -> Source:
        """A file opened for reading by logical offsets. Raises OSError."""
        fd = open_regular(path)
        if not path.endswith(".zst"):
            return plain(fd)
        try:
            status = os.fstat(fd)
            key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            frames = self._frames.get(key)
            if frames is None:
                frames = self._frames[key] = _Frames(fd, status.st_size)
                while len(self._frames) > 32:
                    self._frames.popitem(last=False)
        except BaseException:
            os.close(fd)
            raise
        return Source(fd, frames, self._rest)

    def _rest(self, frames: _Frames) -> None:
        """A file was closed. What it is likely to be opened for again is kept, what others held is given up: a frame
        may be a megabyte, and there is a Vault for each OS thread that reads."""
        if self._rested is not None and self._rested is not frames:
            self._rested.forget()
        self._rested = frames

    def forget(self) -> None:
        """Gives up what was kept of files that were read before."""
        self._frames.clear()
        self._rested = None

    def read(self, path: str, offset: int, length: int) -> bytes:
        """The bytes of one span. Raises OSError where the file cannot be read, EOFError where it ends before."""
        source = self.open(path)
        try:
            data = source.read(offset, length)
        finally:
            source.close()
        if len(data) != length:
            raise EOFError(f"{path} ends before byte {offset + length}")
        return data

    def spans(self, path: str) -> Iterator[Span]:
        """Every byte of a file accounted for, in order; the file need not be known. Raises OSError."""
        source = self.open(path)
        try:
            yield from spans(source.read, source.size)
        finally:
            source.close()


def _agent(name: str) -> str:
    return name[len("agent-") :] if name.startswith("agent-") else name


def _meta(path: str) -> str:
    return path.removesuffix(".zst")[: -len(".jsonl")] + ".meta.json"


def plain(fd: int) -> Source:
    """A file that is read as it stands, whatever its name."""
    return Source(fd, None)


def packed(fd: int) -> Source:
    """A zstd file that is read as what it holds, whatever its name. Raises OSError."""
    return Source(fd, _Frames(fd, os.fstat(fd).st_size))


class Source:
    """An open file: `read(offset, length)` in logical bytes."""

    __slots__ = ("_closed", "_frames", "fd", "size", "stamp")

    def __init__(self, fd: int, frames: _Frames | None, closed: Callable[[_Frames], None] | None = None) -> None:
        """`closed` is told of the frames when the file is."""
        self.fd = fd
        self._frames = frames
        self._closed = closed
        self.stamp = stamp_of(os.fstat(fd))
        self.size = frames.size if frames is not None else self.stamp.size

    def read(self, offset: int, length: int) -> bytes:
        if self._frames is not None:
            return self._frames.read(self.fd, offset, length)
        data = os.pread(self.fd, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]  # one system call gives at most 2 GiB
        got = len(data)
        while got < length and (data := os.pread(self.fd, length - got, offset + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def sha256(self, offset: int, length: int) -> bytes:
        """The sha256 of a span, without holding it in memory."""
        check = sha256()
        while length > 0 and (data := self.read(offset, min(length, CHUNK))):
            check.update(data)
            offset += len(data)
            length -= len(data)
        return check.digest()

    def close(self) -> None:
        os.close(self.fd)
        if self._closed is not None and self._frames is not None:
            self._closed(self._frames)


class _Frames:
    """The frames of a zstd file: where each starts, in the file and in the logical bytes.

    Taken from the seek table at its end (zstd seekable format, magic 0x8F92EAB1) where there is one, else found by
    reading the file once. Any zstd file reads; one frame means that a span costs the whole file.
    """

    def __init__(self, fd: int, packed_size: int) -> None:
        self.table: list[tuple[int, int, int, int]] = []  # (packed offset, packed size, logical offset, logical size)
        if not self._seek_table(fd, packed_size):
            self._scan(fd, packed_size)
        self.size = self.table[-1][2] + self.table[-1][3] if self.table else 0
        self._last: tuple[int, bytes] | None = None

    def _seek_table(self, fd: int, packed_size: int) -> bool:
        if packed_size < 17:
            return False
        count, flags, magic = struct.unpack("<IBI", os.pread(fd, 9, packed_size - 9))
        width = 12 if flags & 0x80 else 8
        length = count * width + 9
        if magic != SEEKABLE or length + 8 > packed_size:
            return False
        head = os.pread(fd, 8, packed_size - length - 8)
        if struct.unpack("<II", head) != (SEEK_TABLE, length):
            return False
        rows = os.pread(fd, count * width, packed_size - length)
        packed = logical = 0
        table = []
        for at in range(0, count * width, width):
            size, plain = struct.unpack_from("<II", rows, at)
            table.append((packed, size, logical, plain))
            packed += size
            logical += plain
        if packed != packed_size - length - 8:
            return False
        self.table = table
        return True

    def _scan(self, fd: int, packed_size: int) -> None:
        zstd = codec()
        at = logical = 0
        while at < packed_size:
            start, plain = at, 0
            head = os.pread(fd, 8, at)
            if len(head) == 8 and 0x184D2A50 <= int.from_bytes(head[:4], "little") <= 0x184D2A5F:
                at += 8 + int.from_bytes(head[4:], "little")
                continue
            decoder = zstd.ZstdDecompressor()
            try:
                while not decoder.eof:
                    data = os.pread(fd, CHUNK, at)
                    if not data:
                        raise OSError(5, "it ends within a zstd frame")
                    at += len(data)
                    plain += len(decoder.decompress(data))
            except zstd.ZstdError as fault:
                raise OSError(5, f"not readable as zstd: {fault}") from None
            at -= len(decoder.unused_data)
            self.table.append((start, at - start, logical, plain))
            logical += plain

    def read(self, fd: int, offset: int, length: int) -> bytes:
        pieces = []
        end = min(offset + length, self.size)
        low, high = 0, len(self.table)
        while low < high:
            middle = (low + high) // 2
            if self.table[middle][2] + self.table[middle][3] <= offset:
                low = middle + 1
            else:
                high = middle
        while offset < end and low < len(self.table):
            start = self.table[low][2]
            data = self._frame(fd, low)
            piece = data[offset - start : end - start]
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            low += 1
        return b"".join(pieces)

    def forget(self) -> None:
        """Give up the frame that was read last."""
        self._last = None

    def _frame(self, fd: int, number: int) -> bytes:
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        packed, size, _, plain = self.table[number]
        zstd = codec()
        try:
            data = zstd.decompress(os.pread(fd, size, packed))
        except zstd.ZstdError as fault:
            raise OSError(5, f"not readable as zstd: {fault}") from None
        if len(data) != plain:
            raise OSError(5, "a frame of a generation has not the length its table says")
        self._last = (number, bytes(data))
        return self._last[1]
