"""The inbox: each path and job once, due by two numbers, and never a poll."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.daemon.inbox import Asked, Batch, Inbox, Job
from fabled.errors import NotRunning

SWEEP = Job("sweep")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inbox(clock: Clock) -> Inbox:
    return Inbox(0.3, 2.0, clock=clock, most_paths=5)


def test_nothing_is_never_due(inbox: Inbox) -> None:
    """An empty inbox has no due time and no batch."""
    assert inbox.due() is None
    assert inbox.ready() is None
    assert len(inbox) == 0


def test_path_is_due_when_quiet(inbox: Inbox, clock: Clock) -> None:
    """A path is handed out one quiet window after its last event, not before."""
    inbox.add("a")
    clock.now += 0.2
    inbox.add("a")
    clock.now += 0.29
    assert inbox.ready() is None
    assert inbox.due() == pytest.approx(0.01)
    clock.now += 0.01
    assert inbox.ready() == Batch(("a",), ())
    assert inbox.due() is None


def test_constant_writing_cannot_starve(inbox: Inbox, clock: Clock) -> None:
    """A path touched without pause is handed out after the maximum wait."""
    started = clock.now
    inbox.add("a")
    while inbox.ready() is None:
        clock.now += 0.05
        inbox.add("a")
    assert clock.now - started == pytest.approx(2.0, abs=0.06)


def test_busy_path_does_not_delay_a_quiet_one(inbox: Inbox, clock: Clock) -> None:
    """One session written without pause does not hold up another that has been quiet."""
    inbox.add("quiet")
    for _ in range(7):
        clock.now += 0.05
        inbox.add("busy")
    batch = inbox.ready()
    assert batch is not None and set(batch.paths) == {"quiet", "busy"}


def test_urgent_path_and_job_are_due_at_once(inbox: Inbox) -> None:
    """Neither an explicit request nor a job waits for quiet, and what lies beside them goes along."""
    inbox.add("waiting")
    inbox.add("asked for", urgent=True)
    assert inbox.ready() == Batch(("waiting", "asked for"), ())
    inbox.add("waiting")
    inbox.ask(SWEEP, "timer")
    assert inbox.ready() == Batch(("waiting",), (Asked(SWEEP, ("timer",)),))


def test_equal_jobs_are_one_with_all_reasons_and_replies(inbox: Inbox) -> None:
    """Asking twice does it once and answers everybody."""
    replies: list[Future[Any]] = [Future(), Future()]
    inbox.ask(SWEEP, "overflow", replies[0])
    inbox.ask(SWEEP, "overflow", replies[1])
    inbox.ask(SWEEP, "timer")
    assert inbox.ready() == Batch((), (Asked(SWEEP, ("overflow", "timer"), tuple(replies)),))


def test_too_many_paths_become_everything(inbox: Inbox, clock: Clock) -> None:
    """Above the bound names are given up for one look at everything; memory stays bounded."""
    for number in range(1000):
        inbox.add(f"p{number}")
        assert len(inbox) <= 6
    clock.now += 2
    assert inbox.ready() == Batch((), (), overfull=True)
    assert inbox.ready() is None


def test_close_ends_a_waiting_taker_and_answers_waiting_jobs(inbox: Inbox) -> None:
    """Closing wakes the taker and fails what nobody will do any more."""
    taken: list[Batch | None] = []
    waiting = Inbox(60, 60)
    taker = threading.Thread(target=lambda: taken.append(waiting.take()))
    taker.start()
    reply: Future[Any] = Future()
    inbox.ask(SWEEP, reply=reply)
    inbox.close()
    waiting.close()
    taker.join(5)
    assert taken == [None]
    assert inbox.take() is None
    late: Future[Any] = Future()
    inbox.ask(SWEEP, reply=late)
    inbox.add("a")
    for answered in (reply, late):
        assert isinstance(answered.exception(0), NotRunning)


def test_closing_first_ends_it_too() -> None:
    """A taker that comes after the close does not wait."""
    inbox = Inbox(0.3, 2)
    inbox.close()
    assert inbox.take() is None


def test_take_waits_for_quiet_without_spinning() -> None:
    """The blocking form keeps the same times on a real clock and wakes a handful of times only."""
    ticks = 0

    def clock() -> float:
        nonlocal ticks
        ticks += 1
        return time.monotonic()

    inbox = Inbox(0.2, 2, clock=clock)
    taken: list[float] = []

    def taker() -> None:
        assert inbox.take() is not None
        taken.append(time.monotonic())

    thread = threading.Thread(target=taker)
    thread.start()
    added = time.monotonic()
    inbox.add("a")
    thread.join(10)
    assert taken[0] - added >= 0.2
    assert ticks < 12


def test_paths_can_be_taken_alone(inbox: Inbox, clock: Clock) -> None:
    """In the middle of long work only paths are asked for, when they are due; jobs stay where they are."""
    inbox.ask(SWEEP)
    assert not inbox.paths_due()
    inbox.add("a")
    assert not inbox.paths_due()
    clock.now += 0.3
    assert inbox.paths_due()
    assert inbox.take_paths() == ("a",)
    assert not inbox.paths_due()
    inbox.add("b", urgent=True)
    assert inbox.paths_due()
    assert inbox.ready() == Batch(("b",), (Asked(SWEEP),))


def test_new_pace_holds_at_once(inbox: Inbox, clock: Clock) -> None:
    """After a reload the new quiet window counts for paths that already wait."""
    inbox.add("a")
    inbox.pace(0.1, 1.0)
    clock.now += 0.1
    assert inbox.ready() == Batch(("a",), ())


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 1)), min_size=1, max_size=60))
def test_no_event_is_lost_or_late(events: list[tuple[str, float]]) -> None:
    """However events fall, each path is handed out after its last event and within the maximum wait."""
    clock = Clock()
    inbox = Inbox(0.3, 2.0, clock=clock)
    oldest: dict[str, float] = {}
    for path, pause in events:
        clock.now += pause
        due = inbox.due()
        if due is not None and due <= 0:
            batch = inbox.ready()
            assert batch is not None
            assert set(batch.paths) == set(oldest)
            oldest = {}
        inbox.add(path)
        oldest.setdefault(path, clock.now)
        due = inbox.due()
        assert due is not None and clock.now + due <= min(oldest.values()) + 2.0 + 1e-9
    clock.now += 2.0
    batch = inbox.ready()
    assert batch is not None and set(batch.paths) == set(oldest)
