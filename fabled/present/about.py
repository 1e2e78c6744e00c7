"""Discovery terms and cards: what conversations were about.

What they say is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.columns import cells, fit, middle, pad, title_width, widest
from fabled.present.terminal import Style, count, day, moment, one_line, path, plural, plurals, short

Value = Mapping[str, Any]
READABLE = 110
_KINDS = {"operative": "commands", "target": "files and names", "concept": "topics", "wikilink": "links"}


def terms(value: Value, style: Style) -> list[str]:
    """One term a line, parted by kinds where one thread is meant."""
    rows = value.get("terms") or []
    pending = value.get("pending") or 0
    waiting = [style.dim(f"{plural(pending, 'thread')} not looked through yet")] if pending else []
    if not rows:
        begins = f" that begins with {one_line(str(value['prefix']))}" if value.get("prefix") else ""
        return [f"No term{begins}.", *waiting]
    if value.get("thread"):
        lines = []
        for kind, name in _KINDS.items():
            of = [one_line(str(row["term"])) for row in rows if row["kind"] == kind]
            if of:
                lines += _headed(f"{name:<16}", ", ".join(of), style)
        return [*lines, *waiting]
    kinds = [one_line(str(row["kind"])) for row in rows]
    figures = [
        "  ".join(pair)
        for pair in zip(
            plurals([row["threads"] for row in rows], "thread"),
            plurals([row["count"] for row in rows], "time"),
            strict=True,
        )
    ]
    names = [one_line(str(row["term"])) for row in rows]
    width = title_width(names, style.width - widest(kinds) - widest(figures) - 4)
    lines = []
    for name, kind, said in zip(names, kinds, figures, strict=True):
        if cells(name) > width:  # it is there to be searched by: rather on two lines than cut
            lines.append(name)
            name = ""
        lines.append(f"{pad(name, width)}  {style.dim(pad(kind, widest(kinds)))}  {said}")
    total = value.get("total") or 0
    more = [style.dim(f"{count(len(rows))} of {count(total)}")] if total > len(rows) else []
    return [*lines, *more, *waiting]


def cards(value: Value, style: Style) -> list[str]:
    """Two lines for each thread: when and what, then how it ended."""
    rows = value.get("cards") or []
    if not rows:
        return ["No threads."]
    lines = []
    ids = widest(short(str(row["thread"])) for row in rows)
    days = widest(day(row.get("last_ts"), style) for row in rows)
    titles = [one_line(str(row.get("title") or "")) for row in rows]
    types = [one_line(str(row.get("type") or "")) + ("" if row.get("source") == "extracted" else " ✓") for row in rows]
    left = ids + days + 4
    room = title_width(titles, style.width - 1 - left - 2 - widest(types))
    for row, title, kind in zip(rows, titles, types, strict=True):
        head = f"{style.id(pad(short(str(row['thread'])), ids))}  {pad(day(row.get('last_ts'), style), days)}  "
        lines.append(f"{head}{style.bold(pad(title, room))}  {style.dim(kind)}")
        outcome = one_line(str(row.get("outcome") or ""))
        if outcome:
            lines.append(f"{'':{left}}{style.dim(fit(outcome, max(8, style.width - 1 - left)))}")
    total = value.get("total") or 0
    if total > len(rows):
        lines.append(style.dim(f"{count(len(rows))} of {count(total)}"))
    return lines


def card(value: Value, style: Style) -> list[str]:
    """One card, whole."""
    where = middle(path(str(value.get("project") or ""), style), style.width)
    lines = [
        style.bold(one_line(str(value.get("title") or ""))),
        *style.fold(
            style.dim(
                f"{short(str(value['thread']))}  {where}  {day(value.get('last_ts'), style)}  "
                f"{plural(value.get('turns') or 0, 'turn')}  {one_line(str(value.get('type')))}"
            ),
            0,
        ),
        "",
        *_headed("", one_line(str(value.get("summary") or "")), style),
    ]
    for name in ("topics", "decisions", "files"):
        given = [one_line(str(one)) for one in value.get(name) or []]
        if name == "decisions":
            for number, one in enumerate(given):
                lines += _headed(f"{'decided' if not number else '':<10}", one, style)
        elif given:
            lines += _headed(f"{name:<10}", ", ".join(given), style)
    if value.get("outcome"):
        lines += _headed(f"{'outcome':<10}", one_line(str(value["outcome"])), style)
    if value.get("source") == "extracted":
        made = "made by rule from the thread's own words"
    else:
        made = f"made by {one_line(str(value.get('model') or value.get('source')))}, {moment(value.get('at'), style)}"
        made += "; the thread went on since" if value.get("grown") else ""
    return [*lines, style.dim(made)]


def cards_run(value: Value, style: Style) -> list[str]:
    """What one run did, and why it ended."""
    spent = value.get("spent") or {}
    lines = [
        f"{plural(value['made'], 'card')} made, {count(value['refused'])} refused, {count(value['left'])} left"
        + (f" ({one_line(str(value['ended']))})" if value.get("ended") else "")
    ]
    if spent:
        lines.append(style.dim(f"today {plural(spent['requests'], 'request')}, about {count(spent['tokens'])} tokens"))
    return lines


def _headed(head: str, text: str, style: Style) -> list[str]:
    """A text behind a heading, on as many lines as it takes, none too long to be read."""
    return style.fold(style.dim(head) + text, len(head), READABLE)
