"""Discovery terms and cards: what conversations were about.

What they say is decided before.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, count, day, fit, moment, one_line, pad, path, plural, short, visible

Value = Mapping[str, Any]
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
                lines += _wrapped(f"{name:<16}", ", ".join(of), style)
        return [*lines, *waiting]
    width = min(max(len(one_line(str(row["term"]))) for row in rows), max(12, style.width - 44))
    lines = [
        f"{pad(one_line(str(row['term'])), width)}  {style.dim(str(row['kind'])):<9}  "
        f"{plural(row['threads'], 'thread'):>13}  {count(row['count']):>8} times"
        for row in rows
    ]
    total = value.get("total") or 0
    more = [style.dim(f"{count(len(rows))} of {count(total)}")] if total > len(rows) else []
    return [*lines, *more, *waiting]


def cards(value: Value, style: Style) -> list[str]:
    """Two lines for each thread: when and what, then how it ended."""
    rows = value.get("cards") or []
    if not rows:
        return ["No threads."]
    lines = []
    for row in rows:
        head = f"{style.id(short(str(row['thread'])))}  {day(row.get('last_ts'), style):>6}  "
        room = max(20, style.width - 32)
        mark = "" if row.get("source") == "extracted" else " ✓"
        title = pad(fit(one_line(str(row.get("title") or "")), room), room)
        lines.append(f"{head}{style.bold(title)}  {style.dim(str(row.get('type') or '') + mark)}")
        outcome = one_line(str(row.get("outcome") or ""))
        if outcome:
            lines.append(f"{'':18}{style.dim(fit(outcome, max(20, style.width - 19)))}")
    total = value.get("total") or 0
    if total > len(rows):
        lines.append(style.dim(f"{count(len(rows))} of {count(total)}"))
    return lines


def card(value: Value, style: Style) -> list[str]:
    """One card, whole."""
    where = path(str(value.get("project") or ""), style)
    lines = [
        style.bold(visible(str(value.get("title") or ""))),
        style.dim(
            f"{short(str(value['thread']))}  {where}  {day(value.get('last_ts'), style)}  "
            f"{plural(value.get('turns') or 0, 'turn')}  {value.get('type')}"
        ),
        "",
        *_wrapped("", str(value.get("summary") or ""), style),
    ]
    for name in ("topics", "decisions", "files"):
        given = [visible(str(one)) for one in value.get(name) or []]
        if name == "decisions":
            for number, one in enumerate(given):
                lines += _wrapped(f"{'decided' if not number else '':<10}", one, style)
        elif given:
            lines += _wrapped(f"{name:<10}", ", ".join(given), style)
    if value.get("outcome"):
        lines += _wrapped(f"{'outcome':<10}", str(value["outcome"]), style)
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


def _wrapped(head: str, text: str, style: Style) -> list[str]:
    """A text behind a heading, on as many lines as it takes."""
    width = max(30, min(style.width, 110) - len(head))
    lines = textwrap.wrap(visible(text), width, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{style.dim(head) if not number else ' ' * len(head)}{line}" for number, line in enumerate(lines)]
