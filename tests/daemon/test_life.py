"""Two hours of a daemon's life in minutes: afterwards it is as it was, and nothing that was written is missing.

`FABLED_LIFE=<rounds>` is the long form; `make life` lives thirty of them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled.daemon.server import Limits
from fabled.store import replace
from tests.daemon.help import Daemon, until
from tests.daemon.life import SETTINGS, Disk, Life, Sample, live_lines

ROUNDS = int(os.environ.get("FABLED_LIFE", "1"))
IDLE_BYTES = 64 << 20
CONNECTIONS = 1 + 1 + Limits().readers
pytestmark = [
    pytest.mark.timeout(120 + 40 * ROUNDS),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
]


@pytest.fixture
def life(folder: Path) -> Iterator[Life]:
    """A daemon whose home is a small disk of its own, where one can be made."""
    seed = int(os.environ.get("FABLED_LIFE_SEED", random.randrange(1 << 20)))
    daemon = Daemon(folder, **SETTINGS)
    daemon.root.mkdir(parents=True)
    disk = Disk.made(daemon.home, 128 + 16 * ROUNDS)
    try:
        if disk is not None:
            daemon.home = disk.seen
        daemon.start(*(disk.inside if disk is not None else ()))
        made = Life(daemon, disk, seed)
        try:
            yield made
        finally:
            made.over()
            for one in made.hung:
                one.close()
    finally:
        daemon.close()
        if disk is not None:
            disk.close()


def test_a_life_leaves_nothing_behind_and_loses_nothing(life: Life) -> None:
    """No event missed or record lost, memory flat, no descriptor or OS thread left, no traceback, and a clean check."""
    daemon = life.daemon
    life.begin()
    for number in range(ROUNDS):
        life.round()
        said(f"round {number + 1}", life.samples[-1])
        if number % 8 == 7:
            said(f"at rest {life.used()}", life.rest(0))
    print(f"seed {life.seed}; {dict(sorted(life.did.items()))}", flush=True)
    life.over()
    rest = life.rest(IDLE_BYTES)
    said("at rest", rest)
    assert until(lambda: not replace.leftover_files([str(life.root)]), 30), "a drain did not end"
    assert life.missed == []
    assert life.faults == []
    nothing_open(life)
    assert rest.rss <= IDLE_BYTES, rest
    found_and_opened(life)
    status = daemon.status()
    assert (status["vanished"], status["failed"], status["unparsed"]) == (0, [], 0)
    assert status["warnings"] == []
    assert until(lambda: Sample.of(life.pid).rss <= IDLE_BYTES, 45), Sample.of(life.pid)
    said("end", Sample.of(life.pid))
    checked = inside(life, "check", "--deep")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    process = daemon.process
    assert process is not None and process.stdout is not None
    process.terminate()
    assert process.wait(5) == 0
    assert "Traceback" not in process.stdout.read()
    quiet_log(life)
    counts = ("records", "sessions", "scans", "rescans", "missed_runs", "overflow", "watcher_restarts")
    print({name: status[name] for name in counts})


def said(what: str, sample: Sample) -> None:
    """For whoever watches the long form."""
    memory = f"{sample.rss / 1e6:.1f} MB, {sample.anonymous / 1e6:.1f} of it anonymous"
    print(f"{what}: {memory}, {sample.descriptors.total()} descriptors, {sample.threads} threads", flush=True)


def inside(life: Life, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the same home, where its disk is seen."""
    command = [*(life.disk.inside if life.disk is not None else ()), sys.executable, "-m", "fabled", *arguments]
    return subprocess.run(command, env=life.daemon.env, capture_output=True, text=True, timeout=600)


def nothing_open(life: Life) -> None:
    """As many OS threads as at the start, and no descriptor more of any kind.

    SQLite keeps the descriptor of a closed connection for the next one while another has the file locked: there are as
    many as connections were ever open at once, at most the writer's and one for each OS thread that answers.
    """
    first = life.samples[0].descriptors
    stores = {name: CONNECTIONS for name in first if name.endswith(("/map.db", "/ledger.db"))}

    def back() -> Counter[str]:
        return Sample.of(life.pid).descriptors - (first | Counter(stores))

    assert until(lambda: not back(), 10), back()
    assert Sample.of(life.pid).threads == life.samples[0].threads


def found_and_opened(life: Life) -> None:
    """Each appended record is found by its word and given back byte for byte; so is each line that is live."""
    ask = life.daemon.ask
    lost = [one for one in life.wrote if ask("block", id=one.id, raw=True) != one.raw]
    assert lost == []
    assert [one.mark for one in life.wrote if one.mark and not life.daemon.hits(one.mark)] == []
    live = list(live_lines(life.root))
    assert live
    for session, raw in live:
        value = json.loads(raw)
        told = ask("block", id=f"{value['uuid']}@{session}")
        assert [copy for copy in told["copies"] if copy["path"].endswith(f"{session}.jsonl")], value["uuid"]


# What was done to the daemon: bad files of settings, a full disk.
EXPECTED = {
    "error config.refused", "error config.problem", "warning storage.waiting", "warning storage.waited",
    "warning keep.postponed", "warning drain.postponed",
}  # fmt: skip


def quiet_log(life: Life) -> None:
    """No traceback, and errors and warnings only of what was done to the daemon."""
    lines = [
        text
        for path in sorted((life.daemon.home / "state").glob("fabled.log*"))
        for text in path.read_text().splitlines()
    ]
    values = [json.loads(text) for text in lines if text.startswith("{") and text.endswith("}")]
    print(f"log levels {dict(Counter(value['level'] for value in values))}")
    loud = Counter(f"{value['level']} {value['event']}" for value in values if value["level"] not in ("info", "debug"))
    print(f"loud {dict(loud)}")
    assert [value for value in values if "exception" in value] == []
    assert "Traceback" not in "".join(lines)
    assert loud.keys() <= EXPECTED
