"""The facts no transcript can give back (`ledger.db`): for now, what was lost from live transcripts.

Never rebuilt; a newer version is refused. What is derived from transcripts is left to `map`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Literal

import apsw

from ..errors import NewerSchema, StorageFault
from .schema import APPLICATION_ID, LEDGER, LEDGER_VERSION


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that left the live transcripts without a prune of ours."""

    kind: Literal["vanished", "shrunk"]
    session_id: str
    path: str
    at: int
    """seconds since 1970"""
    in_vault: int
    """records only a generation still holds"""
    nowhere: int
    """records nothing holds any more"""


class Ledger:
    """The one connection that writes the Ledger; owned by the writer."""

    def __init__(self, path: str) -> None:
        """Opens or makes it. Raises NewerSchema, StorageFault."""
        try:
            self._db = apsw.Connection(path)
            self._db.set_busy_timeout(5000)
            version = int(self._db.pragma("user_version"))
            if version > LEDGER_VERSION:
                self._db.close()
                raise NewerSchema(
                    f"{path} was written by a newer fabled (schema {version}); it was left alone",
                    "update fabled, or point FABLED_HOME at another folder",
                )
            self._db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            if version < 1:
                with self._db:
                    self._db.execute(LEDGER)
                    self._db.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={LEDGER_VERSION}")
        except apsw.Error as fault:
            raise StorageFault(
                f"{path} cannot be opened: {fault}", "move it aside; transcripts and Vault are not touched"
            ) from None
        self._paths: set[str] = {p for (p,) in self._db.execute("SELECT path FROM losses")}
        for name in (path, path + "-wal", path + "-shm"):
            if os.path.exists(name):
                os.chmod(name, 0o600)

    def note(
        self,
        kind: Literal["vanished", "shrunk"],
        session_id: str,
        path: str,
        in_vault: int,
        nowhere: int,
        size: int = 0,
    ) -> None:
        """Records a loss; `size`: what the file held before, in bytes. A later loss of the same file is added to it."""
        self._write(
            "INSERT INTO losses VALUES(?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET at=excluded.at, "
            "in_vault=excluded.in_vault, "
            "nowhere=max(nowhere, excluded.nowhere), size=max(size, excluded.size)",
            (kind, session_id, path, int(time.time()), in_vault, nowhere, size),
        )
        self._paths.add(path)

    def made_good(self, path: str, size: int) -> None:
        """Forgets the losses of a file that is there again, at its old size or nearly."""
        if path in self._paths:
            self._write(
                "DELETE FROM losses WHERE path=? AND size<=?*2 AND (nowhere=0 OR kind='vanished' OR size<=?)",
                (path, size, size),
            )
            self._paths = {p for (p,) in self._db.execute("SELECT path FROM losses")}

    def _write(self, sql: str, values: tuple[str | int, ...]) -> None:
        try:
            self._db.execute(sql, values)
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError) as fault:
            raise StorageFault(f"the Ledger could not be written: {fault}", "free space, then try again") from fault

    def losses(self) -> list[Loss]:
        return [
            Loss(*row)
            for row in self._db.execute("SELECT kind,session_id,path,at,in_vault,nowhere FROM losses ORDER BY at")
        ]

    def close(self) -> None:
        self._db.close()
