"""What of a Vault exists nowhere else: records whose whole text neither a live transcript nor another Vault has.

Only told here; what is made of it, before anything is removed, is left to `service.remove`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import apsw

from ..errors import FabledError
from . import kept
from .queries import _open


@dataclass(frozen=True, slots=True)
class Sole:
    """`bytes` count as they were written, uncompressed."""

    known: bool
    """False: it could not be told, so everything may be the only copy"""
    records: int = 0
    files: int = 0
    """kept files that are no transcripts and whose original is gone"""
    bytes: int = 0
    sessions: tuple[str, ...] = ()
    """the ones with such records, the most bytes first"""


def sole(map_db: str, ledger_db: str, vault: str) -> Sole:
    """What would be lost with the Vault at `vault`. Files are looked at as they are now, not as the Map saw them."""
    if not _any(vault):
        return Sole(True)
    try:
        db = _open(map_db)
    except FabledError:
        return Sole(False)
    try:
        rows: list[Any] = db.execute("SELECT id,path,dev,ino,size FROM files").fetchall()
        inside = vault.rstrip("/") + "/"
        standing = [id_ for id_, path, *seen in rows if not path.startswith(inside) and _stands(path, *seen)]
        by_session: list[Any] = db.execute(
            "SELECT s.session_id, count(*), sum(r.length) FROM records r JOIN sessions s ON s.id=r.session "
            "WHERE NOT EXISTS (SELECT 1 FROM copies c WHERE c.record=r.id AND c.length>=r.length "
            "AND c.file IN (SELECT value FROM json_each(?))) "
            "AND EXISTS (SELECT 1 FROM copies c WHERE c.record=r.id) GROUP BY r.session ORDER BY 3 DESC",
            (json.dumps(standing),),
        ).fetchall()
        with kept.reading(ledger_db) as ledger:
            others = {one.origin: one.logical for one in ledger.kept() if not one.origin.endswith(".jsonl")}
    except (apsw.Error, FabledError):
        return Sole(False)
    finally:
        db.close()
    gone = [logical for origin, logical in others.items() if not os.path.exists(origin)]
    return Sole(
        True,
        sum(count for _, count, _ in by_session),
        len(gone),
        sum(length for *_, length in by_session) + sum(gone),
        tuple(session for session, *_ in by_session),
    )


def _any(vault: str) -> bool:
    return any(name.endswith(".zst") for _, _, names in os.walk(vault) for name in names)


def _stands(path: str, dev: int | None, ino: int | None, size: int | None) -> bool:
    """Whether a file is the one the Map has read, grown perhaps."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (dev, ino) and status.st_size >= (size or 0)
