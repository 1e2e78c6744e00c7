"""What an update tells: its progress and its report."""

from __future__ import annotations

from dataclasses import dataclass, field

GROWN = 20
"""Files whose growth one report tells."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an update is."""

    files_done: int
    files: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Grown:
    """A live file that was read because it changed: its length before, and now."""

    path: str
    session: str | None
    agent: str | None
    project: str | None
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What one update did, and the totals of the Map after it (0 where nobody asked for them)."""

    files: int = 0
    records: int = 0
    no_uuid: int = 0
    unparsed: int = 0
    pending_bytes: int = 0
    threads: int = 0
    files_changed: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    scans: int = 0
    whole_scans: int = 0
    vanished: int = 0
    """records that no copy holds any more"""
    failed: tuple[tuple[str, str], ...] = ()
    waiting: tuple[str, ...] = ()
    """roots that do not exist"""
    notes: tuple[str, ...] = ()
    stopped: bool = False
    folders: int = 0
    grown: tuple[Grown, ...] = ()
    """at most `GROWN` of them"""


@dataclass(slots=True)
class Totals:
    """What an update adds up on its way."""

    changed: int = 0
    bytes: int = 0
    scans: int = 0
    whole: int = 0
    vanished: int = 0
    stopped: bool = False
    failed: list[tuple[str, str]] = field(default_factory=list)
    grown: list[Grown] = field(default_factory=list)
