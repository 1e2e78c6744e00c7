"""The schedule: intervals in UTC, one run for many missed ones, and an end that does not wait."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fabled.daemon import schedule as module
from fabled.daemon.schedule import Periodic, Schedule
from tests.daemon.help import until


class Wall:
    """A wall clock that can be set; the monotonic one goes on."""

    def __init__(self) -> None:
        self.moved = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.moved


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    """Set the clock for the scheduler too, which reads it through its own module's `datetime`."""
    import apscheduler.schedulers.base as base

    clock = Wall()

    class Datetime(datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return clock().astimezone(tz)

    monkeypatch.setattr(base, "datetime", Datetime)
    return clock


@pytest.fixture
def stopping() -> Iterator[list[Schedule]]:
    made: list[Schedule] = []
    yield made
    for schedule in made:
        schedule.stop()


def started(stopping: list[Schedule], *jobs: Periodic, wall: Wall | None = None) -> Schedule:
    schedule = Schedule(jobs, wall=wall) if wall else Schedule(jobs)
    stopping.append(schedule)
    schedule.start()
    return schedule


def test_runs_at_its_interval(stopping: list[Schedule]) -> None:
    """A job runs again and again, first after one interval."""
    runs: list[float] = []
    start = time.monotonic()
    schedule = started(stopping, Periodic("tick", 0.1, lambda: runs.append(time.monotonic())))
    assert until(lambda: len(runs) >= 3)
    assert runs[0] - start >= 0.09
    (job,) = schedule.jobs()
    assert (job.id, job.every_seconds) == ("tick", 0.1)
    assert job.last_at is not None and job.next_at is not None and job.next_at > job.last_at


def test_clock_set_back_delays_nothing(stopping: list[Schedule], wall: Wall) -> None:
    """With the clock two hours back, the next run still comes after one interval."""
    runs: list[None] = []
    schedule = started(stopping, Periodic("tick", 0.2, lambda: runs.append(None)), wall=wall)
    assert until(lambda: len(runs) >= 1)
    wall.moved = timedelta(hours=-2)
    seen = len(runs)
    assert until(lambda: len(runs) >= seen + 3, 5)
    assert schedule.missed < 10


def test_clock_set_forward_runs_once_and_counts(stopping: list[Schedule], wall: Wall) -> None:
    """Three hours of sleep make one run and a number, fifty years make no list of runs."""
    runs: list[None] = []
    jobs = Periodic("beat", 0.1, lambda: None), Periodic("sweep", 600, lambda: runs.append(None))
    schedule = started(stopping, *jobs, wall=wall)
    wall.moved = timedelta(hours=3)
    assert until(lambda: len(runs) == 1)
    sweep = schedule.jobs()[1]
    assert sweep.missed == 18
    wall.moved = timedelta(days=50 * 365)
    assert until(lambda: len(runs) == 2)
    assert schedule.jobs()[1].missed > 2_000_000
    assert until(lambda: schedule.jobs()[0].last_at is not None)
    assert len(runs) == 2


def test_a_held_up_scheduler_runs_once_and_counts(stopping: list[Schedule]) -> None:
    """Held up over several due times, a job runs once, not never and not once for each."""
    runs: list[None] = []
    held = threading.Event()
    schedule = started(
        stopping,
        Periodic("slow", 0.05, lambda: bool(held.wait(0.6)) and None),
        Periodic("tick", 0.1, lambda: runs.append(None)),
    )
    assert until(lambda: schedule.missed >= 4)
    ran = len(runs)
    held.set()
    assert until(lambda: len(runs) > ran)
    (_, tick) = schedule.jobs()
    assert tick.missed >= 4


def test_new_interval_holds_from_now(stopping: list[Schedule]) -> None:
    """A job that was to run in ten minutes runs at once often when told so, and back."""
    runs: list[None] = []
    schedule = started(stopping, Periodic("sweep", 600, lambda: runs.append(None)))
    schedule.every("sweep", 0.1)
    assert until(lambda: len(runs) >= 2)
    schedule.every("sweep", 600)
    assert schedule.jobs()[0].every_seconds == 600
    seen = len(runs)
    assert not until(lambda: len(runs) > seen + 1, 0.4)


def test_a_failing_job_is_logged_and_runs_again(stopping: list[Schedule], caplog: pytest.LogCaptureFixture) -> None:
    """A fault in one job stops neither it nor the others."""
    runs: list[None] = []

    def fails() -> None:
        runs.append(None)
        raise ValueError("odd")

    started(stopping, Periodic("bad", 0.05, fails))
    assert until(lambda: len(runs) >= 2)
    assert any("odd" in (record.exc_text or "") for record in caplog.records)


def test_twenty_ends_with_a_job_always_due(caplog: pytest.LogCaptureFixture) -> None:
    """Twenty starts and stops with a job due all the time leave no complaint and no OS thread."""
    before = threading.active_count()
    with caplog.at_level(logging.DEBUG):
        for _ in range(20):
            runs: list[None] = []
            schedule = Schedule([Periodic("tick", 0.01, lambda runs=runs: runs.append(None))])  # type: ignore[misc]
            schedule.start()
            assert until(lambda runs=runs: bool(runs))  # type: ignore[misc]
            begun = time.monotonic()
            schedule.stop()
            assert time.monotonic() - begun < 1
    assert threading.active_count() == before
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("seconds", [30, 60, 600, 3600])
@pytest.mark.parametrize("start", ["2017-10-28T20:00", "2025-03-09T03:00", "2025-11-02T03:00", "2038-01-19"])
def test_fire_times_only_go_forward(seconds: float, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand runs over any change of local time are strictly one interval apart."""
    monkeypatch.setenv("TZ", "Europe/Helsinki")
    time.tzset()
    try:
        trigger = module._every(seconds)
        at = datetime.fromisoformat(start).replace(tzinfo=UTC)
        trigger.start_date = at
        fires = [at]
        for _ in range(1000):
            fires.append(trigger.get_next_fire_time(fires[-1], fires[-1]))
        assert {(b - a).total_seconds() for a, b in itertools.pairwise(fires)} == {seconds}
    finally:
        monkeypatch.undo()
        time.tzset()
