"""One thread as a document of its own: Markdown, or one HTML file.

Whether credentials are masked in it is decided where it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present import page
from fabled.present.page import text
from fabled.present.terminal import Style, count, moment, one_line, stretch

Value = Mapping[str, Any]


def markdown(value: Value, style: Style) -> str:
    """Each turn under a heading; what tools said in fences that nothing in it can end."""
    lines = [f"# {_plain(_title(value))}", ""]
    lines += [f"- {name}: {_code(said)}" for name, said in _facts(value, style)]
    lines.append("")
    for turn in value.get("turns") or []:
        who, said = _who(turn), str(turn.get("text") or "").rstrip("\n")
        lines += [f"## {who}, {moment(turn.get('ts'), style)[:20]}" if turn.get("ts") else f"## {who}", ""]
        if turn.get("kind") in ("prompt", "reply", "summary", "queued"):
            # Its own headings stay below ours.
            lines += [re.sub(r"(?m)^(#{1,4}) ", r"##\1 ", said), ""]
        else:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", said)), default=0))
            lines += [f"{fence}text", said, fence, ""]
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def html(value: Value, style: Style) -> str:
    """The same as one file that needs no other."""
    facts = "".join(
        f'<dt class="soft">{text(name)}</dt><dd><code>{text(said)}</code></dd>' for name, said in _facts(value, style)
    )
    body = [f"<h1>{text(_title(value))}</h1>", f"<dl>{facts}</dl>"]
    for turn in value.get("turns") or []:
        role, kind = str(turn.get("role") or ""), str(turn.get("kind") or "")
        names = " ".join(name for name in ("turn", role, kind) if re.fullmatch("[a-z]+", name))
        when = f"  {moment(turn.get('ts'), style)[:20]}" if turn.get("ts") else ""
        body.append(
            f'<section class="{names}"><header>{text(_who(turn))}{text(when)}</header>'
            f"<pre>{text(str(turn.get('text') or ''))}</pre></section>"
        )
    return page.html(_title(value), body)


def _title(value: Value) -> str:
    return one_line(str(value.get("title") or "")) or f"Thread {value.get('thread')}"


def _facts(value: Value, style: Style) -> Sequence[tuple[str, str]]:
    turns = value.get("turns") or []
    return [
        ("thread", one_line(str(value.get("thread")))),
        ("session", one_line(str(value.get("session_id")))),
        ("project", one_line(str(value.get("project") or ""))),
        ("time", stretch(value.get("first_ts"), value.get("last_ts"), style)),
        ("turns", count(len(turns))),
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


def _plain(said: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", said)


def _code(said: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", said)), default=0))
    return f"{fence} {said} {fence}" if "`" in said else f"`{said}`"
