"""How many columns text takes on a terminal, and how it is cut, shortened and broken to fit.

Pure. What may stand in a text at all is `terminal`'s business.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

SGR = re.compile(r"\x1b\[(?:0|1|2|3[1236])m")
"""The colours and weights that `Style` paints with: they take no column."""

RESET = "\x1b[0m"

KEPT = "\ufdd0"
"""A blank at which no line is broken; it leaves as a plain one. No character, so no text has it."""

TITLE = 80
"""A column of titles is no wider, on the widest terminal."""

LABEL = 16
"""So wide may the first column of a line be for what follows to hang below its own beginning."""

# What a person copies: `fabled` with its command, and what of the words behind it can be no prose.
_COMMAND = re.compile(
    r"\bfabled (?:(?:config|service|claude|cards) )?[a-z][a-z-]*"
    r"(?: (?:-\S+|'[^']*'|\"[^\"]*\"|[A-Z]{2}\S*|\S*[\d/~]\S*))*"
)


def bare(text: str) -> str:
    return SGR.sub("", text) if "\x1b" in text else text


def cells(text: str) -> int:
    """How many columns a text takes: wide characters two, combining ones and our own colours none."""
    text = bare(text)
    return len(text) if text.isascii() else sum(map(cell, text))


def cell(c: str) -> int:
    code = ord(c)
    if code < 0x300:
        return code != 0xAD
    if code == 0xFE0F:
        return 1  # asks for the wide form of the sign before it
    if 0x1160 <= code < 0x1200 or unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1


# ── cut ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fit(text: str, width: int) -> str:
    """At most `width` columns, cut on a character and marked."""
    if cells(text) <= width:
        return text
    return _head(text, width - 1).rstrip() + "…" if width > 0 else ""


def middle(text: str, width: int) -> str:
    """At most `width` columns of a name whose end tells most: what is too much goes out of its middle."""
    if cells(text) <= width:
        return text
    if width < 6:
        return fit(text, width)
    if "/" not in text:
        return (head := _head(text, (width - 1) // 3)) + "…" + _tail(text, width - 1 - cells(head))
    head = next((root for root in ("~/", "/") if text.startswith(root)), "")
    tail = _tail(text, width - 1 - len(head))
    slash = tail.find("/")
    return head + "…" + (tail[slash:] if 0 < slash <= len(tail) // 3 else tail)


def _head(text: str, width: int) -> str:
    return text[: _reach(text, 0, width)]


def _reach(text: str, start: int, width: int) -> int:
    """Where what takes no more than `width` columns from `start` on ends."""
    used = 0
    for at in range(start, len(text)):
        used += cell(text[at])
        if used > width:
            return at
    return len(text)


def _tail(text: str, width: int) -> str:
    used = 0
    for at in range(len(text) - 1, -1, -1):
        used += cell(text[at])
        if used > width:
            return text[at + 1 :]
    return text


def pad(text: str, width: int, right: bool = False) -> str:
    """Exactly `width` columns."""
    text = fit(text, width)
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


# ── break ───────────────────────────────────────────────────────────────────────────────────────────────────────


def whole(command: str) -> str:
    """A command that stands on one line however long it is: it is there to be copied."""
    return command.replace(" ", KEPT)


def fold(line: str, width: int, hang: int | None = None) -> list[str]:
    """A line on as many as it takes, broken at gaps before it is broken between words, and never in a command.

    What follows hangs below the second column where the first one is a label, else a little behind the beginning;
    `hang` says otherwise. Colours end and begin again at each break.
    """
    if cells(line) <= width:
        return [line]
    plain, colours = _unpainted(line)
    bound = _COMMAND.sub(lambda found: whole(found[0]), plain)
    ranges = _ranges(bound, width, min(_hang(plain, width) if hang is None else hang, max(width // 2, width - 24)))
    return [" " * indent + _painted(plain, colours, start, end) for start, end, indent in ranges]


def _unpainted(line: str) -> tuple[str, list[str]]:
    """The text, and for each of its characters the colours that hold there."""
    plain, colours, now, at = "", [], "", 0
    for found in SGR.finditer(line):
        colours += [now] * (found.start() - at)
        plain += line[at : found.start()]
        now = "" if found[0] == RESET else now + found[0]
        at = found.end()
    return plain + line[at:], colours + [now] * (len(line) - at)


def _painted(plain: str, colours: Sequence[str], start: int, end: int) -> str:
    text, now = "", ""
    for at in range(start, end):
        if colours[at] != now:
            text += (RESET if now else "") + colours[at]
            now = colours[at]
        text += plain[at]
    return text + (RESET if now else "")


def _hang(plain: str, width: int) -> int:
    label = re.match(r" *\S+(?: \S+)*?  +(?=\S)", plain)
    if label and cells(label[0]) <= min(LABEL, width // 3):
        return cells(label[0])
    return len(plain) - len(plain.lstrip(" ")) + 2


def _ranges(plain: str, width: int, hang: int) -> Iterator[tuple[int, int, int]]:
    """Where each line begins and ends in the text, and how far it is set in."""
    start = end = indent = 0

    def fits(stop: int, of: int | None = None) -> bool:
        return (indent if of is None else hang) + cells(plain[start if of is None else of : stop]) <= width

    for words in _segments(plain):
        first, last = words[0][0], words[-1][1]
        if end and not fits(last) and (fits(last, of=first) or KEPT in plain[slice(*words[0])]):
            yield start, end, indent
            start = end = first
            indent = hang
        for begin, stop in words:
            kept = KEPT in plain[begin:stop]
            # A label does not stay behind alone for a word that is broken anyhow.
            label = not start and cells(plain[:begin]) <= hang and not kept and not fits(stop, of=begin)
            if end > start and not fits(stop) and not label:
                yield start, end, indent
                start, indent = begin, hang
            if not fits(stop) and start:
                # A long word rather stands further left than in pieces.
                indent = next((less for less in (4, 2, 0) if less + cells(plain[start:stop]) <= width), indent)
            if kept:
                indent = indent if fits(stop) else min(indent, 2)
            else:
                for cut in _cuts(plain, start, stop, width, indent, hang):
                    yield start, cut, indent
                    start, indent = cut, hang
            end = stop
    yield start, end, indent


def _segments(plain: str) -> Iterator[list[tuple[int, int]]]:
    """Words with one blank between them, as ranges; what ends in a colon belongs to what it announces."""
    gathered: list[tuple[int, int]] = []
    for found in re.finditer(r"[^ ]+", plain):
        if gathered and found.start() - gathered[-1][1] > 1 and plain[gathered[-1][1] - 1] != ":":
            yield gathered
            gathered = []
        gathered.append(found.span())
    if gathered:
        yield gathered


def _cuts(plain: str, start: int, stop: int, width: int, indent: int, hang: int) -> Iterator[int]:
    """Where a word that is longer than a line is broken: behind a slash, else where the line ends."""
    while (end := _reach(plain, start, width - indent)) < stop:
        slash = plain.rfind("/", (start + end) // 2, end)
        start = slash + 1 if slash > start else max(end, start + 1)
        yield start
        indent = hang


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────


def widest(texts: Iterable[str]) -> int:
    return max(map(cells, texts), default=0)


def title_width(titles: Iterable[str], room: int) -> int:
    """The column of titles: as wide as it must be, but neither beyond the `room` nor so that the eye loses the row."""
    return max(8, min(widest(titles), room, TITLE))
