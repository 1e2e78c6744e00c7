"""What search, thread and block share: parameters, ids as people write them, and times as replies carry them.

What an id stands for is looked up in `store.queries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..errors import Ambiguous, BadRequest, NotFound
from ..store.queries import Queries
from ..store.rows import Record, Thread
from ..store.vault import Vault
from ..transcript import render
from ..transcript.record import uuid_text
from ..transcript.text import SIDECHAIN

SHORTEST_ID = 6
"""Fewer characters of an id are no id, unless they are all of it."""
TITLE_CHARS = 200
_SHOWN_CANDIDATES = 10

Params = Mapping[str, Any]


@dataclass(slots=True)
class Reader:
    """What an answer is read from. Belongs to the OS thread that opened its connection."""

    queries: Queries
    vault: Vault
    ledger: str | None = None
    """path of the Ledger, for what no transcript can tell"""
    token_factor: float | None = None
    """tokens for each estimated one, once `recall` has learned it"""


# Parameters


def text_of(params: Params, name: str) -> str | None:
    """A text parameter; None where it is absent or empty."""
    value = params.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text")
    return render.whole_characters(value)


def number_of(params: Params, name: str, default: int, low: int, high: int) -> int:
    """A number within its bounds."""
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} must be a whole number")
    if not low <= value <= high:
        raise BadRequest(f"{name} must lie between {low:,} and {high:,}")
    return value


# Times and titles


def iso(ts: int | None) -> str | None:
    """Milliseconds since 1970 as transcripts write times."""
    if ts is None:
        return None
    try:
        at = datetime.fromtimestamp(ts // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{at.isoformat()[:19]}.{ts % 1000:03}Z"


def title(text: str | None) -> str:
    """A title on one line, safe to show."""
    return render.clip(render.flat(render.tame(text)), TITLE_CHARS) if text else ""


# Ids


def thread_id(thread: Thread) -> str:
    """How a thread is called in answers: with its session where the prompt alone would mean another."""
    if thread.prompt is None:
        return f"unattached@{thread.session_id}"
    return f"{thread.prompt}@{thread.session_id}" if thread.canonical is not None else thread.prompt


def block_id(uuid: bytes, hidden: int, session_id: str) -> str:
    """What `block` takes for a record; a fork's copy is called with its session."""
    return f"{uuid_text(uuid)}@{session_id}" if hidden & 1 else uuid_text(uuid)


def is_side(flags: int, agent: int | None) -> bool:
    """Is it a subagent's record?"""
    return agent is not None or bool(flags & SIDECHAIN)


def one_session(reader: Reader, prefix: str) -> tuple[int, str]:
    """The session an id or its beginning names."""
    found = reader.queries.session_ids(prefix)
    if not found:
        raise _not_found("session", prefix, other_kind(reader, prefix, "session"), "fabled sessions lists them")
    if len(found) > 1:
        raise ambiguous("session", prefix, [name for _, name in found])
    return found[0]


def ambiguous(what: str, given: str, candidates: list[str]) -> Ambiguous:
    """The error that lists what a shortened id may mean."""
    listed = tuple(dict.fromkeys(candidates))
    more = f" and {len(listed) - _SHOWN_CANDIDATES} more" if len(listed) > _SHOWN_CANDIDATES else ""
    return Ambiguous(
        f"{given} is the beginning of several {what} ids: {', '.join(listed[:_SHOWN_CANDIDATES])}{more}",
        listed,
        "give more of it",
    )


def _not_found(what: str, given: str, other: tuple[str, str] | None, hint: str) -> NotFound:
    if other is not None:
        return NotFound(f"no {what} {given}: that is {other[0]}", other[1])
    return NotFound(f"no {what} {given}", _short(given.partition("@")[0]) or hint)


def other_kind(reader: Reader, given: str, wanted: str) -> tuple[str, str] | None:
    """(what an id is instead of what was wanted, what to do with it); ids of all kinds look alike to people."""
    if len(given) < SHORTEST_ID:
        return None
    short = given[:8]
    if wanted != "session" and reader.queries.session_ids(given):
        return "a session", f"fabled recent --session {short} lists its threads"
    threads = reader.queries.threads_of_prompt(given.lower(), prefix=True) if wanted != "thread" else []
    if threads:
        of = f"a thread of session {threads[0].session_id[:8]}"
        return of, f"fabled thread {short}" if wanted == "record" else f"give the session: {threads[0].session_id[:8]}"
    if wanted == "session":
        try:
            record, _ = find_record(reader, given)
        except (NotFound, Ambiguous):
            return None
        return f"a record of session {record.session_id[:8]}", f"give the session: {record.session_id[:8]}"
    return None


def _short(prefix: str) -> str:
    return f"a shortened id has at least {SHORTEST_ID} characters" if len(prefix) < SHORTEST_ID else ""


def find_thread(reader: Reader, given: str) -> Thread:
    """The thread an id names: as search prints it, shortened, or by the uuid of a record of it."""
    given = given.strip()
    prompt, at, owner = given.rpartition("@") if "@" in given else (given, "", "")
    session = one_session(reader, owner) if at else None
    if session is not None and prompt == "unattached":
        thread = reader.queries.unattached(session[0])
        if thread is None:
            raise NotFound(f"session {session[1]} has no unattached records")
        return thread
    found = reader.queries.threads_of_prompt(prompt, prefix=False)
    if not found and len(prompt) >= SHORTEST_ID:
        found = reader.queries.threads_of_prompt(prompt.lower(), prefix=True)
    if session is not None:
        found = [thread for thread in found if thread.session == session[0]]
    elif len(found) > 1:
        prompts = {thread.prompt for thread in found}
        originals = [thread for thread in found if thread.canonical is None]
        if len(prompts) == 1 and len(originals) == 1:
            found = originals
    if len(found) == 1:
        return found[0]
    if found:
        prompts = {thread.prompt for thread in found}
        names = [f"{t.prompt}@{t.session_id}" if len(prompts) == 1 else thread_id(t) for t in found]
        raise ambiguous("thread", given, names)
    try:
        record = find_record(reader, given)[0]
    except NotFound:
        record = None
    thread = None
    if record is not None:
        queries = reader.queries
        thread = queries.unattached(record.session) if record.thread is None else queries.thread(record.thread)
    if thread is None:
        raise _not_found(
            "thread", given, other_kind(reader, prompt, "thread"), "fabled search finds threads by their words"
        )
    return thread


def find_record(reader: Reader, given: str) -> tuple[Record, bytes | None]:
    """The record an id names, and the digest (its beginning) where that was a content id.

    A uuid that several sessions hold means the original session's, unless `@SESSION` says otherwise.
    """
    given = given.strip()
    name, at, owner = given.rpartition("@") if "@" in given else (given, "", "")
    session = one_session(reader, owner) if at else None
    content = name[:2] in ("L-", "l-")
    digits = name[2:] if content else name.replace("-", "")
    size = 16
    if not digits or len(digits) > 2 * size or any(c not in "0123456789abcdefABCDEF" for c in digits):
        raise NotFound(f"unknown uuid {given}", "fabled search prints the ids of records")
    if len(digits) < SHORTEST_ID:
        raise NotFound(f"unknown uuid {given}", _short(digits))
    low, high = (bytes.fromhex(digits.ljust(2 * size, fill)) for fill in "0f")
    if content:
        contents = reader.queries.records_of_content(low, high)
        rows = [(record, digest[:8]) for record, digest in contents]
    else:
        rows = [(record, record.uuid) for record in reader.queries.records_of_uuid(low, high)]
    if session is not None:
        rows = [(record, key) for record, key in rows if record.session == session[0]]
    keys = {key for _, key in rows}
    if len(keys) > 1:
        raise ambiguous("record", given, [uuid_text(key) for _, key in rows])
    if not rows:
        other = None if content else other_kind(reader, name, "record")
        if other is None:
            raise NotFound(f"unknown uuid {given}", "fabled search prints the ids of records")
        raise NotFound(f"no record {given}: that is {other[0]}", other[1])
    record, key = min(rows, key=lambda row: (row[0].hidden & 1, row[0].session_id))
    return record, key if content else None
