"""How fabled is, what an index run did, and what a check found.

The figures come as they are; what counts as worth a warning is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present import asides
from fabled.present.columns import cells
from fabled.present.terminal import Style, Verbatim, ago, count, duration, homely, one_line, path, plural, size

Value = Mapping[str, Any]

_LEFT = 13
"""What stands behind a row's name begins here."""


def status(value: Value, style: Style) -> list[str]:
    if style.form == "oneline":
        return [_oneline(value)]
    head = [
        f"fabled {value.get('version', '')}",
        f"running {duration(value.get('uptime_s') or 0)}",
        f"pid {value.get('pid')}",
        size(value.get("rss_bytes") or 0),
    ]
    if value.get("cpu_percent") is not None:
        head.append(f"{value['cpu_percent']:.1f} % cpu")
    rows = [
        ("sessions", _sessions(value)),
        ("vault", _vault(value)),
        ("index", _index(value, style)),
        ("watching", _watching(value, style)),
        ("pruning", _pruning(value)),
        ("oddities", _oddities(value)),
    ]
    lines = [f"{style.good('●')} {style.bold(head[0])}   {'   '.join(head[1:])}"]
    lines += [f"  {name:<10} {text}" for name, text in rows if text]
    return lines + _warnings(value, style)


def statusline(value: Value, style: Style) -> list[str]:
    """`mem 412s 190k | 15.0 MB`: what is remembered, and how large the session at hand is."""
    parts = [f"mem {_short(value.get('sessions') or 0)}s {_short(value.get('records') or 0)}"]
    if value.get("transcript_bytes"):
        parts.append(size(value["transcript_bytes"]))
    if value.get("phase") == "working" and value.get("progress"):
        parts.append("indexing")
    if value.get("warnings"):
        parts.append(plural(len(value["warnings"]), "warning"))
    return [Verbatim(" | ".join(parts))]


def _short(number: int) -> str:
    if number < 10_000:
        return str(number)
    return f"{number // 1_000}k" if number < 10_000_000 else f"{number // 1_000_000}M"


def _oneline(value: Value) -> str:
    warnings = value.get("warnings") or []
    if value.get("indexing"):
        told = asides.how_far(value["indexing"]).lower()
        return f"{told}, {plural(value.get('sessions') or 0, 'session')}, queue {value.get('queue') or 0}"
    state = "ok" if not warnings else plural(len(warnings), "warning")
    return f"{state} {plural(value.get('sessions') or 0, 'session')}, queue {value.get('queue') or 0}"


def _sessions(value: Value) -> str:
    projects = value.get("projects")
    known = f" in {plural(projects, 'project')}" if isinstance(projects, int) else ""
    return (
        f"{count(value.get('sessions') or 0)}{known}     records {count(value.get('records') or 0)}"
        f"     threads {count(value.get('threads') or 0)}"
    )


def _vault(value: Value) -> str:
    vault = value.get("vault") or {}
    live = value.get("live_bytes")
    parts = [f"{size(live)} live"] if isinstance(live, int) else []
    if vault.get("generations"):
        packed = vault["logical_bytes"] / vault["bytes"] if vault.get("bytes") else 1
        parts.append(f"{size(vault['bytes'])} in {plural(vault['generations'], 'generation')} ({packed:.1f}x packed)")
        return "  + ".join(parts)
    return ", ".join([*parts, "no generations yet"])


def _index(value: Value, style: Style) -> str:
    queue = value.get("queue") or 0
    state = "up to date" if not queue else "catching up"
    progress = value.get("progress")
    if isinstance(progress, Mapping) and progress.get("bytes"):
        what = asides.how_far(value["indexing"]).lower() if value.get("indexing") else "indexing"
        state = f"{what}, {size(progress.get('bytes_done') or 0)} of {size(progress['bytes'])}"
    elif value.get("indexing"):
        state = asides.how_far(value["indexing"]).lower()
    change = value.get("last_change")
    if isinstance(change, Mapping):
        change = change.get("at") or change.get("ts")
    when = f", last change {ago(change, style)}" if change else ""
    return f"{state}{when}     queue {count(queue)}"


def _watching(value: Value, style: Style) -> str:
    watcher = value.get("watcher")
    if not isinstance(watcher, Mapping):
        return ""
    mode = str(watcher.get("mode") or "")
    reason = one_line(str(watcher.get("reason") or ""))
    words = f"{mode}: {reason}" if reason else mode
    folders = watcher.get("folders")
    words += f"     {plural(folders, 'folder')}" if isinstance(folders, int) else ""
    return words if mode in ("events", "polling") and not reason else style.warn(words)


def _pruning(value: Value) -> str:
    prune = value.get("prune") or {}
    return one_line(str(prune.get("summary") or "")) if isinstance(prune, Mapping) else ""


def _oddities(value: Value) -> str:
    """Counters that are mostly zero: shown when they are not."""
    named = (
        ("unparsed", "unparsed span", ""),
        ("pending_bytes", "byte of unfinished lines", "bytes of unfinished lines"),
        ("unattached", "record without thread", "records without thread"),
        ("vanished", "vanished file", ""),
        ("vanished_sessions", "session only in the Map", "sessions only in the Map"),
        ("overflow", "event overflow", ""),
        ("watcher_restarts", "watcher restart", ""),
        ("missed_runs", "missed run", ""),
        ("fts_rebuilds", "full-text rebuild", ""),
    )
    return ", ".join(
        plural(value[key], one, many) for key, one, many in named if isinstance(value.get(key), int) and value[key]
    )


def _warnings(value: Value, style: Style) -> list[str]:
    lines = []
    for number, warning in enumerate(value.get("warnings") or []):
        label = "warnings" if number == 0 else ""
        message, hint = (homely(one_line(str(warning.get(key) or "")), style) for key in ("message", "hint"))
        lines += style.fold(f"  {label:<10} {style.warn(message)}", _LEFT + 2)
        if hint:
            lines += style.fold(f"{'':<{_LEFT}}{style.dim(f'Next: {hint}')}", _LEFT + 2)
    return lines


def index(value: Value, style: Style) -> list[str]:
    read = value.get("bytes_read") or 0
    seconds = value.get("seconds") or 0
    rate = f", {size(read / seconds)}/s" if read > 1_000_000 and seconds > 0 else ""
    changed = value.get("files_changed") or 0
    what = (
        f"{plural(changed, 'file')} changed, {size(read)} read in {seconds:.2f} s{rate}"
        if changed
        else f"Nothing has changed ({seconds:.2f} s)"
    )
    lines = [
        what,
        f"{plural(value.get('files') or 0, 'file')}, {plural(value.get('records') or 0, 'record')}, "
        f"{plural(value.get('threads') or 0, 'thread')} in the Map",
    ]
    odd = [
        plural(value[key], one, many)
        for key, one, many in (
            ("no_uuid", "record without uuid", "records without uuid"),
            ("unparsed", "unparsed span", ""),
            ("pending_bytes", "byte of unfinished lines", "bytes of unfinished lines"),
        )
        if value.get(key)
    ]
    if odd:
        lines.append(style.dim(", ".join(odd)))
    for failed in value.get("failed") or []:
        name, reason = (failed.get("path"), failed.get("reason")) if isinstance(failed, Mapping) else failed
        lines.append(style.warn(f"not read: {path(str(name), style)}: {one_line(str(reason))}"))
    lines += [
        style.warn(f"waiting for {path(str(root), style)}: there is no such folder yet")
        for root in value.get("waiting") or []
    ]
    lines += [style.warn(one_line(str(note))) for note in value.get("notes") or []]
    return lines


def check(value: Value, style: Style) -> list[str]:
    return [*checks(value.get("checks") or [], style), _verdict(value.get("checks") or [], "Everything holds.", style)]


def prune_check(value: Value, style: Style) -> list[str]:
    found = value.get("checks") or []
    if not found:
        return ["Nothing to check."]
    return [*checks(found, style), _verdict(found, "The last prune is sound.", style)]


def _verdict(found: Sequence[Value], sound: str, style: Style) -> str:
    bad = sum(1 for one in found if not one.get("ok"))
    return style.bad(f"{plural(bad, 'check')} failed.") if bad else sound


def checks(found: Sequence[Value], style: Style) -> list[str]:
    """Each with its sign, how much it looked at, and what it says, which is never cut: it may be what is to be done."""
    names = [one_line(str(one.get("id"))) for one in found]
    figures = [f"{count(one.get('tested') or 0)} tested" for one in found]
    name, figure = (max(map(cells, texts), default=0) for texts in (names, figures))
    lines = []
    for one, called, tested in zip(found, names, figures, strict=True):
        mark = style.good("✓") if one.get("ok") else style.bad("✗")
        failed = style.bad(f"{count(one['failed'])} failed: ") if one.get("failed") else ""
        said = f"{failed}{homely(one_line(str(one.get('message') or '')), style)}"
        left = f"{mark} {called}{' ' * (name - cells(called))}  {tested:>{figure}}  "
        lines += style.fold(left + said, cells(left))
    return lines
