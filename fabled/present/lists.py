"""Sessions, projects and spans as lists.

Filtering and order are decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.terminal import Style, cells, count, day, one_line, pad, path, plural, short, size

Value = Mapping[str, Any]


def sessions(value: Value, style: Style) -> list[str]:
    rows = value.get("sessions") or []
    if not rows:
        return ["No sessions."]
    table = []
    for row in rows:
        title = one_line(str(row.get("title") or "")) or path(str(row.get("project") or ""), style)
        right = [plural(row.get("threads", 0), "thread"), plural(row.get("records", 0), "record")]
        if style.width >= 100:
            right.append(size(row.get("bytes") or 0))
        table.append(([short(str(row["session_id"])), day(row.get("last_ts"), style)], title, right))
    return [*_table(table, style), *_more(value, len(rows), style)]


def projects(value: Value, style: Style) -> list[str]:
    rows = value.get("projects") or []
    if not rows:
        return ["No projects."]
    table = []
    for row in rows:
        name = path(str(row.get("project") or ""), style)
        right = [plural(row.get("sessions", 0), "session"), plural(row.get("threads", 0), "thread")]
        if style.width >= 100:
            right.append(size(row.get("bytes") or 0))
        table.append(([day(row.get("last_ts"), style)], name, right))
    return [*_table(table, style), *_more(value, len(rows), style)]


def _table(rows: Sequence[tuple[list[str], str, list[str]]], style: Style) -> list[str]:
    """Columns left of a title and right of it, each as wide as it must be; the title takes what is left."""
    left, right = _widths([row[0] for row in rows]), _widths([row[2] for row in rows])
    room = style.width - 1 - sum(left) - 2 * len(left) - sum(right) - 2 * len(right)
    title = max(8, min(room, max(cells(row[1]) for row in rows)))
    lines = []
    for before, name, after in rows:
        first, *others = (f"{text:<{width}}" for text, width in zip(before, left, strict=True))
        figures = "  ".join(f"{text:>{width}}" for text, width in zip(after, right, strict=True))
        lines.append("  ".join([style.id(first), *others, pad(name, title), style.dim(figures)]))
    return lines


def _widths(rows: Sequence[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _more(value: Value, shown: int, style: Style) -> list[str]:
    total = value.get("total") or 0
    return [style.dim(f"{count(shown)} of {count(total)}")] if total > shown else []


def spans(value: Value, style: Style) -> list[str]:
    """Every span on a line, and below it what the file is made of."""
    rows = value.get("spans") or []
    lines = [
        f"{row['kind']:<9}  line {count(row['line']):>7}  {count(row['offset']):>13} + {count(row['length']):<11}"
        f"  {one_line(row.get('uuid') or '')}"
        for row in rows
    ]
    kinds = Counter(row["kind"] for row in rows)
    words = {
        "record": "record",
        "no_uuid": "record without uuid",
        "unparsed": "unparsed span",
        "pending": "pending tail",
        "separator": "separator",
    }
    total = (
        ", ".join(
            plural(kinds[kind], word).replace("record without uuids", "records without uuid")
            for kind, word in words.items()
            if kinds[kind]
        )
        or "an empty file"
    )
    return [*lines, style.dim(total)]


PLAIN = {
    "search": ("results", ("thread", "last_ts", "project", "score", "turns", "est_tokens", "role", "title", "snippet")),
    "sessions": ("sessions", ("session_id", "project", "first_ts", "last_ts", "threads", "records", "title")),
    "projects": ("projects", ("project", "sessions", "threads", "records", "last_ts")),
    "recent": ("results", ("thread", "last_ts", "project", "turns", "title", "files_total", "session_id")),
    "overview": ("results", ("project", "sessions", "threads", "last_ts")),
    "file": ("results", ("ts", "thread", "tool", "path", "added", "removed", "outcome", "block", "summary")),
    "spans": ("spans", ("kind", "line", "offset", "length", "uuid")),
    "generations": (
        "generations",
        ("session_id", "part", "generation", "at", "logical_bytes", "bytes", "reason", "retired", "path"),
    ),
    "terms": ("terms", ("term", "kind", "threads", "count", "score")),
    "cards": ("cards", ("thread", "last_ts", "project", "type", "source", "title", "outcome")),
    "stats": (
        "rows",
        ("project", "day", "sessions", "threads", "records", "written_bytes", "saved_bytes", "recalled"),
    ),
    "check": ("checks", ("id", "ok", "tested", "failed", "message")),
}


def plain(method: str, value: Value) -> list[str]:
    """One row a line, its columns parted by tabs, for other programs."""
    key, columns = PLAIN[method]
    rows = value.get(key) or []
    return ["\t".join(_cell(row.get(column)) for column in columns) for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(str(value))
