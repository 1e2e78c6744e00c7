"""The one writing connection to the Map: opened, made anew where it must be, and written only in transactions.

What is written is left to `map`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import apsw

from ..errors import NewerSchema, StorageFault
from . import schema as s
from .files import unopened

BUSY_MS = 5_000
"""How long a statement waits for another process's lock."""
CHECKPOINT_PAGES = 2_000
"""Pages of WAL (8 MB) after which SQLite writes them back."""
CACHE_KB, BULK_CACHE_KB = 8_000, 24_000
"""What SQLite may hold of the Map for the writer, day by day and while much is loaded at once."""


def trouble(fault: BaseException) -> bool:
    """Whether a fault is the storage's: the disk, another process, a damaged file; not what was to be stored."""
    return isinstance(fault, StorageFault) or (
        isinstance(fault, apsw.Error)
        and not isinstance(fault, apsw.ConstraintError | apsw.MismatchError | apsw.TooBigError)
    )


class Database:
    """Owner of the connection, and of the numbers given to names, sessions, threads, files and records."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rebuilt: str | None = None
        """why the Map was begun anew, in words"""
        self.before_commit: Callable[[str], None] | None = None
        """called with a name before every commit; the crash tests die here"""
        self._open()

    # Opening

    def _open(self) -> None:
        try:
            version, owner, empty = self._look()
        except (apsw.NotADBError, apsw.CorruptError):
            self._put_aside("it was damaged")
            version, owner, empty = self._look()
        except apsw.Error as fault:
            raise unopened(self.path, fault) from None
        if version > s.MAP_VERSION:
            self.db.close()
            raise NewerSchema(
                f"{self.path} was written by a newer fabled (schema {version}, this one knows {s.MAP_VERSION}); it "
                f"was left alone",
                "update fabled, or point FABLED_HOME at another folder",
            )
        if not empty and owner != s.APPLICATION_ID:
            self._put_aside("it was no Map")
            empty = True
        elif not empty and version != s.MAP_VERSION:
            self.rebuilt = f"schema {version} became {s.MAP_VERSION}"
            self._remove()
            empty = True
        try:
            self._prepare(empty)
        except apsw.Error as fault:
            raise StorageFault(f"{self.path} cannot be made: {fault}", "free space, then try again") from None
        self._caches()

    def _look(self) -> tuple[int, int, bool]:
        """(schema version, application id, whether it is empty) of what lies there; nothing is written for that."""
        self._connect()
        version, owner = int(self.db.pragma("user_version")), int(self.db.pragma("application_id"))
        return version, owner, self._one("SELECT count(*) FROM sqlite_schema") == 0

    def _connect(self) -> None:
        self.db: Any = apsw.Connection(self.path)  # Any: what a row holds is said by its SELECT
        self.db.set_busy_timeout(BUSY_MS)  # before journal_mode, which needs a lock itself (RULES 18)

    def _prepare(self, empty: bool) -> None:
        """Settings of the connection, and the tables where there are none."""
        if empty:
            self.db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # on an existing file it would write at every opening
        self.db.execute(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;"
            "PRAGMA journal_size_limit=33554432"
            f"; PRAGMA cache_size=-{CACHE_KB}; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}"
        )
        if empty:
            self.db.execute(
                f"BEGIN IMMEDIATE; {s.MAP} PRAGMA application_id={s.APPLICATION_ID}; PRAGMA "
                f"user_version={s.MAP_VERSION}; COMMIT"
            )
        for name in (self.path, self.path + "-wal", self.path + "-shm"):
            if os.path.exists(name):
                os.chmod(name, 0o600)

    def _remove(self) -> None:
        self.db.close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + suffix)
        self._connect()

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

    def forget_numbers(self) -> None:
        """Takes back the numbers given since the last commit."""
        self._caches()

    def forget_known(self) -> None:
        """Lets go of what was looked up, which only saves looking again; not while numbers wait to be stored."""
        if not (self._new_names or self._new_sessions or self._new_threads):
            for cache in (self._names, self._sessions, self._threads):
                cache.clear()

    def _caches(self) -> None:
        """Forgets what was looked up, and numbers given but not stored."""
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._threads: dict[tuple[int, str | None], int] = {}
        self._new_names: list[tuple[int, str]] = []
        self._new_sessions: list[tuple[int, str]] = []
        self._new_threads: list[tuple[int, int, str | None]] = []
        self._regrouped: set[int] = set()
        """sessions whose files changed in this transaction: their project is chosen anew at its end"""
        self.next_record, self._next_name, self._next_session, self._next_thread, self._next_file = (
            self._one(f"SELECT coalesce(max(id),0)+1 FROM {table}")
            for table in ("records", "names", "sessions", "threads", "files")
        )
        self._all_names = self._next_name == 1
        """there were none at first: whatever was not met since is not in the Map"""

    def write_new(self) -> None:
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
                self._all_names = self._all_names and bool(self._names)

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
                self.write_new()
                yield
                self.write_new()
                if self.before_commit is not None:
                    self.before_commit(name)
                self.db.execute("COMMIT")
            except BaseException:
                if not self.db.get_autocommit():
                    self.db.execute("ROLLBACK")
                self._caches()
                raise
        except (apsw.ReadOnlyError, apsw.CantOpenError) as fault:
            raise unopened(self.path, fault, "see that its folder can be written") from fault
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError) as fault:
            raise StorageFault(
                f"the Map could not be written: {fault}", "free space or wait; nothing half-done was kept"
            ) from fault

    # Names

    # A number may be given before its row is stored: the next transaction stores it.

    def name(self, text: str) -> int:
        """The number of an interned text."""
        found = self._names.get(text)
        if found is None:
            row = None
            if not self._all_names:
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
        """The id of a session, whose row may not be stored yet."""
        for given, session_id in self._new_sessions:
            if given == number:
                return session_id
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
