"""A process that dies before any of its commits leaves a Map from which the next run comes to the same end."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fabled.indexer import scan, update
from fabled.store import map as map_module
from tests import packed
from tests.build import Transcript, line, make_uuid
from tests.home import Home, differences, dump, rebuilt

P = "-home-ana-app"
SHARDS = 4
NAMES = {"whole", "slice", "memberships", "subagents", "doom", "forget", "meta", "bulk", "optimize", "vacuum"}


def home_in(folder: Path) -> Home:
    folder.mkdir()
    return Home(folder)


class History:
    """Several sessions with forks, subagents and a generation, and what happens to them afterwards."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.main, self.old, self.goes = (
            Transcript(session=make_uuid(f"crash {name}"), new_style=name != "old") for name in ("main", "old", "goes")
        )

    def path(self, talk: Transcript) -> str:
        return f"{P}/{talk.session}.jsonl"

    def work(self, talk: Transcript, turns: int, word: str) -> None:
        for number in range(turns):
            talk.user(f"question {number} about {word}")
            call = talk.call("Bash", {"command": f"make {number}"})
            talk.result(call, f"made {word}")
            talk.assistant(f"answer {number} on {word}")

    def fork(self, source: Transcript, name: str, named: bool) -> None:
        fork = Transcript(session=make_uuid(f"crash {name}"), salt=name)
        for record in source.records:
            copy = {**record, "sessionId": fork.session}
            if named and "uuid" in record:
                copy |= {
                    "promptId": make_uuid(name),
                    "forkedFrom": {"sessionId": source.session, "messageUuid": record["uuid"]},
                }
            fork.put(copy)
        fork.last, fork.count = source.last, 500
        self.work(fork, 1, name)
        self.home.write(self.path(fork), fork.data)

    def agent(self, talk: Transcript, name: str, meta: bool) -> None:
        task = talk.call("Task", {"prompt": f"count the {name}", "description": "d"}, call=f"toolu_{name}")
        talk.result(task, "seven", **({} if meta else {"toolUseResult": {"agentId": name}}))
        side = Transcript(session=talk.session, new_style=talk.new_style, sidechain=True, agent=name, salt=name)
        side.user(f"count the {name}")
        side.assistant("seven")
        base = f"{P}/{talk.session}/subagents/agent-{name}"
        if meta:
            self.home.write(f"{base}.meta.json", b'{"agentType":"Explore","toolUseId":"toolu_%s"}' % name.encode())
        # Long ago: a stamp as young as the scan proves nothing, and then a change of the description is no news.
        os.utime(self.home.write(f"{base}.jsonl", side.data), (1_700_000_000, 1_700_000_000))

    def first(self) -> None:
        """What is there at the first index."""
        for talk in (self.main, self.old, self.goes):
            self.work(talk, 3, "plover")
        self.agent(self.main, "aa1", meta=True)
        self.agent(self.old, "bb2", meta=False)
        self.main.title("Plovers")
        self.main.raw(b'{"torn":"')
        for talk in (self.main, self.old, self.goes):
            self.home.write(self.path(talk), talk.data)
        self.fork(self.main, "fork", named=True)
        generation = self.home.vault_folder / P / self.main.session / "v0-raw.jsonl.zst"
        generation.parent.mkdir(parents=True)
        generation.write_bytes(packed.seekable(b"".join(one + b"\n" for one in self.main.lines[:9])))

    def then(self) -> None:
        """What has changed at the second: appends, a rewrite, removals, a fork, a subagent, a description."""
        begin = len(self.main.lines)
        self.main.queue("look at the dunlin")
        self.main.user("look at the dunlin")
        self.main.compact("so far: plovers")
        self.agent(self.main, "cc3", meta=True)
        described = f"{P}/{self.main.session}/subagents/agent-aa1.meta.json"
        self.home.write(described, b'{"agentType":"Plan","toolUseId":"toolu_cc3"}')
        self.home.append(self.path(self.main), b"".join(one + b"\n" for one in self.main.lines[begin:]))
        first = {**self.old.records[0], "message": {"role": "user", "content": "asked otherwise about dunlin"}}
        self.old.lines = [line(first), *self.old.lines[3:]]
        self.home.overwrite(self.path(self.old), self.old.data)
        self.fork(self.old, "second fork", named=False)
        (self.home.root / self.path(self.goes)).unlink()
        (self.home.root / P / self.old.session / "subagents" / "agent-bb2.jsonl").unlink()


def live(home: Home) -> None:
    """The whole history, with an update after each part of it."""
    history = History(home)
    history.first()
    home.index()
    history.then()
    home.index()


def dies_before(number: int, folder: Path, scenario: Callable[[Home], object]) -> bool:
    """Runs a scenario in a process that dies before its commit of that number; False if it never came so far."""
    folder.mkdir(exist_ok=True)
    child = os.fork()
    if child == 0:
        status = 70
        try:
            home = Home(folder)
            left = number

            def commit(name: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    (folder / "died").write_text(name)
                    os._exit(9)

            home.map.before_commit = commit
            scenario(home)
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a few records, a bulk load and a forgetting in several parts, so that there are many commits."""
    monkeypatch.setattr(scan, "SLICE_WEIGHT", 2_000)
    monkeypatch.setattr(map_module, "FORGET_SLICE", 7)
    monkeypatch.setattr(update, "BULK_BYTES", 20_000)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_before_any_commit_is_made_good(shard: int, tmp_path: Path) -> None:
    """After a death before any commit, one more run gives the Map of a rebuild, and no loss goes untold."""
    undisturbed = home_in(tmp_path / "undisturbed")
    live(undisturbed)
    told = {(loss.kind, loss.session_id) for loss in undisturbed.ledger.losses()}
    assert told
    undisturbed.close()
    deaths: list[str] = []
    number = shard + 1
    while dies_before(number, folder := tmp_path / "home", live):
        deaths.append((folder / "died").read_text())
        home = Home(folder)
        gone = not (home.root / History(home).path(History(home).goes)).exists()
        home.index()
        assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == [], (
            f"died before commit {number}, {deaths[-1]}"
        )
        assert home.faults() == [], f"died before commit {number}, {deaths[-1]}"
        if gone:
            assert {(loss.kind, loss.session_id) for loss in home.ledger.losses()} == told
        home.close()
        shutil.rmtree(folder)
        for name in ("rebuilt.db", "rebuilt-ledger.db"):
            (tmp_path / name).unlink()
        number += SHARDS
    assert len(deaths) >= 10


def test_every_kind_of_commit_is_a_place_to_die(tmp_path: Path) -> None:
    """The history above makes every kind of commit an update can make."""
    home = home_in(tmp_path / "home")
    seen: list[str] = []
    home.map.before_commit = seen.append
    live(home)
    assert set(seen) == NAMES
    assert len(seen) >= 10 * SHARDS
    home.close()


def test_dying_again_and_again_comes_to_an_end(tmp_path: Path) -> None:
    """Killed somewhere in every run, the runs still come to the Map of a rebuild."""
    home = home_in(tmp_path / "home")
    history = History(home)
    history.first()
    home.index()
    history.then()
    home.close()
    chooser = random.Random(20)
    deaths = 0
    while dies_before(chooser.randint(1, 9), home.path, lambda one: one.index()):
        deaths += 1
        assert deaths < 300
    assert deaths > 2
    home.open()
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []
    assert home.faults() == []
    home.close()
