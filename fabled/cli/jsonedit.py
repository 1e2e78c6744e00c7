"""Sets and removes single members in the text of a JSON object and leaves every other byte as it stands.

Which members, and whose file it is, is left to the commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from fabled.errors import Refused

_BLANK = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member stands: its name from `start`, its value from `value` to `end`."""

    name: str
    start: int
    value: int
    end: int


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with the member at `path` set; objects on the way that are not there are made."""
    wanted = _parsed(text)
    inner = wanted
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise Refused(f"{'.'.join(path)}: {name} is no object; nothing was changed", "look at the file")
    inner[path[-1]] = value
    return _checked(_put(text, _start(text), path, value), wanted)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`; the same text where there is none."""
    wanted = _parsed(text)
    inner: Any = wanted
    for name in path[:-1]:
        inner = inner.get(name)
        if not isinstance(inner, dict):
            return text
    if path[-1] not in inner:
        return text
    del inner[path[-1]]
    at = _start(text)
    for name in path[:-1]:
        at = _find(_members(text, at), name).value
    members = _members(text, at)
    for number, member in reversed(list(enumerate(members))):
        if member.name == path[-1]:  # a name that stands there twice goes twice
            text = _without(text, members, number)
            members = _members(text, at)
    return _checked(text, wanted)


def _put(text: str, at: int, path: Sequence[str], value: Any) -> str:
    members = _members(text, at)
    name, rest = path[0], path[1:]
    known = [member for member in members if member.name == name]
    if known and rest:
        return _put(text, known[-1].value, rest, value)
    if known:
        member = known[-1]
        return text[: member.value] + json.dumps(value, ensure_ascii=False) + text[member.end :]
    for one in reversed(rest):
        value = {one: value}
    if not members:
        return f"{text[: at + 1]}{json.dumps(name, ensure_ascii=False)}: {_laid_out(value, '')}{text[at + 1 :]}"
    last = members[-1]
    before = members[-2].end if len(members) > 1 else at
    lead = text[before : last.start].lstrip(" \t\r\n").lstrip(",{")
    entry = f"{json.dumps(name, ensure_ascii=False)}: {_laid_out(value, lead)}"
    return f"{text[: last.end]},{lead}{entry}{text[last.end :]}"


def _laid_out(value: Any, lead: str) -> str:
    """A value as the members around it are written: over several lines if they are."""
    if "\n" not in lead:
        return json.dumps(value, ensure_ascii=False)
    indent = lead.rpartition("\n")[2]
    unit = indent if indent and len(indent) <= 8 else "  "
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{indent}")


def _without(text: str, members: Sequence[_Member], number: int) -> str:
    member = members[number]
    if number:
        return text[: members[number - 1].end] + text[member.end :]
    if len(members) > 1:
        return text[: member.start] + text[members[1].start :]
    return text[: member.start] + text[member.end :]


def _find(members: Sequence[_Member], name: str) -> _Member:
    return [member for member in members if member.name == name][-1]


def _start(text: str) -> int:
    return _skip(text, 0)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _members(text: str, at: int) -> list[_Member]:
    """The members of the object that begins at `at`, in a text that is known to parse."""
    decoder = json.JSONDecoder()
    found: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        name, colon = scanstring(text, at + 1, True)
        value = _skip(text, _skip(text, colon) + 1)
        _, end = decoder.raw_decode(text, value)
        found.append(_Member(name, at, value, end))
        at = _skip(text, end)
    return found


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as fault:
        raise Refused(f"the file is not plain JSON ({fault}); nothing was changed", "mend it, then try again") from None
    if not isinstance(value, dict):
        raise Refused("the file holds no JSON object; nothing was changed", "mend it, then try again")
    return value


def _checked(text: str, wanted: dict[str, Any]) -> str:
    if json.loads(text) != wanted:
        raise Refused("the file could not be edited safely; nothing was changed", "edit it by hand: --print shows what")
    return text
