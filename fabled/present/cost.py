"""What a prune or a rewrite cost a session, thread by thread.

What went, and which states are compared, is decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.columns import cells, fit, pad, whole, widest
from fabled.present.keep import change, context
from fabled.present.terminal import Style, Verbatim, count, day, one_line, plural, short, size, tokens

Value = Mapping[str, Any]


def diff(value: Value, style: Style) -> list[str]:
    before, after = value.get("before_bytes") or 0, value.get("after_bytes") or 0
    lines = [
        f"{style.id(short(str(value.get('session_id'))))}  {one_line(str(value.get('a')))} → "
        f"{one_line(str(value.get('b')))}   {size(before)} → {size(after)}  ({change(before, after)})"
    ]
    lines += [part for line in (context(value), _sums(value)) if line for part in style.fold(style.dim(line), 0)]
    threads = value.get("threads") or []
    if not threads:
        return [*lines, "No record differs."]
    for thread in threads:
        lines += _thread(thread, style)
    first = next((block["id"] for thread in threads for block in thread.get("blocks") or []), None)
    if first is not None:
        lines += ["", style.dim(f"Open one:  {whole(f'fabled block {_block_id(str(first))}')}")]
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
    lines += style.fold(f"  {style.dim(sums)}", 2) if sums else []
    blocks = thread.get("blocks") or []
    names = [_block_id(str(block.get("id"))) for block in blocks]
    whats = [_what(block) for block in blocks]
    sizes = [size(block.get("bytes") or 0) for block in blocks]
    costs = [f"  {tokens(block['tokens'])}" if block.get("tokens") else "" for block in blocks]
    rests = [
        f"{pad(what, widest(whats))}  {amount:>{widest(sizes)}}{cost}"
        for what, amount, cost in zip(whats, sizes, costs, strict=True)
    ]
    beside = widest(names) + widest(rests) + 6 <= style.width
    for name, rest in zip(names, rests, strict=True):
        # A shortened name would open nothing: rather it stands on a line of its own.
        if beside:
            lines.append(f"    {pad(name, widest(names))}  {style.dim(rest)}")
        else:
            lines += [Verbatim(f"    {name}"), f"      {style.dim(rest)}"]
    more = (thread.get("blocks_total") or 0) - len(blocks)
    if more > 0:
        lines.append(style.dim(f"    and {count(more)} smaller ones (--limit 0 shows all)"))
    return lines


def _what(block: Value) -> str:
    tool = f" ({one_line(str(block['tool']))})" if block.get("tool") else ""
    return fit(one_line(str(block.get("what"))) + tool, 40)


def _block_id(id_: str) -> str:
    """A shortened id that still opens: the beginning of the uuid, its session where it has one, and the whole path."""
    name, mark, place = one_line(id_).partition("#")
    return f"{short(name)}{mark}{place}"
