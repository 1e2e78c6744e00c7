"""Surveys a transcript for pruning: one pass over its lines that keeps a few facts of each and forgets its text.

What follows from the facts is left to `rules`. A line that is not exactly one strict UTF-8 object with its line feed is
opaque: nothing in it is ever changed, and every record it names is held in place.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import splice, stub
from .record import HUGE_LINE, VALUES_LIMIT, compact, strict_loads, uuid_bytes

SIDE, FIRM, MOVABLE, TURN, PROMPT, SIDECAR, FIXED, THOUGHT, FULL = 1, 2, 4, 8, 16, 32, 64, 128, 256
"""Bits of `Fact.flags`: of a sidechain; with a uuid of uuid form; its parentUuid can be replaced; a main-chain user or
assistant record; a real prompt; a toolUseResult that may go (G2); never edited; holds nothing but thinking; a progress
record with data."""

MESSAGE, SYSTEM, ATTACHMENT, PROGRESS, OTHER = range(5)
"""Of `Fact.kind`: how the rules see a record's type."""
_KINDS = {"user": MESSAGE, "assistant": MESSAGE, "system": SYSTEM, "attachment": ATTACHMENT, "progress": PROGRESS}

SIDECAR_BYTES = 512
SIDECAR_KEYS = frozenset(
    "agentId taskId task_id backgroundTaskId shellId status outputFile isAsync teammate_id".split()
)
"""A toolUseResult with one of these starts notices or leads to a subagent (PRUNING 1.7), so it stays whole."""
ASKING_TOOLS = frozenset(("AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "exit_plan_mode"))
SHORTEST_CUT = 512
"""No text of up to so many characters is ever cut, so that a cut one is not cut again at the same limit."""
IMAGE_CHARS = 768
"""Smaller images would hardly be shorter as a marker."""
RENDERED_CHARS = 4096

_NAMED = re.compile(rb"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
_CALLS = re.compile(rb'"(?:id|tool_use_id)"[ \t]*:[ \t]*"([^"\\]{1,200})"')
_EMPTY: tuple[Any, ...] = ()
_OPEN_SNAPSHOTS = 8
"""Later snapshots are compared with so many earlier ones of their message: linear, whatever the file holds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that a content rule may take away once its record lies outside the content window."""

    rule: str
    path: tuple[str | int, ...]
    size: int = 0
    call: str = ""
    """the tool_use id of a result"""


class Fact:
    """What the rules must know of one record with a uuid."""

    __slots__ = (
        "candidates", "flags", "kind", "line", "message", "parent", "subtype", "tools", "type", "uuid", "written",
    )  # fmt: skip

    def __init__(self, line: int, uuid: str, parent: str | None, type: str, kind: int) -> None:
        self.line = line
        self.uuid = uuid
        self.parent = parent
        self.type = type
        self.kind = kind
        self.flags = 0
        self.subtype: str | None = None
        self.tools: tuple[str, ...] = _EMPTY
        self.candidates: tuple[Candidate, ...] = _EMPTY
        self.message: str | None = None
        """the API message of which it is a part; the client puts the parts together, wherever they stand"""
        self.written: str | None = None
        """its timestamp as it stands; only for what the client takes for a link of the main chain"""


@dataclass(slots=True)
class Survey:
    """The facts of a whole transcript."""

    offsets: array[int] = field(default_factory=lambda: array("Q", [0]))
    """where each line begins; one more than there are lines"""
    facts: list[Fact] = field(default_factory=list)
    """in file order"""
    where: dict[str, int] = field(default_factory=dict)
    """uuid → position in `facts` of the first record that has it"""
    repeats: list[tuple[int, bool]] = field(default_factory=list)
    """positions in `facts` of later lines with a known uuid, and whether each is the first one's bytes"""
    snapshots: list[int] = field(default_factory=list)
    """lines of snapshots that a later one of the same message contains"""
    named: set[str] = field(default_factory=set)
    """every uuid that stands in an opaque line, and the leaves that metadata name"""
    opaque_calls: set[str] = field(default_factory=set)
    leaves: dict[str, str] = field(default_factory=dict)
    """record type → its newest leafUuid"""
    boundary: int | None = None
    """position in `facts` of the last main-chain compact_boundary"""
    naming: int | None = None
    """and of the last one that preserves something; as long as it is there, the client forgets all before `boundary`"""
    preserved: tuple[str, ...] = ()
    """every uuid the last boundary names"""
    listed: tuple[str, ...] | None = None
    """those of them that it lists as kept by reference"""
    segment: tuple[str, str] | None = None
    """head and tail of the segment that the last boundary preserves"""
    asking: set[str] = field(default_factory=set)
    """ids of calls whose results are answers of the user"""
    compacted: set[str] = field(default_factory=set)
    """ids of results that a microcompaction has dealt with"""
    usage: dict[int, str] = field(default_factory=dict)
    """position in `facts` → message id, of assistant records whose usage has input figures"""
    opaque: int = 0
    empty_texts: int = 0

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def length(self, line: int) -> int:
        return self.offsets[line + 1] - self.offsets[line]


def survey(lines: Iterable[bytes]) -> Survey:
    """The facts of a transcript, given its lines with their line feeds."""
    found = Survey()
    hashes: array[int] = array("q")  # of each fact's line: told apart by 64 bits, its length and its uuid
    snapshots: dict[tuple[str, str], list[tuple[int, frozenset[int]]]] = {}
    names: dict[str, str] = {}
    at = 0
    for number, raw in enumerate(lines):
        at += len(raw)
        found.offsets.append(at)
        obj = _object(raw)
        if obj is None:
            _opaque(found, raw)
            continue
        uuid = obj.get("uuid")
        if type(uuid) is str and uuid:
            _record(found, number, raw, obj, uuid, hashes, names)
        else:
            _metadata(found, number, obj, snapshots)
    return found


def _object(raw: bytes) -> dict[str, Any] | None:
    """The one object of a line, None where the line is anything else."""
    if raw[-1:] != b"\n" or raw[:1] != b"{":
        return None
    if len(raw) > HUGE_LINE and 240 * raw.count(b"{") + 90 * raw.count(b"[") + 60 * raw.count(b",") > VALUES_LIMIT:
        return None
    try:
        obj = strict_loads(raw)
    except ValueError:
        return None
    return obj if type(obj) is dict else None


def _opaque(found: Survey, raw: bytes) -> None:
    if not raw.strip():
        return
    found.opaque += 1
    found.named.update(name.decode() for name in _NAMED.findall(raw))
    found.opaque_calls.update(name.decode("utf-8", "replace") for name in _CALLS.findall(raw))


def _metadata(
    found: Survey,
    number: int,
    obj: dict[str, Any],
    snapshots: dict[tuple[str, str], list[tuple[int, frozenset[int]]]],
) -> None:
    """A record without a uuid: no rule removes it but G3."""
    kind = obj.get("type")
    leaf = obj.get("leafUuid")
    if type(leaf) is str and type(kind) is str:
        found.leaves[kind] = leaf
    if kind != "file-history-snapshot":
        return
    body = obj.get("snapshot")
    message = obj.get("messageId")
    entries = body.get("trackedFileBackups") if type(body) is dict else None
    if type(message) is not str or type(entries) is not dict or type(body.get("messageId")) is not str:  # type: ignore[union-attr]
        return
    have = frozenset(hash((path, compact(entry))) for path, entry in entries.items())
    earlier = snapshots.setdefault((message, body["messageId"]), [])  # type: ignore[index]
    found.snapshots += [line for line, had in earlier if had <= have]
    earlier[:] = [*((line, had) for line, had in earlier if not had <= have), (number, have)][-_OPEN_SNAPSHOTS:]


def _record(
    found: Survey,
    number: int,
    raw: bytes,
    obj: dict[str, Any],
    uuid: str,
    hashes: array[int],
    names: dict[str, str],
) -> None:
    get = obj.get
    parent = get("parentUuid")
    named = get("type")
    type_ = named if type(named) is str else ""
    position = len(found.facts)
    fact = Fact(
        number,
        uuid,
        names.get(parent, parent) if type(parent) is str else None,
        names.setdefault(type_, type_),
        _KINDS.get(type_, OTHER),
    )
    found.facts.append(fact)
    hashes.append(hash(raw))
    first = found.where.setdefault(uuid, position)
    if first == position:
        names[uuid] = uuid
    else:
        line = found.facts[first].line
        same = hashes[first] == hashes[position] and found.length(line) == len(raw)
        found.repeats.append((position, same))
    if get("isSidechain") is True:
        fact.flags |= SIDE
    elif fact.kind not in (PROGRESS, OTHER):
        written = get("timestamp")
        fact.written = written if type(written) is str else None
    if uuid_bytes(uuid) is not None:
        fact.flags |= FIRM
        if type(parent) is str and raw.count(b'"parentUuid"') == 1 and _parent_at(raw, parent):
            fact.flags |= MOVABLE
    leaf = get("leafUuid")
    if type(leaf) is str:
        found.leaves[type_] = leaf
    if fact.kind == MESSAGE:
        _message(found, position, fact, obj, raw)
    elif fact.kind == PROGRESS:
        if get("data"):
            fact.flags |= FULL
    elif fact.kind == ATTACHMENT:
        body = get("attachment")
        if type(body) is dict:
            subtype = body.get("type")
            fact.subtype = subtype if type(subtype) is str else None
            _attachment(fact, body, get("rendered"), raw)
    elif fact.kind == SYSTEM:
        _system(found, position, fact, obj, raw)


def _parent_at(raw: bytes, parent: str) -> bool:
    """Whether the one "parentUuid" of a line is followed by this value, plainly spelt."""
    at = raw.find(b'"parentUuid"') + 12
    return raw[at : at + len(parent) + 24].lstrip(b": \t").startswith(b'"' + parent.encode() + b'"')


def _recalled(raw: bytes) -> bool:
    return b"historical_context" in raw or b"HISTORICAL_CONTEXT" in raw


def _system(found: Survey, position: int, fact: Fact, obj: dict[str, Any], raw: bytes) -> None:
    subtype = obj.get("subtype")
    fact.subtype = subtype if type(subtype) is str else None
    if subtype == "compact_boundary":
        fact.flags |= FIXED
        position = found.where[fact.uuid]  # a copy takes the first one's place
        if fact.flags & SIDE or (found.boundary is not None and position < found.boundary):
            return
        found.boundary = position
        meta = obj.get("compactMetadata")
        meta = meta if type(meta) is dict else {}
        segment, messages = meta.get("preservedSegment"), meta.get("preservedMessages")
        kept: list[Any] = []
        found.segment = None
        if type(segment) is dict:
            head, tail = segment.get("headUuid"), segment.get("tailUuid")
            kept += (head, tail, segment.get("anchorUuid"))
            if type(head) is str and type(tail) is str:
                found.segment = (head, tail)
        found.listed = None
        if type(messages) is dict:
            if type(messages.get("uuids")) is list:
                found.listed = tuple(name for name in messages["uuids"] if type(name) is str)
            for name in ("uuids", "allUuids"):
                if type(messages.get(name)) is list:
                    kept += messages[name]
        if type(segment) is dict or type(messages) is dict:
            found.naming = position
        found.preserved = tuple(dict.fromkeys(name for name in kept if type(name) is str))
    elif subtype == "microcompact_boundary":
        meta = obj.get("microcompactMetadata")
        ids = meta.get("compactedToolIds") if type(meta) is dict else None
        if type(ids) is list:
            found.compacted.update(name for name in ids if type(name) is str)
    elif _recalled(raw):
        _recall(fact, [(("content",), obj.get("content"))])


def _message(found: Survey, position: int, fact: Fact, obj: dict[str, Any], raw: bytes) -> None:
    """A user or assistant record."""
    message = obj.get("message")
    content = message.get("content") if type(message) is dict else None
    user = fact.type == "user"
    result = False
    if not user and type(message) is dict and type(message.get("id")) is str:
        fact.message = message["id"]
    if type(content) is list:
        result = _blocks(found, fact, content)
    if obj.get("isCompactSummary") is True:
        fact.flags |= FIXED
    if not fact.flags & SIDE and fact.flags & FIRM:
        fact.flags |= TURN
        if user and not result and obj.get("isMeta") is not True and not fact.flags & FIXED:
            fact.flags |= PROMPT
    if user:
        if "toolUseResult" in obj and raw.count(b'"toolUseResult"') == 1 and _sidecar_may_go(obj["toolUseResult"]):
            fact.flags |= SIDECAR
    elif type(message) is dict and not fact.flags & SIDE:
        usage, name = message.get("usage"), message.get("id")
        if type(usage) is dict and type(name) is str and message.get("model") != "<synthetic>":
            figures = [usage.get(key) for key in INPUT_FIGURES[:3]]
            if any(type(figure) is int and figure > 0 for figure in figures):
                found.usage[position] = name
    if _recalled(raw) and not fact.flags & FIXED:
        _recall(fact, _said(content))


INPUT_FIGURES = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)
"""What U1 may lower, in `usage` and in the objects inside it."""


def _sidecar_may_go(value: Any) -> bool:
    """Whether a toolUseResult is big enough and leads nowhere."""
    if type(value) is dict:
        if not SIDECAR_KEYS.isdisjoint(value):
            return False
        big = False
        for inner in value.values():
            if type(inner) is str:
                big = big or len(inner) > SIDECAR_BYTES
            elif type(inner) is dict and not SIDECAR_KEYS.isdisjoint(inner):
                return False
        return big or len(compact(value)) > SIDECAR_BYTES
    return len(compact(value)) > SIDECAR_BYTES


def _blocks(found: Survey, fact: Fact, content: list[Any]) -> bool:
    """Reads message content; says whether it holds a tool result."""
    tools: list[str] = []
    candidates: list[Candidate] = []
    thoughts: list[int] = []
    worth = result = False
    for at, block in enumerate(content):
        if type(block) is not dict:
            worth = worth or bool(block)
            continue
        kind = block.get("type")
        if kind == "text":
            said = block.get("text")
            if type(said) is str and said.strip():
                worth = True
            else:
                found.empty_texts += 1
        elif kind == "tool_use":
            worth = True
            call = block.get("id")
            if type(call) is str:
                tools.append(call)
                if block.get("name") in ASKING_TOOLS:
                    found.asking.add(call)
        elif kind == "tool_result":
            result = worth = True
            call = block.get("tool_use_id")
            call = call if type(call) is str else ""
            if call:
                tools.append(call)
            _result(candidates, ("message", "content", at, "content"), block, call)
        elif kind == "image":
            worth = True
            _image(candidates, ("message", "content", at), block)
        elif kind == "thinking" or kind == "redacted_thinking":
            thoughts.append(at)
        else:
            worth = True
            for key in ("id", "tool_use_id"):
                if type(block.get(key)) is str:
                    tools.append(block[key])
    if thoughts and fact.type == "assistant":
        if len(thoughts) == len(content):
            fact.flags |= THOUGHT
        elif worth:
            candidates += [Candidate("A1", ("message", "content", at)) for at in thoughts]
    if tools:
        fact.tools = tuple(dict.fromkeys(tools))
    if candidates:
        fact.candidates = tuple(candidates)
    return result


def _result(candidates: list[Candidate], path: tuple[str | int, ...], block: dict[str, Any], call: str) -> None:
    """A tool result: its texts for S2, its images for S1."""
    content = block.get("content")
    error = block.get("is_error") is True
    if type(content) is str:
        if len(content) > SHORTEST_CUT and not error:
            candidates.append(Candidate("S2", path, len(content), call))
    elif type(content) is list:
        for at, inner in enumerate(content):
            if type(inner) is not dict:
                continue
            kind = inner.get("type")
            if kind == "text":
                said = inner.get("text")
                if type(said) is str and len(said) > SHORTEST_CUT and not error:
                    candidates.append(Candidate("S2", (*path, at, "text"), len(said), call))
            elif kind == "image":
                _image(candidates, (*path, at), inner)


def _image(candidates: list[Candidate], path: tuple[str | int, ...], block: dict[str, Any]) -> None:
    source = block.get("source")
    data = source.get("data") if type(source) is dict else None
    if type(data) is str and len(data) >= IMAGE_CHARS:
        candidates.append(Candidate("S1", path, len(data)))


def _attachment(fact: Fact, body: dict[str, Any], rendered: Any, raw: bytes) -> None:
    shown = [(("rendered", at, "content"), one.get("content")) for at, one in _dicts(rendered)]
    fact.candidates += tuple(
        Candidate("A2", path, len(said)) for path, said in shown if type(said) is str and len(said) > RENDERED_CHARS
    )
    if _recalled(raw):
        texts: list[tuple[tuple[str | int, ...], Any]] = [(("attachment", "stdout"), body.get("stdout")), *shown]
        content = body.get("content")
        if type(content) is list:
            texts += [(("attachment", "content", at), one) for at, one in enumerate(content)]
        else:
            texts.append((("attachment", "content"), content))
        _recall(fact, texts)


def _dicts(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((at, one) for at, one in enumerate(value if type(value) is list else ()) if type(one) is dict)


def _said(content: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """(path, text) of everything in message content that a recall may stand in."""
    if type(content) is str:
        return [(("message", "content"), content)]
    found: list[tuple[tuple[str | int, ...], Any]] = []
    for at, block in _dicts(content):
        path: tuple[str | int, ...] = ("message", "content", at)
        if block.get("type") == "text":
            found.append(((*path, "text"), block.get("text")))
        elif block.get("type") == "tool_result":
            inner = block.get("content")
            if type(inner) is str:
                found.append(((*path, "content"), inner))
            found += [((*path, "content", n, "text"), one.get("text")) for n, one in _dicts(inner)]
    return found


def _recall(fact: Fact, texts: list[tuple[tuple[str | int, ...], Any]]) -> None:
    """Adds an S4 candidate for each text that holds a complete recalled span; its size is the text's afterwards."""
    for path, said in texts:
        if type(said) is str:
            after = stub.consulted(said)
            if len(splice.text(after)) < len(splice.text(said)):
                fact.candidates += (Candidate("S4", path, len(after)),)
