"""The one writing connection to the Map: stores what a file holds, forgets what vanished, chooses best copies.

Finding out what changed is left to `indexer`; answering users, to `queries`.

Every public method that writes is one transaction, or a few bounded ones that each leave the Map in order.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from ..errors import NewerSchema, StorageFault
from ..transcript import text as t
from ..transcript import threads as th
from ..transcript.record import uuid_text
from . import schema as s
from .vault import Place

TURNS = f"({t.PROMPT},{t.REPLY},{t.CALL},{t.RESULT},{t.SUMMARY},{t.COMMAND})"
TURN_KINDS = frozenset((t.PROMPT, t.REPLY, t.CALL, t.RESULT, t.SUMMARY, t.COMMAND))
TITLE_RANK = {t.PROMPT: 1, t.COMMAND: 2, t.NOTICE: 3, t.SUMMARY: 4, t.QUEUED: 5, t.REPLY: 6, t.CALL: 7, t.RESULT: 8}
MEMBERSHIP, AGENTS = 1, 2
"""Bits of `dirty.what`."""
FORGET_SLICE = 4_000
"""Copies forgotten in one transaction."""
Reread = Callable[[str, int, int], t.Facts | None]
"""Reads a span again and says what it holds; None where it cannot be read."""


def title_of(facts: t.Facts) -> str:
    """A one-line title from a record's text."""
    return " ".join((facts.text or facts.thinking)[: 2 * t.TITLE_LIMIT].split())[: t.TITLE_LIMIT]


@dataclass(slots=True)
class FileRow:
    """What the Map remembers of a file."""

    id: int
    path: str
    rank: int
    agent: int | None
    session: int | None
    folder: str | None
    project: str | None
    stamp: tuple[int, int, int, int]
    """dev, ino, size, mtime_ns (-1: too young to prove anything)"""
    resume_offset: int
    resume_line: int
    tail: bytes | None
    complete: bool
    replaces: int | None
    has_prompts: bool
    guessed: bool
    current: str | None
    """key of the thread that runs where the file ends"""
    meta_stamp: int | None

    @property
    def order(self) -> tuple[int, str]:
        return self.rank, self.path


@dataclass(slots=True)
class Known:
    """A record the Map holds, as far as a new copy of it needs."""

    id: int
    file: int
    offset: int
    length: int
    digest: bytes | None


@dataclass(slots=True)
class Batch:
    """Rows gathered for one transaction."""

    files: list[tuple[Any, ...]] = field(default_factory=list)
    copies: list[tuple[int, int, int, int, bytes, int]] = field(default_factory=list)
    records: list[tuple[Any, ...]] = field(default_factory=list)
    texts: list[tuple[int, str, str, str]] = field(default_factory=list)
    gaps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    links: list[tuple[int, int, int, int]] = field(default_factory=list)
    touches: list[tuple[int, int]] = field(default_factory=list)
    titles: list[tuple[int, int | None, bytes | None, int, str]] = field(default_factory=list)
    citations: list[tuple[int, str]] = field(default_factory=list)
    moved: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(file, offset, length, record, file it is moved from): a best pointer that follows its bytes"""
    pointers: list[tuple[int, int, int, int, int | None]] = field(default_factory=list)
    rewritten: list[int] = field(default_factory=list)
    """records whose text and links are replaced in this transaction"""
    changed: list[tuple[Any, ...]] = field(default_factory=list)
    threads: dict[int, list[Any]] = field(default_factory=dict)
    """thread → [turns, tokens, first_ts, last_ts, title rank, title record, title]"""
    forks: dict[int, str] = field(default_factory=dict)
    dirty: dict[int, int] = field(default_factory=dict)
    file_sessions: set[tuple[int, int]] = field(default_factory=set)
    first_id: int = 0
    weight: int = 0

    def mark(self, session: int, what: int) -> None:
        self.dirty[session] = self.dirty.get(session, 0) | what


class Map:
    """Owner of the writing connection. One per process, used by one OS thread: the writer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rebuilt: str | None = None
        """why the Map was begun anew, in words"""
        self.before_commit: Callable[[str], None] | None = None
        """called with a name before every commit; the crash tests die here"""
        self._open()

    # Opening

    def _open(self) -> None:
        fresh = not os.path.exists(self.path)
        try:
            self._connect()
        except (apsw.NotADBError, apsw.CorruptError):
            self._put_aside("it was damaged")
            fresh = True
        except apsw.Error as fault:
            raise StorageFault(f"{self.path} cannot be opened: {fault}", "see that the folder is writable and the disk not full") from None
        version = int(self.db.pragma("user_version"))
        if version > s.MAP_VERSION:
            self.db.close()
            raise NewerSchema(
                f"{self.path} was written by a newer fabled (schema {version}, this one knows {s.MAP_VERSION}); it was left alone",
                "update fabled, or point FABLED_HOME at another folder",
            )
        if version != s.MAP_VERSION:
            if not fresh and version:
                self.rebuilt = f"schema {version} became {s.MAP_VERSION}"
                self._remove()
                self._connect()
            elif not fresh and self.db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
                self._put_aside("it was no Map")
            try:
                self.db.execute(
                    f"BEGIN IMMEDIATE; {s.MAP} PRAGMA application_id={s.APPLICATION_ID}; PRAGMA user_version={s.MAP_VERSION}; COMMIT"
                )
            except apsw.Error as fault:
                raise StorageFault(f"{self.path} cannot be made: {fault}", "free space, then try again") from None
        self._caches()

    def _connect(self) -> None:
        self.db = apsw.Connection(self.path)
        self.db.set_busy_timeout(5_000)  # before journal_mode, which needs a lock itself (RULES 18)
        self.db.execute(
            "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-24000; PRAGMA temp_store=MEMORY;"
            "PRAGMA journal_size_limit=33554432; PRAGMA wal_autocheckpoint=4000"
        )
        self.db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        for name in (self.path, self.path + "-wal", self.path + "-shm"):
            if os.path.exists(name):
                os.chmod(name, 0o600)

    def _remove(self) -> None:
        self.db.close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + suffix)

    def _put_aside(self, why: str) -> None:
        with contextlib.suppress(apsw.Error, AttributeError):
            self.db.close()
        aside = f"{self.path}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
        os.rename(self.path, aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path + suffix, aside + suffix)
        self.rebuilt = f"{why}; it was moved to {aside}"
        self._connect()

    def _caches(self) -> None:
        """Forgets what was looked up, and numbers given but not stored."""
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._threads: dict[tuple[int, str | None], int] = {}
        self._new_names: list[tuple[int, str]] = []
        self._new_sessions: list[tuple[int, str]] = []
        self._new_threads: list[tuple[int, int, str | None]] = []
        self.next_record, self._next_name, self._next_session, self._next_thread, self._next_file = (
            self._one(f"SELECT coalesce(max(id),0)+1 FROM {table}") for table in ("records", "names", "sessions", "threads", "files")
        )

    def _write_new(self) -> None:
        """Stores the names, sessions and threads that were given numbers since the last transaction."""
        if self._new_names:
            self.db.executemany("INSERT INTO names VALUES(?,?)", self._new_names)
            self._new_names = []
        if self._new_sessions:
            self.db.executemany("INSERT INTO sessions(id,session_id) VALUES(?,?)", self._new_sessions)
            self._new_sessions = []
        if self._new_threads:
            self.db.executemany("INSERT INTO threads(id,session,prompt) VALUES(?,?,?)", self._new_threads)
            self._new_threads = []
        for cache in (self._names, self._sessions, self._threads):
            if len(cache) > 50_000:
                cache.clear()

    def _one(self, sql: str, *args: Any) -> Any:
        return self.db.execute(sql, args).fetchone()[0]

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()

    @contextlib.contextmanager
    def transaction(self, name: str) -> Iterator[None]:
        """One write transaction. Raises StorageFault where the disk or another process prevents it."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                self._write_new()
                yield
                self._write_new()
                if self.before_commit is not None:
                    self.before_commit(name)
                self.db.execute("COMMIT")
            except BaseException:
                if not self.db.get_autocommit():
                    self.db.execute("ROLLBACK")
                self._caches()
                raise
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError) as fault:
            raise StorageFault(f"the Map could not be written: {fault}", "free space or wait; nothing half-done was kept") from fault

    # Names

    # A number may be given before its row is stored: the next transaction stores it.

    def name(self, text: str) -> int:
        """The number of an interned text."""
        found = self._names.get(text)
        if found is None:
            row = self.db.execute("SELECT id FROM names WHERE text=?", (text,)).fetchone()
            if row is not None:
                found = row[0]
            else:
                found = self._next_name
                self._next_name += 1
                self._new_names.append((found, text))
            self._names[text] = found
        return found

    def name_text(self, number: int | None) -> str | None:
        row = self.db.execute("SELECT text FROM names WHERE id=?", (number,)).fetchone()
        return row[0] if row else None

    def session(self, session_id: str) -> tuple[int, bool]:
        """(number, whether it is new)."""
        found = self._sessions.get(session_id)
        if found is not None:
            return found, False
        row = self.db.execute("SELECT id FROM sessions WHERE session_id=?", (session_id,)).fetchone()
        if row is not None:
            found = row[0]
        else:
            found = self._next_session
            self._next_session += 1
            self._new_sessions.append((found, session_id))
        self._sessions[session_id] = found
        return found, row is None

    def known_session(self, session_id: str) -> int | None:
        """The number of a session met in this process, if it was."""
        return self._sessions.get(session_id)

    def session_name(self, number: int) -> str:
        return str(self._one("SELECT session_id FROM sessions WHERE id=?", number))

    def thread(self, session: int, key: str | None) -> int:
        """The number of a session's thread; key None: its unattached records."""
        found = self._threads.get((session, key))
        if found is None:
            row = self.db.execute("SELECT id FROM threads WHERE session=? AND prompt IS ?", (session, key)).fetchone()
            if row is not None:
                found = row[0]
            else:
                found = self._next_thread
                self._next_thread += 1
                self._new_threads.append((found, session, key))
            self._threads[(session, key)] = found
        return found

    # Files

    _FILE = (
        "SELECT id,path,rank,agent,session,folder,project,dev,ino,size,mtime_ns,resume_offset,resume_line,tail,complete,"
        "replaces,has_prompts,guessed,current,meta_stamp FROM files"
    )

    @staticmethod
    def _file(row: Sequence[Any]) -> FileRow:
        return FileRow(
            *row[:7], stamp=(row[7], row[8], row[9], row[10]), resume_offset=row[11], resume_line=row[12], tail=row[13],
            complete=bool(row[14]), replaces=row[15], has_prompts=bool(row[16]), guessed=bool(row[17]), current=row[18],
            meta_stamp=row[19],
        )  # fmt: skip

    def files(self) -> Iterator[FileRow]:
        """All rows of files that are not on their way out."""
        for row in self.db.execute(self._FILE + " WHERE id NOT IN (SELECT file FROM doomed) ORDER BY id"):
            yield self._file(row)

    def file(self, number: int) -> FileRow | None:
        row = self.db.execute(self._FILE + " WHERE id=?", (number,)).fetchone()
        return self._file(row) if row else None

    def new_file(self, batch: Batch, place: Place, replaces: FileRow | None) -> FileRow:
        """A row for a file about to be read whole, stored with the batch."""
        agent = self.name(place.agent) if place.agent is not None else None
        number = self._next_file
        self._next_file += 1
        old = replaces.id if replaces is not None else None
        batch.files.append((number, place.path, place.folder, agent, place.generation, place.rank, old, -1))
        return FileRow(number, place.path, place.rank, agent, None, place.folder, None, (0, 0, 0, -1), 0, 1, None, False, old, False, False, None, None)

    # Looking up what is known

    def find(self, session: int, uuid: bytes) -> Known | None:
        row = self.db.execute(
            "SELECT r.id,r.file,r.offset,r.length,c.digest FROM records r "
            "LEFT JOIN copies c ON c.file=r.file AND c.offset=r.offset WHERE r.uuid=? AND r.session=?",
            (uuid, session),
        ).fetchone()
        return Known(*row) if row else None

    def parent(self, uuid: bytes, session: int, file: int) -> tuple[str | None, int, int] | None:
        """(thread key, kind, flags) of a record, in its own session or else in the same file; None if unknown."""
        chosen = "r.uuid=?1" if len(uuid) == 16 else "r.id IN (SELECT record FROM links WHERE session=?2 AND kind=?4 AND key=?5)"
        row = self.db.execute(
            f"SELECT t.prompt,r.kind,r.flags FROM records r LEFT JOIN threads t ON t.id=r.thread WHERE {chosen} AND r.agent IS NULL "
            "AND (r.session=?2 OR EXISTS (SELECT 1 FROM copies c WHERE c.record=r.id AND c.file=?3)) ORDER BY r.session<>?2, r.id LIMIT 1",
            (uuid, session, file, *((s.ALIAS, short_key(uuid)) if len(uuid) != 16 else ())),
        ).fetchone()
        return (row[0], row[1], row[2]) if row else None

    def linked(self, session: int, kind: int, key: int) -> list[int]:
        return [r for (r,) in self.db.execute("SELECT record FROM links WHERE session=? AND kind=? AND key=?", (session, kind, key))]

    def tool_of(self, session: int, call: str | None) -> int | None:
        """The tool of the call a result answers."""
        if call is not None:
            for record in self.linked(session, s.CALL, t.key64(call)):
                row = self.db.execute("SELECT tool FROM records WHERE id=?", (record,)).fetchone()
                if row:
                    return int(row[0]) if row[0] is not None else None
        return None

    def key_of_record(self, record: int) -> str | None:
        row = self.db.execute("SELECT t.prompt FROM records r JOIN threads t ON t.id=r.thread WHERE r.id=?", (record,)).fetchone()
        return row[0] if row else None

    def digests(self, file: int) -> dict[bytes, int]:
        """digest → record of a file's copies."""
        return dict(self.db.execute("SELECT digest,record FROM copies WHERE file=? ORDER BY offset DESC", (file,)))

    def samples(self, file: int, offsets: Iterable[int], below: int) -> list[tuple[int, int, bytes]]:
        """(offset, length, digest) of copies near the given offsets, all before `below`."""
        found = {}
        for offset in offsets:
            row = self.db.execute(
                "SELECT offset,length,digest FROM copies WHERE file=? AND offset>=? AND offset<? AND length<8192 ORDER BY offset LIMIT 1",
                (file, offset, below),
            ).fetchone()
            if row:
                found[row[0]] = row
        return list(found.values())

    def prefix(self, file: int, below: int) -> tuple[list[tuple[int, int, bytes]], bool]:
        """All copies of a (small) prefix, and whether it holds anything else."""
        rows = self.db.execute("SELECT offset,length,digest FROM copies WHERE file=? AND offset<?", (file, below)).fetchall()
        gap = self.db.execute("SELECT 1 FROM gaps WHERE file=? AND offset<? LIMIT 1", (file, below)).fetchone()
        return rows, gap is not None

    def from_offset(self, file: int, offset: int) -> dict[int, tuple[bytes, int, int]]:
        """offset → (digest, record, length) of the copies at or behind an offset."""
        rows = self.db.execute("SELECT offset,digest,record,length FROM copies WHERE file=? AND offset>=?", (file, offset))
        return {o: (d, r, n) for o, d, r, n in rows}

    def has_agents(self, session: int) -> bool:
        """Whether subagents' files of the session are stored."""
        sql = "SELECT 1 FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.agent IS NOT NULL LIMIT 1"
        return self.db.execute(sql, (session,)).fetchone() is not None

    def sessions_of(self, file: int) -> list[int]:
        return [x for (x,) in self.db.execute("SELECT session FROM file_sessions WHERE file=?", (file,))]

    def files_of(self, session: int, live: bool) -> list[int]:
        """The main files that hold records of a session: its live transcripts, or its generations."""
        return [
            x
            for (x,) in self.db.execute(
                "SELECT f.id FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.agent IS NULL AND (f.generation IS NULL)=?",
                (session, live),
            )
        ]

    def largest_generation(self, session: int) -> int | None:
        """Logical bytes of the session's largest generation."""
        row = self.db.execute(
            "SELECT max(f.resume_offset) FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.generation IS NOT NULL "
            "AND f.agent IS NULL AND f.complete",
            (session,),
        ).fetchone()
        return row[0] if row else None

    def only_in_generations(self, session: int, live: int) -> int:
        """Records of a session that its generations hold and its live transcript does not."""
        return int(
            self._one(
                "SELECT count(DISTINCT c.record) FROM file_sessions a JOIN files f ON f.id=a.file JOIN copies c ON c.file=f.id "
                "JOIN records r ON r.id=c.record WHERE a.session=? AND f.generation IS NOT NULL AND f.agent IS NULL AND length(r.uuid)=16 "
                "AND NOT EXISTS (SELECT 1 FROM copies l WHERE l.record=c.record AND l.file=?)",
                session,
                live,
            )
        )

    def root_of(self, file: int) -> tuple[bytes, str | None] | None:
        """(uuid, promptId) of the first record of a subagent's file, once stored."""
        row = self.db.execute("SELECT root_uuid,root_prompt FROM files WHERE id=? AND root_uuid IS NOT NULL", (file,)).fetchone()
        return (row[0], row[1]) if row else None

    def holds_main(self, session: int, but: int) -> bool:
        """Whether a main file other than `but` already holds records of the session."""
        return (
            self.db.execute(
                "SELECT 1 FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.agent IS NULL AND f.id<>? LIMIT 1",
                (session, but),
            ).fetchone()
            is not None
        )

    # Storing

    _RECORD = (
        "INSERT INTO records(id,session,uuid,type,kind,ts,thread,parent,prompt,agent,tool,flags,hidden,file,offset,length,tokens) "
        "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
    )

    def store(self, batch: Batch, file_update: Callable[[], None], name: str = "slice") -> None:
        """Stores one slice and what it says of its file, in one transaction."""
        db = self.db
        with self.transaction(name):
            db.executemany("INSERT INTO files(id,path,folder,agent,generation,rank,replaces,mtime_ns) VALUES(?,?,?,?,?,?,?,?)", batch.files)
            if batch.rewritten:
                for record in batch.rewritten:
                    self._forget_text(record)
                db.executemany(
                    "UPDATE records SET type=?,kind=?,ts=?,parent=?,prompt=?,agent=?,tool=?,flags=?,file=?,offset=?,length=?,tokens=? WHERE id=?",
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
                db.executemany("INSERT OR IGNORE INTO touches VALUES(?,?)", batch.touches)
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
                    "UPDATE threads SET turns=turns+?, tokens=tokens+?, first_ts=min(coalesce(first_ts,?3),coalesce(?3,first_ts)),"
                    "last_ts=max(coalesce(last_ts,?4),coalesce(?4,last_ts)) WHERE id=?5",
                    ((v[0], v[1], v[2], v[3], thread) for thread, v in batch.threads.items()),
                )
                db.executemany(
                    "UPDATE threads SET title=?1,title_record=?2,title_rank=?3 WHERE id=?4 AND title_rank>?3",
                    ((v[6], v[5], v[4], thread) for thread, v in batch.threads.items() if v[5] is not None),
                )
            for session, source in batch.forks.items():
                db.execute("UPDATE sessions SET forked_from=? WHERE id=? AND forked_from IS NULL", (source, session))
            for session, what in batch.dirty.items():
                self._dirty(session, what)
            file_update()

    def _dirty(self, session: int, what: int) -> None:
        self.db.execute("INSERT INTO dirty VALUES(?,?) ON CONFLICT DO UPDATE SET what=what|excluded.what", (session, what))

    def _fold_queued(self, batch: Batch) -> None:
        """Hides a queued text that a prompt, or a queued command, repeats (case A13), whichever came first."""
        for session, kind, key, record in batch.links:
            if kind not in (s.SAID_PROMPT, s.SAID_COMMAND, s.SAID_QUEUE):
                continue
            if kind > s.SAID_PROMPT and self.db.execute(
                "SELECT 1 FROM links WHERE session=? AND kind>=? AND kind<? AND key=?", (session, s.SAID_PROMPT, kind, key)
            ).fetchone():
                self.db.execute("UPDATE records SET hidden=hidden|2 WHERE id=?", (record,))
            for later in range(kind + 1, s.SAID_QUEUE + 1):
                for repeated in self.linked(session, later, key):
                    self.db.execute("UPDATE records SET hidden=hidden|2 WHERE id=?", (repeated,))

    def _shared(self, batch: Batch) -> None:
        """Notes which sessions share records with the new ones: their memberships depend on each other."""
        if not batch.records:
            return
        pairs = self.db.execute(
            "SELECT DISTINCT a.session,b.session FROM records a JOIN records b ON b.uuid=a.uuid AND b.session<>a.session "
            "WHERE a.id>=? AND length(a.uuid)=16",
            (batch.first_id,),
        ).fetchall()
        for a, b in pairs:
            self.db.execute("INSERT OR IGNORE INTO shares VALUES(?,?),(?,?)", (a, b, b, a))
            self._dirty(a, MEMBERSHIP)
            self._dirty(b, MEMBERSHIP)

    def save_file(
        self, file: FileRow, *, stamp: tuple[int, int, int, int] | None, complete: bool, root: tuple[bytes, str | None, bytes | None] | None
    ) -> None:
        """Stores how far a file is indexed; inside the transaction of its copies (DESIGN, invariant 5)."""
        if stamp is not None:
            file.stamp = stamp
        file.complete = complete
        self.db.execute(
            "UPDATE files SET session=?,project=?,dev=?,ino=?,size=?,mtime_ns=?,resume_offset=?,resume_line=?,tail=?,complete=?,"
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
                    "INSERT INTO file_sessions SELECT DISTINCT r.session,c.file FROM copies c JOIN records r ON r.id=c.record WHERE c.file=?", (file.id,)
                )
                self.db.execute("INSERT OR IGNORE INTO doomed VALUES(?)", (file.replaces,))
                self.db.execute("UPDATE files SET replaces=NULL WHERE id=?", (file.id,))
                file.replaces = None
            self._projects(file.id)

    def _projects(self, file: int) -> None:
        """Sets the project of the sessions in a file: by its main file, live before generations."""
        for (session,) in self.db.execute("SELECT session FROM file_sessions WHERE file=?", (file,)).fetchall():
            self._project(session)

    def _project(self, session: int) -> None:
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
            self.db.execute("UPDATE files SET meta_stamp=?,meta_call=? WHERE id=?", (stamp, call, file))
            row = self.db.execute("SELECT session FROM files WHERE id=?", (file,)).fetchone()
            if row and row[0] is not None:
                self._dirty(row[0], AGENTS)

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
        while True:
            rows = self.db.execute("SELECT offset,digest,record FROM copies WHERE file=? ORDER BY offset LIMIT ?", (file, FORGET_SLICE)).fetchall()
            with self.transaction("forget"):
                self.db.executemany("DELETE FROM copies WHERE file=? AND offset=?", ((file, o) for o, _, _ in rows))
                for offset, digest, record in rows:
                    best = self.db.execute("SELECT file,offset,session FROM records WHERE id=?", (record,)).fetchone()
                    if best is None or best[:2] != (file, offset):
                        continue
                    if self._next_best(record, digest, reread):
                        kept += 1
                    else:
                        gone += 1
                if len(rows) < FORGET_SLICE:
                    self.db.execute("DELETE FROM gaps WHERE file=?", (file,))
                    self.db.execute("DELETE FROM file_sessions WHERE file=?", (file,))
                    self.db.execute("DELETE FROM files WHERE id=?", (file,))
                    self.db.execute("DELETE FROM doomed WHERE file=?", (file,))
                for session in sessions:
                    self._dirty(session, MEMBERSHIP | AGENTS)
            if len(rows) < FORGET_SLICE:
                return kept, gone

    def _next_best(self, record: int, digest: bytes, reread: Reread) -> bool:
        row = self.db.execute(
            "SELECT c.file,c.offset,c.length,c.digest,f.path,f.agent FROM copies c JOIN files f ON f.id=c.file WHERE c.record=? "
            "ORDER BY c.length DESC, f.rank, f.path, c.offset LIMIT 1",
            (record,),
        ).fetchone()
        if row is None:
            self._forget_record(record)
            return False
        file, offset, length, check, path, agent = row
        facts = reread(path, offset, length) if check != digest else None
        if facts is None:
            self.db.execute("UPDATE records SET file=?,offset=?,length=?,agent=? WHERE id=?", (file, offset, length, agent, record))
            return True
        session = self._one("SELECT session FROM records WHERE id=?", record)
        batch = Batch()
        tool = self.name(facts.tool) if facts.tool is not None else self.tool_of(session, facts.answers)
        self.describe(batch, record, session, facts, (file, offset, length, agent, tool))
        self._forget_text(record)
        self.db.execute(
            "UPDATE records SET type=?,kind=?,ts=?,parent=?,prompt=?,agent=?,tool=?,flags=?,file=?,offset=?,length=?,tokens=? WHERE id=?",
            batch.changed[0],
        )
        self._add_text(batch)
        return True

    def _add_text(self, batch: Batch) -> None:
        self.db.executemany("INSERT INTO fts(rowid,text,thinking,parts) VALUES(?,?,?,?)", batch.texts)
        self.db.executemany("INSERT OR IGNORE INTO links VALUES(?,?,?,?)", batch.links)
        self.db.executemany("INSERT OR IGNORE INTO touches VALUES(?,?)", batch.touches)
        self.db.executemany("INSERT OR REPLACE INTO titles VALUES(?,?,?,?,?)", batch.titles)
        self.db.executemany("INSERT OR IGNORE INTO citations VALUES(?,?)", batch.citations)

    def _forget_text(self, record: int) -> None:
        self.db.execute("DELETE FROM fts WHERE rowid=?", (record,))
        self.db.execute(
            "UPDATE threads SET title_record=NULL,title_rank=99 WHERE id=(SELECT thread FROM records WHERE id=?1) AND title_record=?1", (record,)
        )
        self.db.execute("DELETE FROM citations WHERE record=?", (record,))
        self.db.execute("DELETE FROM titles WHERE record=?", (record,))
        self.db.execute("DELETE FROM links WHERE record=? AND session=(SELECT session FROM records WHERE id=?)", (record, record))
        self.db.execute("DELETE FROM touches WHERE record=?", (record,))

    def _forget_record(self, record: int) -> None:
        self._forget_text(record)
        self.db.execute("DELETE FROM records WHERE id=?", (record,))

    # Describing one record

    def describe(
        self, batch: Batch, record: int, session: int, f: t.Facts, where: tuple[int, int, int, int | None, int | None]
    ) -> None:
        """`where`: file, offset, length, subagent and tool of the copy. Adds to a batch what the facts of a record become: its changed row, text and links (all but its thread)."""
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
            batch.texts.append((record, f.text, f.thinking, f.parts))
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
        if f.alias is not None:
            links.append((session, s.ALIAS, short_key(f.alias), record))
        for number in f.notified:
            links.append((session, s.NOTIFIED, t.key64(number), record))
        for path in f.files:
            batch.touches.append((self.name(path), record))
        if f.title is not None:
            batch.titles.append((record, None if f.title[2] is not None else session, f.title[2], f.title[0], f.title[1]))
        for ref in f.citations:
            batch.citations.append((record, ref))

    # Memberships

    def dirty(self) -> list[tuple[int, int]]:
        return self.db.execute("SELECT session,what FROM dirty ORDER BY session").fetchall()

    def settle(self, session: int, what: int, reread: Reread) -> list[int]:
        """Works out the memberships of a session anew, with all sessions that share records with it.

        Returns the files whose state changed with that.
        """
        if what & MEMBERSHIP:
            group = self._group(session)
            loaded = [self._load(number) for number in group]
            resolution = th.resolve(loaded)
            with self.transaction("memberships"):
                self._apply(loaded, resolution, reread)
                for number in group:
                    self._attach(number, reread)
                    self._project(number)
                    self._drop_empty(number)
                    self.db.execute("DELETE FROM dirty WHERE session=?", (number,))
            return list(resolution.states)
        elif what & AGENTS:
            with self.transaction("subagents"):
                self._attach(session, reread)
                self.db.execute("DELETE FROM dirty WHERE session=?", (session,))
        return []

    def _drop_empty(self, session: int) -> None:
        """Forgets a session that no file holds any more."""
        if self.db.execute("SELECT 1 FROM file_sessions WHERE session=? LIMIT 1", (session,)).fetchone() is None:
            for sql in ("threads WHERE session=?1", "links WHERE session=?1", "shares WHERE ?1 IN (a,b)", "sessions WHERE id=?1"):
                self.db.execute(f"DELETE FROM {sql}", (session,))
            self._sessions.clear()
            self._threads.clear()

    def _group(self, session: int) -> list[int]:
        found, waiting = {session}, [session]
        while waiting:
            for (other,) in self.db.execute("SELECT b FROM shares WHERE a=?", (waiting.pop(),)):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return sorted(found)

    def _load(self, session: int) -> th.Session:
        name, forked = self.db.execute("SELECT session_id,forked_from FROM sessions WHERE id=?", (session,)).fetchone() or ("", None)
        result = th.Session(session, name, forked)
        spoken = {self.name("user"), self.name("assistant")}
        files = self.db.execute(
            "SELECT f.id FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.id NOT IN (SELECT file FROM doomed) "
            "ORDER BY f.rank,f.path,f.id",
            (session,),
        ).fetchall()
        for (file,) in files:
            nodes = [
                th.Node(i, se, u, p, pr, k, fl, ty in spoken, ag is not None)
                for i, se, u, p, pr, k, fl, ty, ag in self.db.execute(
                    "SELECT r.id,r.session,r.uuid,r.parent,n.text,r.kind,r.flags,r.type,r.agent FROM copies c JOIN records r ON r.id=c.record "
                    "LEFT JOIN names n ON n.id=r.prompt WHERE c.file=? ORDER BY c.offset",
                    (file,),
                )
            ]
            result.files.append((file, nodes))
        for kind, key, record in self.db.execute("SELECT kind,key,record FROM links WHERE session=? ORDER BY kind,key,record DESC", (session,)):
            if kind == s.CALL:
                result.calls[key] = record
            elif kind == s.ANSWER:
                result.answers[record] = key
            elif kind == s.TASK:
                result.tasks[key] = record
            elif kind == s.SIDE:
                result.sides[record] = key
            elif kind == s.ALIAS:
                result.aliases[record] = key.to_bytes(8, "big", signed=True)
        return result

    def _apply(self, loaded: Sequence[th.Session], resolution: th.Resolution, reread: Reread) -> None:
        db = self.db
        touched: set[int] = set()
        canonical: dict[int, tuple[str, int]] = {}
        names = {session.id: session.name for session in loaded}
        session_of = {node.id: node.session for session in loaded for _, nodes in session.files for node in nodes}
        where: dict[int, int] = {}
        orphans: list[tuple[int, int, int, int]] = []
        for session in loaded:
            touched.update(x for (x,) in db.execute("SELECT id FROM threads WHERE session=?", (session.id,)))
            known = {node.uuid for _, nodes in session.files for node in nodes}
            known.update(session.aliases.values())
            rows = []
            for file, nodes in session.files:
                for node in nodes:
                    if node.session != session.id or node.id in where or node.in_agent:
                        continue
                    key = resolution.keys.get(node.id)
                    attached = key is not None or node.spoken or node.kind == t.QUEUED
                    thread = self.thread(session.id, key) if attached else None
                    where[node.id] = thread or 0
                    original = resolution.copies.get(node.id)
                    rows.append((thread, 0 if original is None else 1, node.id))
                    if (len(node.uuid) == 16 or node.spoken) and node.parent is not None and node.parent not in known:
                        orphans.append((session.id, s.ORPHAN, short_key(node.parent), node.id))
            db.executemany("UPDATE records SET thread=?1, hidden=(hidden&~1)|?2 WHERE id=?3 AND (thread IS NOT ?1 OR hidden&1<>?2)", rows)
            db.execute("DELETE FROM links WHERE session=? AND kind=?", (session.id, s.ORPHAN))
            db.execute(
                "UPDATE records SET hidden=hidden&~2 WHERE hidden&2 AND id IN (SELECT record FROM links WHERE session=? AND kind IN (?,?))",
                (session.id, s.SAID_COMMAND, s.SAID_QUEUE),
            )
            db.execute(
                "UPDATE records SET hidden=hidden|2 WHERE id IN (SELECT q.record FROM links q JOIN links p ON p.session=q.session "
                "AND p.key=q.key AND p.kind BETWEEN ? AND q.kind-1 WHERE q.session=? AND q.kind IN (?,?))",
                (s.SAID_PROMPT, session.id, s.SAID_COMMAND, s.SAID_QUEUE),
            )
            touched.update(x for x in where.values() if x)
        db.executemany("INSERT OR IGNORE INTO links VALUES(?,?,?,?)", orphans)
        for copy, original in resolution.copies.items():
            mine, theirs = where.get(copy), where.get(original)
            if mine and theirs and mine != theirs:
                choice = (names.get(session_of[original], ""), theirs)  # by name: numbers depend on the order of indexing
                canonical[mine] = min(choice, canonical.get(mine, choice))
        for session in loaded:
            db.execute("UPDATE threads SET canonical=NULL WHERE session=? AND canonical IS NOT NULL", (session.id,))
            for file, state in resolution.states.items():
                if file in {number for number, _ in session.files}:
                    db.execute(
                        "UPDATE files SET has_prompts=?,guessed=?,current=? WHERE id=?",
                        (state.has_prompts, state.guessed, state.current, file),
                    )
        self._write_new()
        db.executemany("UPDATE threads SET canonical=? WHERE id=?", ((c, m) for m, (_, c) in canonical.items()))
        self._aggregate(touched, reread)

    def _attach(self, session: int, reread: Reread) -> None:
        """Joins the session's subagents to the threads that launched them (FORMAT 4.3)."""
        db = self.db
        rows = db.execute(
            "SELECT f.agent,n.text,f.meta_call,f.root_prompt,f.root_source,f.root_uuid FROM files f JOIN names n ON n.id=f.agent "
            "WHERE f.session=? AND f.id NOT IN (SELECT file FROM doomed) ORDER BY f.rank,f.path",
            (session,),
        ).fetchall()
        if not rows:
            return
        agents: dict[int, th.Agent] = {}
        agent_of: dict[int, int | None] = {}
        thread_of: dict[int, str | None] = {}
        merged: dict[int, list[Any]] = {}
        for agent, name, *facts in rows:
            have = merged.setdefault(agent, [name, None, None, None, None])
            for at, value in enumerate(facts, 1):
                if have[at] is None:
                    have[at] = value
        for agent, (name, call, prompt, source, root) in merged.items():
            launchers: list[int] = []
            if call is not None:
                launchers += self.linked(session, s.CALL, call)
            launchers += sorted(self.linked(session, s.SPAWN, t.key64(name)))
            if prompt is not None:
                row = db.execute(
                    "SELECT min(r.id) FROM threads h JOIN records r ON r.thread=h.id WHERE h.session=? AND h.prompt=? AND r.agent IS NULL",
                    (session, prompt),
                ).fetchone()
                launchers += [x for x in row if x is not None]
            if source is not None:
                launchers += [x for (x,) in db.execute("SELECT id FROM records WHERE uuid=? AND session=?", (source, session))]
            agents[agent] = th.Agent(agent, prompt or (uuid_text(root) if root else f"agent-{name}"), tuple(launchers))
            for record in launchers:
                row = db.execute("SELECT r.agent,t.prompt FROM records r LEFT JOIN threads t ON t.id=r.thread WHERE r.id=?", (record,)).fetchone()
                agent_of[record], thread_of[record] = row if row else (None, None)
        touched: set[int] = set()
        for agent, key in th.attach(agents.values(), agent_of, thread_of).items():
            thread = self.thread(session, key)
            before = [x for (x,) in db.execute("SELECT DISTINCT thread FROM records WHERE agent=? AND session=?", (agent, session))]
            if before == [thread]:
                continue
            db.execute("UPDATE records SET thread=? WHERE agent=? AND session=? AND thread IS NOT ?", (thread, agent, session, thread))
            touched.add(thread)
            touched.update(x for x in before if x is not None)
        self._aggregate(touched, reread)

    def _aggregate(self, threads: Iterable[int], reread: Reread) -> None:
        """Counts threads anew from their records; empty ones go."""
        db = self.db
        side = t.SIDECHAIN
        self._write_new()
        for thread in sorted(threads):
            row = db.execute(
                "SELECT count(*), min(ts), max(ts), "
                f"coalesce(sum(agent IS NULL AND flags&{side}=0 AND kind IN {TURNS}),0), "
                f"coalesce(sum(tokens*(agent IS NULL AND flags&{side}=0)),0) FROM records WHERE thread=?",
                (thread,),
            ).fetchone()
            if not row[0]:
                db.execute("DELETE FROM threads WHERE id=?", (thread,))
                db.execute("UPDATE threads SET canonical=NULL WHERE canonical=?", (thread,))
                self._threads.clear()
                continue
            db.execute("UPDATE threads SET first_ts=?,last_ts=?,turns=?,tokens=? WHERE id=?", (*row[1:], thread))
            self._retitle(thread, reread)

    def _retitle(self, thread: int, reread: Reread) -> None:
        """A thread is named by its first prompt, or the next best kind of record it has."""
        db = self.db
        ranks = " ".join(f"WHEN {kind} THEN {rank}" for kind, rank in TITLE_RANK.items())
        row = db.execute(
            f"SELECT r.id, CASE r.kind {ranks} ELSE 99 END + 10*(r.agent IS NOT NULL OR r.flags&{t.SIDECHAIN}<>0) AS k, f.path, r.offset, r.length "
            "FROM records r JOIN files f ON f.id=r.file WHERE r.thread=? ORDER BY k, f.rank, f.path, r.offset LIMIT 1",
            (thread,),
        ).fetchone()
        have = db.execute("SELECT title_record,title_rank FROM threads WHERE id=?", (thread,)).fetchone()
        if row is None or row[1] >= 99:
            db.execute("UPDATE threads SET title=NULL,title_record=NULL,title_rank=99 WHERE id=?", (thread,))
        elif have != (row[0], row[1]):
            facts = reread(row[2], row[3], row[4])
            if facts is not None or have[0] is None:
                db.execute(
                    "UPDATE threads SET title=?,title_record=?,title_rank=? WHERE id=?",
                    (title_of(facts) if facts is not None else None, row[0], row[1], thread),
                )

    # Care

    def counts(self) -> dict[str, int]:
        """Totals of the Map."""
        one = self._one
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
        except apsw.Error as fault:
            return str(fault)
        return None

    def start_fts(self) -> None:
        """Empties the full text, for a rebuild."""
        with self.transaction("fts"):
            self.db.execute("DROP TABLE IF EXISTS fts")
            self.db.execute(s.MAP[s.MAP.index("CREATE VIRTUAL TABLE fts") :])

    def records_of(self, file: int) -> Iterator[tuple[int, int, int]]:
        """(record, offset, length) of the records whose best copy lies in a file."""
        yield from self.db.execute(
            "SELECT r.id,r.offset,r.length FROM copies c JOIN records r ON r.id=c.record AND r.file=c.file AND r.offset=c.offset WHERE c.file=? ORDER BY c.offset",
            (file,),
        )

    def add_texts(self, rows: Sequence[tuple[int, str, str, str]]) -> None:
        with self.transaction("fts"):
            self.db.executemany("INSERT INTO fts(rowid,text,thinking,parts) VALUES(?,?,?,?)", rows)

    def bulk(self, on: bool) -> None:
        """Settings for a bulk load; its end merges the full text for good.

        `optimize` alone does nothing on a single segment, and a later append would pay for the merge: a row is added
        and taken away around it (PERFORMANCE, crisis merge).
        """
        if on:
            with self.transaction("bulk"):
                self._fts_settings(hashsize=16 << 20, automerge=0, crisismerge=2000)
            return
        with self.transaction("optimize"):
            self._fts_settings(hashsize=1 << 20, automerge=4, crisismerge=16)
            row = self.next_record + 1_000_000
            self.db.execute("INSERT INTO fts(rowid,text) VALUES(?,'x')", (row,))
        with self.transaction("optimize"):
            self.db.execute("INSERT INTO fts(fts) VALUES('optimize')")
            self.db.execute("DELETE FROM fts WHERE rowid=?", (row,))
        with self.transaction("vacuum"):
            self.db.execute("PRAGMA incremental_vacuum").fetchall()  # what the merge freed

    def _fts_settings(self, **settings: int) -> None:
        for name, value in settings.items():
            self.db.execute("INSERT INTO fts(fts,rank) VALUES(?,?)", (name, value))

    def checkpoint(self) -> None:
        """Gives the WAL's space back, where no reader needs it."""
        with contextlib.suppress(apsw.BusyError, apsw.LockedError):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")



def short_key(uuid: bytes) -> int:
    """A link key of a uuid."""
    return int.from_bytes(uuid[:8], "big", signed=True)
