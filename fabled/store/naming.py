"""What the Map's projects, tools, files and terms are called: what a misspelt name is compared with.

Which of them look like it is left to `retrieval`.
"""

from __future__ import annotations

from .queries import Queries

MOST = 20_000


def projects(queries: Queries) -> list[str]:
    """Every project, the latest first, by its path where that is known, else by its folder's name."""
    rows = queries._rows(
        "SELECT coalesce(s.project,s.folder), max(t.last_ts) FROM sessions s LEFT JOIN threads t ON t.session=s.id "
        "WHERE coalesce(s.project,s.folder) IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?",
        MOST,
    )
    return [name for name, _ in rows]


def tools(queries: Queries) -> list[str]:
    """Every tool that was called."""
    rows = queries._rows("SELECT text FROM names WHERE id IN (SELECT DISTINCT tool FROM records) LIMIT ?", MOST)
    return [name for (name,) in rows]


def files(queries: Queries) -> list[str]:
    """Every file that a tool call names."""
    rows = queries._rows(
        "SELECT n.text FROM (SELECT DISTINCT path FROM touches) t CROSS JOIN names n ON n.id=t.path LIMIT ?", MOST
    )
    return [name for (name,) in rows]


def terms(queries: Queries, beginning: str) -> list[str]:
    """The discovery terms that begin so, in any case."""
    rows = queries._rows(
        "SELECT n.text FROM (SELECT DISTINCT term FROM terms) e CROSS JOIN names n ON n.id=e.term "
        "WHERE substr(n.text,1,length(?1))=?1 COLLATE NOCASE LIMIT ?2",
        beginning,
        MOST,
    )
    return [name for (name,) in rows]
