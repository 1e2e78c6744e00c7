"""The facts no transcript can give back (`ledger.db`): generations, the journal of prunes, windows, losses.

Never rebuilt; an older one is brought forward after a backup, a newer one refused. What is derived from transcripts is
left to `map`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import apsw

from ..errors import NewerSchema, StorageFault
from .database import BUSY_MS
from .files import unopened
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
    accepted: bool = False
    """its owner has captured or restored the session since"""


@dataclass(frozen=True, slots=True)
class Kept:
    """One generation as it was written."""

    path: str
    folder: str
    """name of the project folder it was captured from"""
    session_id: str
    part: str
    """"" for the transcript itself, else the place below the session's folder, as `subagents/agent-a1`"""
    number: int
    kind: str
    """raw or pruned"""
    origin: str
    """path of the live file"""
    logical: int
    packed: int
    sha256: bytes
    """of the logical bytes"""
    at: int
    reason: str
    dev: int | None = None
    ino: int | None = None
    size: int | None = None
    mtime_ns: int | None = None
    retired_at: int | None = None
    holder: str | None = None
    """path of the generation that holds its bytes, once it is retired"""


State = Literal["begun", "linked", "replaced", "done", "given_up"]
"""Of a journal row: the temporary file may exist; the old file has its hidden name and the new one may have taken its
place; the old file is being drained; all is well; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: a replacement of a live transcript, from its beginning to its end."""

    id: int
    session_id: str
    path: str
    what: str
    """prune, restore or undo"""
    level: str
    at: int
    state: State
    generation: str | None
    base_length: int
    base_sha: bytes
    new_length: int | None
    new_sha: bytes | None
    temp: str | None
    hidden: str | None
    dev: int | None
    old_ino: int | None
    new_ino: int | None
    copied: int | None
    drain_from: int | None
    drain_to: int | None
    drain_at: int | None
    report: str | None
    """what was done, as JSON"""

    @property
    def made(self) -> tuple[int, bytes]:
        """Length and checksum of what a replacement made of the part it rewrote; behind it stands what was appended
        meanwhile. (0, b"") where the row does not say."""
        report = json.loads(self.report or "{}")
        return int(report.get("made", 0)), bytes.fromhex(report.get("made_sha", ""))


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last time a session was looked at for pruning without being asked to."""

    session_id: str
    at: int
    size: int
    level: str
    outcome: str
    """pruned, or the code of the refusal"""
    message: str
    fruitless: int
    """attempts in a row that gave nothing"""
    not_before: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a person had removed, and what stays out of the Map since."""

    kind: Literal["session", "project", "file"]
    name: str
    at: int
    state: Literal["begun", "done"]
    detail: str
    """how much it was, as JSON"""


_KEPT = tuple(field.name for field in fields(Kept))
_ENTRY = tuple(field.name for field in fields(Entry))
FORGOTTEN = ",".join(field.name for field in fields(Forgotten))
_ATTEMPT = tuple(field.name for field in fields(Attempt))


class Ledger:
    """The one connection that writes the Ledger; owned by the writer."""

    def __init__(self, path: str) -> None:
        """Opens or makes it. Raises NewerSchema, StorageFault."""
        self.before_commit: Callable[[str], None] = lambda name: None
        """called with the name of each write before it becomes durable (tests die there)"""
        self.path = path
        try:
            self._db = apsw.Connection(path)
            self._db.set_busy_timeout(BUSY_MS)
            version = int(self._db.pragma("user_version"))
            if version > LEDGER_VERSION:
                self._db.close()
                raise NewerSchema(
                    f"{path} was written by a newer fabled (schema {version}); it was left alone",
                    "update fabled, or point FABLED_HOME at another folder",
                )
            if 0 < version < LEDGER_VERSION:
                self._backup(f"{path}.v{version}")
            self._db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            for number in range(version, LEDGER_VERSION):
                with self._db:
                    self._db.execute(LEDGER[number])
                    self._db.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={number + 1}")
        except apsw.Error as fault:
            raise unopened(path, fault, "move it aside; transcripts and Vault are not touched") from None
        self._paths: set[str] = {p for (p,) in self._db.execute("SELECT path FROM losses")}
        for name in (path, path + "-wal", path + "-shm"):
            if os.path.exists(name):
                os.chmod(name, 0o600)

    def _backup(self, path: str) -> None:
        """A copy of an older Ledger beside it, before it is brought forward."""
        if os.path.exists(path):
            return
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        other = apsw.Connection(path)
        try:
            with other.backup("main", self._db, "main") as copying:
                copying.step()
        finally:
            other.close()

    def close(self) -> None:
        self._db.close()

    def rest(self) -> None:
        """Gives the WAL's space and the cached pages back, where no reader needs them; waits for nobody."""
        self._db.set_busy_timeout(0)
        try:
            with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._db.set_busy_timeout(BUSY_MS)
        self._db.execute("PRAGMA shrink_memory")

    def clean(self) -> None:
        """Leaves nothing of deleted rows in the file: a card holds words of a thread. Raises StorageFault."""
        try:
            self._db.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError) as fault:
            hint = "free space; what was begun is ended at the next start"
            raise StorageFault(f"the Ledger could not be cleaned: {fault}", hint) from fault

    def _write(self, name: str, sql: str, values: tuple[Any, ...]) -> None:
        """One write, durable when it returns. Raises StorageFault."""
        try:
            with self._db:
                self._db.execute(sql, values)
                self.before_commit(name)
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError) as fault:
            raise StorageFault(f"the Ledger could not be written: {fault}", "free space, then try again") from fault

    def write_all(self, name: str, *writes: tuple[str, tuple[Any, ...]]) -> None:
        """Several writes as one, durable when it returns. Raises StorageFault."""
        try:
            with self._db:
                for sql, values in writes:
                    self._db.execute(sql, values)
                self.before_commit(name)
        except (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError) as fault:
            raise StorageFault(f"the Ledger could not be written: {fault}", "free space, then try again") from fault

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """What a SELECT gives, on the writing connection."""
        return self._db.execute(sql, values).fetchall()

    # Losses

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
            "loss",
            "INSERT INTO losses(kind,session_id,path,at,in_vault,nowhere,size) VALUES(?,?,?,?,?,?,?) ON CONFLICT DO "
            "UPDATE SET at=excluded.at, in_vault=excluded.in_vault, accepted_at=CASE WHEN in_vault=excluded.in_vault "
            "AND nowhere>=excluded.nowhere THEN accepted_at END, "
            "nowhere=max(nowhere, excluded.nowhere), size=max(size, excluded.size)",
            (kind, session_id, path, int(time.time()), in_vault, nowhere, size),
        )
        self._paths.add(path)

    def made_good(self, path: str, size: int) -> None:
        """Forgets the losses of a file that is there again, at its old size or nearly."""
        if path in self._paths:
            self._write(
                "made good",
                "DELETE FROM losses WHERE path=? AND size<=?*2 AND (nowhere=0 OR kind='vanished' OR size<=?)",
                (path, size, size),
            )
            self._paths = {p for (p,) in self._db.execute("SELECT path FROM losses")}

    def losses(self) -> list[Loss]:
        return [
            Loss(*row)
            for row in self._db.execute(
                "SELECT kind,session_id,path,at,in_vault,nowhere,accepted_at IS NOT NULL FROM losses ORDER BY at"
            )
        ]

    def accept(self, path: str) -> None:
        """The owner has seen that a transcript shrank, and captured or restored it: it may be pruned again."""
        if path in self._paths:
            self._write(
                "accepted", "UPDATE losses SET accepted_at=? WHERE path=? AND kind='shrunk'", (int(time.time()), path)
            )

    # Generations

    def kept(self, session_id: str | None = None) -> list[Kept]:
        """The generations that were written, of one session or of all, in the order of their numbers."""
        where, values = ("", ()) if session_id is None else (" WHERE session_id=?", (session_id,))
        rows = self._db.execute(
            f"SELECT {','.join(_KEPT)} FROM generations{where} ORDER BY session_id,folder,part,number", values
        )
        return [Kept(*row) for row in rows]

    def stamps(self) -> set[tuple[int, int, int, int]]:
        """The stamps of live files whose bytes a generation holds."""
        rows: Any = self._db.execute(
            "SELECT dev,ino,size,mtime_ns FROM generations WHERE retired_at IS NULL AND mtime_ns>=0"
        )
        return set(rows)

    def keep(self, kept: Kept) -> None:
        """Records a generation that is durable in the Vault."""
        marks = ",".join("?" * len(_KEPT))
        self._write(
            "generation",
            f"INSERT OR REPLACE INTO generations({','.join(_KEPT)}) VALUES({marks})",
            tuple(getattr(kept, name) for name in _KEPT),
        )

    def seen_again(self, path: str, stamp: tuple[int, int, int, int]) -> None:
        """The origin of a generation has another stamp, and still the same bytes."""
        self._write("same bytes", "UPDATE generations SET dev=?,ino=?,size=?,mtime_ns=? WHERE path=?", (*stamp, path))

    def retire(self, path: str, holder: str) -> None:
        """A generation is about to be removed; another holds all its bytes."""
        self._write(
            "retired", "UPDATE generations SET retired_at=?,holder=? WHERE path=?", (int(time.time()), holder, path)
        )

    # The journal

    def begin(self, values: Mapping[str, Any]) -> int:
        """A new row of the journal; returns its number."""
        names = ",".join(values)
        self._write(
            "begun", f"INSERT INTO prunes({names}) VALUES({','.join('?' * len(values))})", tuple(values.values())
        )
        return self._db.last_insert_rowid()

    def set(self, entry: int, **values: Any) -> None:
        """Changes a row of the journal, durably."""
        pairs = ",".join(f"{name}=?" for name in values)
        self._write(
            str(values.get("state", "drained")), f"UPDATE prunes SET {pairs} WHERE id=?", (*values.values(), entry)
        )

    def entry(self, number: int) -> Entry:
        (row,) = self._db.execute(f"SELECT {','.join(_ENTRY)} FROM prunes WHERE id=?", (number,))
        return Entry(*row)

    def journal(self, session_id: str | None = None) -> list[Entry]:
        """The journal of one session or of all, the oldest row first."""
        where, values = ("", ()) if session_id is None else (" WHERE session_id=?", (session_id,))
        return [
            Entry(*row) for row in self._db.execute(f"SELECT {','.join(_ENTRY)} FROM prunes{where} ORDER BY id", values)
        ]

    def unfinished(self) -> list[Entry]:
        """Rows whose replacement was begun and neither ended nor given up."""
        return [
            Entry(*row)
            for row in self._db.execute(
                f"SELECT {','.join(_ENTRY)} FROM prunes WHERE state IN ('begun','linked','replaced') ORDER BY id"
            )
        ]

    def ours(self, path: str, ino: int, size: int) -> bool:
        """Whether the file now at a path is one that a replacement of ours made, and at least as long as it was."""
        return bool(
            self._db.execute(
                "SELECT 1 FROM prunes WHERE path=? AND new_ino=? AND new_length<=? AND "
                "state IN ('linked','replaced','done')",
                (path, ino, size),
            ).fetchall()
        )

    # Windows and attempts

    def windows(self, session_id: str) -> dict[str, str]:
        """The uuids that the session's windows begin at, by their names."""
        return dict(self._db.execute("SELECT name,uuid FROM windows WHERE session_id=?", (session_id,)))

    def set_window(self, session_id: str, name: str, uuid: str) -> None:
        self._write("window", "INSERT OR REPLACE INTO windows VALUES(?,?,?)", (session_id, name, uuid))

    def attempts(self) -> dict[str, Attempt]:
        """The last unasked attempt for each session."""
        return {row[0]: Attempt(*row) for row in self._db.execute(f"SELECT {','.join(_ATTEMPT)} FROM attempts")}

    def attempted(self, attempt: Attempt) -> None:
        marks = ",".join("?" * len(_ATTEMPT))
        self._write(
            "attempt",
            f"INSERT OR REPLACE INTO attempts VALUES({marks})",
            tuple(getattr(attempt, name) for name in _ATTEMPT),
        )

    # Self-checks

    def checked(self, session_id: str, ok: bool, message: str) -> None:
        """Records how the check of a session's last prune went."""
        self._write(
            "check", "INSERT OR REPLACE INTO checks VALUES(?,?,?,?)", (session_id, int(time.time()), ok, message)
        )

    def checks(self) -> dict[str, tuple[int, bool, str]]:
        """(when, whether all was well, what was not) of the last check of each session."""
        rows = self._db.execute("SELECT session_id,at,ok,message FROM checks")
        return {session_id: (at, bool(ok), message) for session_id, at, ok, message in rows}

    # What was forgotten

    def forgotten(self) -> list[Forgotten]:
        """What stays out, the oldest first."""
        return [Forgotten(*row) for row in self._db.execute(f"SELECT {FORGOTTEN} FROM forgotten ORDER BY at,kind,name")]

    def forget(self, *rows: Forgotten) -> None:
        """Promises that something stays out, or says that it is done: all of it or nothing."""
        self.write_all(
            f"forget {rows[-1].state}",
            *(
                (
                    f"INSERT OR REPLACE INTO forgotten({FORGOTTEN}) VALUES(?,?,?,?,?)",
                    (one.kind, one.name, one.at, one.state, one.detail),
                )
                for one in rows
            ),
        )

    def let_in(self, kind: str, name: str) -> None:
        """Something may come into the Map again."""
        self._write("let in", "DELETE FROM forgotten WHERE kind=? AND name=?", (kind, name))

    def drop_session(self, session_id: str) -> None:
        """Forgets what is told of a session: its generations, its journal, its windows, attempts, checks, losses."""
        for table in ("generations", "prunes", "windows", "attempts", "checks", "losses", "cards", "card_tries"):
            self._write("drop", f"DELETE FROM {table} WHERE session_id=?", (session_id,))
        self._paths = {p for (p,) in self._db.execute("SELECT path FROM losses")}
