"""Says how a thread ends, from its last records: with an open question, a failure, an interruption, or half way.

Which records are the last ones, and reading them, is left to `retrieval`.

A thread that ends with a statement of Claude's, or with a command of the person's, is closed: nothing is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .text import CALL, COMMAND, NOTICE, PROMPT, REPLY, RESULT, THINKING, strip_recalled

ASKS, FAILED, INTERRUPTED, UNANSWERED, UNFINISHED = "asks", "failed", "interrupted", "unanswered", "unfinished"
"""Claude waits for an answer; the last step failed; the person stopped it; nothing came back; it stops half way."""

ASKING = ("AskUserQuestion", "ExitPlanMode")
"""Tools whose call is a question to the person."""

_INTERRUPT = "[Request interrupted"
_REJECTED = ("The user doesn't want to proceed with this tool use", "The user doesn't want to take this action")
_PERMISSION = re.compile(r"\AClaude requested permissions? to .{0,400}haven't granted", re.DOTALL)
_LOOKED_AT = 6_000
"""Characters of a text's end that are looked at."""
_LIST_ITEM = re.compile(r"\s*(?:[-*•–]|\(?\d{1,2}[.)]|\(?[A-Za-z][.)])\s")
_ENDING = " \t*_`\"'”’»)]}~"
_MARKS = "?？؟"
_SENTENCE = re.compile(r"[.!。！:](?=\s|\*)|[?？؟。！]")
_POLITE = re.compile(r"\b(?:anything|something) else\b|\bhow (?:can|may) i (?:help|assist)\b", re.IGNORECASE)
_ERROR = re.compile(r"</?tool_use_error>")


@dataclass(frozen=True, slots=True)
class Last:
    """One of a thread's last records: its kind as in `text`, and what it holds (None: too large to be told)."""

    kind: int
    obj: dict[str, Any] | None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Why a thread is open; `at` is the position of the record that shows it, `text` its words, untamed."""

    kind: str
    text: str
    at: int
    tool: str | None = None


def end(last: Sequence[Last], answered: Callable[[str], bool]) -> End | None:
    """How a thread ends whose last records are these, in order; None where it is closed.

    `answered` tells of a tool call's id whether there is a result for it anywhere.
    """
    for at in range(len(last) - 1, -1, -1):
        one = last[at]
        if one.kind == NOTICE:
            if _first_text(one.obj).lstrip().startswith(_INTERRUPT):
                return _interrupted(last, at)
        elif one.kind == REPLY:
            if _filler(one.obj):
                continue
            return _reply(one, at)
        elif one.kind == PROMPT:
            return End(UNANSWERED, _first_text(one.obj), at)
        elif one.kind == THINKING:
            return End(UNFINISHED, "", at)
        elif one.kind == CALL:
            return _called(last, at, answered)
        elif one.kind == RESULT:
            return _result(last, at, answered)
        elif one.kind == COMMAND:
            return None
    return None


def _filler(obj: dict[str, Any] | None) -> bool:
    """A reply that the client made up to keep the order of turns ("No response requested.")."""
    message = (obj or {}).get("message")
    return (
        type(message) is dict
        and message.get("model") == "<synthetic>"
        and (obj or {}).get("isApiErrorMessage") is not True
    )


def _reply(one: Last, at: int) -> End | None:
    obj = one.obj or {}
    text = _first_text(obj)
    if obj.get("isApiErrorMessage") is True:
        return End(FAILED, text, at)
    asked = question(text)
    if asked is not None:
        return End(ASKS, asked, at)
    message = obj.get("message")
    if type(message) is dict and message.get("stop_reason") in ("max_tokens", "model_context_window_exceeded"):
        return End(UNFINISHED, text[-_LOOKED_AT:], at)
    return None


def _called(last: Sequence[Last], at: int, answered: Callable[[str], bool]) -> End:
    one = last[at]
    waiting = next((block for block in reversed(_blocks(one.obj, "tool_use")) if not _has(block, answered)), None)
    if waiting is None:
        return End(UNFINISHED, _call_text(one.obj), at, one.tool)
    asked = _asked(waiting)
    if asked is not None:
        return End(ASKS, asked, at, one.tool)
    return End(UNANSWERED, _call_text(one.obj), at, one.tool)


def _result(last: Sequence[Last], at: int, answered: Callable[[str], bool]) -> End:
    one = last[at]
    for block in _blocks(one.obj, "tool_result"):
        if block.get("is_error") is not True:
            continue
        text = _ERROR.sub("", _content(block.get("content"))).strip()
        if text.startswith(_REJECTED):
            return _interrupted(last, at)
        return End(ASKS if _PERMISSION.match(text) else FAILED, text, at, one.tool)
    for before in range(at - 1, -1, -1):  # of parallel calls another may still wait
        if last[before].kind not in (CALL, RESULT):
            break
        blocks = _blocks(last[before].obj, "tool_use") if last[before].kind == CALL else []
        if any(not _has(block, answered) for block in blocks):
            return _called(last, before, answered)
    return End(UNFINISHED, "", at, one.tool)


def _interrupted(last: Sequence[Last], at: int) -> End:
    """What was being done when it was stopped: the last call, else the prompt."""
    for before in range(at - 1, -1, -1):
        one = last[before]
        if one.kind == CALL:
            return End(INTERRUPTED, _call_text(one.obj), at, one.tool)
        if one.kind in (PROMPT, REPLY):
            return End(INTERRUPTED, _first_text(one.obj), at)
    return End(INTERRUPTED, "", at)


def question(text: str) -> str | None:
    """The question that a text ends with, None where it ends otherwise.

    A list of choices may follow the question; the usual offer of further help is none.
    """
    lines = [line for line in text[-_LOOKED_AT:].splitlines() if line.strip()]
    choices = 0
    while lines and choices < 20 and _LIST_ITEM.match(lines[-1]) and not lines[-1].rstrip(_ENDING).endswith((*_MARKS,)):
        lines.pop()
        choices += 1
    if not lines:
        return None
    line = lines[-1].rstrip(_ENDING + (":" if choices else ""))
    while line and not line[-1].isalnum() and line[-1] not in _MARKS and ord(line[-1]) > 0x2000:
        line = line[:-1].rstrip(_ENDING)  # an emoji behind it
    if not line or line[-1] not in _MARKS:
        return None
    starts = [found.end() for found in _SENTENCE.finditer(line[:-1])]
    asked = line[starts[-1] if starts else 0 :].lstrip(" \t*_`-•")
    return None if _POLITE.search(asked) else asked or line


# What a record says


def _has(block: dict[str, Any], answered: Callable[[str], bool]) -> bool:
    call = block.get("id")
    return type(call) is not str or answered(call)


def _asked(block: dict[str, Any]) -> str | None:
    """The question a call puts to the person, None where it is none."""
    if block.get("name") not in ASKING:
        return None
    arguments = block.get("input")
    if type(arguments) is not dict:
        return ""
    questions = arguments.get("questions")
    if type(questions) is list:
        texts = [one["question"] for one in questions if type(one) is dict and type(one.get("question")) is str]
        return " ".join(texts)
    plan = arguments.get("plan") or arguments.get("question")
    return plan if type(plan) is str else ""


def _call_text(obj: dict[str, Any] | None) -> str:
    """What a call is about: its description or the first text of its input."""
    for block in _blocks(obj, "tool_use"):
        arguments = block.get("input")
        if type(arguments) is dict:
            texts = [value for value in arguments.values() if type(value) is str and value.strip()]
            named = next((arguments[key] for key in ("file_path", "command") if type(arguments.get(key)) is str), None)
            if named or texts:
                return str(named or texts[0])
    return ""


def _blocks(obj: dict[str, Any] | None, kind: str) -> list[dict[str, Any]]:
    message = (obj or {}).get("message")
    content = message.get("content") if type(message) is dict else None
    content = [content] if type(content) is dict else content
    if type(content) is not list:
        return []
    return [block for block in content if type(block) is dict and block.get("type") == kind]


def _first_text(obj: dict[str, Any] | None) -> str:
    message = (obj or {}).get("message")
    return strip_recalled(_content(message.get("content") if type(message) is dict else message))[0]


def _content(content: Any) -> str:
    if type(content) is str:
        return content
    if type(content) is dict:
        content = [content]
    if type(content) is not list:
        return ""
    parts = [block if type(block) is str else block.get("text") for block in content if type(block) in (str, dict)]
    return "\n".join(part for part in parts if type(part) is str)
