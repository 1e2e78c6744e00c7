"""Finds the records in a transcript's bytes, each with its exact span, and accounts for every other byte.

Where the bytes come from is left to `store`; what a record means, to `text`.

How a line is taken apart. A line is what stands between two 0x0A bytes. Nearly all lines are one object, which
orjson reads whole. Any other line is walked from the left: blanks and byte order marks are separators, a run of
NUL bytes is an unparsed span, `{` opens an object that a string-aware decoder follows to its end (so glued objects
come apart). An object that does not end, or anything else, is torn: the walk looks for the next whole record behind
it. An object inside a torn record must never be taken for a record, so a candidate counts only when it follows a
string the tear cut open (no nesting can explain it there) or when it looks like a record of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import orjson

Kind = Literal["record", "no_uuid", "unparsed", "pending", "separator"]
Segment = tuple[Kind, int, int, Any]
"""(kind, start, end, parsed object or None), positions within the line."""
Read = Callable[[int, int], bytes]
"""`read(offset, length)`: the bytes there, fewer only at the end of the file."""

CHUNK = 1 << 20
HUGE_LINE = 4 << 20
"""Longer lines are parsed from a copy whose long strings are shortened (RULES 25: memory bounded on any file)."""
KEEP_HEAD, KEEP_TAIL = 64 << 10, 4 << 10
STRUCTURE_LIMIT = 64 << 20
"""A line whose shortened form is still longer stays one unparsed span,"""
VALUES_LIMIT = 192 << 20
"""and so does one whose values would take more memory than this, by the count of its brackets and commas."""
DIGEST_BYTES = 16

_BLANK = b" \t\r"
_BOM = b"\xef\xbb\xbf"
_RUN = re.compile(rb"(?P<blank>[ \t\r]+|\xef\xbb\xbf)|(?P<nul>\x00+)")
_NULS = re.compile(rb"\x00{65536,}")
_HALF = re.compile("[\ud800-\udfff]")
_OPEN_ESCAPE = re.compile(
    rb"(?:\\u[Dd][89ABab][0-9A-Fa-f]{2})?\\(?:u[0-9A-Fa-f]{0,3})?\Z|\\u[Dd][89ABab][0-9A-Fa-f]{2}\Z"
)
"""An escape not yet at its end, or the first half of a pair."""
_CANDIDATE = re.compile(
    rb'\{[ \t]*"(?:parentUuid|logicalParentUuid|type|uuid|sessionId|isSidechain|timestamp|message|cwd|version|userType|'
    rb'operation|summary|messageId|leafUuid|agentId|promptId|gitBranch|requestId|isMeta)"[ \t]*:'
)
_WINDOW = 4_096
_WORK = 32
"""How many times its length a line may cost in vain attempts, so that no line costs its length squared."""


def _long_int(digits: str) -> int | float:
    """An integer, or a float where Python refuses the conversion for its length (over 4,300 digits)."""
    return int(digits) if len(digits) < 400 else float(digits)


_walker = json.JSONDecoder(strict=False, parse_int=_long_int)


strict_loads = orjson.loads
"""The value of one JSON text as the client writes it; raises ValueError for anything odd."""
compact = orjson.dumps
"""A value as JSON without blanks; raises TypeError for what JSON cannot hold."""


strict_dumps = orjson.dumps
"""The compact JSON text of a value; raises TypeError for what no strict JSON can hold."""


def loads(data: bytes) -> Any:
    """The value of one JSON text.

    orjson first; where it refuses (lone surrogate escapes, invalid UTF-8, raw control bytes, NaN: RULES 2) the
    standard library reads it, with U+FFFD for what is no character: neither SQLite nor a reply can hold half a pair.
    Raises ValueError if neither can.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        pass
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False, parse_int=_long_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _whole_pairs(value)


def _whole_pairs(value: Any) -> Any:
    """The value with every half surrogate pair in it replaced, keys included (iterative: depth is the input's)."""
    if type(value) is str:
        return _HALF.sub("\ufffd", value)
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is dict:
            pairs = [(_HALF.sub("\ufffd", k), _HALF.sub("\ufffd", v) if type(v) is str else v) for k, v in item.items()]
            item.clear()
            item.update(pairs)
            waiting.extend(item.values())
        elif type(item) is list:
            item[:] = [_HALF.sub("\ufffd", v) if type(v) is str else v for v in item]
            waiting.extend(item)
    return value


def digest(data: bytes) -> bytes:
    """The stored checksum of a record's bytes: the first 16 bytes of their sha256."""
    return sha256(data).digest()[:DIGEST_BYTES]


def content_id(check: bytes) -> str:
    """The id a record's content answers to, `L-` and the first 16 hex digits of its sha256."""
    return "L-" + check[:8].hex()


def uuid_bytes(value: object) -> bytes | None:
    """The 16 bytes of a uuid text, or None for anything that has not that form (DESIGN: counts as none)."""
    if type(value) is not str or len(value) != 36 or value[8:24:5] != "----":
        return None
    try:
        raw = bytes.fromhex(value.replace("-", ""))  # skips blanks, but then gives fewer bytes
    except ValueError:
        return None
    return raw if len(raw) == 16 else None


def uuid_text(raw: bytes) -> str:
    """How a record id is shown: a uuid for 16 bytes, a content id for 8."""
    if len(raw) == 16:
        h = raw.hex()
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
    return "L-" + raw.hex()


def segments(line: bytes, complete: bool) -> list[Segment]:
    """Takes one line apart; the segments tile it from 0 to len(line).

    `complete` says that a newline follows; without it an unfinished rest is `pending`, not `unparsed`.
    """
    if line[:1] == b"{" and line[-1:] == b"}":
        try:
            obj = orjson.loads(line)
        except ValueError:
            pass
        else:
            return [("record" if _has_uuid(obj) else "no_uuid", 0, len(line), obj)]
    return list(_walk(line, complete))


def _has_uuid(obj: Any) -> bool:
    return uuid_bytes(obj.get("uuid")) is not None


def _walk(line: bytes, complete: bool) -> Iterator[Segment]:
    text = line.decode("latin-1")  # one character per byte, so that decoder positions are byte offsets
    pos, size = 0, len(line)
    work = _WORK * size
    while pos < size:
        run = _RUN.match(line, pos)
        if run:
            yield ("separator" if run["blank"] is not None else "unparsed", pos, run.end(), None)
            pos = run.end()
            continue
        whole, broke_at = _object_at(line, text, pos)
        if whole is None:
            found, work = _next_record(line, text, pos + 1, broke_at, work - (broke_at - pos))
            if found is None:
                yield from _rest(line, pos, complete)
                return
            start, whole = found
            yield ("unparsed", pos, start, None)
            pos = start
        end, obj = whole
        yield ("record" if _has_uuid(obj) else "no_uuid", pos, end, obj)
        pos = end


def _rest(line: bytes, pos: int, complete: bool) -> Iterator[Segment]:
    """What is left of a line that holds no further record: unparsed, or pending while its newline is missing."""
    end = pos + len(line[pos:].rstrip(_BLANK))
    # NUL padding is what a crash leaves: nothing written later can complete it.
    pending = not complete and not line.endswith(b"\0")
    if pending:
        end = len(line)
    yield ("pending" if pending else "unparsed", pos, end, None)
    if end < len(line):
        yield ("separator", end, len(line), None)


def _object_at(line: bytes, text: str, pos: int) -> tuple[tuple[int, Any] | None, int]:
    """((end, object), 0) of the whole object that starts at `pos`, or (None, where the decoder gave up at the latest).

    The decoder is shown a window that grows while the object goes on: for each fault it raises, it counts the lines of
    all it was shown.
    """
    if line[pos] != 0x7B:
        return None, pos
    size = _WINDOW
    while True:
        window = text[pos : pos + size]
        try:
            _, end = _walker.raw_decode(window)
            break
        except json.JSONDecodeError as fault:
            cut = fault.pos > len(window) - 16 or fault.msg.startswith("Unterminated string")
            if not cut or pos + size >= len(text):
                return None, pos + fault.pos
        except (RecursionError, ValueError):
            return None, len(line)
        size *= 8
    end += pos
    try:
        return (end, loads(line[pos:end])), 0
    except ValueError:
        return None, end


def _next_record(
    line: bytes, text: str, pos: int, broke_at: int, work: int
) -> tuple[tuple[int, tuple[int, Any]] | None, int]:
    """The next whole record behind a tear, as (start, (end, object)), and how much work is left for the line."""
    while work >= 0:
        match = _CANDIDATE.search(line, pos)
        if match is None:
            break
        start = match.start()
        whole, gave_up_at = _object_at(line, text, start)
        if whole is None:
            work -= gave_up_at - start
            pos = start + 1
            continue
        end, obj = whole
        follows = line[end : end + 1]
        # The decoder gave up right behind `{"`: it took the new record's first quote for the end of the cut string.
        splice = line.find(b'"', start) + 1 == broke_at
        if (not follows or follows in b" \t\r\x00{") and (splice or _stands_alone(obj)):
            return (start, whole), work
        pos = end
    return None, work


def _stands_alone(obj: dict[str, Any]) -> bool:
    """Whether an object has the marks of a top-level record (FORMAT 3), which nothing nested carries together."""
    kind = obj.get("type")
    if not isinstance(kind, str):
        return False
    return (
        "parentUuid" in obj
        or "sessionId" in obj
        or (kind == "summary" and "leafUuid" in obj)
        or (kind.startswith("file-history-") and "messageId" in obj)
    )


@dataclass(slots=True)
class Line:
    """One line of a file: its bytes (shortened where `cuts` is not empty) and where it lies."""

    offset: int
    number: int
    data: bytes
    complete: bool
    length: int
    cuts: tuple[tuple[int, int], ...] = ()
    """(position in `data`, bytes left out before it), ascending; only for huge lines."""

    def place(self, position: int) -> int:
        """The file offset of a position in `data`."""
        return self.offset + position + sum(gone for at, gone in self.cuts if at <= position)


def lines(read: Read, start: int, number: int, end: int) -> Iterator[Line]:
    """The lines from byte `start` (which begins line `number`) to byte `end`, with bounded memory."""
    offset, carry, at = start, b"", start
    while at < end:
        chunk = read(at, min(CHUNK, end - at))
        if not chunk:
            break
        at += len(chunk)
        if carry:
            chunk = carry + chunk
        parts = chunk.split(b"\n")
        carry = parts.pop()
        for part in parts:
            # The length alone decides, never where the chunks fell: the text of a line must not depend on that.
            yield (
                Line(offset, number, part, True, len(part))
                if len(part) <= HUGE_LINE
                else _shorten(read, offset, number, end)
            )
            offset += len(part) + 1
            number += 1
        if len(carry) > HUGE_LINE:
            line = _shorten(read, offset, number, end)
            yield line
            offset += line.length + 1
            number += 1
            at, carry = offset, b""
    if carry:
        yield Line(offset, number, carry, False, len(carry))


def _shorten(read: Read, offset: int, number: int, end: int) -> Line:
    """Reads one huge line, leaving out the middle of long strings and of long NUL runs.

    The last bytes of a string are kept because a tear may hide the start of a whole record right before the quote.
    """
    out = bytearray()
    cuts: list[tuple[int, int]] = []
    at, complete = offset, False
    in_string, escaped = False, False
    head_start = head_end = 0  # where in `out` the open string begins, and where its kept head must stop
    tail = bytearray()
    gone = 0

    def close() -> None:
        nonlocal gone
        if tail:
            spare = max(0, len(tail) - KEEP_TAIL)
            while spare < len(tail) and (tail[spare] & 0xC0 == 0x80 or (spare and tail[spare - 1] == 0x5C)):
                spare += 1
            gone += spare
            if gone:
                whole = _whole_characters(out, head_start)
                gone += len(out) - whole
                del out[whole:]
                cuts.append((whole, gone))
            out.extend(tail[spare:])
            tail.clear()
        gone = 0

    def put(piece: bytes) -> None:
        """Adds string content, head first, then into the rolling tail."""
        nonlocal gone
        room = head_end - len(out)
        if room > 0 and not tail and not gone:
            out.extend(piece[:room])
            piece = piece[room:]
        if piece:
            tail.extend(piece)
            if len(tail) > CHUNK:
                spare = len(tail) - 2 * KEEP_TAIL
                gone += spare
                del tail[:spare]

    while at < end and not complete and len(out) <= STRUCTURE_LIMIT:
        chunk = read(at, min(CHUNK, end - at))
        if not chunk:
            break
        stop = chunk.find(b"\n")
        if stop >= 0:
            chunk, complete = chunk[:stop], True
        pos = 0
        while pos < len(chunk):
            quote = chunk.find(b'"', pos)
            piece = chunk[pos:] if quote < 0 else chunk[pos:quote]
            if in_string:
                run = len(piece) - len(piece.rstrip(b"\\"))
                odd = (run + (1 if escaped and run == len(piece) else 0)) % 2 == 1
                put(piece)
                escaped = odd
                if quote < 0:
                    break
                if odd:
                    put(b'"')
                    escaped = False
                else:
                    close()
                    out.append(0x22)
                    in_string = False
            else:
                last = 0
                for nul in _NULS.finditer(piece):
                    out.extend(piece[last : nul.start() + 64])
                    last = nul.end()
                    cuts.append((len(out), nul.end() - nul.start() - 64))
                out.extend(piece[last:])
                if quote < 0:
                    break
                out.append(0x22)
                in_string, escaped = True, False
                head_start, head_end = len(out), len(out) + KEEP_HEAD
            pos = quote + 1
        at += len(chunk)
    close()
    if len(out) > STRUCTURE_LIMIT or 240 * out.count(b"{") + 90 * out.count(b"[") + 60 * out.count(b",") > VALUES_LIMIT:
        while at < end and not complete:
            chunk = read(at, min(CHUNK, end - at))
            if not chunk:
                break
            stop = chunk.find(b"\n")
            complete = stop >= 0
            at += stop if complete else len(chunk)
        return Line(offset, number, b"!", complete, at - offset, ((1, at - offset - 1),))
    return Line(offset, number, bytes(out), complete, at - offset, tuple(cuts))


def _whole_characters(out: bytearray, start: int) -> int:
    """The length of `out` without a letter or an escape left unfinished at its end, in the string begun at `start`."""
    end = len(out)
    lead = end - 1
    while lead > max(start, end - 4) and out[lead] & 0xC0 == 0x80:
        lead -= 1
    if lead >= start and out[lead] >= 0xC0 and end - lead < (2 if out[lead] < 0xE0 else 3 if out[lead] < 0xF0 else 4):
        return lead
    escape = _OPEN_ESCAPE.search(out, max(start, end - 11), end)
    if escape is not None:
        run = escape.start() + 1 - len(out[start : escape.start() + 1].rstrip(b"\\")) - start
        if run % 2:
            return escape.start()
    return end


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a file: what it is and where; `uuid` as written, for a record that has one."""

    kind: Kind
    line: int
    offset: int
    length: int
    uuid: str | None = None


def spans(read: Read, end: int) -> Iterator[Span]:
    """Every byte of a file of `end` bytes, in order, each in exactly one span (newlines are separators)."""
    for line in lines(read, 0, 1, end):
        for kind, first, last, obj in segments(line.data, line.complete) if line.data else ():
            start = line.place(first)
            stop = line.place(last) if last < len(line.data) else line.offset + line.length
            yield Span(kind, line.number, start, stop - start, obj["uuid"] if kind == "record" else None)
        if line.complete:
            yield Span("separator", line.number, line.offset + line.length, 1)
