"""The care of the Map: its totals, its full text, its WAL.

When it is due is left to the indexer and the daemon.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import apsw

from . import schema as s
from .database import BULK_CACHE_KB, BUSY_MS, CACHE_KB, CHECKPOINT_PAGES
from .map import Map


class Care:
    """Works on the writer's connection."""

    def __init__(self, map_: Map) -> None:
        self.map = map_
        self.db: Any = map_.db
        self.loading = False
        """a bulk load was begun and not ended"""

    def counts(self) -> dict[str, int]:
        """Totals of the Map."""
        one = self.map._one
        return {
            "files": one("SELECT count(*) FROM files"),
            "records": one("SELECT count(*) FROM records WHERE length(uuid)=16"),
            "no_uuid": one("SELECT count(*) FROM copies c JOIN records r ON r.id=c.record WHERE length(r.uuid)<>16"),
            "unparsed": one("SELECT count(*) FROM gaps WHERE kind=1"),
            "pending_bytes": one("SELECT coalesce(sum(length),0) FROM gaps WHERE kind=2"),
            "threads": one(f"SELECT count(*) FROM threads t WHERE prompt IS NOT NULL AND {s.OWN_THREAD}"),
        }

    def fts_damaged(self) -> str | None:
        """FTS5's own integrity check: what it says, None if all is well (case C03)."""
        try:
            self.db.execute("INSERT INTO fts(fts,rank) VALUES('integrity-check',0)")
        except (apsw.BusyError, apsw.LockedError):
            return None  # another process writes: no word about damage
        except apsw.Error as fault:
            return str(fault)
        return None

    def start_fts(self) -> None:
        """Empties the full text; every file owes its texts from then on, also after a kill."""
        with self.map.transaction("fts"):
            self.db.execute("DROP TABLE IF EXISTS fts")
            self.db.execute(s.MAP[s.MAP.index("CREATE VIRTUAL TABLE fts") :])
            self.db.execute("INSERT OR IGNORE INTO owed SELECT id FROM files")

    def texts_owed(self) -> list[int]:
        """The files whose texts a rebuild of the full text has not written yet."""
        return [file for (file,) in self.db.execute("SELECT file FROM owed ORDER BY file")]

    def texts_written(self, file: int) -> None:
        with self.map.transaction("fts"):
            self.db.execute("DELETE FROM owed WHERE file=?", (file,))

    def records_without_text(self, file: int) -> list[tuple[int, int, int, bytes]]:
        """(record, offset, length, digest) of the records read from a file that have no text yet."""
        found: list[tuple[int, int, int, bytes]] = self.db.execute(
            "SELECT r.id,r.offset,r.length,c.digest FROM copies c JOIN records r ON r.id=c.record AND r.file=c.file "
            "AND r.offset=c.offset WHERE c.file=? AND NOT EXISTS (SELECT 1 FROM fts_docsize d WHERE d.id=r.id) "
            "ORDER BY c.offset",
            (file,),
        ).fetchall()
        return found

    def add_texts(self, rows: Sequence[tuple[int, str, str, str]]) -> None:
        with self.map.transaction("fts"):
            self.db.executemany("INSERT INTO fts(rowid,text,thinking,parts) VALUES(?,?,?,?)", rows)

    def finish_bulk(self) -> None:
        """Ends a bulk load that a kill cut short."""
        if self.db.execute("SELECT 1 FROM fts_config WHERE k='automerge' AND v=0").fetchone():
            self.bulk(False)

    def bulk(self, on: bool) -> None:
        """Settings for a bulk load; its end merges the full text for good.

        `optimize` alone does nothing on a single segment, and a later append would pay for the merge: a row is added
        and taken away around it (PERFORMANCE, crisis merge).
        """
        if on:
            self.loading = True
            # 48 MB: pages written over and over go once.
            self.db.execute(f"PRAGMA cache_size=-{BULK_CACHE_KB}; PRAGMA wal_autocheckpoint=12000").fetchall()
            with self.map.transaction("bulk"):
                self._fts_settings(hashsize=16 << 20, automerge=0, crisismerge=2000)
            return
        with self.map.transaction("optimize"):
            # One page of a merge, left unfinished by the row below: segments then lie on two levels, and what optimize
            # makes of them lies above both, on level 3. Commits fill level 0, and 16 segments of a level become one of
            # the next, all on it read and written: on level 1 the large one is in the way after 240 commits (1 s of CPU
            # at 1 GB), on level 3 after 60,000.
            self._fts_settings(usermerge=2, merge=1)
        with self.map.transaction("optimize"):
            self.db.execute("INSERT INTO fts(rowid,text) VALUES(?,'x')", (self.map.next_record + 1_000_000,))
        with self.map.transaction("optimize"):
            # The settings go last: until then a new start sees that the load was not ended, and the row it left.
            self.db.execute("INSERT INTO fts(fts) VALUES('optimize')")
            rows = self.db.execute("SELECT id FROM fts_docsize WHERE id>=?", (self.map.next_record,)).fetchall()
            self.db.executemany("DELETE FROM fts WHERE rowid=?", rows)
            self._fts_settings(hashsize=1 << 20, automerge=4, crisismerge=16, usermerge=4)
        self.loading = False
        with self.map.transaction("vacuum"):
            self.db.execute("PRAGMA incremental_vacuum").fetchall()  # what the merge freed
        self.db.execute(f"PRAGMA cache_size=-{CACHE_KB}; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}").fetchall()
        self.checkpoint()

    def _fts_settings(self, **settings: int) -> None:
        for name, value in settings.items():
            self.db.execute("INSERT INTO fts(fts,rank) VALUES(?,?)", (name, value))

    def checkpoint(self) -> None:
        """Gives the WAL's space and the cached pages back, where no reader needs them; waits for nobody."""
        self.db.set_busy_timeout(0)
        try:
            with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.db.set_busy_timeout(BUSY_MS)
        self.db.execute("PRAGMA shrink_memory")
