"""Markdown inside Markdown: what people and models wrote is shown as they meant it, but within its place.

Nothing in it can run, be fetched, hide what follows, or change the document around it: HTML is text, images are links,
headings stay below ours, every fence is closed, and no underline, reference or entity means more than it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MARK = r"(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$)"
_CONTAINERS = re.compile(rf"(?:[ \t]*(?:>|{_MARK}))*[ \t]*")
_FENCE = re.compile(rf"((?:[ \t]*(?:>|{_MARK}))*[ \t]*)(`{{3,}}+(?=[^`]*$)|~{{3,}}+)(.*)")
_UNDERLINE = re.compile(r"([ \t>]*)(=+|-+)[ \t]*")
_HEADING = re.compile(r"#{1,6}(?=[ \t]|$)")
_LIST = re.compile(rf"[ \t>]*{_MARK}")
_HARMLESS_BRACKET = re.compile(r"\[[ xX]\][ \t]|\[[^\[\]]*\]\(")
_TABLE = re.compile(r"[ \t>]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_RUN = re.compile("`+")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")
# An escape that stands there already; a link that is one to every renderer, and to an address; and then what is
# neither: the beginnings of HTML, of an entity, of an image, of any other link (in whose address a span would not end).
_RISKY = re.compile(
    r"(\\[!-/:-@\[-`{-~]|\]\([ \t]*(?:(?:https?|mailto):[^\s()<>\\`\"]*|[^\s()<>\\`\":&]*(?::\d+)?)"
    r"(?:[ \t]+\"[^\"\\`<&]*\")?[ \t]*\))|<|&(?=#?\w{1,40};)|!(?=\[)|\]\(",
    re.IGNORECASE,
)
_SHOWN_IN_HEADINGS = re.compile(r"([\\`*_\[\]<>#&!|~$])")


def contained(text: str) -> str:
    """The text as a part of a document."""
    lines = text.split("\n")
    tables = any("|" in line and _TABLE.fullmatch(line) for line in lines)
    out: list[str] = []
    at, listed = 0, False
    while at < len(lines):
        line = lines[at]
        blank = not out or not out[-1].strip()
        opened = _FENCE.fullmatch(line)
        if opened is not None:
            content, at = _fence(lines, at, opened)
            mark = opened[1].strip(" \t>")
            out += [] if blank else [""]
            out += [f"{mark[:-1]}\\{mark[-1]}", ""] if mark else []
            out += [*fenced("\n".join(content), opened[3].strip()), ""]
            continue
        if blank and not listed and _indented(line):
            content, at = _block(lines, at)
            out += [*fenced("\n".join(content), ""), ""]
            continue
        if line.strip():
            listed = _LIST.match(line) is not None or (listed and (not blank or line[0] in " \t"))
        out.append(_line(line, blank, tables))
        at += 1
    return "\n".join(out)


def fenced(text: str, info: str) -> list[str]:
    """Text in a fence that nothing in it can end."""
    fence = "`" * max(3, 1 + max((len(run) for run in _RUN.findall(text)), default=0))
    # A name of a language and no more: to some renderers a stroke in it begins a table.
    name = info.split(maxsplit=1)[0] if info.strip() else ""
    return [fence + (name if _LANGUAGE.fullmatch(name) else ""), text, fence]


def plain(text: str) -> str:
    """A text of one line as nothing but text."""
    return _SHOWN_IN_HEADINGS.sub(r"\\\1", text)


def code(text: str) -> str:
    """A text of one line as a code span."""
    fence = "`" * (1 + max((len(run) for run in _RUN.findall(text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _fence(lines: Sequence[str], at: int, opened: re.Match[str]) -> tuple[list[str], int]:
    """(what stands in a fence, where the text goes on): up to its end, that of its quotation, or of all."""
    quotes = opened[1].count(">")
    inset = len(opened[1]) - (opened[1].rfind(">") + 1)
    close = re.compile(rf"[ \t]*{re.escape(opened[2][0])}{{{len(opened[2])},}}[ \t]*")
    content: list[str] = []
    for number in range(at + 1, len(lines)):
        line = lines[number]
        for _ in range(quotes):
            quoted = re.match(r"[ \t]*>", line)
            if quoted is None:
                return content, number
            line = line[quoted.end() :]
        if close.fullmatch(line):
            return content, number + 1
        content.append(line[min(inset, len(line) - len(line.lstrip(" \t"))) :])
    return content, len(lines)


def _indented(line: str) -> bool:
    return (line.startswith("    ") or line.lstrip(" ").startswith("\t")) and bool(line.strip())


def _block(lines: Sequence[str], at: int) -> tuple[list[str], int]:
    """(what stands in a block that is code because it is set in, where the text goes on)."""
    end = at
    while end < len(lines) and (_indented(lines[end]) or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return [re.sub(r"^(?: {4}| {0,3}\t)", "", line) for line in lines[at:end]], end


def _line(line: str, blank: bool, tables: bool) -> str:
    """One line that is no code; `blank`: the one before it was."""
    underline = _UNDERLINE.fullmatch(line)
    if underline is not None and underline[2] and not (blank and (underline[2] == "-" or len(underline[2]) > 2)):
        return f"{underline[1]}\\{underline[2]}"
    containers = _CONTAINERS.match(line)
    prefix = containers[0] if containers else ""
    rest = line[len(prefix) :]
    if heading := _HEADING.match(rest):
        prefix, rest = prefix + "#" * min(6, len(heading[0]) + 2), rest[heading.end() :]
    elif rest.startswith("[") and not _HARMLESS_BRACKET.match(rest):
        prefix, rest = prefix + "\\[", rest[1:]
    return prefix + "".join(_inline(rest, tables))


def _inline(text: str, tables: bool) -> Iterator[str]:
    """The text of a line: code spans that end on it as they are, all else without risky signs.

    A renderer would look for the end of a span on later lines, too; so what has none here is no beginning of one. A
    cell of a table ends at a stroke even in a span.
    """
    runs = list(_RUN.finditer(text))
    at = number = 0
    while number < len(runs):
        run = runs[number]
        before = text[at : run.start()]
        literal = (len(before) - len(before.rstrip("\\"))) % 2 == 1
        end = None if literal else _end(runs, number)
        if end is not None and tables and "|" in text[run.end() : runs[end].start()]:
            end = None
        if end is None:
            yield _calm(before[:-1] if literal else before)
            yield "\\`" * len(run[0])
            at, number = run.end(), number + 1
        else:
            yield _calm(before)
            yield text[run.start() : runs[end].end()]
            at, number = runs[end].end(), end + 1
    yield _calm(text[at:])


def _end(runs: Sequence[re.Match[str]], number: int) -> int | None:
    return next((n for n in range(number + 1, len(runs)) if len(runs[n][0]) == len(runs[number][0])), None)


def _calm(text: str) -> str:
    return _RISKY.sub(_calmed, text)


def _calmed(found: re.Match[str]) -> str:
    if found[1]:
        return found[0]
    return "]\\(" if found[0] == "](" else f"\\{found[0]}"
