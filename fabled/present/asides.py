"""What stands below an answer whatever it is: names that nothing is called, and an index that is not whole yet.

Which these are is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, fit, one_line, path

Value = Mapping[str, Any]

LISTS = {
    "search": "results", "recent": "results", "overview": "results", "file": "results", "sessions": "sessions",
    "projects": "projects", "terms": "terms", "cards": "cards", "stats": "rows",
}  # fmt: skip
"""Answers that are a list, and under which key: empty, nothing was found, and the exit status is 1."""

_THOSE = {
    "project": "Those that are:  fabled projects",
    "session": "Those that are:  fabled sessions",
    "term": "Those that are:  fabled terms",
}
VALUE_CELLS = 60


def found(method: str, value: Value) -> bool:
    """Whether an answer has anything in it."""
    return method not in LISTS or bool(value.get(LISTS[method]))


def unknown(value: Value, style: Style) -> list[str]:
    """One line for each thing asked for that is not known, with what is called nearly so."""
    return [_missing(one, style) for one in value.get("unknown") or []]


def _missing(one: Value, style: Style) -> str:
    name = str(one.get("filter") or "")
    said = fit(_shown(name, one.get("value"), style), VALUE_CELLS)
    why = str(one.get("why") or "")
    if why == "no time":
        return f"{name}:{said} is no time, so it was taken for text.  A time is an ISO date, or 90m, 3h, 2d, 6w."
    near = ", ".join(_shown(name, row, style) for row in one.get("near") or [])
    lead = f"Near:  {near}" if near else "" if why else _THOSE.get(name, "")
    line = f"No {name} {said} is known{f': {one_line(why)}' if why else ''}."
    return f"{line}  {lead}" if lead else line


def _shown(name: str, text: Any, style: Style) -> str:
    shown = one_line(str(text))
    return path(shown, style) if name in ("project", "file") and shown.startswith("/") else shown
