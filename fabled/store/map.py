"""Stores what a file holds, forgets what vanished, chooses best copies.

Finding out what changed is left to `indexer`; which thread a record belongs to, to `memberships`; answering users,
to `queries`. Every public method that writes is one transaction, or a few bounded ones that each leave the Map in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw

from ..errors import StorageFault
from ..transcript import text as t
from . import schema as s
from .batch import AGENTS, COUNTED, MEMBERSHIP, Batch, FileRow, Reread, short_key, text_row
from .lookups import Lookups
from .vault import Place

FORGET_SLICE = 4_000
"""Copies forgotten in one transaction."""


class Map(Lookups):
    """One per process, used by one OS thread: the writer."""

    def new_file(self, batch: Batch, place: Place, replaces: FileRow | None) -> FileRow:
        """A row for a file about to be read whole, stored with the batch."""
        agent = self.name(place.agent) if place.agent is not None else None
        number = self._next_file
        self._next_file += 1
        old = replaces.id if replaces is not None else None
        batch.files.append((number, place.path, place.folder, agent, place.generation, place.rank, old, -1))
        return FileRow(
            number,
            place.path,
            place.rank,
            agent,
            None,
            place.folder,
            None,
            (0, 0, 0, -1),
            0,
            1,
            None,
            False,
            old,
            False,
            False,
            None,
            None,
        )

    # Storing

    _CHANGE = (
        "UPDATE records SET type=?,kind=?,ts=?,parent=?,prompt=?,agent=?,tool=?,flags=?,file=?,offset=?,length=?,"
        "tokens=?,hidden=hidden&~2 WHERE id=?"
    )
    _RECORD = (
        "INSERT INTO records(id,session,uuid,type,kind,ts,thread,parent,prompt,agent,tool,flags,hidden,file,"
        "offset,length,tokens) "
        "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
    )

    def store(self, batch: Batch, file_update: Callable[[], None], name: str = "slice") -> None:
        """Stores one slice and what it says of its file, in one transaction."""
        db = self.db
        with self.transaction(name):
            db.executemany(
                "INSERT INTO files(id,path,folder,agent,generation,rank,replaces,mtime_ns) VALUES(?,?,?,?,?,?,?,?)",
                batch.files,
            )
            if batch.rewritten:
                self._forget_texts(batch.rewritten)
                db.executemany(
                    self._CHANGE,
                    batch.changed,
                )
            db.executemany(self._RECORD, batch.records)
            db.executemany("INSERT OR REPLACE INTO copies VALUES(?,?,?,?,?,?)", batch.copies)
            if batch.texts:
                db.executemany("INSERT INTO fts(rowid,text,thinking,parts) VALUES(?,?,?,?)", batch.texts)
            if batch.gaps:
                db.executemany("INSERT OR REPLACE INTO gaps VALUES(?,?,?,?,?)", batch.gaps)
            if batch.links:
                db.executemany("INSERT OR IGNORE INTO links VALUES(?,?,?,?)", batch.links)
            if batch.touches:
                db.executemany("INSERT OR IGNORE INTO touches(path,record) VALUES(?,?)", batch.touches)
            if batch.titles:
                db.executemany("INSERT OR REPLACE INTO titles VALUES(?,?,?,?,?)", batch.titles)
            if batch.citations:
                db.executemany("INSERT OR IGNORE INTO citations VALUES(?,?)", batch.citations)
            if batch.moved:
                db.executemany("UPDATE records SET file=?,offset=?,length=? WHERE id=? AND file=?", batch.moved)
            if batch.pointers:
                db.executemany("UPDATE records SET file=?1,offset=?2,length=?3,agent=?5 WHERE id=?4", batch.pointers)
            if batch.file_sessions:
                db.executemany("INSERT OR IGNORE INTO file_sessions VALUES(?,?)", batch.file_sessions)
            self._fold_queued(batch)
            self._shared(batch)
            if batch.threads:
                db.executemany(
                    "UPDATE threads SET turns=turns+?, said=said+?, tokens=tokens+?, "
                    "first_ts=min(coalesce(first_ts,?4),coalesce(?4,first_ts)),"
                    "last_ts=max(coalesce(last_ts,?5),coalesce(?5,last_ts)) WHERE id=?6",
                    ((*v[:5], thread) for thread, v in batch.threads.items()),
                )
                db.executemany(
                    "UPDATE threads SET title=?1,title_record=?2,title_rank=?3 WHERE id=?4 AND "
                    "(title_rank>?3 OR (title_rank=?3 AND title='' AND ?1<>''))",
                    ((v[7], v[6], v[5], thread) for thread, v in batch.threads.items() if v[6] is not None),
                )
                db.executemany("INSERT OR IGNORE INTO terms_due VALUES(?)", ((thread,) for thread in batch.threads))
            for session, source in batch.forks.items():
                db.execute("UPDATE sessions SET forked_from=? WHERE id=? AND forked_from IS NULL", (source, session))
            for session, what in batch.dirty.items():
                self._dirty(session, what)
            file_update()
            for session in self._regrouped:
                self.set_project(session)
            self._regrouped.clear()

    def _dirty(self, session: int, what: int) -> None:
        self.db.execute(
            "INSERT INTO dirty VALUES(?,?) ON CONFLICT DO UPDATE SET what=what|excluded.what", (session, what)
        )

    def _fold_queued(self, batch: Batch) -> None:
        """Hides a queued text that a prompt, or a queued command, repeats (case A13), whichever came first."""
        repeated: list[tuple[int, int, int]] = []
        said: dict[tuple[int, int], bool] = {}
        for session, kind, key, record in batch.links:
            if kind not in (s.SAID_PROMPT, s.SAID_COMMAND, s.SAID_QUEUE):
                continue
            if (
                kind > s.SAID_PROMPT
                and self.db.execute(
                    "SELECT 1 FROM links WHERE session=? AND kind>=? AND kind<? AND key=?",
                    (session, s.SAID_PROMPT, kind, key),
                ).fetchone()
            ):
                self._fold(record)
            for later in range(kind + 1, s.SAID_QUEUE + 1):
                if (session, later) not in said:
                    said[session, later] = self.has_links(session, later)
                if said[session, later]:
                    repeated.append((session, later, key))
        sql = "SELECT record FROM links WHERE session=? AND kind=? AND key=?"
        for wanted in repeated:
            for (record,) in self.db.execute(sql, wanted).fetchall():
                self._fold(record)

    def _fold(self, record: int) -> None:
        """Hides one record, which is no turn of its thread any more."""
        row = self.db.execute(f"SELECT thread, {COUNTED} FROM records WHERE id=? AND hidden&2=0", (record,)).fetchone()
        if row[0] is not None:
            thread, turns, _, tokens = row
            self.db.execute("UPDATE threads SET turns=turns-?, tokens=tokens-? WHERE id=?", (turns, tokens, thread))
        self.db.execute("UPDATE records SET hidden=hidden|2 WHERE id=?", (record,))

    def _shared(self, batch: Batch) -> None:
        """Notes which sessions share records with the new ones: their memberships depend on each other."""
        if not batch.records:
            return
        pairs = self.db.execute(
            "SELECT DISTINCT a.session,b.session FROM records a JOIN records b ON b.uuid=a.uuid AND "
            "b.session<>a.session "
            "WHERE a.id>=? AND length(a.uuid)=16",
            (batch.first_id,),
        ).fetchall()
        for a, b in pairs:
            self.db.execute("INSERT OR IGNORE INTO shares VALUES(?,?),(?,?)", (a, b, b, a))
            self._dirty(a, MEMBERSHIP)
            self._dirty(b, MEMBERSHIP)

    def save_file(
        self,
        file: FileRow,
        *,
        stamp: tuple[int, int, int, int] | None,
        complete: bool,
        root: tuple[bytes, str | None, bytes | None] | None,
    ) -> None:
        """Stores how far a file is indexed; inside the transaction of its copies (DESIGN, invariant 5)."""
        if stamp is not None:
            file.stamp = stamp
        file.complete = complete
        self.db.execute(
            "UPDATE files SET session=?,project=?,dev=?,ino=?,size=?,mtime_ns=?,resume_offset=?,resume_line=?,tail=?,"
            "complete=?,"
            "has_prompts=?,guessed=?,current=? WHERE id=?",
            (
                file.session, file.project, *file.stamp, file.resume_offset, file.resume_line, file.tail, complete,
                file.has_prompts, file.guessed, file.current, file.id,
            ),
        )  # fmt: skip
        if root is not None:
            self.db.execute("UPDATE files SET root_uuid=?,root_prompt=?,root_source=? WHERE id=?", (*root, file.id))
        if complete:
            if file.replaces is not None:
                self.db.execute("DELETE FROM file_sessions WHERE file=?", (file.id,))
                self.db.execute(
                    "INSERT INTO file_sessions SELECT DISTINCT r.session,c.file FROM copies c JOIN records r ON "
                    "r.id=c.record WHERE c.file=?",
                    (file.id,),
                )
                row = self.db.execute(
                    "SELECT r.session FROM copies c JOIN records r ON r.id=c.record WHERE c.file=? "
                    "ORDER BY c.offset LIMIT 1",
                    (file.id,),
                ).fetchone()
                file.session = row[0] if row else None  # what the old content said of it may be gone
                self.db.execute("UPDATE files SET session=? WHERE id=?", (file.session, file.id))
                self.db.execute("INSERT OR IGNORE INTO doomed VALUES(?)", (file.replaces,))
                self.db.execute("UPDATE OR IGNORE owed SET file=? WHERE file=?", (file.id, file.replaces))
                self.db.execute("UPDATE files SET replaces=NULL WHERE id=?", (file.id,))
                file.replaces = None
            self._projects(file.id)

    def _projects(self, file: int) -> None:
        """Notes the sessions of a file: each gets its project once, however many files of it a transaction stores."""
        self._regrouped.update(self.sessions_of(file))

    def set_project(self, session: int) -> None:
        """The project of a session is that of its main file, live before generations."""
        row = self.db.execute(
            "SELECT f.project,f.folder FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? "
            "ORDER BY f.project IS NULL, f.agent IS NOT NULL, f.rank DESC, f.path LIMIT 1",
            (session,),
        ).fetchone()
        if row:
            self.db.execute("UPDATE sessions SET project=?, folder=? WHERE id=?", (row[0] or row[1], row[1], session))

    def replace_gaps(self, file: int, offset: int, gaps: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Sets the spans without record from an offset on; inside the transaction of the file's copies."""
        self.db.execute("DELETE FROM gaps WHERE file=? AND offset>=?", (file, offset))
        self.db.executemany("INSERT OR REPLACE INTO gaps VALUES(?,?,?,?,?)", gaps)

    def save_meta(self, file: int, stamp: int | None, call: int | None) -> None:
        """Stores what a subagent's description says of the call that launched it."""
        with self.transaction("meta"):
            self.set_meta(file, stamp, call)

    def set_meta(self, file: int, stamp: int | None, call: int | None) -> None:
        """The same inside a transaction."""
        self.db.execute("UPDATE files SET meta_stamp=?,meta_call=? WHERE id=?", (stamp, call, file))
        row = self.db.execute("SELECT session FROM files WHERE id=?", (file,)).fetchone()
        if row and row[0] is not None:
            self._dirty(row[0], AGENTS)

    # The first pass

    def is_whole(self) -> bool:
        """Whether everything there was has been read once."""
        return bool(self._one("SELECT EXISTS (SELECT 1 FROM whole)"))

    def mark_whole(self, at: int) -> None:
        """Notes that it has; `at` in seconds since 1970."""
        with self.transaction("whole"):
            self.db.execute("INSERT INTO whole VALUES(?)", (at,))

    # Forgetting

    def doom(self, files: Iterable[int]) -> None:
        """Promises to forget files that are gone."""
        with self.transaction("doom"):
            self.db.executemany("INSERT OR IGNORE INTO doomed VALUES(?)", ((f,) for f in files))

    def doomed(self) -> list[int]:
        return [f for (f,) in self.db.execute("SELECT file FROM doomed ORDER BY file")]

    def forget(self, file: int, reread: Reread) -> tuple[int, int]:
        """Forgets a doomed file, slice by slice: (records that another copy keeps, records gone for good).

        A record whose best copy was there falls to its next best; its facts are read again where its bytes differ.
        """
        kept = gone = 0
        sessions = [x for (x,) in self.db.execute("SELECT session FROM file_sessions WHERE file=?", (file,))]
        owed = self.db.execute("SELECT 1 FROM owed WHERE file=?", (file,)).fetchone() is not None
        while True:
            rows = self.db.execute(
                "SELECT offset,digest,record FROM copies WHERE file=? ORDER BY offset LIMIT ?", (file, FORGET_SLICE)
            ).fetchall()
            with self.transaction("forget"):
                self.db.executemany("DELETE FROM copies WHERE file=? AND offset=?", ((file, o) for o, _, _ in rows))
                moved, lost = self._fall_back(file, rows, reread)
                kept += moved
                gone += lost
                if owed:  # whatever takes over its records takes over its debt
                    self.db.executemany(
                        "INSERT OR IGNORE INTO owed SELECT file FROM records WHERE id=?", ((r,) for _, _, r in rows)
                    )
                if len(rows) < FORGET_SLICE:
                    self.db.execute("DELETE FROM owed WHERE file=?", (file,))
                    self.db.execute("DELETE FROM gaps WHERE file=?", (file,))
                    self.db.execute("DELETE FROM file_sessions WHERE file=?", (file,))
                    self.db.execute("DELETE FROM files WHERE id=?", (file,))
                    self.db.execute("DELETE FROM doomed WHERE file=?", (file,))
                for session in sessions:
                    self._dirty(session, MEMBERSHIP | AGENTS)
            if len(rows) < FORGET_SLICE:
                return kept, gone

    def overwrite_freed(self, on: bool) -> None:
        """Whether what is forgotten is also overwritten in the file; it costs time, so only where somebody asks."""
        self.db.execute(f"PRAGMA secure_delete={int(on)}")

    def drop_unused(self) -> None:
        """Takes away texts that nothing refers to any more, and what earlier states of the file's pages still show."""
        used = " UNION ".join(
            f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
            for table, column in (
                ("records", "type"), ("records", "prompt"), ("records", "agent"), ("records", "tool"),
                ("files", "agent"), ("touches", "path"), ("terms", "term"),
            )
        )  # fmt: skip
        with self.transaction("names"):
            for table in ("terms", "terms_of", "terms_due"):
                self.db.execute(f"DELETE FROM {table} WHERE thread NOT IN (SELECT id FROM threads)")
            self.db.execute(
                f"DELETE FROM names WHERE id NOT IN ({used} UNION SELECT key FROM links WHERE kind={s.FORK})"
            )
        self.forget_numbers()
        try:
            self.db.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
        except (apsw.FullError, apsw.BusyError, apsw.LockedError) as fault:
            hint = "free space; what was begun is ended at the next start"
            raise StorageFault(f"the Map could not be cleaned: {fault}", hint) from fault

    def _fall_back(self, file: int, rows: Sequence[tuple[int, bytes, int]], reread: Reread) -> tuple[int, int]:
        """Gives the records read from spans that are gone their next best copy, or forgets them: (kept, gone)."""
        db = self.db
        gone: list[int] = []
        kept = 0
        again: list[tuple[int, int, t.Facts, tuple[int, int, int, int | None]]] = []
        for offset, digest, record in rows:
            best = db.execute("SELECT file,offset,session FROM records WHERE id=?", (record,)).fetchone()
            if best is None or best[:2] != (file, offset):
                continue
            row = db.execute(
                "SELECT c.file,c.offset,c.length,f.agent,c.digest,f.path FROM copies c JOIN files f ON f.id=c.file "
                "WHERE c.record=? ORDER BY c.length DESC, f.rank, f.path, c.offset LIMIT 1",
                (record,),
            ).fetchone()
            if row is None:
                gone.append(record)
                continue
            kept += 1
            facts = reread(row[5], row[1], row[2], row[4]) if row[4] != digest else None
            if facts is None:
                db.execute("UPDATE records SET file=?,offset=?,length=?,agent=? WHERE id=?", (*row[:4], record))
            else:
                again.append((record, best[2], facts, row[:4]))
        self._forget_texts([*gone, *(record for record, *_ in again)])
        db.executemany("DELETE FROM records WHERE id=?", ((record,) for record in gone))
        batch = Batch()
        for record, session, facts, where in again:
            tool = self.name(facts.tool) if facts.tool is not None else self.tool_of(session, facts.answers)
            self.describe(batch, record, session, facts, (*where, tool))
        self.write_new()
        db.executemany(self._CHANGE, batch.changed)
        self._add_text(batch)
        return kept, len(gone)

    def _add_text(self, batch: Batch) -> None:
        self.db.executemany("INSERT INTO fts(rowid,text,thinking,parts) VALUES(?,?,?,?)", batch.texts)
        self.db.executemany("INSERT OR IGNORE INTO links VALUES(?,?,?,?)", batch.links)
        self.db.executemany("INSERT OR IGNORE INTO touches(path,record) VALUES(?,?)", batch.touches)
        self.db.executemany("INSERT OR REPLACE INTO titles VALUES(?,?,?,?,?)", batch.titles)
        self.db.executemany("INSERT OR IGNORE INTO citations VALUES(?,?)", batch.citations)

    def _forget_texts(self, records: Sequence[int]) -> None:
        """Takes away what records say: text, citations, titles, links.

        For many at once, because links have no index by record: they are found by one look through each session's.
        """
        if not records:
            return
        db = self.db
        db.execute("CREATE TEMP TABLE IF NOT EXISTS going(record INTEGER PRIMARY KEY)")
        db.executemany("INSERT OR IGNORE INTO going VALUES(?)", ((record,) for record in records))
        for table, column in (("fts", "rowid"), ("citations", "record"), ("titles", "record"), ("touches", "record")):
            db.executemany(f"DELETE FROM {table} WHERE {column}=?", ((record,) for record in records))
        db.execute(
            "UPDATE threads SET title_record=NULL,title_rank=99 WHERE id IN (SELECT r.thread FROM going g "
            "JOIN records r ON r.id=g.record) AND title_record IN (SELECT record FROM going)"
        )
        sessions = db.execute("SELECT DISTINCT r.session FROM going g JOIN records r ON r.id=g.record").fetchall()
        db.executemany("DELETE FROM links WHERE session=? AND record IN (SELECT record FROM going)", sessions)
        db.execute("DELETE FROM going")

    # Describing one record

    def describe(
        self, batch: Batch, record: int, session: int, f: t.Facts, where: tuple[int, int, int, int | None, int | None]
    ) -> None:
        """Adds to a batch what the facts of a record become: its changed row, text and links (all but its thread).

        `where`: file, offset, length, subagent and tool of the copy.
        """
        file, offset, length, agent, tool = where
        flags = (t.SIDECHAIN if f.sidechain else 0) | (t.FORKED if f.forked_from else 0) | (t.STARTS if f.starts else 0)
        batch.changed.append(
            (
                self.name(f.type), f.kind, f.ts, f.parent, self.name(f.prompt) if f.prompt is not None else None, agent,
                tool, flags, file, offset, length, f.tokens, record,
            )
        )  # fmt: skip
        self.extras(batch, record, session, f)

    def extras(self, batch: Batch, record: int, session: int, f: t.Facts) -> None:
        """Adds a record's text, links, title and citations to a batch."""
        if f.text or f.thinking:
            batch.texts.append(text_row(record, f))
        links = batch.links
        for call in f.calls:
            links.append((session, s.CALL, t.key64(call), record))
        if f.answers is not None:
            links.append((session, s.ANSWER, t.key64(f.answers), record))
        if f.spawned is not None:
            links.append((session, s.SPAWN, t.key64(f.spawned), record))
        for prompt in f.task_prompts:
            links.append((session, s.TASK, t.key64(prompt), record))
        if f.said is not None:
            kind = s.SAID_PROMPT if f.type == "user" else s.SAID_COMMAND if f.type == "attachment" else s.SAID_QUEUE
            links.append((session, kind, f.said, record))
        if f.sidechain and f.parent is None and f.kind == t.PROMPT:
            links.append((session, s.SIDE, t.key64(f.text), record))
        if f.forked_from is not None:
            links.append((session, s.FORK, self.name(f.forked_from), record))
        if f.alias is not None:
            links.append((session, s.ALIAS, short_key(f.alias), record))
        for number in f.notified:
            links.append((session, s.NOTIFIED, t.key64(number), record))
        for path in f.files:
            batch.touches.append((self.name(path), record))
        if f.title is not None:
            batch.titles.append(
                (record, None if f.title[2] is not None else session, f.title[2], f.title[0], f.title[1])
            )
        for ref in f.citations:
            batch.citations.append((record, ref))

    def dirty(self) -> list[tuple[int, int]]:
        """(session, what) of the sessions that must be resolved as a whole."""
        return list(self.db.execute("SELECT session,what FROM dirty ORDER BY session"))
