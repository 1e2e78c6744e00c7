"""What is stored of each file, by its path: asked of the Map when first needed, noted as files are read.

What follows from it is left to `update` and `scan`. A history may have tens of thousands of files, of which a day's
work touches a few, so all are held only while everything is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..store.batch import FileRow
from ..store.files import utf8
from ..store.map import Map

_Rows = tuple[FileRow | None, FileRow | None]
"""(the row that stands for a file, the one beside it that a rewritten file is read into)"""
_NONE: _Rows = (None, None)


class Standing:
    """What was noted goes before what the Map says, which may not have been told yet."""

    def __init__(self, map_: Map) -> None:
        self._map = map_
        self._noted: dict[str, _Rows] = {}
        self._whole = False
        """all files of the Map are noted"""

    def forget(self) -> None:
        """Back to what is stored."""
        self._noted = {}
        self._whole = False

    def get(self, path: str) -> FileRow | None:
        return self._of(path)[0]

    def take_unfinished(self, path: str) -> FileRow | None:
        """The row beside the one that stands; it is not known any more."""
        row, unfinished = self._of(path)
        self._noted[path] = row, None
        return unfinished

    def note(self, row: FileRow) -> None:
        self._noted[row.path] = row, self._of(row.path)[1]

    def note_unfinished(self, row: FileRow) -> None:
        self._noted[row.path] = self._of(row.path)[0], row

    def drop(self, path: str) -> None:
        self._noted[path] = None, self._of(path)[1]

    def all(self) -> list[FileRow]:
        """Every file; they are held until `forget`."""
        if not self._whole:
            self._noted = _by_path(self._map.files()) | self._noted
            self._whole = True
        return [row for row, _ in self._noted.values() if row is not None]

    def below(self, folder: str) -> list[FileRow]:
        """The files in a folder and its folders."""
        prefix = folder.rstrip("/") + "/"
        if self._whole or not utf8(prefix):
            found = {path: rows for path, rows in self._noted.items() if path.startswith(prefix)}
        else:
            found = _by_path(self._map.files_below(prefix))
            found |= {path: rows for path, rows in self._noted.items() if path.startswith(prefix)}
        return [row for row, _ in found.values() if row is not None]

    def _of(self, path: str) -> _Rows:
        rows = self._noted.get(path)
        if rows is None:
            # A name that is no text is no file of the Map.
            known = () if self._whole or not utf8(path) else self._map.files_at(path)
            rows = self._noted[path] = _by_path(known).get(path, _NONE)
        return rows


def _by_path(rows: Iterable[FileRow]) -> dict[str, _Rows]:
    found: dict[str, _Rows] = {}
    for row in rows:
        stands, beside = found.get(row.path, _NONE)
        if row.replaces is not None or (stands is not None and not row.complete):
            found[row.path] = stands, row
        else:
            found[row.path] = row, beside
    return found
