"""Sessions, projects and spans as lists.

Filtering and order are decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, count, day, one_line, pad, path, plural, short, size

Value = Mapping[str, Any]


def sessions(value: Value, style: Style) -> list[str]:
    rows = value.get("sessions") or []
    if not rows:
        return ["No sessions."]
    lines = []
    for row in rows:
        right = f"{plural(row.get('threads', 0), 'thread'):>11}  {count(row.get('records', 0)):>8} records"
        if style.width >= 100 and row.get("bytes") is not None:
            right += f"  {size(row['bytes']):>8}"
        title = one_line(str(row.get("title") or "")) or path(str(row.get("project") or ""), style)
        room = style.width - 8 - 2 - 6 - 2 - len(right) - 2
        lines.append(f"{style.id(short(str(row['session_id'])))}  {day(row.get('last_ts'), style):<6}  "
                     f"{pad(title, max(room, 8))}  {style.dim(right)}")
    return lines


def projects(value: Value, style: Style) -> list[str]:
    rows = value.get("projects") or []
    if not rows:
        return ["No projects."]
    lines = []
    for row in rows:
        right = f"{plural(row.get('sessions', 0), 'session'):>12}  {plural(row.get('threads', 0), 'thread'):>13}"
        name = path(str(row.get("project") or row.get("path") or ""), style)
        room = style.width - 6 - 2 - len(right) - 2
        lines.append(f"{day(row.get('last_ts'), style):<6}  {pad(name, max(room, 8))}  {style.dim(right)}")
    return lines


def spans(value: Value, style: Style) -> list[str]:
    """Every span on a line, and below it what the file is made of."""
    rows = value.get("spans") or []
    lines = [f"{row['kind']:<9}  line {count(row['line']):>7}  {count(row['offset']):>13} + {count(row['length']):<11}"
             f"  {one_line(row.get('uuid') or '')}" for row in rows]
    kinds = Counter(row["kind"] for row in rows)
    words = {"record": "record", "no_uuid": "record without uuid", "unparsed": "unparsed span",
             "pending": "pending tail", "separator": "separator"}
    total = ", ".join(plural(kinds[kind], word).replace("record without uuids", "records without uuid")
                      for kind, word in words.items() if kinds[kind]) or "an empty file"
    return [*lines, style.dim(total)]


PLAIN = {
    "search": ("results", ("thread", "last_ts", "project", "score", "turns", "est_tokens", "role", "title", "snippet")),
    "sessions": ("sessions", ("session_id", "project", "first_ts", "last_ts", "threads", "records", "title")),
    "projects": ("projects", ("project", "sessions", "threads", "records", "last_ts")),
    "spans": ("spans", ("kind", "line", "offset", "length", "uuid")),
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
