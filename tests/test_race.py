"""Programs append as fast as they can while the transcript is replaced again and again: nothing lost, nothing doubled.

`FABLED_RACE=20000` is the long form: that many appends during a hundredth as many replacements.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from fabled.errors import Refused
from fabled.store import replace
from fabled.store.ledger import Ledger

APPENDS = int(os.environ.get("FABLED_RACE", "2000"))
SWAPS = max(20, APPENDS // 100)
DRAIN_SECONDS = 0.2
pytestmark = pytest.mark.timeout(180 + APPENDS // 10)


def record(writer: str, number: int) -> bytes:
    return b'{"id":"%s-%d","pad":"%s"}\n' % (writer.encode(), number, b"x" * (number % 500))


def appender(path: Path, orders: int, reports: int, seed: int) -> None:
    """Opens, appends one line and closes, as the client does; a burst at each order, as fast as it can or spread over
    the time that a replacement takes."""
    rng = random.Random(seed)
    number = 0
    while order := os.read(orders, 1):
        pause = rng.choice((0.0, 0.0, 0.0001, 0.0005))
        for _ in range(order[0]):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(fd, record("a", number))
            os.close(fd)
            number += 1
            if pause:
                time.sleep(rng.random() * 2 * pause)
    os.write(reports, b"%d\n" % number)


def holder(path: Path, orders: int, reports: int, seed: int) -> None:
    """Holds the file open over several lines, and opens it again within the time of a drain."""
    rng = random.Random(seed)
    number = 0
    while order := os.read(orders, 1):
        left = order[0]
        while left:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            end = time.monotonic() + rng.random() * DRAIN_SECONDS * 0.7
            while left and time.monotonic() < end:
                lines = min(left, rng.choice((1, 1, 1, 3)))
                os.write(fd, b"".join(record("h", number + one) for one in range(lines)))
                number += lines
                left -= lines
                time.sleep(rng.random() * 0.003)
            os.close(fd)
    os.write(reports, b"%d\n" % number)


def start(program: Callable[[Path, int, int, int], None], path: Path, seed: int) -> tuple[int, int, int]:
    """(process, pipe for orders, pipe for its report)."""
    orders, to = os.pipe()
    report, reports = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(to)
            os.close(report)
            program(path, orders, reports, seed)
            status = 0
        finally:
            os._exit(status)
    os.close(orders)
    os.close(reports)
    return pid, to, report


def smaller(line: bytes) -> bytes:
    """What this prune makes of a line: its padding goes, its id stays."""
    value = orjson.loads(line)
    value["pad"] = ""
    return orjson.dumps(value) + b"\n"


def prune(path: Path, ledger: Ledger) -> bool:
    """One replacement with its drain; False where it was deferred."""
    held = replace.hold(str(path), reserve_bytes=0)
    try:
        entry = ledger.begin(
            {
                "session_id": "s",
                "path": str(path),
                "what": "prune",
                "level": "gentle",
                "at": 1,
                "state": "begun",
                "base_length": held.length,
                "base_sha": held.sha256(),
            }
        )
        temp = replace.write_temp(held, lambda write: [write(smaller(line)) for line in held.lines()])
        with contextlib.suppress(Refused):
            drain = replace.swap(held, temp, ledger, entry, still_allowed=lambda: None, drain_seconds=DRAIN_SECONDS)
            assert drain.finish()
            assert drain.note is None
            return True
        return False
    finally:
        held.close()


def test_nothing_is_lost_or_doubled_under_racing_writers(tmp_path: Path) -> None:
    """Every line of two kinds of writers is there once, whole, whatever the replacements did meanwhile."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    path = tmp_path / "s.jsonl"
    path.touch(0o600)
    ledger = Ledger(str(tmp_path / "ledger.db"))
    writers = [start(program, path, seed + place) for place, program in enumerate((appender, holder))]
    per_swap = APPENDS // SWAPS
    rng = random.Random(seed)
    done = deferred = asked = late = 0
    try:
        while done < SWAPS:
            if asked < APPENDS:
                share = min(per_swap // 5, 250)
                for (_, to, _), count in zip(writers, (per_swap - share, share), strict=True):
                    os.write(to, bytes([min(count, 255)]))
                asked += per_swap
                time.sleep(rng.random() * 0.02)
            if prune(path, ledger):
                done += 1
                late += ledger.journal()[-1].drain_to is not None
            else:
                deferred += 1
    finally:
        counts = []
        for _, to, _ in writers:  # all, before one is waited for: the second has a copy of the first's
            os.close(to)
        for pid, _, report in writers:
            with open(report, "rb") as pipe:
                counts.append(int(pipe.read() or b"-1"))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        ledger.close()
    print(f"{sum(counts)} appends, {done} replacements, {late} with late lines, {deferred} deferred")
    assert sum(counts) >= APPENDS
    ids = Counter(orjson.loads(line)["id"] for line in path.read_bytes().splitlines())
    wanted = {f"{name}-{number}" for name, count in zip("ah", counts, strict=True) for number in range(count)}
    assert [one for one, times in ids.items() if times > 1] == []
    assert wanted - ids.keys() == set()
    assert ids.keys() == wanted
    assert replace.leftover_files([str(tmp_path)]) == []
    assert late > 0, "the race was none: no line came late"
