"""Settings as a person reads them: amounts with their units, and who says so.

Which value holds is decided by `config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fabled.present.columns import cells, middle, pad, widest
from fabled.present.terminal import Style, duration, homely, one_line, path, size

Value = Mapping[str, Any]


def amount(name: str, value: Any) -> str:
    """A value with the unit its name tells."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(one_line(str(one)) for one in value) or "none"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return size(value)
        if name.endswith("_seconds"):
            return duration(value) if value >= 1 and value == int(value) else f"{value:g} s"
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return one_line(str(value))


def plain(value: Any) -> str:
    """A value for other programs: as TOML and JSON both have it, a text without quotes."""
    if isinstance(value, float) and value == int(value):
        value = int(value)
    if isinstance(value, str):
        return one_line(value)
    said = json.dumps(value, ensure_ascii=False)
    return said if said.isprintable() else json.dumps(value)


def listed(value: Value, style: Style) -> list[str]:
    """Every setting: its name, its value, where that comes from."""
    rows = [(one["name"], one["value"], str(one["origin"])) for one in value["settings"]]
    if style.form == "plain":
        return ["\t".join((name, plain(found), origin)) for name, found, origin in rows]
    names = widest(name for name, _, _ in rows)
    values = [homely(amount(name, found), style) for name, found, _ in rows]
    places = [path(origin, style) if origin.startswith("/") else one_line(origin) for _, _, origin in rows]
    place = min(widest(places), max(18, style.width // 4))
    most = max(10, style.width - names - place - 4)
    room = widest(said for said in values if cells(said) <= most)
    lines: list[str] = []
    for (name, _, origin), said, where in zip(rows, values, places, strict=True):
        # A place can be shortened. A value cannot: one that is too long stands below.
        fits = cells(said) <= room
        line = f"{pad(name, names)}  {pad(said if fits else '', room)}  "
        where = middle(where, max(place, style.width - cells(line)))
        below = [] if fits else style.fold(f"    {said}", 4)
        if origin == "default":
            lines += map(style.dim, [line + where, *below])
        else:
            lines += [f"{style.bold(line)}{style.good(where)}", *map(style.bold, below)]
    if not value["exists"]:
        lines += ["", f"No file yet: {path(str(value['config_file']), style)}"]
        lines += ["fabled config set KEY VALUE makes it"]
    return lines
