"""A quick look at Map and Ledger that changes nothing: versions, and SQLite's own opinion of their pages.

Every invariant is tested by `check`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import quote

import apsw

from .files import unopened
from .schema import LEDGER_VERSION, MAP_VERSION


@dataclass(frozen=True, slots=True)
class Soundness:
    """What a quick look found."""

    sqlite: str
    schema: int
    ledger: int | None
    faults: tuple[str, ...]


def look(map_path: str, ledger_path: str) -> Soundness:
    """Reads both as they stand. Raises StorageFault where that is not possible now."""
    faults: list[str] = []
    schema = _look(map_path, "the Map", MAP_VERSION, faults)
    ledger = _look(ledger_path, "the Ledger", LEDGER_VERSION, faults) if os.path.exists(ledger_path) else None
    return Soundness(apsw.sqlite_lib_version(), schema, ledger, tuple(faults))


def _look(path: str, name: str, expected: int, faults: list[str]) -> int:
    try:
        db = apsw.Connection(f"file:{quote(path)}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error as fault:
        raise unopened(path, fault) from None
    try:
        db.set_busy_timeout(3_000)
        version = int(db.pragma("user_version"))
        if version > expected:
            faults.append(f"{name} was written by a newer fabled (schema {version}, this one knows {expected})")
        rows = db.execute("PRAGMA quick_check(5)").fetchall()
        faults += [f"{name}: {row[0]}" for row in rows if row[0] != "ok"]
        return version
    except (apsw.CorruptError, apsw.NotADBError) as fault:
        faults.append(f"{name} is damaged: {fault}")
        return 0
    except apsw.Error as fault:
        raise unopened(path, fault) from None
    finally:
        db.close()
