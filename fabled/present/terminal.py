"""What a terminal can show: widths, colour, control characters, amounts and times in words.

Pure but for the machine's time zone; which words stand where is left to the other files of this room.
"""

from __future__ import annotations

import time
import unicodedata
from calendar import timegm
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Our own signs where only ASCII can be shown.
_ASCII = {
    "●": "*", "○": "o", "…": "...", "█": "#", "─": "-", "·": "|", "✓": "ok", "✗": "FAIL", "—": "-", "▌": "|",
    "→": "->", "▸": ">", "▁": ".", "▂": ".", "▃": ":", "▄": ":", "▅": "+", "▆": "+", "▇": "#",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """The reader's terminal and wishes. `home` shortens paths to `~`; `now` is seconds since the epoch."""

    color: bool = False
    width: int = 80
    utf8: bool = True
    now: float = 0.0
    utc: bool = False
    form: str = "text"
    home: str = ""

    @classmethod
    def wished(cls, wishes: Mapping[str, Any], now: float, home: str = "") -> Style:
        """From a request's `as`, whose values may be anything a stranger sends."""
        width = wishes.get("width", 80)
        return cls(
            color=wishes.get("color") is True,
            width=min(max(width, 20), 1000) if isinstance(width, int) else 80,
            utf8=wishes.get("utf8") is not False,
            now=now,
            utc=wishes.get("utc") is True,
            form=str(wishes.get("form", "text")),
            home=home,
        )

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def id(self, text: str) -> str:
        return self._paint("36", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def warn(self, text: str) -> str:
        return self._paint("33", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)


def finish(lines: list[str], style: Style) -> str:
    """Lines as one text; for a terminal without UTF-8 our signs become ASCII and all else is escaped."""
    text = "".join(f"{line.rstrip(' ')}\n" for line in lines)
    if style.utf8:
        return text
    for sign, plain in _ASCII.items():
        text = text.replace(sign, plain)
    return text.encode("ascii", "backslashreplace").decode("ascii")


# ── text of transcripts ─────────────────────────────────────────────────────────────────────────────────────────


def visible(text: str) -> str:
    """Text that cannot steer a terminal: controls as ^X, bidirectional and tag characters by their number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    code = ord(c)
    if c == "\n" or c == "\t" or 0x20 <= code < 0x7F:
        return c
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    if 0xD800 <= code < 0xE000:
        return "�"
    # Cc are the C1 controls; of Cf the joiners are part of emoji and scripts, the rest reorders or hides text.
    if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and code not in (0x200C, 0x200D, 0xAD):
        return f"<{code:04X}>"
    return c


def one_line(text: str) -> str:
    return " ".join(visible(text).split())


def cells(text: str) -> int:
    """How many columns a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells(c) for c in text)


def _cells(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1


def fit(text: str, width: int) -> str:
    """At most `width` columns, cut on a character and marked."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for c in text:
        used += _cells(c)
        if used > width - 1:
            break
        kept += c
    return kept.rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int, right: bool = False) -> str:
    """Exactly `width` columns."""
    text = fit(text, width)
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


# ── amounts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: int, word: str) -> str:
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def size(byte_count: float) -> str:
    """Powers of 1000, as disks are sold and file managers count."""
    if byte_count < 1000:
        return f"{byte_count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        byte_count /= 1000
        if byte_count < 999.5 or unit == "TB":
            break
    digits = 2 if byte_count < 10 and unit in ("GB", "TB") else 1 if byte_count < 100 else 0
    figure = f"{byte_count:.{digits}f}"
    return f"{figure.removesuffix('.00').removesuffix('.0')} {unit}"


def tokens(number: float) -> str:
    if number >= 999_950:
        return f"~{number / 1e6:.1f}M tok"
    return f"~{number / 1000:.1f}k tok" if number >= 1000 else f"~{number:.0f} tok"


def duration(seconds: float, units: int = 2) -> str:
    """The largest units, as people say it."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, length)
        if number or (unit == "s" and not parts):
            parts.append(f"{number} {unit}")
    return " ".join(parts[:units])


# ── times ───────────────────────────────────────────────────────────────────────────────────────────────────────


def seconds_of(value: Any) -> float | None:
    """Seconds since the epoch of a time as replies carry it: ISO text, or milliseconds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value / 1000 if value > 1e11 else float(value)
    try:
        stem, _, fraction = str(value).removesuffix("Z").partition(".")
        return timegm(time.strptime(stem, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")
    except ValueError:
        return None


def _parts(seconds: float, style: Style) -> time.struct_time:
    return time.gmtime(seconds) if style.utc else time.localtime(seconds)


def day(value: Any, style: Style) -> str:
    """`12 Nov`; the clock's time for today, month and year for another year; ISO with --utc."""
    seconds = seconds_of(value)
    if seconds is None:
        return "—"
    at, now = _parts(seconds, style), _parts(style.now, style)
    if style.utc:
        return time.strftime("%Y-%m-%d", at)
    if at[:3] == now[:3]:
        return f"{at.tm_hour:02}:{at.tm_min:02}"
    month = MONTHS[at.tm_mon - 1]
    return f"{at.tm_mday:02} {month}" if at.tm_year == now.tm_year else f"{month} {at.tm_year}"


def clock(value: Any, style: Style) -> str:
    seconds = seconds_of(value)
    if seconds is None:
        return ""
    at = _parts(seconds, style)
    return f"{at.tm_hour:02}:{at.tm_min:02}" + (f":{at.tm_sec:02}Z" if style.utc else "")


def moment(value: Any, style: Style) -> str:
    """A point in time to the millisecond."""
    seconds = seconds_of(value)
    if seconds is None:
        return "—"
    at = _parts(seconds, style)
    fine = f"{int(seconds * 1000 + 0.5) % 1000:03}"
    if style.utc:
        return time.strftime("%Y-%m-%dT%H:%M:%S.", at) + fine + "Z"
    return f"{at.tm_mday:02} {MONTHS[at.tm_mon - 1]} {at.tm_year} {time.strftime('%H:%M:%S', at)}.{fine}"


def stretch(first: Any, last: Any, style: Style) -> str:
    """From when to when, the day said once where it is one day."""
    start, end = seconds_of(first), seconds_of(last)
    if start is None or end is None:
        return "—"
    a, b = _parts(start, style), _parts(end, style)
    whole = f"{a.tm_mday:02} {MONTHS[a.tm_mon - 1]} {a.tm_year} {clock(start, style)}"
    if a[:5] == b[:5]:
        return whole
    if a[:3] == b[:3]:
        return f"{whole}-{clock(end, style)}"
    return f"{whole} - {b.tm_mday:02} {MONTHS[b.tm_mon - 1]} {b.tm_year} {clock(end, style)}"


def ago(value: Any, style: Style) -> str:
    seconds = seconds_of(value)
    return "never" if seconds is None else f"{duration(style.now - seconds, 1)} ago"


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────


def short(id_: str) -> str:
    """The first part of an id by which it can be asked for; a fork's or unattached thread keeps its session."""
    head, at, session = one_line(id_).partition("@")
    head = head if head == "unattached" else head[:8] if not head.startswith("L-") else head[:10]
    return f"{head}@{session[:8]}" if at else head


def path(text: str, style: Style) -> str:
    if style.home and (text == style.home or text.startswith(style.home.rstrip("/") + "/")):
        text = "~" + text[len(style.home.rstrip("/")) :]
    return one_line(text)
