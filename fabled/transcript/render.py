"""Fits a thread into a token budget and shows its turns and snippets so that nothing in them can harm a reader.

Which records a thread has, and reading them, is left to `retrieval`; masking itself to `mask`.

`plan` decides from kinds and sizes alone which turns are shown whole, cut or left out, so that a long thread is never
read to show a little of it. `turn` puts one record into words; `tame` makes those words safe to show.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .mask import mask
from .text import (
    CALL,
    COMMAND,
    NOTICE,
    OTHER,
    PROMPT,
    QUEUED,
    REPLY,
    RESULT,
    SUMMARY,
    THINKING,
    estimate,
    facts,
)

KIND_NAMES = {
    OTHER: "other",
    PROMPT: "prompt",
    REPLY: "reply",
    THINKING: "thinking",
    CALL: "tool",
    RESULT: "tool",
    QUEUED: "queued",
    SUMMARY: "summary",
    COMMAND: "command",
    NOTICE: "notice",
}
"""A kind as replies and `--kind` spell it."""
ROLES = {
    OTHER: "system",
    PROMPT: "user",
    REPLY: "assistant",
    THINKING: "assistant",
    CALL: "assistant",
    RESULT: "tool",
    QUEUED: "user",
    SUMMARY: "system",
    COMMAND: "user",
    NOTICE: "system",
}
"""Whose words a kind holds."""


def role(kind: int, type_: str) -> str:
    """Whose words a record holds; where its kind tells nothing, the type it was written with does."""
    return type_ if kind == OTHER and type_ in ("user", "assistant") else ROLES.get(kind, "system")


SNIPPET_CHARS = 300
"""The longest snippet, in characters, ellipses included."""

LEAD_CHARS = 30
"""What a snippet shows before the first word found: little, for a terminal may cut its end."""

# Tokens beside a turn's text: its heading, and the one marker line that stands for a run of turns left out.
HEADING = 12
MARKER = 20
GAP = HEADING + MARKER
SMALLEST_PART = 48
"""A turn is not cut to fewer tokens than this, marker included: it would say nothing."""

# The largest share of the budget one turn may take while others wait, by kind.
_SHARE = {PROMPT: 0.2, REPLY: 0.25, QUEUED: 0.15, SUMMARY: 0.15, CALL: 0.06, RESULT: 0.06, THINKING: 0.06}
_OTHER_SHARE = 0.04
_TIERS = {PROMPT: 2, REPLY: 2, QUEUED: 3, COMMAND: 3, SUMMARY: 4, CALL: 5, RESULT: 5, THINKING: 6}
_LAST_TIER = 7

# What may end or open a frame around recalled text, or speak with the harness's voice. A joiner or soft hyphen
# between the letters does not hide it; other invisible characters are gone before this is looked for.
_JOINERS = "[\u00ad\u200c\u200d]*"
_FRAMES = "|".join(
    _JOINERS.join(name)
    for name in (
        "historical_context", "consulted_arcs", "system-reminder", "command-", "local-command-", "task-notification",
        "user-prompt-submit-hook", "function_calls", "antml:",
    )
)  # fmt: skip
_FRAME = re.compile(rf"<(?=[\s\u00ad\u200c\u200d]{{0,8}}/?[\s\u00ad\u200c\u200d]{{0,8}}(?:{_FRAMES}))", re.IGNORECASE)
_FAKE_MARKER = re.compile(r"\[(?=\s{0,8}truncated\b[^\]\n]{0,200}?\bblock\b)", re.IGNORECASE)
ANSI = re.compile("\x1b(?:\\[[0-?]{0,64}[ -/]{0,8}[@-~]|\\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\\\)|[@-Z\\\\^_=>])")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_OPEN = re.compile(r"<historical_context\s[^<>]{0,100000}>", re.IGNORECASE)
_TAG = re.compile(r"<historical_context\s[^<>]{0,100000}>|<\s*/\s*historical_context\s*>", re.IGNORECASE)
_ARCS = re.compile(r"""\barcs\s*=\s*\\{0,6}["']([^"'\\<>]{0,20000})""", re.IGNORECASE)
_REFS_SHOWN = 12


# Safe text


def tame(text: str) -> str:
    """`text` made safe to show: recalled passages as stubs, frame tags and fake markers defused, credentials masked.

    Terminal sequences and invisible characters go too. What a person wrote stays readable; `block` has the bytes.
    """
    text = whole_characters(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    text = _UNSEEN.sub("", text)
    if "<" in text:
        text = _FRAME.sub("‹", _stub_recalled(text))
    if "[" in text:
        text = _FAKE_MARKER.sub("‹", text)
    return mask(text)


def whole_characters(text: str) -> str:
    """The text with its lone surrogates replaced by U+FFFD (case A07), and pairs of them joined."""
    if text.isascii() or _SURROGATES.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _stub_recalled(text: str) -> str:
    """Replaces each closed recalled passage by one line that names what it cited.

    One without an end stays in words (`tame` defuses its tag): it may be talk about the tag.
    """
    if _OPEN.search(text) is None:
        return text
    kept: list[str] = []
    pos = depth = start = 0
    for tag in _TAG.finditer(text):
        if tag[0].lstrip("<").lstrip()[:1] != "/":
            if depth == 0:
                start = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                kept += text[pos:start], _stub(text[start : tag.end()])
                pos = tag.end()
    return "".join(kept) + text[pos:]


def _stub(passage: str) -> str:
    refs = [ref for found in _ARCS.finditer(passage) for ref in re.split(r"[,\s]+", found[1]) if ref]
    refs = list(dict.fromkeys(refs))
    if not refs:
        return "[recalled passage]"
    more = f" and {len(refs) - _REFS_SHOWN} more" if len(refs) > _REFS_SHOWN else ""
    return f"[recalled: {', '.join(ref[:80] for ref in refs[:_REFS_SHOWN])}{more}]"


def left_out(size: int) -> str:
    """What stands in a string of a huge record for bytes that were not read."""
    return f"…[{size:,} bytes left out]…"


_LEFT_OUT = re.compile(r"…\[([0-9,]{1,20}) bytes left out\]…")


def has_left_out(text: str) -> bool:
    """Whether a text of a huge record was cut where it is shown."""
    return _LEFT_OUT.search(text) is not None


def marker(block: str) -> str:
    """What stands where a block was cut or left out; no text of a transcript can look like it."""
    return f"[truncated — fabled block {block}]"


# Cutting


def boundary(text: str, at: int) -> int:
    """The nearest place at or before `at` where no character that people see as one is cut apart."""
    if at >= len(text):
        return len(text)
    low = max(0, at - 32)
    while at > low and (_joined(text[at]) or text[at - 1] == "\u200d"):
        at -= 1
    if at and _is_flag(text[at]) and _is_flag(text[at - 1]):
        run = at
        while run > low and _is_flag(text[run - 1]):
            run -= 1
        at -= (at - run) % 2
    return at


def _joined(char: str) -> bool:
    """Does the character belong to the one before it?"""
    code = ord(char)
    if code < 0x300:
        return False
    return (
        code == 0x200D
        or 0xFE00 <= code <= 0xFE0F
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
        or unicodedata.category(char)[0] == "M"
    )


def _is_flag(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


def clip(text: str, size: int) -> str:
    """At most `size` characters of `text`, the last an ellipsis where something is left out."""
    if len(text) <= size:
        return text
    if size <= 0:
        return ""
    return text[: boundary(text, size - 1)].rstrip() + "…"


def cut(text: str, tokens: int) -> str:
    """The longest start of `text` of at most `tokens` tokens, ending at a blank where one is near."""
    if tokens <= 0:
        return ""
    head = text[: 4 * tokens + 4]
    if estimate(head) <= tokens:
        return head[: boundary(text, len(head))]
    size = bisect_left(range(len(head)), tokens + 1, key=lambda n: estimate(head[: n + 1]))
    blank = max(head.rfind(" ", max(0, size - 40), size), head.rfind("\n", max(0, size - 40), size))
    return head[: boundary(head, blank if blank > size // 2 else size)].rstrip()


def flat(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def snippet(text: str, marks: Sequence[tuple[int, int]], size: int = SNIPPET_CHARS) -> tuple[str, list[list[int]]]:
    """The part of a one-line text that shows most of what was looked for, and where in it the marks are.

    `marks` are the (start, end) of found words, ascending. At most `size` characters, ellipses included.
    """
    if len(text) <= size:
        return text, [[first, last] for first, last in marks]
    room = max(1, size - 2)
    start = 0
    best = (-1, 0)
    for index, (first, _) in enumerate(marks[:400]):
        begin = max(0, min(first - min(LEAD_CHARS, room // 4), len(text) - room))
        inside = [text[a:b].casefold() for a, b in marks[index : index + 40] if b <= begin + room]
        score = (len(set(inside)), len(inside))
        if score > best:
            best, start = score, begin
    if start:
        blank = text.find(" ", start, start + LEAD_CHARS // 2)
        start = blank + 1 if blank >= 0 else start
        # Forwards, not back: what comes last in the window must stay in it.
        while start < len(text) and boundary(text, start) != start:
            start += 1
    stop = boundary(text, min(len(text), start + room))
    head = "…" if start else ""
    shown = head + text[start:stop] + ("…" if stop < len(text) else "")
    shift = len(head) - start
    return shown, [
        [max(first, start) + shift, min(last, stop) + shift] for first, last in marks if last > start and first < stop
    ]


# The plan


@dataclass(frozen=True, slots=True)
class Step:
    """A turn to show, with the tokens its text may take; or, where `tokens` is None, `count` turns left out."""

    first: int
    tokens: int | None
    count: int = 1


def plan(turns: Sequence[tuple[int, int]], budget: int, around: int | None = None) -> list[Step]:
    """Which of a thread's turns, each given as (kind, tokens), to show within `budget` tokens (0: all).

    The first prompt and the last reply come first, then the other prompts and replies from the end, queued texts,
    summaries, tools, thoughts; with `around`, that turn and then its neighbours, nearest first. Each may take a share
    of the budget while others wait; what is left over then lengthens those that were cut. Headings and the marker
    of each run left out are counted, so what is shown never exceeds the budget.
    """
    sizes = [max(0, tokens) for _, tokens in turns]
    if budget <= 0 or sum(sizes) + HEADING * len(turns) <= budget:
        return [Step(index, size) for index, size in enumerate(sizes)]
    given: list[int | None] = [None] * len(turns)
    left = budget - GAP  # nothing chosen yet: one run is left out
    queue = _by_priority(turns, budget) if around is None else _by_distance(turns, budget, around)
    for index, most in queue:
        gaps = (index > 0 and given[index - 1] is None) + (index + 1 < len(turns) and given[index + 1] is None) - 1
        room = left - HEADING - gaps * GAP
        wanted = sizes[index]
        size = min(wanted, most, room)
        if size < wanted and size < SMALLEST_PART:
            continue
        given[index] = size
        left = room - size
    for index, _ in queue:
        part = given[index]
        if part is not None and part < sizes[index] and left > 0:
            more = min(left, sizes[index] - part)
            given[index] = part + more
            left -= more
    return _steps(given)


def _by_priority(turns: Sequence[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    prompt = next((index for index, (kind, _) in enumerate(turns) if kind == PROMPT), None)
    reply = next((index for index in range(len(turns) - 1, -1, -1) if turns[index][0] == REPLY), None)
    ranked = sorted(
        (0 if index == prompt else 1 if index == reply else _TIERS.get(kind, _LAST_TIER), -index)
        for index, (kind, _) in enumerate(turns)
    )
    return [(-back, _most(turns[-back][0], budget, tier)) for tier, back in ranked]


def _by_distance(turns: Sequence[tuple[int, int]], budget: int, around: int) -> list[tuple[int, int]]:
    ranked = sorted(range(len(turns)), key=lambda index: (abs(index - around), index))
    return [(index, _most(turns[index][0], budget, 0 if index == around else 2)) for index in ranked]


def _most(kind: int, budget: int, tier: int) -> int:
    share = 0.4 if tier <= 1 else _SHARE.get(kind, _OTHER_SHARE)
    return max(SMALLEST_PART, int(budget * share))


def _steps(given: Sequence[int | None]) -> list[Step]:
    steps: list[Step] = []
    for index, size in enumerate(given):
        if size is None and steps and steps[-1].tokens is None:
            steps[-1] = Step(steps[-1].first, None, steps[-1].count + 1)
        else:
            steps.append(Step(index, size))
    return steps


# One record in words


@dataclass(frozen=True, slots=True)
class Turn:
    """A record in words: `kind` as in `text`, `role` whose words they are, `text` verbatim."""

    role: str
    kind: int
    text: str


def turn(obj: Any, kind: int | None = None) -> Turn:
    """What one parsed record says, whatever its shape. `kind`: as the Map knows it, else it is worked out."""
    if type(obj) is not dict:
        return Turn(ROLES[OTHER], OTHER, "")
    if kind is None:
        kind = facts(obj, False).kind
    type_ = obj.get("type")
    return Turn(role(kind, type_ if type(type_) is str else ""), kind, _words(obj))


def _words(obj: dict[str, Any]) -> str:
    kind = obj.get("type")
    if kind == "attachment" and type(obj.get("attachment")) is dict:
        return _attachment(obj["attachment"])
    if kind == "progress" and type(obj.get("data")) is dict:
        return _progress(obj["data"])
    message = obj.get("message")
    if message is not None:
        return _content(message.get("content") if type(message) is dict else message)
    for key in ("content", "summary", "customTitle", "aiTitle", "lastPrompt", "text"):
        if type(obj.get(key)) in (str, list):
            return _content(obj[key])
    return ""


def _attachment(body: dict[str, Any]) -> str:
    for key in ("prompt", "content", "snippet", "stdout"):
        if body.get(key):
            return _content(body[key])
    return ""


def _progress(data: dict[str, Any]) -> str:
    nested = data.get("message")
    if type(nested) is dict:
        message = nested.get("message")
        return _content(message.get("content") if type(message) is dict else message)
    output = data.get("fullOutput") or data.get("output")
    return output if type(output) is str else ""


def _content(content: Any) -> str:
    """Message content: a text, a block, a list of either (case A14)."""
    if type(content) is str:
        return content
    if type(content) is dict:
        content = [content]
    if type(content) is not list:
        return ""
    return "\n".join(words for block in content if (words := _block(block)))


def _block(block: Any) -> str:
    if type(block) is str:
        return block
    if type(block) is not dict:
        return ""
    kind = block.get("type")
    if kind == "thinking":
        thought = block.get("thinking")
        return thought if type(thought) is str else ""
    if kind == "tool_use":
        return _call(block.get("name"), block.get("input"))
    if kind == "tool_result":
        return _result(block.get("content"))
    if kind in ("image", "document"):
        return _binary(kind, block.get("source"))
    text = block.get("text")
    return text if type(text) is str else ""


def _result(content: Any) -> str:
    if type(content) is list:
        # A result inside a result would recurse without end on a hostile file: only plain blocks count here.
        return "\n".join(
            words
            for block in content
            if (words := "" if type(block) is dict and block.get("type") == "tool_result" else _block(block))
        )
    if type(content) is dict and content.get("type") == "tool_result":
        return ""
    return _content(content)


def _call(name: Any, arguments: Any) -> str:
    lines = [flat(name)] if type(name) is str else []
    if type(arguments) is dict:
        lines += [f"{key}: {value if type(value) is str else _compact(value)}" for key, value in arguments.items()]
    elif arguments is not None:
        lines.append(arguments if type(arguments) is str else _compact(arguments))
    return "\n".join(lines)


def _compact(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError, TypeError):
        return "…"


def _binary(kind: str, source: Any) -> str:
    media, size = "", 0
    if type(source) is dict:
        if type(source.get("media_type")) is str:
            media = flat(source["media_type"])[:80]
        if type(source.get("data")) is str:
            data = source["data"]
            gone = _LEFT_OUT.search(data) if len(data) > 60_000 else None
            kept = len(data) - len(gone[0]) + int(gone[1].replace(",", "")) if gone else len(data)
            size = kept * 3 // 4
    return f"[{kind}{f', {media}' if media else ''}{f', {size:,} bytes' if size else ''}]"
