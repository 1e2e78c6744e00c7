"""Says what of a record is worth searching and what it links to, and takes recalled passages out of the text.

Which thread a record belongs to is left to `threads`, how a turn is shown to a reader to `render`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from .record import uuid_bytes

OTHER, PROMPT, REPLY, THINKING, CALL, RESULT, QUEUED, SUMMARY, COMMAND, NOTICE = range(10)
"""What a record is to a reader; stored as `records.kind`."""

SIDECHAIN, REDUCED, FORKED, STARTS = 1, 2, 4, 8
"""Bits of `records.flags`."""

TEXT_LIMIT = 65_536
"""Searchable characters of one record."""
RESULT_HEAD = 300
"""Searchable characters of one tool result: its head."""
INPUT_HEAD = 2_000
"""Searchable characters of one tool call's input."""
TITLE_LIMIT = 400

TITLE_KINDS = {"custom-title": (1, "customTitle"), "ai-title": (2, "aiTitle"), "summary": (3, "summary")}
_COMMAND = (
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
)
_CAVEAT = ("Caveat:", "<local-command-caveat>")
_NOTICE = ("[Request interrupted", "<ide_opened_file>", "<ide_selection>")
_IDE = re.compile(r"<(ide_opened_file|ide_selection)>.*?</\1>", re.DOTALL)
_NOTIFICATION = "<task-notification>"
_FILE_KEYS = ("file_path", "notebook_path", "path")
_CLASSES = bytes(
    0x61 if 0x61 <= c <= 0x7A else 0x30 if 0x30 <= c <= 0x39 else 0x41 if 0x41 <= c <= 0x5A else 0x20
    for c in range(256)
)
"""Every small letter as `a`, digit as `0`, capital as `A`, anything else as a blank."""
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTIFIED = re.compile(r"<(?:tool-use-id|task-id)>\s*([^<\s]{1,200})\s*</")

# A sentinel has attributes: a text that only names the tag is talk about it (case A26).
_TAG = re.compile(r"<historical_context\s[^<>]{0,100000}>|</\s*historical_context\s*>", re.IGNORECASE)
_OPENING = re.compile(r"<historical_context\s", re.IGNORECASE)
_ESCAPED_OPENING = re.compile(r"&lt;historical_context\s", re.IGNORECASE)
_ESCAPED_CLOSING = re.compile(r"&lt;/\s*historical_context\s*&gt;", re.IGNORECASE)
# Only in a tag: what a passage quotes may say `arcs="…"` too.
_ARCS = re.compile(
    r"""<historical_context\s[^<>]{0,100000}?\barcs\s*=\s*\\{0,6}["']([^"'\\<>]{0,20000})\\{0,6}["']""", re.IGNORECASE
)


class Facts:
    """What one record says, for the Map. Defaults live in the class: one is made for every record read."""

    uuid: bytes | None = None
    alias: bytes | None = None
    """8 bytes standing for an odd uuid (`request_…` of some desktop versions): no id, but children name it"""
    session: str | None = None
    type = ""
    kind = OTHER
    ts: int | None = None
    """milliseconds since 1970, UTC"""
    parent: bytes | None = None
    prompt: str | None = None
    source: bytes | None = None
    """sourceToolAssistantUUID of a sidechain's root"""
    agent: str | None = None
    cwd: str | None = None
    forked_from: str | None = None
    sidechain = False
    starts = False
    """begins a thread where no promptId says otherwise"""
    calls: Sequence[str] = ()
    """tool_use ids"""
    answers: str | None = None
    """the tool_use id a result answers"""
    spawned: str | None = None
    """the agentId a result or a progress record names"""
    task_prompts: Sequence[str] = ()
    notified: Sequence[str] = ()
    """tool_use ids and task ids a task notification names"""
    tool: str | None = None
    files: Sequence[str] = ()
    text = ""
    thinking = ""
    parts = ""
    citations: Sequence[str] = ()
    title: tuple[int, str, bytes | None] | None = None
    """(kind, text, leaf uuid)"""
    said: int | None = None
    """hash of what a person typed"""
    tokens = 0


def key64(text: str) -> int:
    """A signed 64-bit key of a text, the same on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)


def odd(uuid: str) -> bytes:
    """Eight bytes that stand for a uuid without uuid form."""
    return blake2b(uuid.encode("utf-8", "surrogatepass"), digest_size=8, person=b"fabled-alias").digest()


def milliseconds(value: object) -> int | None:
    """An ISO 8601 timestamp as milliseconds since 1970, None where it is missing or odd."""
    if type(value) is not str:
        return None
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000 + 0.5)
    except (ValueError, OverflowError, OSError):
        return None


def clean(text: str) -> str:
    """The text with half surrogate pairs replaced by U+FFFD, so that it can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def estimate(text: str) -> int:
    """Tokens of a text, roughly: four ASCII characters or one CJK character a token (E08: within a factor of 2)."""
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    wide = min((len(text.encode("utf-8", "surrogatepass")) - size) // 2, size)  # a CJK character has three bytes
    return wide + (size - wide + 3) // 4


def strip_recalled(text: str) -> tuple[str, tuple[str, ...]]:
    """Takes recalled passages out of a text: (the text without them, what they cite).

    Nested ones end with their outermost; one without end takes the rest; behind the end, further closing tags
    without an opening one still belong to it (a quoted passage may hold a stray one).
    """
    refs: list[str] = []
    kept: list[str] = []
    pos = 0
    while True:
        opening = _OPENING.search(text, pos)
        if opening is None:
            kept.append(text[pos:])
            break
        kept.append(text[pos : opening.start()])
        depth, end = 0, -1
        for tag in _TAG.finditer(text, opening.start()):
            if tag.group()[1] == "/":
                depth -= 1
                if depth <= 0:
                    end = tag.end()
            elif depth <= 0 and end >= 0:
                break
            else:
                depth = max(depth, 0) + 1
        stop = end if end >= 0 else len(text)
        for found in _ARCS.finditer(text, opening.start(), stop):
            refs.extend(ref for ref in re.split(r"[,\s]+", found[1]) if ref)
        pos = stop
        if stop >= len(text):
            break
    return _without_escaped("".join(kept)), tuple(dict.fromkeys(refs))


def _without_escaped(text: str) -> str:
    """The text without passages whose tags came back escaped for HTML; those cite nothing."""
    pos, kept = 0, []
    while (opening := _ESCAPED_OPENING.search(text, pos)) and (closing := _ESCAPED_CLOSING.search(text, opening.end())):
        kept.append(text[pos : opening.start()])
        pos = closing.end()
    return "".join((*kept, text[pos:])) if kept else text


def _strings(value: Any) -> list[str]:
    """Every string inside a JSON value, in order (iterative: depth is the input's)."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is str:
            found.append(item)
        elif type(item) is dict:
            if item.get("type") == "base64":
                continue  # a picture or a document
            waiting.extend(reversed(item.values()))
        elif type(item) is list:
            waiting.extend(reversed(item))
    return found


LONGEST_KNOWN = 80
_split_words: dict[str, str] = {}
"""Identifiers repeat: what they were split into. Owned by the one OS thread that indexes."""


def forget_words() -> None:
    """Lets go of what identifiers were split into."""
    _split_words.clear()


def _humps(text: str) -> str:
    """The parts of the camelCase words of a text (unicode61 splits at `_`, `.`, `/`, `-` by itself).

    Looked for in a text of character classes: `find` is faster there than any pattern.
    """
    classes = text.encode("latin-1", "replace").translate(_CLASSES)
    find = classes.find
    words: dict[str, None] = {}
    for hump in (b"aA", b"0A", b"AAa"):
        at = find(hump)
        while at >= 0:
            start, end = classes.rfind(b" ", 0, at) + 1, find(b" ", at)
            if end < 0:
                end = len(classes)
            words[text[start:end]] = None
            at = find(hump, end)
    if not words:
        return ""
    known = _split_words
    if len(known) > 20_000:
        known.clear()
    out = []
    for word in words:
        parts = known.get(word)
        if parts is None:
            parts = _HUMP.sub(" ", word)
            if len(word) <= LONGEST_KNOWN:
                known[word] = parts
        out.append(parts)
    return "\n".join(out)


def _result_text(content: Any) -> str:
    if type(content) is str:
        return content
    if type(content) is dict:
        content = [content]
    if type(content) is not list:
        return ""
    out = []
    for block in content:
        if type(block) is str:
            out.append(block)
        elif type(block) is dict and type(block.get("text")) is str:
            out.append(block["text"])
    return "\n".join(out)


def _input_text(value: Any) -> str:
    """The strings of a tool call's input, keys left out, cut to its head."""
    if type(value) is dict:
        first = [item for item in value.values() if type(item) is str]
        if len(first) == len(value):
            return "\n".join(first)[:INPUT_HEAD]
    return "\n".join(_strings(value))[:INPUT_HEAD]


def _blocks(f: Facts, content: Any, texts: list[str], thoughts: list[str]) -> tuple[bool, bool, bool]:
    """Reads message content of any shape; (has a tool result, a tool call, a text)."""
    if type(content) is str:
        texts.append(content)
        f.tokens += estimate(content)
        return False, False, True
    if type(content) is dict:
        content = [content]
    has_result = has_call = has_text = False
    if type(content) is not list:
        return has_result, has_call, has_text
    for block in content:
        if type(block) is str:
            texts.append(block)
            f.tokens += estimate(block)
            has_text = True
            continue
        if type(block) is not dict:
            continue
        kind = block.get("type")
        if kind == "tool_result":
            has_result = True
            answers = block.get("tool_use_id")
            if type(answers) is str and f.answers is None:
                f.answers = answers
            body = _result_text(block.get("content"))
            f.tokens += estimate(body)
            texts.append(body)
        elif kind == "tool_use":
            has_call = True
            name, call = block.get("name"), block.get("id")
            arguments = block.get("input")
            name = name if type(name) is str else ""
            if type(call) is str:
                f.calls = [*f.calls, call]
            if f.tool is None:
                f.tool = name
            if type(arguments) is dict:
                for key in _FILE_KEYS:
                    path = arguments.get(key)
                    if type(path) is str and path:
                        f.files = [*f.files, path]
                if name in ("Task", "Agent") and type(arguments.get("prompt")) is str:
                    f.task_prompts = [*f.task_prompts, arguments["prompt"]]
            body = _input_text(arguments)
            f.tokens += estimate(body) + 4
            texts.append(f"{name}\n{body}" if name else body)
        elif kind == "thinking":
            thought = block.get("thinking")
            if type(thought) is str and thought:
                thoughts.append(thought)
                f.tokens += estimate(thought)
        else:
            said = block.get("text")
            if type(said) is str:
                texts.append(said)
                f.tokens += estimate(said)
                has_text = True
    return has_result, has_call, has_text


def facts(obj: dict[str, Any], recalled: bool) -> Facts:
    """What one parsed record says. `recalled`: its bytes hold the name of the sentinel tag."""
    f = Facts()
    get = obj.get
    named = get("type")
    kind: str = named if type(named) is str else ""
    f.type = kind
    uuid = get("uuid")
    f.uuid = uuid_bytes(uuid)
    if f.uuid is None and type(uuid) is str and uuid:
        f.alias = odd(uuid)
    session = get("sessionId")
    if type(session) is str and session:
        f.session = session
    f.ts = milliseconds(get("timestamp"))
    cwd = get("cwd")
    if type(cwd) is str:
        f.cwd = cwd
    parent = get("parentUuid")
    if parent is not None:
        f.parent = uuid_bytes(parent) or (odd(parent) if type(parent) is str and parent else None)
    f.sidechain = get("isSidechain") is True
    agent = get("agentId")
    if type(agent) is str:
        f.agent = agent

    texts: list[str] = []
    thoughts: list[str] = []
    if kind == "assistant":
        message = get("message")
        content = message.get("content") if type(message) is dict else message
        _, has_call, has_text = _blocks(f, content, texts, thoughts)
        f.kind = REPLY if has_text else CALL if has_call else THINKING if thoughts else OTHER
    elif kind == "user":
        _user(f, obj, texts, thoughts)
    elif kind == "progress":
        _progress(f, get("data"), texts, thoughts)
    elif kind == "attachment":
        body = get("attachment")
        if type(body) is dict and body.get("type") == "queued_command":
            _blocks(f, body.get("prompt"), texts, thoughts)
            f.kind = QUEUED
            f.said = _said(texts)
    elif kind == "queue-operation":
        content = get("content")
        if get("operation") == "enqueue" and type(content) is str and content:
            texts.append(content)
            f.tokens += estimate(content)
            f.kind = NOTICE if content.startswith(_NOTIFICATION) else QUEUED
            f.said = _said(texts)
    elif kind == "system":
        if get("subtype") in ("local_command", "away_summary") and type(get("content")) is str:
            texts.append(obj["content"])
            f.tokens += estimate(obj["content"])
            f.kind = SUMMARY if get("subtype") == "away_summary" else COMMAND
    elif kind in TITLE_KINDS:
        number, name = TITLE_KINDS[kind]
        title: Any = get(name)
        if type(title) is str:
            title = (strip_recalled(title)[0] if recalled else title).strip()
            if title:
                f.title = (number, clean(title[:TITLE_LIMIT]), uuid_bytes(get("leafUuid")))
    elif kind.startswith("api-request"):
        pass  # what was sent, once more: each part of it stands in a record of its own
    elif type(get("message")) is dict:
        _blocks(f, obj["message"].get("content"), texts, thoughts)

    if recalled:
        everything: list[str] = []
        for piece in _strings(obj):
            if "historical_context" in piece or "HISTORICAL_CONTEXT" in piece:
                everything.extend(strip_recalled(piece)[1])
        f.citations = tuple(dict.fromkeys(everything))
    if texts:
        text = "\n".join(texts) if len(texts) > 1 else texts[0]
        if recalled:
            text = strip_recalled(text)[0]
        if f.kind == RESULT:
            f.text = clean(text[:RESULT_HEAD])
        else:
            f.text = clean(text[:TEXT_LIMIT])
            f.parts = _humps(f.text)
    if thoughts:
        text = "\n".join(thoughts)
        f.thinking = clean((strip_recalled(text)[0] if recalled else text)[:TEXT_LIMIT])
    return f


def _said(texts: list[str]) -> int:
    return key64(" ".join(" ".join(texts).split()))


def _user(f: Facts, obj: dict[str, Any], texts: list[str], thoughts: list[str]) -> None:
    get = obj.get
    prompt = get("promptId")
    if type(prompt) is str and prompt:
        f.prompt = prompt
    if f.sidechain and f.parent is None:
        f.source = uuid_bytes(get("sourceToolAssistantUUID"))
    fork = get("forkedFrom")
    if type(fork) is dict and type(fork.get("sessionId")) is str:
        f.forked_from = fork["sessionId"]
    message = get("message")
    content = message.get("content") if type(message) is dict else message
    has_result, _, _ = _blocks(f, content, texts, thoughts)
    if has_result:
        f.kind = RESULT
        outcome = get("toolUseResult")
        if type(outcome) is dict and type(outcome.get("agentId")) is str:
            f.spawned = outcome["agentId"]
        return
    head = next((t for t in texts if t.strip()), "").lstrip()[:200]
    if get("isCompactSummary") is True:
        f.kind, f.starts = SUMMARY, True
    elif head.startswith(_NOTIFICATION):
        f.kind, f.starts = NOTICE, True
        f.said = _said(texts)
        f.notified = _NOTIFIED.findall("\n".join(texts)[:4000])
    elif head.startswith(_COMMAND):
        f.kind, f.starts = COMMAND, True
        if head.startswith(_CAVEAT):
            texts.clear()
    elif get("isMeta") is True and head.startswith(_CAVEAT):
        f.kind, f.starts = COMMAND, True
        texts.clear()
    elif get("isMeta") is True or (head.startswith(_NOTICE) and _only_notice(texts)):
        f.kind = NOTICE
    else:
        f.kind, f.starts = PROMPT, True
        f.said = _said(texts)


def _only_notice(texts: list[str]) -> bool:
    """Whether nobody typed anything beside what the client put before it."""
    typed = [text for text in texts if text.strip()]
    return len(typed) == 1 and (typed[0].lstrip().startswith("[") or not _IDE.sub("", typed[0]).strip())


def _progress(f: Facts, data: Any, texts: list[str], thoughts: list[str]) -> None:
    """A subagent's step copied into the main transcript (2.1.12 to 2.1.50) may be the only copy left (FORMAT 8.7)."""
    if type(data) is not dict or data.get("type") != "agent_progress":
        return
    if type(data.get("agentId")) is str:
        f.spawned = data["agentId"]
    nested = data.get("message")
    if type(nested) is not dict:
        return
    message = nested.get("message")
    content = message.get("content") if type(message) is dict else message
    inner = Facts()
    has_result, has_call, has_text = _blocks(inner, content, texts, thoughts)
    f.tool, f.files, f.tokens = inner.tool, inner.files, inner.tokens
    f.sidechain = True
    if nested.get("type") == "assistant":
        f.kind = REPLY if has_text else CALL if has_call else THINKING if thoughts else OTHER
    elif has_result:
        f.kind = RESULT
    else:
        f.kind, f.tokens = OTHER, 0
        texts.clear()  # the task prompt, repeated in every progress record
