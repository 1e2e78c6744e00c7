"""The rows of the Map as answers use them: records, their copies, threads, turns, hits.

Fetching them is left to `queries`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """What restricts a search. None: not restricted. An empty tuple: nothing can match."""

    sessions: tuple[int, ...] | None = None
    own: bool = False
    """the sessions were asked for by name: their forked copies count as theirs"""
    kinds: tuple[int, ...] | None = None
    tools: tuple[int, ...] | None = None
    files: tuple[int, ...] | None = None
    since: int | None = None
    until: int | None = None
    term: str | None = None
    """full-text expression that the thread must hold somewhere"""
    terms: tuple[int, ...] | None = None
    """discovery terms of which the thread must have one; () leaves it to `term`"""
    subagents: bool | None = None
    """True: their records count apart, False: not at all, None: with their thread"""

    @property
    def nothing(self) -> bool:
        return () in (self.sessions, self.kinds, self.tools, self.files)


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that answers, with its thread; the lower the score the better (BM25 as FTS5 gives it)."""

    record: int
    thread: int
    side: int
    """0, or what tells a subagent's records from its thread's own"""
    score: float
    ts: int


@dataclass(frozen=True, slots=True)
class Copy:
    """One place where a record's bytes lie."""

    file: int
    path: str
    generation: str | None
    rank: int
    offset: int
    length: int
    line: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """What the Map says of one record."""

    id: int
    uuid: bytes
    session: int
    session_id: str
    project: str | None
    type: str
    kind: int
    ts: int | None
    flags: int
    hidden: int
    thread: int | None
    parent: bytes | None
    tool: str | None
    agent: int | None


@dataclass(frozen=True, slots=True)
class Thread:
    """What the Map says of one thread."""

    id: int
    session: int
    session_id: str
    project: str | None
    prompt: str | None
    title: str | None
    first_ts: int | None
    last_ts: int | None
    turns: int
    tokens: int
    canonical: int | None
    title_rank: int = 99
    """what kind of record names it: `batch.TITLE_RANK`"""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One record of a thread, in its place."""

    id: int
    uuid: bytes
    kind: int
    type: str
    ts: int | None
    flags: int
    hidden: int
    parent: bytes | None
    tokens: int
    agent: int | None
    tool: str | None
    file: int
    rank: int
    offset: int


@dataclass(frozen=True, slots=True)
class State:
    """One stored state of a session's transcript: a generation, or the live file."""

    file: int
    path: str
    folder: str
    session_id: str
    generation: str | None
    rank: int
    size: int
    """bytes on the disk"""
    read: int
    """logical bytes that the Map has read; an unfinished last line is not among them"""
    mtime_ns: int

    @property
    def name(self) -> str:
        """How a state is called: `v3-raw`, or `live`."""
        return self.generation or "live"

    @property
    def bytes(self) -> int:
        """The logical bytes."""
        return self.size if self.generation is None else self.read
