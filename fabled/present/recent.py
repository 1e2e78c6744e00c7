"""Where was I, every project, a file's changes and what recalled what, as a person reads them.

Which threads and changes these are is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.terminal import Style, cells, count, day, fit, moment, one_line, pad, path, plural, short, visible

Value = Mapping[str, Any]

_FILES = 4
_SIGNS = {"asks": "asks", "failed": "failed", "interrupted": "interrupted", "unanswered": "no answer",
          "unfinished": "stopped half way"}  # fmt: skip


def recent(value: Value, style: Style) -> list[str]:
    rows = value.get("results") or []
    scope = value.get("scope") or {}
    project = str(scope.get("project") or "")
    where = f"project {path(project, style)}  (--all for every project)" if project else "all projects"
    if scope.get("by") == "session":
        where = "one session"
    if not rows:
        return ["No threads." if scope.get("known") is False else f"No threads: {where}."]
    lines = [
        style.dim(
            f"the last {plural(len(rows), 'thread')}, {where}"
            if value.get("more")
            else f"{plural(len(rows), 'thread')}, {where}"
        ),
        "",
    ]
    ids = max(len(short(str(row["thread"]))) for row in rows)
    days = max(len(day(row.get("last_ts"), style)) for row in rows)
    for row in rows:
        lines += _thread(row, ids, days, not project and scope.get("by") != "session", style)
    lines += _wall(value.get("wall"), style)
    first = rows[0]
    lines += ["", style.dim(f"Open one:  fabled thread {short(str(first['thread']))}")]
    if first.get("resume"):
        lines.append(style.dim(f"Go on:     {one_line(str(first['resume']))}"))
    return lines


def _thread(row: Value, ids: int, days: int, with_project: bool, style: Style) -> list[str]:
    title = one_line(str(row.get("title") or "")) or "(no title)"
    if with_project:
        title = f"{_last_part(row.get('project'))}: {title}".removeprefix(": ")
    if row.get("after_compaction"):
        title = f"{title} (after a compaction)"
    right = plural(row.get("turns", 0), "turn")
    if row.get("behind_wall"):
        right = f"behind the wall  {right}"
    lead = f"{pad(short(str(row['thread'])), ids)}  {day(row.get('last_ts'), style):<{days}}  "
    room = max(8, style.width - 1 - cells(lead) - 2 - len(right))
    lines = [f"{style.id(lead[:ids])}{lead[ids:]}{style.bold(pad(title, room))}  {style.dim(right)}"]
    indent = " " * (ids + 2)
    if row.get("open"):
        lines.append(indent + _open(row["open"], style.width - 1 - len(indent), style))
    files = [_shown(str(one), row.get("project"), style) for one in row.get("files") or []]
    if files:
        more = (row.get("files_total") or len(files)) - _FILES
        text = ", ".join(files[:_FILES]) + (f" and {count(more)} more" if more > 0 else "")
        lines.append(indent + style.dim(fit(text, style.width - 1 - len(indent))))
    return lines


def _open(end: Value, room: int, style: Style) -> str:
    sign = _SIGNS.get(str(end.get("kind")), "open")
    tool = f" {one_line(str(end['tool']))}" if end.get("tool") and end.get("kind") != "asks" else ""
    said = one_line(str(end.get("text") or ""))
    text = fit(f"{sign}{tool}: {said}" if said else f"{sign}{tool}", room)
    return style.warn(text)


def _wall(wall: Any, style: Style) -> list[str]:
    """What went behind the last compaction."""
    if not isinstance(wall, Mapping) or not wall.get("threads"):
        return []
    tokens = f", {count(wall['tokens_before'])} tokens" if wall.get("tokens_before") else ""
    head = (
        f"Behind the wall: session {short(str(wall.get('session_id') or ''))} was compacted at "
        f"{day(wall.get('ts'), style)}{tokens}"
    )
    threads = wall["threads"]
    if (wall.get("total") or 0) > len(threads):
        head += f"; the last {len(threads)} of {plural(wall['total'], 'thread')}"
    lines = ["", style.dim(head)]
    for row in threads:
        lead = f"  {short(str(row['thread']))}  {day(row.get('last_ts'), style)}  "
        right = plural(row.get("turns", 0), "turn") + ("  (its end is still in view)" if row.get("in_view") else "")
        room = max(8, style.width - 1 - cells(lead) - 2 - len(right))
        title = one_line(str(row.get("title") or "")) or "(no title)"
        lines.append(f"{style.id(lead)}{pad(title, room)}  {style.dim(right)}")
    return lines


def overview(value: Value, style: Style) -> list[str]:
    rows = value.get("results") or []
    if not rows:
        return ["No projects."]
    head = (
        f"{plural(value.get('total', len(rows)), 'project')}, {plural(value.get('sessions', 0), 'session')}, "
        f"{plural(value.get('threads', 0), 'thread')}"
    )
    if value.get("open"):
        head += f", {plural(value['open'], 'open end')}"
    lines = [style.dim(head), ""]
    days = max(len(day(row.get("last_ts"), style)) for row in rows)
    for row in rows:
        right = f"{plural(row.get('sessions', 0), 'session')}  {plural(row.get('threads', 0), 'thread'):>13}"
        lead = f"{day(row.get('last_ts'), style):<{days}}  "
        room = max(8, style.width - 1 - cells(lead) - 2 - len(right))
        name = path(str(row.get("project") or ""), style) or "(no project)"
        lines.append(f"{lead}{style.bold(pad(name, room))}  {style.dim(right)}")
        indent = " " * (days + 2)
        ends = row.get("open") or []
        for one in ends:
            lead = f"{short(str(one['thread']))}  "
            lines.append(
                f"{indent}{style.id(lead)}" + _open(one["open"], style.width - 1 - len(indent) - len(lead), style)
            )
        last = row.get("last")
        if last and all(one["thread"] != last["thread"] for one in ends):
            lead = f"{short(str(last['thread']))}  "
            title = one_line(str(last.get("title") or "")) or "(no title)"
            lines.append(f"{indent}{style.id(lead)}" + fit(title, style.width - 1 - len(indent) - len(lead)))
    more = (value.get("total") or 0) - (value.get("offset") or 0) - len(rows)
    if more > 0:
        lines += ["", style.dim(f"{count(more)} more:  --limit {value['total']}")]
    return [*lines, "", style.dim("One of them:  fabled recent --project NAME")]


def file(value: Value, style: Style) -> list[str]:
    rows = value.get("results") or []
    if not rows:
        lines = [f"No change of {one_line(str(value.get('path') or ''))} by a tool is known."]
        if value.get("read"):
            lines.append(f"It was only read, {count(value['read'])} times.")
        return lines
    paths = value.get("paths") or []
    total = value.get("total") or len(rows)
    shown = plural(total, "change") if total == len(rows) else f"the last {len(rows)} of {plural(total, 'change')}"
    name = path(str(paths[0]), style) if len(paths) == 1 else f"{len(paths)} files that end so"
    lines = [style.dim(f"{shown}, {name}"), ""]
    ids = max(len(short(str(row["thread"]))) for row in rows)
    days = max(len(day(row.get("ts"), style)) for row in rows)
    tools = max(len(one_line(str(row.get("tool") or ""))) for row in rows)
    before = None
    for row in rows:
        if row["thread"] != before:
            lines.append(style.bold(fit(one_line(str(row.get("title") or "")) or "(no title)", style.width - 1)))
            before = row["thread"]
        lines += _change(row, (ids, days, tools), len(paths) > 1, style)
    last = rows[-1]
    return [
        *lines,
        "",
        style.dim(
            f"Read one:  fabled thread {short(str(last['thread']))} --around "
            f"{short(str(last['uuid']).partition('@')[0])}"
        ),
    ]


def _change(row: Value, widths: Sequence[int], with_path: bool, style: Style) -> list[str]:
    ids, days, tools = widths
    amount = f"+{row.get('added', 0)} -{row.get('removed', 0)}"
    said = one_line(str(row.get("summary") or ""))
    if row.get("outcome") == "failed":
        said = f"failed: {one_line(str(row.get('error') or said))}"
    elif row.get("outcome") == "unanswered":
        said = f"(no result) {said}"
    if with_path:
        said = f"{_shown(str(row.get('path') or ''), row.get('project'), style)}: {said}"
    if row.get("subagent"):
        said = f"{said} (subagent)"
    lead = (
        f"  {pad(short(str(row['thread'])), ids)}  {day(row.get('ts'), style):<{days}}  "
        f"{one_line(str(row.get('tool') or '')):<{tools}}  {amount:>11}  "
    )
    block = short(str(row.get("block") or ""))
    room = max(8, style.width - 1 - cells(lead) - 2 - len(block))
    text = pad(said, room)
    lines = [f"{lead}{style.bad(text) if row.get('outcome') == 'failed' else text}  {style.dim(block)}"]
    if row.get("diff"):
        lines += _diff(row, style)
    return lines


def _diff(row: Value, style: Style) -> list[str]:
    name = one_line(str(row.get("path") or ""))
    lines = [
        style.dim(f"--- a/{name.lstrip('/')}"),
        style.dim(f"+++ b/{name.lstrip('/')}\t{moment(row.get('ts'), style)}  block {row.get('block')}"),
    ]
    for line in visible(str(row["diff"])).split("\n"):
        lines.append(style.good(line) if line[:1] == "+" else style.bad(line) if line[:1] == "-" else line)
    return [*lines, ""]


def citations(value: Value, style: Style) -> list[str]:
    """What a thread was handed, and who was handed it."""
    lines = []
    for key, what in (("recalled", "Recalled here"), ("recalled_by", "Recalled by")):
        for row in (value.get(key) or [])[:8]:
            id_ = row.get("thread")
            title = one_line(str(row.get("title") or ""))
            if id_:
                text = f"{what}:  fabled thread {short(str(id_))}   {day(row.get('last_ts'), style)}  {title}"
            elif row.get("ref"):
                text = f"{what}:  {one_line(str(row['ref']))}   (not known here)"
            else:
                text = f"{what}:  session {short(str(row.get('session_id') or ''))}"
            lines.append(fit(text.rstrip(), style.width - 1))
        more = len(value.get(key) or []) - 8
        if more > 0:
            lines.append(f"{what}:  {count(more)} more (--json)")
    return lines


def _shown(name: str, project: Any, style: Style) -> str:
    """A path as seen from its project."""
    top = str(project or "").rstrip("/\\")
    if top and name.startswith((top + "/", top + "\\")):
        return one_line(name[len(top) + 1 :])
    return path(name, style)


def _last_part(project: Any) -> str:
    return one_line(str(project or "").replace("\\", "/").rstrip("/").rpartition("/")[2])
