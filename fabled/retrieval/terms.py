"""Lists discovery terms: of everything, of a project or of one thread, and of what a search found.

Deriving them is left to `indexer`, which does it when nothing else waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import BadRequest
from ..store import termlist
from ..transcript.terms import CONCEPT, KINDS, NAMES, TARGET, weight
from .common import Params, Reader, find_thread, number_of, text_of, thread_id
from .scope import scope_of

DEFAULT_LIMIT, LARGEST_LIMIT = 50, 100_000
FACETS = 12
_MOST_HELD = 0.5
"""What more than this share of the threads found has in common does not part them."""


def terms(reader: Reader, params: Params) -> dict[str, Any]:
    """The terms that begin so, those of most threads first; with `thread` its own, the most telling first."""
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    offset = number_of(params, "offset", 0, 0, 10**9)
    kind = text_of(params, "kind")
    if kind is not None and kind not in KINDS:
        raise BadRequest(f"kind must be one of {', '.join(KINDS)}")
    beginning = text_of(params, "prefix") or ""
    queries = reader.queries
    with queries.snapshot():
        scope = scope_of(reader, params, within=False)
        looked, pending = termlist.totals(queries)
        given = text_of(params, "thread")
        of = None
        if given is not None:
            thread = find_thread(reader, given)
            of = thread_id(thread)
            found = [
                one
                for one in telling(reader, thread.id)
                if (kind is None or one["kind"] == kind) and one["term"].casefold().startswith(beginning.casefold())
            ]
            total, found = len(found), found[offset : offset + limit]
        else:
            rows, total = termlist.listed(
                queries,
                beginning,
                scope.sessions,
                None if kind is None else (KINDS[kind],),
                limit,
                offset,
            )
            found = [
                {"term": row.text, "kind": NAMES[row.kind], "threads": row.threads, "count": row.count,
                 "score": round(weight(row.count, row.threads, looked), 4)}
                for row in rows
            ]  # fmt: skip
    return {
        "prefix": beginning, "thread": of, "total": total, "offset": offset, "pending": pending, "terms": found,
        **scope.missing,
    }  # fmt: skip


def telling(reader: Reader, thread: int) -> list[dict[str, Any]]:
    """The terms of one thread, the most telling first."""
    rows = termlist.of_threads(reader.queries, [thread])
    held = termlist.holding(reader.queries, (row.number for row in rows))
    looked, _ = termlist.totals(reader.queries)
    found = [
        {"term": row.text, "kind": NAMES[row.kind], "threads": held.get(row.number, 1), "count": row.count,
         "score": round(weight(row.count, held.get(row.number, 1), looked), 4)}
        for row in rows
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-one["score"], one["term"]))


def facets(reader: Reader, threads: Iterable[int]) -> list[dict[str, Any]]:
    """The terms that part the threads a search found, the most telling first: each narrows the search by `term:`."""
    among = list(dict.fromkeys(number for number in threads if number > 0))
    if len(among) < 2:
        return []
    rows = [row for row in termlist.of_threads(reader.queries, among) if row.threads > 1 or row.kind != CONCEPT]
    rows = [row for row in rows if row.threads <= max(1, _MOST_HELD * len(among)) or row.kind == TARGET][:200]
    held = termlist.holding(reader.queries, (row.number for row in rows))
    looked, _ = termlist.totals(reader.queries)
    rows.sort(key=lambda row: (-row.threads * weight(1, held.get(row.number, 1), looked), row.text))
    return [{"term": row.text, "kind": NAMES[row.kind], "threads": row.threads} for row in rows[:FACETS]]
