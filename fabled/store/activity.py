"""The SELECTs behind `recent`, `overview` and `file`: last threads, last turns, changed files, recalls.

Part of `queries.Queries`, which owns the connection. None of them looks at all records: each follows an index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import schema as s
from .rows import Thread

_REAL = "(1,2,3,4,5)"
"""Kinds that make a thread more than a command of the client's own: prompt, reply, thinking, call, result."""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """One of the last turns of a thread."""

    id: int
    uuid: bytes
    hidden: int
    kind: int
    ts: int | None
    length: int
    tool: str | None


@dataclass(frozen=True, slots=True)
class Touch:
    """A record whose tool call names a file."""

    record: int
    uuid: bytes
    hidden: int
    session: int
    thread: int | None
    ts: int | None
    tool: str
    path: str
    copied: bool
    """a subagent's step as its session's transcript repeats it"""
    flags: int
    agent: int | None


@dataclass(frozen=True, slots=True)
class Recall:
    """How often threads were handed to another one: `refs` different ones, in `records` records."""

    project: str | None
    session_id: str
    thread: int | None
    """None: the session itself, outside of its threads"""
    refs: int
    records: int
    last_ts: int | None


class Activity:
    """What a person did lately, and to which files."""

    def _rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    _LISTED = "t.prompt IS NOT NULL AND t.said>0"

    # Threads

    def active_threads(
        self, sessions: Iterable[int] | None, since: int | None, until: int | None, limit: int, offset: int
    ) -> list[tuple[int, int, int | None]]:
        """(thread, rank of its title, original of a fork's copy) of the threads of some sessions, the latest first."""
        tables = "threads t INDEXED BY threads_last"
        if sessions is not None:
            tables = "json_each(:sessions) j CROSS JOIN threads t INDEXED BY threads_recent ON t.session=j.value"
        return self._rows(
            f"SELECT t.id,t.title_rank,t.canonical FROM {tables} WHERE {self._LISTED} "
            "AND (:since IS NULL OR t.last_ts>=:since) AND (:until IS NULL OR t.first_ts<=:until) "
            "ORDER BY t.last_ts DESC, t.id DESC LIMIT :limit OFFSET :offset",
            {
                "sessions": _json(sessions) if sessions is not None else None, "since": since, "until": until,
                "limit": limit, "offset": offset,
            },
        )  # fmt: skip

    def real(self, thread: int) -> bool:
        """Whether somebody said or did something in a thread, beside commands of the client's own."""
        return bool(self._rows(f"SELECT 1 FROM records WHERE thread=? AND kind IN {_REAL} LIMIT 1", thread))

    def own(self, thread: int) -> bool:
        """Whether anything was said or done in a fork's copy of a thread that its original does not have."""
        return bool(
            self._rows(f"SELECT 1 FROM records WHERE thread=? AND hidden&1=0 AND kind IN {_REAL} LIMIT 1", thread)
        )

    def last_threads(self, session: int, limit: int) -> list[tuple[int, int]]:
        """(thread, rank of its title) of the last threads of one session."""
        return self._rows(
            f"SELECT t.id,t.title_rank FROM threads t INDEXED BY threads_recent WHERE t.session=? AND {self._LISTED} "
            "ORDER BY t.last_ts DESC, t.id DESC LIMIT ?",
            session,
            limit,
        )

    def last_turns(self, thread: int, limit: int) -> list[LastTurn]:
        """The last turns of a thread's main chain, in order.

        The newest numbers are looked at, and put in order by their places: a record that came late, from a generation,
        has a high number and a place of its own.
        """
        rows = self._rows(
            "WITH l AS MATERIALIZED (SELECT r.id FROM records r WHERE r.thread=?1 AND r.agent IS NULL AND r.flags&1=0 "
            "AND r.hidden&2=0 AND r.kind<>0 ORDER BY r.id DESC LIMIT ?2) "
            "SELECT r.id,r.uuid,r.hidden,r.kind,r.ts,r.length,n.text,min(f.rank),f.path,c.offset "
            "FROM l CROSS JOIN records r ON r.id=l.id JOIN copies c ON c.record=r.id JOIN files f ON f.id=c.file "
            "JOIN sessions s ON s.id=r.session LEFT JOIN names n ON n.id=r.tool "
            "WHERE instr(f.path,s.session_id) OR NOT EXISTS (SELECT 1 FROM copies o JOIN files g ON g.id=o.file "
            "WHERE o.record=r.id AND instr(g.path,s.session_id)) GROUP BY r.id",
            thread,
            limit,
        )
        rows.sort(key=lambda row: row[7:])
        return [LastTurn(*row[:7]) for row in rows]

    def is_answered(self, session: int, call: int) -> bool:
        """Whether a session has the result of a call, named by the key of its id."""
        return bool(
            self._rows("SELECT 1 FROM links WHERE session=? AND kind=? AND key=? LIMIT 1", session, s.ANSWER, call)
        )

    def answer_of(self, session: int, call: int) -> tuple[int, int] | None:
        """(record, length) of the result of a call."""
        rows = self._rows(
            "SELECT r.id,r.length FROM links l JOIN records r ON r.id=l.record "
            "WHERE l.session=? AND l.kind=? AND l.key=? ORDER BY r.length DESC LIMIT 1",
            session,
            s.ANSWER,
            call,
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def files_named(self, thread: int) -> list[tuple[str, str, int]]:
        """(path, tool, how often) of what a thread's calls name, the latest first."""
        return self._rows(
            "SELECT n.text,tn.text,count(*) FROM records i INDEXED BY records_thread "
            "CROSS JOIN touches t ON t.record=i.id CROSS JOIN records r ON r.id=t.record "
            "JOIN names n ON n.id=t.path JOIN names tn ON tn.id=r.tool WHERE i.thread=? AND r.hidden&2=0 "
            "GROUP BY t.path,r.tool ORDER BY max(coalesce(r.ts,0)) DESC, max(r.id) DESC",
            thread,
        )

    def continued_in(self, record: int, after: int | None) -> list[str]:
        """The other sessions that hold a record and went on from there."""
        rows = self._rows(
            "SELECT s.session_id FROM records a JOIN records b ON b.uuid=a.uuid AND b.session<>a.session "
            "JOIN sessions s ON s.id=b.session WHERE a.id=?1 AND length(a.uuid)=16 AND EXISTS (SELECT 1 FROM threads t "
            f"WHERE t.session=b.session AND {self._LISTED} AND t.last_ts>?2) ORDER BY 1",
            record,
            after or 0,
        )
        return [name for (name,) in rows]

    # Projects

    def activity(self) -> list[tuple[int, str | None, str | None, int, int | None, int | None]]:
        """(session, project, folder, threads, first, last) of every session with a thread, the latest first."""
        return self._rows(
            "SELECT s.id,s.project,s.folder,count(*),min(t.first_ts),max(t.last_ts) FROM threads t "
            f"JOIN sessions s ON s.id=t.session WHERE {self._LISTED} AND {s.OWN_THREAD} GROUP BY t.session "
            "ORDER BY 6 DESC, s.session_id"
        )

    # Compactions

    def compactions(self, session: int) -> list[tuple[int, int | None, bytes | None, int | None]]:
        """(record of the summary, time, its parent, its thread) of a session's compactions, in order of time."""
        return self._rows(
            "SELECT r.id,r.ts,r.parent,r.thread FROM records r INDEXED BY records_summary JOIN names n ON n.id=r.type "
            "WHERE r.session=? AND r.kind=7 AND n.text='user' AND r.agent IS NULL ORDER BY r.ts, r.id",
            session,
        )

    def threads_before(self, session: int, ts: int, limit: int) -> tuple[list[tuple[int, int]], int]:
        """(thread, rank of its title) of the latest threads of a session that began before a time, in order, and how
        many there are."""
        test = f"t.session=?1 AND {self._LISTED} AND t.first_ts<?2"
        real = f"(t.title_rank<>2 OR EXISTS (SELECT 1 FROM records r WHERE r.thread=t.id AND r.kind IN {_REAL}))"
        rows = self._rows(
            f"SELECT t.id,t.title_rank,count(*) OVER () FROM threads t INDEXED BY threads_recent WHERE {test} "
            f"AND {real} ORDER BY t.last_ts DESC, t.id DESC LIMIT ?3",
            session,
            ts,
            limit,
        )
        return [(number, rank) for number, rank, _ in reversed(rows)], rows[0][2] if rows else 0

    def threads_of(self, session: int, uuids: Sequence[bytes]) -> set[int]:
        """The threads of some records of a session."""
        rows = self._rows(
            "SELECT DISTINCT r.thread FROM json_each(?2) j JOIN records r ON r.uuid=unhex(j.value) AND r.session=?1 "
            "WHERE r.thread IS NOT NULL",
            session,
            "[" + ",".join(f'"{uuid.hex()}"' for uuid in uuids) + "]",
        )
        return {number for (number,) in rows}

    # Files

    def paths_named(self, exact: Sequence[str], ending: str | None) -> list[tuple[int, str]]:
        """(number, path) of files that calls name: those spelt exactly so; else those that end with `/ending`."""
        touched = "EXISTS (SELECT 1 FROM touches t WHERE t.path=n.id)"
        known = f"SELECT n.id,n.text FROM names n WHERE n.text=? AND {touched}"
        rows = [row for one in exact for row in self._rows(known, one)]
        if rows or not ending:
            return rows
        return self._rows(
            "SELECT n.id,n.text FROM names n WHERE substr(n.text,-length(?1)) IN (?1,?2) "
            f"AND {touched} ORDER BY n.text",
            "/" + ending,
            "\\" + ending.replace("/", "\\"),
        )

    def touches_of(
        self, paths: Iterable[int], sessions: Iterable[int] | None, since: int | None, until: int | None
    ) -> list[Touch]:
        """The records whose calls name some files, in order of time; a fork's copies are left out."""
        wanted = None if sessions is None else set(sessions)
        rows = self._rows(
            "SELECT r.id,r.uuid,r.hidden,r.session,r.thread,r.ts,n.text,p.text,ty.text='progress',r.flags,r.agent "
            "FROM json_each(:paths) j CROSS JOIN touches t INDEXED BY touches_path ON t.path=j.value "
            "CROSS JOIN records r ON r.id=t.record JOIN names n ON n.id=r.tool JOIN names p ON p.id=t.path "
            "JOIN names ty ON ty.id=r.type WHERE r.hidden=0 AND (:since IS NULL OR r.ts>=:since) "
            "AND (:until IS NULL OR r.ts<=:until) ORDER BY r.ts, r.id",
            {"paths": _json(paths), "since": since, "until": until},
        )
        return [Touch(*row) for row in rows if wanted is None or row[3] in wanted]

    # Citations

    def recalled_by(self, thread: Thread) -> list[tuple[str, int, int | None]]:
        """(ref, records, last time) of what a thread was handed: in its own records, and right before its first one."""
        return self._rows(
            "SELECT c.ref, count(*), max(r.ts) FROM (SELECT id FROM records WHERE thread=?1 UNION "
            "SELECT value FROM json_each(?2)) i CROSS JOIN citations c ON c.record=i.id JOIN records r ON r.id=i.id "
            "WHERE r.hidden&2=0 GROUP BY c.ref ORDER BY min(r.ts), min(r.id), c.ref",
            thread.id,
            _json(self._leading(thread.id)),
        )

    def _leading(self, thread: int) -> list[int]:
        """The records of no thread that stand right before a thread's first one: what a session starts with."""
        first = self._rows(
            "SELECT c.file,c.offset FROM (SELECT id FROM records WHERE thread=? AND agent IS NULL ORDER BY id LIMIT 1) "
            "i CROSS JOIN copies c ON c.record=i.id JOIN files f ON f.id=c.file ORDER BY f.rank DESC LIMIT 1",
            thread,
        )
        found = []
        for file, offset in first:
            for record, belongs in self._rows(
                "SELECT r.id,r.thread FROM copies c CROSS JOIN records r ON r.id=c.record "
                "WHERE c.file=? AND c.offset<? ORDER BY c.offset DESC LIMIT 60",
                file,
                offset,
            ):
                if belongs is not None:
                    break
                found.append(record)
        return found

    def citing(self, refs: Sequence[str], thread: int) -> list[tuple[int, int | None, str, str, int | None]]:
        """(record, thread, session, type, time) of records that cite one of these ids or begin of ids, or a record of
        `thread`; a fork's copies are left out."""
        return self._rows(
            "SELECT DISTINCT r.id,r.thread,s.session_id,n.text,r.ts FROM (SELECT c.record AS id FROM json_each(?1) j "
            "CROSS JOIN citations c INDEXED BY citations_ref ON c.ref=j.value UNION "
            "SELECT c.record FROM records m INDEXED BY records_thread CROSS JOIN citations c INDEXED BY citations_ref "
            "ON c.ref=lower(substr(hex(m.uuid),1,8)||'-'||substr(hex(m.uuid),9,4)||'-'||substr(hex(m.uuid),13,4)||'-'||"
            "substr(hex(m.uuid),17,4)||'-'||substr(hex(m.uuid),21)) WHERE m.thread=?2) i "
            "CROSS JOIN records r ON r.id=i.id JOIN sessions s ON s.id=r.session JOIN names n ON n.id=r.type "
            "WHERE r.hidden=0 ORDER BY r.ts, r.id",
            _texts(refs),
            thread,
        )

    def refs_like(self, begin: str) -> list[str]:
        """The refs that begin so, as citations have them."""
        rows = self._rows(
            "SELECT DISTINCT ref FROM citations INDEXED BY citations_ref WHERE ref>=?1 AND ref<?1||char(1114111) "
            "LIMIT 200",
            begin,
        )
        return [ref for (ref,) in rows]

    def thread_behind(self, record: int) -> int | None:
        """The thread of the first record behind one that has a thread: whom a session's start was told to."""
        rows = self._rows("SELECT file,offset FROM records WHERE id=?", record)
        for file, offset in rows:
            for (thread,) in self._rows(
                "SELECT r.thread FROM (SELECT record,offset FROM copies WHERE file=? AND offset>? ORDER BY offset "
                "LIMIT 60) c CROSS JOIN records r ON r.id=c.record WHERE r.thread IS NOT NULL "
                "ORDER BY c.offset LIMIT 1",
                file,
                offset,
            ):
                return int(thread)
        return None

    def recalls(self, since: int | None = None, until: int | None = None) -> list[Recall]:
        """How often recalled threads were handed to each thread, for `stats`; the most first.

        A recall comes back in up to four records of a thread; it counts once. Copies of requests, and whatever else
        belongs to no thread, count for the session only where none of its threads cites the same.
        """
        rows = self._rows(
            "WITH c AS MATERIALIZED (SELECT r.session,r.thread,c.ref,count(*) AS n,max(r.ts) AS ts FROM citations c "
            "JOIN records r ON r.id=c.record WHERE r.hidden=0 AND (:since IS NULL OR r.ts>=:since) "
            "AND (:until IS NULL OR r.ts<=:until) GROUP BY r.session,r.thread,c.ref) "
            "SELECT s.project,s.session_id,c.thread,count(*),sum(c.n),max(c.ts) FROM c JOIN sessions s "
            "ON s.id=c.session WHERE c.thread IS NOT NULL OR NOT EXISTS (SELECT 1 FROM c d WHERE d.session=c.session "
            "AND d.ref=c.ref AND d.thread IS NOT NULL) GROUP BY c.session,c.thread ORDER BY 4 DESC, 6 DESC, 2, 3",
            {"since": since, "until": until},
        )
        return [Recall(*row) for row in rows]


def _json(numbers: Iterable[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


def _texts(texts: Iterable[str]) -> str:
    """Texts as a parameter for json_each."""
    return json.dumps(list(texts), ensure_ascii=False)
