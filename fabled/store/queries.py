"""Read-only connections to the Map and every SELECT that answers a user.

What the rows mean, and reading the bytes they point to, is left to `retrieval`.

A connection belongs to the one OS thread that opened it. Nothing here writes: the file is opened read-only, and
`query_only` stands behind that.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import apsw

from ..errors import NewerSchema, NoIndex, StorageFault
from ..transcript.query import glob
from ..transcript.text import CALL, OTHER, PROMPT, QUEUED, REPLY, SIDECHAIN, THINKING
from . import schema as s
from .activity import Activity
from .batch import TITLE_RANK, TOKENS, TURNS
from .files import unopened
from .marker import Marker
from .rows import Copy, Hit, Record, State, Thread, TurnRow, Where

TEXT_WEIGHT, THINKING_WEIGHT, PARTS_WEIGHT = 1.0, 0.75, 1.0
"""BM25 weights of the columns of `fts`: a thought is worth less than what was said."""
LIVE_RANK = 1 << 30
_NEAR_BEGIN, _NEAR_LOOKED_AT = 3, 4_000
"""Letters that a word has in common with those that are offered instead of it, and how many of these are looked at."""


@dataclass(slots=True)
class _Projects:
    """The sessions of each project, as of one state of the Map."""

    version: int = -1
    by_project: dict[str, list[int]] = field(default_factory=dict)
    by_folder: dict[str, list[int]] = field(default_factory=dict)


def _open(path: str) -> apsw.Connection:
    if not os.path.exists(path):
        raise NoIndex("there is no index yet", "fabled index, or start the daemon: fabled daemon")
    try:
        db = apsw.Connection(f"file:{quote(path)}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        db.set_busy_timeout(3_000)
        db.execute("PRAGMA temp_store=MEMORY; PRAGMA cache_size=-2000; PRAGMA query_only=1")
        version = int(db.pragma("user_version"))
        owner = int(db.pragma("application_id"))
    except (apsw.NotADBError, apsw.CorruptError):
        raise NoIndex("the index is damaged", "fabled index: it moves it aside and builds it anew") from None
    except apsw.Error as fault:
        raise unopened(path, fault) from None
    if version > s.MAP_VERSION:
        db.close()
        raise NewerSchema(
            f"the index was written by a newer fabled (schema {version}, this one knows {s.MAP_VERSION})",
            "update fabled",
        )
    if version != s.MAP_VERSION or owner != s.APPLICATION_ID:
        db.close()
        raise NoIndex("the index is of another version", "fabled index, which builds it anew")
    return db


class Queries(Activity):
    """A reading connection. Raises errors.NoIndex, NewerSchema or StorageFault where the Map cannot be read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._db = _open(path)
        self._identity = _identity(path)
        self._projects = _Projects()
        self._counted: tuple[int, dict[str, Any]] | None = None
        self._marker: Marker | None = None
        self._vocabulary = False
        self._scope: tuple[int, ...] | None = None
        """the sessions that the temporary table `scope` holds"""

    def close(self) -> None:
        self._db.close()
        if self._marker is not None:
            self._marker.close()

    def refresh(self) -> None:
        """Follows the Map where it was put aside and built anew under the same path."""
        if _identity(self.path) != self._identity:
            db = _open(self.path)
            self._db.close()
            self._db, self._identity = db, _identity(self.path)
            self._projects, self._counted, self._vocabulary, self._scope = _Projects(), None, False, None

    @property
    def marker(self) -> Marker:
        """Finds words in a text as the index would."""
        if self._marker is None:
            self._marker = Marker()
        return self._marker

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state of the Map for several queries. Kept short: a long one keeps the WAL from shrinking."""
        self._rows("BEGIN")
        try:
            yield
        finally:
            if not self._db.get_autocommit():
                self._db.execute("COMMIT")

    def _rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, args[0] if args and isinstance(args[0], dict) else args).fetchall()
        except (apsw.CorruptError, apsw.NotADBError) as fault:
            raise StorageFault(f"the index is damaged: {fault}", "fabled index, which mends it") from None
        except (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError, apsw.FullError) as fault:
            raise StorageFault(f"the index could not be read: {fault}", "try again in a moment") from None

    def _row(self, sql: str, *args: Any) -> tuple[Any, ...] | None:
        rows = self._rows(sql, *args)
        return rows[0] if rows else None

    def _test(self, where: Where) -> tuple[str, dict[str, Any]]:
        """`_condition`, with the sessions it names laid out: thousands of them in every statement would cost more to
        parse than the statement to run."""
        if where.sessions is not None and where.sessions != self._scope:
            self._db.execute(
                "PRAGMA query_only=0; CREATE TEMP TABLE IF NOT EXISTS scope(session INTEGER PRIMARY KEY);"
                "DELETE FROM temp.scope"
            )
            self._db.executemany("INSERT OR IGNORE INTO temp.scope VALUES(?)", ((n,) for n in where.sessions))
            self._db.execute("PRAGMA query_only=1")
            self._scope = where.sessions
        return _condition(where)

    # What a search is restricted to

    def _known_projects(self) -> _Projects:
        version = int(self._db.pragma("data_version"))
        if self._projects.version != version:
            found = _Projects(version)
            for number, project, folder in self._rows("SELECT id,project,folder FROM sessions"):
                if project is not None:
                    found.by_project.setdefault(project, []).append(number)
                if folder is not None:
                    found.by_folder.setdefault(folder, []).append(number)
            self._projects = found
        return self._projects

    def sessions_of_project(self, name: str) -> tuple[int, ...]:
        """The sessions of the project that a path, a folder's name or a path's last part names; () if none is it."""
        known = self._known_projects()
        exact = known.by_project.get(name) or known.by_folder.get(name)
        if exact is not None:
            return tuple(exact)
        if "/" in name or "\\" in name:
            return ()
        tail = [
            ids for project, ids in known.by_project.items() if project.replace("\\", "/").rpartition("/")[2] == name
        ]
        return tuple(number for ids in tail for number in ids)

    def project_around(self, folders: Iterable[str]) -> tuple[str, tuple[int, ...]] | None:
        """The first of `folders` that is a known project, with its sessions."""
        known = self._known_projects().by_project
        for folder in folders:
            if folder in known:
                return folder, tuple(known[folder])
        return None

    def session_ids(self, prefix: str) -> list[tuple[int, str]]:
        """The sessions whose id is or begins with `prefix`; an exact one alone."""
        exact = self._rows("SELECT id,session_id FROM sessions WHERE session_id=?", prefix)
        if exact or len(prefix) < 6:
            return exact
        return self._rows(
            "SELECT id,session_id FROM sessions WHERE session_id>=?1 AND session_id<?1||char(1114111) "
            "ORDER BY 2 LIMIT 20",
            prefix,
        )

    def tool_names(self, name: str) -> tuple[int, ...]:
        """The numbers of the tools of that name, or matching it as a pattern."""
        if any(c in name for c in "*?["):
            fits = glob(name)
            rows = self._rows("SELECT id,text FROM names WHERE id IN (SELECT DISTINCT tool FROM records)")
            return tuple(number for number, text in rows if fits(text))
        exact = self._rows("SELECT id FROM names WHERE text=?", name)
        return tuple(
            number for (number,) in exact or self._rows("SELECT id FROM names WHERE text=? COLLATE NOCASE", name)
        )

    def file_names(self, pattern: str) -> tuple[int, ...]:
        """The numbers of the files that tool calls name and `pattern` fits: a path, the end of one, or a glob."""
        touched = "n.id IN (SELECT path FROM touches)"
        if any(c in pattern for c in "*?["):
            whole, end = glob(pattern), glob("*/" + pattern)
            rows = self._rows(
                "SELECT n.id,n.text FROM (SELECT DISTINCT path FROM touches) t CROSS JOIN names n ON n.id=t.path"
            )
            return tuple(number for number, text in rows if whole(text) or end(text))
        test = "(n.text=?1 OR substr(n.text,-length(?2))=?2)"
        if pattern.endswith("/"):
            test = "(substr(n.text,1,length(?1))=?1 OR instr(n.text,?2)>0)"
        rows = self._rows(f"SELECT n.id FROM names n WHERE {test} AND {touched}", pattern, "/" + pattern.lstrip("/"))
        return tuple(number for (number,) in rows)

    # Words

    def near(self, stem: str) -> list[tuple[str, int]]:
        """(stem, records) of the words of the index that begin like `stem`; () where `stem` itself is there."""
        self._vocabularies()
        begin = stem[:_NEAR_BEGIN]
        rows = self._rows(
            "SELECT term, doc FROM temp.words WHERE term>=?1 AND term<?1||char(1114111) LIMIT ?2",
            begin,
            _NEAR_LOOKED_AT,
        )
        return [] if any(term == stem for term, _ in rows) else [(t, n) for t, n in rows if t.isalpha() and len(t) < 30]

    def _vocabularies(self) -> None:
        if not self._vocabulary:
            self._db.execute(
                "PRAGMA query_only=0;"
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab('main','fts','row');"
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.places USING fts5vocab('main','fts','instance');"
                "PRAGMA query_only=1"
            )
            self._vocabulary = True

    def holding(self, stem: str, where: Where) -> int | None:
        """A record within a restriction that holds a word with this stem."""
        test, args = self._test(where)
        row = self._row(
            f"SELECT r.id FROM temp.places p CROSS JOIN records r ON r.id=p.doc WHERE p.term=:stem AND {test} LIMIT 1",
            {"stem": stem, **args},
        )
        return row[0] if row else None

    def frequencies(self, stems: Iterable[str]) -> tuple[int, dict[str, int]]:
        """(records, in how many of them each of these words of the index stands)."""
        self._vocabularies()
        found = self._rows(
            "SELECT w.term, w.doc FROM json_each(?) j CROSS JOIN temp.words w ON w.term=j.value",
            json.dumps(list(stems)),
        )
        return self._rows("SELECT coalesce(max(id),0) FROM records")[0][0], dict(found)

    # Search

    def hits(self, expression: str | None, where: Where, limit: int, by_time: bool) -> tuple[list[Hit], int]:
        """The best record of each thread that answers, the best `limit` of them, and how many there are."""
        if where.nothing:
            return [], 0
        test, args = self._test(where)
        tables, match = _source(expression)
        best, latest = ("min(fts.rank)", "coalesce(r.ts,0)") if expression else ("0.0", "max(coalesce(r.ts,0))")
        order = "ts DESC" if by_time or not expression else "score, ts DESC"
        rows = self._rows(
            f"WITH g AS MATERIALIZED (SELECT r.id AS id, r.thread AS thread, {_side(where)} AS side, {best} AS score,"
            f" {latest} AS ts FROM {tables} WHERE {match} AND {test} GROUP BY coalesce(r.thread,-r.id), side)"
            " SELECT id, coalesce(thread,0), side, score, ts, (SELECT count(*) FROM g) FROM g"
            f" ORDER BY {order}, id LIMIT :limit",
            {"expression": expression, "limit": limit, **args},
        )
        return [Hit(*row[:5]) for row in rows], rows[0][5] if rows else 0

    def best_records(self, expression: str, where: Where) -> list[Hit]:
        """All records that answer, one by one, the best first."""
        if where.nothing:
            return []
        test, args = self._test(where)
        tables, match = _source(expression)
        rows = self._rows(
            f"SELECT r.id, coalesce(r.thread,0), {_side(where)}, fts.rank, coalesce(r.ts,0) FROM {tables}"
            f" WHERE {match} AND {test} ORDER BY 4, r.ts DESC, r.id",
            {"expression": expression, **args},
        )
        return [Hit(*row) for row in rows]

    def count(self, expression: str) -> int:
        """How many records, anywhere, an expression finds."""
        return int(self._rows("SELECT count(*) FROM fts WHERE fts MATCH ?", expression)[0][0])

    def postings(self, expression: str, where: Where) -> list[tuple[Any, ...]]:
        """(record, thread or its own number below zero, side, session, ts, kind, score) of all that an expression
        finds; the higher the score the better."""
        test, args = self._test(where)
        tables, match = _source(expression)
        return self._rows(
            f"SELECT r.id, coalesce(r.thread,-r.id), {_side(where)}, r.session, coalesce(r.ts,0), r.kind, -fts.rank"
            f" FROM {tables} WHERE {match} AND {test}",
            {"expression": expression, **args},
        )

    def holders(self, expression: str | None) -> set[int]:
        """All records that an expression finds."""
        return {number for (number,) in self._rows("SELECT rowid FROM fts WHERE fts MATCH ?", expression)}

    def scores(self, expression: str) -> list[tuple[int, float]]:
        """(record, score) of all that an expression finds; the higher the better."""
        return self._rows("SELECT rowid, -rank FROM fts WHERE fts MATCH ?", expression)

    def sessions_of(self, records: Iterable[int]) -> dict[int, int]:
        """The session of each record."""
        return dict(
            self._rows("SELECT id,session FROM records WHERE id IN (SELECT value FROM json_each(?))", _json(records))
        )

    def session_lengths(self, sessions: Iterable[int]) -> dict[int, int]:
        """How much each of these sessions says and does, in records: the length of a document to the ranking."""
        rows = self._rows(
            "SELECT t.session, sum(t.said) FROM json_each(?) j CROSS JOIN threads t ON t.session=j.value GROUP BY 1",
            _json(sessions),
        )
        return dict(rows)

    def threads_by_time(self, where: Where) -> list[int]:
        """The threads of the sessions searched, the latest first."""
        self._test(where)
        inside = "" if where.sessions is None else "WHERE session IN temp.scope "
        return [n for (n,) in self._rows(f"SELECT id FROM threads {inside}ORDER BY last_ts DESC, id DESC")]

    def records_in(self, threads: Iterable[int], loose: bool, where: Where) -> list[tuple[Any, ...]]:
        """(record, thread, side, ts) of what these threads say, in the order it lies in the files; `loose`: also of
        the records without thread."""
        test, args = self._test(where)
        said = f"SELECT r.id, r.thread, {_side(where)}, coalesce(r.ts,0) FROM"
        rows = self._rows(
            f"{said} json_each(:threads) j CROSS JOIN records r ON r.thread=j.value WHERE r.kind<>{OTHER} AND {test} "
            "ORDER BY r.file, r.offset",
            {"threads": _json(threads), **args},
        )
        if loose:
            rows += self._rows(
                f"{said} records r WHERE r.thread IS NULL AND r.kind<>{OTHER} AND {test} ORDER BY r.file, r.offset",
                args,
            )
        return rows

    def session_count(self) -> int:
        return int(self._rows("SELECT count(*) FROM sessions")[0][0])

    def title_records(self, threads: Iterable[int]) -> dict[int, int]:
        """The prompt that begins each of these threads, where one does."""
        return dict(
            self._rows(
                "SELECT t.id, t.title_record FROM json_each(?) j CROSS JOIN threads t ON t.id=j.value "
                "WHERE t.title_rank=1 AND t.title_record IS NOT NULL",
                _json(threads),
            )
        )

    def before(self, records: Iterable[int]) -> list[tuple[int, int]]:
        """(record, the one it follows) for each of these that follows one of its own session."""
        return self._rows(
            "SELECT a.id, b.id FROM json_each(?) j CROSS JOIN records a ON a.id=j.value "
            "CROSS JOIN records b ON b.uuid=a.parent AND b.session=a.session WHERE a.parent IS NOT NULL",
            _json(records),
        )

    # Records, copies, threads

    _RECORD = (
        "SELECT r.id,r.uuid,r.session,s.session_id,s.project,ty.text,r.kind,r.ts,r.flags,r.hidden,r.thread,r.parent,"
        "tn.text,r.agent FROM records r JOIN sessions s ON s.id=r.session LEFT JOIN names ty ON ty.id=r.type "
        "LEFT JOIN names tn ON tn.id=r.tool "
    )

    def record(self, number: int) -> Record | None:
        return self.records([number]).get(number)

    def records(self, numbers: Iterable[int]) -> dict[int, Record]:
        """The records of these numbers, as far as there are any."""
        rows = self._rows(self._RECORD + "WHERE r.id IN (SELECT value FROM json_each(?))", _json(numbers))
        return {row[0]: Record(*row) for row in rows}

    def records_of_uuid(self, low: bytes, high: bytes) -> list[Record]:
        """The records whose 16-byte uuid lies between two, of every session; the original one of each uuid first."""
        rows = self._rows(
            self._RECORD + "WHERE r.uuid BETWEEN ? AND ? AND length(r.uuid)=16 "
            "ORDER BY r.uuid, r.hidden&1, s.session_id LIMIT 200",
            low,
            high,
        )
        return [Record(*row) for row in rows]

    def records_of_content(self, low: bytes, high: bytes) -> list[tuple[Record, bytes]]:
        """The records one of whose copies has a digest between two, with that digest.

        Those without a uuid are found by it at once; for the others the copies are walked through, as there is no
        index by digest (it would take as much room as everything else that is stored of a copy).
        """
        rows = self._rows(
            self._RECORD + "WHERE r.uuid BETWEEN ? AND ? AND length(r.uuid)=8 ORDER BY r.uuid LIMIT 200",
            low[:8],
            high[:8],
        )
        found = [(Record(*row), bytes(row[1])) for row in rows]
        if found and low[:8] == high[:8]:
            return found
        for number, digest in self._rows(
            "SELECT DISTINCT record, digest FROM copies WHERE digest BETWEEN ? AND ? LIMIT 200", low, high
        ):
            record = self.record(number)
            if record is not None and len(record.uuid) == 16:
                found.append((record, digest))
        return found

    def copies(self, record: int) -> list[Copy]:
        """Where a record lies, the best copy first: the longest, then immutable before live, then the earliest."""
        return self.copies_of([record])[record]

    def copies_of(self, records: Iterable[int]) -> dict[int, list[Copy]]:
        """`copies` of several records."""
        found: dict[int, list[Copy]] = {number: [] for number in records}
        for row in self._rows(
            "SELECT c.record,c.file,f.path,f.generation,f.rank,c.offset,c.length,c.line,c.digest "
            "FROM json_each(?) j CROSS JOIN copies c ON c.record=j.value JOIN files f ON f.id=c.file",
            _json(found),
        ):
            found[row[0]].append(Copy(*row[1:]))
        for listed in found.values():
            if len(listed) > 1:
                listed.sort(key=lambda copy: (-copy.length, copy.rank, copy.path, copy.offset))
        return found

    _THREAD = (
        f"SELECT t.id,t.session,s.session_id,s.project,t.prompt,t.title,t.first_ts,t.last_ts,{TURNS},{TOKENS},"
        "t.canonical,t.title_rank "
        "FROM threads t JOIN sessions s ON s.id=t.session "
    )

    def thread(self, number: int) -> Thread | None:
        return self.threads([number]).get(number)

    def threads(self, numbers: Iterable[int]) -> dict[int, Thread]:
        """The threads of these numbers, as far as there are any."""
        rows = self._rows(self._THREAD + "WHERE t.id IN (SELECT value FROM json_each(?))", _json(numbers))
        return {row[0]: Thread(*row) for row in rows}

    def threads_of_prompt(self, prompt: str, prefix: bool) -> list[Thread]:
        """The threads of a prompt, or of all that begin so, with the original before its copies."""
        test = "t.prompt>=?1 AND t.prompt<?1||char(1114111)" if prefix else "t.prompt=?1"
        rows = self._rows(
            self._THREAD + f"WHERE {test} ORDER BY t.prompt, t.canonical IS NOT NULL, s.session_id LIMIT 100",
            prompt,
        )
        return [Thread(*row) for row in rows]

    def unattached(self, session: int) -> Thread | None:
        """The records of a session that belong to no thread, as if they were one; None where there are none."""
        row = self._row(self._THREAD + "WHERE t.session=? AND t.prompt IS NULL", session)
        if row is not None:
            return Thread(*row)
        if not self.loose(session):
            return None
        session_id, project = self._rows("SELECT session_id,project FROM sessions WHERE id=?", session)[0]
        return Thread(0, session, session_id, project, None, None, None, None, 0, 0, None)

    def loose(self, session: int) -> list[int]:
        """The records with something to say that have not even the row of unattached records to belong to."""
        rows = self._rows(
            "SELECT DISTINCT r.id FROM file_sessions a JOIN copies c ON c.file=a.file JOIN records r ON r.id=c.record "
            f"WHERE a.session=?1 AND r.session=?1 AND r.thread IS NULL AND r.kind<>{OTHER}",
            session,
        )
        return [number for (number,) in rows]

    def turns(self, thread: Thread) -> list[TurnRow]:
        """What of a thread is a turn, in order: generations by number, then the live transcript, by offset.

        Each record stands where its session's own files hold it first; a forked file that repeats it comes last.
        """
        loose = self.loose(thread.session) if thread.prompt is None else []
        rows = self._rows(
            "SELECT r.id,r.uuid,r.kind,ty.text,r.ts,r.flags,r.hidden,r.parent,r.tokens,r.agent,tn.text,c.file,"
            "min(CASE WHEN f.agent IS NOT NULL OR instr(f.path,s.session_id) THEN f.rank ELSE f.rank+?2 END),c.offset "
            "FROM records r JOIN copies c ON c.record=r.id JOIN files f ON f.id=c.file "
            "JOIN sessions s ON s.id=r.session "
            "LEFT JOIN names ty ON ty.id=r.type LEFT JOIN names tn ON tn.id=r.tool "
            "WHERE r.id IN (SELECT id FROM records WHERE thread=?1 UNION ALL SELECT value FROM json_each(?3)) "
            f"AND r.hidden&2=0 AND (r.kind<>{OTHER} OR ty.text IN ('user','assistant')) GROUP BY r.id",
            thread.id,
            4 * LIVE_RANK,
            _json(loose),
        )
        return sorted((TurnRow(*row) for row in rows), key=lambda turn: (turn.rank, turn.file, turn.offset))

    def chain(self, session: int) -> list[tuple[int, bytes, bytes | None, int]]:
        """(id, uuid, parent, kind) of a session's main-chain records, in order."""
        return self._rows(
            "SELECT r.id,r.uuid,r.parent,r.kind FROM threads t JOIN records r ON r.thread=t.id "
            "JOIN files f ON f.id=r.file "
            f"WHERE t.session=? AND r.agent IS NULL AND r.flags&{SIDECHAIN}=0 AND length(r.uuid)=16 "
            "ORDER BY f.rank,f.path,r.offset",
            session,
        )

    def at_uuid(self, uuid: bytes, session: int) -> Record | None:
        """The record of a uuid in a session, else in the session that has the original."""
        row = self._row(
            self._RECORD + "WHERE r.uuid=? ORDER BY r.session<>?, r.hidden&1, s.session_id LIMIT 1",
            uuid,
            session,
        )
        return Record(*row) if row else None

    def thread_before(self, thread: Thread) -> int | None:
        """The thread of the same session that began last before this one."""
        row = self._row(
            "SELECT id FROM threads WHERE session=? AND prompt IS NOT NULL AND id<>? AND said>0 AND first_ts<? "
            "ORDER BY first_ts DESC LIMIT 1",
            thread.session,
            thread.id,
            thread.first_ts,
        )
        return row[0] if row else None

    def cited_in(self, session_id: str) -> set[str]:
        """What a session has recalled so far."""
        rows = self._rows(
            "SELECT DISTINCT c.ref FROM citations c CROSS JOIN records r ON r.id=c.record "
            "WHERE r.session=(SELECT id FROM sessions WHERE session_id=?)",
            session_id,
        )
        return {ref for (ref,) in rows}

    def latest_threads(self, sessions: Iterable[int], limit: int, copies: bool = False) -> list[Thread]:
        """The threads of these sessions that a person began, the latest first; forks' copies of others if `copies`."""
        own = "" if copies else "AND t.canonical IS NULL "
        rows = self._rows(
            self._THREAD + "WHERE t.session IN (SELECT value FROM json_each(?)) AND t.prompt IS NOT NULL "
            f"AND t.title_rank IN (?,?) {own}ORDER BY t.last_ts DESC, t.id DESC LIMIT ?",
            _json(sessions),
            TITLE_RANK[PROMPT],
            TITLE_RANK[QUEUED],
            limit,
        )
        return [Thread(*row) for row in rows]

    def latest_said(self, limit: int) -> list[int]:
        """The records with what assistants said and thought last, as they were indexed."""
        rows = self._rows(
            "SELECT id FROM (SELECT id,kind FROM records ORDER BY id DESC LIMIT ?) WHERE kind IN (?,?,?) ORDER BY id",
            limit,
            REPLY,
            CALL,
            THINKING,
        )
        return [number for (number,) in rows]

    def started_by(self, thread: Thread) -> int | None:
        """The thread that launched the task whose notification this one begins with."""
        row = self._row(
            "SELECT b.thread FROM links n JOIN records a ON a.id=n.record "
            "JOIN links c ON c.session=n.session AND c.kind IN (?,?) AND c.key=n.key JOIN records b ON b.id=c.record "
            "WHERE n.session=? AND n.kind=? AND a.thread=? AND b.thread<>a.thread ORDER BY c.kind, b.id LIMIT 1",
            s.CALL,
            s.SPAWN,
            thread.session,
            s.NOTIFIED,
            thread.id,
        )
        return row[0] if row else None

    def also_in(self, records: Iterable[int]) -> dict[int, list[str]]:
        """The other sessions that hold each record: under their own name, or in a file of theirs."""
        found: dict[int, list[str]] = {number: [] for number in records}
        for number, name in self._rows(
            "SELECT a.id, s.session_id FROM json_each(?1) j CROSS JOIN records a ON a.id=j.value "
            "JOIN records b ON b.uuid=a.uuid AND b.session<>a.session JOIN sessions s ON s.id=b.session "
            "UNION SELECT a.id, s.session_id FROM json_each(?1) j CROSS JOIN records a ON a.id=j.value "
            "JOIN copies c ON c.record=a.id JOIN file_sessions f ON f.file=c.file AND f.session<>a.session "
            "JOIN sessions s ON s.id=f.session ORDER BY 1, 2",
            _json(found),
        ):
            found[number].append(name)
        return found

    def live(self, sessions: Iterable[int]) -> set[int]:
        """Which of these sessions have a live transcript to resume."""
        rows = self._rows(
            "SELECT DISTINCT s.id FROM json_each(?) j CROSS JOIN sessions s ON s.id=j.value "
            "JOIN file_sessions a ON a.session=s.id JOIN files f ON f.id=a.file "
            "WHERE f.generation IS NULL AND substr(f.path,-length(s.session_id)-7)='/'||s.session_id||'.jsonl' "
            "AND f.id NOT IN (SELECT file FROM doomed)",
            _json(sessions),
        )
        return {number for (number,) in rows}

    # Lists

    def session_list(
        self, sessions: Sequence[int] | None, since: int | None, until: int | None
    ) -> list[dict[str, Any]]:
        """Every session (of those given), the latest first, without its title."""
        wanted = None if sessions is None else set(sessions)
        # By the threads' index, and the few records without thread: grouping all records would sort them.
        counts = dict(
            self._rows("SELECT t.session, count(*) FROM threads t JOIN records r ON r.thread=t.id GROUP BY t.session")
        )
        for number, more in self._rows("SELECT session, count(*) FROM records WHERE thread IS NULL GROUP BY session"):
            counts[number] = counts.get(number, 0) + more
        kept = self._kept()
        rows = self._rows(
            "SELECT s.id,s.session_id,s.project,s.folder,s.forked_from,min(t.first_ts),max(t.last_ts),"
            f"count(t.prompt) FILTER (WHERE {s.OWN_THREAD}),coalesce(sum(t.tokens),0) FROM sessions s "
            "LEFT JOIN threads t ON t.session=s.id GROUP BY s.id ORDER BY 7 DESC, 2"
        )
        found = []
        for number, session_id, project, folder, forked, first, last, threads, tokens in rows:
            if wanted is not None and number not in wanted:
                continue
            if (since is not None and (last is None or last < since)) or (
                until is not None and (first is None or first > until)
            ):
                continue
            if number not in counts and session_id not in kept:
                continue
            live, generations, _ = kept.get(session_id, (None, 0, 0))
            found.append(
                {
                    "id": number, "session_id": session_id, "project": project, "folder": folder, "forked_from": forked,
                    "first_ts": first, "last_ts": last, "threads": threads, "records": counts.get(number, 0),
                    "est_tokens": tokens, "bytes": live or 0, "generations": generations, "live": live is not None,
                }
            )  # fmt: skip
        return found

    def _kept(self) -> dict[str, tuple[int | None, int, int]]:
        """session id → (bytes of its live transcript or None, generations, when it was last written)."""
        found: dict[str, tuple[int | None, int, int]] = {}
        for path, generation, size, mtime in self._rows(
            "SELECT path,generation,size,mtime_ns FROM files "
            "WHERE agent IS NULL AND id NOT IN (SELECT file FROM doomed)"
        ):
            folder, name = os.path.split(path)
            session_id = name.partition(".")[0] if generation is None else os.path.basename(folder)
            live, generations, written = found.get(session_id, (None, 0, 0))
            if generation is None:
                found[session_id] = ((live or 0) + (size or 0), generations, max(written, mtime or 0))
            else:
                found[session_id] = (live, generations + 1, written)
        return found

    def session_title(self, session: int) -> str | None:
        """A session's title: what the person set, else the client's, else a summary of a record of it."""
        row = self._row(
            "SELECT t.text FROM titles t JOIN copies c ON c.record=t.record JOIN files f ON f.id=c.file "
            "WHERE t.session=? AND t.kind<3 ORDER BY t.kind, f.rank DESC, c.offset DESC LIMIT 1",
            session,
        ) or self._row(
            "SELECT t.text FROM titles t JOIN records r ON r.uuid=t.leaf AND r.session=?1 "
            "JOIN copies c ON c.record=t.record JOIN files f ON f.id=c.file WHERE t.leaf IS NOT NULL AND r.hidden&1=0 "
            "ORDER BY r.ts DESC, f.rank DESC, f.path, c.offset DESC LIMIT 1",
            session,
        )
        return row[0] if row else None

    def first_thread(self, session: int) -> Thread | None:
        """The first thread that has a title, a prompt's before others."""
        row = self._row(
            self._THREAD + "WHERE t.session=? AND t.prompt IS NOT NULL AND t.title<>'' "
            "ORDER BY t.title_rank>1, t.first_ts IS NULL, t.first_ts, t.id LIMIT 1",
            session,
        )
        return Thread(*row) if row else None

    # States of a transcript

    def states(self, session_id: str | None = None) -> list[State]:
        """The generations of transcripts and the live ones, of one session or of all; by session, the live one last."""
        rows = self._rows(
            "SELECT id,path,coalesce(folder,''),generation,rank,size,resume_offset,mtime_ns FROM files "
            "WHERE agent IS NULL AND replaces IS NULL AND id NOT IN (SELECT file FROM doomed) AND (?1 IS NULL OR "
            "CASE WHEN generation IS NULL THEN substr(path,-length(?1)-7)='/'||?1||'.jsonl' "
            "ELSE instr(path,'/'||?1||'/')>0 END)",
            session_id,
        )
        found = []
        for number, path, folder, generation, rank, size, read, mtime in rows:
            above, name = os.path.split(path)
            owner = name.removesuffix(".jsonl") if generation is None else os.path.basename(above)
            if session_id is None or owner == session_id:
                found.append(State(number, path, folder, owner, generation, rank, size or 0, read, mtime or 0))
        return sorted(found, key=lambda state: (state.session_id, state.rank, state.mtime_ns, state.path))

    def project_of(self, session_id: str | None = None) -> dict[str, str | None]:
        """session → its project, of one or all."""
        return dict(self._rows("SELECT session_id,project FROM sessions WHERE ?1 IS NULL OR session_id=?1", session_id))

    def fidelity(self, file: int) -> tuple[int, int, int]:
        """(records, how many of them as long as the longest copy, how many that no other file holds) of one file."""
        row = self._rows(
            "SELECT count(*), coalesce(sum(c.length>=r.length),0), coalesce(sum(NOT EXISTS (SELECT 1 FROM copies o "
            "WHERE o.record=c.record AND o.file<>c.file)),0) FROM copies c JOIN records r ON r.id=c.record "
            "WHERE c.file=?",
            file,
        )[0]
        return row[0], row[1], row[2]

    def tokens_of(self, records: Iterable[int]) -> dict[int, int]:
        """About how many tokens each record has to say, as its best copy has it."""
        return dict(
            self._rows("SELECT id,tokens FROM records WHERE id IN (SELECT value FROM json_each(?))", _json(records))
        )

    def copies_in(self, file: int) -> dict[int, list[tuple[int, int, bytes]]]:
        """record → (offset, length, digest) of its copies in one file."""
        found: dict[int, list[tuple[int, int, bytes]]] = {}
        for record, *copy in self._rows(
            "SELECT record,offset,length,digest FROM copies WHERE file=? ORDER BY offset", file
        ):
            found.setdefault(record, []).append((copy[0], copy[1], copy[2]))
        return found

    # Health

    def whole(self) -> bool:
        """Whether everything there was has been read once: until then an answer may lack what is not read yet."""
        return bool(self._rows("SELECT EXISTS (SELECT 1 FROM whole)")[0][0])

    def empty(self) -> bool:
        """Whether there is no record at all."""
        return not self._rows("SELECT EXISTS (SELECT 1 FROM records)")[0][0]

    def counts(self) -> dict[str, Any]:
        """What the Map knows of `status`; counted again only where the Map has changed."""
        version = int(self._db.pragma("data_version"))
        if self._counted is None or self._counted[0] != version:
            self._counted = (version, self._count())
        return dict(self._counted[1])

    def _count(self) -> dict[str, Any]:
        one = self._rows(
            "SELECT (SELECT count(*) FROM sessions),"
            f"(SELECT count(*) FROM threads t WHERE prompt IS NOT NULL AND {s.OWN_THREAD}),"
            "(SELECT count(*) FROM records WHERE length(uuid)=16),"
            "(SELECT count(*) FROM records r INDEXED BY records_uuid CROSS JOIN copies c ON c.record=r.id "
            "WHERE length(r.uuid)<>16),"
            "(SELECT count(*) FROM gaps g JOIN files f ON f.id=g.file WHERE g.kind=1 AND f.generation IS NULL),"
            "(SELECT coalesce(sum(g.length),0) FROM gaps g JOIN files f ON f.id=g.file WHERE g.kind=2 AND "
            "f.generation IS NULL),"
            "(SELECT count(*) FROM threads t JOIN records r ON r.thread=t.id "
            "WHERE t.prompt IS NULL AND length(r.uuid)=16),"
            "(SELECT count(DISTINCT project) FROM sessions),"
            "(SELECT count(*) FROM files),"
            "(SELECT coalesce(sum(size),0) FROM files WHERE generation IS NULL),"
            "(SELECT count(*) FROM files WHERE generation IS NOT NULL)"
        )[0]
        names = (
            "sessions", "threads", "records", "no_uuid", "unparsed", "pending_bytes", "unattached", "projects", "files",
            "live_bytes", "generations",
        )  # fmt: skip
        return dict(zip(names, one, strict=True))

    def unparsed(self, limit: int) -> list[dict[str, Any]]:
        """The first spans that hold no record."""
        rows = self._rows(
            "SELECT f.path,g.line,g.offset,g.length FROM gaps g JOIN files f ON f.id=g.file WHERE g.kind=1 "
            "AND f.generation IS NULL ORDER BY f.path,g.offset LIMIT ?",
            limit,
        )
        return [{"path": path, "line": line, "offset": offset, "length": length} for path, line, offset, length in rows]

    def generation_files(self) -> list[tuple[str, int, int]]:
        """(path, packed size, indexed logical bytes) of every generation."""
        return self._rows("SELECT path, size, resume_offset FROM files WHERE generation IS NOT NULL")

    def only_live(self, before_ns: int) -> list[tuple[str, int]]:
        """(session id, mtime) of sessions last written before a time and kept in no generation, the oldest first."""
        found = [
            (session_id, written)
            for session_id, (live, generations, written) in self._kept().items()
            if live is not None and not generations and 0 < written < before_ns
        ]
        return sorted(found, key=lambda one: one[1])


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        raise NoIndex("the index is gone", "fabled index, or start the daemon: fabled daemon") from None
    return status.st_dev, status.st_ino


def _source(expression: str | None) -> tuple[str, str]:
    """(tables, condition) that hits come from; the full text leads.

    The score is the column `rank`: the function bm25() itself cannot stand where rows are grouped.
    """
    if expression is None:
        return "records r", f"r.kind<>{OTHER}"
    weights = f"{TEXT_WEIGHT},{THINKING_WEIGHT},{PARTS_WEIGHT}"
    return (
        "fts CROSS JOIN records r ON r.id=fts.rowid",
        f"fts MATCH :expression AND fts.rank MATCH 'bm25({weights})'",
    )


def _side(where: Where) -> str:
    """What keeps a subagent's records apart from those of its thread, where that is asked for."""
    return f"CASE WHEN r.flags&{SIDECHAIN} THEN coalesce(r.agent,-1) ELSE 0 END" if where.subagents else "0"


def _json(numbers: Iterable[int]) -> str:
    """Numbers as a parameter for json_each: the statement stays the same and is prepared once."""
    return "[" + ",".join(map(str, numbers)) + "]"


def _list(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)


def _condition(where: Where) -> tuple[str, dict[str, Any]]:
    """The condition on `records r` that a restriction makes, and its values."""
    tests = ["r.hidden&2=0" if where.own else "r.hidden=0"]
    args: dict[str, Any] = {}
    if where.sessions is not None:
        inside = "IN temp.scope"
        tests.append(f"r.session {inside}")
        if not where.own:
            # A fork in another project than its original is all that this project has of it.
            tests[0] = (
                "(r.hidden=0 OR (r.hidden=1 AND NOT EXISTS (SELECT 1 FROM records o "
                f"WHERE o.uuid=r.uuid AND o.hidden&1=0 AND o.session {inside})))"
            )
    if where.kinds is not None:
        tests.append(f"r.kind IN ({_list(where.kinds)})")
    if where.tools is not None:
        tests.append(f"r.tool IN ({_list(where.tools)})")
    if where.files is not None:
        tests.append(
            "r.thread IN (SELECT b.thread FROM touches a JOIN records b ON b.id=a.record "
            f"WHERE a.path IN ({_list(where.files)}))"
        )
    if where.since is not None:
        tests.append("r.ts>=:since")
        args["since"] = where.since
    if where.until is not None:
        tests.append("r.ts<=:until")
        args["until"] = where.until
    if where.terms:
        tests.append(f"r.thread IN (SELECT thread FROM terms WHERE term IN ({_list(where.terms)}))")
    elif where.term is not None:
        tests.append(
            "r.thread IN (SELECT b.thread FROM records b WHERE b.id IN (SELECT rowid FROM fts WHERE fts MATCH :term))"
        )
        args["term"] = where.term
    if where.subagents is False:
        tests.append(f"r.agent IS NULL AND r.flags&{SIDECHAIN}=0")
    return " AND ".join(tests), args
