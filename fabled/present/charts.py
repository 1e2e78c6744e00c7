"""Charts as inline SVG: bars by day, shares, small rows of bars. Each has a title for those who cannot see it.

Which figures they show is left to `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from fabled.present.page import text

WIDTH, HEIGHT = 960, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 26
MOST_BARS = 120


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of a chart: a figure for each day."""

    name: str
    colour: str
    """a class of the page's style: one, two, three, four"""
    days: dict[str, float]


def by_day(title: str, series: Sequence[Series], words: Callable[[float], str]) -> str:
    """Bars for each day; over long times for each week or longer. The series stand side by side."""
    groups = _groups(series)
    if not groups:
        return f'<p class="soft">{text(title)}: nothing yet.</p>'
    sums = [[sum(one.days.get(day, 0) for day in days) for one in series] for _, days in groups]
    most = max(max(row) for row in sums) or 1
    room = WIDTH - LEFT - RIGHT
    slot = room / len(groups)
    thick = max(1.0, min(28.0, slot * 0.8 / len(series)))
    parts = [_open(title, "chart", WIDTH, HEIGHT)]
    parts += _scale(most, words)
    for number, ((label, _), row) in enumerate(zip(groups, sums, strict=True)):
        left = LEFT + slot * number + (slot - thick * len(series)) / 2
        for at, (one, value) in enumerate(zip(series, row, strict=True)):
            if value <= 0:
                continue
            tall = max(1.0, (HEIGHT - TOP - BOTTOM) * value / most)
            parts.append(
                f'<rect class="bar {one.colour}" x="{left + at * thick:.1f}" y="{HEIGHT - BOTTOM - tall:.1f}" '
                f'width="{thick:.1f}" height="{tall:.1f}" rx="1"><title>{text(label)}: {text(one.name)} '
                f"{text(words(value))}</title></rect>"
            )
    every = max(1, -(-len(groups) // 10))
    for number in range(0, len(groups), every):
        x = min(LEFT + slot * (number + 0.5), WIDTH - RIGHT - 34)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{text(groups[number][0][-10:])}</text>')
    parts.append("</svg>")
    keys = "".join(
        f'<span class="soft"><svg class="key" width="10" height="10" aria-hidden="true"><rect class="{one.colour}" '
        f'width="10" height="10"/></svg>{text(one.name)}</span> &nbsp; '
        for one in series
    )
    return f"<figure>{''.join(parts)}<figcaption>{text(title)} &nbsp; {keys}</figcaption></figure>"


def shares(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], words: Callable[[float], str]) -> str:
    """A lying bar for each row, made of coloured parts; the longest takes the whole width."""
    if not rows:
        return f'<p class="soft">{text(title)}: nothing yet.</p>'
    most = max(sum(value for _, value in parts) for _, parts in rows) or 1
    name_width, step = 260, 26
    tall = step * len(rows) + 4
    room = WIDTH - name_width - 96
    lines = [_open(title, "chart", WIDTH, tall)]
    for number, (name, parts) in enumerate(rows):
        y = step * number + 4
        shown = name if len(name) <= 38 else name[:37] + "…"
        lines.append(
            f'<text x="{name_width - 8}" y="{y + 14}" text-anchor="end">{text(shown)}<title>{text(name)}</title></text>'
        )
        x = float(name_width)
        for colour, value in parts:
            if value <= 0:
                continue
            wide = max(1.0, room * value / most)
            lines.append(
                f'<rect class="bar {colour}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="18" rx="1">'
                f"<title>{text(name)}: {text(words(value))}</title></rect>"
            )
            x += wide
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{text(words(sum(v for _, v in parts)))}</text>')
    return f"<figure>{''.join(lines)}</svg><figcaption>{text(title)}</figcaption></figure>"


def small(
    label: str,
    days: Sequence[tuple[str, float]],
    saved: Sequence[tuple[str, float]],
    first: str,
    last: str,
    words: Callable[[float], str],
) -> str:
    """A row of bars as high as a line of text: what one session wrote, and below the line what was saved."""
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    total = max(1, (end - start).days + 1)
    width, up, down = 240, 26, 12
    most = max([value for _, value in days], default=0) or 1
    deepest = max([value for _, value in saved], default=0) or 1
    parts = [_open(label, "small", width, up + down)]
    parts.append(f'<line class="grid" x1="0" x2="{width}" y1="{up}" y2="{up}"/>')
    thick = max(1.5, min(8.0, width / total * 0.8))

    def at(day: str) -> float:
        return min(width - thick, (date.fromisoformat(day) - start).days * width / total)

    for day, value in days:
        tall = max(1.0, (up - 2) * value / most)
        parts.append(
            f'<rect class="bar one" x="{at(day):.1f}" y="{up - tall:.1f}" width="{thick:.1f}" '
            f'height="{tall:.1f}"><title>{day}: written {text(words(value))}</title></rect>'
        )
    for day, value in saved:
        if start <= date.fromisoformat(day) <= end and value > 0:
            tall = max(1.0, (down - 2) * value / deepest)
            parts.append(
                f'<rect class="bar two" x="{at(day):.1f}" y="{up + 1}" width="{thick:.1f}" '
                f'height="{tall:.1f}"><title>{day}: saved {text(words(value))}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def _open(title: str, kind: str, width: float, height: float) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg class="{kind}" role="img" {size}><title>{text(title)}</title>'


def _scale(most: float, words: Callable[[float], str]) -> list[str]:
    parts = []
    steps = int(most) if most == int(most) and most < 4 else 4  # few things have no halves
    for step in range(steps + 1):
        value = most * step / steps
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * step / steps
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(words(value))}</text>')
    return parts


def _groups(series: Sequence[Series]) -> list[tuple[str, list[str]]]:
    """(label, days) from the first day to the last, so many days to a bar that there are not too many bars."""
    every = sorted({day for one in series for day, value in one.days.items() if value})
    if not every:
        return []
    first, last = date.fromisoformat(every[0]), date.fromisoformat(every[-1])
    total = (last - first).days + 1
    length = next((n for n in (1, 7, 28, 91, 364) if total / n <= MOST_BARS), 364)
    groups = []
    start = first
    while start <= last:
        days = [(start + timedelta(n)).isoformat() for n in range(length)]
        groups.append((days[0] if length == 1 else f"from {days[0]}", days))
        start += timedelta(length)
    return groups
