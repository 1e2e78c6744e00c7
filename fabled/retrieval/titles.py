"""What threads and sessions are called: the one place that every answer and every page takes its titles from.

Which record names a thread is decided where threads are stored, its words by `transcript.naming`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import FabledError
from ..store import cards as kept
from ..store.batch import TITLE_RANK
from ..store.rows import Thread
from ..transcript.naming import continued
from ..transcript.text import SUMMARY
from .common import Reader, title

_STEPS_BACK = 5
"""Compactions one after the other that a title is looked for behind."""


def titles(reader: Reader, threads: Iterable[Thread]) -> dict[int, str]:
    """What threads are called: by a model's card, else by their first prompt, without the client's framing.

    A fork's copy is called as its original, one that a compaction began as what it goes on with.
    """
    sources = {thread.id: _source(reader, thread) for thread in threads}
    try:
        made = kept.made(reader.ledger, {key_of(source) for source in sources.values()})
    except FabledError:
        made = {}  # a list without better titles is still the list
    found = {}
    for number, source in sources.items():
        own = made.get(key_of(source))
        found[number] = own.card.title if own is not None else _own(reader, source)
    return found


def spoken(reader: Reader, thread: Thread) -> str:
    """What a thread is called by its own words."""
    return _own(reader, _source(reader, thread))


def title_of(reader: Reader, thread: Thread) -> str:
    """What one thread is called."""
    return titles(reader, [thread])[thread.id]


def session_titles(reader: Reader, sessions: Iterable[int]) -> dict[int, str]:
    """What sessions are called: as the person or the client named them, else by their first thread."""
    found: dict[int, str] = {}
    first: dict[int, Thread] = {}
    for session in sessions:
        named = reader.queries.session_title(session)
        found[session] = title(named) if named else ""
        if not named and (thread := reader.queries.first_thread(session)) is not None:
            first[session] = thread
    names = titles(reader, first.values())
    return found | {session: names[thread.id] for session, thread in first.items()}


def key_of(thread: Thread) -> kept.Key:
    """By what a thread is known to the Ledger."""
    return thread.session_id, thread.prompt or ""


def _source(reader: Reader, thread: Thread) -> Thread:
    """The thread whose words are the title."""
    for _ in range(_STEPS_BACK):
        if thread.canonical is not None:
            number: int | None = thread.canonical
        elif thread.prompt is not None and thread.title_rank == TITLE_RANK[SUMMARY]:
            number = reader.queries.thread_before(thread)
        else:
            break
        before = reader.queries.thread(number) if number is not None else None
        if before is None:
            break
        thread = before
    return thread


def _own(reader: Reader, thread: Thread) -> str:
    text = thread.title or ""
    if not text or continued(text):
        text = reader.queries.session_title(thread.session) or text
    return title(text)
