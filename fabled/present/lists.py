"""Sessions, projects and spans as lists.

Filtering and order are decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabled.present.columns import cells, fit, middle, pad, title_width, widest
from fabled.present.terminal import Style, count, day, one_line, path, plural, plurals, short, size

Value = Mapping[str, Any]


def sessions(value: Value, style: Style) -> list[str]:
    rows = value.get("sessions") or []
    if not rows:
        return ["No sessions."]
    left = [[short(str(row["session_id"])), day(row.get("last_ts"), style)] for row in rows]
    titles = [one_line(str(row.get("title") or "")) or path(str(row.get("project") or ""), style) for row in rows]
    return [*_table(left, titles, _sums(rows, ("threads", "records"), style), style), *_more(value, len(rows), style)]


def projects(value: Value, style: Style) -> list[str]:
    rows = value.get("projects") or []
    if not rows:
        return ["No projects."]
    left = [[day(row.get("last_ts"), style)] for row in rows]
    names = [path(str(row.get("project") or ""), style) for row in rows]
    figures = _sums(rows, ("sessions", "threads"), style)
    return [*_table(left, names, figures, style, middle), *_more(value, len(rows), style)]


def _sums(rows: Sequence[Value], of: Sequence[str], style: Style) -> list[str]:
    """What stands right of a title, of one width in all rows."""
    columns = [plurals([row.get(key) or 0 for row in rows], key.removesuffix("s")) for key in of]
    if style.width >= 100:
        sizes = [size(row.get("bytes") or 0) for row in rows]
        columns.append([pad(one, widest(sizes), right=True) for one in sizes])
    return ["  ".join(row) for row in zip(*columns, strict=True)]


def _table(
    left: Sequence[Sequence[str]],
    titles: Sequence[str],
    figures: Sequence[str],
    style: Style,
    cut: Callable[[str, int], str] = fit,
) -> list[str]:
    """Columns left of a title and right of it, each as wide as it must be; the title takes what is left."""
    widths = [widest(column) for column in zip(*left, strict=True)]
    room = style.width - 1 - sum(widths) - 2 * len(widths) - 2 - widest(figures)
    title = title_width(titles, room)
    lines = []
    for before, name, after in zip(left, titles, figures, strict=True):
        first, *others = (pad(text, width) for text, width in zip(before, widths, strict=True))
        lines.append("  ".join([style.id(first), *others, pad(cut(name, title), title), style.dim(after)]))
    return lines


def _more(value: Value, shown: int, style: Style) -> list[str]:
    total = value.get("total") or 0
    return [style.dim(f"{count(shown)} of {count(total)}")] if total > shown else []


def spans(value: Value, style: Style) -> list[str]:
    """Every span on a line, and below it what the file is made of."""
    rows = value.get("spans") or []
    numbers, offsets, lengths = ([count(row[key]) for row in rows] for key in ("line", "offset", "length"))
    places = [
        f"{row['kind']:<9}  line {line:>{widest(numbers)}}  {offset:>{widest(offsets)}} + {length:<{widest(lengths)}}"
        for row, line, offset, length in zip(rows, numbers, offsets, lengths, strict=True)
    ]
    # The beginning of an id opens its record, too.
    ids = [one_line(row.get("uuid") or "") for row in rows]
    room = style.width - widest(places) - 2
    lines = [f"{place}  {id_ if cells(id_) <= room else short(id_)}" for place, id_ in zip(places, ids, strict=True)]
    kinds = Counter(row["kind"] for row in rows)
    words = {
        "record": ("record", ""),
        "no_uuid": ("record without uuid", "records without uuid"),
        "unparsed": ("unparsed span", ""),
        "pending": ("pending tail", ""),
        "separator": ("separator", ""),
    }
    total = ", ".join(plural(kinds[kind], *word) for kind, word in words.items() if kinds[kind]) or "an empty file"
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
