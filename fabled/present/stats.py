"""Sums by project or by day, with bars and sparklines.

What is added up is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.columns import TITLE, middle, pad, widest
from fabled.present.terminal import Style, count, path, plural, size, tokens

Value = Mapping[str, Any]

SPARKS = "▁▂▃▄▅▆▇█"
BAR = 12


def spark(numbers: Sequence[float]) -> str:
    """A line of small bars; a blank where there was nothing at all."""
    most = max(numbers, default=0)
    return "".join(" " if not n else SPARKS[min(7, int(8 * n / most))] if most else " " for n in numbers)


def bar(number: float, most: float, width: int = BAR) -> str:
    return "█" * max(1, round(width * number / most)) if number and most else ""


def stats(value: Value, style: Style) -> list[str]:
    rows = value.get("rows") or []
    if not rows:
        return ["Nothing was written in that time."]
    lines = _table(value, rows, style)
    totals = value.get("totals") or {}
    lines.append("")
    parts = [
        plural(totals.get("sessions") or 0, "session"),
        plural(totals.get("threads") or 0, "thread"),
        plural(totals.get("records") or 0, "record"),
        tokens(totals.get("est_tokens") or 0),
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
        lines.append(f"{style.good(spark(activity))}  records a day, {plural(len(activity), 'day')}")
    more = (value.get("total") or 0) - len(rows)
    return [*lines, style.dim(f"and {count(more)} more")] if more > 0 else lines


def _table(value: Value, rows: Sequence[Value], style: Style) -> list[str]:
    by_day = value.get("by") == "day"
    columns = [
        ("sessions", "sessions", count),
        ("threads", "threads", count),
        ("written", "written_bytes", size),
        ("kept" if by_day else "vault", "kept_bytes" if by_day else "vault_bytes", size),
        ("saved", "saved_bytes", _saved),
        ("recalled", "recalled", count),
    ]
    # Narrow terminals get what matters most.
    while len(columns) > 2 and _width(columns, rows) + 24 > style.width:
        columns.pop()
    first = "day" if by_day else "project"
    names = [str(row["day"]) if by_day else path(str(row["project"]), style) or "(none)" for row in rows]
    used = _width(columns, rows)
    room = max(10, style.width - used - 3)
    name = max(len(first), min(widest(names), TITLE, room if by_day or room < 50 else room - 34))
    left = style.width - used - name - 4
    lines = [style.dim(pad(first, name) + "".join(f"  {head:>{_column(head, key, form, rows)}}"
                                                  for head, key, form in columns))]  # fmt: skip
    most = max((row.get("records") or 0 for row in rows), default=0)
    for row, shown in zip(rows, names, strict=True):
        figures = "".join(
            f"  {form(row.get(key) or 0):>{_column(head, key, form, rows)}}" for head, key, form in columns
        )
        tail = ""
        if by_day and left >= 6:
            tail = bar(row.get("records") or 0, most, min(BAR * 2, left - 2))
        elif left >= 30 and any(row.get("activity") or ()):
            tail = spark(row["activity"])
        lines.append(f"{style.id(pad(middle(shown, name), name))}{figures}  {style.good(tail)}")
    return lines


def _width(columns: Sequence[tuple[str, str, Any]], rows: Sequence[Value]) -> int:
    return sum(2 + _column(head, key, form, rows) for head, key, form in columns)


def _column(head: str, key: str, form: Any, rows: Sequence[Value]) -> int:
    return max(len(head), *(len(form(row.get(key) or 0)) for row in rows))


def _saved(number: float) -> str:
    return f"-{size(number)}" if number else "0"
