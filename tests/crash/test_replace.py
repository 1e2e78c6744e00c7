"""A replacement killed anywhere, or refused by the disk anywhere, leaves a whole live file and every line that came."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fabled.errors import Refused, StorageFault
from fabled.store import replace
from fabled.store.ledger import Ledger
from tests.crash.faults import RAW, Calls, failing, killed

SHARDS = 2
OLD = b"".join(b'{"n":%d,"pad":"%s"}\n' % (number, b"x" * 40) for number in range(30))
NEW = b"".join(b'{"n":%d}\n' % number for number in range(30))
TIME = 1_700_000_000_123_456_789


@dataclass
class Story:
    """One replacement with clients that write before, during and after it; all they wrote is in `wrote`."""

    folder: Path
    count: int = 0
    holder: int = -1
    told: list[str] = field(default_factory=list)

    @property
    def live(self) -> Path:
        return self.folder / "p" / "s.jsonl"

    @property
    def wrote(self) -> Path:
        return self.folder / "wrote"

    def prepare(self) -> None:
        self.live.parent.mkdir(parents=True)
        self.live.write_bytes(OLD)
        self.live.chmod(0o600)
        os.utime(self.live, ns=(TIME, TIME))
        Ledger(str(self.folder / "ledger.db")).close()

    def line(self) -> bytes:
        self.count += 1
        line = b'{"late":%d}\n' % self.count
        RAW.append(self.wrote, line)
        return line

    def append(self) -> None:
        RAW.append(self.live, self.line())

    def late(self) -> None:
        """A client that opened the file before the rename writes now."""
        RAW.write(self.holder, self.line())

    def resumed(self) -> None:
        """After a kill, before the next start: a client appends, on a new line as it does."""
        with open(self.live, "rb+") as file:
            file.seek(-1, os.SEEK_END)
            torn = file.read() != b"\n"
        line = b'{"resumed":1}\n'
        RAW.append(self.wrote, line)
        RAW.append(self.live, (b"\n" if torn else b"") + line)

    def step(self, name: str) -> None:
        self.told.append(name)
        if self.told.count(name) > 1 and name != "K11":
            return
        if name in ("K7", "K8", "K9"):
            self.append()
        elif name == "K10":
            self.late()
            self.append()
        elif name == "K11" and self.told.count(name) < 3:
            self.late()

    def run(self, calls: Calls | None = None) -> replace.Drain:
        """Raises what the replacement raises. `calls` watch over it."""
        ledger = Ledger(str(self.folder / "ledger.db"))
        with calls.watch() if calls else contextlib.nullcontext():
            return self._run(ledger)

    def _run(self, ledger: Ledger) -> replace.Drain:
        self.holder = RAW.open(self.live, os.O_WRONLY | os.O_APPEND)
        held = replace.hold(str(self.live), reserve_bytes=0)
        asked = 0

        def allowed() -> None:
            nonlocal asked
            asked += 1
            if asked == 2:
                self.append()  # copied last, right before the rename

        try:
            entry = ledger.begin(
                {
                    "session_id": "s",
                    "path": str(self.live),
                    "what": "prune",
                    "level": "gentle",
                    "at": 1,
                    "state": "begun",
                    "base_length": held.length,
                    "base_sha": held.sha256(),
                }
            )
            try:
                temp = replace.write_temp(held, lambda write: [write(line) for line in NEW.splitlines(True)])
            except BaseException:
                ledger.set(entry, state="given_up")  # until `swap` the row is the caller's
                raise
            drain = replace.swap(held, temp, ledger, entry, still_allowed=allowed, drain_seconds=0, step=self.step)
        except BaseException:
            held.close()
            RAW.close(self.holder)
            ledger.close()
            raise
        self.late()
        for now in range(2):
            drain.visit(now)
        RAW.close(self.holder)
        drain.finish()
        ledger.close()
        return drain

    def whole(self, words: str, leftovers: bool = False) -> str:
        """Asserts that nothing is lost or doubled; returns the state of the journal's row ("" without one)."""
        data = self.live.read_bytes()
        assert data.startswith((OLD, NEW)), words
        base = OLD if data.startswith(OLD) else NEW
        wrote = Counter(self.wrote.read_bytes().splitlines()) if self.wrote.exists() else Counter()
        assert Counter(data[len(base) :].splitlines()) == wrote, words
        assert data.endswith(b"\n"), words
        assert stat.S_IMODE(self.live.stat().st_mode) == 0o600
        ledger = Ledger(str(self.folder / "ledger.db"))
        rows = ledger.journal()
        assert ledger.unfinished() == [], words
        ledger.close()
        assert all((row.state == "done") == (base is NEW) for row in rows), words
        if not leftovers:
            assert replace.leftover_files([str(self.live.parent)]) == [], words
            assert self.live.stat().st_nlink == 1
        return rows[-1].state if rows else ""


def recovered(folder: Path) -> list[str]:
    """What a start makes of it, drains to their end included."""
    ledger = Ledger(str(folder / "ledger.db"))
    found = replace.recover(ledger, folders=[str(folder / "p")], drain_seconds=0)
    for one in found:
        if one.drain is not None:
            assert one.drain.finish(60)
    ledger.close()
    return [one.what for one in found]


def fresh(folder: Path) -> Story:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    story = Story(folder)
    story.prepare()
    return story


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_any_moment_is_made_good(shard: int, tmp_path: Path) -> None:
    """Killed before or after any call or commit, the next start leaves old or new, and every appended line once."""
    deaths, states = [], set()
    moment = shard + 1
    while words := killed(moment, (story := fresh(tmp_path / "home")).run):
        deaths.append(words)
        story.resumed()
        recovered(story.folder)
        states.add(story.whole(words))
        assert recovered(story.folder) == []
        moment += SHARDS
    assert states == {"", "given_up", "done"}
    assert len(deaths) >= 32, deaths


def test_a_write_cut_in_its_middle_is_made_good(tmp_path: Path) -> None:
    """A kill in the midst of a write, also of one that carries late lines over, is completed and doubles nothing."""
    number = 1
    while words := killed(number, (story := fresh(tmp_path / "home")).run, torn=True):
        recovered(story.folder)
        story.whole(words)
        number += 1
    assert number > 5


def test_a_write_cut_in_its_middle_and_appended_to_is_made_good(tmp_path: Path) -> None:
    """A client appends before the next start: the piece stays as a torn line, and every line is there once."""
    number, torn = 1, 0
    while words := killed(number, (story := fresh(tmp_path / "home")).run, torn=True):
        story.resumed()
        recovered(story.folder)
        lines = Counter(story.live.read_bytes().splitlines())
        wrote = Counter(story.wrote.read_bytes().splitlines())
        assert wrote - lines == Counter(), words
        odd = lines - wrote - Counter((OLD + NEW).splitlines())
        assert all(any(line.startswith(piece) for line in wrote) for piece in odd), words
        torn += odd.total()
        number += 1
    assert 0 < torn < number


def test_a_start_that_is_killed_itself_is_made_good(tmp_path: Path) -> None:
    """Killed at any moment of finishing what a kill left, the next start finishes it."""
    interesting: dict[str, int] = {}
    moment = 1
    while words := killed(moment, fresh(tmp_path / "home").run):
        interesting.setdefault(words.partition(": ")[2], moment)
        interesting["last " + words.partition(": ")[2]] = moment
        moment += 1
    chosen = {
        interesting[name]
        for name in (
            "after commit linked",
            "after link",
            "after replace",
            "last after write",
            "before commit done",
        )
    }
    deaths = 0
    for moment in chosen:
        second = 1
        while True:
            story = fresh(tmp_path / "home")
            first = killed(moment, story.run)
            again = killed(second, lambda: recovered(story.folder))  # noqa: B023 (called at once)
            recovered(story.folder)
            story.whole(f"{first}, then {again}")
            if again is None:
                break
            deaths += 1
            second += 1
    assert deaths >= 30


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_one_call_that_fails_changes_nothing_or_is_asked_again(code: int, tmp_path: Path) -> None:
    """Before the rename a fault means: refused, live file and folder as before. After it, the drain tries again."""
    number, refused = 1, 0
    while True:
        story = fresh(tmp_path / "home")
        before = story.live.stat()
        calls = failing(number, code)
        try:
            drain = story.run(calls)
        except (Refused, StorageFault):
            drain = None
        words = f"{number}: {calls.seen[min(number, len(calls.seen)) - 1]}"
        if drain is None:
            refused += 1
            assert story.whole(words) in ("", "given_up"), words
            assert story.live.stat().st_ino == before.st_ino
            assert recovered(story.folder) == []
        else:
            assert drain.over, words
            assert story.whole(words, leftovers=drain.note is not None) == "done"
            recovered(story.folder)
            story.whole(words)
        if len(calls.seen) < number:
            break
        number += 1
    assert refused >= 12
    assert number >= 30


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_disk_that_goes_on_failing_is_made_good_at_the_next_start(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any call on nothing can be written any more; once it can, a start leaves old or new and every line."""
    finish = replace.Drain.finish
    monkeypatch.setattr(replace.Drain, "finish", lambda drain, patience=0.05: finish(drain, patience))
    number = 1
    while True:
        story = fresh(tmp_path / "home")
        calls = failing(number, code, for_good=True)
        with contextlib.suppress(Refused, StorageFault):
            story.run(calls)
        recovered(story.folder)
        story.whole(f"{number}: {calls.seen[min(number, len(calls.seen)) - 1]}")
        if len(calls.seen) < number:
            break
        number += 1
    assert number >= 30


def test_the_order_of_what_is_made_durable(tmp_path: Path) -> None:
    """New file, journal, hidden name and its folder before the rename; the folder after it; the link goes last."""
    story = fresh(tmp_path / "home")
    ledger = Ledger(str(story.folder / "ledger.db"))
    held = replace.hold(str(story.live), reserve_bytes=0)
    with Calls().watch() as calls:
        entry = ledger.begin(
            {
                "session_id": "s",
                "path": str(story.live),
                "what": "prune",
                "level": "gentle",
                "at": 1,
                "state": "begun",
                "base_length": held.length,
                "base_sha": held.sha256(),
            }
        )
        temp = replace.write_temp(held, lambda write: write(NEW))
        new = temp.path
        drain = replace.swap(held, temp, ledger, entry, still_allowed=lambda: None, drain_seconds=0)
        assert drain.finish()
    ledger.close()
    folder, live = str(story.live.parent), str(story.live)
    matters = [
        (name, where)
        for name, where in calls.seen
        if name.startswith(("fsync", "link", "replace", "unlink", "commit", "write"))
    ]
    assert matters == [
        ("commit begun", ""),
        ("write", new),
        ("fsync", new),
        ("commit linked", ""),
        ("link", f"{live}:{drain.hidden}"),
        ("fsync", folder),
        ("replace", f"{new}:{live}"),
        ("fsync", new),
        ("fsync", folder),
        ("commit replaced", ""),
        ("fsync", new),
        ("unlink", drain.hidden),
        ("fsync", folder),
        ("commit done", ""),
    ]


# A file that is not there


def restored(folder: Path) -> Callable[[], None]:
    def run() -> None:
        ledger = Ledger(str(folder / "ledger.db"))
        path = str(folder / "p" / "gone" / "s.jsonl")
        entry = ledger.begin(
            {
                "session_id": "s",
                "path": path,
                "what": "restore",
                "level": "",
                "at": 1,
                "state": "begun",
                "base_length": 0,
                "base_sha": b"",
            }
        )
        replace.create(path, NEW.splitlines(True), ledger, entry)
        ledger.close()

    return run


def test_a_file_made_anew_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Killed at any moment, and after the next start: no file, or the whole one, and nothing beside it."""
    moment, outcomes = 1, set()
    while True:
        folder = fresh(tmp_path / "home").folder
        words = killed(moment, restored(folder))
        path = folder / "p" / "gone" / "s.jsonl"
        if path.exists():
            assert path.read_bytes() == NEW, words
        recovered(folder)
        ledger = Ledger(str(folder / "ledger.db"))
        states = {row.state for row in ledger.journal()}
        ledger.close()
        assert states <= {"done"} if path.exists() else states <= {"given_up"}, words
        outcomes.add(path.exists())
        assert replace.leftover_files([str(path.parent)]) == [], words
        if words is None:
            break
        moment += 1
    assert outcomes == {False, True}
    assert moment >= 20
