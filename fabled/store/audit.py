"""Reads the Map as a whole and finds what contradicts itself; the SELECTs behind `fabled check`.

Comparing with the files is left to `check`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import apsw

from .batch import COUNTED
from .files import Stamp, unopened
from .schema import MAP_VERSION

Found = tuple[int, list[str]]
"""(things tested, faults in words)"""
Spans = list[tuple[int, int, bytes]]
Unchanged = Callable[[Stamp | None], bool]


class Audit:
    """A connection that only looks; one read transaction, so that the daemon may go on writing."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.db: Any = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as fault:
            raise unopened(path, fault) from None
        self.db.set_busy_timeout(5_000)

    def version_differs(self) -> bool:
        """Of a Map that can be told its version; damage is told by the checks."""
        try:
            return int(self.db.pragma("user_version")) != MAP_VERSION
        except (apsw.CorruptError, apsw.NotADBError):
            return False
        except apsw.Error as fault:
            raise unopened(self.path, fault) from None

    def close(self) -> None:
        self.db.close()

    def _one(self, sql: str) -> int:
        return int(self.db.execute(sql).fetchone()[0])

    @staticmethod
    def sound(look: Callable[[], Found]) -> Found:
        """What a look at the Map found; where its pages cannot be read, that."""
        try:
            return look()
        except apsw.Error as fault:
            return 1, [f"{fault}: fabled index moves it aside and builds it anew"]

    def quick_check(self) -> Found:
        faults = [str(row[0]) for row in self.db.execute("PRAGMA quick_check(20)") if row[0] != "ok"]
        return self._one("PRAGMA page_count"), faults

    @staticmethod
    def ledger_check(path: str) -> Found:
        if not os.path.exists(path):
            return 0, []
        try:
            db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        except apsw.Error as fault:
            return 1, [unopened(path, fault).message]
        try:
            db.set_busy_timeout(5_000)
            return 1, [str(row[0]) for row in db.execute("PRAGMA quick_check(20)") if row[0] != "ok"]
        except apsw.Error as fault:
            return 1, [str(fault)]
        finally:
            db.close()

    def full_text(self) -> Found:
        """FTS5's own check, then: every row belongs to a record."""
        faults = []
        try:
            self.db.execute("INSERT INTO fts(fts,rank) VALUES('integrity-check',0)")
        except (apsw.BusyError, apsw.LockedError):
            pass  # the daemon is writing; it checks by itself at its start
        except apsw.Error as fault:
            faults.append(f"full text index damaged: {fault}")
        rows = self._one("SELECT count(*) FROM fts_docsize")
        ghosts = self._one(
            "SELECT count(*) FROM fts_docsize d WHERE NOT EXISTS (SELECT 1 FROM records r WHERE r.id=d.id)"
        )
        if ghosts:
            faults.append(f"{ghosts} rows of text without a record")
        return rows, faults

    def copies(self) -> Found:
        faults = []
        for what, table, other in (
            ("copies without a file", "copies x", "files y WHERE y.id=x.file"),
            ("copies without a record", "copies x", "records y WHERE y.id=x.record"),
            ("records without a copy", "records x", "copies y WHERE y.record=x.id"),
            ("links without a record", "links x", "records y WHERE y.id=x.record"),
            ("citations without a record", "citations x", "records y WHERE y.id=x.record"),
            ("titles without a record", "titles x", "records y WHERE y.id=x.record"),
            ("spans without a file", "gaps x", "files y WHERE y.id=x.file"),
        ):
            sql = f"SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT 1 FROM {other})"
            number = self._one(sql)
            if number:
                faults.append(f"{number} {what}")
        return self.copies_count(), faults

    def copies_count(self) -> int:
        return self._one("SELECT count(*) FROM copies")

    def tiling(self) -> Found:
        rows = self.db.execute(
            "SELECT f.path, o FROM (SELECT file, offset AS o, offset-lag(e) OVER (PARTITION BY file ORDER BY offset) "
            "AS room FROM "
            "(SELECT file,offset,offset+length AS e FROM copies UNION ALL SELECT file,offset,offset+length FROM "
            "gaps)) JOIN files f ON f.id=file "
            "WHERE room<0"
        ).fetchall()
        return self._one("SELECT count(*) FROM files"), [
            f"{path}: spans overlap at byte {offset}" for path, offset in rows
        ]

    def best_pointers(self) -> Found:
        wrong = self._one(
            "SELECT count(*) FROM records r WHERE NOT EXISTS (SELECT 1 FROM copies c WHERE c.file=r.file AND "
            "c.offset=r.offset AND c.record=r.id "
            "AND c.length=r.length)"
        )
        faults = [f"{wrong} records point at no copy of theirs"] if wrong else []
        # Of a file half read or half forgotten the pointers are on their way.
        rows = self.db.execute(
            "SELECT r.id FROM records r JOIN (SELECT record FROM copies GROUP BY record HAVING count(*)>1) m ON "
            "m.record=r.id WHERE r.file NOT IN (SELECT file FROM doomed) AND NOT EXISTS (SELECT 1 FROM copies c JOIN "
            "files f ON f.id=c.file WHERE c.record=r.id AND NOT f.complete) AND (r.file,r.offset) IS NOT "
            "(SELECT c.file,c.offset FROM copies c JOIN files f ON f.id=c.file WHERE c.record=r.id "
            "AND f.id NOT IN (SELECT file FROM doomed) ORDER BY c.length DESC, f.rank, f.path, c.offset LIMIT 1)"
        ).fetchall()
        if rows:
            faults.append(f"{len(rows)} records are not read from their best copy")
        return self._one("SELECT count(*) FROM records"), faults

    def threads(self) -> Found:
        rows = self.db.execute(
            "SELECT h.id FROM threads h LEFT JOIN (SELECT thread, count(*) AS n, min(ts) AS a, max(ts) AS z, "
            f"{COUNTED} FROM records WHERE thread IS NOT NULL GROUP BY thread) r ON r.thread=h.id "
            "WHERE n IS NULL OR h.first_ts IS NOT a OR h.last_ts IS NOT z OR h.turns<>r.turns OR h.said<>r.said "
            "OR h.tokens<>r.tokens"
        ).fetchall()
        faults = [f"{len(rows)} threads do not count what their records say"] if rows else []
        lost = self._one(
            "SELECT count(*) FROM records r WHERE thread IS NOT NULL AND NOT EXISTS (SELECT 1 FROM threads h WHERE "
            "h.id=r.thread AND h.session=r.session)"
        )
        if lost:
            faults.append(f"{lost} records in a thread of another session, or of none")
        return self._one("SELECT count(*) FROM threads"), faults

    def unfinished(self) -> Found:
        """Work promised in an earlier commit; a running daemon has some at times, a finished index run none."""
        dirty, doomed, owed = (self._one(f"SELECT count(*) FROM {table}") for table in ("dirty", "doomed", "owed"))
        faults = []
        if dirty or doomed or owed:
            faults.append(
                f"{dirty} sessions to resolve, {doomed} files to forget, {owed} files whose text is not searchable: "
                "fabled index finishes them"
            )
        return dirty + doomed + owed, faults

    def _groups(self, sql: str, args: tuple[int, ...]) -> Iterator[tuple[str, Unchanged, Spans]]:
        current: int | None = None
        spans: Spans = []
        for file, offset, length, check in self.db.execute(sql, args):
            if file != current:
                if current is not None:
                    yield self._file(current, spans)
                current, spans = file, []
            spans.append((offset, length, check))
        if current is not None:
            yield self._file(current, spans)

    def _file(self, file: int, spans: Spans) -> tuple[str, Unchanged, Spans]:
        path, dev, ino, size, mtime_ns, complete = self.db.execute(
            "SELECT path,dev,ino,size,mtime_ns,complete FROM files WHERE id=?", (file,)
        ).fetchone()

        def unchanged(stamp: Stamp | None) -> bool:
            if stamp is None or not complete:
                return False
            return (stamp.dev, stamp.ino, stamp.size) == (dev, ino, size) and mtime_ns in (-1, stamp.mtime_ns)

        return path, unchanged, spans

    def every_copy(self) -> Iterator[tuple[str, Unchanged, Spans]]:
        return self._groups("SELECT file,offset,length,digest FROM copies ORDER BY file,offset", ())

    def some_best(self, number: int) -> Iterator[tuple[str, Unchanged, Spans]]:
        return self._groups(
            "SELECT c.file,c.offset,c.length,c.digest FROM records r JOIN copies c ON c.file=r.file AND "
            "c.offset=r.offset WHERE r.id IN "
            "(SELECT id FROM records ORDER BY random() LIMIT ?) ORDER BY c.file,c.offset",
            (number,),
        )
