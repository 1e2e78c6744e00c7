"""Running clients are told by their own files and by /proc; who cannot be told apart counts as running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabled.store import owners
from tests.build import make_uuid
from tests.rights import closed, unprivileged

S, OTHER = make_uuid("owned"), make_uuid("not owned")
linux = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")


def start(pid: int) -> str:
    """Field 22 of a process's stat."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until its input ends."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def say(folder: Path, pid: int, **facts: Any) -> Path:
    """What a client of 2.1.332 writes; a fact of None is left out."""
    told = {"pid": pid, "sessionId": S, "cwd": "/home/ana/app", "kind": "interactive", "status": "idle"} | facts
    path = folder / "sessions" / f"{pid}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in told.items() if value is not None}))
    return path


def found(folder: Path, session: str = S) -> list[tuple[int, str, str | None]]:
    return [(one.pid, one.session_id, one.status) for one in owners.live(str(folder), session)]


def test_a_folder_without_sessions_has_no_owners(tmp_path: Path) -> None:
    """Clients that keep no such files are not made up."""
    assert found(tmp_path) == []
    (tmp_path / "sessions").mkdir()
    assert found(tmp_path) == []


@linux
def test_a_running_client_owns_the_session_it_names(tmp_path: Path, client: subprocess.Popen[bytes]) -> None:
    """Process, start and session agree; another session is not owned; the file is named."""
    path = say(tmp_path, client.pid, procStart=start(client.pid), status="busy")
    assert owners.live(str(tmp_path), S) == [owners.Owner(client.pid, S, "busy", str(path))]
    assert found(tmp_path, OTHER) == []


@linux
def test_a_killed_client_left_its_file_behind_and_owns_nothing(tmp_path: Path, client: subprocess.Popen[bytes]) -> None:
    """Neither as a process that waits to be reaped, nor when its number is free or another's."""
    say(tmp_path, client.pid, procStart=start(client.pid))
    client.kill()
    os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
    assert found(tmp_path) == []
    client.wait()
    assert found(tmp_path) == []
    say(tmp_path, os.getpid(), procStart=str(int(start(os.getpid())) - 1))
    assert found(tmp_path) == []


@linux
def test_several_clients_of_one_session_are_all_told(tmp_path: Path, client: subprocess.Popen[bytes]) -> None:
    """Two clients may resume one session (case 59)."""
    say(tmp_path, client.pid, procStart=start(client.pid))
    say(tmp_path, os.getpid(), procStart=start(os.getpid()), status="waiting")
    assert sorted(found(tmp_path)) == sorted([(client.pid, S, "idle"), (os.getpid(), S, "waiting")])


@linux
def test_older_versions_say_less_and_count_all_the_same(tmp_path: Path, client: subprocess.Popen[bytes]) -> None:
    """Without a status it is None, without a start the number of the process suffices."""
    say(tmp_path, client.pid, status=None)
    assert found(tmp_path) == [(client.pid, S, None)]


@linux
def test_a_file_that_cannot_be_read_is_an_owner_of_any_session(tmp_path: Path, client: subprocess.Popen[bytes]) -> None:
    """Half-written, empty or odd content of a process that runs defers every session; of one that ended, none."""
    path = say(tmp_path, client.pid)
    for odd in (b"", b'{"pid":1', b"[]", b'"text"', b"\xff\xfe", b'{"sessionId":7}'):
        path.write_bytes(odd)
        assert found(tmp_path, OTHER) == [(client.pid, "", None)], odd
    client.kill()
    client.wait()
    assert found(tmp_path, OTHER) == []


@linux
def test_a_client_of_another_machine_or_container_counts(tmp_path: Path) -> None:
    """Its number says nothing here, so it may run."""
    say(tmp_path, 999_999_999, pidDomain="linux:0123:pid:[1]", procStart="5")
    assert found(tmp_path) == [(999_999_999, S, "idle")]


def test_other_files_in_the_folder_are_not_clients(tmp_path: Path) -> None:
    """Keys, temporary files and names that are no numbers."""
    (tmp_path / "sessions").mkdir()
    for name in (f"{os.getpid()}.abc.key", f"{os.getpid()}.json.tmp", "x.json", "0.json", f"0{os.getpid()}.json"):
        (tmp_path / "sessions" / name).write_text("{")
    assert found(tmp_path) == []


def test_a_folder_that_cannot_be_read_is_an_owner_of_any_session() -> None:
    """Nobody can say who runs, so somebody may."""
    with unprivileged() as folder:
        (folder / "sessions").mkdir()
        with closed(folder / "sessions"):
            assert [(pid, session) for pid, session, _ in found(folder)] == [(0, "")]


def test_without_proc_a_living_process_suffices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: its start is not compared."""
    monkeypatch.setattr(owners, "_PROC", str(tmp_path / "none"))
    say(tmp_path, os.getpid(), procStart="Mon Dec  1 12:00:00 2025")
    say(tmp_path, 999_999_999)
    assert found(tmp_path) == [(os.getpid(), S, "idle")]
