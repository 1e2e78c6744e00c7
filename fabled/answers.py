"""One place where questions about the Map are answered, for the daemon and for a client that finds none running.

Each answer is a JSON value as the contract of the command line has it, without its version number; how it is printed
is left to `present`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from . import retrieval
from .errors import BadRequest, NotFound, Unreadable
from .recall import recall
from .retrieval import (
    Reader,
    block,
    diff,
    exported,
    file,
    forgotten,
    generations,
    overview,
    recent,
    report,
    resolved,
    search,
    stats,
    thread,
    threads_like,
)
from .retrieval.cards import card, cards, cards_due
from .retrieval.common import Params, iso, number_of, text_of
from .retrieval.scope import Scope, moment_of, scope_of
from .retrieval.terms import terms
from .retrieval.titles import session_titles

__all__ = ["METHODS", "Reader", "answer", "block_bytes", "resolved"]

UNPARSED_SHOWN = 20
NEAR_SHOWN = 20
CLEANUP_DAYS = 30
"""The client deletes transcripts this long after they were last written."""
NEAR_DAYS = 5
"""So long before that, a session that lies nowhere else is worth a warning (case A23)."""
_DAY_NS = 86_400 * 10**9


def answer(reader: Reader, method: str, params: Params) -> dict[str, Any]:
    """The answer to one question; raises the errors of `errors`."""
    asked = METHODS.get(method)
    if asked is None:
        raise BadRequest(f"there is no question {method[:80]!r}", f"known are {', '.join(METHODS)}")
    reader.queries.refresh()
    value = asked(reader, params)
    if method in _LISTS and reader.queries.empty():
        value["empty"] = True
    return value


def unfinished(reader: Reader) -> dict[str, Any]:
    """What an answer lacks where nobody goes on with an index that was begun; {} where it lacks nothing."""
    return {} if reader.queries.whole() else {"indexing": {"first": True, "under_way": False}}


def block_bytes(reader: Reader, params: Params) -> bytes:
    """Exactly the bytes of one record: the answer to `block` that no JSON can carry."""
    reader.queries.refresh()
    return retrieval.block_bytes(reader, params)


def sessions(reader: Reader, params: Params) -> dict[str, Any]:
    """The sessions, the latest first, with their titles."""
    rows, scope = _listed(reader, params)
    offset = number_of(params, "offset", 0, 0, 10**9)
    limit = number_of(params, "limit", 10**9, 1, 10**9)
    shown = []
    listed = rows[offset : offset + limit]
    names = session_titles(reader, [row["id"] for row in listed])
    for row in listed:
        name = names[row.pop("id")]
        shown.append({**row, "title": name, "first_ts": iso(row["first_ts"]), "last_ts": iso(row["last_ts"])})
    return {"total": len(rows), "offset": offset, "sessions": shown, **scope.missing}


def projects(reader: Reader, params: Params) -> dict[str, Any]:
    """The projects, the latest first."""
    found: dict[str, dict[str, Any]] = {}
    listed, scope = _listed(reader, params)
    for row in listed:
        name = row["project"] or row["folder"] or ""
        project = found.setdefault(
            name,
            {
                "project": name, "folders": [], "sessions": 0, "threads": 0, "records": 0, "bytes": 0, "first_ts": None,
                "last_ts": None,
            },
        )  # fmt: skip
        if row["folder"] and row["folder"] not in project["folders"]:
            project["folders"].append(row["folder"])
        project["sessions"] += 1
        for key in ("threads", "records", "bytes"):
            project[key] += row[key]
        times = [ts for ts in (project["first_ts"], row["first_ts"]) if ts is not None]
        project["first_ts"] = min(times, default=None)
        project["last_ts"] = max((ts for ts in (project["last_ts"], row["last_ts"]) if ts is not None), default=None)
    rows = sorted(found.values(), key=lambda one: (-(one["last_ts"] or 0), one["project"]))
    offset = number_of(params, "offset", 0, 0, 10**9)
    limit = number_of(params, "limit", 10**9, 1, 10**9)
    for row in rows:
        row["first_ts"], row["last_ts"] = iso(row["first_ts"]), iso(row["last_ts"])
    return {"total": len(rows), "offset": offset, "projects": rows[offset : offset + limit], **scope.missing}


def _listed(reader: Reader, params: Params) -> tuple[list[dict[str, Any]], Scope]:
    """The sessions of the project and the time asked for."""
    now = time.time()
    since, until = (moment_of(params, name, now) for name in ("since", "until"))
    scope = scope_of(reader, params, within=False)
    with reader.queries.snapshot():
        return reader.queries.session_list(scope.sessions, since, until), scope


def spans(reader: Reader, params: Params) -> dict[str, Any]:
    """Every byte of one transcript accounted for, in file order; separators only where `all` is asked for."""
    path = text_of(params, "path")
    if path is None:
        raise BadRequest("spans needs the path of a transcript")
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        raise BadRequest(f"{path} is a folder", "name one transcript in it")
    everything = bool(params.get("all"))
    try:
        found = [
            {
                "kind": span.kind,
                "line": span.line,
                "offset": span.offset,
                "length": span.length,
                "uuid": span.uuid,
            }
            for span in reader.vault.spans(path)
            if everything or span.kind != "separator"
        ]
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no file {path}") from None
    except (OSError, EOFError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise Unreadable(f"{path} cannot be read: {reason}", "see that it is a file you may read") from None
    return {"path": path, "spans": found}


def status_counts(reader: Reader, params: Params) -> dict[str, Any]:
    """What the Map knows of `status`. `cleanup_days`: the client's `cleanupPeriodDays`."""
    queries = reader.queries
    days = number_of(params, "cleanup_days", CLEANUP_DAYS, 0, 10**6)
    now = time.time()
    with queries.snapshot():
        counts = queries.counts()
        generations = queries.generation_files()
        near = queries.only_live(int(now * 10**9) - max(days - NEAR_DAYS, 0) * _DAY_NS)
        unparsed = queries.unparsed(UNPARSED_SHOWN)
    number = counts.pop("generations")
    return {
        **counts,
        "whole": queries.whole(),
        "vault": {
            "generations": number,
            "bytes": sum(size or 0 for _, size, _ in generations),
            "logical_bytes": sum(logical or 0 for _, _, logical in generations),
        },
        "unparsed_spans": unparsed,
        "near_cleanup": len(near),
        "near_cleanup_sessions": [
            {
                "session_id": session_id,
                "last_write": iso(mtime // 10**6),
                "days_left": round(days - (now * 10**9 - mtime) / _DAY_NS, 1),
            }
            for session_id, mtime in near[:NEAR_SHOWN]
        ],
    }


# An empty one of them may mean that nothing is there at all, which is worth a word of its own.
_LISTS = frozenset(("search", "sessions", "projects", "terms", "cards", "recent", "overview", "file", "stats"))

METHODS: dict[str, Callable[[Reader, Params], dict[str, Any]]] = {
    "search": search,
    "thread": thread,
    "block": block,
    "sessions": sessions,
    "projects": projects,
    "spans": spans,
    "generations": generations,
    "forgotten": forgotten,
    "export": exported,
    "threads_like": threads_like,
    "stats": stats,
    "report": report,
    "diff": diff,
    "terms": terms,
    "cards": cards,
    "card": card,
    "cards_due": cards_due,
    "recent": recent,
    "overview": overview,
    "file": file,
    "status_counts": status_counts,
    "recall": recall,
}
