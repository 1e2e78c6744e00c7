"""Says which transcripts stay out of the Map: of excluded projects, and what a person had forgotten.

That the Map lets go of what it already has of them is left to `update`.

A project is named by its path, by its folder's name, or by the last part of its path. The client's encoding of paths
loses information, so one folder may hold several projects: where a path is excluded, the transcript itself is asked
for its working folder. One that does not tell any is left out with its folder: too little in the Map can be mended.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from ..store.batch import FileRow
from ..store.ledger import Forgotten
from ..store.vault import Place, Vault
from .projects import encode_folder, project_of

HEAD_BYTES = 1 << 20
_CWD = re.compile(rb'"cwd"\s{0,4}:\s{0,4}("(?:[^"\\]|\\.){0,4096}")')


class Omitted:
    """What stays out, as of now; made anew when either list changes."""

    def __init__(self, vault: Vault, exclude: Iterable[str], forgotten: Iterable[Forgotten]) -> None:
        self._vault = vault
        rows = list(forgotten)
        names = [*exclude, *(row.name for row in rows if row.kind == "project")]
        self._paths = {name: encode_folder(name) for name in names if "/" in name}
        self._names = {name for name in names if "/" not in name}
        self._sessions = {row.name for row in rows if row.kind == "session"}
        self._files = {row.name for row in rows if row.kind == "file"}
        self._told: dict[str, str] = {}
        """path of a file → the project it names, once it does"""

    def __bool__(self) -> bool:
        return bool(self._paths or self._names or self._sessions or self._files)

    def place(self, place: Place) -> bool:
        """Whether a file of this name stays out."""
        if place.session in self._sessions or place.path in self._files:
            return True
        return self._project(place.path, place.folder)

    def row(self, row: FileRow) -> bool:
        """The same for a file the Map knows."""
        place = self._vault.place(row.path)
        if place is not None:
            return self.place(place)
        return row.path in self._files or self._project(row.path, row.folder or "")

    def _project(self, path: str, folder: str) -> bool:
        if folder in self._names:
            return True
        here = [name for name, encoded in self._paths.items() if encoded.lower() == folder.lower()]
        if not here and not self._names:
            return False
        told = self._told.get(path) or self._tell(path, folder)
        if told is None:
            return bool(here)
        return told in here or told.rstrip("/").rpartition("/")[2] in self._names

    def _tell(self, path: str, folder: str) -> str | None:
        """The project a transcript names, by its first working folder that its folder is named for."""
        try:
            source = self._vault.open(path)
        except OSError:
            return None
        try:
            head = source.read(0, min(HEAD_BYTES, source.size))
        except (OSError, EOFError, ValueError):
            return None
        finally:
            source.close()
        for found in _CWD.finditer(head):
            try:
                project = project_of(os.path.normpath(json.loads(found[1])), folder)
            except ValueError:
                continue
            if project is not None:
                self._told[path] = project
                return project
        return None
