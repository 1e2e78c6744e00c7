"""What a prune or a rewrite cost a session, thread by thread.

What went, and which states are compared, is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.keep import change, context
from fabled.present.terminal import Style, cells, count, day, fit, one_line, pad, plural, short, size, tokens

Value = Mapping[str, Any]


def diff(value: Value, style: Style) -> list[str]:
    before, after = value.get("before_bytes") or 0, value.get("after_bytes") or 0
    lines = [
        f"{style.id(short(str(value.get('session_id'))))}  {one_line(str(value.get('a')))} → "
        f"{one_line(str(value.get('b')))}   {size(before)} → {size(after)}  ({change(before, after)})"
    ]
    lines += [style.dim(line) for line in (context(value), _sums(value)) if line]
    threads = value.get("threads") or []
    if not threads:
        return [*lines, "No record differs."]
    for thread in threads:
        lines += _thread(thread, style)
    first = next((block["id"] for thread in threads for block in thread.get("blocks") or []), None)
    if first is not None:
        lines += ["", style.dim(f"Open one:  fabled block {_block_id(str(first))}")]
    return lines


def _sums(value: Value) -> str:
    """What went, shrank and came, as far as there is any of it."""
    parts = []
    for name, word in (("removed", "removed"), ("reduced", "reduced"), ("rewritten", "rewritten"), ("added", "added")):
        sums = value.get(name) or {}
        if sums.get("records"):
            cost = f", {tokens(sums['tokens'])}" if sums.get("tokens") and sums["tokens"] > 0 else ""
            parts.append(f"{word} {plural(sums['records'], 'record')} ({size(abs(sums.get('bytes') or 0))}{cost})")
    return "  ".join(parts)


def _thread(thread: Value, style: Style) -> list[str]:
    id_ = short(str(thread["thread"])) if thread.get("thread") else "—"
    when = day(thread["last_ts"], style) if thread.get("last_ts") is not None else ""
    head = "  ".join(part for part in (f"{id_:<8}", f"{when:<8}" if when else "") if part)
    title = fit(one_line(str(thread.get("title") or "")) or "(no title)", max(style.width - 3 - cells(head), 8))
    lines = ["", f"{style.id(head[: len(id_)])}{head[len(id_) :]}  {style.bold(title)}"]
    sums = _sums(thread)
    lines += [f"  {style.dim(sums)}"] if sums else []
    blocks = thread.get("blocks") or []
    names = [_block_id(str(block.get("id"))) for block in blocks]
    width = min(max(map(cells, names), default=0), max(style.width - 40, 24))
    for name, block in zip(names, blocks, strict=True):
        cost = f"  {tokens(block['tokens'])}" if block.get("tokens") else ""
        what = one_line(str(block.get("what"))) + (f" ({one_line(str(block['tool']))})" if block.get("tool") else "")
        rest = f"{pad(what, 28)} {size(block.get('bytes') or 0):>8}{cost}"
        # A shortened name would open nothing: rather the line is too long.
        lines.append(f"    {name}{' ' * max(width - cells(name), 0)}  {style.dim(rest)}")
    more = (thread.get("blocks_total") or 0) - len(blocks)
    if more > 0:
        lines.append(style.dim(f"    and {count(more)} smaller ones (--limit 0 shows all)"))
    return lines


def _block_id(id_: str) -> str:
    """A shortened id that still opens: the beginning of the uuid, its session where it has one, and the whole path."""
    name, mark, place = one_line(id_).partition("#")
    return f"{short(name)}{mark}{place}"
