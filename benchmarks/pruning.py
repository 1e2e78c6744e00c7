"""Takes the figures of keeping and pruning: what a prune saves, what it costs, and what reading from the Vault costs.

What happens within fabled is left to `keeping`. Savings are measured on copies of real transcripts, beside cozempic on
copies of the same ones; the cost on the largest transcript of a corpus.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import baseline
from benchmarks.figures import Corpus, Effort, fresh
from benchmarks.process import environment, run
from benchmarks.report import Figure, Target, number

OTHER = "cozempic==1.8.39"
LEVELS = {"gentle": 50.0, "standard": 65.0, "aggressive": 75.0}
"""Per cent to be saved in total where no floor keeps a transcript out."""
LARGE = 1_000_000
FLOORS_OFF = {"FABLED_PRUNE_MIN_BYTES": "0", "FABLED_PRUNE_MIN_GAIN_BYTES": "0", "FABLED_PRUNE_MIN_GAIN": "0"}
HOURS_AGO = 7_200
RATE = 40.0
"""MB per CPU second"""
BASE_MB = 64.0


@dataclass(frozen=True, slots=True)
class Copy:
    """A transcript to be copied: where from, and to which place below a root."""

    source: Path
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a level made of a set of transcripts."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    requests: Mapping[str, str]
    left: Mapping[str, str]
    """why a transcript was left as it was"""

    @property
    def total(self) -> float:
        return 100 * (1 - sum(self.after.values()) / sum(self.before.values()))

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(100 * (1 - self.after[name] / size) for name, size in self.before.items())

    def among(self, names: Sequence[str]) -> Result:
        def only(of: Mapping[str, Any]) -> dict[str, Any]:
            return {name: of[name] for name in names if name in of}

        return Result(only(self.before), only(self.after), only(self.requests), only(self.left))


# Savings


def saved(folder: Path, source: Path, program: Path | None) -> Iterator[Figure]:
    """Each level on copies of its own; `program`: cozempic, where it could be installed."""
    copies = transcripts(source)
    large = [copy for copy in copies if copy.size >= LARGE]
    where = folder / "prune"
    theirs = {level: _theirs(where, copies, level, program) for level in LEVELS} if program is not None else {}
    sets = [(copies, f"{len(copies)} files, floors at 0", FLOORS_OFF)]
    if large:
        sets.insert(0, (large, f"{len(large)} files of 1 MB and more", {}))
    with ThreadPoolExecutor(2) as pool:  # what it costs is measured elsewhere
        ours = [
            (level, on, names, floors, pool.submit(_ours, where / f"{len(names)}-{level}", names, level, floors))
            for names, on, floors in sets
            for level in LEVELS
        ]
        for level, on, names, floors, result in ours:
            beside = theirs[level].among([copy.name for copy in names]) if theirs else None
            yield from _compared(level, on, LEVELS[level] if floors else None, result.result(), beside)
    shutil.rmtree(folder / "prune", ignore_errors=True)


def transcripts(source: Path) -> list[Copy]:
    """The main transcripts below a folder, each with a project folder of its own."""
    found = []
    for path in sorted(source.rglob("*.jsonl")):
        inner = path.relative_to(source).parts[:-1]
        if not path.name.startswith("agent-") and "subagents" not in inner:
            found.append(Copy(path, f"-{'-'.join(inner)}/{path.name}", path.stat().st_size))
    return found


def _compared(level: str, what: str, limit: float | None, ours: Result, theirs: Result | None) -> Iterator[Figure]:
    def base(of: float | None) -> str:
        return "–" if of is None else f"{number(of)} %"

    note = f"left as they were: {_counted(ours.left)}"
    if theirs is not None:
        note += f"; cozempic: {_counted(theirs.left)}"
    yield Figure(
        Target(f"saved by {level}, in total", "%", limit, at_least=True),
        what,
        ours.total,
        base(theirs.total if theirs is not None else None),
        note,
        ours.shares,
    )
    yield Figure(
        Target(f"saved by {level}, at the median", "%"),
        what,
        median(ours.shares),
        base(median(theirs.shares) if theirs is not None else None),
    )
    if limit is None:
        return
    ended = Counter(ours.requests.values())
    yield Figure(
        Target(f"requests changed by {level}", "", 0 if level == "gentle" else None),
        what,
        ended.total() - ended["same"],
        "–" if theirs is None else f"{sum(one != 'same' for one in theirs.requests.values())}",
        f"{ended['less']} of them lack a message, a block or a text of a person or model"
        + ("" if theirs is None else f"; cozempic: {Counter(theirs.requests.values())['less']}"),
    )


def _counted(left: Mapping[str, str]) -> str:
    many = Counter(left.values()).most_common()
    return f"{len(left)}" + (f" ({', '.join(f'{code} {count}' for code, count in many)})" if many else "")


def _ours(folder: Path, copies: Sequence[Copy], level: str, settings: Mapping[str, str]) -> Result:
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    left: dict[str, str] = {}
    sent: dict[str, str] = {}
    for group in _groups(copies):
        home = fresh(folder / "ours")
        env = {**_alone(home), **settings}
        originals = _laid_out(home, group)
        for name, one in job("savings", env, level)["files"].items():
            before[name], after[name] = one["before"], one["after"]
            if one["refused"]:
                left[name] = one["refused"][0]
        missing = [copy.name for copy in group if copy.name not in before]
        if missing:
            raise KeyError(f"not pruned, not refused: {', '.join(missing)}")
        sent |= job("requests", env, originals, home / "claude" / "projects")["files"]
    return Result(before, after, sent, left)


def _groups(copies: Sequence[Copy]) -> list[list[Copy]]:
    """Two transcripts of one session are states of it, and need homes of their own."""
    groups: list[dict[str, Copy]] = []
    for copy in copies:
        session = copy.source.stem
        group = next((group for group in groups if session not in group), None)
        if group is None:
            groups.append(group := {})
        group[session] = copy
    return [list(group.values()) for group in groups]


def _laid_out(home: Path, copies: Sequence[Copy]) -> Path:
    """Copies them below the root of a home, last written some hours ago, and a second time to compare with."""
    then = time.time() - HOURS_AGO
    for root in (home / "claude" / "projects", home / "originals"):
        for copy in copies:
            path = root / copy.name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(copy.source, path)
            path.chmod(0o600)
            os.utime(path, (then, then))
    return home / "originals"


def _theirs(folder: Path, copies: Sequence[Copy], level: str, program: Path) -> Result:
    home = fresh(folder / "theirs")
    originals = _laid_out(home, copies)
    projects = home / "claude" / "projects"
    # It would install hooks and updates, and tell a counter that it runs.
    off = ("NO_TELEMETRY", "NO_AUTO_UPDATE", "NO_AUTO_INIT", "NO_GLOBAL_INIT")
    env = {"CLAUDE_CONFIG_DIR": str(home / "claude"), "PATH": os.environ.get("PATH", "")}
    env |= {f"COZEMPIC_{name}": "1" for name in off}

    def treat(copy: Copy) -> str:
        """What it says of a transcript it leaves alone; else nothing."""
        path = projects / copy.name
        own = home / "homes" / copy.name
        own.mkdir(parents=True)
        argv = [str(program), "treat", str(path), "-rx", level, "--execute"]
        done = subprocess.run(
            argv, env={**env, "HOME": str(own)}, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            return f"status {done.returncode}"
        if path.read_bytes() != copy.source.read_bytes():
            return ""
        return "every level would wipe it" if b"be pruned safely" in done.stdout + done.stderr else "unchanged"

    with ThreadPoolExecutor(2) as pool:
        said = dict(zip([copy.name for copy in copies], pool.map(treat, copies), strict=True))
    before = {copy.name: copy.size for copy in copies}
    after = {copy.name: (projects / copy.name).stat().st_size for copy in copies}
    left = {name: words for name, words in said.items() if words}
    sent = job("requests", environment(home), originals, projects)["files"]
    return Result(before, after, sent, left)


def install(folder: Path) -> Path:
    """Cozempic's program. Raises OSError or CalledProcessError."""
    return baseline.install(folder, OTHER, "cozempic")


# Cost


def speed(folder: Path, corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """The largest transcript pruned, each level in a process of its own, when the Vault has its bytes already."""
    for level in ("gentle", "standard"):
        home = _large(folder / "prune", corpus, effort)
        env = _alone(home)
        job("index", env)
        job("capture", env)
        got = job("prune", env, level)
        shutil.rmtree(home)
        whole = sum(got["spent"].values())
        index = got["spent"].get("index", 0.0)
        on = f"{got['mb']:.0f} MB"
        yield Figure(
            Target(f"prune, {level}, MB per CPU second", "MB/s", RATE, at_least=True),
            on,
            got["mb"] / (whole - index),
            "–",
            f"{got['changes']:,} changes leave {got['after_mb']:.0f} MB; {number(got['mb'] / whole)} MB/s with the "
            "indexing of what is left",
        )
        limit = BASE_MB + 3 * got["longest_mb"]
        yield Figure(
            Target(f"prune, {level}, peak RSS", "MB", limit),
            on,
            got["rss_mb"],
            "–",
            f"64 MB and three times the longest line, {number(got['longest_mb'])} MB; {got['rss_before_mb']:.0f} MB "
            "before it began",
        )


def captured(folder: Path, corpus: Corpus, effort: Effort) -> Iterator[Figure]:
    """The largest transcript brought into the Vault, and its records read from there alone."""
    home = _large(folder / "capture", corpus, effort)
    env = _alone(home)
    job("index", env)
    got = job("capture", env)
    on = f"{got['mb']:.0f} MB"
    index = got["spent"].get("index", 0.0)
    whole = sum(got["spent"].values())
    yield Figure(
        Target("capture, MB per CPU second", "MB/s"),
        on,
        got["mb"] / whole,
        "–",
        f"{number(got['mb'] / (whole - index))} MB/s without indexing the generation; compressed "
        f"{got['mb'] / got['packed_mb']:.1f} ×; peak RSS {got['rss_mb']:.0f} MB",
    )
    read = job("block", env)
    shutil.rmtree(home)
    yield Figure(
        Target("block from a captured generation, CPU p50", "ms", 2),
        on,
        read["p50"],
        "–",
        f"p95 {number(read['p95'])} ms, most {number(read['max'])} ms of {read['count']}",
    )


def _large(home: Path, corpus: Corpus, effort: Effort) -> Path:
    """A home with the beginning of the largest transcript, last written some hours ago."""
    fresh(home)
    source = corpus.largest()
    path = home / "claude" / "projects" / source.parent.name / source.name
    path.parent.mkdir(mode=0o700)
    left = effort.prune_mb << 20
    with open(source, "rb") as file, open(path, "xb") as out:
        while left > 0 and (line := file.readline()):
            out.write(line)
            left -= len(line)
    path.chmod(0o600)
    then = time.time() - HOURS_AGO
    os.utime(path, (then, then))
    return home


def _alone(home: Path) -> dict[str, str]:
    """Neither the room on this disk nor waiting for late writers is what is measured."""
    return environment(home) | {"FABLED_CAPTURE_RESERVE_BYTES": "0", "FABLED_PRUNE_DRAIN_SECONDS": "1"}


def job(name: str, env: Mapping[str, str], *args: object) -> Any:
    """Has `benchmarks.keeping` do one job in a fresh process; what it found."""
    return json.loads(run([sys.executable, "-m", "benchmarks.keeping", name, *map(str, args)], env).out)
