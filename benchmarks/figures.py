"""Takes the figures: each function measures some, over one corpus, and yields them with their targets.

How a process is run or asked is left to `process`, what happens within fabled to `inside`.

The machine is shared and noisy, so CPU seconds are compared, not the clock; what is compared with something else is
run in turns with it (A B A B), and the median of the pairs' ratios counts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.baseline import Baseline
from benchmarks.process import (
    Spent,
    environment,
    fabled,
    inside,
    run,
)
from benchmarks.report import Figure, Target, number


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
    prune_mb: int = 100
    again: int = 3


QUICK = Effort(appends=300, latencies=15, rounds=20, cold=25, idle_seconds=30.0, block_mb=12, prune_mb=32, again=2)


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
        ours.append(run(fabled("index", "--json"), corpus.env))
        if baseline is not None:
            theirs.append(baseline.full())
    megabytes = corpus.bytes / 1e6
    cpu = [spent.cpu for spent in ours]
    their_cpu = median(spent.cpu for spent in theirs) if theirs else 0.0
    if theirs:
        ratios = tuple(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True))
        target = Target("full index, CPU over the baseline's", "×", 0.8, text="≤ 0.8 × (whole recipe 1.1)")
        note = f"pairs {', '.join(number(ratio) for ratio in ratios)}; ours {', '.join(number(one) for one in cpu)} s"
        yield Figure(target, corpus.name, median(ratios), f"{number(their_cpu)} s", note, ratios)
    rates = tuple(megabytes / one for one in cpu)
    within = median(megabytes / json.loads(spent.out)["cpu_seconds"] for spent in ours)
    yield Figure(
        Target("full index, MB per CPU second", "MB/s", corpus.limits[0], at_least=True),
        corpus.name,
        median(rates),
        f"{number(megabytes / their_cpu)} MB/s" if theirs else "–",
        f"{number(within)} MB/s without the start of the process",
        rates,
    )
    yield Figure(
        Target("full index, peak RSS", "MB", corpus.limits[1]),
        corpus.name,
        max(spent.rss_mb for spent in ours),
        f"{number(max(spent.rss_mb for spent in theirs))} MB" if theirs else "–",
    )
    yield Figure(
        Target("Map size, of the transcripts", "%", 13),
        corpus.name,
        100 * sum(path.stat().st_size for path in corpus.map_db.parent.glob("map.db*")) / corpus.bytes,
        f"{number(100 * baseline.size() / corpus.bytes)} %" if baseline is not None else "–",
    )


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
    one = got["main"]
    kinds = ", ".join(f"{kind} {number(ms)}" for kind, ms in one["kinds"].items())
    note = f"p50 by kind: {kinds}; {one['rows_p50']:.0f} rows changed"
    yield Figure(Target(f"{name} p50", "ms", 2), corpus.name, one["p50"], base, note, tuple(one["ms"]))
    yield Figure(Target(f"{name} p99", "ms", 15), corpus.name, one["p99"])
    yield Figure(Target(f"{name} max", "ms", 60), corpus.name, one["max"])
    if "subagent" in got:
        side = got["subagent"]
        target = Target("the same in a subagent's transcript, p50", "ms", 2)
        yield Figure(target, corpus.name, side["p50"], note=f"p99 {number(side['p99'])} ms", samples=tuple(side["ms"]))
    beyond = max(series["beyond_tail"] for series in got.values()) / 1024
    yield Figure(Target("one appended record, KB read beyond it", "KB", 64), corpus.name, beyond)


def rewritten(corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """The largest transcript replaced by another. Leaves the copy of the corpus changed."""
    ensure_indexed(corpus)
    got = inside("rewrite", corpus.env)
    targets = {
        "pruned": Target("file rewritten by a prune, CPU per MB", "ms", 10),
        "one_line_less": Target("file rewritten without one line, CPU per MB", "ms", 10),
        "generation": Target("known file kept as a generation, CPU per MB", "ms", 25, text="≤ 25 ms (a whole prune)"),
    }
    for key, target in targets.items():
        one = got[key]
        texts = f"full text: {one['fts_inserted']} inserted, {one['fts_deleted']} deleted"
        note = f"{one['mb']:.0f} MB, {one['records']:,} lines; {texts}"
        yield Figure(target, corpus.name, one["ms_per_mb"], "–", note)
    written = sum(one["fts_inserted"] for one in got.values())
    yield Figure(Target("the three, full text written anew", "rows", 0), corpus.name, written)


# What needs no corpus


def swept(folder: Path, effort: Effort) -> Iterator[Figure]:
    home = fresh(folder / "sweep")
    got = inside("sweep", environment(home), 5_000)
    shutil.rmtree(home)
    yield Figure(
        Target("sweep, nothing changed, CPU per file", "µs", 20),
        "5,000 files",
        got["us_per_file"],
        samples=tuple(got["samples"]),
    )


def blocks(folder: Path, corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    home = fresh(folder / "block")
    got = inside("block", environment(home), corpus.largest(), effort.block_mb)
    shutil.rmtree(home)
    packed = f"1 MiB frames, compressed {got['ratio']:.1f} ×, indexed at {got['index_mb_per_s']:.0f} MB per CPU second"
    target = Target("block from a compressed generation, CPU p50", "ms", 2)
    yield Figure(target, f"{effort.block_mb} MB", got["p50"], "–", f"p95 {number(got['p95'])} ms; {packed}")


def fresh(home: Path) -> Path:
    shutil.rmtree(home, ignore_errors=True)
    (home / "claude" / "projects").mkdir(parents=True)
    return home


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
