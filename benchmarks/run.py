"""`make bench`: makes what is needed, has every figure taken, prints them beside their targets.

No figure makes it fail: the exit status is 0 whatever was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import baseline as other
from benchmarks import figures as f
from benchmarks import pruning, running
from benchmarks.baseline import Baseline
from benchmarks.corpus import MADE
from benchmarks.process import ROOT, Trouble, environment, inside
from benchmarks.report import Figure, Target, machine, table

SHARED = ROOT.parent / "shared"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A corpus as it is to be made, by us or by the shared tool."""

    name: str
    ours: tuple[str, ...]
    shared: tuple[str, ...]
    pairs: int
    limits: tuple[float | None, float | None]


SMALL = Wanted(
    "100 MB",
    ("--mb", "100", "--sessions", "8", "--big", "0.84"),
    ("--mb", "100", "--sessions", "8", "--big", ".84"),
    5,
    (90, 80),
)
LARGE = Wanted(
    "1 GB",
    ("--mb", "1000", "--sessions", "300", "--seed", "11"),
    ("--mb", "1000", "--sessions", "300", "--seed", "11"),
    3,
    (65, 220),
)

NAMES = ("index", "append", "live", "search", "client", "idle", "block", "sweep", "rewrite", "capture", "prune")
OF_LARGE = ("index", "search", "append", "live")
"""The figures that are also taken on the large corpus."""


class Bench:
    """One run: its folder, its corpora, its figures."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.folder = Path(os.environ.get("FABLED_BENCH_DIR") or ROOT / ".bench").resolve()
        self.work = self.folder / f"work-{os.getpid()}"
        self.effort = f.QUICK if given.quick else f.Effort()
        self.figures: list[Figure] = []
        self.corpora: list[f.Corpus] = []
        self.program: Path | None = None

    def run(self) -> None:
        self.work.mkdir(parents=True)
        try:
            if self.wants("index", "append"):
                self._baseline()
            large = not self.given.quick and self.wants(*OF_LARGE)
            for wanted in (SMALL, LARGE) if large else (SMALL,):
                self._over(wanted, self._made(wanted))
            real = SHARED / "transcripts" / "real"
            if real.is_dir() and self.wants("index"):
                self._real(real)
            if real.is_dir() and self.wants("prune"):
                self._saved(real)
            if self.wants("sweep"):
                self.take(f.swept(self.work, self.effort))
        finally:
            if not self.given.keep:
                shutil.rmtree(self.work, ignore_errors=True)

    def wants(self, *names: str) -> bool:
        return not self.given.only or bool(set(names) & set(self.given.only))

    def take(self, figures: Iterator[Figure]) -> None:
        """All figures of one measurement; a failing one costs only its own."""
        try:
            for figure in figures:
                self.figures.append(figure)
                say(
                    f"  {figure.target.figure}: {figure.value:.4g} {figure.target.unit} ({figure.verdict})"
                    if figure.value is not None
                    else ""
                )
        except (Trouble, OSError, subprocess.SubprocessError, KeyError, ValueError) as fault:
            name = getattr(figures, "__name__", "figure")
            self.figures.append(Figure(Target(name, ""), "", None, note=f"{type(fault).__name__}: {fault}"))
            say(f"  {name} failed: {fault}")

    # What is measured on

    def _baseline(self) -> None:
        try:
            self.program = other.install(self.folder / "baseline")
        except (OSError, subprocess.SubprocessError) as fault:
            say(f"The baseline cannot be installed ({fault}); figures are taken without it.")

    def _made(self, wanted: Wanted) -> Path:
        tool = SHARED / "tools" / "make_corpus.py"
        shared = self.given.shared_corpus and tool.exists()
        if self.given.shared_corpus and not shared:
            say(f"{tool} is not there; our own corpus is used.")
        args = wanted.shared if shared else wanted.ours
        label = "-".join(part.strip("-") for part in args)
        out = self.folder / "corpora" / f"{'shared' if shared else f'own{MADE}'}-{label}"
        if not out.exists():
            say(f"Making {wanted.name} of transcripts …")
            out.parent.mkdir(parents=True, exist_ok=True)
            temp = out.with_name(f"{out.name}.tmp-{os.getpid()}")
            command = [sys.executable, str(tool)] if shared else [sys.executable, "-m", "benchmarks.corpus"]
            try:
                subprocess.run([*command, str(temp), *args], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
                os.rename(temp, out)
            finally:
                shutil.rmtree(temp, ignore_errors=True)
        return out / "projects"

    def _corpus(self, name: str, source: Path, pairs: int, limits: tuple[float | None, float | None]) -> f.Corpus:
        home = self.work / name.replace(" ", "")
        size, files = f.copy(source, home)
        corpus = f.Corpus(name, home, size, files, self.given.pairs or pairs, limits)
        self.corpora.append(corpus)
        say(f"{name}: {size / 1e6:,.0f} MB in {files:,} files")
        return corpus

    # What is measured

    def _over(self, wanted: Wanted, source: Path) -> None:
        corpus = self._corpus(wanted.name, source, 3 if self.given.quick else wanted.pairs, wanted.limits)
        baseline = Baseline(self.program, corpus.home, corpus.projects) if self.program is not None else None
        effort, small = self.effort, wanted is SMALL
        # In this order: what leaves transcripts as they were comes first, what rewrites one comes last.
        steps: Sequence[tuple[str, bool, Callable[[], Iterator[Figure]]]] = (
            ("index", True, lambda: f.full_index(corpus, baseline, effort)),
            ("search", not small or self.given.quick, lambda: running.searched(corpus, effort)),
            ("client", small, lambda: running.cold(corpus, effort)),
            ("block", small, lambda: f.blocks(self.work, corpus, effort)),
            ("capture", small, lambda: pruning.captured(self.work, corpus, effort)),
            ("prune", small, lambda: pruning.speed(self.work, corpus, effort)),
            ("append", True, lambda: f.appended(corpus, baseline, effort)),
            ("live", True, lambda: running.live(corpus, effort)),
            ("idle", small, lambda: running.idle(corpus, effort)),
            ("rewrite", small, lambda: f.rewritten(corpus, effort)),
        )
        for name, here, step in steps:
            if here and self.wants(name):
                self.take(step())
        if not self.given.keep:
            shutil.rmtree(corpus.home, ignore_errors=True)

    def _real(self, source: Path) -> None:
        corpus = self._corpus("real", source, 5, (90, 80))
        baseline = Baseline(self.program, corpus.home, corpus.projects) if self.program is not None else None
        self.take(f.full_index(corpus, baseline, self.effort))

    def _saved(self, source: Path) -> None:
        program = None
        try:
            program = pruning.install(self.folder / "cozempic")
        except (OSError, subprocess.SubprocessError) as fault:
            say(f"{pruning.OTHER} cannot be installed ({fault}); savings are taken without it.")
        self.take(pruning.saved(self.work, source, program))

    # What comes of it

    def versions(self) -> dict[str, str]:
        try:
            return dict(inside("versions", environment(self.work)))
        except Trouble:
            return {}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the 100 MB corpus only, fewer repeats")
    parser.add_argument(
        "--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}; may be repeated"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures there, samples included")
    parser.add_argument("--pairs", type=int, help="how often each corpus is indexed, in turns with the baseline")
    parser.add_argument(
        "--shared-corpus", action="store_true", help="corpora by ../shared/tools/make_corpus.py where it exists"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folders that were worked in")
    given = parser.parse_args()
    bench = Bench(given)
    host = {**machine(), **bench.versions()}
    began = time.monotonic()
    try:
        bench.run()
    except KeyboardInterrupt:
        say("Interrupted; these are the figures so far.")
    host["load_after"] = machine()["load"]
    print(table(bench.figures))
    runs = f"Python {host['python']}, SQLite {host.get('sqlite', '?')}"
    load = f"load {host['load'][0]} before, {host['load_after'][0]} after"
    print(f"\n{host['cpu']}, {host['cores']} cores, {host['system']}, {runs}; {load}; {time.monotonic() - began:.0f} s")
    if given.json:
        value = {
            "v": 1,
            "machine": host,
            "quick": given.quick,
            "corpora": [f.about(corpus) for corpus in bench.corpora],
            "figures": [figure.as_json() for figure in bench.figures],
        }
        Path(given.json).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
