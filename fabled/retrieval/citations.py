"""What a thread was handed from others, and which threads were handed it.

Finding the passages is left to `transcript.text`, handing them over to whoever recalls.
"""

from __future__ import annotations

from typing import Any

from ..errors import Ambiguous, BadRequest, NotFound
from ..store.rows import Thread
from ..transcript import render
from .common import SHORTEST_ID, Reader, find_thread, iso, thread_id
from .titles import titles

SHOWN = 50
"""Citations told of in each direction."""


def citations(reader: Reader, found: Thread) -> dict[str, Any]:
    """`recalled`: the threads whose passages this one holds; `recalled_by`: the threads that hold passages of it."""
    return {"recalled": _recalled(reader, found), "recalled_by": _recalled_by(reader, found)}


def cited(reader: Reader, ref: str) -> Thread | None:
    """The thread that a recalled passage names, by its id, the beginning of one, or a record of it."""
    try:
        return find_thread(reader, render.whole_characters(ref))
    except (NotFound, Ambiguous, BadRequest):
        return None


def _recalled(reader: Reader, found: Thread) -> list[dict[str, Any]]:
    rows: dict[Any, dict[str, Any]] = {}
    sources: dict[int, tuple[Thread, dict[str, Any]]] = {}
    for ref, records, ts in reader.queries.recalled_by(found)[:SHOWN]:
        source = cited(reader, ref)
        if source is not None and source.id == found.id:
            continue
        name = clean(ref)
        # Two spellings of one thread are one recall.
        row = rows.setdefault(source.id if source is not None else name, {"ref": name, **_named(source)})
        if source is not None:
            sources[source.id] = source, row
        row["records"] = max(row.get("records", 0), records)
        row["ts"] = max(filter(None, (row.get("ts"), iso(ts))), default=None)
    names = titles(reader, (source for source, _ in sources.values()))
    for number, (_, row) in sources.items():
        row["title"] = names[number]
    return sorted(rows.values(), key=lambda row: row["thread"] is None)  # what is not known here comes last


def _recalled_by(reader: Reader, found: Thread) -> list[dict[str, Any]]:
    queries = reader.queries
    times: dict[tuple[int | None, str], tuple[int, int | None]] = {}
    apart = []
    for record, thread, session_id, type_, ts in queries.citing(_spellings(reader, found), found.id):
        if thread is None and type_ == "attachment":
            thread = queries.thread_behind(record)
        if thread is None:
            apart.append((session_id, ts))  # a copy of what was sent, or a start that no prompt followed
        elif thread != found.id:
            number, last = times.get((thread, session_id), (0, None))
            times[thread, session_id] = (number + 1, max(filter(None, (last, ts)), default=None))
    known = {session_id for _, session_id in times} | {found.session_id}
    for session_id, ts in apart:
        if session_id not in known:
            number, last = times.get((None, session_id), (0, None))
            times[None, session_id] = (number + 1, max(filter(None, (last, ts)), default=None))
    threads = queries.threads(number for number, _ in times if number is not None)
    latest = sorted(times.items(), key=lambda item: (-(item[1][1] or 0), item[0][1], item[0][0] or 0))[:SHOWN]
    names = titles(reader, threads.values())
    return [
        {
            **_named(threads.get(number) if number is not None else None, names.get(number or 0, "")),
            "session_id": session_id,
            "records": records,
            "ts": iso(ts),
        }
        for (number, session_id), (records, ts) in latest
    ]


def _spellings(reader: Reader, found: Thread) -> list[str]:
    """The refs among all citations that mean this thread: its id, with its session or without, or shortened."""
    name = found.prompt if found.prompt is not None else "unattached"
    spelt = []
    for ref in reader.queries.refs_like(name[:SHORTEST_ID]):
        given, _, owner = ref.partition("@")
        if given != name and (len(given) < SHORTEST_ID or not name.startswith(given)):
            continue
        # Without a session the original is meant, not a fork's copy.
        if found.session_id.startswith(owner) if owner else found.canonical is None and found.prompt is not None:
            spelt.append(ref)
    return spelt


def _named(thread: Thread | None, title: str = "") -> dict[str, Any]:
    if thread is None:
        return {"thread": None, "session_id": None, "project": None, "title": "", "first_ts": None, "last_ts": None}
    return {
        "thread": thread_id(thread),
        "session_id": thread.session_id,
        "project": thread.project,
        "title": title,
        "first_ts": iso(thread.first_ts),
        "last_ts": iso(thread.last_ts),
    }


def clean(ref: str) -> str:
    """What a passage says it is of, safe to show."""
    return render.clip(render.flat(render.tame(ref)), 120)
