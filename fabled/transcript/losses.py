"""What one record lost to become another: the values that are gone or were cut, and what each of them was.

Which two bytes are compared, and why something was taken out, is told by others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .text import estimate

IMAGE_TOKENS = 1_500
"""The most that an image costs, whatever its bytes."""
MOST_ITEMS = 1_000
"""Items of a longer list are not looked for one by one, which costs the square of their number."""
_MARKER = re.compile(r"\[fabled block [0-9a-f-]{36}#")

Path = tuple[str | int, ...]


def removals(a: Any, b: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """(path, value before, value after or None) of what one JSON value lost to become another.

    The smallest values that tell: a key that is gone, a block that is gone, a text that was cut, a value whose type
    changed. What was added is no loss.
    """
    if type(a) is not type(b):
        yield path, a, b
    elif isinstance(a, dict):
        if path and a.get("type") != b.get("type"):
            yield path, a, b
            return
        for key, value in a.items():
            if key not in b:
                yield (*path, key), value, None
            elif value != b[key]:
                yield from removals(value, b[key], (*path, key))
    elif isinstance(a, list):
        yield from _removed_items(a, b, path)
    elif a != b:
        yield path, a, b


def _removed_items(a: list[Any], b: list[Any], path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Items of a shorter list are found again in their order: an equal one, else one of the same kind."""
    if len(a) > MOST_ITEMS:
        yield path, a, b
        return
    at = 0
    for number, value in enumerate(a):
        spare = (len(a) - number) - (len(b) - at)
        if at < len(b) and value == b[at]:
            at += 1
        elif at < len(b) and (spare <= 0 or (_kind(value) == _kind(b[at]) and b[at] not in a[number + 1 :])):
            yield from removals(value, b[at], (*path, number))
            at += 1
        else:
            yield (*path, number), value, None


def _kind(value: Any) -> Any:
    return value.get("type") if isinstance(value, dict) else type(value)


def named(type_: str, path: Path, old: Any, new: Any) -> tuple[str, str]:
    """What a value was, and the rule that cuts such; ("", "") where it is no loss of content."""
    top = path[0] if path else ""
    if top == "parentUuid" or path[:2] == ("message", "usage"):
        return "", ""
    if top == "toolUseResult":
        return "tool result as shown", "G2"
    if top == "data" and type_ == "progress":
        return "progress data", "G1"
    if top == "attachment":
        return "attachment", "A2"
    kind = old.get("type") if isinstance(old, dict) else None
    if kind == "image":
        return "image", "S1"
    if kind in ("thinking", "redacted_thinking"):
        return "thinking", "A1"
    if top == "message" and isinstance(old, str) and isinstance(new, str):
        if _MARKER.search(new):
            return "tool output", "S2"
        if "historical_context" in old:
            return "recalled passage", "S4"
    return (str(kind) if kind else ".".join(map(str, path)) or "record"), ""


def size(value: Any) -> int:
    """The bytes of a value as the client writes it."""
    if value is None:
        return 0
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def tokens(path: Path, value: Any) -> int:
    """About what a value costs when it is sent; what is kept for the screen alone is not."""
    if value is None or not path or path[0] not in ("message", "attachment"):
        return 0
    if isinstance(value, dict) and value.get("type") == "image":
        return IMAGE_TOKENS
    if isinstance(value, dict):
        return sum(tokens(path, one) for one in value.values())
    if isinstance(value, list):
        return sum(tokens(path, one) for one in value)
    return estimate(value) if isinstance(value, str) else 0
