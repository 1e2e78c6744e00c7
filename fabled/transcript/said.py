"""Says what the client takes up of one line of a transcript: the record as a link of the chain, and its blocks.

Which records make up a request, and in which order, is left to `sent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .record import segments, strict_dumps, strict_loads

IMAGE_CHARS = 6_000
"""What an image counts in characters: about 1,500 tokens, the most that one costs."""
UNSENT = frozenset(("prompt_snapshot", "session_context"))
"""Attachments that no request holds."""
DIGEST_BYTES = 16
THOUGHTS = frozenset(("thinking", "redacted_thinking"))
CHAIN = frozenset(("user", "assistant", "system", "attachment"))
"""Types that the chain of a conversation is made of."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a message. `digest` is of its value, `uuid` of the record it stands in."""

    role: str
    kind: str
    tool_id: str | None
    digest: bytes
    chars: int
    uuid: str


@dataclass(slots=True)
class Said:
    """A record as the client takes it up when it loads a transcript."""

    uuid: str
    parent: object
    """None where the chain ends here; a text, or anything else that no record has as its uuid"""
    type: str
    sidechain: bool
    at: str
    message: str | None
    blocks: tuple[Block, ...]
    kept: tuple[str, ...] | None = None
    """what a compaction keeps by uuid, in order; None where it names none"""
    segment: tuple[str, str] | None = None
    """or its first and last one"""
    anchor: object = None
    """after which record the kept ones are put"""
    boundary: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The leaf that a `last-prompt` record names."""

    leaf: str


def first_object(line: bytes) -> dict[str, Any] | None:
    """The object of a line that the client reads: the first one, None where anything else stands before it."""
    try:
        value = strict_loads(line)
    except ValueError:
        text = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
        if not text.startswith(b"{"):
            return None
        kind, _, _, value = segments(text, True)[0]
        return value if kind in ("record", "no_uuid") else None
    return value if type(value) is dict else None


def heard(obj: dict[str, Any] | None) -> Said | Chosen | None:
    """What the client makes of one object; None for what has no part in the conversation."""
    if obj is None:
        return None
    kind = obj.get("type")
    if kind == "last-prompt":
        leaf = obj.get("leafUuid")
        return Chosen(leaf) if type(leaf) is str and leaf else None
    uuid = obj.get("uuid")
    if type(uuid) is not str or not uuid or (kind not in CHAIN and kind != "progress"):
        return None
    parent = obj.get("parentUuid") or None
    at = obj.get("timestamp")
    said = Said(uuid, parent, kind, bool(obj.get("isSidechain")), at if type(at) is str else "", None, ())
    if kind == "user" or kind == "assistant":
        message = obj.get("message")
        if type(message) is dict:
            name = message.get("id")
            said.message = name if kind == "assistant" and type(name) is str else None
            # The client shows its own words about a failed request, but does not send them.
            if not (message.get("model") == "<synthetic>" and obj.get("isApiErrorMessage") is True):
                said.blocks = blocks(kind, message.get("content"), uuid)
    elif kind == "system":
        _system(said, obj)
    elif kind == "attachment":
        _attachment(said, obj)
    return said


def blocks(role: str, content: object, uuid: str = "") -> tuple[Block, ...]:
    """The blocks of message content, whether a transcript or a request holds it."""
    if type(content) is str:
        return (_text(role, content, uuid),)
    if type(content) is not list:
        return ()
    return tuple(_block(role, block, uuid) for block in content if type(block) is dict)


def digest(value: object) -> bytes:
    """Tells values apart as JSON does, order of keys included."""
    if type(value) is str:
        return sha256(value.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]
    try:
        data = strict_dumps(value)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits
        data = repr(value).encode("utf-8", "surrogatepass")
    return sha256(data).digest()[:DIGEST_BYTES]


def _text(role: str, text: str, uuid: str) -> Block:
    blank = not text or text.isspace()
    return Block(role, "text", None, digest(text), 0 if blank else len(text), uuid)


def _block(role: str, block: dict[str, Any], uuid: str) -> Block:
    kind = block.get("type")
    kind = kind if type(kind) is str else ""
    if kind == "text":
        text = block.get("text")
        return _text(role, text if type(text) is str else "", uuid)
    if kind == "tool_use":
        inner: object = (block.get("name"), block.get("input"))
        return Block(role, kind, _name(block.get("id")), digest(inner), _weight(inner), uuid)
    if kind == "tool_result":
        inner = block.get("content")
        check = digest((inner, block.get("is_error") is True))
        return Block(role, kind, _name(block.get("tool_use_id")), check, _weight(inner), uuid)
    if kind in THOUGHTS:
        inner = (block.get("thinking"), block.get("data"), block.get("signature"))
        return Block(role, kind, None, digest(inner), sum(len(text) for text in inner if type(text) is str), uuid)
    name = block.get("id") if kind == "server_tool_use" else block.get("tool_use_id")
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    return Block(role, kind, _name(name), digest(plain), _weight([block]), uuid)


def _name(value: object) -> str | None:
    return value if type(value) is str else None


def _weight(value: object) -> int:
    """The characters a value counts, an image a fixed amount."""
    if type(value) is str:
        return len(value)
    if type(value) is list:
        return sum(
            IMAGE_CHARS
            if type(one) is dict and one.get("type") == "image"
            else _weight(one["text"] if type(one) is dict and type(one.get("text")) is str else one)
            for one in value
        )
    return len(repr(value))


def _system(said: Said, obj: dict[str, Any]) -> None:
    subtype = obj.get("subtype")
    if subtype == "local_command":
        text = obj.get("content")
        said.blocks = (_text("user", text if type(text) is str else "", said.uuid),)
    elif subtype == "compact_boundary":
        said.boundary = True
        meta = obj.get("compactMetadata")
        meta = meta if type(meta) is dict else {}
        messages, segment = meta.get("preservedMessages"), meta.get("preservedSegment")
        if type(messages) is dict and type(messages.get("uuids")) is list:
            said.kept = tuple(str(name) for name in messages["uuids"])
            said.anchor = messages.get("anchorUuid")
        elif type(segment) is dict:
            head, tail = segment.get("headUuid"), segment.get("tailUuid")
            if type(head) is str and type(tail) is str:
                said.segment = (head, tail)
                said.anchor = segment.get("anchorUuid")


def _attachment(said: Said, obj: dict[str, Any]) -> None:
    body = obj.get("attachment")
    if type(body) is not dict:
        return
    kind = body.get("type")
    if kind in UNSENT or (kind == "hook_success" and not body.get("content")):
        return
    shown = obj.get("rendered")
    if kind == "hook_success":  # what the hook printed is only shown
        body = {key: value for key, value in body.items() if key not in ("stdout", "stderr")}
    said.blocks = (
        Block("system", f"attachment/{kind}", None, digest((body, shown)), _weight(shown or repr(body)), said.uuid),
    )
