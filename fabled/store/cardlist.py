"""The SELECTs behind cards: which threads there are, and which files their tools named.

What a card says of them is left to `retrieval`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .queries import Queries


def threads(
    queries: Queries, sessions: Sequence[int] | None, before_ts: int | None = None, least_turns: int = 1
) -> list[int]:
    """The threads (of some sessions) that are no fork's copies, the latest first.

    `before_ts`: only those whose last record is older; `least_turns`: only those with so many.
    """
    tests = ["canonical IS NULL", "prompt IS NOT NULL", "said>0", "turns>=:least"]
    if sessions is not None:
        tests.append(f"session IN ({','.join(str(int(number)) for number in sessions)})")
    if before_ts is not None:
        tests.append("last_ts<:before")
    rows = queries._rows(
        f"SELECT id FROM threads WHERE {' AND '.join(tests)} ORDER BY last_ts DESC, id DESC",
        {"least": least_turns, **({"before": before_ts} if before_ts is not None else {})},
    )
    return [number for (number,) in rows]


def files(queries: Queries, thread: int) -> list[tuple[str, str | None, int]]:
    """(path, tool, calls) of the files that the tool calls of a thread name."""
    return queries._rows(
        "SELECT p.text,n.text,count(*) FROM records r JOIN touches t ON t.record=r.id JOIN names p ON p.id=t.path "
        "LEFT JOIN names n ON n.id=r.tool WHERE r.thread=? GROUP BY p.text,n.text",
        thread,
    )
