"""What forgetting would cost, what it did, and what stays out.

What is nowhere else is decided where the Vault and the Map are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, ago, count, one_line, path, plural, short, size

Value = Mapping[str, Any]
SHOWN = 20


def forget(value: Value, style: Style) -> list[str]:
    if "let_in" in value:
        names = ", ".join(path(str(name), style) for name in value["let_in"])
        return [f"{names} may come in again; {plural(value.get('files_changed') or 0, 'file')} indexed."]
    rows = list(value.get("sessions") or [])
    done = bool(value.get("applied"))
    what = path(str(value["project"]), style) if value.get("project") else short(str(rows[0]["session_id"]))
    lines = [f"{'Forgotten' if done else 'Would forget'}: {style.bold(what)}, {plural(len(rows), 'session')}", ""]
    lines += [_session(row, style) for row in rows[:SHOWN]]
    lines += [f"  and {count(len(rows) - SHOWN)} more"] if len(rows) > SHOWN else []
    lines.append("")
    held = f"{plural(value.get('generations') or 0, 'generation')}, {size(value.get('bytes') or 0)}"
    lines.append(f"{'Removed from' if done else 'In'} the Vault: {held}.")
    only, files = value.get("only_here") or 0, value.get("only_here_files") or 0
    if only or files:
        parts = [plural(only, "record")] if only else []
        parts += [plural(files, "file")] if files else []
        said = f"{' and '.join(parts)} {'existed' if done else 'exist'} in full nowhere else"
        lines.append(style.bad(f"{said}{'.' if done else ' and would be gone for good.'}"))
    live = sum(len(row.get("live") or []) for row in rows)
    if live:
        lines.append(
            f"{plural(live, 'live transcript')} {'stays' if live == 1 else 'stay'} where the client has "
            f"{'it' if live == 1 else 'them'}, and out of fabled."
        )
    others = [str(name) for row in rows for name in row.get("elsewhere") or []]
    if others:
        lines.append(f"Kept in Vaults that are only read: {path(others[0], style)}{_more(len(others))}")
    for one in value.get("failed") or []:
        lines.append(style.bad(f"not removed: {path(str(one['path']), style)}: {one_line(str(one['reason']))}"))
    return lines


def _session(row: Value, style: Style) -> str:
    only = row.get("only_here") or 0
    said = style.bad(f"{count(only)} nowhere else") if only else "all of it also live"
    return (
        f"  {style.id(short(str(row['session_id'])))}  {plural(row.get('records') or 0, 'record')}, "
        f"{plural(row.get('generations') or 0, 'generation')} ({size(row.get('bytes') or 0)}), {said}"
    )


def _more(number: int) -> str:
    return f" and {number - 1} more" if number > 1 else ""


def forgotten(value: Value, style: Style) -> list[str]:
    rows = value.get("forgotten") or []
    if not rows:
        return ["Nothing was forgotten."]
    lines = []
    for row in rows:
        name = path(str(row["name"]), style)
        more = (
            f"{plural(len(row.get('sessions') or ()), 'session')}"
            if row["kind"] == "project"
            else f"{plural(row.get('generations') or 0, 'generation')} ({size(row.get('bytes') or 0)})"
        )
        state = "" if row.get("done") else "   not done yet"
        lines.append(f"{row['kind']:<8} {style.id(name)}   {ago(row.get('at'), style)}   {more}{state}")
    return [*lines, "", style.dim("Let one in again:  fabled forget --let-in NAME")]
