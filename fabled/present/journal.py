"""Log lines as a person reads them: the time, the event, its figures in words.

Which lines are shown is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.columns import cells, pad
from fabled.present.terminal import Style, moment, one_line, path, seconds_of, short, size

_SHOWN_APART = ("timestamp", "level", "event", "exception")
_EVENT = 20


def log_line(fields: Mapping[str, Any], style: Style) -> list[str]:
    """One line, and below it the frames of a traceback where there is one."""
    at = moment(fields.get("timestamp"), style) if style.utc else _clock(fields.get("timestamp"), style)
    level = str(fields.get("level") or "info")
    event = one_line(str(fields.get("event") or ""))
    event = event if cells(event) > _EVENT else pad(event, _EVENT)
    paint = {"warning": style.warn, "error": style.bad, "critical": style.bad, "debug": style.dim}.get(
        level, style.bold
    )
    words = [_word(name, value, style) for name, value in fields.items() if name not in _SHOWN_APART and value != ""]
    mark = "" if level in ("info", "debug") else f"{one_line(level)}  "
    lead = f"{style.dim(at)}  {paint(event)}  "
    hang = cells(lead) if cells(lead) <= style.width // 2 else 14
    lines = style.fold(f"{lead}{mark}{'  '.join(words)}".rstrip(), hang)
    for one in fields.get("exception") or []:
        if isinstance(one, Mapping):
            for at in (one.get("frames") or [])[-6:]:
                where = f"{path(str(at.get('filename')), style)}:{at.get('lineno')}"
                lines.append(style.dim(f"    {where} in {one_line(str(at.get('name')))}"))
            lines.append(style.bad(f"    {one_line(str(one.get('exc_type')))}: {one_line(str(one.get('exc_value')))}"))
    return lines


def _clock(value: Any, style: Style) -> str:
    import time

    seconds = seconds_of(value)
    if seconds is None:
        return "        "
    at, now = time.localtime(seconds), time.localtime(style.now)
    clock = time.strftime("%H:%M:%S", at)
    return clock if at[:3] == now[:3] else f"{time.strftime('%Y-%m-%d', at)} {clock}"


def _word(name: str, value: Any, style: Style) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("bytes"):
            return f"{name.removesuffix('_bytes')} {size(value)}" if name != "bytes" else size(value)
        if name == "seconds":
            return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
        return f"{one_line(name)} {value:,}" if isinstance(value, int) and name != "pid" else f"{name} {value}"
    if name in ("session", "session_id"):
        return style.id(short(str(value)))
    text = str(value)
    return f"{one_line(name)} {path(text, style) if text.startswith('/') else one_line(text)}"
