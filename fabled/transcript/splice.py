"""Finds the bytes of single values inside one line of JSON, so that an edit replaces those and nothing else.

The line must be one whole JSON text (`record.strict_loads` read it); what is edited and why is left to `rules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TEXT = re.compile(_STRING, re.DOTALL)
_FLAT = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+", re.DOTALL)
"""All up to the next bracket outside of strings: whole strings at scanning speed, no step per byte."""
_KEY = re.compile(rb"[ \t\r\n]*(" + _STRING + rb")[ \t\r\n]*:[ \t\r\n]*", re.DOTALL)
_BLANK = re.compile(rb"[ \t\r\n]*+")
_WORD = re.compile(rb"[^ \t\r\n,\]}]++")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its key, where that begins, where its value begins and where it ends."""

    key: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class Splice:
    """`data` in place of the bytes from `start` to `end`."""

    start: int
    end: int
    data: bytes = b""


def _blank(raw: bytes, at: int) -> int:
    return _BLANK.match(raw, at).end()  # type: ignore[union-attr]  # matches nothing at worst


def end_of(raw: bytes, at: int) -> int:
    """Where the value that begins at `at` ends; raises ValueError where the text ends before."""
    first = raw[at : at + 1]
    if first == b'"':
        quote = raw.find(b'"', at + 1)  # most often the last one, and found faster than by any pattern
        if quote > 0 and raw[quote - 1] != 0x5C:
            return quote + 1
        found = _TEXT.match(raw, at)
    elif first in (b"{", b"["):
        depth, pos = 1, at + 1
        while depth:
            pos = _FLAT.match(raw, pos).end()  # type: ignore[union-attr]  # matches nothing at worst
            if pos >= len(raw):
                raise ValueError("not a whole JSON text")
            depth += 1 if raw[pos] in b"{[" else -1
            pos += 1
        return pos
    else:
        found = _WORD.match(raw, at)
    if found is None:
        raise ValueError("not a whole JSON text")
    return found.end()


def members(raw: bytes, at: int) -> list[Member]:
    """The members of the object that begins at `at`, in order, doubled keys included; ValueError if none does."""
    if raw[at : at + 1] != b"{":
        raise ValueError("no object begins there")
    found: list[Member] = []
    pos = _blank(raw, at + 1)
    while raw[pos : pos + 1] != b"}":
        key = _KEY.match(raw, pos)
        if key is None:
            raise ValueError("not a whole JSON text")
        name = key[1]
        end = end_of(raw, key.end())
        found.append(Member(json.loads(name) if b"\\" in name else name[1:-1].decode(), key.start(1), key.end(), end))
        pos = _next(raw, end)
    return found


def items(raw: bytes, at: int) -> list[tuple[int, int]]:
    """(start, end) of each item of the array that begins at `at`; raises ValueError if none does."""
    if raw[at : at + 1] != b"[":
        raise ValueError("no array begins there")
    found: list[tuple[int, int]] = []
    pos = _blank(raw, at + 1)
    while raw[pos : pos + 1] != b"]":
        end = end_of(raw, pos)
        found.append((pos, end))
        pos = _next(raw, end)
    return found


def _next(raw: bytes, end: int) -> int:
    """Where the next member or item begins, or the bracket that ends them all."""
    pos = _blank(raw, end)
    if raw[pos : pos + 1] == b",":
        return _blank(raw, pos + 1)
    if pos >= len(raw):
        raise ValueError("not a whole JSON text")
    return pos


def find(raw: bytes, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """(start, end) of the value at a path; None where there is none, or where a key on the way stands twice."""
    start = _blank(raw, 0)
    end = len(raw)
    try:
        for step in path:
            if isinstance(step, str):
                named = [one for one in members(raw, start) if one.key == step]
                if len(named) != 1:
                    return None
                start, end = named[0].value, named[0].end
            else:
                start, end = items(raw, start)[step]
        return start, end if path else end_of(raw, start)
    except (ValueError, IndexError):
        return None


def cut(spans: Sequence[tuple[int, int]], gone: Collection[int]) -> list[Splice]:
    """Takes members or items out, by their positions in `spans`, each with one comma and the blanks around it."""
    last = len(spans) - 1
    while last >= 0 and last in gone:
        last -= 1
    found = [Splice(spans[at][0], spans[at + 1][0]) for at in sorted(gone) if at < last]
    if last < len(spans) - 1:
        found.append(Splice(spans[last][1] if last >= 0 else spans[0][0], spans[-1][1]))
    return found


def text(value: str) -> bytes:
    """A string as the client writes it: non-ASCII raw, only what must be escaped is."""
    return json.dumps(value, ensure_ascii=False).encode()


def apply(raw: bytes, edits: Sequence[Splice]) -> bytes:
    """The line with its edits made; raises ValueError where two of them overlap."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda one: one.start):
        if edit.start < at:
            raise ValueError("edits overlap")
        parts += (raw[at : edit.start], edit.data)
        at = edit.end
    parts.append(raw[at:])
    return b"".join(parts)
