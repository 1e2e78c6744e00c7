"""Reads out of a tool call what it does to a file, whatever the tool: lines added and removed, a diff, one line.

Which calls touch a file, and reading them, is left to `retrieval`.

Only what the call says is known: a change made by a shell command is none of these. Where the call's result holds a
patch with line numbers, the diff is that patch; else it is worked out from the old and the new text alone, and its
line numbers count from the beginning of these.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

READERS = frozenset(
    ("Read", "Grep", "Glob", "LS", "NotebookRead", "View", "ReadFile", "LSP", "Bash", "Task", "Agent", "Skill")
)
"""Well-known tools that name a file and never change it."""
_CHANGER = re.compile(
    r"edit|write|patch|replace|insert|create|append|update|delete|move|rename|artifact", re.IGNORECASE
)
_PATHS = ("file_path", "notebook_path", "path", "filePath")
_OLD = ("old_string", "old_str", "oldText", "old_text", "oldString")
_NEW = ("new_string", "new_str", "newText", "new_text", "newString", "insert_text", "new_source")
_WHOLE = ("content", "file_text", "contents", "text")
_DIFF_CELLS = 4_000_000
"""Lines of the one text times lines of the other that are compared; beyond that all are taken as changed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One place of a file: its text before and after. `old` None: what stood there is not known."""

    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Edit:
    """What one call does to one file."""

    call: str | None
    tool: str
    path: str
    kind: str
    """edit, write, insert, delete or notebook"""
    pieces: tuple[Piece, ...]
    everywhere: bool = False
    where: str = ""
    """a cell or a line, in words"""


@dataclass(frozen=True, slots=True)
class Patch:
    """A diff's hunks as lines, and how many lines they add and remove. `placed`: with the file's own line numbers."""

    lines: tuple[str, ...]
    added: int
    removed: int
    placed: bool


def may_change(tool: str | None) -> bool:
    """Whether a tool of that name may change a file it names."""
    return bool(tool) and tool not in READERS and _CHANGER.search(tool or "") is not None


def edits(obj: Any) -> list[Edit]:
    """The changes of files that the calls of one record make, in order."""
    found = []
    for block in _calls(obj):
        arguments = block.get("input")
        name = block.get("name")
        if type(arguments) is not dict or type(name) is not str or name in READERS:
            continue
        path = next((arguments[key] for key in _PATHS if type(arguments.get(key)) is str and arguments[key]), None)
        if path is None:
            continue
        call = block.get("id")
        made = _edit(call if type(call) is str else None, name, path, arguments)
        if made is not None:
            found.append(made)
    return found


def _calls(obj: Any) -> Iterator[dict[str, Any]]:
    """The tool calls of a record, also of a subagent's step copied into a progress record."""
    for _ in range(2):
        if type(obj) is not dict:
            return
        data = obj.get("data")
        if obj.get("type") == "progress" and type(data) is dict:
            obj = data.get("message")
    if type(obj) is not dict:
        return
    message = obj.get("message")
    content = message.get("content") if type(message) is dict else None
    for block in [content] if type(content) is dict else content if type(content) is list else ():
        if type(block) is dict and block.get("type") == "tool_use":
            yield block


def _edit(call: str | None, tool: str, path: str, given: dict[str, Any]) -> Edit | None:
    if "cell_id" in given or "new_source" in given or "notebook_path" in given:
        mode = given.get("edit_mode")
        cell = given.get("cell_id", given.get("cell_number"))
        new = _text(given, _NEW)
        where = " ".join(str(part) for part in ("cell", cell, mode) if part not in (None, ""))
        if new is None and mode != "delete":
            return None
        piece = Piece("" if mode == "insert" else None, None if mode == "delete" else new)
        return Edit(call, tool, path, "notebook", (piece,), where=where)
    several = given.get("edits")
    if type(several) is list:
        pieces = tuple(Piece(_text(one, _OLD), _text(one, _NEW)) for one in several if type(one) is dict)
        pieces = tuple(piece for piece in pieces if piece.old is not None or piece.new is not None)
        return Edit(call, tool, path, "edit", pieces) if pieces else None
    if given.get("command") in ("view", "undo_edit"):
        return None
    old, new = _text(given, _OLD), _text(given, _NEW)
    if old is not None:
        return Edit(call, tool, path, "edit", (Piece(old, new or ""),), given.get("replace_all") is True)
    line = given.get("insert_line")
    if new is not None:
        where = f"line {line}" if type(line) is int else ""
        return Edit(call, tool, path, "insert", (Piece("", new),), where=where)
    whole = _text(given, _WHOLE)
    if whole is not None:
        return Edit(call, tool, path, "write", (Piece(None, whole),))
    if re.search("delete|remove", tool, re.IGNORECASE):
        return Edit(call, tool, path, "delete", (Piece(None, None),))
    return None


def _text(given: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((given[key] for key in keys if type(given.get(key)) is str), None)


# The result


def outcome(obj: Any, call: str | None) -> tuple[bool | None, str]:
    """(whether the call of that id went well, what its result said where not); None where the record is no answer."""
    message = obj.get("message") if type(obj) is dict else None
    content = message.get("content") if type(message) is dict else None
    for block in content if type(content) is list else ():
        if type(block) is dict and block.get("type") == "tool_result" and block.get("tool_use_id") == call:
            if block.get("is_error") is not True:
                return True, ""
            said = block.get("content")
            if type(said) is list:
                said = "\n".join(str(part.get("text") or "") for part in said if type(part) is dict)
            return False, re.sub(r"</?tool_use_error>", "", said if type(said) is str else "").strip()
    return None, ""


def patch(edit: Edit, result: Any = None) -> Patch:
    """The hunks of one change; with the file's line numbers where the record of its result knows them."""
    told = result.get("toolUseResult") if type(result) is dict else None
    if type(told) is dict:
        hunks = _told_hunks(told.get("structuredPatch"))
        if hunks is not None:
            return _counted(hunks, True)
        before = told.get("originalFile")
        if edit.kind == "write" and type(before) is str and len(edit.pieces) == 1:
            return _counted(list(_hunks(before, edit.pieces[0].new or "")), True)
        if edit.kind == "write" and told.get("type") == "create":
            return _counted(list(_hunks("", edit.pieces[0].new or "")), True)
    lines: list[str] = []
    for piece in edit.pieces:
        lines += _hunks(piece.old or "", piece.new or "")
    return _counted(lines, False)


def _told_hunks(told: Any) -> list[str] | None:
    if type(told) is not list or not told:
        return None
    lines: list[str] = []
    for hunk in told:
        if type(hunk) is not dict or type(hunk.get("lines")) is not list:
            return None
        numbers = [hunk.get(key) for key in ("oldStart", "oldLines", "newStart", "newLines")]
        if any(type(number) is not int for number in numbers):
            return None
        lines.append("@@ -{},{} +{},{} @@".format(*numbers))
        lines += [line for line in hunk["lines"] if type(line) is str]
    return lines


def _counted(lines: list[str], placed: bool) -> Patch:
    return Patch(tuple(lines), sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines), placed)


def _split(text: str) -> list[str]:
    """Lines as editors count them, the last one's end told apart from a missing one."""
    return text.replace("\r\n", "\n").split("\n")[: -1 if text.endswith("\n") else None] if text else []


def _hunks(old: str, new: str) -> Iterator[str]:
    a, b = _split(old), _split(new)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    if (len(a) - head - tail) * (len(b) - head - tail) > _DIFF_CELLS:
        gone, come = a[head : len(a) - tail], b[head : len(b) - tail]
        yield f"@@ -{head + 1},{len(gone)} +{head + 1},{len(come)} @@"
        yield from (f"-{line}" for line in gone)
        yield from (f"+{line}" for line in come)
        return
    for number, line in enumerate(difflib.unified_diff(a, b, lineterm="", n=3)):
        if number >= 2:  # the names come from whoever shows it
            yield line


# In words


def summary(edit: Edit, counted: Patch) -> str:
    """One line that says what was changed: how much, and the first changed line that says something."""
    parts = []
    if edit.kind == "write":
        lines = len(_split(edit.pieces[0].new or ""))
        parts.append(f"whole file, {lines:,} line{'' if lines == 1 else 's'}")
    elif edit.kind == "delete":
        parts.append("deleted")
    elif edit.where:
        parts.append(edit.where)
    elif len(edit.pieces) > 1:
        parts.append(f"{len(edit.pieces)} places")
    if edit.everywhere:
        parts.append("everywhere")
    first = next((line[1:].strip() for line in counted.lines if line[:1] == "+" and _says(line)), "")
    first = first or next((line[1:].strip() for line in counted.lines if line[:1] == "-" and _says(line)), "")
    if first and edit.kind != "write":
        parts.append(first)
    return ": ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def _says(line: str) -> bool:
    return any(c.isalnum() for c in line)
