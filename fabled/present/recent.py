"""Where was I, every project, a file's changes and what recalled what, as a person reads them.

Which threads and changes these are is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.columns import cells, fit, middle, pad, title_width, whole, widest
from fabled.present.terminal import (
    Style,
    Verbatim,
    count,
    day,
    moment,
    one_line,
    path,
    plural,
    plurals,
    short,
    visible,
)

Value = Mapping[str, Any]

_FILES = 4
_SIGNS = {"asks": "asks", "failed": "failed", "interrupted": "interrupted", "unanswered": "no answer",
          "unfinished": "stopped half way"}  # fmt: skip


def recent(value: Value, style: Style) -> list[str]:
    rows = value.get("results") or []
    scope = value.get("scope") or {}
    project = str(scope.get("project") or "")
    where = (
        f"project {middle(path(project, style), max(12, style.width - 24))}  (--all for every project)"
        if project
        else "all projects"
    )
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
    ids = widest(short(str(row["thread"])) for row in rows)
    days = widest(day(row.get("last_ts"), style) for row in rows)
    titles = [_title(row, not project and scope.get("by") != "session") for row in rows]
    right = plurals([row.get("turns") or 0 for row in rows], "turn")
    if any(row.get("behind_wall") for row in rows):
        right = [
            f"{'behind the wall' if row.get('behind_wall') else '':<15}  {turns}"
            for row, turns in zip(rows, right, strict=True)
        ]
    room = title_width(titles, style.width - 1 - ids - days - 6 - widest(right))
    for row, title, figures in zip(rows, titles, right, strict=True):
        lead = f"{style.id(pad(short(str(row['thread'])), ids))}  {day(row.get('last_ts'), style):<{days}}  "
        lines.append(f"{lead}{style.bold(pad(title, room))}  {style.dim(figures)}")
        lines += _below(row, " " * (ids + 2), style)
    lines += _wall(value.get("wall"), style)
    first = rows[0]
    lines += ["", style.dim(f"Open one:  fabled thread {short(str(first['thread']))}")]
    if first.get("resume"):
        lines += [style.dim(line) for line in resume(str(first["resume"]), "Go on:     ", style)]
    return lines


def resume(command: str, lead: str, style: Style) -> list[str]:
    """The command that takes a session up again, as one to be copied: on two lines where one does not hold it."""
    command = one_line(command)
    home = style.home.rstrip("/")
    if home and command.startswith(f"cd {home}/"):
        command = command.replace(f"cd {home}/", "cd ~/", 1)
    if not style.folds or cells(lead) + cells(command) <= style.width:
        return [lead + whole(command)]
    folder, and_, last = command.rpartition(" && ")
    parts = [whole(f"{folder} &&"), whole(last)] if and_ else [whole(last)]
    if cells(lead) + cells(last) > style.width:  # what stands before must not push it over the edge
        return [*([lead.rstrip()] if lead.strip() else []), *parts]
    return [lead + parts[0], *(" " * cells(lead) + part for part in parts[1:])]


def _title(row: Value, with_project: bool) -> str:
    title = one_line(str(row.get("title") or "")) or "(no title)"
    if with_project:
        title = f"{_last_part(row.get('project'))}: {title}".removeprefix(": ")
    return f"{title} (after a compaction)" if row.get("after_compaction") else title


def _below(row: Value, indent: str, style: Style) -> list[str]:
    """What was left open in a thread, and the files it changed."""
    lines = []
    if row.get("open"):
        lines.append(indent + _open(row["open"], style.width - 1 - len(indent), style))
    files = [_shown(str(one), row.get("project"), style) for one in row.get("files") or []]
    if files:
        more = (row.get("files_total") or len(files)) - _FILES
        tail = f" and {count(more)} more" if more > 0 else ""
        room = style.width - 1 - len(indent) - len(tail)
        files = files[:_FILES]
        if cells(", ".join(files)) > room:
            files = [middle(name, max(16, room // len(files) - 2)) for name in files]
        lines.append(indent + style.dim(fit(", ".join(files), max(8, room)) + tail))
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
    turns = plurals([row.get("turns") or 0 for row in threads], "turn")
    right = [f"{said}{'  in view' if row.get('in_view') else ''}" for row, said in zip(threads, turns, strict=True)]
    leads = [f"  {short(str(row['thread']))}  {day(row.get('last_ts'), style)}  " for row in threads]
    titles = [one_line(str(row.get("title") or "")) or "(no title)" for row in threads]
    room = title_width(titles, style.width - 1 - widest(leads) - 2 - widest(right))
    for lead, title, said in zip(leads, titles, right, strict=True):
        lines.append(f"{style.id(pad(lead, widest(leads)))}{pad(title, room)}  {style.dim(said)}")
    if any(row.get("in_view") for row in threads):
        lines.append(style.dim("  in view: the client still has its end"))
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
    days = widest(day(row.get("last_ts"), style) for row in rows)
    names = [path(str(row.get("project") or ""), style) or "(no project)" for row in rows]
    counted = [plurals([row.get(key) or 0 for row in rows], key.removesuffix("s")) for key in ("sessions", "threads")]
    right = ["  ".join(pair) for pair in zip(*counted, strict=True)]
    room = title_width(names, style.width - 1 - days - 4 - widest(right))
    indent = " " * (days + 2)
    for row, name, figures in zip(rows, names, right, strict=True):
        lead = f"{day(row.get('last_ts'), style):<{days}}  "
        lines.append(f"{lead}{style.bold(pad(middle(name, room), room))}  {style.dim(figures)}")
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
            lines.append(f"It was only read, {plural(value['read'], 'time')}.")
        return lines
    paths = value.get("paths") or []
    total = value.get("total") or len(rows)
    shown = plural(total, "change") if total == len(rows) else f"the last {len(rows)} of {plural(total, 'change')}"
    name = path(str(paths[0]), style) if len(paths) == 1 else f"{len(paths)} files that end so"
    name = middle(name, max(16, style.width - cells(shown) - 2))
    lines = [style.dim(f"{shown}, {name}"), ""]
    widths = [
        widest(short(str(row["thread"])) for row in rows),
        widest(day(row.get("ts"), style) for row in rows),
        widest(one_line(str(row.get("tool") or "")) for row in rows),
        widest(_amount(row) for row in rows),
    ]
    before = None
    for row in rows:
        if row["thread"] != before:
            lines.append(style.bold(fit(one_line(str(row.get("title") or "")) or "(no title)", style.width - 1)))
            before = row["thread"]
        lines += _change(row, widths, len(paths) > 1, style)
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
    ids, days, tools, amounts = widths
    said = one_line(str(row.get("summary") or ""))
    if row.get("outcome") == "failed":
        said = f"failed: {one_line(str(row.get('error') or said))}"
    elif row.get("outcome") == "unanswered":
        said = f"(no result) {said}"
    if row.get("subagent"):
        said = f"{said} (subagent)"
    lead = (
        f"  {pad(short(str(row['thread'])), ids)}  {day(row.get('ts'), style):<{days}}  "
        f"{pad(one_line(str(row.get('tool') or '')), tools)}  {pad(_amount(row), amounts, right=True)}  "
    )
    block = short(str(row.get("block") or ""))
    beside = style.width - 1 - cells(lead) - cells(block) - 2
    # Where there is no room beside the figures, what changed stands on a line of its own.
    room = beside if beside >= 24 else style.width - 1 - 4
    if with_path:
        name = middle(_shown(str(row.get("path") or ""), row.get("project"), style), max(12, room * 2 // 3))
        said = f"{name}: {said}"
    said = fit(said, room)
    text = style.bad(said) if row.get("outcome") == "failed" else said
    if beside >= 24:
        lines = [f"{lead}{style.dim(pad(block, 8))}  {text}"]
    else:
        lines = [f"{lead}{style.dim(block)}", f"    {text}"]
    if row.get("diff"):
        lines += _diff(row, style)
    return lines


def _diff(row: Value, style: Style) -> list[str]:
    name = one_line(str(row.get("path") or ""))
    lines = [
        style.dim(f"--- a/{name.lstrip('/')}"),
        style.dim(f"+++ b/{name.lstrip('/')}\t{moment(row.get('ts'), style)}  block {one_line(str(row.get('block')))}"),
    ]
    for line in visible(str(row["diff"])).split("\n"):
        lines.append(style.good(line) if line[:1] == "+" else style.bad(line) if line[:1] == "-" else line)
    return [*map(Verbatim, lines), ""]


def _amount(row: Value) -> str:
    return f"+{row.get('added') or 0} -{row.get('removed') or 0}"


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
