"""Sums over the whole Map, by day, by session and by thread: what `stats` and `report` are made of.

Each is one pass over a table, in the order of a second for a million records; nothing is asked for all the time. Days
are those of the machine's time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import schema as s
from .queries import Queries
from .rows import Thread
from .vault import LIVE_RANK

_DAY = "date({0}/1000,'unixepoch','localtime')"
_NEAR = (
    "(SELECT ts FROM (SELECT p.ts FROM copies c JOIN records p ON p.id=c.record WHERE c.file=r.file AND "
    "c.offset{0}r.offset ORDER BY c.offset{1} LIMIT 64) WHERE ts IS NOT NULL LIMIT 1)"
)
"""The time of the nearest record before, or behind, that has one."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one session wrote on one day."""

    session: int
    day: str
    records: int
    bytes: int


class Figures:
    """Asks through the connection of `queries`."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def _rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        return self._queries._rows(sql, *args)

    def written(self, since: int | None, until: int | None) -> list[Written]:
        """Records and their bytes, by session and day; what a fork repeats counts once.

        What the client writes without a time (titles, snapshots) counts with the record before it.
        """
        rows = self._rows(
            f"SELECT session, {_DAY.format('ts')}, count(*), sum(length) FROM ("
            "SELECT session, ts, length FROM records WHERE hidden&1=0 AND ts IS NOT NULL UNION ALL "
            f"SELECT r.session, coalesce({_NEAR.format('<', ' DESC')}, {_NEAR.format('>', '')}, "
            "(SELECT max(last_ts) FROM threads t WHERE t.session=r.session), nullif(f.mtime_ns,-1)/1000000) AS ts, "
            "r.length FROM records r JOIN files f ON f.id=r.file WHERE r.hidden&1=0 AND r.ts IS NULL"
            ") WHERE ts BETWEEN ? AND ? GROUP BY 1,2 ORDER BY 2,1",
            *_span(since, until),
        )
        return [Written(*row) for row in rows]

    def live(self) -> dict[int, int]:
        """Bytes of the live transcripts of each session, those of its subagents among them."""
        return dict(
            self._rows(
                "SELECT session, sum(size) FROM files WHERE generation IS NULL AND replaces IS NULL AND session IS NOT "
                "NULL AND id NOT IN (SELECT file FROM doomed) GROUP BY session"
            )
        )

    def threads(self, since: int | None, until: int | None) -> list[tuple[int, str, int, int]]:
        """(session, day, threads begun, their tokens)."""
        return self._rows(
            f"SELECT t.session, {_DAY.format('t.first_ts')}, count(*), sum(t.tokens) FROM threads t WHERE "
            f"t.prompt IS NOT NULL AND t.first_ts BETWEEN ? AND ? AND {s.OWN_THREAD} GROUP BY 1,2",
            *_span(since, until),
        )

    def latest(self, prefix: str, limit: int) -> list[Thread]:
        """The latest threads whose prompt's id begins so; a fork's copies apart."""
        rows = self._rows(
            self._queries._THREAD + "WHERE t.prompt>=?1 AND t.prompt<?1||char(1114111) AND t.canonical IS NULL "
            "ORDER BY t.last_ts DESC LIMIT ?2",
            prefix,
            limit,
        )
        return [Thread(*row) for row in rows]

    def records_of(self, thread: Thread) -> list[int]:
        """Every record of a thread, whatever it is, in the order in which the session's own files hold them."""
        rows = self._rows(
            "SELECT r.id, min(CASE WHEN f.agent IS NOT NULL OR instr(f.path,s.session_id) THEN f.rank ELSE f.rank+?2 "
            "END), c.file, c.offset FROM records r JOIN copies c ON c.record=r.id JOIN files f ON f.id=c.file "
            "JOIN sessions s ON s.id=r.session WHERE r.thread=?1 GROUP BY r.id ORDER BY r.agent IS NOT NULL,2,3,4",
            thread.id,
            8 * LIVE_RANK,
        )
        return [row[0] for row in rows]

    def busiest(self, since: int | None, until: int | None, sessions: Sequence[int] | None, limit: int) -> list[Thread]:
        """The threads that say most."""
        inside = "" if sessions is None else f"AND t.session IN ({','.join(map(str, sessions))})"
        rows = self._rows(
            self._queries._THREAD + f"WHERE t.prompt IS NOT NULL AND t.first_ts BETWEEN ? AND ? AND {s.OWN_THREAD} "
            f"{inside} ORDER BY t.tokens DESC, t.id LIMIT ?",
            *_span(since, until),
            limit,
        )
        return [Thread(*row) for row in rows]

    def recalled(self, since: int | None, until: int | None) -> list[tuple[int, str, str]]:
        """(session, day, what) of every recall that a transcript shows; one comes back in several places."""
        return self._rows(
            f"SELECT r.session, min({_DAY.format('r.ts')}), c.ref FROM citations c JOIN records r ON r.id=c.record "
            "WHERE r.hidden&1=0 AND r.ts BETWEEN ? AND ? GROUP BY r.session, c.ref",
            *_span(since, until),
        )


def _span(since: int | None, until: int | None) -> tuple[int, int]:
    return since if since is not None else 1, until if until is not None else 1 << 60
