"""A read-only connection to the Ledger, for answers: the generations kept and the journal.

Writing is the writer's, through `ledger`; what the Map knows of a generation is told by `queries`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from urllib.parse import quote

import apsw

from ..errors import NewerSchema, StorageFault
from .files import unopened
from .ledger import FORGOTTEN, Entry, Forgotten, Kept
from .schema import LEDGER_VERSION

_KEPT = ",".join(field.name for field in fields(Kept))
_ENTRY = ",".join(field.name for field in fields(Entry))
_TABLES_SINCE = 2
"""An older Ledger has neither generations nor a journal; the next writer brings it forward."""


class KeptReader:
    """Belongs to the OS thread that opened it."""

    def __init__(self, db: apsw.Connection | None) -> None:
        self._db = db

    def kept(self, session_id: str | None = None) -> list[Kept]:
        """The generations that were written, of one session or of all, in the order of their numbers."""
        where, values = ("", ()) if session_id is None else ("WHERE session_id=?", (session_id,))
        rows = self._rows(f"SELECT {_KEPT} FROM generations {where} ORDER BY session_id,folder,part,number", values)
        return [Kept(*row) for row in rows]

    def journal(self, session_id: str) -> list[Entry]:
        """The journal of one session, the oldest row first."""
        return [
            Entry(*row)
            for row in self._rows(f"SELECT {_ENTRY} FROM prunes WHERE session_id=? ORDER BY id", (session_id,))
        ]

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """What a SELECT about something else gives; nothing where the Ledger is older than that."""
        return self._rows(sql, values)

    def every_entry(self) -> list[Entry]:
        """The journal of all sessions, the oldest row first."""
        return [Entry(*row) for row in self._rows(f"SELECT {_ENTRY} FROM prunes ORDER BY id", ())]

    def forgotten(self) -> list[Forgotten]:
        """What stays out of the Map, the oldest first."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name='forgotten'", ()):
            return []  # an older Ledger
        return [Forgotten(*row) for row in self._rows(f"SELECT {FORGOTTEN} FROM forgotten ORDER BY at,kind,name", ())]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._db is None:
            return []
        try:
            return self._db.execute(sql, values).fetchall()
        except apsw.Error as fault:
            raise StorageFault(f"the Ledger could not be read: {fault}", "try again in a moment") from None


@contextmanager
def reading(path: str | None, since: int = _TABLES_SINCE) -> Iterator[KeptReader]:
    """The Ledger at a path; where there is none yet, or only one older than version `since`, it holds nothing.

    Raises NewerSchema, StorageFault.
    """
    if path is None or not os.path.exists(path):
        yield KeptReader(None)
        return
    try:
        db = apsw.Connection(f"file:{quote(path)}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        db.set_busy_timeout(3_000)
        version = int(db.pragma("user_version"))
    except apsw.Error as fault:
        raise unopened(path, fault) from None
    try:
        if version > LEDGER_VERSION:
            raise NewerSchema(f"{path} was written by a newer fabled (schema {version})", "update fabled")
        yield KeptReader(db if version >= since else None)
    finally:
        db.close()
