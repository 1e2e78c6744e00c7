"""Where was I: the last threads, how they ended, the files they changed, and what went behind a compaction.

How an end is told from its records is left to `transcript.ends`, which tool changes files to `transcript.edits`.

A thread that only holds commands of the client's own is no work and is passed over; one that a task's notification
began is folded into the thread that launched the task; one that a compaction began goes on with the one before it.
Open is only what ends a session: after a question that was followed by another prompt, the person has moved on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import StaleIndexError, Unreadable
from ..store.activity import LastTurn
from ..store.reading import Reading
from ..store.rows import Copy, Thread
from ..transcript import ends, render
from ..transcript.edits import may_change
from ..transcript.record import uuid_bytes
from ..transcript.text import RESULT, key64
from .common import Params, Reader, block_id, iso, number_of, one_session, text_of, thread_id
from .scope import moment_of, scope_of
from .search import resume
from .titles import titles

DEFAULT_LIMIT = 10
LARGEST_LIMIT = 200
FILES_SHOWN = 30
WALL_SHOWN = 20
LAST_TURNS = 12
"""Records at the end of a thread that may tell how it ends."""
OPEN_CHARS = 300
LARGE_RESULT = 65_536
"""A result of more bytes is no error message, and is not read for one."""
SESSIONS_JUDGED = 3
"""Sessions of a project whose ends `overview` tells."""
_CHUNK = 48
_STEPS_BACK = 5
_TITLE_COMMAND, _TITLE_NOTICE, _TITLE_SUMMARY = 2, 3, 4


def recent(reader: Reader, params: Params) -> dict[str, Any]:
    """The last threads of a project, of a session or of all, and the wall of the session asked for or last at work."""
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    offset = number_of(params, "offset", 0, 0, 10**6)
    since, until = moment_of(params, "since"), moment_of(params, "until")
    named = text_of(params, "session")
    session = one_session(reader, named) if named is not None else None
    with reader.queries.snapshot(), Reading(reader.vault) as reading:
        scope = scope_of(reader, params)
        sessions = scope.sessions if session is None else (session[0],)
        look = _Look(reader, reading)
        found: list[_Item] = []
        more = False
        for item in look.items(sessions, since, until):
            if len(found) >= offset + limit:
                more = True
                break
            found.append(item)
        look.know(item.thread.session for item in found[offset:])
        results = [look.entry(item) for item in found[offset:]]
        at = session[0] if session is not None else found[0].last.session if found else None
        wall = look.wall(at) if at is not None else None
        look.name()
        stale = sorted(reading.stale)
    return {
        "scope": {**scope.told, **({"by": "session"} if session else {})},
        "offset": offset,
        "more": more,
        "results": results,
        "wall": wall,
        **scope.missing,
        **({"stale": stale} if stale else {}),
    }


def overview(reader: Reader, params: Params) -> dict[str, Any]:
    """Every project with its last activity, its last thread, what its last sessions left open, and its counts."""
    limit = number_of(params, "limit", 50, 1, 10_000)
    offset = number_of(params, "offset", 0, 0, 10**6)
    since = moment_of(params, "since")
    with reader.queries.snapshot(), Reading(reader.vault) as reading:
        look = _Look(reader, reading)
        projects: dict[str, _Project] = {}
        for number, name, folder, threads, first, last in reader.queries.activity():
            project = projects.setdefault(name or folder or "", _Project())
            project.add(number, folder, threads, first, last)
        rows = sorted(projects.items(), key=lambda item: (-(item[1].last or 0), item[0]))
        rows = [(name, one) for name, one in rows if since is None or (one.last or 0) >= since]
        shown = [{"project": name, **one.told(look)} for name, one in rows[offset : offset + limit]]
        look.name()
        stale = sorted(reading.stale)
    return {
        "total": len(rows),
        "offset": offset,
        "sessions": sum(len(one.sessions) for _, one in rows),
        "threads": sum(one.threads for _, one in rows),
        "open": sum(len(row["open"]) for row in shown),
        "results": shown,
        **({"stale": stale} if stale else {}),
    }


@dataclass(slots=True)
class _Project:
    sessions: list[int] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    threads: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, session: int, folder: str | None, threads: int, first: int | None, last: int | None) -> None:
        self.sessions.append(session)
        if folder and folder not in self.folders:
            self.folders.append(folder)
        self.threads += threads
        self.first = min(filter(None, (self.first, first)), default=None)
        self.last = max(filter(None, (self.last, last)), default=None)

    def told(self, look: _Look) -> dict[str, Any]:
        open_: list[dict[str, Any]] = []
        latest = None
        judged = self.sessions[:SESSIONS_JUDGED]
        look.know(judged)
        for session in judged:
            item = look.last_of(session)
            if item is None:
                continue
            latest = latest or item
            end = look.open_end(item)
            if end is not None:
                open_.append(look.brief(item))
                open_[-1]["open"] = end
        return {
            "folders": self.folders,
            "sessions": len(self.sessions),
            "threads": self.threads,
            "first_ts": iso(self.first),
            "last_ts": iso(self.last),
            "last": look.brief(latest) if latest is not None else None,
            "open": open_,
        }


@dataclass(frozen=True, slots=True)
class _Item:
    """A thread as it is listed: the one the work began in, and the last one that goes on with it."""

    thread: Thread
    last: Thread
    rank: int
    further: tuple[Thread, ...] = ()


class _Look:
    """Looks things up for one answer, and remembers what several threads of it share."""

    def __init__(self, reader: Reader, reading: Reading) -> None:
        self._reader = reader
        self._queries = reader.queries
        self._reading = reading
        self._live: set[int] = set()
        self._walls: dict[int, tuple[int, int | None] | None] = {}
        self._last: dict[int, _Item | None] = {}
        self._unnamed: list[tuple[dict[str, Any], Thread]] = []

    def know(self, sessions: Iterable[int]) -> None:
        self._live |= self._queries.live(set(sessions))

    # Which threads

    def items(self, sessions: tuple[int, ...] | None, since: int | None, until: int | None) -> Iterator[_Item]:
        """The threads worth naming, the latest first."""
        if sessions == ():
            return
        seen: set[int] = set()
        prompts: set[str | None] = set()
        further: dict[int, list[Thread]] = {}
        at = 0
        while True:
            rows = self._queries.active_threads(sessions, since, until, _CHUNK, at)
            at += len(rows)
            threads = self._queries.threads(number for number, _, _ in rows)
            for number, rank, canonical in rows:
                thread = threads.get(number)
                if thread is None or number in seen or not self._worth(number, rank, canonical):
                    continue
                seen.add(number)
                root = self._root(thread) if rank == _TITLE_NOTICE else thread
                if root.id != thread.id:
                    if root.id in seen:
                        continue
                    seen.add(root.id)
                    further.setdefault(root.id, []).append(thread)
                    rank = 1
                if root.prompt in prompts:
                    continue  # another session's copy, with something of its own
                prompts.add(root.prompt)
                yield _Item(root, thread, rank, tuple(further.get(root.id, ())))
            if len(rows) < _CHUNK:
                return

    def _worth(self, number: int, rank: int, canonical: int | None) -> bool:
        if canonical is not None and not self._queries.own(number):
            return False
        return rank not in (_TITLE_COMMAND, _TITLE_NOTICE, _TITLE_SUMMARY) or self._queries.real(number)

    def _root(self, thread: Thread) -> Thread:
        """The thread whose task's notification began this one."""
        seen = {thread.id}
        for _ in range(_STEPS_BACK):
            number = self._queries.started_by(thread)
            above = self._queries.thread(number) if number is not None and number not in seen else None
            if above is None or above.prompt is None:
                break
            seen.add(above.id)
            thread = above
        return thread

    def last_of(self, session: int) -> _Item | None:
        """What a session was last about."""
        if session not in self._last:
            self._last[session] = None
            for number, rank in self._queries.last_threads(session, _CHUNK):
                if rank == 1 or self._queries.real(number):
                    thread = self._queries.thread(number)
                    if thread is not None:
                        root = self._root(thread) if rank == _TITLE_NOTICE else thread
                        self._last[session] = _Item(root, thread, rank if root is thread else 1)
                        break
        return self._last[session]

    # What is told of one

    def brief(self, item: _Item) -> dict[str, Any]:
        """One in few words; its title comes with those of the others, by `name`."""
        thread = item.thread
        row = {
            "thread": thread_id(thread),
            "session_id": thread.session_id,
            "title": "",
            "first_ts": iso(thread.first_ts),
            "last_ts": iso(item.last.last_ts),
            "resume": resume(thread, self._live),
        }
        self._unnamed.append((row, thread))
        return row

    def name(self) -> None:
        """Puts titles into all that was told."""
        names = titles(self._reader, (thread for _, thread in self._unnamed))
        for row, thread in self._unnamed:
            row["title"] = names[thread.id]

    def entry(self, item: _Item) -> dict[str, Any]:
        thread = item.thread
        changed, named = self._files({thread.id, item.last.id, *(one.id for one in item.further)})
        wall = self._wall(thread.session)
        row = self.brief(item)
        row |= {
            "prompt_id": thread.prompt,
            "project": thread.project,
            "turns": thread.turns + sum(one.turns for one in item.further),
            "est_tokens": thread.tokens + sum(one.tokens for one in item.further),
            "open": self.open_end(item),
            "files": changed[:FILES_SHOWN],
            "files_total": len(changed),
            "files_read": len(named),
            "continued": [thread_id(one) for one in item.further],
            "after_compaction": item.rank == _TITLE_SUMMARY,
            "behind_wall": wall is not None and (item.last.last_ts or 0) < wall[0],
        }
        return row

    def _files(self, threads: set[int]) -> tuple[list[str], list[str]]:
        """(the files that calls changed, those they only named), the latest first."""
        changed: dict[str, None] = {}
        named: dict[str, None] = {}
        for thread in sorted(threads, reverse=True):
            for path, tool, _ in self._queries.files_named(thread):
                (changed if may_change(tool) else named)[render.flat(render.tame(path))] = None
        return list(changed), [path for path in named if path not in changed]

    def open_end(self, item: _Item) -> dict[str, Any] | None:
        """What a thread leaves open, None where it is closed or the session went on after it."""
        last = self.last_of(item.last.session)
        if last is None or last.last.id != item.last.id:
            return None
        turns = self._queries.last_turns(item.last.id, LAST_TURNS)
        end = self._end(item.last.session, turns)
        if end is None:
            return None
        record = turns[end.at]
        elsewhere = self._queries.continued_in(record.id, item.last.last_ts)
        if elsewhere:
            return None
        return {
            "kind": end.kind,
            "text": render.clip(render.flat(render.tame(end.text[:4_000])), OPEN_CHARS),
            "tool": render.flat(end.tool)[:80] if end.tool else None,
            "block": block_id(record.uuid, record.hidden, item.last.session_id),
            "ts": iso(record.ts),
        }

    def _end(self, session: int, turns: list[LastTurn]) -> ends.End | None:
        last = _Lazily(turns, self._queries.copies_of(turn.id for turn in turns), self._reading)
        return ends.end(last, lambda call: self._queries.is_answered(session, key64(call)))

    # Compactions

    def _wall(self, session: int) -> tuple[int, int | None] | None:
        """(time of a session's last compaction, thread that begins there)."""
        if session not in self._walls:
            rows = [row for row in self._queries.compactions(session) if row[1] is not None]
            self._walls[session] = (rows[-1][1] or 0, rows[-1][3]) if rows else None
        return self._walls[session]

    def wall(self, session: int) -> dict[str, Any] | None:
        """What a session's last compaction put out of the model's sight, the latest threads of it in order."""
        rows = [row for row in self._queries.compactions(session) if row[1] is not None]
        if not rows:
            return None
        summary, ts, parent, own = rows[-1]
        assert ts is not None
        boundary = self._queries.at_uuid(parent, session) if parent is not None else None
        told: dict[str, Any] = {}
        if boundary is not None:
            with contextlib.suppress(StaleIndexError, Unreadable):
                obj = self._reading.object(self._queries.copies(boundary.id))
                if isinstance(obj, dict) and isinstance(obj.get("compactMetadata"), dict):
                    told = obj["compactMetadata"]
        before, total = self._queries.threads_before(session, ts, 3 * WALL_SHOWN)
        threads = self._queries.threads(number for number, _ in before)
        numbers = []
        for number, rank in before:
            folded = rank == _TITLE_NOTICE and self._root(threads[number]).id != number
            if number == own or folded:
                total -= 1
            else:
                numbers.append(number)
        numbers = numbers[-WALL_SHOWN:]
        kept = self._kept(session, told)
        record = self._queries.record(summary)
        listed = []
        for number in numbers:
            thread = threads.get(number)
            if thread is None:
                continue
            shown = thread
            if thread.canonical is not None:  # a fork's copy goes by the original's id
                shown = self._queries.thread(thread.canonical) or thread
            listed.append(
                {
                    "thread": thread_id(shown),
                    "session_id": shown.session_id,
                    "title": "",
                    "first_ts": iso(thread.first_ts),
                    "last_ts": iso(thread.last_ts),
                    "turns": thread.turns,
                    "est_tokens": thread.tokens,
                    "in_view": number in kept,
                }
            )
            self._unnamed.append((listed[-1], thread))
        return {
            "session_id": record.session_id if record is not None else None,
            "ts": iso(ts),
            "trigger": _word(told.get("trigger")),
            "tokens_before": _whole(told.get("preTokens")),
            "tokens_after": _whole(told.get("postTokens")),
            "compactions": len(rows),
            "summary": block_id(record.uuid, record.hidden, record.session_id) if record is not None else None,
            "total": max(total, len(listed)),
            "threads": listed,
        }

    def _kept(self, session: int, told: dict[str, Any]) -> set[int]:
        """The threads some of whose last records the client goes on sending word for word."""
        preserved = told.get("preservedMessages")
        uuids = (preserved.get("allUuids") or preserved.get("uuids")) if isinstance(preserved, dict) else None
        names = [name for one in uuids[:500] if (name := uuid_bytes(one))] if isinstance(uuids, list) else []
        return self._queries.threads_of(session, names) if names else set()


class _Lazily(Sequence[ends.Last]):
    """The last turns, each read when it is looked at: mostly the very last is enough."""

    def __init__(self, turns: list[LastTurn], copies: dict[int, list[Copy]], reading: Reading) -> None:
        self._turns = turns
        self._copies = copies
        self._reading = reading
        self._read: dict[int, ends.Last] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, at: Any) -> Any:
        if at not in self._read:
            turn = self._turns[at]
            obj = None
            if turn.kind != RESULT or turn.length <= LARGE_RESULT:
                with contextlib.suppress(StaleIndexError, Unreadable):
                    obj = self._reading.object(self._copies[turn.id])
            self._read[at] = ends.Last(turn.kind, obj if isinstance(obj, dict) else None, turn.tool)
        return self._read[at]


def _word(value: Any) -> str | None:
    return render.clip(render.flat(render.tame(value)), 40) if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
