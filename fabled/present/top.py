"""The live view: what runs, which sessions grow, what is asked.

How the figures move from one moment to the next is followed by the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.columns import cells, fit, pad
from fabled.present.health import status
from fabled.present.stats import spark
from fabled.present.terminal import Style, ago, count, duration, homely, one_line, path, plural, short, size

Value = Mapping[str, Any]

_PACE = "   appended "
_JOBS = {"sweep": "sweep", "keep": "look for what is to be kept or pruned"}
"""The jobs that somebody may wait for, in words."""


def top(value: Value, style: Style) -> list[str]:
    """`value`: `status`, and `sessions` that grew, `events` of late, `pace` of bytes."""
    told = value.get("status") or {}
    lines = [*style.fold(style.bold(_head(told)), 2), _work(told, value, style), ""]
    lines += _sessions(value.get("sessions") or [], style)
    lines += ["", _next(told, style)]
    events = value.get("events") or []
    if events:
        lines += ["", *(style.dim(fit(_event(one, style), style.width)) for one in events)]
    warnings = told.get("warnings") or []
    for one in warnings[:3]:
        lines += style.fold(style.warn(f"! {homely(one_line(str(one.get('message'))), style)}"), 2)
    return lines


def _head(told: Value) -> str:
    parts = [
        f"fabled {told.get('version', '')}",
        f"up {duration(told.get('uptime_s') or 0)}",
        f"rss {size(told.get('rss_bytes') or 0)}",
        f"cpu {told.get('cpu_percent') or 0:.1f} %",
        f"queue {count(told.get('queue') or 0)}",
    ]
    return "   ".join(parts)


def _work(told: Value, value: Value, style: Style) -> str:
    progress = told.get("progress")
    writer = str(told.get("phase") or "")
    if isinstance(progress, Mapping) and progress.get("bytes"):
        writer = f"indexing {100 * (progress.get('bytes_done') or 0) / progress['bytes']:.0f} %"
    queries = told.get("queries") or {}
    asked = f"queries {count(queries.get('per_minute') or 0)}/min"
    if queries.get("p95_ms") is not None:
        asked += f"  p95 {queries['p95_ms']:.0f} ms"
    pace = value.get("pace") or []
    said = f"writer {one_line(writer)}   {asked}"
    room = style.width - cells(said) - cells(_PACE)
    return said + (f"{_PACE}{spark(pace[-room:])}" if room >= 8 and any(pace) else "")


def _sessions(rows: Sequence[Value], style: Style) -> list[str]:
    if not rows:
        return [style.dim("  no session has grown since this began")]
    wide = style.width >= 76
    name = max(8, min(28, style.width - (56 if wide else 40)))
    head = f"  {'session':<9} {pad('project', name)} {'live':>9} {'growth/h':>10}"
    lines = [style.dim(head + ("  last event" if wide else ""))]
    for row in rows:
        project = str(row.get("project") or "").rstrip("/").rpartition("/")[2]
        growth = row.get("growth_per_hour") or 0
        line = (
            f"  {style.id(pad(short(str(row['session_id'])), 9))} {pad(one_line(project), name)} "
            f"{size(row.get('bytes') or 0):>9} {('+' + size(growth)) if growth else '—':>10}"
        )
        lines.append(line + (f"  {fit(_last(row, style), style.width - name - 34)}" if wide else ""))
    return lines


def _last(row: Value, style: Style) -> str:
    when = ago(row.get("at"), style)
    return f"{_added(row.get('added') or 0)}, {when}" if row.get("at") else ""


def _added(size_change: int) -> str:
    return f"+{size(size_change)}" if size_change >= 0 else f"-{size(-size_change)}"


def _next(told: Value, style: Style) -> str:
    jobs = [
        f"{_JOBS[one['id']]} in {duration(max(0, one['next_at'] - style.now), 1)}"
        for one in told.get("jobs") or []
        if one.get("next_at") and one.get("id") in _JOBS
    ]
    known = f"{plural(told.get('sessions') or 0, 'session')}, {plural(told.get('records') or 0, 'record')}"
    return "   ".join([known, *(["next: " + ", ".join(jobs)] if jobs else [])])


def _event(one: Value, style: Style) -> str:
    words = [f"{one.get('event')}"]
    if one.get("files"):
        words.append(plural(one["files"], "file"))
    grown = one.get("grown") or ()
    if grown:
        words.append(_added(sum(row.get("added") or 0 for row in grown)))
        words += dict.fromkeys(short(str(row.get("session_id"))) for row in grown[:4])
    elif one.get("session_id"):
        words.append(short(str(one["session_id"])))
    for name in ("mode", "state", "reason", "level"):
        if one.get(name):
            words.append(one_line(str(one[name])))
    paths = one.get("paths") or []
    if len(paths) == 1 and not grown:
        words.append(path(str(paths[0]), style))
    return f"  {ago(one.get('at'), style):>9}  {'  '.join(words)}"


def watched(value: Value, style: Style) -> list[str]:
    """`status` once more, with when that was."""
    from fabled.present.terminal import moment

    return [*status(value, style), "", style.dim(f"  {moment(style.now * 1000, style)[:20]}   Ctrl-C ends it")]
