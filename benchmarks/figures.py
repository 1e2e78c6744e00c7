"""Takes the figures: each function measures some, over one corpus, and yields them with their targets.

How a process is run or asked is left to `process`, what happens within fabled to `inside`.

The machine is shared and noisy, so CPU seconds are compared, not the clock; what is compared with something else is
run in turns with it (A B A B), and the median of the pairs' ratios counts.
"""

from __future__ import annotations

import os
import random
import shutil
import string
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.baseline import Baseline
from benchmarks.process import (
    QUIET_SECONDS,
    ROOT,
    Daemon,
    Line,
    Spent,
    Trouble,
    daemon,
    environment,
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


@dataclass(frozen=True, slots=True)
class Corpus:
    """Transcripts to measure on: a copy that may be written to, and a home whose Map lies beside it."""

    name: str
    home: Path
    bytes: int
    files: int
    pairs: int
    """how often the whole is indexed"""
    limits: tuple[float | None, float | None]
    """MB per CPU second at least; MB of memory at most"""

    @property
    def projects(self) -> Path:
        return self.home / "claude" / "projects"

    @property
    def env(self) -> dict[str, str]:
        return environment(self.home, self.projects)

    @property
    def map_db(self) -> Path:
        return self.home / "fabled" / "data" / "map.db"

    def largest(self) -> Path:
        return max(self.projects.rglob("*.jsonl"), key=lambda path: (path.stat().st_size, str(path)))


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done for each figure."""

    appends: int = 300
    latencies: int = 40
    rounds: int = 30
    cold: int = 40
    idle_seconds: float = 60.0
    block_mb: int = 24
    again: int = 3


QUICK = Effort(appends=300, latencies=15, rounds=20, cold=25, idle_seconds=30.0, block_mb=12, again=2)


def ensure_indexed(corpus: Corpus) -> None:
    if not corpus.map_db.exists():
        run(fabled("index"), corpus.env)


# The whole


def warm(folder: Path) -> None:
    """Has the kernel hold the files, so that neither side pays for the disk.

    In small pieces: what a child is said to have held at its peak includes what we held when it was started.
    """
    for path in folder.rglob("*.jsonl"):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def full_index(corpus: Corpus, baseline: Baseline | None, effort: Effort) -> Iterator[Figure]:
    """`fabled index` from nothing beside the baseline's, each a process with its start and end."""
    warm(corpus.projects)
    ours: list[Spent] = []
    theirs: list[Spent] = []
    for _ in range(corpus.pairs):
        shutil.rmtree(corpus.home / "fabled", ignore_errors=True)
        ours.append(run(fabled("index"), corpus.env))
        if baseline is not None:
            theirs.append(baseline.full())
    cpu = [spent.cpu for spent in ours]
    base = f"{number(median(spent.cpu for spent in theirs))} s CPU" if theirs else "–"
    ratios = tuple(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True)) if theirs else ()
    ratio = Target("full index, CPU over the baseline's", "×", 0.8, text="≤ 0.8 × (whole recipe 1.1)")
    both = f"{number(median(cpu))} s CPU ({', '.join(number(value) for value in cpu)}), ratios {', '.join(number(r) for r in ratios)}"
    if ratios:
        yield Figure(ratio, corpus.name, median(ratios), base, both, ratios)
    per_second = tuple(corpus.bytes / 1e6 / value for value in cpu)
    rate = Target("full index, MB per CPU second", "MB/s", corpus.limits[0], at_least=True)
    base = f"{number(corpus.bytes / 1e6 / median(spent.cpu for spent in theirs))} MB/s" if theirs else "–"
    yield Figure(rate, corpus.name, median(per_second), base, "", per_second)
    base = f"{number(max(spent.rss_mb for spent in theirs))} MB" if theirs else "–"
    peak = Target("full index, peak RSS", "MB", corpus.limits[1])
    yield Figure(peak, corpus.name, max(spent.rss_mb for spent in ours), base)
    base = f"{number(100 * baseline.size() / corpus.bytes)} %" if baseline is not None else "–"
    size = sum(path.stat().st_size for path in corpus.map_db.parent.glob("map.db*"))
    yield Figure(Target("Map size, of the transcripts", "%", 13), corpus.name, 100 * size / corpus.bytes, base)


def appended(corpus: Corpus, baseline: Baseline | None, effort: Effort) -> Iterator[Figure]:
    """One record at a time, in the process that holds the Map open."""
    ensure_indexed(corpus)
    got = inside("append", corpus.env, effort.appends)
    base = "–"
    if baseline is not None:
        lines = inside("tail", corpus.env, corpus.largest(), effort.again)["lines"]
        if not corpus.home.joinpath(".cc-search").exists():
            baseline.full()
        else:
            baseline.again()
        spent = []
        for line in lines:
            with open(corpus.largest(), "a") as file:
                file.write(line)
            spent.append(baseline.again().cpu)
        base = f"{number(1000 * median(spent))} ms"
    name = "one appended record, writer CPU"
    yield Figure(Target(f"{name} p50", "ms", 2), corpus.name, got["p50"], base, f"{got['rows_p50']:.0f} rows changed (p50)", tuple(got["ms"]))
    yield Figure(Target(f"{name} p99", "ms", 15), corpus.name, got["p99"])
    yield Figure(Target(f"{name} max", "ms", 60), corpus.name, got["max"])
    yield Figure(Target("one appended record, KB read beyond it", "KB", 64), corpus.name, got["beyond_tail"] / 1024)


def rewritten(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """The largest transcript replaced by another. Leaves the copy of the corpus changed."""
    ensure_indexed(corpus)
    got = inside("rewrite", corpus.env)
    for key, what in (("pruned", "after a prune"), ("one_line_less", "without one line"), ("generation", "kept as a generation")):
        one = got[key]
        note = f"{one['mb']:.0f} MB, {one['records']:,} lines; full text: {one['fts_inserted']} inserted, {one['fts_deleted']} deleted"
        target = Target(f"rewritten file {what}, CPU per MB", "ms", 10)
        yield Figure(target, corpus.name, one["ms_per_mb"], "–", note)
    written = sum(one["fts_inserted"] for one in got.values())
    yield Figure(Target("rewritten file, full text written anew", "rows", 0), corpus.name, written)


# What needs no corpus


def swept(folder: Path, effort: Effort) -> Iterator[Figure]:
    home = fresh(folder / "sweep")
    got = inside("sweep", environment(home), 5_000)
    shutil.rmtree(home)
    yield Figure(Target("sweep, nothing changed, CPU per file", "µs", 20), "5,000 files", got["us_per_file"], samples=tuple(got["samples"]))


def blocks(folder: Path, corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    home = fresh(folder / "block")
    got = inside("block", environment(home), corpus.largest(), effort.block_mb)
    shutil.rmtree(home)
    note = f"1 MiB frames, compressed {got['ratio']:.1f} ×, indexed at {got['index_mb_per_s']:.0f} MB per CPU second; p95 {number(got['p95'])} ms"
    yield Figure(Target("block from a compressed generation, CPU p50", "ms", 2), f"{effort.block_mb} MB", got["p50"], "–", note)


def fresh(home: Path) -> Path:
    shutil.rmtree(home, ignore_errors=True)
    (home / "claude" / "projects").mkdir(parents=True)
    return home


# The daemon


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
    note = f"from the last append, {QUIET_MS:.0f} ms of it the quiet window; {1000 * cpu:.0f} ms of CPU in {scans} scans"
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


SEARCHES = {"rare": (1, 3), "phrase": (1, 3), "two words": (1, 3), "none": (1, 3), "common": (80, 80), "commonest": (300, 300)}
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
        yield Figure(Target(f"search, {name}, in the server, CPU p50", "ms", within), corpus.name, one["p50"], "–", note)
        least = f"fastest {number(min(over[name]))} ms"
        yield Figure(Target(f"search, {name}, over the socket, p50", "ms", socket), corpus.name, median(over[name]), "–", least)


def cold(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """`fabled status` as a shell prompt calls it, in turns with the barest Python."""
    ensure_indexed(corpus)
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    door = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from fabled.client.main import main; sys.argv[1:] = ['status']; sys.exit(main())"
    ways: dict[str, list[str]] = {"bare": bare, "installed": fabled("status"), "fast": [sys.executable, "-I", "-S", "-c", door]}
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    with daemon(corpus.env):
        for _ in range(effort.cold):
            for name, argv in ways.items():
                spent[name].append(run(argv, corpus.env))
    cpu = {name: 1000 * median(one.cpu for one in many) for name, many in spent.items()}
    wall = {name: 1000 * median(one.wall for one in many) for name, many in spent.items()}
    base = f"bare {number(cpu['bare'])} ms"
    note = f"`{os.path.basename(ways['installed'][0])} status` with the start of Python; clock {wall['installed']:.0f} ms"
    yield Figure(Target("cold `fabled status`, CPU", "ms", 20), "a process", cpu["installed"], base, note)
    yield Figure(Target("cold `fabled status`, over bare Python", "×", 3), "a process", cpu["installed"] / cpu["bare"], base)
    yield Figure(Target("the same by `python -I -S`, CPU", "ms", 20), "a process", cpu["fast"], base)


def copy(source: Path, home: Path) -> tuple[int, int]:
    """A copy of transcripts that may be written to; its bytes and files."""
    shutil.rmtree(home, ignore_errors=True)
    projects = home / "claude" / "projects"
    shutil.copytree(source, projects, symlinks=True)
    for folder, _, names in os.walk(projects):
        os.chmod(folder, 0o700)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o600)
    sizes = [path.stat().st_size for path in projects.rglob("*.jsonl")]
    return sum(sizes), len(sizes)


def about(corpus: Corpus) -> dict[str, Any]:
    return {"name": corpus.name, "bytes": corpus.bytes, "files": corpus.files}
