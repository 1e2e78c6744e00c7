"""Asks for periodic work at fixed intervals, also across sleep and moved clocks, and counts what was missed.

The work itself is left to whoever is asked: nothing here takes longer than putting a job into the inbox.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

# A run this late did not take place at its time. Below it lie busy machines and stepped clocks.
LATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Periodic:
    """A job by its fixed id, how often it runs, and what it asks for."""

    id: str
    seconds: float
    ask: Callable[[], None]


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as `status` shows it; times are seconds since the epoch."""

    id: str
    every_seconds: float
    next_at: float | None
    last_at: float | None
    missed: int


class Schedule:
    """Owner of the scheduler's OS thread and of the count of missed runs.

    apscheduler goes by the wall clock: set back by two hours, it would not run anything for two hours; set
    forward by years (a machine without a battery clock), it would list every run in between one by one. So
    each time it looks at its jobs, they are first moved along with the clock, and an overdue one is due once,
    now.
    """

    def __init__(
        self,
        jobs: Sequence[Periodic],
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Under the lock: written by the scheduler's OS thread, read by `status`.
        self._seconds = {job.id: job.seconds for job in jobs}
        self._missed = dict.fromkeys(self._seconds, 0)
        self._last: dict[str, float] = {}
        self._offset = wall().timestamp() - monotonic()
        # One line of INFO for each run of each job, for ever, helps nobody.
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        # Jobs only ask, so they run on the scheduler's own OS thread: a pool could outlive its scheduler
        # ("cannot schedule new futures") and is waited for at the interpreter's end whatever `wait` says.
        self._scheduler: Any = _Scheduler(
            before=self._look,
            timezone=UTC,
            executors={"default": DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for job in jobs:
            self._scheduler.add_job(
                self._run, _every(job.seconds), args=(job,), id=job.id, name=job.id, replace_existing=True
            )

    def start(self) -> None:
        """Begin; each job runs first one interval from now."""
        self._scheduler.start()

    def stop(self) -> None:
        """End within the time of one `ask`."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def every(self, id: str, seconds: float) -> None:
        """Change how often a job runs, counted from now; the same interval again changes nothing."""
        with self._lock:
            if self._seconds[id] == seconds:
                return
            self._seconds[id] = seconds
        self._scheduler.reschedule_job(id, trigger=_every(seconds))

    @property
    def missed(self) -> int:
        """Runs that did not take place at their time, since the start."""
        with self._lock:
            return sum(self._missed.values())

    def jobs(self) -> tuple[JobState, ...]:
        """All jobs with their times."""
        due: dict[str, float] = {}
        for job in self._scheduler.get_jobs():
            at: datetime | None = getattr(job, "next_run_time", None)
            if at is not None:
                due[job.id] = at.timestamp()
        with self._lock:
            return tuple(
                JobState(
                    id=id,
                    every_seconds=seconds,
                    next_at=due.get(id),
                    last_at=self._last.get(id),
                    missed=self._missed[id],
                )
                for id, seconds in self._seconds.items()
            )

    def _run(self, job: Periodic) -> None:
        with self._lock:
            self._last[job.id] = self._wall().timestamp()
        job.ask()

    def _look(self) -> float:
        """Before each look at the jobs. Returns the longest time until the next look."""
        now = self._wall()
        offset = now.timestamp() - self._monotonic()
        with self._lock:
            moved, self._offset = offset - self._offset, offset
            seconds = dict(self._seconds)
        for job in self._scheduler.get_jobs():
            if job.next_run_time is None:
                continue
            due = job.next_run_time
            if moved < -1:
                due += timedelta(seconds=moved)
            late = (now - due).total_seconds()
            if late > LATE_SECONDS or late >= seconds[job.id]:
                with self._lock:
                    self._missed[job.id] += int(late // seconds[job.id]) + (late > LATE_SECONDS)
                due = now
            if due != job.next_run_time:
                job.modify(next_run_time=due)
        return min(seconds.values(), default=threading.TIMEOUT_MAX)


def _every(seconds: float) -> IntervalTrigger:
    return IntervalTrigger(seconds=seconds, timezone=UTC)


class _Scheduler(BackgroundScheduler):  # type: ignore[misc]
    """apscheduler's background scheduler with a step before each look at its jobs."""

    def __init__(self, before: Callable[[], float], **options: Any) -> None:
        super().__init__(**options)
        self._before = before

    def _process_jobs(self) -> float:
        longest = self._before()
        wait: float | None = super()._process_jobs()
        # Its wait is counted by the wall clock; should that jump in between, it is not believed for long.
        return longest if wait is None else min(wait, longest)
