"""What is kept of sessions, what a prune does or would do, and how it is taken back.

The figures come as they are; whether a step is allowed is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabled.present.columns import cells, fold, middle, pad, whole, widest
from fabled.present.terminal import Style, clock, count, day, one_line, path, plural, short, size, tokens

Value = Mapping[str, Any]

SHOWN = 8
"""Refusals, failed files, blocks of a thread: so many of them, then how many more."""
NARROW = 72


# ── capture and generations ─────────────────────────────────────────────────────────────────────────────────────


def capture(value: Value, style: Style) -> list[str]:
    lines: list[str] = []
    table: list[tuple[str, ...]] = []
    sessions = value.get("sessions") or []
    for one in sessions:
        made = one.get("generations") or []
        if not made:
            continue
        names = [one_line(str(kept.get("generation"))) for kept in made if not kept.get("part")]
        beside = sum(1 for kept in made if kept.get("part"))
        what = " and ".join([*names, *([plural(beside, "file") + " beside it"] if beside else [])])
        table.append((short(str(one.get("session_id"))), what, *_amounts(made)))
    # What each takes packed is told of all of them below.
    columns = range(4 if style.width >= NARROW else 3)
    widths = [widest([row[at] for row in table]) for at in columns]
    for row in table:
        id_, what, *amounts = (pad(row[at], widths[at], right=at > 1) for at in columns)
        lines.append(f"{style.id(id_)}  {what}  {style.dim('  '.join(amounts))}")
    captured, unchanged = value.get("captured") or 0, value.get("unchanged") or 0
    took = f" in {value.get('seconds') or 0:.1f} s"
    if captured:
        lines.append(f"{plural(captured, 'file')} kept, {_packed([value])}{took}; {count(unchanged)} unchanged.")
    else:
        lines.append(f"Nothing to keep: {plural(unchanged, 'file')} unchanged since the last time{took}.")
    retired = sum(len(one.get("retired") or []) for one in sessions)
    if retired:
        lines.append(style.dim(_retired(retired)))
    return lines + _failed([bad for one in sessions for bad in one.get("failed") or []], style)


def _packed(rows: Sequence[Value]) -> str:
    return " ".join(_amounts(rows))


def _amounts(rows: Sequence[Value]) -> tuple[str, str]:
    logical, packed = (sum(row.get(key) or 0 for row in rows) for key in ("logical_bytes", "bytes"))
    return size(logical), f"({size(packed)} packed)"


def _retired(number: int) -> str:
    return f"{plural(number, 'older generation')} removed: newer ones begin with all their bytes"


def _failed(failed: Sequence[Value], style: Style) -> list[str]:
    lines = [
        style.bad(f"not kept: {path(str(bad.get('path')), style)}: {one_line(str(bad.get('reason')))}")
        for bad in failed[:SHOWN]
    ]
    return lines + ([style.bad(f"and {count(len(failed) - SHOWN)} more")] if len(failed) > SHOWN else [])


def generations(value: Value, style: Style) -> list[str]:
    rows = value.get("generations") or []
    here = [row for row in rows if not row.get("retired")]
    if value.get("session_id") is None:
        return _kept_of_all(here, style)
    id_ = short(str(value["session_id"]))
    own, live = [row for row in here if not row.get("part")], value.get("live") or []
    table: list[tuple[str, ...]] = [("", "gen", "written", "size", "packed", "records", "full", "note")]
    table += [_state(row, "", style) for row in own] + [_state(row, "live", style) for row in live]
    lines = _columns(table, range(3, 7), (4, 5), style) if len(table) > 1 else []
    beside = [row for row in here if row.get("part")]
    if beside:
        files = len({row["part"] for row in beside})
        lines.append(
            style.dim(f"{plural(len(beside), 'generation')} of {plural(files, 'file')} beside it, {_packed(beside)}")
        )
    if len(here) < len(rows):
        lines.append(style.dim(_retired(len(rows) - len(here))))
    if not own:
        lines.append(f"Nothing of its transcript is kept yet.   Keep it:  fabled capture {id_}")
    return lines


def _state(row: Value, name: str, style: Style) -> tuple[str, ...]:
    """One state of a session in the order of the columns; `name` for the live transcript, which has no number."""
    at = row.get("at")
    when = day(at, style)
    if at is not None and ":" not in when and not style.utc:
        when = f"{when} {clock(at, style)}"
    records = row.get("records")
    notes = [one_line(str(row["reason"]))] if row.get("reason") else []
    if row.get("only"):
        notes.insert(0, f"only copy of {plural(row['only'], 'record')}")
    if row.get("missing"):
        notes.insert(0, "its file is missing")
    return (
        "▸" if name else "",
        name or one_line(str(row.get("generation"))),
        when,
        size(row.get("bytes" if name else "logical_bytes") or 0),
        "—" if name else size(row.get("bytes") or 0),
        "—" if records is None else count(records),
        f"{row.get('full', 0) * 100 // records}%" if records else "—",
        ", ".join(notes),
    )


def _columns(
    table: Sequence[tuple[str, ...]], right: range, left_out: Sequence[int], style: Style, names: bool = False
) -> list[str]:
    """A head and rows in columns, those `right` aligned to the right; some left out on a narrow terminal.

    The last column takes what is left: `names` without their middle, words on as many lines as it takes.
    """
    *shown, last = (at for at in range(len(table[0])) if style.width >= NARROW or at not in left_out)
    widths = {at: widest([row[at] for row in table]) for at in shown}
    lines = []
    for number, row in enumerate(table):
        left = "".join(pad(row[at], widths[at], right=at in right) + "  " for at in shown)
        room = style.width - 1 - cells(left)
        line = (left + (middle(row[last], max(6, room)) if names else row[last])).rstrip()
        lines += [style.dim(line)] if number == 0 else style.fold(line, cells(left))
    return lines


def _kept_of_all(rows: Sequence[Value], style: Style) -> list[str]:
    if not rows:
        return ["The Vault is empty.", style.dim("Keep what there is:  fabled capture")]
    sessions: dict[str, list[Value]] = {}
    for row in rows:
        sessions.setdefault(str(row.get("session_id")), []).append(row)
    ordered = sorted(sessions.items(), key=lambda one: -max(row.get("at") or 0 for row in one[1]))
    table: list[tuple[str, ...]] = [("session", "latest", "newest", "states", "files", "size", "packed", "project")]
    for session_id, kept in ordered:
        own = [row for row in kept if not row.get("part")]
        table.append(
            (
                short(session_id),
                day(max(row.get("at") or 0 for row in kept), style),
                one_line(str(own[-1].get("generation"))) if own else "—",
                count(len(own)),
                count(len({row.get("part") for row in kept})),
                size(sum(row.get("logical_bytes") or 0 for row in kept)),
                size(sum(row.get("bytes") or 0 for row in kept)),
                path(str(kept[0].get("project") or ""), style),
            )
        )
    lines = _columns(table, range(3, 7), (1, 4, 6), style, names=True)
    lines.append(style.dim(f"{plural(len(rows), 'generation')} of {plural(len(ordered), 'session')}: {_packed(rows)}"))
    lines.append(style.dim(f"One of them:  fabled generations {short(ordered[0][0])}"))
    return lines


# ── prune ───────────────────────────────────────────────────────────────────────────────────────────────────────


def prune(value: Value, style: Style) -> list[str]:
    id_, level = short(str(value.get("session_id"))), one_line(str(value.get("level") or "gentle"))
    before, after = value.get("before_bytes") or 0, value.get("after_bytes") or 0
    if value.get("applied"):
        return _pruned(value, id_, before, after, style)
    if _refused(value) and not value.get("rules"):
        return _refusal(value, style)
    lines = [f"Plan for {style.id(id_)}  {style.dim(f'({level}, {size(before)})')}", "", *_rules(value, style), ""]
    lines += _proofs(value, style)
    if _refused(value):
        return [*lines, *_refusal(value, style)]
    asked = whole(f"fabled prune {id_}{'' if level == 'gentle' else f' --level {level}'} --apply")
    return [*lines, "", f"Nothing was changed.  Do it:  {asked}"]


def _pruned(value: Value, id_: str, before: int, after: int, style: Style) -> list[str]:
    lines = [
        *_rules(value, style),
        "",
        f"{size(before)} → {size(after)}  ({change(before, after)})   {value.get('seconds') or 0:.1f} s",
        f"Kept as {one_line(str(value.get('generation')))}.   Undo:  {whole(f'fabled undo {id_} --apply')}",
        style.dim(f"What it took out:  fabled diff {id_}"),
    ]
    return lines


def _rules(value: Value, style: Style) -> list[str]:
    """What each rule takes out, and what is left."""
    before, after = value.get("before_bytes") or 0, value.get("after_bytes") or 0
    rows: list[tuple[str, ...]] = [
        (
            one_line(str(rule.get("reason") or rule.get("rule"))),
            count(rule.get("records") or 0),
            size(rule.get("bytes") or 0),
            _share(rule.get("bytes") or 0, before),
        )
        for rule in value.get("rules") or []
    ]
    if not rows:
        return []
    last = ("after", "", size(after), change(before, after))
    head = ("rule", "records", "saved", "of file")
    widths = [max(cells(row[at]) for row in (head, *rows, last)) for at in range(4)]
    room = max(12, style.width - 3 - sum(widths[1:]) - 6)
    widths[0] = min(widths[0], room)
    lines = [style.dim("  " + _figures(head, widths))]
    for row in rows:
        first, *more = fold(row[0], widths[0], 2)
        lines += ["  " + _figures((first, *row[1:]), widths), *("  " + one for one in more)]
    lines += [style.dim("  " + "─" * (sum(widths) + 6)), "  " + _figures(last, widths)]
    said = context(value)
    return lines + ([f"  {said}"] if said else [])


def _figures(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    figures = (pad(text, width, right=True) for text, width in zip(others, widths[1:], strict=True))
    return "  ".join([pad(first, widths[0]), *figures])


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "—"


def change(before: float, after: float) -> str:
    if before == after:
        return "the same size"
    return f"{100 * (after - before) / before:+.1f} %" if before else "—"


def context(value: Value) -> str:
    """What the next resume sends, in words."""
    before, after = value.get("est_tokens_before"), value.get("est_tokens_after")
    if not before and not after:
        return ""
    if before == after:
        return f"context: the same on resume ({tokens(after or 0)})"
    return f"context: {tokens(before or 0)} → {tokens(after or 0)} on resume"


def _proofs(value: Value, style: Style) -> list[str]:
    """What was proven, and what was not."""
    found = value.get("invariants") or []
    broken = [one for one in found if not one.get("ok")]
    lines = []
    if found and not broken:
        lines.append(f"  {style.good('✓')} proven: {plural(len(found), 'invariant')} hold for the result")
    if not _refused(value):
        lines.append(f"  {style.good('✓')} every byte goes into the Vault first, and is read back there")
    lines += [
        f"  {style.bad('✗')} {one_line(str(one.get('id')))}: {one_line(str(one.get('message') or ''))}"
        for one in broken[:SHOWN]
    ]
    return lines + [style.dim(f"  {one_line(str(note))}") for note in value.get("notes") or []]


def _refused(value: Value) -> list[Value]:
    return list(value.get("refused") or [])


def _refusal(value: Value, style: Style) -> list[str]:
    refused = _refused(value)
    lines = [style.warn(f"Refused: {_sentence(one)}") for one in refused[:SHOWN]]
    if len(refused) > SHOWN:
        lines.append(style.warn(f"and {count(len(refused) - SHOWN)} more reasons"))
    return [*lines, "Nothing was changed."]


def _sentence(one: Value) -> str:
    said = one_line(str(one.get("message") or one.get("code") or ""))
    return said if said.endswith((".", "!", "?")) else f"{said}."


# ── restore and undo ────────────────────────────────────────────────────────────────────────────────────────────


def restore(value: Value, style: Style) -> list[str]:
    return _put_back(value, _asked_for(value), style)


def undo(value: Value, style: Style) -> list[str]:
    return _put_back(value, f"fabled undo {short(str(value.get('session_id')))} --apply", style)


def _asked_for(value: Value) -> str:
    """The command that does what a dry run of `restore` told of."""
    asked = value.get("asked") or {}
    words = ["fabled restore", one_line(str(asked.get("session") or short(str(value.get("session_id")))))]
    words += ["--full"] if asked.get("full") else []
    words += [f"--to {_quoted(one_line(str(asked['to'])))}"] if asked.get("to") else []
    return " ".join([*words, "--apply"])


def _quoted(name: str) -> str:
    plain = name.replace("/", "").replace(".", "").replace("-", "").replace("_", "")
    return name if plain.isalnum() else "'" + name.replace("'", "'\\''") + "'"


def _put_back(value: Value, asked: str, style: Style) -> list[str]:
    refused, applied = _refused(value), bool(value.get("applied"))
    before, after = value.get("before_bytes") or 0, value.get("after_bytes") or 0
    lines = []
    if applied or (after and all(one.get("code") != "nothing" for one in refused)):
        source = one_line(str(value.get("source") or "nothing"))
        name = "everything that was ever kept" if source == "full" else source
        verb = "Put back" if applied else "Would put back"
        lines.append(
            f"{verb} {name} of {style.id(short(str(value.get('session_id'))))} into "
            f"{path(str(value.get('path') or ''), style)}"
        )
        parts = [f"{size(before)} → {size(after)}" if before else size(after)]
        if value.get("lines_restored"):
            parts.append(f"{plural(value['lines_restored'], 'line')} put back")
        if value.get("lines_kept"):
            parts.append(f"{plural(value['lines_kept'], 'line')} written since {'kept' if applied else 'stay'}")
        lines.append(f"  {', '.join(parts)}")
        said = context(value)
        lines += [f"  {said}"] if said else []
        side = value.get("side_files") or []
        if side:
            lines.append(
                f"  with {plural(len(side), 'file')} beside it that {'was' if len(side) == 1 else 'were'} missing"
            )
        if value.get("generation") and applied:
            lines.append(f"  what was there before is kept as {one_line(str(value['generation']))}")
    if refused and not applied:
        return [*lines, *_refusal(value, style)]
    return lines if applied else [*lines, f"Nothing was changed.  Do it:  {whole(asked)}"]
