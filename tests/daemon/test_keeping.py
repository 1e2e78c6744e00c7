"""A daemon that keeps and prunes: asked over its socket, and by itself under a service; what it left half done is
ended by the next."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.build import make_uuid
from tests.daemon.help import Daemon, until
from tests.keeping import FOLDER, aged
from tests.test_pruner import SESSION, working_day


@pytest.fixture
def big(daemon: Daemon) -> Path:
    """A transcript of over a megabyte that rests since two hours."""
    path = daemon.root / FOLDER / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(working_day(120).data)
    assert path.stat().st_size > 1_000_000
    aged(path, 7_200)
    return path


def settings(daemon: Daemon, **more: str) -> None:
    daemon.env.update({"FABLED_CAPTURE_RESERVE_BYTES": "0", **more})


def test_a_daemon_started_by_hand_prunes_when_asked_and_only_then(daemon: Daemon, big: Path) -> None:
    settings(daemon)
    original = big.read_bytes()
    daemon.start()
    status = daemon.status()
    assert status["prune"]["level"] == "off" and "by hand" in status["prune"]["why"]
    assert big.read_bytes() == original
    planned = daemon.ask("prune", session=SESSION[:8])
    assert not planned["applied"] and planned["refused"] == [] and big.read_bytes() == original
    done = daemon.ask("prune", session=SESSION[:8], apply=True)
    assert done["applied"] and big.stat().st_size == done["after_bytes"] < 0.7 * len(original)
    assert until(lambda: [one.name for one in big.parent.iterdir()] == [big.name]), "the old file is still there"
    assert daemon.status()["losses"] == []
    undone = daemon.ask("undo", session=SESSION, apply=True)
    assert undone["applied"] and big.read_bytes() == original


def test_under_a_service_a_large_transcript_is_captured_and_pruned_by_itself(daemon: Daemon, big: Path) -> None:
    settings(daemon, FABLED_SERVICE="1", FABLED_CAPTURE_QUIET_SECONDS="3600")
    small = big.with_name(f"{make_uuid('small')}.jsonl")
    small.write_bytes(working_day(3, make_uuid("small")).data)
    aged(small, 7_200)
    before = big.read_bytes(), small.read_bytes()
    daemon.start()
    assert until(lambda: big.stat().st_size < 0.7 * len(before[0])), daemon.status()["prune"]
    assert small.read_bytes() == before[1]
    assert until(lambda: daemon.status()["vault"]["generations"] >= 2), "both sessions are kept"
    assert until(lambda: daemon.status()["prune"]["pruned"] == 1)
    told = daemon.status()
    assert told["prune"]["saved_bytes"] > 0 and told["losses"] == [] and told["warnings"] == []
    (row,) = [one for one in told["prune"]["sessions"] if one["session_id"] == SESSION]
    assert row["verdict"]
    inode = big.stat().st_ino
    assert until(lambda: len(list(big.parent.iterdir())) == 2)
    daemon.stop()
    daemon.start()
    assert until(lambda: daemon.status()["queue"] == 0)
    assert big.stat().st_ino == inode, "pruned again without gain after a restart"


def test_a_line_written_to_the_old_file_after_a_prune_arrives(daemon: Daemon, big: Path) -> None:
    """A program that had the transcript open before the replacement (case 57)."""
    settings(daemon)
    daemon.start()
    with big.open("ab", buffering=0) as late:
        assert daemon.ask("prune", session=SESSION, apply=True)["applied"]
        line = json.dumps({"type": "mode", "mode": "late", "sessionId": SESSION}).encode() + b"\n"
        late.write(line)
        assert until(lambda: big.read_bytes().endswith(line))
    assert until(lambda: len(list(big.parent.iterdir())) == 1)
    assert big.read_bytes().count(line) == 1


def test_a_daemon_killed_in_a_drain_leaves_it_to_the_next(daemon: Daemon, big: Path) -> None:
    settings(daemon)
    daemon.start()
    late = big.open("ab", buffering=0)
    assert daemon.ask("prune", session=SESSION, apply=True)["applied"]
    daemon.stop(signal.SIGKILL)
    line = json.dumps({"type": "mode", "mode": "late", "sessionId": SESSION}).encode() + b"\n"
    late.write(line)
    late.close()
    assert len(list(big.parent.iterdir())) == 2
    daemon.start()
    assert until(lambda: big.read_bytes().endswith(line))
    assert until(lambda: len(list(big.parent.iterdir())) == 1)
    assert big.read_bytes().count(line) == 1


def test_what_the_client_deleted_is_found_read_and_restored(daemon: Daemon, big: Path) -> None:
    """The thirty days: captured, pruned, deleted by somebody else, the Map lost, and nothing missing."""
    settings(daemon, FABLED_SERVICE="1", FABLED_CAPTURE_QUIET_SECONDS="1")
    original = big.read_bytes()
    daemon.start()
    assert until(lambda: daemon.status()["prune"]["pruned"] == 1)
    assert until(lambda: len(list(big.parent.iterdir())) == 1)
    found = daemon.ask("search", query="booking 7", all=True)["results"]
    big.unlink()
    assert until(lambda: daemon.status()["queue"] == 0)
    again = daemon.ask("search", query="booking 7", all=True)["results"]
    assert [one["uuid"] for one in again] == [one["uuid"] for one in found] and found
    assert daemon.status()["vanished_sessions"] == 0, "nothing was lost, so nothing is reported"
    daemon.stop()
    for path in Path(daemon.home, "data").glob("map.db*"):
        path.unlink()
    shutil.rmtree(daemon.root)
    daemon.start()
    rebuilt = daemon.ask("search", query="booking 7", all=True)["results"]
    assert sorted(one["uuid"] for one in rebuilt) == sorted(one["uuid"] for one in found)
    value: dict[str, Any] = daemon.ask("restore", session=SESSION, apply=True)
    assert value["applied"] and big.read_bytes() == original
    assert time.time() - os.stat(big).st_mtime < 600


def test_a_reload_in_the_middle_of_a_drain_loses_nothing(daemon: Daemon, big: Path) -> None:
    """Other settings mean other parts over the same files; what still arrives at the old file is theirs to carry."""
    settings(daemon)
    daemon.start()
    with big.open("ab", buffering=0) as late:
        assert daemon.ask("prune", session=SESSION, apply=True)["applied"]
        (daemon.home / "config.toml").write_text("[prune]\nmin_gain = 0.2\n")
        daemon.ask("reload")
        assert daemon.settled()
        line = json.dumps({"type": "mode", "mode": "late", "sessionId": SESSION}).encode() + b"\n"
        late.write(line)
        assert until(lambda: big.read_bytes().endswith(line))
    assert until(lambda: len(list(big.parent.iterdir())) == 1)
    assert big.read_bytes().count(line) == 1
