"""What is not fit to be replaced is refused; what is replaced keeps its rights, its time and every line that comes."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fabled.errors import Refused, StorageFault
from fabled.store import drain as drain_module
from fabled.store import hold as hold_module
from fabled.store import replace
from fabled.store.ledger import Ledger
from fabled.store.replace import Drain, Held
from tests.rights import unprivileged

TIME = 1_700_000_000_123_456_789
OLD = b'{"n":1,"pad":"xxxxxxxxxxxxxxxxxxxxx"}\n{"n":2,"pad":"xxxxxxxxxxxxxxxxx"}\n'
NEW = b'{"n":1}\n{"n":2}\n'


class Place:
    """A transcript, its Ledger, and the replacements begun on it."""

    def __init__(self, folder: Path, data: bytes = OLD) -> None:
        (folder / "p").mkdir()
        self.live = folder / "p" / "s.jsonl"
        self.live.write_bytes(data)
        self.live.chmod(0o600)
        self.set_time(TIME)
        self.ledger = Ledger(str(folder / "ledger.db"))
        self.held: Held | None = None
        self.asked = 0
        self.entry = 0

    def set_time(self, ns: int) -> None:
        os.utime(self.live, ns=(ns, ns))

    def hold(self) -> Held:
        self.held = replace.hold(str(self.live), reserve_bytes=0)
        return self.held

    def swap(
        self,
        new: bytes = NEW,
        *,
        at: dict[str, Callable[[], object]] | None = None,
        last: Callable[[], object] = lambda: None,
        drain_seconds: float = 0,
    ) -> Drain:
        """A whole replacement up to the drain. `at`: what happens at the first of each step; `last`: right before the
        rename."""
        held = self.held or self.hold()
        waiting = dict(at or {})

        def allowed() -> None:
            self.asked += 1
            if self.asked == 2:
                last()

        self.entry = self.ledger.begin(
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
        temp = replace.write_temp(held, lambda write: write(new))
        try:
            return replace.swap(
                held,
                temp,
                self.ledger,
                self.entry,
                still_allowed=allowed,
                drain_seconds=drain_seconds,
                step=lambda name: waiting.pop(name, lambda: None)(),
            )
        finally:
            self.held = None
            held.close()

    def append(self, data: bytes) -> None:
        with open(self.live, "ab") as file:
            file.write(data)

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.live.parent))

    @property
    def state(self) -> str:
        return self.ledger.entry(self.entry).state

    def refused(self, **more: Any) -> str:
        """The reason a replacement is refused for; asserts that it changed nothing."""
        with pytest.raises(Refused) as fault:
            self.swap(**more)
        assert self.state == "given_up"
        assert [name for name in self.names if name != "s.jsonl"] == []
        return fault.value.reason


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    one = Place(tmp_path)
    yield one
    if one.held is not None:
        one.held.close()
    one.ledger.close()


# Taking hold


def reason(path: Path | str, reserve_bytes: int = 0) -> str:
    with pytest.raises(Refused) as fault:
        replace.hold(str(path), reserve_bytes=reserve_bytes)
    assert fault.value.message
    return fault.value.reason


def test_the_snapshot_ends_after_the_last_line_feed(place: Place) -> None:
    """A torn last line is no part of it; lines and hash are those of the snapshot."""
    place.append(b'{"torn":')
    held = place.hold()
    assert (held.length, held.size) == (len(OLD), len(OLD) + 8)
    assert b"".join(held.lines()) == OLD == held.read(0, held.length)
    assert len(list(held.lines())) == 2
    assert held.sha256() == sha256(OLD).digest()
    assert (held.mtime_ns, held.mode, held.uid) == (place.live.stat().st_mtime_ns, 0o600, os.getuid())


@pytest.mark.parametrize("data", [b"", b"no line feed", b"\n", b"a\r\nb\r\n", b"x" * 3_000_000 + b"\n" + b"y" * 9_000])
def test_lines_of_any_file(data: bytes, tmp_path: Path) -> None:
    """Empty, without a line feed, with carriage returns, longer than any buffer."""
    place = Place(tmp_path, data)
    held = place.hold()
    whole = data[: data.rfind(b"\n") + 1]
    assert held.length == len(whole)
    assert list(held.lines()) == [part + b"\n" for part in whole.split(b"\n")[:-1]]
    held.close()
    place.ledger.close()


def test_only_a_plain_file_of_ours_is_held(place: Place, tmp_path: Path) -> None:
    """No link, no folder, no pipe, no second name, nothing that is not there."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(place.live)
    assert reason(link) == "link"
    assert reason(tmp_path / "none.jsonl") == "vanished"
    assert reason(tmp_path / "p") == "not_regular"
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert reason(tmp_path / "pipe.jsonl") == "not_regular"
    os.link(place.live, tmp_path / "second.jsonl")
    assert reason(place.live) == "linked"


def test_a_file_of_another_user_is_left_alone() -> None:
    """Also where its folder is ours."""
    if os.getuid() != 0:
        pytest.skip("only root can make a file of another user")
    with unprivileged() as folder:
        path = folder / "s.jsonl"
        path.write_bytes(OLD)
        os.setresuid(0, 0, 0)
        os.chown(path, 1, 1)
        os.chmod(path, 0o666)
        os.setresuid(65_534, 65_534, 0)
        assert reason(path) == "foreign"


def test_twice_its_size_and_the_reserve_must_be_free(place: Place) -> None:
    """Checked before anything is written (case 61)."""
    assert reason(place.live, reserve_bytes=1 << 60) == "space"
    assert place.names == ["s.jsonl"]


def test_one_replacement_at_a_time(place: Place) -> None:
    """Held by one, refused to the next, also while it is drained; free when that is over."""
    place.hold()
    assert reason(place.live) == "locked"
    drain = place.swap(drain_seconds=100)
    drain.visit(0)
    assert reason(place.live) == "locked"
    assert drain.visit(101)
    replace.hold(str(place.live), reserve_bytes=0).close()


def test_a_file_replaced_while_it_is_opened_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at must be what is held."""
    real = os.open

    def other(path: str, *arguments: Any, **more: Any) -> int:
        if path == str(place.live):
            place.live.rename(place.live.with_suffix(".before"))
            place.live.write_bytes(OLD)
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", other)
    assert reason(place.live) == "changed"


def test_another_process_is_kept_out_until_its_holder_ends(place: Place) -> None:
    """The lock is the kernel's: it ends with the process, however that ends."""
    code = (
        "import sys; from fabled.store import replace; "
        f"h = replace.hold({str(place.live)!r}, reserve_bytes=0); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert reason(place.live) == "locked"
        process.kill()
    replace.hold(str(place.live), reserve_bytes=0).close()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("30 1 0:1 / {} rw - nfs4 server:/x rw", "nfs4"),
        ("30 1 0:1 / {} rw shared:1 master:2 - fuse.sshfs host: rw", "fuse.sshfs"),
        ("30 1 0:1 / {} rw - 9p share rw", "9p"),
        ("30 1 0:1 / {} rw - ext4 /dev/vda rw", None),
        ("30 1 0:1 / {} rw - fuse.gocryptfs x rw", None),
        ("30 1 0:1 / {}-beside rw - nfs x rw", None),
    ],
)
def test_network_file_systems_are_told_by_the_mount_that_holds_the_folder(
    row: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deepest mount counts, of equal ones the last; names with blanks are written in octal."""
    folder = tmp_path / "with blank" / "p"
    folder.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    point = str(tmp_path / "with blank").replace(" ", "\\040")
    mounts.write_text(f"20 1 0:2 / / rw - ext4 /dev/vda rw\n25 1 0:3 / {point} rw - cifs x rw\n" + row.format(point))
    if "beside" in row:
        mounts.write_text("20 1 0:2 / / rw - ext4 /dev/vda rw\n" + row.format(point))
    monkeypatch.setattr(hold_module, "_MOUNTS", str(mounts))
    assert hold_module.network(str(folder)) == told
    if told is not None:
        (folder / "s.jsonl").write_bytes(OLD)
        assert reason(folder / "s.jsonl") == "network"


def test_where_mounts_are_not_told_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.setattr(hold_module, "_MOUNTS", "/nonexistent")
    assert hold_module.network("/") is None


# Replacing


def test_a_resting_file_is_replaced_and_keeps_time_mode_and_owner(place: Place) -> None:
    """I18: the list of sessions and the clean-up go by the modification time (cases 63, 67)."""
    os.umask(0o022)
    place.live.chmod(0o640)
    before = place.live.stat()
    drain = place.swap()
    after = place.live.stat()
    assert place.live.read_bytes() == NEW
    assert after.st_ino != before.st_ino
    for name in ("st_mtime_ns", "st_mode", "st_uid", "st_gid"):
        assert getattr(after, name) == getattr(before, name), name
    assert len(place.names) == 2
    assert drain.finish()
    assert place.names == ["s.jsonl"]
    assert place.live.stat().st_mtime_ns == before.st_mtime_ns
    assert drain.note is None and drain.trouble is None
    row = place.ledger.entry(place.entry)
    assert (row.state, row.new_length, row.copied) == ("done", len(NEW), len(OLD))
    assert row.new_sha == sha256(NEW).digest()


def test_extended_attributes_are_kept(place: Place) -> None:
    """All of the old ones and no others."""
    try:
        os.setxattr(place.live, "user.color", b"red")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    place.swap().finish()
    assert {name: os.getxattr(place.live, name) for name in os.listxattr(place.live)} == {"user.color": b"red"}


def test_owner_that_cannot_be_kept_is_a_reason(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose group we are not in stays as it is."""
    held = place.hold()
    held.gid += 1

    def no(*arguments: object) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(os, "fchown", no)
    with pytest.raises(Refused) as fault:
        replace.write_temp(held, lambda write: write(NEW))
    assert fault.value.reason == "owner"
    assert place.names == ["s.jsonl"]


def test_hidden_names_are_no_transcripts(place: Place) -> None:
    """While they last they are dot files beside the transcript, without its ending, and nobody else may read them
    (cases 65, 67)."""
    seen: list[str] = []
    os.umask(0o022)

    def look() -> None:
        for name in place.names:
            if name != "s.jsonl":
                seen.append(name)
                assert stat.S_IMODE((place.live.parent / name).stat().st_mode) == 0o600

    drain = place.swap(at={"K7": look, "K9": look, "K10": look, "K11": look}, last=look)
    drain.finish()
    assert len(seen) >= 4
    assert [name for name in seen if not name.startswith(".fabled-s-") or ".jsonl" in name] == []
    assert {hold_module.ours(name) for name in seen} == {("s", "new"), ("s", "old")}


def test_names_of_any_length_and_letters_have_one_beside_them(tmp_path: Path) -> None:
    """Cut to what a folder takes."""
    for stem in ("é" * 120, "s" * 240, "a-b.c", "x\ny"):
        name = os.path.basename(hold_module.name_beside(str(tmp_path / f"{stem}.jsonl"), "new"))
        (tmp_path / name).touch()
        told = hold_module.ours(name)
        assert told is not None and stem.startswith(told[0]) and told[1] == "new"


def test_a_writer_that_fails_leaves_nothing(place: Place) -> None:
    """Whatever it raises comes through, the disk's faults in our words."""
    held = place.hold()

    def fails(fault: Exception) -> Callable[[Callable[[bytes], None]], None]:
        def write_into(write: Callable[[bytes], None]) -> None:
            write(b"x" * 3_000_000)
            raise fault

        return write_into

    with pytest.raises(ZeroDivisionError):
        replace.write_temp(held, fails(ZeroDivisionError()))
    with pytest.raises(StorageFault, match="No space left"):
        replace.write_temp(held, fails(OSError(28, "No space left on device")))
    assert place.names == ["s.jsonl"]


def test_the_new_file_can_be_read_before_it_counts(place: Place) -> None:
    """Its lines, length and hash are what was written; discarded, it is gone."""
    temp = replace.write_temp(place.hold(), lambda write: [write(line) for line in NEW.splitlines(True)])
    assert list(temp.lines()) == list(temp.lines()) == NEW.splitlines(True)
    assert (temp.length, temp.sha256) == (len(NEW), sha256(NEW).digest())
    temp.discard()
    temp.discard()
    assert place.names == ["s.jsonl"]


# What is appended meanwhile


def test_lines_appended_at_every_step_come_after_the_new_content_in_their_order(place: Place) -> None:
    """I19: verbatim, once, in order, at the end; the time is that of the newest."""
    lines = iter(b'{"late":%d}\n' % number for number in range(9))

    def append() -> None:
        place.append(next(lines))

    drain = place.swap(at={"K7": append, "K8": append, "K9": append, "K10": append, "K11": append}, last=append)
    newest = place.live.stat().st_mtime_ns
    drain.finish()
    assert place.live.read_bytes() == NEW + b"".join(b'{"late":%d}\n' % number for number in range(6))
    assert place.live.stat().st_mtime_ns >= newest > TIME


def test_the_time_of_the_last_append_before_the_rename_is_kept(place: Place) -> None:
    """It is the newest content, also where it came after the rest was made durable."""

    def append() -> None:
        place.append(b'{"late":1}\n')
        place.set_time(TIME + 5)

    drain = place.swap(last=append)
    assert place.live.stat().st_mtime_ns == TIME + 5
    drain.finish()
    assert place.live.stat().st_mtime_ns == TIME + 5
    assert place.live.read_bytes() == NEW + b'{"late":1}\n'


def test_a_write_that_the_disk_cuts_short_is_completed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it follows at the next visit, after what others appended meanwhile on a line of its own."""
    write = os.write
    for other in (b"", b'\n{"other":1}\n'):
        place.live.write_bytes(OLD)
        with open(place.live, "ab", buffering=0) as late:
            drain = place.swap(drain_seconds=2)
            late.write(b'{"late":1}\n{"late":2}\n')
            monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:15]))
            assert not drain.visit(0)
            assert drain.trouble is not None and "No space left" in drain.trouble
            monkeypatch.setattr(os, "write", write)
            place.append(other)
            drain.visit(1)
            assert drain.trouble is None
        drain.finish()
        cut = b'{"la' + other if other else b""
        assert place.live.read_bytes() == NEW + b'{"late":1}\n' + cut + b'{"late":2}\n'


def test_a_disk_that_failed_once_is_not_believed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rename or late lines could not be made durable, the old file stays, and that is told."""
    real, left = os.fsync, 2

    def fsync(fd: int) -> None:
        nonlocal left
        if os.path.exists(place.live) and place.live.read_bytes() == NEW and (left := left - 1) == 1:
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    drain = place.swap()
    assert drain.finish()
    assert drain.note is not None and drain.hidden in drain.note
    assert Path(drain.hidden).read_bytes() == OLD
    assert replace.recover(place.ledger, folders=[str(place.live.parent)]) != []
    assert place.names == ["s.jsonl"]


def test_a_late_write_to_the_old_file_is_carried_over(place: Place) -> None:
    """A client that opened before the rename and writes after it (case 57); twice, and in the order it wrote."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        late.write(b'{"late":1}\n')
        place.append(b'{"later":2}\n')
        assert not drain.visit(0)
        late.write(b'{"late":3}\n{"late":4}\n')
        assert not drain.visit(1)
        stamp = os.fstat(late.fileno()).st_mtime_ns
    assert place.live.read_bytes() == NEW + b'{"later":2}\n{"late":1}\n{"late":3}\n{"late":4}\n'
    assert place.live.stat().st_mtime_ns == stamp
    assert not drain.visit(2.5)
    assert drain.visit(3.1)
    assert drain.over and drain.visit(4)
    assert place.names == ["s.jsonl"]


def test_the_old_file_is_kept_while_somebody_has_it_open_for_writing(place: Place) -> None:
    """However long that lasts; who only reads it does not count."""
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("there is no /proc here")
    with open(place.live, "ab", buffering=0) as late, open(place.live, "rb"):
        drain = place.swap(drain_seconds=2)
        assert not drain.visit(0)
        assert not drain.visit(1_000)
        late.write(b'{"late":1}\n')
        assert not drain.visit(2_000)
    assert place.live.read_bytes() == NEW + b'{"late":1}\n'
    assert not drain.visit(2_001.9)
    assert drain.visit(2_002)


def test_an_unfinished_line_is_waited_for_and_closed_at_last(place: Place) -> None:
    """The rest of a late write is not carried over in pieces, and ends with a line feed in any case."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        late.write(b'{"la')
        assert not drain.visit(0)
        assert place.live.read_bytes() == NEW
        late.write(b'te":1}\n{"torn')
        assert not drain.visit(1)
        assert place.live.read_bytes() == NEW + b'{"late":1}\n'
    assert drain.visit(5)
    assert place.live.read_bytes() == NEW + b'{"late":1}\n{"torn\n'


def test_late_lines_do_not_glue_to_a_torn_one(place: Place) -> None:
    """Where the new file ends in somebody's torn line, an LF comes first."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        place.append(b'{"torn')
        late.write(b'{"late":1}\n')
        drain.visit(0)
    drain.finish()
    assert place.live.read_bytes() == NEW + b'{"torn\n{"late":1}\n'


def test_a_torn_last_line_stays_at_the_end(place: Place) -> None:
    """It belongs to the tail (case 51): carried over as it is, and what its writer adds goes on in the same line."""
    place.append(b'{"whole":"without line feed"}')
    place.set_time(TIME)
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        assert place.live.read_bytes() == NEW + b'{"whole":"without line feed"}'
        assert place.live.stat().st_mtime_ns == TIME
        late.write(b'\n{"late":1}\n')
        drain.visit(0)
    drain.finish()
    assert place.live.read_bytes() == NEW + b'{"whole":"without line feed"}\n{"late":1}\n'


def test_a_line_being_written_defers(place: Place) -> None:
    """Its end may still come, and would then be torn from it."""
    place.append(b'{"half":')
    assert place.refused() == "busy"
    assert place.live.read_bytes() == OLD + b'{"half":'


def test_a_file_that_grows_too_fast_is_left_alone(place: Place) -> None:
    """After five rounds of growth; the tail that was copied goes with the new file."""
    big = b'{"pad":"' + b"x" * 100_000 + b'"}\n'
    fsync = os.fsync

    def grow(fd: int) -> None:
        fsync(fd)
        place.append(big)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", grow)
        place.hold()
        with pytest.raises(Refused) as fault:
            place.swap()
    assert fault.value.reason == "busy"
    assert place.live.read_bytes() == OLD + big * 6
    assert place.names == ["s.jsonl"]


def test_a_large_late_write_is_carried_over_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whole lines of about the size of one piece; a longer line goes alone."""
    monkeypatch.setattr(drain_module, "CARRY", 1_000)
    late_lines = b"".join(b'{"late":"%s"}\n' % (b"x" * length) for length in (400, 400, 400, 5_000, 10, 990, 3))
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        late.write(late_lines)
        drain.visit(0)
    assert place.live.read_bytes() == NEW + late_lines
    drain.finish()


# What others do meanwhile


@pytest.mark.parametrize("when", ["K7", "K8", "K9", "last"])
def test_a_file_that_vanishes_is_not_brought_back(when: str, place: Place) -> None:
    """Nothing is made at a path where nothing is any more (case 69)."""
    act = place.live.unlink
    assert place.refused(**({"last": act} if when == "last" else {"at": {when: act}})) in ("vanished",)
    assert place.names == []


@pytest.mark.parametrize("when", ["K7", "K8", "K9", "last"])
def test_a_file_that_another_program_replaced_is_left_alone(when: str, place: Place) -> None:
    """Its file stays; ours goes."""

    def act() -> None:
        other = place.live.parent.parent / "other"
        other.write_bytes(b'{"other":1}\n')
        os.replace(other, place.live)

    assert place.refused(**({"last": act} if when == "last" else {"at": {when: act}})) == "changed"
    assert place.live.read_bytes() == b'{"other":1}\n'


def test_a_file_that_vanishes_with_new_bytes_keeps_them_beside(place: Place) -> None:
    """What was appended after the snapshot is in no generation; when only the hidden name has it, it stays."""

    def act() -> None:
        place.append(b'{"late":1}\n')
        place.live.unlink()

    with pytest.raises(Refused):
        place.swap(last=act)
    (kept,) = place.names
    assert (place.live.parent / kept).read_bytes() == OLD + b'{"late":1}\n'
    (told,) = replace.recover(place.ledger, folders=[str(place.live.parent)])
    assert kept in told.what and "is gone" in told.what
    place.live.write_bytes(OLD + b'{"late":1}\n')
    assert replace.recover(place.ledger, folders=[str(place.live.parent)]) != []
    assert place.names == ["s.jsonl"]


def test_content_changed_in_place_is_noticed(place: Place) -> None:
    """Same size, same time, other bytes: what was planned is not what is there."""

    def act() -> None:
        with open(place.live, "r+b") as file:
            file.write(b'{"n":7')
        place.set_time(TIME)

    assert place.refused(at={"K7": act}) == "changed"


def test_a_file_that_became_shorter_is_left_alone(place: Place) -> None:
    """Whoever did that, it is not ours to mend."""
    assert place.refused(at={"K7": lambda: os.truncate(place.live, 5)}) == "changed"


def test_an_owner_who_becomes_active_stops_it(place: Place) -> None:
    """Asked at the beginning and right before the rename (I20)."""

    def no() -> None:
        raise Refused("the session's owner became active", reason="owned")

    assert place.refused(last=no) == "owned"
    assert place.asked == 2
    assert place.live.read_bytes() == OLD


def test_a_disk_without_second_names_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hidden name a kill could lose late lines."""

    def no(*arguments: object, **more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no)
    assert place.refused() == "no_links"


def test_the_row_of_another_replacement_must_be_over_first(place: Place) -> None:
    """A path with an unfinished row is left to that row's recovery."""
    other = place.ledger.begin(
        {
            "session_id": "s",
            "path": str(place.live),
            "what": "prune",
            "level": "gentle",
            "at": 1,
            "state": "linked",
            "base_length": 0,
            "base_sha": b"",
        }
    )
    assert place.refused() == "draining"
    assert other != place.entry


@pytest.mark.parametrize("other", [False, True], ids=["vanished", "replaced"])
def test_a_file_that_goes_during_the_drain_is_told(other: bool, place: Place) -> None:
    """Late bytes of a vanished or foreign file stay under the hidden name, and the drain says where."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        place.live.unlink()
        if other:
            place.live.write_bytes(b'{"other":1}\n')
        late.write(b'{"late":1}\n')
        assert not drain.visit(0)
    assert drain.visit(9)
    assert drain.note is not None and drain.hidden in drain.note
    assert Path(drain.hidden).read_bytes() == OLD + b'{"late":1}\n'
    assert place.state == "done"
    assert place.live.exists() is other


def test_a_file_that_goes_during_the_drain_with_nothing_late_leaves_nothing(place: Place) -> None:
    """All of it is in a generation: the removal is somebody's will."""
    drain = place.swap(drain_seconds=2)
    drain.visit(0)
    place.live.unlink()
    assert drain.visit(9)
    assert place.names == [] and drain.note is None


# Starts


def test_a_drain_that_is_left_goes_on_at_the_next_start(place: Place) -> None:
    """A holder outlives the process that drains; its lines come over when it is found again."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=0)
        late.write(b'{"late":1}\n')
        assert not drain.finish(0.1)
        late.write(b'{"late":2}\n')
        (told,) = replace.recover(place.ledger, drain_seconds=0)
        assert told.drain is not None
        late.write(b'{"late":3}\n')
    assert told.drain.finish()
    assert place.live.read_bytes() == NEW + b'{"late":1}\n{"late":2}\n{"late":3}\n'
    assert place.names == ["s.jsonl"]
    assert replace.recover(place.ledger) == []


def test_a_fresh_kill_is_drained_for_the_whole_time(place: Place) -> None:
    """A start right after a kill does not yet know that the old file is silent."""
    drain = place.swap(drain_seconds=0)
    drain.leave()
    (told,) = replace.recover(place.ledger, drain_seconds=5)
    assert told.drain is not None
    now = time.monotonic()
    assert not told.drain.visit(now)
    assert told.drain.visit(now + 6)


def test_a_half_made_carrying_over_is_found_among_lines_like_it(place: Place) -> None:
    """The longest piece counts: lines without an id may stand there twice."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=0)
        late.write(b'{"mode":1}\n{"late":1}\n')
        drain.leave()
    end = len(OLD) + 23
    place.ledger.set(place.entry, drain_from=len(OLD), drain_to=end, drain_at=len(NEW))
    place.append(b'{"mode":1}\n{"other":1}\n{"mode":1}\n{"la')
    replace.recover(place.ledger, drain_seconds=0)
    assert place.live.read_bytes() == NEW + b'{"mode":1}\n{"other":1}\n{"mode":1}\n{"late":1}\n'
    assert place.names == ["s.jsonl"]


def test_a_live_file_written_anew_in_place_is_not_ours(place: Place) -> None:
    """The same inode with other content, after a kill: late lines do not go there, and are not lost."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=0)
        late.write(b'{"late":1}\n')
        drain.leave()
    with open(place.live, "r+b") as file:
        file.write(b'{"n":7}\n{"n":8}\n')
    (told,) = replace.recover(place.ledger, drain_seconds=0)
    assert drain.hidden in told.what
    assert Path(drain.hidden).read_bytes() == OLD + b'{"late":1}\n'
    assert place.live.read_bytes() == b'{"n":7}\n{"n":8}\n'


def test_leftovers_of_ours_are_found_and_others_left_alone(place: Place) -> None:
    """A new file that never took its place goes, one in use stays, and so does everything that is not ours."""
    folder = place.live.parent
    (folder / ".fabled-s-0123456789ab.new").write_bytes(b"half")
    os.link(place.live, folder / ".fabled-s-0123456789ac.old")
    (folder / ".fabled-other.new").write_bytes(b"not ours")
    (folder / "v0-raw.jsonl").write_bytes(b"not ours")
    assert replace.leftover_files([str(folder), "/nonexistent"]) == [
        str(folder / ".fabled-s-0123456789ab.new"),
        str(folder / ".fabled-s-0123456789ac.old"),
    ]
    assert len(replace.recover(place.ledger, folders=[str(folder)])) == 2
    assert place.names == [".fabled-other.new", "s.jsonl", "v0-raw.jsonl"]
    held = place.hold()
    temp = replace.write_temp(held, lambda write: write(NEW))
    assert replace.recover(place.ledger, folders=[str(folder)]) == []
    assert os.path.exists(temp.path)
    temp.discard()


def test_a_hidden_file_without_a_row_stays_unless_the_transcript_has_it_all(place: Place) -> None:
    """The Ledger may be lost; bytes are not."""
    folder = place.live.parent
    hidden = folder / ".fabled-s-0123456789ab.old"
    hidden.write_bytes(OLD + b'{"only":"here"}\n')
    (told,) = replace.recover(place.ledger, folders=[str(folder)])
    assert hidden.exists() and str(hidden) in told.what
    place.append(b'{"only":"here"}\n')
    assert replace.recover(place.ledger, folders=[str(folder)]) != []
    assert not hidden.exists()


# A file that is not there


def test_a_file_is_made_only_where_none_is(place: Place, tmp_path: Path) -> None:
    """With its folder, private, and of now: the clean-up goes by age."""
    path = tmp_path / "gone" / "deep" / "s.jsonl"
    before = time.time() - 1
    replace.create(str(path), [NEW, b"more\n"], None, None)
    assert path.read_bytes() == NEW + b"more\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_mtime >= before
    with pytest.raises(Refused) as fault:
        replace.create(str(path), [b"other"], None, None)
    assert fault.value.reason == "exists"
    assert path.read_bytes() == NEW + b"more\n"
    assert os.listdir(path.parent) == ["s.jsonl"]


CASES = (Path(__file__).resolve().parents[3] / "shared" / "cases" / "prune").resolve()


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside this project")
def test_the_shared_cases_pass_through_the_procedure(tmp_path: Path) -> None:
    """Replaced by their own lines, with a line appended before the rename and one written late to the old file, all
    inputs end in just these (cases 51, 57, 63, 67 and the odd bytes of the others)."""
    for number, path in enumerate(sorted(CASES.glob("*/input.jsonl"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = path.read_bytes()
        place = Place(folder, data)
        torn = b"" if data.endswith(b"\n") else b"\n"
        with open(place.live, "ab", buffering=0) as late:
            held = place.hold()
            drain = place.swap(
                b"".join(held.lines()), last=lambda place=place, torn=torn: place.append(torn + b'{"last":1}\n')
            )
            late.write(b'{"late":1}\n')
        assert drain.finish()
        assert place.live.read_bytes() == data + torn + b'{"last":1}\n{"late":1}\n', path
        assert stat.S_IMODE(place.live.stat().st_mode) == 0o600
        assert place.names == ["s.jsonl"]
        place.ledger.close()


def test_two_clients_of_one_session_lose_nothing(place: Place) -> None:
    """Two programs append to one file while it is replaced again and again (case 59)."""
    stop = threading.Event()
    counts = [0, 0]

    def client(number: int) -> None:
        while not stop.is_set():
            place.append(b'{"id":"%d-%d"}\n' % (number, counts[number]))
            counts[number] += 1
            stop.wait(0.0005)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    done = 0
    try:
        while done < 5:
            data = b""
            with contextlib.suppress(Refused):
                data = b"".join(place.hold().lines())
                place.asked = 0
                assert place.swap(data).finish()
                done += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    lines = place.live.read_bytes().splitlines()[2:]
    wanted = [b'{"id":"%d-%d"}' % (number, count) for number in range(2) for count in range(counts[number])]
    assert sorted(lines) == sorted(wanted)


def test_a_line_that_a_client_is_writing_is_not_cut_in_two(place: Place) -> None:
    """What arrived at the old file waits until the half line in the new one has its end."""
    with open(place.live, "ab", buffering=0) as late:
        drain = place.swap(drain_seconds=2)
        place.append(b'{"ha')
        late.write(b'{"late":1}\n')
        assert not drain.visit(0)
        assert place.live.read_bytes() == NEW + b'{"ha'
        place.append(b'lf":1}\n')
        assert not drain.visit(1)
    assert place.live.read_bytes() == NEW + b'{"half":1}\n{"late":1}\n'
    assert drain.finish()
