"""Finds the dates that a question names in words, and says how well a time agrees with them.

Nothing is looked up here. `since:` and `until:` restrict (`transcript.query`); a date inside a question only speaks
for what was said then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

_MONTHS = (
    "january february march april may june july august september october november december".split(),
    "jan feb mar apr may jun jul aug sep oct nov dec".split(),
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_NUMBER = {name: at for names in _MONTHS for at, name in enumerate(names, 1)} | {"sept": 9}
_NAME = "|".join(sorted(_NUMBER, key=len, reverse=True))
_DAY, _YEAR = r"(?P<{0}>[0-3]?[0-9])(?:st|nd|rd|th)?", r"(?P<{0}>(?:19|20)[0-9]{{2}})"
_MENTION = re.compile(
    rf"\b(?P<year>(?:19|20)[0-9]{{2}})-(?P<month>[01][0-9])(?:-(?P<day>[0-3][0-9]))?(?![\d-])"
    rf"|\b{_DAY.format('day2')}(?:\s+of)?\s+(?P<name2>{_NAME})\b\.?(?:,?\s+{_YEAR.format('year2')})?\b"
    rf"|\b(?P<name3>{_NAME})\b\.?\s+{_DAY.format('day3')}\b(?:,?\s+{_YEAR.format('year3')})?\b"
    rf"|\b(?P<name4>{_NAME})\b\.?,?\s+(?:of\s+)?{_YEAR.format('year4')}\b"
    rf"|\bin\s+(?P<name5>{'|'.join(_MONTHS[0])})\b"
    rf"|\b(?P<week>{'|'.join(_DAYS)})\b",
    re.IGNORECASE,
)
_SAME_MONTH = 0.3
"""What agreeing in all but the day is worth."""
MAX_MENTIONS = 8


@dataclass(frozen=True, slots=True)
class Mention:
    """A date as far as it was given."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None

    def agrees(self, when: date) -> float:
        """From 0 to 1: how well a day is the one meant."""
        if self.weekday is not None:
            return 1.0 if when.weekday() == self.weekday else 0.0
        if self.month != when.month or (self.year is not None and self.year != when.year):
            return 0.0
        return 1.0 if self.day is None or self.day == when.day else _SAME_MONTH


def mentions(text: str) -> tuple[Mention, ...]:
    """The dates that a text names: `8 May 2023`, `May 8th`, `2023-05-08`, `in May`, `Monday`."""
    found: dict[Mention, None] = {}
    for match in _MENTION.finditer(text):
        part = {name.rstrip("2345"): value for name, value in match.groupdict().items() if value}
        if "week" in part:
            one = Mention(weekday=_DAYS.index(part["week"].lower()))
        else:
            month = int(part["month"]) if "month" in part else _NUMBER[part["name"].lower()]
            year, day = (int(part[name]) if name in part else None for name in ("year", "day"))
            if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
                continue
            one = Mention(year, month, day)
        found.setdefault(one)
        if len(found) >= MAX_MENTIONS:
            break
    return tuple(found)


def agreement(dates: Sequence[Mention], ts: int) -> float:
    """From 0 to 1: how well a time (milliseconds since 1970) agrees with one of several dates, in local time."""
    try:
        when = datetime.fromtimestamp(ts / 1000).date()
    except (ValueError, OverflowError, OSError):
        return 0.0
    return max((one.agrees(when) for one in dates), default=0.0)
