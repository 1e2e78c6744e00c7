"""Takes the figures of a daemon that runs and of clients that ask it; each function yields some with their targets.

How it is started and asked is left to `process`; what is measured without a daemon, to `figures`.
"""

from __future__ import annotations

import os
import random
import shutil
import string
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Corpus, Effort, ensure_indexed
from benchmarks.process import (
    QUIET_SECONDS,
    ROOT,
    Daemon,
    Line,
    Spent,
    Trouble,
    daemon,
    fabled,
    family,
    inside,
    on_cpu_seconds,
    rss_mb,
    run,
    switches,
)
from benchmarks.report import Figure, Target, number

QUIET_MS = QUIET_SECONDS * 1000
SETTLE_SECONDS = 35.0
"""Until the daemon has done what it does once after a load: its idle job comes every 30 s."""


def idle(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """A daemon that made the first index itself, then left alone. Replaces the corpus's Map by its own."""
    shutil.rmtree(corpus.home / "fabled", ignore_errors=True)
    with daemon(corpus.env) as running:
        after = rss_mb(running.pid)
        time.sleep(SETTLE_SECONDS)
        cpu, turns, began = on_cpu_seconds(running.pid), switches(running.pid), time.monotonic()
        time.sleep(effort.idle_seconds)
        cpu, turns = on_cpu_seconds(running.pid) - cpu, switches(running.pid) - turns
        seconds = time.monotonic() - began
        memory, members = rss_mb(running.pid), family(running.pid)
    where = f"{corpus.name}, {seconds:.0f} s"
    yield Figure(Target("idle daemon, CPU", "%", 0.05), where, 100 * cpu / seconds, "–", f"{1000 * cpu:.1f} ms of CPU")
    yield Figure(Target("idle daemon, context switches a second", "/s"), where, turns / seconds)
    note = f"{after:.0f} MB right after its first index"
    yield Figure(Target("idle daemon, RSS", "MB", 64), corpus.name, memory, "–", note)
    yield Figure(Target("idle daemon, processes", "", 1), corpus.name, members)


def live(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """From a line appended to a transcript until a search over the socket finds it."""
    ensure_indexed(corpus)
    path = corpus.largest()
    chosen = random.Random(time.time_ns())
    unheard = ["q" + "".join(chosen.choices(string.ascii_lowercase, k=14)) for _ in range(effort.latencies + 2_000)]
    lines = inside("tail", corpus.env, path, len(unheard), *unheard)["lines"]
    one_by_one, burst = lines[: effort.latencies], lines[effort.latencies :]
    with daemon(corpus.env) as running:
        waits = []
        for line, word in zip(one_by_one, unheard, strict=False):
            waits.append(1000 * _until_found(running, path, [line], word))
            time.sleep(chosen.uniform(0.05, 0.4))
        scans = _settled(running)["scans"]
        cpu = on_cpu_seconds(running.pid)
        found = 1000 * _until_found(running, path, burst, unheard[-1])
        cpu = on_cpu_seconds(running.pid) - cpu
        scans = _settled(running)["scans"] - scans
        missing = [word for word in unheard[effort.latencies :: 97] if not running.line.finds(word)]
        if missing:
            raise Trouble(f"{len(missing)} records of a burst cannot be found")
    waits.sort()
    p95 = waits[int(len(waits) * 0.95)]
    note = f"p50 {waits[len(waits) // 2]:.0f} ms, most {waits[-1]:.0f} ms; the quiet window is {QUIET_MS:.0f} ms of it"
    target = Target("appended → searchable, p95", "ms", QUIET_MS + 50, text=f"≤ quiet {QUIET_MS:.0f} + 50 ms")
    yield Figure(target, corpus.name, p95, "–", note, tuple(waits))
    note = (
        f"from the last append, {QUIET_MS:.0f} ms of it the quiet window; {1000 * cpu:.0f} ms of CPU in {scans} scans"
    )
    yield Figure(Target("burst of 2,000 appends, all searchable", "ms", 500), corpus.name, found, "–", note)


def _settled(running: Daemon) -> Any:
    """The status once nothing is in hand: what was written can be found a moment before its report is in."""
    while (status := running.line.ask("status"))["queue"]:
        time.sleep(0.02)
    return status


def _until_found(running: Daemon, path: Path, lines: list[str], word: str) -> float:
    with open(path, "a", buffering=1) as file:
        for line in lines:
            file.write(line)
    began = time.monotonic()
    time.sleep(QUIET_SECONDS * 0.9)  # asking all the while would take the processor from the one that works
    while not running.line.finds(word):
        if time.monotonic() - began > 30:
            raise Trouble("an appended record was not found within 30 s")
        time.sleep(0.003)
    return time.monotonic() - began


SEARCHES = {
    "rare": (1, 3),
    "phrase": (1, 3),
    "two words": (1, 3),
    "none": (1, 3),
    "common": (80, 80),
    "commonest": (300, 300),
}
"""Targets in the process and over the socket, ms."""


def searched(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """Answers within the process, and as a client gets them: connect, ask, read."""
    ensure_indexed(corpus)
    got = inside("search", corpus.env, effort.rounds)
    over: dict[str, list[float]] = {name: [] for name in SEARCHES}
    with daemon(corpus.env) as running:
        for name in SEARCHES:
            for _ in range(effort.rounds):
                began = time.perf_counter()
                line: Line = running.new_line()
                line.ask("search", query=got["queries"][name], all=True)
                over[name].append(1000 * (time.perf_counter() - began))
                line.close()
    for name, (within, socket) in SEARCHES.items():
        one = got["ms"][name]
        many = f"{got['hits'][name]:,} hits, " if name in got["hits"] else ""
        note = f"{got['queries'][name]}: {many}{one['threads']:,} threads; p95 {number(one['p95'])} ms"
        yield Figure(
            Target(f"search, {name}, in the server, CPU p50", "ms", within), corpus.name, one["p50"], "–", note
        )
        least = f"fastest {number(min(over[name]))} ms"
        yield Figure(
            Target(f"search, {name}, over the socket, p50", "ms", socket), corpus.name, median(over[name]), "–", least
        )


def cold(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """`fabled status` as a shell prompt calls it, in turns with the barest Python."""
    ensure_indexed(corpus)
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    ways: dict[str, list[str]] = {
        "bare": bare,
        "installed": fabled("status"),
        "door": [sys.executable, "-I", "-S", str(ROOT / "fabled" / "client" / "door.py"), "status"],
    }
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    with daemon(corpus.env):
        for _ in range(effort.cold):
            for name, argv in ways.items():
                spent[name].append(run(argv, corpus.env))
    cpu = {name: 1000 * median(one.cpu for one in many) for name, many in spent.items()}
    wall = {name: 1000 * median(one.wall for one in many) for name, many in spent.items()}
    base = f"bare {number(cpu['bare'])} ms"
    where, note = "a process", f"{' '.join(map(os.path.basename, ways['installed']))}; clock {wall['installed']:.0f} ms"
    yield Figure(Target("cold `fabled status`, CPU", "ms", 20), where, cpu["installed"], base, note)
    ratio = cpu["installed"] / cpu["bare"]
    yield Figure(Target("cold `fabled status`, over bare Python", "×", 3), where, ratio, base)
    yield Figure(Target("the same as Claude Code calls us, CPU", "ms", 20), where, cpu["door"], base)
