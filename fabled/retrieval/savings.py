"""What prunes took out of live transcripts and is still out: an undo takes its prune back, a restore the latest ones.

Pure; the journal is read by `figures`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..store.ledger import Entry


@dataclass(slots=True)
class Saving:
    """One prune, and how much of what it took out has not come back."""

    id: int
    session_id: str
    level: str
    at: int
    bytes: int
    made: int
    """bytes of the transcript it left"""
    rules: dict[str, int]
    """rule → bytes, as the prune counted them"""
    tokens: int
    """by which the next request became smaller, about"""


def savings(journal: Iterable[Entry]) -> list[Saving]:
    """The prunes that still save something, in the order in which they were made."""
    found: dict[str, list[Saving]] = defaultdict(list)
    for entry in journal:
        mine = found[entry.session_id]
        if entry.what == "prune" and entry.state in ("replaced", "done"):
            mine.append(_saving(entry))
        elif entry.what == "undo" and entry.state in ("linked", "replaced", "done"):
            undone = _report(entry).get("undoes")
            found[entry.session_id] = [one for one in mine if one.id != undone]
        elif entry.what == "restore" and entry.state in ("linked", "replaced", "done") and mine:
            _give_back(mine, _after(entry) - (entry.base_length or mine[-1].made))
    return sorted((one for mine in found.values() for one in mine if one.bytes > 0), key=lambda one: one.id)


def _saving(entry: Entry) -> Saving:
    report = _report(entry)
    before, after = report.get("tokens") or (0, 0)
    rules = {str(rule): int(size) for rule, _, size in report.get("rules") or ()}
    made = _after(entry)
    return Saving(
        entry.id, entry.session_id, entry.level, entry.at, entry.base_length - made, made, rules, max(0, before - after)
    )


def _after(entry: Entry) -> int:
    """The length of what was made of the part that was rewritten; what arrived meanwhile stands behind it."""
    return entry.made[0] or entry.new_length or 0


def _give_back(mine: list[Saving], size: int) -> None:
    """Bytes that came back are those that went last."""
    for one in reversed(mine):
        if size <= 0:
            return
        if one.bytes <= 0:
            continue
        back = min(size, one.bytes)
        one.rules = {rule: part * (one.bytes - back) // one.bytes for rule, part in one.rules.items()}
        one.tokens = one.tokens * (one.bytes - back) // one.bytes
        one.bytes -= back
        size -= back


def _report(entry: Entry) -> dict[str, Any]:
    value = json.loads(entry.report or "{}")
    return value if isinstance(value, dict) else {}
