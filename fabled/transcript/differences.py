"""Says how an edited record differs from its original, and whether a rule of pruning may make that difference (I9).

The records are parsed a second time here, so that the order of keys, doubled keys and the spelling of numbers count.
Which records may be edited at all, and where the windows lie, is left to `proof`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

Path = tuple[str | int, ...]
Kind = Literal["value", "removed", "items", "other"]


class Number(str):
    """A number as it is spelt."""

    __slots__ = ()


class Object(list[tuple[str, Any]]):
    """An object as its members in order."""

    __slots__ = ()

    def get(self, key: str) -> Any:
        return next((value for name, value in self if name == key), None)


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a record differs: a value, a member removed, items of a list removed, or anything else."""

    path: Path
    kind: Kind
    before: Any = None
    after: Any = None


def exact(line: bytes) -> Any:
    """The value of a line with all that orjson forgets. Raises ValueError."""
    return json.loads(line.decode("utf-8"), object_pairs_hook=Object, parse_int=Number, parse_float=Number)


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[Difference]:
    """Every place where two values differ, outermost first."""
    if type(before) is not type(after):
        yield Difference(path, "value", before, after)
    elif type(before) is Object:
        yield from _members(before, after, path)
    elif type(before) is list:
        if len(before) == len(after):
            for at, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from differences(one, other, (*path, at))
            return
        kept = iter(before)
        if all(any(one == other for one in kept) for other in after):
            yield Difference(path, "items", before, after)
        else:
            yield Difference(path, "other")
    elif before != after:
        yield Difference(path, "value", before, after)


def _members(before: Object, after: Object, path: Path) -> Iterator[Difference]:
    if (before and not after) or before.get("type") == "image" != after.get("type"):
        yield Difference(path, "value", before, after)
        return
    at = 0
    for key, value in before:
        if at < len(after) and after[at][0] == key:
            if value is not after[at][1]:
                yield from differences(value, after[at][1], (*path, key))
            at += 1
        else:
            yield Difference((*path, key), "removed", value)
    if at < len(after):
        yield Difference((*path, after[at][0]), "other")


# ── which rule may make which difference ────────────────────────────────────────────────────────────────────────

MARKER = re.compile(r"\[fabled block ([^\s#\[\]]+)#([^\s#\[\]]+) (\d+)B sha256:([0-9a-f]{12})\]")
TELLING = frozenset("agentId taskId task_id backgroundTaskId shellId status outputFile isAsync teammate_id".split())
"""A toolUseResult with one of these means something to the client."""
FIGURES = frozenset(
    "input_tokens cache_creation_input_tokens cache_read_input_tokens ephemeral_5m_input_tokens "
    "ephemeral_1h_input_tokens".split()
)
THOUGHTS = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Stub:
    """A marker that stands where a block was: what it says, and the path where it stands."""

    uuid: str
    path: str
    bytes: int
    sha12: str
    at: Path


def allowed(diff: Difference, rules: frozenset[str], record: Object, uuid: str) -> str | None:
    """Why the rules listed for this path may not make this difference; None where one of them may."""
    path, name = diff.path, ".".join(map(str, diff.path))
    if path == ("parentUuid",):
        fine = rules & {"G1", "G4", "G5", "S3", "A1"} and type(diff.before) is str and type(diff.after) is str
        return None if fine and diff.after else f"{name} was changed"
    if path == ("toolUseResult",) and diff.kind == "removed":
        return None if "G2" in rules and record.get("type") == "user" and _mute(diff.before) else f"{name} was removed"
    if path == ("data",) and diff.kind == "value":
        fine = "G1" in rules and record.get("type") == "progress" and diff.after == Object()
        return None if fine else f"{name} was changed"
    if diff.kind == "items":
        return _thoughts(diff, rules, record)
    if diff.kind != "value":
        return f"{name} is gone or new"
    if path[:2] == ("message", "usage"):
        return _usage(diff, rules)
    if type(diff.before) is Object:
        return _image(diff, rules, uuid)
    if type(diff.before) is str and type(diff.after) is str:
        return _text(diff, rules, record, uuid)
    return f"{name} was changed"


def _mute(value: Any) -> bool:
    """Whether a toolUseResult says nothing to the client (G2)."""
    inner = [value, *(one for _, one in value)] if type(value) is Object else [value]
    return not any(type(one) is Object and any(key in TELLING for key, _ in one) for one in inner)


def mute(value: Any) -> bool:
    """The same of a value as orjson reads it."""
    inner = [value, *value.values()] if type(value) is dict else [value]
    return not any(type(one) is dict and not TELLING.isdisjoint(one) for one in inner)


def _thoughts(diff: Difference, rules: frozenset[str], record: Object) -> str | None:
    if diff.path != ("message", "content") or "A1" not in rules or record.get("type") != "assistant":
        return f"items of {'.'.join(map(str, diff.path))} are gone"
    left = list(diff.after)
    for block in diff.before:
        if left and left[0] == block:
            left.pop(0)
        elif type(block) is not Object or block.get("type") not in THOUGHTS:
            return "a block that is no thinking is gone"
    return None if diff.after else "the content became empty"


def _usage(diff: Difference, rules: frozenset[str]) -> str | None:
    before, after = diff.before, diff.after
    fine = "U1" in rules and diff.path[-1] in FIGURES and type(before) is Number and type(after) is Number
    return None if fine and before.isdigit() and after.isdigit() and int(after) <= int(before) else "usage was changed"


def stub_in(text: str, uuid: str, path: Path) -> Stub | None:
    """The marker in a text that names this record and place."""
    name = ".".join(map(str, path))
    for found in MARKER.finditer(text):
        if found[1] == uuid and found[2] == name:
            return Stub(found[1], found[2], int(found[3]), found[4], path)
    return None


def _image(diff: Difference, rules: frozenset[str], uuid: str) -> str | None:
    block, name = diff.after, ".".join(map(str, diff.path))
    if "S1" not in rules or diff.before.get("type") != "image" or diff.path[:2] != ("message", "content"):
        return f"{name} was changed"
    if type(block) is not Object or [key for key, _ in block] != ["type", "text"] or block.get("type") != "text":
        return f"{name} did not become a text block"
    return None if stub_in(str(block.get("text")), uuid, diff.path) else f"{name} names no block of the Vault"


def _text(diff: Difference, rules: frozenset[str], record: Object, uuid: str) -> str | None:
    path, before, after = diff.path, diff.before, diff.after
    name = ".".join(map(str, path))
    if "S4" in rules and _may_cite(record, path):
        before = cited(before)
        if before == after:
            return None
    if not (rules & {"S2", "A2"}):
        return f"{name} was changed"
    if "S2" in rules and not _result_text(record, path):
        return f"{name} is no text of a tool result that may be cut"
    if "A2" in rules and "S2" not in rules and path[:1] != ("rendered",):
        return f"{name} is no rendered attachment"
    stub = stub_in(after, uuid, path)
    if stub is None:
        return f"{name} was cut without naming its block"
    mark = f"[fabled block {stub.uuid}#{stub.path} {stub.bytes}B sha256:{stub.sha12}]"
    head, _, tail = after.partition(mark)
    fine = before.startswith(head.removesuffix("\n")) and before.endswith(tail.removeprefix("\n"))
    return None if fine else f"{name} holds words that the original does not"


def _may_cite(record: Object, path: Path) -> bool:
    """Where recalled passages may stand: in content and attachments, never in a call's input or in thinking."""
    if path[:1] in (("attachment",), ("rendered",), ("content",)):
        return True
    if path[:2] != ("message", "content"):
        return False
    if len(path) == 2:
        return True
    block = _at(record, path[:3])
    kind = block.get("type") if type(block) is Object else None
    return (kind == "text" and path[3:] == ("text",)) or (kind == "tool_result" and path[3:4] == ("content",))


def _result_text(record: Object, path: Path) -> bool:
    block = _at(record, path[:3])
    if path[:2] != ("message", "content") or path[3:4] != ("content",) or type(block) is not Object:
        return False
    return block.get("type") == "tool_result" and block.get("is_error") is not True


def _at(value: Any, path: Path) -> Any:
    for step in path:
        if type(value) is Object:
            value = value.get(str(step))
        elif type(value) is list and type(step) is int and step < len(value):
            value = value[step]
        else:
            return None
    return value


_RECALL = re.compile(r"<historical_context\s[^<>]{0,100000}>|</\s*historical_context\s*>", re.IGNORECASE)
_ARCS = re.compile(r"""\barcs\s*=\s*(\\{0,6})(["'])([^"'\\<>]{0,20000})\\{0,6}\2""", re.IGNORECASE)


def cited(text: str) -> str:
    """The text as S4 may leave it: each complete recalled span that names its arcs is a reference to them."""
    kept: list[str] = []
    at = start = depth = 0
    for tag in _RECALL.finditer(text):
        if not tag[0].startswith("</"):
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            found = [] if depth else list(_ARCS.finditer(text, start, tag.end()))
            if not found or ">" in text[start : found[0].start()]:
                continue
            refs = dict.fromkeys(ref for one in found for ref in re.split(r"[,\s]+", one[3]) if ref)
            quote = found[0][1] + found[0][2]
            kept += (text[at:start], f"<consulted_arcs refs={quote}{','.join(refs)}{quote}/>")
            at = tag.end()
    return "".join((*kept, text[at:]))


def block_bytes(line: bytes, path: Path) -> bytes | None:
    """The bytes of a value as they stand in a line."""
    text = line.decode("utf-8")
    scan = json.JSONDecoder(strict=False).raw_decode
    at = _blank(text, 0)
    for step in path:
        if text[at : at + 1] == "{" and type(step) is str:
            at = _member(text, at, step, scan)
        elif text[at : at + 1] == "[" and type(step) is int:
            at = _item(text, at, step, scan)
        else:
            return None
        if at < 0:
            return None
    return text[at : scan(text, at)[1]].encode()


_BLANKS = re.compile(r"[ \t\r\n]*")


def _blank(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _member(text: str, at: int, key: str, scan: Any) -> int:
    at = _blank(text, at + 1)
    while text[at] != "}":
        name, at = scan(text, at)
        at = _blank(text, _blank(text, at) + 1)
        if name == key:
            return at
        at = _blank(text, scan(text, at)[1])
        if text[at] == ",":
            at = _blank(text, at + 1)
    return -1


def _item(text: str, at: int, index: int, scan: Any) -> int:
    at = _blank(text, at + 1)
    while text[at] != "]":
        if index == 0:
            return at
        index -= 1
        at = _blank(text, scan(text, at)[1])
        if text[at] == ",":
            at = _blank(text, at + 1)
    return -1


def fits(line: bytes, stub: Stub) -> bool:
    """Whether a marker names the very bytes that stood at its place in the original line."""
    block = block_bytes(line, stub.at)
    return block is not None and len(block) == stub.bytes and sha256(block).hexdigest().startswith(stub.sha12)
