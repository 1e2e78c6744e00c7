"""Every change of a file that a tool call made, over all sessions, in order of time.

What a call does to a file is read out of it by `transcript.edits`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import BadRequest, StaleIndexError, Unreadable
from ..store.activity import Touch
from ..store.reading import Reading
from ..transcript import edits, render
from ..transcript.text import key64
from . import unknown
from .common import Params, Reader, block_id, is_side, iso, number_of, text_of, thread_id
from .scope import moment_of, scope_of
from .search import resume
from .titles import titles

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 1_000
DIFF_LINES = 400
"""Lines shown of one change; `block` has the rest."""
SUMMARY_CHARS = 160
_LARGE_RESULT = 4_000_000
"""A longer result is no refusal, and is not read for its patch."""


def file(reader: Reader, params: Params) -> dict[str, Any]:
    """The changes of a file; of several where only the end of a path was given and more than one ends so."""
    given = text_of(params, "path")
    if given is None:
        raise BadRequest("file needs a path", "relative to the working folder, absolute, or the end of one")
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    wants_diff = bool(params.get("diff"))
    since, until = moment_of(params, "since"), moment_of(params, "until")
    queries = reader.queries
    with queries.snapshot(), Reading(reader.vault) as reading:
        # Without a project asked for every session counts: a file is changed from wherever one stands.
        scope = scope_of(reader, {"project": params.get("project"), "cwd": params.get("cwd"), "all": True})
        paths = queries.paths_named(*_spellings(given, text_of(params, "cwd")))
        touches = queries.touches_of([number for number, _ in paths], scope.sessions, since, until)
        named = len(touches)
        touches = [touch for touch in touches if edits.may_change(touch.tool)]
        look = _Look(reader, reading, {path for _, path in paths}, wants_diff)
        rows: list[dict[str, Any]] = []
        left = len(touches)
        for touch in reversed(touches):
            if len(rows) >= limit:
                break
            left -= 1
            rows += look.rows(touch)
        rows = rows[:limit][::-1]
        look.name(rows)
        missing = [*scope.unknown, *([] if paths else unknown.file_like(queries, given))]
        stale = sorted(reading.stale)
    return {
        "path": render.flat(render.tame(given)),
        "paths": sorted({row["path"] for row in rows} or {render.flat(render.tame(path)) for _, path in paths}),
        "scope": scope.told,
        "total": len(rows) + left,
        "read": named - len(touches),
        "results": rows,
        **({"unknown": missing} if missing else {}),
        **({"stale": stale} if stale else {}),
    }


def _spellings(given: str, cwd: str | None) -> tuple[list[str], str | None]:
    """(whole paths that are meant, the end of a path that may be meant where none of these is known)."""
    if given.startswith("~"):
        given = os.path.expanduser(given)
    tail = given.replace("\\", "/").removeprefix("./").strip("/")
    if os.path.isabs(given):
        exact = [given, os.path.normpath(given), os.path.realpath(given)]
        return list(dict.fromkeys(exact)), None
    exact = []
    if cwd is not None:
        joined = os.path.normpath(os.path.join(cwd, given))
        exact = [joined, os.path.realpath(joined)]
    return list(dict.fromkeys((*exact, given))), tail if tail and not tail.startswith("../") else None


class _Look:
    """Reads the records of calls and their results; a change that two records tell of counts once."""

    def __init__(self, reader: Reader, reading: Reading, paths: set[str], wants_diff: bool) -> None:
        self._reader = reader
        self._reading = reading
        self._paths = paths
        self._diff = wants_diff
        self._seen: set[tuple[int, str]] = set()

    def rows(self, touch: Touch) -> list[dict[str, Any]]:
        """What one record changed of the files asked for, the last change first."""
        obj = self._object(touch.record)
        block = self._reader.queries.record(touch.record)
        rows = []
        if obj is None:
            return [self._row(touch, block, None, "", False)]
        for number, edit in reversed(list(enumerate(edits.edits(obj)))):
            if edit.path not in self._paths:
                continue
            key = (touch.session, edit.call or f"{touch.record}/{number}")
            if key in self._seen:
                continue
            self._seen.add(key)
            rows.append(self._edited(touch, block, edit))
        return rows

    def _edited(self, touch: Touch, record: Any, edit: edits.Edit) -> dict[str, Any]:
        result, ok, said = None, None, ""
        found = self._reader.queries.answer_of(touch.session, key64(edit.call)) if edit.call else None
        if found is not None:
            if found[1] <= _LARGE_RESULT:
                result = self._object(found[0])
                ok, said = edits.outcome(result, edit.call)
            else:
                ok = True
        patch = edits.patch(edit, result if ok else None)
        row = self._row(touch, record, ok, said, found is not None or touch.copied)
        row |= {
            "path": render.flat(render.tame(edit.path)),
            "tool": render.flat(edit.tool)[:80],
            "kind": edit.kind,
            "summary": render.clip(render.flat(render.tame(edits.summary(edit, patch))), SUMMARY_CHARS),
            "added": patch.added,
            "removed": patch.removed,
        }
        if self._diff:
            lines = patch.lines[:DIFF_LINES]
            text = render.tame("\n".join(lines))
            if len(patch.lines) > DIFF_LINES:
                text += f"\n{render.marker(row['block'])}"
            row |= {"diff": text, "placed": patch.placed, "truncated": len(patch.lines) > DIFF_LINES}
        return row

    def _row(self, touch: Touch, record: Any, ok: bool | None, said: str, answered: bool) -> dict[str, Any]:
        session_id = record.session_id if record is not None else ""
        return {
            "thread": touch.thread,
            "session": touch.session,
            "session_id": session_id,
            "project": record.project if record is not None else None,
            "ts": iso(touch.ts),
            "path": render.flat(render.tame(touch.path)),
            "tool": render.flat(touch.tool)[:80],
            "kind": "unreadable",
            "summary": "",
            "added": 0,
            "removed": 0,
            "outcome": "ok" if ok else "failed" if ok is False else "unknown" if answered else "unanswered",
            "error": render.clip(render.flat(render.tame(said)), SUMMARY_CHARS),
            "subagent": is_side(touch.flags, touch.agent),
            "uuid": block_id(touch.uuid, 0, session_id),
            "block": block_id(touch.uuid, touch.hidden, session_id),
        }

    def _object(self, record: int) -> dict[str, Any] | None:
        try:
            obj = self._reading.object(self._reader.queries.copies(record))
        except (StaleIndexError, Unreadable):
            return None
        return obj if isinstance(obj, dict) else None

    def name(self, rows: Sequence[dict[str, Any]]) -> None:
        """Puts threads' and sessions' names in the place of their numbers."""
        queries = self._reader.queries
        threads = queries.threads({row["thread"] for row in rows if row["thread"] is not None})
        live = queries.live({row["session"] for row in rows})
        names = titles(self._reader, threads.values())
        for row in rows:
            thread = threads.get(row["thread"])
            row.pop("session")
            row["thread"] = thread_id(thread) if thread else f"unattached@{row['session_id']}"
            row["title"] = names[thread.id] if thread else ""
            row["first_ts"] = iso(thread.first_ts) if thread else row["ts"]
            row["last_ts"] = iso(thread.last_ts) if thread else row["ts"]
            row["resume"] = resume(thread, live) if thread else None
