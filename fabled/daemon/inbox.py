"""Gathers what is to be done, paths and jobs, each once, and hands it out in batches.

What a path or a job means, and who does it, is left to the writer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fabled.errors import NotRunning

# Waiting paths are kept by name up to here; above it one look at everything is cheaper than the list.
MOST_PATHS = 20_000

Reply = Future[Any]
"""Where the answer to a job is put for whoever waits for it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do that is no event of a file: two equal ones are one."""

    name: str
    paths: tuple[str, ...] = ()
    params: str = ""
    """of a request, as JSON"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A job with everyone's reasons for it and everyone who waits for it."""

    job: Job
    reasons: tuple[str, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """What was due at one time. `overfull`: paths were too many to name, so everything is to be looked at."""

    paths: tuple[str, ...]
    jobs: tuple[Asked, ...]
    overfull: bool = False


class Inbox:
    """Owner of all waiting work; every method may be called from any OS thread and none but `take` blocks.

    A path is due when it has been quiet for `quiet_seconds`, and at the latest `max_wait_seconds` after the
    first path of its batch came. Paths stand in the order of their last event, so the one that has been quiet
    for longest is the first, and a session written without pause delays nobody else's. Jobs are due at once.
    """

    def __init__(
        self,
        quiet_seconds: float,
        max_wait_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_paths: int = MOST_PATHS,
    ) -> None:
        self._clock = clock
        self._most_paths = most_paths
        self._changed = threading.Condition()
        # All below: under the lock of `_changed`.
        self._quiet = quiet_seconds
        self._max_wait = max_wait_seconds
        self._paths: OrderedDict[str, float] = OrderedDict()
        self._first = 0.0
        self._urgent = False
        self._overfull = False
        self._jobs: dict[Job, Asked] = {}
        self._closed = False

    def add(self, path: str, *, urgent: bool = False) -> None:
        """Something happened at `path`. `urgent`: somebody waits for it, do not wait for quiet."""
        now = self._clock()
        with self._changed:
            if self._closed:
                return
            was_empty = not self._paths and not self._overfull
            if was_empty:
                self._first = now
            if not self._overfull:
                self._paths[path] = now
                self._paths.move_to_end(path)
                if len(self._paths) > self._most_paths:
                    self._paths.clear()
                    self._overfull = True
            if urgent:
                self._urgent = True
            # A later event never makes the batch due earlier, so the taker need not be woken for it.
            if was_empty or urgent:
                self._changed.notify_all()

    def ask(self, job: Job, reason: str = "", reply: Reply | None = None) -> None:
        """Have `job` done once, however often it is asked for before its turn."""
        with self._changed:
            if not self._closed:
                before = self._jobs.get(job, Asked(job))
                reasons = before.reasons
                if reason and reason not in reasons:
                    reasons = (*reasons, reason)
                replies = before.replies if reply is None else (*before.replies, reply)
                self._jobs[job] = Asked(job, reasons, replies)
                self._changed.notify_all()
                return
        if reply is not None:
            reply.set_exception(_stopping())

    def due(self) -> float | None:
        """Seconds until the next batch is due: 0 or less means now, None means that nothing waits."""
        with self._changed:
            return self._due(self._clock())

    def _due(self, now: float) -> float | None:
        if self._jobs or self._urgent:
            return 0.0
        if self._paths:
            return self._due_of_paths(now)
        return self._first + self._max_wait - now if self._overfull else None

    def _due_of_paths(self, now: float) -> float:
        return min(next(iter(self._paths.values())) + self._quiet, self._first + self._max_wait) - now

    def ready(self) -> Batch | None:
        """The batch that is due now, taken out; None if none is."""
        with self._changed:
            return self._take_due(self._clock())

    def paths_due(self) -> bool:
        """Whether there are paths, by name, whose time has come; jobs do not count."""
        with self._changed:
            return bool(self._paths) and (self._urgent or self._due_of_paths(self._clock()) <= 0)

    def take_paths(self) -> tuple[str, ...]:
        """All waiting paths that have names; jobs stay."""
        with self._changed:
            paths = tuple(self._paths)
            self._paths.clear()
            self._urgent = False
            return paths

    def take_requests(self) -> tuple[Asked, ...]:
        """All waiting requests that carry parameters; paths and other jobs stay."""
        with self._changed:
            taken = [job for job in self._jobs if job.params]
            return tuple(self._jobs.pop(job) for job in taken)

    def _take_due(self, now: float) -> Batch | None:
        due = self._due(now)
        if due is None or due > 0:
            return None
        batch = Batch(tuple(self._paths), tuple(self._jobs.values()), self._overfull)
        self._paths.clear()
        self._jobs = {}
        self._urgent = self._overfull = False
        return batch

    def take(self, seconds: float | None = None) -> Batch | None:
        """Wait for the next batch; None when the inbox is closed. After `seconds` without one, an empty batch."""
        with self._changed:
            until = None if seconds is None else self._clock() + seconds
            while not self._closed:
                now = self._clock()
                batch = self._take_due(now)
                if batch is not None:
                    return batch
                due = self._due(now)
                if until is not None:
                    if now >= until:
                        return Batch((), ())
                    due = until - now if due is None else min(due, until - now)
                self._changed.wait(due)
        return None

    def close(self) -> None:
        """End all waiting. What still lies here is found again by the first pass of the next start."""
        with self._changed:
            self._closed = True
            left, self._jobs = self._jobs, {}
            self._paths.clear()
            self._urgent = self._overfull = False
            self._changed.notify_all()
        for asked in left.values():
            for reply in asked.replies:
                reply.set_exception(_stopping())

    def pace(self, quiet_seconds: float, max_wait_seconds: float) -> None:
        """Take over new settings."""
        with self._changed:
            self._quiet, self._max_wait = quiet_seconds, max_wait_seconds
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._paths) + len(self._jobs) + self._overfull


def _stopping() -> NotRunning:
    return NotRunning("the daemon is stopping", "ask again after its next start")
