"""Settings as a person reads them: amounts with their units, and who says so.

Which value holds is decided by `config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, cells, duration, fit, one_line, pad, path, size

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
    return one_line(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def listed(value: Value, style: Style) -> list[str]:
    """Every setting: its name, its value, where that comes from."""
    rows = [(one["name"], one["value"], str(one["origin"])) for one in value["settings"]]
    if style.form == "plain":
        return ["\t".join((name, plain(found), origin)) for name, found, origin in rows]
    names = max(len(name) for name, _, _ in rows)
    values = [amount(name, found) for name, found, _ in rows]
    room = max(12, min(max(map(cells, values)), style.width - names - 24))
    lines = []
    for (name, _, origin), said in zip(rows, values, strict=True):
        where = path(origin, style) if origin.startswith("/") else one_line(origin)
        line = f"{pad(name, names)}  {pad(said, room)}  "
        where = fit(where, max(8, style.width - cells(line)))
        lines.append(style.dim(line + where) if origin == "default" else f"{style.bold(line)}{style.good(where)}")
    if not value["exists"]:
        lines += ["", f"No file yet: {path(str(value['config_file']), style)}   fabled config set KEY VALUE makes it"]
    return lines
