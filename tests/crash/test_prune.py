"""Prune, undo and restore as whole verbs, killed before and after every call that changes the disk, and failed at each.

After a kill the next start recovers: the live file is one of the whole states, every byte opens, `check` is clean, and
the same verb comes to its end.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fabled.errors import FabledError
from fabled.pruner import Automatic, perform
from tests.build import Transcript, make_uuid
from tests.crash.faults import EVERY, Calls, failing, killed
from tests.keeping import Keeping

SESSION = make_uuid("session")
SHARDS = 4
FEWEST = {"prune": 60, "undo": 30, "restore": 40}
"""Kill points there must be at least, so that a matrix that watches nothing fails."""


def transcript() -> bytes:
    """A small session in which gentle finds something to do."""
    made = Transcript(SESSION)
    for number in range(24):
        made.user(f"step {number}")
        call = made.call("Read", {"file_path": f"/a/{number}.py"})
        made.result(call, f"text {number}", toolUseResult={"file": {"content": "y" * 700}})
        made.assistant(f"done {number}")
    return made.data


def prepared(folder: Path, verb: str) -> tuple[bytes, bytes, Path]:
    """A home in which the verb is next: (live bytes before, live bytes after it, the live file)."""
    home = Keeping(folder)
    original = transcript()
    path = home.write(SESSION, original)
    home.index()
    planned = home.prune(SESSION, apply=verb != "prune")
    assert not planned["refused"]
    before = path.read_bytes()
    if verb == "prune":
        other = Keeping(folder.parent / f"{folder.name}-undisturbed")
        twin = other.write(SESSION, original)
        other.index()
        assert other.prune(SESSION)["applied"]
        after = twin.read_bytes()
        other.close()
    else:
        after = original
    home.close()
    return before, after, path


def act(folder: Path, verb: str) -> Callable[[], object]:
    def run() -> None:
        home = Keeping(folder)
        value = perform(home.pruner, verb, {"session": SESSION, "apply": True})
        assert value["applied"], value["refused"]
        home.settle()
        home.close()

    return run


def attempted(folder: Path) -> bool:
    """Whether a prune on a failing disk was applied; what it says of the disk is one line, never another exception."""
    try:
        home = Keeping(folder)
    except (FabledError, OSError):
        return False
    try:
        value = perform(home.pruner, "prune", {"session": SESSION, "apply": True})
        home.settle(5)
        return bool(value["applied"])
    except FabledError:
        return False
    finally:
        home.pruner.leave()
        home.close()


def settled(folder: Path, verb: str, words: str, states: tuple[bytes, ...], original: bytes) -> bytes:
    """What the next start makes of it; asserts that nothing is lost."""
    home = Keeping(folder)
    automatic = Automatic(home.pruner, None, "")
    automatic.recover()
    home.settle()
    automatic.adopt(lambda: False)
    home.index()
    path = home.projects / "-home-ana-app" / f"{SESSION}.jsonl"
    live = path.read_bytes()
    assert live in states, f"{words}: the live file is none of the whole states"
    assert [one.name for one in path.parent.iterdir()] == [path.name], words
    assert home.ledger.unfinished() == [], words
    (folder / "original").write_bytes(original)
    assert home.lost(home.records(folder / "original")) == [], words
    assert home.faults() == [], words
    assert home.ledger.losses() == [], words
    home.close()
    return live


@pytest.mark.parametrize("verb", FEWEST)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_anywhere_leaves_a_whole_file_and_every_byte(verb: str, shard: int, tmp_path: Path) -> None:
    pattern = tmp_path / "pattern"
    before, after, _ = prepared(pattern, verb)
    original = transcript()
    moment, points, finished = shard + 1, 0, 0
    while True:
        folder = tmp_path / "home"
        shutil.copytree(pattern, folder)
        moved(pattern, folder)
        words = killed(moment, act(folder, verb))
        live = settled(folder, verb, f"{verb} {words}", (before, after), original)
        shutil.rmtree(folder)
        if words is None:
            assert live == after
            break
        points += 1
        finished += live == after
        moment += SHARDS * EVERY
    assert points * SHARDS * EVERY >= FEWEST[verb], f"only {points} kill points in a quarter of {verb}"
    assert 0 < finished < points, "some kills must come before the replacement, and some after it"


def moved(pattern: Path, folder: Path) -> None:
    """A copied home takes its paths along: Map and Ledger know files by their paths, and a copy has other inodes."""
    import apsw

    for name, table, columns in (
        ("ledger.db", "generations", ("path", "origin", "holder")),
        ("ledger.db", "prunes", ("path", "generation", "temp", "hidden")),
    ):
        db = apsw.Connection(str(folder / "fabled" / "data" / name))
        for column in columns:
            db.execute(f"UPDATE {table} SET {column}=replace({column},?,?)", (str(pattern), str(folder)))
        db.close()
    for path in (folder / "fabled" / "data").glob("map.db*"):
        path.unlink()
    home = Keeping(folder)
    home.index()
    home.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_disk_that_fails_at_any_call_changes_nothing_or_finishes(code: int, shard: int, tmp_path: Path) -> None:
    """Refused with the transcript as it was; once the new file has its place, it stays, and the next visit goes on."""
    pattern = tmp_path / "pattern"
    before, after, _ = prepared(pattern, "prune")
    original = transcript()
    number, refused = shard + 1, 0
    while True:
        folder = tmp_path / "home"
        shutil.copytree(pattern, folder)
        moved(pattern, folder)
        calls: Calls = failing(number, code)
        with calls.watch():
            refused += not attempted(folder)
        settled(folder, "prune", f"call {number} {os.strerror(code)}", (before, after), original)
        shutil.rmtree(folder)
        if len(calls.seen) < number:
            break
        number += SHARDS * EVERY
    assert refused > 5 // EVERY


def test_files_are_durable_before_their_names_and_names_before_the_next_step(tmp_path: Path) -> None:
    """The order of fsyncs and renames: generation, its folder, new file, hidden name, replacement, folder."""
    folder = tmp_path / "home"
    prepared(folder, "prune")
    calls = Calls()
    with calls.watch():
        act(folder, "prune")()
    names = [(name, where) for name, where in calls.seen if name in ("fsync", "link", "replace", "rename", "unlink")]
    told = [f"{name} {kind(where)}" for name, where in names]

    def at(what: str, start: int = 0) -> int:
        assert what in told[start:], told
        return told.index(what, start)

    generation = at("link generation")
    assert at("fsync generation") < generation
    kept = at("fsync vault folder", generation)
    new = at("fsync new", kept)
    hidden = at("link hidden", new)
    listed = at("fsync transcripts", hidden)
    placed = at("replace new", listed)
    durable = at("fsync transcripts", placed)
    gone = at("unlink hidden", durable)
    assert at("fsync transcripts", gone) > gone


def kind(where: str) -> str:
    """What a path is, in a word; of two, the first that tells."""
    if "/vault/" in where and (".jsonl.zst" in where or os.path.basename(where).startswith(".")):
        return "generation"
    if "/vault" in where:
        return "vault folder"
    if where.endswith(".old") or ".old:" in where:
        return "hidden"
    if ".new" in where:
        return "new"
    return "transcripts"
