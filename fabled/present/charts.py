"""Charts as inline SVG: bars through time, growth, shares, small rows of bars. All axes begin at nothing.

Their lengths are parts of whatever room there is, their words are HTML around them, so that both are as legible on a
telephone as on a desk. Each chart has a title, a sentence for those who cannot see it, and its figures as a table.
Which figures they show is left to `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from fabled.present.page import key, plain_table, text
from fabled.present.terminal import MONTHS

HEIGHT = 200
DAYS, WEEKS, MONTHS_SHOWN = 92, 104, 120
"""So many days, weeks and months at most are bars of their own; what is longer goes by the next longer one."""
TICKS = 5
WIDEST = 8.0
"""Of a hundred parts of the picture, for one bar among few."""

Words = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """A figure for each day on which there was any. `colour`: a class of the page's style, one to four."""

    name: str
    colour: str
    days: dict[str, float]


@dataclass(frozen=True, slots=True)
class Span:
    """The time a page is about, and what one bar of it stands for."""

    first: date
    last: date
    unit: str
    """day, week, month or year"""

    @classmethod
    def of(cls, first: str, last: str) -> Span:
        start, end = date.fromisoformat(first), date.fromisoformat(last)
        days = (end - start).days + 1
        months = 12 * (end.year - start.year) + end.month - start.month + 1
        unit = "day" if days <= DAYS else "week" if days <= 7 * WEEKS else "month" if months <= MONTHS_SHOWN else "year"
        return cls(start, end, unit)

    def begin(self, day: date) -> date:
        """The day on which the bar of a day begins: itself, its Monday, the first of its month or year."""
        if self.unit == "week":
            return day - timedelta(day.weekday())
        return day if self.unit == "day" else day.replace(day=1, **({"month": 1} if self.unit == "year" else {}))

    def bars(self) -> list[date]:
        """Where each bar begins."""
        found, at = [], self.begin(self.first)
        while at <= self.last:
            found.append(at)
            step = {"day": 1, "week": 7, "month": 31, "year": 366}[self.unit]
            at = self.begin(at + timedelta(step)) if self.unit != "day" else at + timedelta(1)
        return found

    def label(self, begin: date, year: bool = True) -> str:
        """How a bar is called."""
        if self.unit == "year":
            return str(begin.year)
        if self.unit == "month":
            return f"{MONTHS[begin.month - 1]} {begin.year}"
        return f"{begin.day} {MONTHS[begin.month - 1]}" + (f" {begin.year}" if year else "")


def bars(title: str, span: Span, up: Series, words: Words, down: Series | None = None, whole: bool = False) -> str:
    """Bars through time, one of `span`'s unit each; `down` hangs below the line, on the same scale. `whole`: the
    figures are of things that have no halves."""
    title = f"{title}, by {span.unit}"
    begins = span.bars()
    above, below = (_summed(one, span, begins) if one is not None else [] for one in (up, down))
    if not any(above) and not any(below):
        return _nothing(title)
    step = _step(max([*above, *below]), whole)
    tops, bottoms = max(1, _steps(max(above), step)), _steps(max(below, default=0), step)
    unit = HEIGHT / ((tops + bottoms) * step)
    zero = tops * step * unit
    slot = 100 / len(begins)
    wide = min(0.8 * slot, WIDEST)
    parts = []
    for level in range(-bottoms, tops + 1):
        parts.append(_line(zero - level * step * unit, "zero" if level == 0 else "grid"))
    for at, begin in enumerate(begins):
        for one, values, hangs in ((up, above, False), (down, below, True)):
            value = values[at] if one is not None and values else 0
            if one is None or value <= 0:
                continue
            tall = max(1.0, value * unit)
            parts.append(
                f'<rect class="bar {one.colour}" x="{slot * (at + 0.5) - wide / 2:.3f}%" width="{wide:.3f}%" '
                f'y="{zero if hangs else zero - tall:.1f}" height="{tall:.1f}"><title>{text(_named(span, begin))}: '
                f"{text(one.name)} {text(words(value))}</title></rect>"
            )
    series = [up, *([down] if down is not None else [])]
    sums = ", ".join(f"{one.name} {words(sum(one.days.values()))}" for one in series)
    levels = range(-bottoms, tops + 1)
    axis = [(100 * (bottoms + level) / (tops + bottoms), words(abs(level) * step)) for level in levels]
    rows = [
        [_named(span, begin), *(words(values[at]) for values in (above, below) if values)]
        for at, begin in enumerate(begins)
        if above[at] or (below and below[at])
    ]
    keys = [(one.colour, one.name) for one in series] if down is not None else []
    said = f"{sums}; {_named(span, begins[0])} to {_named(span, begins[-1])}."
    heads = [span.unit, *(one.name for one in series)]
    return _figure(title, said, parts, axis, _ticks(span, begins), keys, heads, rows)


def growth(title: str, span: Span, whole: Series, less: Series | None, words: Words) -> str:
    """What had come together by each day; `less` is what was taken out of it again, the second line what is left."""
    days = sorted({*whole.days, *(less.days if less is not None else ())})
    if not any(whole.days.values()):
        return _nothing(title)
    total = (span.last - span.first).days + 1
    points: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
    sums = [0.0, 0.0]
    rows = []
    for day in days:
        sums[0] += whole.days.get(day, 0)
        sums[1] += less.days.get(day, 0) if less is not None else 0
        points.append((100 * (date.fromisoformat(day) - span.first).days / total, sums[0], max(0.0, sums[0] - sums[1])))
        rows.append([_day(day), *(words(one) for one in points[-1][1 : 3 if less is not None else 2])])
    points.append((100.0, *points[-1][1:]))
    step = _step(max(point[1] for point in points), False)
    steps = _steps(max(point[1] for point in points), step)
    parts = [_line(HEIGHT * (1 - level / steps), "grid" if level else "zero") for level in range(steps + 1)]
    full, left = (_stairs([(one[0], 100 - 100 * one[at] / (steps * step)) for one in points]) for at in (1, 2))
    keys, heads = [("one", f"{whole.name} {words(sums[0])}")], ["day", whole.name]
    parts.append('<svg width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">')
    parts.append(f'<path class="bar area one" d="{full}V100H0Z"/>')
    if less is not None:
        parts.append(f'<path class="line two" vector-effect="non-scaling-stroke" d="{left}"/>')
        keys.append(("two", f"{less.name} {words(max(0.0, sums[0] - sums[1]))}"))
        heads.append(less.name)
    parts.append(f'<path class="line one" vector-effect="non-scaling-stroke" d="{full}"/></svg>')
    axis = [(100 * level / steps, words(level * step)) for level in range(steps + 1)]
    by_day = Span(span.first, span.last, "day")
    said = "; ".join(name for _, name in keys) + "."
    return _figure(title, said, parts, axis, _ticks(by_day, by_day.bars()), keys, heads, rows)


def share(parts: Sequence[tuple[str, float]], most: float, words: str) -> str:
    """A lying bar of coloured parts with its amount behind it, for the cell of a table; the longest takes all room."""
    drawn, at = [], 0.0
    for colour, value in parts:
        wide = max(0.5, 100 * value / most) if value > 0 and most > 0 else 0
        if wide:
            drawn.append(f'<rect class="bar {colour}" x="{at:.2f}%" width="{min(wide, 100 - at):.2f}%" height="14"/>')
            at += wide
    picture = f'<svg class="share" width="100%" height="14" aria-hidden="true">{"".join(drawn)}</svg>'
    return f'<div class="share">{picture}<b>{text(words)}</b></div>'


def small(
    label: str, days: Sequence[tuple[str, float]], saved: Sequence[tuple[str, float]], span: Span, words: Words
) -> str:
    """A row of bars as high as a line or two of text: what one session wrote, and below the line what was saved."""
    total = (span.last - span.first).days + 1
    up, down = 26, 14
    most, deepest = (max((value for _, value in rows), default=0) for rows in (days, saved))
    scale = min((limit / value for limit, value in ((up, most), (down, deepest)) if value), default=0)
    thick = max(1.0, 80 / total)
    parts = [_line(up, "zero")]
    for rows, colour, name in ((days, "one", "written"), (saved, "two", "saved")):
        for day, value in rows:
            at = (date.fromisoformat(day) - span.first).days
            if value <= 0 or not 0 <= at < total:
                continue
            tall = max(1.0, value * scale)
            parts.append(
                f'<rect class="bar {colour}" x="{min(100 - thick, 100 * at / total):.2f}%" width="{thick:.2f}%" '
                f'y="{up - tall if colour == "one" else up:.1f}" height="{tall:.1f}"><title>{text(_day(day))}: {name} '
                f"{text(words(value))}</title></rect>"
            )
    start = f'<svg class="small" role="img" width="100%" height="{up + down}"><title>{text(label)}</title>'
    return f"{start}{''.join(parts)}</svg>"


# Parts


def _figure(
    title: str,
    said: str,
    parts: Sequence[str],
    axis: Sequence[tuple[float, str]],
    ticks: Sequence[tuple[float, str]],
    keys: Sequence[tuple[str, str]],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> str:
    shown = "".join(f"<span>{key(colour)}{text(name)}</span>" for colour, name in keys)
    ys = "".join(f'<span style="bottom:{at:.2f}%">{text(name)}</span>' for at, name in axis)
    xs = "".join(_tick(at, name, bool(number % 2) and len(ticks) > 3) for number, (at, name) in enumerate(ticks))
    return (
        f"<figure><figcaption><b>{text(title)}</b>{shown}</figcaption>\n"
        f'<div class="plot"><div class="ys" aria-hidden="true">{ys}</div>'
        f'<svg class="chart" role="img" width="100%" height="{HEIGHT}" overflow="visible"><title>{text(title)}</title>'
        f"<desc>{text(said)}</desc>{''.join(parts)}</svg>"
        f'<div class="xs" aria-hidden="true">{xs}</div></div>\n'
        f"<details><summary>{text(title)}: the figures</summary>"
        f'<div class="scroll" tabindex="0">{plain_table(title, heads, rows)}</div></details></figure>'
    )


def _tick(at: float, name: str, odd: bool) -> str:
    """Words under the axis; those at its ends stay within it, each other one gives way where it is narrow."""
    end, left = ("first", 0.0) if at < 6 else ("last", 100.0) if at > 94 else ("", at)
    return f'<span class="{end}{" odd" if odd else ""}" style="left:{left:.2f}%">{text(name)}</span>'


def _nothing(title: str) -> str:
    return f'<p class="soft">{text(title)}: nothing yet.</p>'


def _line(y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'


def _stairs(points: Sequence[tuple[float, float]]) -> str:
    """A path that goes to the side first, then up: until a day nothing changes."""
    x, y = points[0]
    return f"M{x:.3f} {y:.3f}" + "".join(f"H{x:.3f}V{y:.3f}" for x, y in points[1:])


def _summed(series: Series, span: Span, begins: Sequence[date]) -> list[float]:
    sums = dict.fromkeys(begins, 0.0)
    for day, value in series.days.items():
        begin = span.begin(date.fromisoformat(day))
        if begin in sums:
            sums[begin] += value
    return list(sums.values())


def _step(most: float, whole: bool) -> float:
    """A round distance of lines, of which some five reach over the highest."""
    rough = max(most, 1) / 5
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough or factor == 10)
    return max(1.0, step) if whole else step


def _steps(most: float, step: float) -> int:
    return int(-(-most // step))


def _ticks(span: Span, begins: Sequence[date]) -> list[tuple[float, str]]:
    """(place in percent, words) of some bars, evenly; the year where it is new."""
    count = min(TICKS, len(begins))
    chosen = sorted({round(number * (len(begins) - 1) / max(1, count - 1)) for number in range(count)})
    found, year = [], None
    for at in chosen:
        begin = begins[at]
        found.append((100 * (at + 0.5) / len(begins), span.label(begin, begin.year != year)))
        year = begin.year
    return found


def _named(span: Span, begin: date) -> str:
    label = span.label(begin)
    return f"week of {label}" if span.unit == "week" else label


def _day(day: str) -> str:
    return Span.label(Span(date.min, date.min, "day"), date.fromisoformat(day))
