"""Keeps threads' terms: which threads lack them, what they are taken from, and what came out.

Reading the records is left to `indexer`, what a term is to `transcript.terms`, answering users to `queries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ..transcript.record import HUGE_LINE
from ..transcript.terms import READ_KINDS, Term
from .map import Map

MOST_BYTES = 8 << 20
"""Of a thread with more than this to read, its beginning and its end are read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one record lies that terms are taken from."""

    path: str
    offset: int
    length: int
    digest: bytes
    kind: int


class ThreadTerms:
    """Works on the writer's connection."""

    def __init__(self, map_: Map) -> None:
        self.map = map_
        self.db: Any = map_.db

    def due(self, before_ts: int | None = None) -> list[int]:
        """The threads whose terms must be derived; `before_ts`: only those whose last record is older."""
        if before_ts is None:
            rows = self.db.execute("SELECT thread FROM terms_due ORDER BY thread")
        else:
            rows = self.db.execute(
                "SELECT d.thread FROM terms_due d LEFT JOIN threads t ON t.id=d.thread "
                "WHERE coalesce(t.last_ts,0)<? ORDER BY d.thread",
                (before_ts,),
            )
        return [thread for (thread,) in rows]

    def sources(self, thread: int) -> tuple[int | None, list[Source]]:
        """(mark of the records, None if it is already derived from just these; where they lie, in order)."""
        rows = self.db.execute(
            "SELECT f.path,r.offset,r.length,c.digest,r.kind FROM records r JOIN files f ON f.id=r.file "
            "JOIN copies c ON c.file=r.file AND c.offset=r.offset "
            f"WHERE r.thread=? AND r.kind IN ({','.join(map(str, READ_KINDS))}) ORDER BY f.rank,f.path,r.offset",
            (thread,),
        ).fetchall()
        check = blake2b(digest_size=8)
        for digest in sorted(row[3] for row in rows):
            check.update(digest)
        mark = int.from_bytes(check.digest(), "big", signed=True)
        have = self.db.execute("SELECT mark FROM terms_of WHERE thread=?", (thread,)).fetchone()
        if have is not None and have[0] == mark:
            return None, []
        return mark, _bounded([Source(*row) for row in rows if row[2] <= HUGE_LINE])

    def store(self, done: Iterable[tuple[int, int | None, Sequence[Term]]]) -> None:
        """Stores the terms of several threads, each with its mark; None: they stand as they are."""
        db = self.db
        with self.map.transaction("terms"):
            for thread, mark, terms in done:
                db.execute("DELETE FROM terms_due WHERE thread=?", (thread,))
                if mark is None:
                    continue
                db.execute("DELETE FROM terms WHERE thread=?", (thread,))
                db.execute("DELETE FROM terms_of WHERE thread=?", (thread,))
                if db.execute("SELECT 1 FROM threads WHERE id=?", (thread,)).fetchone() is None:
                    continue
                rows = [(thread, term.kind, self.map.name(term.text), term.count) for term in terms]
                db.executemany("INSERT INTO terms VALUES(?,?,?,?)", rows)
                db.execute("INSERT INTO terms_of VALUES(?,?)", (thread, mark))


def _bounded(sources: list[Source]) -> list[Source]:
    """All of them, or as much of the beginning and of the end as fits."""
    if sum(source.length for source in sources) <= MOST_BYTES:
        return sources
    low, high = 0, len(sources)
    room = MOST_BYTES // 2
    while low < high and room > 0:
        room -= sources[low].length
        low += 1
    room += MOST_BYTES // 2
    while high > low and room > 0:
        high -= 1
        room -= sources[high].length
    return sources[:low] + sources[high:]
