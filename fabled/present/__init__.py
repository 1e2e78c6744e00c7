"""Turns the value that answers a command into the text a person reads.

Pure: what a value holds is decided by `answers` and the daemon, where the text goes by the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fabled.present import about, asides, cost, doctor, find, forget, health, keep, lists, recent, stats
from fabled.present.asides import found, not_yet
from fabled.present.journal import log_line
from fabled.present.terminal import Style, finish, visible

__all__ = ["Style", "found", "log_line", "not_yet", "text", "visible"]

_COMMANDS: dict[str, Callable[[Mapping[str, Any], Style], list[str]]] = {
    "status": health.status,
    "index": health.index,
    "check": health.check,
    "search": find.search,
    "thread": find.thread,
    "block": find.block,
    "sessions": lists.sessions,
    "projects": lists.projects,
    "spans": lists.spans,
    "capture": keep.capture,
    "generations": keep.generations,
    "prune": keep.prune,
    "prune_check": health.prune_check,
    "restore": keep.restore,
    "undo": keep.undo,
    "diff": cost.diff,
    "statusline": health.statusline,
    "terms": about.terms,
    "cards": about.cards,
    "card": about.card,
    "cards_run": about.cards_run,
    "recent": recent.recent,
    "overview": recent.overview,
    "file": recent.file,
    "forget": forget.forget,
    "doctor": doctor.doctor,
    "stats": stats.stats,
    "forgotten": forget.forgotten,
}


def text(method: str, value: Mapping[str, Any], style: Style) -> str:
    """The whole answer of `method`, each line ended. `style.form` "plain" gives lists as tab-separated rows."""
    if style.form == "plain" and method in lists.PLAIN:
        return finish(lists.plain(method, value), style)
    below = [*asides.unknown(value, style), *([] if method == "status" else asides.indexing(value, style))]
    return finish([*_COMMANDS[method](value, style), *below], style)
