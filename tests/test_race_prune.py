"""Clients append without pause while a session is pruned for real, again and again: no line lost, none doubled.

`FABLED_RACE=20000` is the long form: that many appends and a hundredth as many prunes.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.build import Transcript, make_uuid
from tests.keeping import Keeping

APPENDS = int(os.environ.get("FABLED_RACE", "1200"))
PRUNES = max(8, APPENDS // 100)
SESSION = make_uuid("race")
pytestmark = pytest.mark.timeout(180 + APPENDS)


def turns(writer: str) -> Iterator[bytes]:
    """Lines of a session without end, each with a uuid of its own and something for a prune in every fourth."""
    made = Transcript(SESSION, salt=writer)
    number = 0
    while True:
        made.user(f"{writer} {number}")
        call = made.call("Read", {"file_path": f"/a/{number}.py"})
        made.result(call, f"text {number}", toolUseResult={"file": {"content": "y" * 1_500}})
        made.assistant(f"done {number}")
        yield from (line + b"\n" for line in made.lines)
        made.lines.clear()
        number += 1


def append(path: Path, wrote: Path, count: int) -> None:
    """As the client: open, append, close, as fast as it can."""
    lines = turns(wrote.suffix)
    for _ in range(count):
        line = next(lines)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line)
        os.close(fd)
        note(wrote, line)
        time.sleep(0.001)


def hold(path: Path, wrote: Path, count: int) -> None:
    """Keeps the file open over some lines, and opens it again within the time of a drain."""
    lines, rng = turns(wrote.suffix), random.Random(wrote.suffix)
    while count > 0:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        for _ in range(rng.randint(1, 60)):
            line = next(lines)
            os.write(fd, line)
            note(wrote, line)
            count -= 1
            time.sleep(rng.random() * 0.004)
        os.close(fd)


def note(wrote: Path, line: bytes) -> None:
    fd = os.open(wrote, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.split(b'"uuid":"', 1)[1][:36] + b"\n")
    os.close(fd)


def started(program: Callable[[Path, Path, int], None], path: Path, wrote: Path, count: int) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            program(path, wrote, count)
            os._exit(0)
        os._exit(1)
    return pid


def test_no_line_is_lost_or_doubled_while_clients_append(tmp_path: Path) -> None:
    home = Keeping(tmp_path, FABLED_PRUNE_QUIET_SECONDS="0", FABLED_PRUNE_IDLE_SECONDS="0",
                   FABLED_PRUNE_DRAIN_SECONDS="1", FABLED_PRUNE_MAX_GENERATIONS="1000")  # fmt: skip
    first = Transcript(SESSION, salt="first")
    first.user("begin")
    path = home.write(SESSION, first.data, age=0)
    wrote = tmp_path / "wrote"
    home.index()
    pruned = deferred = 0
    while pruned < PRUNES:
        writers = [
            started(append, path, wrote.with_suffix(f".a{pruned + deferred}"), APPENDS // PRUNES * 2 // 3),
            started(hold, path, wrote.with_suffix(f".h{pruned + deferred}"), APPENDS // PRUNES // 3),
        ]
        try:
            time.sleep(random.random() * 0.05)
            value = home.pruner.prune(SESSION, "gentle", True)
            pruned += value["applied"]
            deferred += not value["applied"]
            assert {one["code"] for one in value["refused"]} <= {"nothing", "busy", "changed", "generations"}
            home.pruner.finish()
        finally:
            assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in writers] == [0, 0]
        assert deferred < 10 * PRUNES, "it hardly ever comes to a prune"
    home.index()
    want = Counter(uuid for file in tmp_path.glob("wrote.*") for uuid in file.read_bytes().split())
    ids = {uuid.decode() for uuid in want}
    live = Counter(line.split(b'"uuid":"', 1)[1][:36] for line in path.read_bytes().splitlines())
    assert {uuid: n for uuid, n in want.items() if live[uuid] != 1} == {}, "lost or doubled"
    assert sum(want.values()) >= APPENDS and len(ids) == len(want)
    assert home.faults() == []
    home.close()
