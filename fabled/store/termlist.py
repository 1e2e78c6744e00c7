"""Every SELECT about discovery terms that answers a user.

What the words mean is left to `transcript.terms`, keeping them to `terms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .queries import Queries

_FACETED = 2_000
"""Of so many threads at most the terms are counted together."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A term over several threads."""

    number: int
    kind: int
    text: str
    threads: int
    count: int


def _in(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)


def term_numbers(queries: Queries, texts: Iterable[str]) -> tuple[int, ...]:
    """The numbers of the terms spelt so, in any case, or of the files whose path ends so; () where there are none."""
    found: dict[int, None] = {}
    for text in texts:
        for (number,) in queries._rows(
            "SELECT n.id FROM names n WHERE (n.text IN (?1,?2) OR n.text=?1 COLLATE NOCASE OR "
            "substr(n.text,-length(?1)-1)='/'||?1) AND EXISTS (SELECT 1 FROM terms e WHERE e.term=n.id)",
            text,
            text.lower(),
        ):
            found[number] = None
    return tuple(found)


def listed(
    queries: Queries,
    beginning: str,
    sessions: Sequence[int] | None,
    kinds: Sequence[int] | None,
    limit: int,
    offset: int,
) -> tuple[list[Counted], int]:
    """The terms that begin so, in any case, those of most threads first, and how many there are.

    A fork's copies of threads do not count beside the originals.
    """
    tests = ["t.canonical IS NULL"]
    if sessions is not None:
        tests.append(f"t.session IN ({_in(sessions)})")
    if kinds is not None:
        tests.append(f"e.kind IN ({_in(kinds)})")
    if beginning:
        tests.append("substr(n.text,1,length(:beginning))=:beginning COLLATE NOCASE")
    rows = queries._rows(
        "SELECT e.term,e.kind,n.text,count(*),sum(e.count),count(*) OVER () FROM terms e "
        f"JOIN threads t ON t.id=e.thread JOIN names n ON n.id=e.term WHERE {' AND '.join(tests)} "
        "GROUP BY e.term,e.kind ORDER BY 4 DESC, 5 DESC, 3, 2 LIMIT :limit OFFSET :offset",
        {"limit": limit, "offset": offset, **({"beginning": beginning} if beginning else {})},
    )
    return [Counted(*row[:5]) for row in rows], rows[0][5] if rows else 0


def of_threads(queries: Queries, threads: Iterable[int]) -> list[Counted]:
    """The terms of some threads, counted together."""
    some = _in(list(dict.fromkeys(threads))[:_FACETED])
    rows = queries._rows(
        "SELECT e.term,e.kind,n.text,count(*),sum(e.count) FROM terms e JOIN names n ON n.id=e.term "
        f"WHERE e.thread IN ({some}) GROUP BY e.term,e.kind ORDER BY 4 DESC, 5 DESC, 3"
    )
    return [Counted(*row) for row in rows]


def holding(queries: Queries, numbers: Iterable[int]) -> dict[int, int]:
    """How many threads hold each of these terms."""
    return dict(
        queries._rows(f"SELECT term,count(DISTINCT thread) FROM terms WHERE term IN ({_in(numbers)}) GROUP BY term")
    )


def totals(queries: Queries) -> tuple[int, int]:
    """(threads that have been looked through, threads that wait for it)."""
    row = queries._rows("SELECT (SELECT count(*) FROM terms_of),(SELECT count(*) FROM terms_due)")[0]
    return row[0], row[1]
