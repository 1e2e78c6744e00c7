"""Reads records by their copies, proving each time that the bytes are the record's.

Which copies a record has is `queries`' answer; what a record says is left to `transcript`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any

from ..errors import StaleIndexError, Unreadable
from ..transcript.record import DIGEST_BYTES, HUGE_LINE, Line, lines, segments
from ..transcript.render import left_out
from .rows import Copy
from .vault import Source, Vault

_OPEN_FILES = 8


class StaleCopies(StaleIndexError):
    """The bytes at every known span of a record are not that record's any more; `paths` are to be indexed again."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            "the record's bytes are not where the index says, and no other copy of it reads; nothing was shown",
            "fabled index, then try again",
        )
        self.paths = tuple(paths)


class Reading:
    """The files opened to answer one request. `stale` gathers paths whose content is not what the Map says."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._sources: dict[str, Source] = {}
        self.stale: dict[str, None] = {}

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def _source(self, path: str) -> Source:
        source = self._sources.get(path)
        if source is None:
            source = self._vault.open(path)
            if len(self._sources) >= _OPEN_FILES:
                self._sources.pop(next(iter(self._sources))).close()
            self._sources[path] = source
        return source

    def checksum(self, copy: Copy) -> str | None:
        """The sha256 of a copy's bytes, None where they are not the record's any more. Raises OSError."""
        found = self._source(copy.path).sha256(copy.offset, copy.length)
        if found[:DIGEST_BYTES] != copy.digest:
            self.stale[copy.path] = None
            return None
        return found.hex()

    def data(self, copies: Sequence[Copy]) -> tuple[Copy, bytes]:
        """The bytes of a record, from the first copy that still holds them.

        Raises StaleIndexError where files are there but hold something else, Unreadable where none can be reached.
        """
        faults: list[str] = []
        for copy in copies:
            try:
                data = self._source(copy.path).read(copy.offset, copy.length)
            except OSError as fault:
                faults.append(_reason(copy.path, fault))
                continue
            if len(data) == copy.length and sha256(data).digest()[:DIGEST_BYTES] == copy.digest:
                return copy, data
            self.stale[copy.path] = None
        raise self.fault(copies, faults)

    def object(self, copies: Sequence[Copy]) -> Any:
        """A record as parsed. Of a huge one the long strings are cut, so that memory stays bounded (RULES 25)."""
        return self.shown(copies)[0]

    def shown(self, copies: Sequence[Copy]) -> tuple[Any, bool]:
        """(a record as parsed, whether strings of it were cut); what went from a string is told in its place."""
        if not copies or copies[0].length <= HUGE_LINE:
            return _parsed(self.data(copies)[1]), False
        faults: list[str] = []
        for copy in copies:
            try:
                if self.checksum(copy) is not None:
                    source = self._source(copy.path)
                    line = next(lines(source.read, copy.offset, 1, copy.offset + copy.length))
                    return _parsed(_marked(line)), bool(line.cuts)
            except OSError as fault:
                faults.append(_reason(copy.path, fault))
        raise self.fault(copies, faults)

    def fault(self, copies: Sequence[Copy], faults: Sequence[str]) -> StaleIndexError | Unreadable:
        """Why none of the copies reads, in words."""
        if len(faults) < len(copies):
            return StaleCopies(sorted({copy.path for copy in copies} & self.stale.keys()))
        return Unreadable(
            f"the record cannot be read: {'; '.join(dict.fromkeys(faults)) or 'no copy of it is known'}",
            "make the file readable again; if it is gone for good: fabled index",
        )


def _reason(path: str, fault: OSError) -> str:
    return f"{os.path.basename(path)}: {fault.strerror or fault}"


def _marked(line: Line) -> bytes:
    """A shortened line that says in each string how much went from there."""
    pieces, last = [], 0
    for at, gone in line.cuts:
        if line.data[at - 1 : at] != b"\0":  # a hole in the file is none of a string
            pieces += [line.data[last:at], left_out(gone).encode()]
            last = at
    return b"".join([*pieces, line.data[last:]])


def _parsed(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        for _, _, _, found in segments(data, True):
            if found is not None:
                return found
    return None
