"""One thread as a document of its own: Markdown, or one HTML file.

Whether credentials are masked in it is decided where it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present import markdown as md
from fabled.present import page
from fabled.present.page import text
from fabled.present.terminal import Style, moment, one_line, plural, stretch, visible

Value = Mapping[str, Any]

_WRITTEN = ("prompt", "reply", "summary", "queued")
"""Kinds of turns that are written as Markdown; what tools and the client said is shown as it is."""
_LONG_LINES, _LONG_CHARS = 40, 4_000
"""More than this of what is no conversation is folded in."""


def turns(value: Value) -> str:
    """How many turns a document of a thread holds, in words."""
    rows = value.get("turns") or []
    aside = sum(turn.get("label") == "sidechain" for turn in rows)
    parts = [plural(len(rows) - aside, "turn")] if len(rows) > aside or not rows else []
    return " and ".join([*parts, *([f"{plural(aside, 'turn')} of subagents"] if aside else [])])


def markdown(value: Value, style: Style) -> str:
    """Each turn under a heading; what tools said in fences that nothing in it can end."""
    lines = [f"# {md.plain(_title(value))}", ""]
    lines += [f"- {name}: {md.code(said)}" for name, said in _facts(value, style)]
    lines.append("")
    for turn in value.get("turns") or []:
        when = f", {_when(turn, style)}" if turn.get("ts") else ""
        said = _said(turn)
        lines += [f"## {md.plain(_who(turn))}{when}", ""]
        if turn.get("kind") in _WRITTEN:
            lines += [md.contained(said), ""]
        else:
            lines += [*md.fenced(said, "text"), ""]
    return page.holdable("\n".join(lines))


def html(value: Value, style: Style) -> str:
    """The same as one file that needs no other."""
    facts = "".join(f"<div><dt>{text(name)}</dt><dd>{text(said)}</dd></div>" for name, said in _facts(value, style))
    title = _title(value)
    body = [f"<header><h1>{text(title)}</h1>\n<dl>{facts}</dl></header>", "<main>"]
    for number, turn in enumerate(value.get("turns") or [], 1):
        said = (str(turn.get(name) or "") for name in ("role", "kind", "label"))
        names = " ".join(name for name in ("turn", *said) if re.fullmatch("[a-z]+", name))
        when = f" <time>{text(_when(turn, style))}</time>" if turn.get("ts") else ""
        body.append(
            f'<section class="{names}" aria-labelledby="t{number}"><header><h2 id="t{number}">{text(_who(turn))}</h2>'
            f"{when}</header>{_shown(turn)}</section>"
        )
    return page.html(title, [*body, "</main>"])


def _shown(turn: Value) -> str:
    said = _said(turn)
    block = f'<pre dir="auto">{text(said)}</pre>'
    lines = said.count("\n") + 1
    if turn.get("kind") in _WRITTEN or (lines <= _LONG_LINES and len(said) <= _LONG_CHARS):
        return block
    amount = plural(lines, "line") if lines > 1 else plural(len(said), "character")
    return f"<details><summary>{amount}</summary>{block}</details>"


def _said(turn: Value) -> str:
    """What a turn says; a control character, which verbatim text may hold, as a terminal shows it."""
    said = visible(str(turn.get("text") or "")).strip("\n")
    tool = one_line(str(turn.get("tool") or ""))
    # The heading names the tool already.
    return said.removeprefix(f"{tool}\n") if turn.get("kind") == "tool" and turn.get("role") != "tool" else said


def _when(turn: Value, style: Style) -> str:
    return moment(turn.get("ts"), style).partition(".")[0] + ("Z" if style.utc else "")


def _title(value: Value) -> str:
    return one_line(str(value.get("title") or "")) or f"Thread {one_line(str(value.get('thread')))}"


def _facts(value: Value, style: Style) -> Sequence[tuple[str, str]]:
    return [
        ("thread", one_line(str(value.get("thread")))),
        ("session", one_line(str(value.get("session_id")))),
        ("project", one_line(str(value.get("project") or "")) or "—"),
        ("time", stretch(value.get("first_ts"), value.get("last_ts"), style)),
        ("turns", turns(value).replace(" turns", "", 1).replace(" turn", "", 1)),
        *([("resume", one_line(str(value["resume"])))] if value.get("resume") else []),
    ]


def _who(turn: Value) -> str:
    kind, role = str(turn.get("kind") or ""), one_line(str(turn.get("role") or ""))
    label = one_line(str(turn.get("label") or "main"))
    if kind == "tool":
        said = "result" if role == "tool" else f"tool {one_line(str(turn.get('tool') or ''))}".rstrip()
    elif kind == "queued":
        said = f"{role}, while it worked"
    else:
        said = kind if kind in ("thinking", "summary") else role
    return said if label == "main" else f"{said} ({label})"
