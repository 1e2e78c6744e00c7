"""What passes between the indexer and the Map: what is known of a file, and what one transaction stores.

Storing them is left to `map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..transcript import text as t
from ..transcript.naming import plain
from ..transcript.segment import indexed

SAID_KINDS = (t.PROMPT, t.REPLY, t.CALL, t.RESULT, t.SUMMARY, t.COMMAND)
_MAIN = f"agent IS NULL AND flags&{t.SIDECHAIN}=0"
_SHOWN = f"kind<>{t.OTHER} OR type IN (SELECT id FROM names WHERE text IN ('user','assistant'))"
COUNTED = (
    f"coalesce(sum({_MAIN} AND hidden&2=0 AND ({_SHOWN})),0) AS turns, "
    f"coalesce(sum({_MAIN} AND kind IN {SAID_KINDS}),0) AS said, "
    f"coalesce(sum(tokens*({_MAIN} AND hidden&2=0)),0) AS tokens"
)
"""SQL, over the records of a thread: how many of its own line a reader is shown (what subagents did is told apart),
how many of them say or do something, and their tokens."""
TITLE_RANK = {t.PROMPT: 1, t.COMMAND: 2, t.NOTICE: 3, t.SUMMARY: 4, t.QUEUED: 5, t.REPLY: 6, t.CALL: 7, t.RESULT: 8}
MEMBERSHIP, AGENTS = 1, 2
"""Bits of `dirty.what`."""
Reread = Callable[[str, int, int, bytes], t.Facts | None]
"""Reads a span (path, offset, length, digest) again and says what it holds; None where that cannot be proved."""


Twin = tuple[int, int, int, int]
"""(record, session, file and offset of its best copy) of a record whose best copy has the same bytes."""


_ALL = (
    "(SELECT {0} FROM records x WHERE x.thread=t.id AND x.hidden&2=0 AND (x.kind<>"
    f"{t.OTHER} OR x.type IN (SELECT id FROM names WHERE text IN ('user','assistant'))))"
)
TURNS = f"CASE WHEN t.turns THEN t.turns ELSE {_ALL.format('count(*)')} END"
TOKENS = f"CASE WHEN t.turns THEN t.tokens ELSE {_ALL.format('coalesce(sum(x.tokens),0)')} END"
"""SQL, for threads t: their turns and tokens; of one that is nothing but a subagent's, those of the subagent."""


def is_turn(facts: t.Facts) -> bool:
    """Whether a reader of its thread is shown the record: `COUNTED` of one record as it is read."""
    return facts.kind != t.OTHER or facts.type in ("user", "assistant")


def title_of(facts: t.Facts) -> str:
    """A one-line title from a record's text; empty where it says nothing."""
    return " ".join(plain(facts.text or facts.thinking)[: 2 * t.TITLE_LIMIT].split())[: t.TITLE_LIMIT]


def text_row(record: int, facts: t.Facts) -> tuple[int, str, str, str]:
    """A record's row of the full text."""
    return record, indexed(facts.text), indexed(facts.thinking), facts.parts


@dataclass(slots=True)
class FileRow:
    """What the Map remembers of a file."""

    id: int
    path: str
    rank: int
    agent: int | None
    session: int | None
    folder: str | None
    project: str | None
    stamp: tuple[int, int, int, int]
    """dev, ino, size, mtime_ns (-1: too young to prove anything)"""
    resume_offset: int
    resume_line: int
    tail: bytes | None
    complete: bool
    replaces: int | None
    has_prompts: bool
    guessed: bool
    current: str | None
    """key of the thread that runs where the file ends"""
    meta_stamp: int | None

    @property
    def order(self) -> tuple[int, str]:
        return self.rank, self.path


@dataclass(slots=True)
class Known:
    """A record the Map holds, as far as a new copy of it needs."""

    id: int
    file: int
    offset: int
    length: int
    digest: bytes | None


@dataclass(slots=True)
class Batch:
    """Rows gathered for one transaction."""

    files: list[tuple[Any, ...]] = field(default_factory=list)
    copies: list[tuple[int, int, int, int, bytes, int]] = field(default_factory=list)
    records: list[tuple[Any, ...]] = field(default_factory=list)
    texts: list[tuple[int, str, str, str]] = field(default_factory=list)
    gaps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    links: list[tuple[int, int, int, int]] = field(default_factory=list)
    touches: list[tuple[int, int]] = field(default_factory=list)
    titles: list[tuple[int, int | None, bytes | None, int, str]] = field(default_factory=list)
    citations: list[tuple[int, str]] = field(default_factory=list)
    moved: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(file, offset, length, record, file it is moved from): a best pointer that follows its bytes"""
    pointers: list[tuple[int, int, int, int, int | None]] = field(default_factory=list)
    rewritten: list[int] = field(default_factory=list)
    """records whose text and links are replaced in this transaction"""
    changed: list[tuple[Any, ...]] = field(default_factory=list)
    threads: dict[int, list[Any]] = field(default_factory=dict)
    """thread → [turns, said, tokens, first_ts, last_ts, title rank, title record, title]"""
    forks: dict[int, str] = field(default_factory=dict)
    dirty: dict[int, int] = field(default_factory=dict)
    file_sessions: set[tuple[int, int]] = field(default_factory=set)
    first_id: int = 0
    weight: int = 0

    def mark(self, session: int, what: int) -> None:
        self.dirty[session] = self.dirty.get(session, 0) | what


def short_key(uuid: bytes) -> int:
    """A link key of a uuid."""
    return int.from_bytes(uuid[:8], "big", signed=True)
