"""The writer over a real Map: what it does with storage that locks, fills up, breaks, or fails for good."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw
import pytest

from fabled.daemon.inbox import Inbox, Job
from fabled.daemon.writer import IDLE, REPAIR, SWEEP, TERMS, Tells, Writer
from fabled.errors import FabledError, NotRunning, StorageFault
from fabled.indexer import Indexer, Progress
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.store.vault import Vault
from tests.daemon.help import transcript, until

INDEX = Job("index")


class Desk:
    """A writer with its inbox, on folders of its own, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "projects"
        self.root.mkdir()
        self.data = folder / "data"
        self.data.mkdir()
        self.map = Map(str(self.data / "map.db"))
        self.ledger = Ledger(str(self.data / "ledger.db"))
        self.vault = Vault(str(self.data / "vault"), [str(self.root)])
        self.inbox = Inbox(0.02, 1)
        self.stopping = threading.Event()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.progress: list[Progress] = []
        self.ready = threading.Event()
        self.failed = threading.Event()
        self.writer = Writer(
            self.inbox,
            Indexer(self.map, self.vault, self.ledger),
            self.stopping,
            Tells(
                event=lambda name, value: self.events.append((name, value)),
                progress=self.progress.append,
                ready=lambda health: self.ready.set(),
                failed=self.failed.set,
            ),
        )

    def start(self) -> None:
        self.writer.start()
        assert self.ready.wait(10)

    def index(self, *paths: Path | str) -> Any:
        """Ask for an index run as a client does, and give its answer."""
        reply: Future[Any] = Future()
        self.inbox.ask(Job("index", tuple(map(str, paths))), reply=reply)
        return reply.result(20)

    def found(self, word: str) -> int:
        """Hits of a word, read beside the writer."""
        reading = apsw.Connection(self.map.path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return len(reading.execute("SELECT rowid FROM fts WHERE fts MATCH ?", (word,)).fetchall())
        finally:
            reading.close()

    def close(self) -> None:
        self.stopping.set()
        self.inbox.close()
        assert self.writer.join(10)
        self.map.close()
        self.ledger.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_starts_with_everything_then_follows_paths(desk: Desk) -> None:
    """What lies there is indexed first; then a path in the inbox is enough."""
    transcript(desk.root, "one", "a heron stands")
    desk.start()
    assert desk.found("heron") == 1
    assert desk.writer.health.first_pass_done and desk.progress
    path = transcript(desk.root, "one", "a bittern booms")
    desk.inbox.add(str(path))
    assert until(lambda: desk.found("bittern") == 1)
    assert until(lambda: desk.writer.health.phase == "idle")
    health = desk.writer.health
    assert (health.scans, health.changes, health.rescans) == (2, 2, 0)
    assert health.last_change is not None and abs(health.last_change - time.time()) < 10
    assert [name for name, _ in desk.events] == ["index", "change"]


def test_an_unchanged_path_costs_a_look(desk: Desk) -> None:
    """A path that has not changed is neither read nor told of."""
    path = transcript(desk.root, "one", "a heron stands")
    desk.start()
    # The stamp of a file as young as its reading proves nothing: it is read once more.
    assert until(lambda: desk.index(path)["scans"] == 0)
    scans, told = desk.writer.health.scans, len(desk.events)
    desk.inbox.add(str(path))
    desk.inbox.ask(IDLE)
    assert desk.index(path)["scans"] == 0
    assert (desk.writer.health.scans, len(desk.events)) == (scans, told)


def test_at_rest_nothing_is_held_only_to_be_faster(desk: Desk) -> None:
    """Neither pages nor names nor the space of the two stores' logs; and work goes on from there."""
    path = transcript(desk.root, "one", "a heron stands")
    desk.start()
    desk.ledger.note("vanished", "s", "gone", 0, 1)
    used = {db: db.status(apsw.SQLITE_DBSTATUS_CACHE_USED)[0] for db in (desk.map.db, desk.ledger._db)}
    assert desk.map._names and not desk.writer.health.rested
    desk.inbox.ask(IDLE)
    assert until(lambda: desk.writer.health.rested)
    assert not (desk.map._names or desk.map._sessions or desk.map._threads)
    assert all(db.status(apsw.SQLITE_DBSTATUS_CACHE_USED)[0] < before / 2 for db, before in used.items())
    assert [Path(f"{db.filename}-wal").stat().st_size for db in used] == [0, 0]
    transcript(desk.root, "one", "a bittern booms")
    desk.inbox.add(str(path))
    assert until(lambda: desk.found("bittern") == 1)
    assert not desk.writer.health.rested


def test_terms_that_cannot_be_derived_wait_for_a_change(desk: Desk) -> None:
    """Else a daemon at rest would try again every half minute for as long as it lives."""
    path = transcript(desk.root, "one", "a heron stands")
    desk.start()
    assert desk.writer.health.terms_due
    path.rename(path.with_suffix(".away"))
    desk.inbox.ask(TERMS)
    assert until(lambda: not desk.writer.health.terms_due)
    path.with_suffix(".away").rename(path)
    transcript(desk.root, "one", "a bittern booms")
    desk.inbox.add(str(path))
    assert until(lambda: desk.writer.health.terms_due)
    desk.inbox.ask(TERMS)
    assert until(lambda: not desk.writer.health.terms_due)
    with apsw.Connection(desk.map.path, flags=apsw.SQLITE_OPEN_READONLY) as reading:
        assert reading.execute("SELECT count(*) FROM terms_of").fetchone() == (2,)


def test_an_index_request_is_answered_with_the_report(desk: Desk) -> None:
    """Whoever asks for an index run gets its figures when it is done, of some paths or of everything."""
    desk.start()
    path = transcript(desk.root, "one", "a heron stands")
    transcript(desk.root, "two", "a bittern booms")
    value = desk.index(path)
    assert (value["files_changed"], value["records"], value["failed"]) == (1, 1, [])
    value = desk.index()
    assert (value["files"], value["records"]) == (2, 2)
    assert desk.found("bittern") == 1


def test_a_sweep_finds_what_no_event_told(desk: Desk) -> None:
    """Everything is looked at when asked, and counted."""
    desk.start()
    transcript(desk.root, "one", "a heron stands")
    desk.inbox.ask(SWEEP, "overflow")
    assert until(lambda: desk.writer.health.rescans == 1)
    assert desk.found("heron") == 1


def test_more_paths_than_can_be_named_are_a_sweep(desk: Desk) -> None:
    """An inbox that gave up naming paths has everything looked at."""
    desk.start()
    transcript(desk.root, "one", "a heron stands")
    desk.inbox._most_paths = 2
    for number in range(5):
        desk.inbox.add(f"/nowhere/{number}.jsonl")
    assert until(lambda: desk.found("heron") == 1)
    assert until(lambda: desk.writer.health.rescans == 1)


@pytest.mark.parametrize("passes", [errno.ENOENT, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_a_file_that_could_not_be_read_for_a_moment_is_read_at_the_next_look(desk: Desk, passes: int) -> None:
    """It is the same file with the same stamp, as where the disk it lies on went and came back."""
    odd = transcript(desk.root, "odd", "a bittern booms")
    desk.vault.open = _refuse(desk.vault.open, str(odd), passes)  # type: ignore[method-assign]
    desk.start()
    assert [path for path, _ in desk.writer.health.failed] == [str(odd)]
    del desk.vault.open
    desk.inbox.add(str(desk.root))
    assert until(lambda: desk.found("bittern") == 1)
    assert until(lambda: not desk.writer.health.failed)


def test_a_file_that_cannot_be_read_is_told_and_left_until_it_changes(desk: Desk) -> None:
    """An unreadable file does not stop the others, and is not tried again at the same stamp."""
    transcript(desk.root, "one", "a heron stands")
    odd = transcript(desk.root, "odd", "a bittern booms")
    desk.vault.open = _refuse(desk.vault.open, str(odd), errno.EIO)  # type: ignore[method-assign]
    desk.start()
    assert desk.found("heron") == 1
    assert [path for path, _ in desk.writer.health.failed] == [str(odd)]
    scans = desk.writer.health.scans
    desk.inbox.ask(SWEEP)
    assert until(lambda: desk.writer.health.rescans == 1)
    assert until(lambda: desk.writer.health.phase == "idle")
    assert desk.writer.health.failed
    del desk.vault.open
    transcript(desk.root, "odd", "and again")
    desk.inbox.add(str(odd))
    assert until(lambda: desk.found("bittern") == 1)
    assert until(lambda: not desk.writer.health.failed)
    assert desk.writer.health.scans > scans


def _refuse(inner: Callable[[str], Any], refused: str, number: int) -> Callable[[str], Any]:
    def open_(path: str) -> Any:
        if path == refused:
            raise OSError(number, os.strerror(number), path)
        return inner(path)

    return open_


def test_a_fault_of_ours_ends_neither_the_writer_nor_other_files(desk: Desk) -> None:
    """An update that fails in a way nobody foresaw is told, and the next one is done."""
    desk.start()
    path = transcript(desk.root, "one", "a heron stands")
    inner = desk.writer.indexer.update
    desk.writer.indexer.update = lambda *args, **more: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(FabledError, match="ZeroDivisionError"):
        desk.index(path)
    assert desk.writer.health.failed
    desk.writer.indexer.update = inner  # type: ignore[method-assign]
    assert desk.index(path)["failed"] == []
    assert desk.found("heron") == 1
    assert not desk.writer.health.failed


# ── storage ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_locked_map_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another connection holds the write lock, nothing is lost, reading goes on, and one warning is left."""
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("fabled.daemon.writer.log.warning", lambda event, **facts: said.append((event, facts)))
    transcript(desk.root, "one", "a heron stands")
    desk.start()
    desk.map.db.set_busy_timeout(50)
    holder = apsw.Connection(desk.map.path)
    holder.execute("BEGIN IMMEDIATE")
    for number in range(20):
        desk.inbox.add(str(transcript(desk.root, f"late {number}", "a bittern booms")))
    assert until(lambda: desk.writer.health.storage is not None)
    storage = desk.writer.health.storage
    assert storage is not None and storage.kind == "locked" and desk.writer.health.phase == "waiting"
    assert (desk.found("heron"), desk.found("bittern")) == (1, 0)
    holder.execute("ROLLBACK")
    holder.close()
    assert until(lambda: desk.found("bittern") == 20)
    assert until(lambda: desk.writer.health.storage is None)
    assert [event for event, _ in said] == ["storage.waited"]
    assert said[0][1]["kind"] == "locked" and said[0][1]["seconds"] >= 0


def test_a_full_disk_is_waited_for_and_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no room for a write the change waits, whoever asked is told at once, and room is enough to go on."""
    monkeypatch.setattr("fabled.daemon.writer.RETRY_SECONDS", (0.01,) * 6)
    desk.start()
    (pages,) = desk.map.db.execute("PRAGMA page_count").fetchone()
    desk.map.db.execute(f"PRAGMA max_page_count={pages}")
    path = transcript(desk.root, "one", *(f"heron {number} " + "x y " * 2000 for number in range(50)))
    with pytest.raises(StorageFault, match="full"):
        desk.index(path)
    assert until(lambda: desk.writer.health.storage is not None)
    storage = desk.writer.health.storage
    assert storage is not None and storage.kind == "full"
    assert desk.found("heron") == 0
    desk.map.db.execute("PRAGMA max_page_count=1000000")
    assert until(lambda: desk.found("heron") == 50)
    assert until(lambda: desk.writer.health.storage is None)
    assert ("storage", {"state": "well"}) in desk.events


def damage(path: str) -> None:
    """Delete some of the full text's own rows, as a torn write leaves it."""
    other = apsw.Connection(path)
    other.execute("DELETE FROM fts_data WHERE id > 10 AND id % 2 = 0")
    assert other.changes() > 0
    other.close()


def test_damage_of_the_full_text_is_found_and_mended(desk: Desk) -> None:
    """Asked to look, the writer finds what is missing and builds it anew: every hit is back."""
    words = [f"word{number}" for number in range(1500)]
    transcript(desk.root, "one", *words)
    desk.start()
    damage(desk.map.path)
    reply: Future[Any] = Future()
    desk.inbox.ask(REPAIR, reply=reply)
    assert reply.result(20) is True
    assert all(desk.found(word) == 1 for word in words[::50])
    assert desk.writer.health.fts_rebuilds == 1
    again: Future[Any] = Future()
    desk.inbox.ask(REPAIR, reply=again)
    assert again.result(20) is False


def test_an_index_that_fails_for_good_ends_the_writer(desk: Desk) -> None:
    """Without its Map the writer says so and ends, and nobody waits for it in vain."""
    desk.start()
    desk.map.db.close()
    waiting: Future[Any] = Future()
    desk.inbox.ask(INDEX, reply=waiting)
    assert desk.failed.wait(10)
    with pytest.raises(FabledError):
        waiting.result(5)
    assert desk.writer.join(5)
    assert desk.writer.health.phase == "failed"
    late: Future[Any] = Future()
    desk.inbox.ask(INDEX, reply=late)
    assert isinstance(late.exception(0), NotRunning)


# ── long work ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_pass_stands_back_for_waiting_paths(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a pass over everything a waiting path has its turn, then the pass goes on to its end."""
    monkeypatch.setattr("fabled.daemon.writer.YIELD_SECONDS", 0.0)
    urgent = transcript(desk.root, "zzz urgent", "a heron stands", project="-zzz")
    for number in range(30):
        transcript(desk.root, f"old {number}", f"a bittern booms {number}")
    order: list[str] = []
    inner = desk.vault.open

    def open_(path: str) -> Any:
        order.append(path)
        if len(order) == 3:
            desk.inbox.add(str(urgent), urgent=True)
        return inner(path)

    desk.vault.open = open_  # type: ignore[method-assign]
    desk.start()
    assert desk.found("bittern") == 30 and desk.found("heron") == 1
    assert order.index(str(urgent)) < 10
    report = desk.writer.health.report
    assert report is not None and report.files == 31


def test_a_stop_in_the_middle_of_a_pass_is_soon(desk: Desk) -> None:
    """Asked to stop, a pass ends between two files, and what it stored stays."""
    for number in range(50):
        transcript(desk.root, f"old {number}", f"a bittern booms {number}")
    inner = desk.vault.open
    opened: list[str] = []

    def open_(path: str) -> Any:
        opened.append(path)
        if len(opened) == 5:
            desk.stopping.set()
            desk.inbox.close()
        return inner(path)

    desk.vault.open = open_  # type: ignore[method-assign]
    desk.writer.start()
    assert desk.writer.join(10)
    assert len(opened) < 10
    assert desk.writer.health.phase == "stopped"
    assert 0 < desk.found("bittern") < 10


def test_other_roots_after_a_reload(desk: Desk, tmp_path: Path) -> None:
    """An indexer of other roots takes over between two batches and looks at everything."""
    transcript(desk.root, "one", "a heron stands")
    desk.start()
    other = tmp_path / "other"
    transcript(other, "two", "a bittern booms")
    vault = Vault(str(desk.data / "vault"), [str(desk.root), str(other)])
    desk.writer.use(lambda: Indexer(desk.map, vault, desk.ledger))
    assert until(lambda: desk.found("bittern") == 1)
    assert desk.found("heron") == 1


def test_a_request_is_not_kept_waiting_for_a_disk_to_be_freed(desk: Desk) -> None:
    """Neither one that comes with what waits, nor one that comes while it waits."""
    path = transcript(desk.root, "one", "a heron stands")
    desk.start()
    desk.map.db.execute(f"PRAGMA max_page_count={desk.map.db.pragma('page_count')}")
    transcript(desk.root, "one", *(f"a bittern booms {number} " + "reed " * 200 for number in range(200)))
    desk.inbox.add(str(path))
    assert until(lambda: desk.writer.health.phase == "waiting")
    late: Future[Any] = Future()
    desk.inbox.ask(Job("capture", params='{"sessions":["x"]}'), reply=late)
    with pytest.raises(StorageFault, match="full"):
        late.result(20)
    desk.map.db.execute("PRAGMA max_page_count=4294967294")
    assert until(lambda: desk.writer.health.phase == "idle")
