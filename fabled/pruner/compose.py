"""Puts a transcript together from generations and the live file: what `restore` writes.

Pure decisions on lines; where the lines come from is told by readers. Nothing a live transcript holds beyond its
generations is left out: restoring an old state never costs a newer line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ..transcript.record import CHUNK, Read, strict_loads, uuid_bytes


@dataclass(frozen=True, slots=True)
class State:
    """One state of a transcript: its bytes by offset, and how many there are."""

    read: Read
    size: int


@dataclass(frozen=True, slots=True)
class Pick:
    """Take a line of a state: which state, and the line's place in it, its LF included."""

    state: int
    offset: int
    length: int


Key = tuple[bytes, int]
"""What tells a line: its record's uuid, or its content where it is not one record with a uuid; and the how-manieth in
its file it is."""


def lines(read: Read, end: int) -> Iterator[bytes]:
    """The lines up to byte `end`, each with its LF; the last may lack it."""
    at = 0
    pieces: list[bytes] = []
    while at < end and (chunk := read(at, min(CHUNK, end - at))):
        at += len(chunk)
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        for part in rest:
            yield b"".join(pieces) + b"\n"
            pieces = [part]
    left = b"".join(pieces)
    if left:
        yield left


def key_of(line: bytes) -> bytes:
    """The uuid of a line that is exactly one record with one, else a digest of its bytes."""
    text = line.rstrip(b"\r\n")
    if text[:1] == b"{" and b'"uuid"' in text:
        try:
            value = strict_loads(text)
        except ValueError:
            value = None
        raw = uuid_bytes(value.get("uuid")) if type(value) is dict else None
        if raw is not None:
            return raw
    return b"\0" + sha256(text).digest()


def union(states: Sequence[State], *, longest: bool) -> list[Pick]:
    """Every line of every state once, in the order they were first seen.

    `longest`: of a record that several states hold, the longest copy is taken (a prune shortens, so that is the
    original); else that of the first state.
    """
    where: dict[Key, int] = {}
    picks: list[Pick] = []
    sizes: list[int] = []
    torn: dict[int, bytes] = {}  # a state that ended within a line; a later one may have all of it
    for number, state in enumerate(states):
        seen: dict[bytes, int] = {}
        offset = 0
        for line in lines(state.read, state.size):
            name = key_of(line)
            key = (name, seen.get(name, 0))
            seen[name] = key[1] + 1
            at = where.get(key)
            if at is None:
                for pick, begun in list(torn.items()):
                    if line.startswith(begun):
                        # In its place, so that the order stays.
                        picks[pick] = Pick(number, offset, len(line))
                        sizes[pick] = len(line.rstrip(b"\r\n"))
                        where[key] = pick
                        del torn[pick]
                        break
                if key in where:
                    offset += len(line)
                    continue
                if not line.endswith(b"\n") and number + 1 < len(states):
                    torn[len(picks)] = line
                where[key] = len(picks)
                picks.append(Pick(number, offset, len(line)))
                sizes.append(len(line.rstrip(b"\r\n")))
            elif longest and len(line.rstrip(b"\r\n")) > sizes[at]:
                picks[at] = Pick(number, offset, len(line))
                sizes[at] = len(line.rstrip(b"\r\n"))
            offset += len(line)
    return picks


def write(states: Sequence[State], picks: Sequence[Pick], put: Callable[[bytes], object], *, end: bytes = b"") -> None:
    """Writes the lines picked, the last one as it stood unless something follows it.

    `end`: the unfinished last line of the live file, which whoever replaces the file carries over by itself: where the
    composition would end with the same bytes, they are left to that.
    """
    last = len(picks) - 1
    for number, pick in enumerate(picks):
        line = states[pick.state].read(pick.offset, pick.length)
        if len(line) != pick.length:
            raise EOFError("a generation ends before a line that was read in it a moment ago")
        if not line.endswith(b"\n"):
            if number == last and end and end.startswith(line):
                continue
            if number != last or end:
                line += b"\n"
        put(line)
