"""Generations are written once, whole, private and durable, or not at all; and only what another holds is removed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fabled.errors import Refused, StorageFault, Unreadable
from fabled.store import generations as g
from fabled.store.vault import Vault, codec
from fabled.transcript.record import Read
from tests.build import Transcript


def reading(data: bytes) -> Read:
    return lambda offset, length: data[offset : offset + length]


def story(size: int) -> bytes:
    talk = Transcript()
    talk.user("go")
    while sum(map(len, talk.lines)) < size:
        talk.assistant(f"step {talk.count} größe 外 🙏 " + "word " * (talk.count % 50))
    return talk.data


def put(folder: Path, data: bytes, kind: g.Kind = "raw", **more: Any) -> g.Written:
    return g.write(str(folder), kind, reading(data), len(data), reserve_bytes=0, **more)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in sorted([folder, *folder.rglob("*")])
    }


def sizes_of_frames(path: str) -> list[int]:
    source = Vault([], []).open(path)
    try:
        assert source._frames is not None
        return [plain for *_, plain in source._frames.table]
    finally:
        source.close()


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 5, story(40_000), story(3 << 20), b"a" * (5 << 20)])
def test_what_is_written_reads_back_by_span_and_by_zstd(data: bytes, tmp_path: Path) -> None:
    """A generation holds the bytes, in frames of at most 1 MiB with a seek table, as any zstd tool reads them."""
    written = put(tmp_path / "p" / "s", data)
    assert (written.number, written.kind, written.logical) == (0, "raw", len(data))
    assert written.path == str(tmp_path / "p" / "s" / "v0-raw.jsonl.zst")
    assert written.sha256 == sha256(data).digest()
    assert written.packed == os.stat(written.path).st_size
    source = Vault([], []).open(written.path)
    assert source.size == len(data) and source.read(0, len(data) + 1) == data
    assert source.read(len(data) // 2, 100) == data[len(data) // 2 :][:100]
    source.close()
    assert all(0 < size <= g.FRAME for size in sizes_of_frames(written.path))
    assert codec().decompress(Path(written.path).read_bytes()) == data
    if shutil.which("zstd"):
        assert subprocess.run(["zstd", "-dc", written.path], capture_output=True, check=True).stdout == data


def test_what_was_read_is_not_kept_in_memory(tmp_path: Path) -> None:
    """However many generations were read, a Vault at rest holds a frame of one of them: the one closed last."""
    vault = Vault([], [])
    paths = [put(tmp_path / f"s{number}", story(300_000)).path for number in range(5)]
    for path in paths:
        assert vault.read(path, 0, 10)
    sources = [vault.open(path) for path in paths]
    for source in (*sources, *sources):
        assert source.read(100, 10)
    for source in sources:
        source.close()
    assert vault.read(paths[2], 100, 10) == vault.read(paths[2], 100, 10)
    held = [key[0] for key, frames in vault._frames.items() if frames._last is not None]
    assert held == [paths[2]]


def test_records_lie_within_frames(tmp_path: Path) -> None:
    """Frames end with lines, so that reading a record seldom costs two of them."""
    data = story(3 << 20)
    at = 0
    for size in sizes_of_frames(put(tmp_path / "s", data).path):
        at += size
        assert data[at - 1 : at] == b"\n"


def test_numbers_go_up_and_none_is_given_twice(tmp_path: Path) -> None:
    """The next number is above all that are there, of either kind, and above what the caller remembers."""
    folder = tmp_path / "s"
    assert put(folder, b"1").number == 0
    assert put(folder, b"2", "pruned").number == 1
    assert put(folder, b"3", suffix="").number == 2
    (folder / "v7-raw.jsonl").write_bytes(b"")
    (folder / "v9-raw.meta.json").write_bytes(b"{}")
    assert put(folder, b"4").number == 10
    assert put(folder, b"5", above=41).number == 42
    assert sorted(os.listdir(folder)) == [
        "v0-raw.jsonl.zst", "v1-pruned.jsonl.zst", "v10-raw.jsonl.zst", "v2-raw.zst", "v42-raw.jsonl.zst",
        "v7-raw.jsonl", "v9-raw.meta.json",
    ]  # fmt: skip


def test_a_name_that_is_taken_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another process takes the next name first, the one after it is taken; nothing is overwritten."""
    folder = tmp_path / "s"
    link: Callable[..., None] = os.link
    taken: list[str] = []

    def rival(source: str, target: str) -> None:
        if not taken:
            Path(target).write_bytes(b"theirs")
            taken.append(target)
        link(source, target)

    monkeypatch.setattr(os, "link", rival)
    written = put(folder, b"ours\n", meta=b'{"a":1}')
    assert (written.number, Path(taken[0]).read_bytes()) == (1, b"theirs")
    assert sorted(os.listdir(folder)) == ["v0-raw.jsonl.zst", "v1-raw.jsonl.zst", "v1-raw.meta.json"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_vault(umask: int, tmp_path: Path) -> None:
    """Whatever the umask: folders 0700, generations and descriptions 0400 (case C09)."""
    before = os.umask(umask)
    try:
        put(tmp_path / "vault" / "p" / "s" / "subagents" / "agent-a", b"x\n", meta=b"{}")
    finally:
        os.umask(before)
    assert modes(tmp_path / "vault") == {
        ".": 0o700,
        "p": 0o700,
        "p/s": 0o700,
        "p/s/subagents": 0o700,
        "p/s/subagents/agent-a": 0o700,
        "p/s/subagents/agent-a/v0-raw.jsonl.zst": 0o400,
        "p/s/subagents/agent-a/v0-raw.meta.json": 0o400,
    }


def test_a_wider_folder_is_tightened(tmp_path: Path) -> None:
    """A folder of generations that others may enter is closed before anything is written there (case C09)."""
    (tmp_path / "s").mkdir(mode=0o755)
    put(tmp_path / "s", b"x\n")
    assert modes(tmp_path / "s") == {".": 0o700, "v0-raw.jsonl.zst": 0o400}


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Nothing is written into a folder that belongs to somebody else (case C09)."""
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "s").mkdir()
    os.chown(tmp_path / "s", 65_534, 65_534)
    with pytest.raises(Refused, match="another user"):
        put(tmp_path / "s", b"x\n")
    assert os.listdir(tmp_path / "s") == []


def test_a_reserve_that_would_be_touched_is_refused(tmp_path: Path) -> None:
    """Where less than the reserve would stay free nothing is written, and no folder is left either."""
    with pytest.raises(g.NoRoom, match="stay free"):
        g.write(str(tmp_path / "p" / "s"), "raw", reading(b"x"), 1, reserve_bytes=1 << 62)
    assert list(tmp_path.iterdir()) == []


CALLS = ["mkdir", "open", "write", "fchmod", "fsync", "link", "unlink", "rmdir"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS[:-2])
def test_a_disk_that_fails_leaves_nothing_behind(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever call the disk is full or fails: a fault that says so, no file, no folder, and the next try works."""
    data = story(30_000)
    plain: Callable[..., Any] = getattr(os, call)
    for fails_at in range(1, 100):
        made = 0

        def failing(*args: Any, fails_at: int = fails_at, **more: Any) -> Any:
            nonlocal made
            made += 1
            if made == fails_at:
                raise OSError(number, os.strerror(number))
            return plain(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                put(tmp_path / "p" / "s", data, meta=b"{}")
            except StorageFault as fault:
                assert os.strerror(number) in fault.message
                assert list(tmp_path.iterdir()) == []
                continue
        break
    assert fails_at > 1
    assert sorted(os.listdir(tmp_path / "p" / "s")) == ["v0-raw.jsonl.zst", "v0-raw.meta.json"]


def test_bytes_that_read_back_otherwise_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that keeps other bytes than were written is found out before the generation gets its name."""
    real: Callable[..., int] = os.write

    def lying(fd: int, data: bytes) -> int:
        return real(fd, bytes(data).replace(b"plain words", b"other words"))

    monkeypatch.setattr(os, "write", lying)
    with pytest.raises(StorageFault, match=r"reads back|not readable"):
        put(tmp_path / "s", b"plain words " + os.urandom(2_000))
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_changes_is_not_kept(tmp_path: Path) -> None:
    """Bytes that end early, or are not those that were expected, make no generation."""
    with pytest.raises(g.Changed, match="shorter"):
        g.write(str(tmp_path / "s"), "raw", reading(b"abc"), 4, reserve_bytes=0)
    with pytest.raises(g.Changed, match="rewritten"):
        put(tmp_path / "s", b"abc", expect=sha256(b"abd").digest())

    def broken(offset: int, length: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(Unreadable, match="Input/output error"):
        g.write(str(tmp_path / "s"), "raw", broken, 4, reserve_bytes=0)
    assert list(tmp_path.iterdir()) == []


def test_everything_is_durable_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is fsynced before it gets its name, its folder after, and the folders that hold new ones last."""
    calls: list[str] = []
    names: dict[int, str] = {}
    real_open: Callable[..., int] = os.open
    real_fsync, real_link = os.fsync, os.link

    def opening(path: str, *args: Any, **more: Any) -> int:
        fd = real_open(path, *args, **more)
        names[fd] = "temp" if path.endswith(".tmp") else str(os.path.relpath(path, tmp_path))
        return fd

    def fsync(fd: int) -> None:
        calls.append(f"fsync {names[fd]}")
        real_fsync(fd)

    def link(source: str, target: str) -> None:
        calls.append(f"link {os.path.basename(target)}")
        real_link(source, target)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    put(tmp_path / "p" / "s", b"x\n", meta=b"{}")
    assert calls == [
        "fsync temp", "fsync temp", "link v0-raw.jsonl.zst", "link v0-raw.meta.json", "fsync p/s", "fsync .",
        "fsync p",
    ]  # fmt: skip


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """A start removes hidden files of the writers' own pattern, at any depth, and closes what others could read."""
    folder = tmp_path / "p" / "s" / "subagents" / "agent-a"
    put(folder, b"x\n")
    ours = folder / ".fabled-12-0123456789abcdef.tmp"
    others = [folder / ".fabled-12-0123456789abcdef.tmp.jsonl", folder / ".hidden", tmp_path / "notes.tmp"]
    for path in (ours, *others):
        path.write_bytes(b"")
        path.chmod(0o644)
    assert g.leftovers(str(tmp_path), lambda pid: pid == 12) == []
    assert g.sweep(str(tmp_path)) == [str(ours)]
    assert not ours.exists() and all(path.exists() for path in others)
    assert all(mode & 0o077 == 0 for mode in modes(tmp_path).values())


# Proofs


def test_one_holds_another_only_if_it_begins_with_all_its_bytes(tmp_path: Path) -> None:
    """The proof reads both: a prefix is held, one byte more or another byte, or a description of its own, is not."""
    vault, data = Vault([], []), story(2 << 20)
    old = put(tmp_path / "s", data[: 1 << 20])
    changed = bytearray(data)
    changed[(1 << 20) - 1] ^= 1
    longer, same, other, shorter = (
        put(tmp_path / "s", bytes(one)).path for one in (data, data[: 1 << 20], changed, data[:-1][: (1 << 20) - 1])
    )
    assert [g.holds(vault, old.path, old.logical, new) for new in (longer, same, other, shorter, old.path)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not g.holds(vault, old.path, old.logical - 1, longer)
    described = put(tmp_path / "a", data[:500], meta=b"{}")
    for meta, held in ((b"{}", True), (b'{"more":1}', False), (None, False)):
        new = put(tmp_path / "a", data[:900], meta=meta)
        assert g.holds(vault, described.path, described.logical, new.path) is held


def test_what_lies_in_a_vault_is_told_by_its_names(tmp_path: Path) -> None:
    """Generations of transcripts, of subagents at any depth and of other files are listed with what they belong to."""
    for part, suffix in (
        ("", ".jsonl"), ("subagents/agent-a", ".jsonl"), ("subagents/deep/agent-b", ".jsonl"),
        ("tool-results/toolu_1.txt", ""),
    ):  # fmt: skip
        put(tmp_path / "p" / "s" / part, b"x\n", "pruned", suffix=suffix)
    (tmp_path / "p" / "s" / "v3-raw.jsonl").write_bytes(b"x\n")
    for name in ("p/v0-raw.jsonl.zst", "p/s/v0-raw", "p/s/notes.txt", "p/s/v1-raw.meta.json"):
        (tmp_path / name).write_bytes(b"")
    found = [(one.folder, one.session, one.part, one.number, one.kind, one.transcript)
             for one in g.stored(str(tmp_path))]  # fmt: skip
    assert found == [
        ("p", "s", "", 0, "pruned", True),
        ("p", "s", "", 3, "raw", True),
        ("p", "s", "subagents/agent-a", 0, "pruned", True),
        ("p", "s", "subagents/deep/agent-b", 0, "pruned", True),
        ("p", "s", "tool-results/toolu_1.txt", 0, "pruned", False),
    ]
