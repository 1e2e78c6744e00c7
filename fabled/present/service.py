"""How the background service stands, and what is kept of a history when it goes.

Asking the manager, and what is ours to remove, is left to `service`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, finish, one_line, path, plural, size

Value = Mapping[str, Any]

_MARKS = {"running": "●", "reloading": "●", "starting": "●", "stopping": "○", "stopped": "○", "failed": "✗"}

# What a process that ended with a status of the contract has to say for itself.
_STATUSES = {
    3: "another daemon runs, or the index is of a newer version",
    78: "the configuration has problems: fabled config check",
}


def status(value: Value, style: Style) -> str:
    state = str(value["state"])
    mark = _MARKS.get(state, "○")
    colour = style.good if mark == "●" else style.bad if state == "failed" else style.dim
    head = [f"service {state}"]
    if value.get("pid"):
        head.append(f"pid {value['pid']}")
    if value.get("restarts"):
        head.append(f"restarted {plural(value['restarts'], 'time')}")
    lines = [f"{colour(mark)} {'   '.join(head)}"]
    if not value.get("installed"):
        return finish([*lines, "  Not installed. Next:  fabled service install"], style)
    rows = [
        ("managed by", str(value["manager"])),
        ("file", path(str(value["path"]), style)),
        ("at login", "started" if value.get("enabled") else style.warn("not started")),
    ]
    if value.get("says"):
        rows.append(("says", one_line(str(value["says"]))))
    if value.get("sandbox"):
        rows.append(("sandbox", "other folders are read-only to it"))
    if state == "failed" or (state != "running" and value.get("exit_status")):
        rows.append(("why", style.bad(trouble(value))))
        rows.append(("", style.dim(f"Next: {value.get('why')}")))
    if value.get("current") is False:
        rows.append(
            ("", style.warn("The file differs from what this version would write. Next: fabled service install"))
        )
    if value.get("advice"):
        rows.append(("", style.dim(str(value["advice"]))))
    if state == "stopped":
        rows.append(("", "Start it:  fabled service start"))
    for name, text in rows:
        lines += style.fold(f"  {name:<10} {text}", 13)
    return finish(lines, style)


def trouble(value: Value) -> str:
    """Why the service does not run, as far as its manager knows."""
    number = value.get("exit_status")
    words = _STATUSES.get(number) if isinstance(number, int) else None
    parts = ["the service did not stay up"]
    if number:
        parts.append(f"it ended with status {number}" + (f" ({words})" if words else ""))
    if value.get("reason") and not words:
        parts.append(str(value["reason"]))
    return ": ".join(parts[:2]) + (f", {parts[2]}" if len(parts) > 2 else "")


def stays(folder: str, byte_count: int, sole: Value, style: Style) -> str:
    """What is left when only the service went."""
    return finish(
        [
            f"Your data stays: {path(folder, style)}  {size(byte_count)}{_only(sole)}.",
            "Remove that too:  fabled service uninstall --purge   (asks you to type the folder's name)",
        ],
        style,
    )


def would_go(folder: str, byte_count: int, sole: Value, style: Style) -> str:
    lines = [f"Will remove {path(folder, style)} for good: {size(byte_count)}{_only(sole)}."]
    if not sole["known"]:
        lines.append(style.bad("It could not be told what of it exists nowhere else: it may be all of it."))
    elif sole["records"] or sole["files"]:
        named = ", ".join(str(one)[:8] for one in sole["sessions"][:5])
        more = f" and {len(sole['sessions']) - 5} more" if len(sole["sessions"]) > 5 else ""
        lines.append(
            style.bad(
                f"{plural(sole['records'], 'record')} and {plural(sole['files'], 'file')} exist nowhere else and "
                f"cannot be brought back (sessions {named}{more})."
                if sole["records"]
                else f"{plural(sole['files'], 'file')} exist{'s' if sole['files'] == 1 else ''} nowhere else and "
                "cannot be brought back."
            )
        )
        lines.append("Put them back into your transcripts first:  fabled restore SESSION --full --apply")
    return finish(lines, style)


def purged(folder: str, byte_count: int, left: list[str], style: Style) -> str:
    lines = [f"Removed {path(folder, style)}: {size(byte_count)}."]
    lines += [f"Left, because not all in it is fabled's, or a link led to it: {path(one, style)}" for one in left]
    return finish(lines, style)


def _only(sole: Value) -> str:
    if not sole["known"]:
        return ", of which all may exist nowhere else (the index cannot be read)"
    if not sole["bytes"]:
        return ", nothing of it the only copy"
    verb = "exists" if sole["records"] == 1 else "exist"
    return f", of which {plural(sole['records'], 'record')} ({size(sole['bytes'])} unpacked) {verb} nowhere else"
