"""Killed or failed at any call of a capture, nothing that was kept is lost and the next start puts all in order."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabled.capture import Capturer
from fabled.errors import FabledError
from fabled.store import generations
from tests.build import Transcript, make_uuid
from tests.crash.faults import EVERY, failing, killed
from tests.home import Home, differences, dump, rebuilt

P = "-home-ana-app"
SHARDS = 4
MAIN = make_uuid("crash capture")


def capturer(home: Home) -> Capturer:
    return Capturer(home.map, home.vault, home.ledger, home.indexer, str(home.vault_folder), 0)


def build(folder: Path) -> None:
    """A session that was captured once and has grown since: its transcript, a subagent, an output beside the old."""
    folder.mkdir()
    home = Home(folder)
    talk = Transcript(session=MAIN)
    side = Transcript(session=MAIN, sidechain=True, agent="a1")
    talk.user("look for plovers")
    talk.result(talk.call("Task", {"prompt": "count", "description": "d"}, call="toolu_a1"), "seven")
    side.user("count")
    agent = f"{P}/{MAIN}/subagents/agent-a1"
    home.write(f"{agent}.meta.json", b'{"agentType":"Explore","toolUseId":"toolu_a1"}')
    home.write(f"{agent}.jsonl", side.data)
    home.write(f"{P}/{MAIN}.jsonl", talk.data)
    home.write(f"{P}/{MAIN}/tool-results/one.txt", b"one\n")
    home.index()
    capturer(home).capture(MAIN, "asked")
    begin = len(talk.lines), len(side.lines)
    talk.assistant("seven plovers")
    side.assistant("seven")
    home.append(f"{P}/{MAIN}.jsonl", b"".join(line + b"\n" for line in talk.lines[begin[0] :]))
    home.append(f"{agent}.jsonl", b"".join(line + b"\n" for line in side.lines[begin[1] :]))
    home.write(f"{P}/{MAIN}/tool-results/two.txt", b"two\n")
    home.index()
    home.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Each time the same home anew, at the same place."""
    build(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "as it was")

    def anew() -> Path:
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        for name in ("rebuilt.db", "rebuilt-ledger.db"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copytree(tmp_path / "as it was", tmp_path / "home")
        return tmp_path / "home"

    yield anew
    shutil.rmtree(tmp_path, ignore_errors=True)


def live_bytes(home: Home) -> dict[str, bytes]:
    return {
        str(path.relative_to(home.root)): path.read_bytes()
        for path in sorted((home.root / P).rglob("*"))
        if path.is_file() and not path.name.endswith(".meta.json")
    }


def kept_bytes(home: Home) -> dict[str, list[bytes]]:
    """The live file of each generation, and what its generations hold."""
    found: dict[str, list[bytes]] = {}
    for one in generations.stored(str(home.vault_folder)):
        source = home.vault.open(one.path)
        name = f"{P}/{one.session}{'/' + one.part if one.part else ''}{'.jsonl' if one.transcript else ''}"
        found.setdefault(name, []).append(source.read(0, source.size))
        source.close()
    return found


def assert_in_order(home: Home, before: dict[str, list[bytes]], folder: Path, when: str) -> None:
    """After a start: nothing half made, nothing lost, Map and Ledger as the files are; and a capture ends the work."""
    now = kept_bytes(home)
    for name, contents in before.items():
        assert all(any(other.startswith(one) for other in now[name]) for one in contents), when
    adopted = capturer(home).adopt()
    assert adopted.failed == [], when
    home.index()
    assert generations.leftovers(str(home.vault_folder)) == [], when
    value = capturer(home).capture(MAIN, "again")
    assert value["failed"] == [], when
    now = kept_bytes(home)
    assert {name: [data] for name, data in live_bytes(home).items()} == now, when
    assert {one.path for one in home.ledger.kept() if one.retired_at is None} == {
        one.path for one in generations.stored(str(home.vault_folder))
    }, when
    metas = [path.name for path in sorted(home.vault_folder.rglob("*.meta.json"))]
    assert len(metas) == 1, when
    assert differences(dump(home.map_db), rebuilt(home, folder)) == [], when
    assert home.ledger.losses() == [], when
    assert home.faults() == [], when


def run(folder: Path) -> None:
    """A capture; the commits of the Map count as calls, too."""
    home = Home(folder)
    home.map.before_commit = lambda name: os.chmod(folder, 0o700)
    capturer(home).capture(MAIN, "asked")


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_any_call_of_a_capture_is_made_good(shard: int, home: Callable[[], Path], tmp_path: Path) -> None:
    """Dead before or after any call: what was kept still is, the next start and capture end as if undisturbed."""
    deaths: list[str] = []
    moment = shard + 1
    while True:
        folder = home()
        one = Home(folder)
        before = kept_bytes(one)
        one.close()
        when = killed(moment, lambda folder=folder: run(folder))  # type: ignore[misc]
        if when is None:
            break
        deaths.append(when)
        one = Home(folder)
        assert_in_order(one, before, tmp_path, when)
        one.close()
        moment += SHARDS * EVERY
    assert len(deaths) >= 30 // EVERY


def test_a_kill_within_any_write_is_made_good(home: Callable[[], Path], tmp_path: Path) -> None:
    """A file of which half was written is never taken for a generation."""
    deaths = 0
    for moment in range(1, 1_000):
        folder = home()
        one = Home(folder)
        before = kept_bytes(one)
        one.close()
        when = killed(moment, lambda folder=folder: run(folder), torn=True)  # type: ignore[misc]
        if when is None:
            break
        deaths += 1
        one = Home(folder)
        assert_in_order(one, before, tmp_path, when)
        one.close()
    assert deaths >= 6


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_call_that_fails_leaves_nothing_half_made(
    code: int, for_good: bool, home: Callable[[], Path], tmp_path: Path
) -> None:
    """The disk full or broken at any call, or from it on: a fault is told, no hidden file stays, nothing is lost."""
    one = Home(home())
    undisturbed = capturer(one).capture(MAIN, "asked")
    whole = len(undisturbed["generations"]) + undisturbed["unchanged"]
    one.close()
    assert whole >= 3
    told = 0
    for number in range(1, 1_000, EVERY):
        folder = home()
        one = Home(folder)
        before = kept_bytes(one)
        calls = failing(number, code, for_good=for_good)
        value = None
        try:
            with calls.watch():
                value = capturer(one).capture(MAIN, "asked")
        except (FabledError, OSError) as fault:
            assert isinstance(fault, FabledError), f"call {number}, {calls.seen[-1]}"
        ended = len(calls.seen) < number
        if not ended:
            told += 1
            # A folder that cannot be looked at is taken by the name it has, a generation that cannot for one that is
            # gone: then all is kept, if not more. What is not kept is told.
            everything = value is not None and len(value["generations"]) + value["unchanged"] == whole
            assert value is None or value["failed"] or everything, f"call {number}, {calls.seen[number - 1]}"
            assert generations.leftovers(str(one.vault_folder)) == [], f"call {number}, {calls.seen[number - 1]}"
        one.reopen()
        assert_in_order(one, before, tmp_path, f"call {number}, {calls.seen[-1]}")
        one.close()
        if ended:
            break
    assert told >= 15
