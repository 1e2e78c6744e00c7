"""Cards of threads: the one a model made where there is one, else made here by rule from the thread's own records.

Asking a model is left to `cards`, which finds here what it is to ask for; what a card says, to `transcript.card`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..errors import BadRequest, FabledError
from ..store import cardlist
from ..store import cards as kept
from ..store.reading import Reading
from ..store.rows import Thread, TurnRow
from ..transcript import render
from ..transcript import text as t
from ..transcript.card import Card, Material, extract
from ..transcript.terms import CONCEPT, Tally, relative
from .common import Params, Reader, find_thread, is_side, iso, number_of, text_of, thread_id
from .scope import scope_of
from .terms import telling
from .titles import key_of, spoken

DEFAULT_LIMIT, LARGEST_LIMIT = 20, 1_000
READ_FOR_ONE, READ_FOR_LIST = 60, 8
"""Records read for one card, and for each of a list."""
_LONGEST_RECORD = 256 << 10
_WORK = (t.CALL, t.RESULT, t.THINKING)


def cards(reader: Reader, params: Params) -> dict[str, Any]:
    """Threads with their cards, the latest first."""
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    offset = number_of(params, "offset", 0, 0, 10**9)
    source = text_of(params, "source")
    if source not in (None, "model", "extracted"):
        raise BadRequest("source must be model or extracted")
    made = kept.made(reader.ledger)
    with reader.queries.snapshot():
        scope = scope_of(reader, params, within=False)
        numbers = cardlist.threads(reader.queries, scope.sessions)
        found = reader.queries.threads(numbers) if source else {}
        if source:
            numbers = [n for n in numbers if n in found and ((key_of(found[n]) in made) == (source == "model"))]
        shown = numbers[offset : offset + limit]
        found = reader.queries.threads(shown)
        rows = []
        with Reading(reader.vault) as reading:
            for number in shown:
                thread = found[number]
                own = made.get(key_of(thread))
                card = own.card if own is not None else _extracted(reader, reading, thread, READ_FOR_LIST)
                rows.append({**_row(thread), **card.value()})
    return {"total": len(numbers), "offset": offset, "cards": rows, **scope.missing}


def card(reader: Reader, params: Params) -> dict[str, Any]:
    """The card of one thread; `grown`: whether the thread went on since a model made it."""
    given = text_of(params, "id")
    if given is None:
        raise BadRequest("card needs the id of a thread", "fabled search prints ids")
    with reader.queries.snapshot():
        thread = find_thread(reader, given)
        own = None if params.get("extracted") else kept.made(reader.ledger, {key_of(thread)}).get(key_of(thread))
        made = own.card if own is not None else extracted(reader, thread)
    return {
        **_row(thread),
        **made.value(),
        "at": iso(own.at * 1000) if own is not None else None,
        "grown": own is not None and own.turns != thread.turns,
    }


def cards_due(reader: Reader, params: Params) -> dict[str, Any]:
    """Finished threads worth a model's card and without one, the latest first, and what this day has cost so far."""
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    quiet = number_of(params, "quiet_seconds", 3_600, 0, 10**9)
    least = number_of(params, "min_turns", 3, 1, 10**6)
    now = time.time()
    made, tried = kept.made(reader.ledger), kept.tries(reader.ledger)
    waiting = given_up = 0
    due: list[Thread] = []
    with reader.queries.snapshot():
        scope = scope_of(reader, params, within=False)
        numbers = cardlist.threads(reader.queries, scope.sessions, int((now - quiet) * 1000), least)
        found = reader.queries.threads(numbers)
        for number in numbers:
            thread = found[number]
            key = key_of(thread)
            own, attempt = made.get(key), tried.get(key)
            if own is not None and own.turns == thread.turns:
                continue
            if attempt is not None and attempt.turns == thread.turns:
                if attempt.fruitless >= kept.GIVEN_UP:
                    given_up += 1
                    continue
                if attempt.not_before > now:
                    waiting += 1
                    continue
            due.append(thread)
    today = kept.spent(reader.ledger, kept.today(now))
    return {
        "total": len(due),
        "waiting": waiting,
        "given_up": given_up,
        "due": [{**_row(thread), "est_tokens": thread.tokens} for thread in due[:limit]],
        "spent": {"day": today.day, "requests": today.requests, "tokens": today.tokens},
        **scope.missing,
    }


def _row(thread: Thread) -> dict[str, Any]:
    return {
        "thread": thread_id(thread),
        "prompt_id": thread.prompt,
        "session_id": thread.session_id,
        "project": thread.project,
        "first_ts": iso(thread.first_ts),
        "last_ts": iso(thread.last_ts),
        "turns": thread.turns,
    }


# By rule


def extracted(reader: Reader, thread: Thread) -> Card:
    """The card that a thread's own records make."""
    with Reading(reader.vault) as reading:
        return _extracted(reader, reading, thread, READ_FOR_ONE)


def _extracted(reader: Reader, reading: Reading, thread: Thread, most: int) -> Card:
    rows = reader.queries.turns(thread)
    main = [row for row in rows if not is_side(row.flags, row.agent)] or rows
    chosen = _chosen(main, most)
    copies = reader.queries.copies_of(row.id for row in chosen)
    prompts: list[str] = []
    replies: list[str] = []
    tally = Tally()
    for row in chosen:
        if not copies[row.id] or copies[row.id][0].length > _LONGEST_RECORD:
            continue
        try:
            obj = reading.object(copies[row.id])
        except FabledError:
            continue  # its file changed or went away: the card is made of the rest
        (replies if row.kind == t.REPLY else prompts).append(render.turn(obj, row.kind).text)
        tally.add(obj, row.kind)
    terms = telling(reader, thread.id)
    topics = [one["term"] for one in terms if one["kind"] == "concept"]
    if not topics:  # not looked through yet
        own = sorted(tally.terms(), key=lambda term: (-term.count, term.text))
        topics = [term.text for term in own if term.kind == CONCEPT]
    edited, read = _files(reader, thread)
    last, tool = _last(main)
    name = reader.queries.session_title(thread.session)
    return extract(
        Material(
            prompts,
            replies,
            edited,
            read,
            [one["term"] for one in terms if one["kind"] == "operative"],
            topics,
            sum(row.kind == t.CALL for row in main),
            last,
            tool,
            [name] if name else [],
            spoken(reader, thread),
        )
    )


def _chosen(rows: Sequence[TurnRow], most: int) -> list[TurnRow]:
    """The records that tell most: the first prompts, the last replies, then the longest of the others; in order."""
    asked = [row for row in rows if row.kind in (t.PROMPT, t.QUEUED, t.COMMAND)] or [
        row for row in rows if row.kind in (t.NOTICE, t.SUMMARY)
    ]
    said = [row for row in rows if row.kind == t.REPLY]
    few = max(2, most // 8)
    chosen = {row.id: row for row in (*asked[: few + 1], *said[-few:], *said[:1])}
    rest = sorted((row for row in (*asked, *said) if row.id not in chosen), key=lambda row: (-row.tokens, row.offset))
    chosen.update((row.id, row) for row in rest[: max(0, most - len(chosen))])
    return [row for row in rows if row.id in chosen]


def _last(rows: Sequence[TurnRow]) -> tuple[str, str | None]:
    """(what a thread ends with, its tool)."""
    for row in reversed(rows):
        if row.kind == t.NOTICE:
            return "interrupted", None
        if row.kind in _WORK:
            return "work", row.tool
        if row.kind in (t.REPLY, t.SUMMARY, t.COMMAND):
            return "reply", None
        if row.kind in (t.PROMPT, t.QUEUED):
            return "prompt", None
    return "reply", None


def _files(reader: Reader, thread: Thread) -> tuple[list[str], list[str]]:
    """(files it changed, files it only looked at), those touched most often first."""
    edited: dict[str, int] = {}
    read: dict[str, int] = {}
    for path, tool, count in cardlist.files(reader.queries, thread.id):
        name = relative(path, thread.project or "")
        (edited if tool in ("Edit", "Write", "MultiEdit", "NotebookEdit") else read)[name] = count
    most = sorted(edited, key=lambda name: (-edited[name], name))
    return most, [name for name in sorted(read, key=lambda name: (-read[name], name)) if name not in edited]
