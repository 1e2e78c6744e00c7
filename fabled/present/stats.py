"""Sums by project or by day, with bars and sparklines.

What is added up is decided before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabled.present.columns import TITLE, middle, pad, widest
from fabled.present.terminal import Style, count, path, plural, size, tokens

Value = Mapping[str, Any]
Column = tuple[str, str, Callable[[float], str]]
"""Head, key, and how a figure is written."""

SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = "▏▎▍▌▋▊▉█"
BAR, SHORTEST_BAR, SHORTEST_NAME = 24, 8, 16
WIDE = 110


def spark(numbers: Sequence[float]) -> str:
    """A line of small bars; a blank where there was nothing at all."""
    most = max(numbers, default=0)
    return "".join(" " if not n else SPARKS[min(7, int(8 * n / most))] if most else " " for n in numbers)


def bar(number: float, most: float, width: int) -> str:
    """A bar that is as long as its part of the longest, to an eighth of a column; nothing only for nothing."""
    eighths = max(1, round(8 * width * number / most)) if number > 0 and most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest - 1] if rest else "")


def stats(value: Value, style: Style) -> list[str]:
    rows = value.get("rows") or []
    if not rows:
        return ["Nothing was written in that time."]
    lines = _table(value, rows, style)
    totals = value.get("totals") or {}
    more = (value.get("total") or 0) - len(rows)
    if more > 0:
        lines.append(style.dim(f"and {count(more)} more; all of them are in the sums:"))
    lines.append("")
    parts = [
        plural(totals.get("sessions") or 0, "session"),
        plural(totals.get("threads") or 0, "thread"),
        plural(totals.get("records") or 0, "record"),
        tokens(totals.get("est_tokens") or 0),
        f"{size(totals.get('written_bytes') or 0)} written",
    ]
    lines.append(", ".join(parts))
    vault = f"{size(totals.get('live_bytes') or 0)} live, {size(totals.get('vault_bytes') or 0)} in the Vault"
    if totals.get("prunes"):
        vault += f", {size(totals.get('saved_bytes') or 0)} saved by {plural(totals['prunes'], 'prune')}"
    if totals.get("recalled"):
        vault += f", {plural(totals['recalled'], 'recall')}"
    lines.append(vault)
    activity = value.get("activity") or []
    if any(activity):
        until = f" up to {value['activity_until']}" if value.get("activity_until") else ""
        lines.append(f"{style.good(spark(activity))}  records a day, {plural(len(activity), 'day')}{until}")
    return lines


def _table(value: Value, rows: Sequence[Value], style: Style) -> list[str]:
    by_day = value.get("by") == "day"
    columns: list[Column] = [
        ("sessions", "sessions", count),
        ("threads", "threads", count),
        ("written", "written_bytes", size),
        ("kept" if by_day else "vault", "kept_bytes" if by_day else "vault_bytes", size),
        ("saved", "saved_bytes", _saved),
        ("recalled", "recalled", count),
    ]
    # Narrow terminals get what matters most, and first of all what is not nothing in every row.
    for key in ("recalled", "saved_bytes", "kept_bytes", "vault_bytes"):
        if _room(columns, rows, style) < SHORTEST_NAME and not any(row.get(key) for row in rows):
            columns = [column for column in columns if column[1] != key]
    while len(columns) > 3 and _room(columns, rows, style) < SHORTEST_NAME:
        columns.pop()
    first = "day" if by_day else "project"
    names = [str(row["day"]) if by_day else path(str(row["project"]), style) or "(none)" for row in rows]
    name = max(len(first), min(widest(names), TITLE, max(10, _room(columns, rows, style))))
    left = min(BAR, style.width - _width(columns, rows) - name - 2)
    heads = pad(first, name) + "".join(f"  {head:>{_column(head, key, form, rows)}}" for head, key, form in columns)
    lines = [style.dim(heads)]
    most = max(row.get("written_bytes") or 0 for row in rows)
    sparks = not by_day and style.width - _width(columns, rows) - name - BAR - 4 >= len(rows[0].get("activity") or ())
    for row, shown in zip(rows, names, strict=True):
        figures = "".join(
            f"  {form(row.get(key) or 0):>{_column(head, key, form, rows)}}" for head, key, form in columns
        )
        drawn = bar(row.get("written_bytes") or 0, most, left) if left >= SHORTEST_BAR else ""
        if sparks and any(row.get("activity") or ()):
            drawn = f"{pad(drawn, BAR)}  {spark(row['activity'])}"
        lines.append(f"{style.id(pad(middle(shown, name), name))}{figures}  {style.good(drawn)}".rstrip())
    return lines


def _room(columns: Sequence[Column], rows: Sequence[Value], style: Style) -> int:
    """What is left for a row's name, once its figures and a short bar have their place."""
    short = SHORTEST_BAR if style.width < WIDE else 2 * SHORTEST_BAR
    return style.width - _width(columns, rows) - short - 2


def _width(columns: Sequence[Column], rows: Sequence[Value]) -> int:
    return sum(2 + _column(head, key, form, rows) for head, key, form in columns)


def _column(head: str, key: str, form: Callable[[float], str], rows: Sequence[Value]) -> int:
    return max(len(head), *(len(form(row.get(key) or 0)) for row in rows))


def _saved(number: float) -> str:
    return f"-{size(number)}" if number else "0"
