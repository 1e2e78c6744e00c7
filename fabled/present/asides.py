"""What stands below an answer whatever it is: names that nothing is called, and an index that is not whole yet.

Which these are is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.columns import middle
from fabled.present.terminal import Style, count, one_line, path, plural

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


def indexing(value: Value, style: Style) -> list[str]:
    """How far the index is, where an answer may lack something for it."""
    told = value.get("indexing")
    if not told and value.get("empty"):
        return ["Nothing is indexed yet.  Where transcripts are looked for:  fabled config paths"]
    if not told:
        return []
    if not told.get("under_way"):
        return ["The first index was not finished; results are of what was read.  Go on with it:  fabled index"]
    return [f"{how_far(told)}; results are of what is read so far."]


def how_far(told: Value) -> str:
    """`First index under way: 34 of 120 files`."""
    what = "First index under way" if told.get("first") else "Index catching up"
    files = f": {count(told['files_done'])} of {plural(told['files'], 'file')}" if told.get("files") else ""
    return f"{what}{files}"


def not_yet(told: Value, hint: str) -> str:
    """The next step after something was not found while the index is not whole."""
    if not told.get("under_way"):
        return "the first index was not finished: fabled index"
    return f"{how_far(told).lower()}; try again in a while" + (f", or {hint}" if hint else "")


def _missing(one: Value, style: Style) -> str:
    name = str(one.get("filter") or "")
    said = middle(_shown(name, one.get("value"), style), min(VALUE_CELLS, max(24, style.width - 20)))
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
