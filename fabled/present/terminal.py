"""What a terminal can show: colour, control characters, amounts and times in words; and the end of every text.

Pure but for the machine's time zone; which words stand where is left to the other files of this room, how wide text is
and where it is broken to `columns`.
"""

from __future__ import annotations

import re
import time
import unicodedata
from calendar import timegm
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fabled.present import columns
from fabled.present.columns import KEPT, RESET, SGR, cell

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Our own signs where only ASCII can be shown.
_ASCII = {
    "●": "*", "○": "o", "…": "...", "█": "#", "─": "-", "·": "|", "✓": "ok", "✗": "FAIL", "—": "-", "▌": "|",
    "→": "->", "▸": ">", "▁": ".", "▂": ".", "▃": ":", "▄": ":", "▅": "+", "▆": "+", "▇": "#",
    "▏": "|", "▎": "|", "▍": "|", "▋": "#", "▊": "#", "▉": "#",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """The reader's terminal and wishes. `home` shortens paths to `~`; `now` is seconds since the epoch.

    `folds`: lines wider than `width` are broken. A terminal does that badly itself, a program wants them as they are.
    """

    color: bool = False
    width: int = 80
    folds: bool = True
    utf8: bool = True
    now: float = 0.0
    utc: bool = False
    form: str = "text"
    home: str = ""

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{RESET}" if self.color and text else text

    def fold(self, line: str, hang: int | None = None, most: int = 1000) -> list[str]:
        """The line on as many as it takes; see `columns.fold`."""
        return columns.fold(line, min(self.width, most), hang) if self.folds else [line]

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


class Verbatim(str):
    """A line as somebody wrote it: never broken, so that it can be copied as it was."""

    __slots__ = ()


def finish(lines: Iterable[str], style: Style) -> str:
    """Lines as one text: the one place that every text for a terminal goes through.

    Whatever stands in them, only our own colours steer the terminal. What is wider than it is broken where a person
    would; without UTF-8 our signs become ASCII and all else is escaped.
    """
    shown: list[str] = []
    for given in lines:
        asis = style.form != "text" or isinstance(given, Verbatim)
        for line in given.split("\n"):
            line = _tamed(line, style.color)
            if not style.utf8:
                line = _ascii(line)
            shown += [line] if asis else style.fold(line)
    return "".join(f"{line.replace(KEPT, ' ').rstrip(' ')}\n" for line in shown)


def _tamed(line: str, color: bool) -> str:
    if line.isprintable():
        return line
    if not color:
        return visible(line)
    text, at = "", 0
    for found in SGR.finditer(line):
        text += visible(line[at : found.start()]) + found[0]
        at = found.end()
    return text + visible(line[at:])


def _ascii(line: str) -> str:
    """In ASCII alone. What is longer so takes its columns from the next gap, so that those behind it stay in place."""
    if line.isascii():
        return line
    parts, debt = [], 0
    for part in re.split(r"(  +|[^\x00-\x7f])", line):
        if part.startswith("  ") and debt > 0:
            taken = min(debt, len(part) - 1)
            parts.append(part[taken:])
            debt -= taken
        elif part.isascii() or part == KEPT:
            parts.append(part)
        elif (
            part == "…"
            and parts
            and len(parts[-1]) > 8
            and parts[-1][-1] not in "/ "
            and RESET[0] not in parts[-1][-8:]
        ):
            # What is cut is cut two characters earlier.
            parts[-1] = f"{parts[-1][:-2]}{_ASCII[part]}"
        else:
            shown = _ASCII.get(part) or part.encode("ascii", "backslashreplace").decode("ascii")
            parts.append(shown)
            debt += len(shown) - cell(part)
    return "".join(parts)


# ── text of transcripts ─────────────────────────────────────────────────────────────────────────────────────────


def visible(text: str) -> str:
    """Text that cannot steer a terminal: controls as ^X, bidirectional and tag characters by their number."""
    return text if text.isprintable() else _ODD.sub(lambda found: _shown(found[0]), text)


_ODD = re.compile(r"[^ -~\n\t]")


def _shown(c: str) -> str:
    code = ord(c)
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


# ── amounts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: int, word: str, many: str = "") -> str:
    return f"{count(number)} {word if number == 1 else many or word + 's'}"


def plurals(numbers: Sequence[int], word: str) -> list[str]:
    """The same below each other, all of one width: `17 sessions`, ` 1 session `."""
    width = max((len(count(number)) for number in numbers), default=0)
    ends = "s" if any(number != 1 for number in numbers) else ""
    blank = " " * len(ends)
    return [f"{count(number):>{width}} {word}{blank if number == 1 else ends}" for number in numbers]


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
        return f"~{number / 1_000_000:.1f}M tok"
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


_FIRST, _LAST = timegm((1, 1, 2, 0, 0, 0)), timegm((9999, 12, 30, 0, 0, 0))
"""The times that can be shown in any zone."""


def seconds_of(value: Any) -> float | None:
    """Seconds since the epoch of a time as replies carry it: ISO text, or milliseconds."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        if isinstance(value, int | float):
            seconds = value / 1000 if value > 1e11 else float(value)
        else:
            stem, _, fraction = str(value).removesuffix("Z").partition(".")
            seconds = timegm(time.strptime(stem, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError):
        return None
    return seconds if _FIRST <= seconds <= _LAST else None


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


def homely(text: str, style: Style) -> str:
    """A sentence with the home in its paths as `~`."""
    return text.replace(style.home.rstrip("/") + "/", "~/") if len(style.home) > 1 else text


def path(text: str, style: Style) -> str:
    if len(style.home) > 1 and (text == style.home or text.startswith(style.home.rstrip("/") + "/")):
        text = "~" + text[len(style.home.rstrip("/")) :]
    return one_line(text)
