"""Writes a folder of invented transcripts, the same for the same arguments, with the record and byte mix of real ones.

How a session reads is left to `session`; nothing of fabled is used, so that the input does not depend on what is
measured.

    python -m benchmarks.corpus OUT --mb 100 --sessions 8 --big 0.84

Shares follow what was counted in public transcripts: of the records, two in five are the assistant's, one in five a
tool's result, a quarter progress (in the versions that wrote it); of the bytes, a third is `toolUseResult`, half of
that the `originalFile` of edits, and 4 % is text that people and models wrote.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp
from random import Random

from benchmarks.eras import ERAS, MOST_BYTES
from benchmarks.session import Session
from benchmarks.words import project

MADE = 1
"""Changed whenever the same arguments give other bytes: caches of corpora are named by it."""


@dataclass(frozen=True, slots=True)
class Order:
    """One session to write."""

    projects: str
    seed: int
    number: int
    project: int
    era: int
    bytes: int


def orders(projects: str, mb: float, sessions: int, seed: int, big: float) -> list[Order]:
    """Which sessions there are, and how large: log-normal as real ones, or one that holds the share `big` of all."""
    random = Random(f"orders {seed}")
    folders = max(2, sessions // 12)
    weights = [exp(random.gauss(0, 1.5)) for _ in range(sessions)]
    eras = random.choices(range(len(ERAS)), [era.share for era in ERAS], k=sessions)
    if big:
        weights[0] = big / (1 - big) * (sum(weights[1:]) or 1.0)
        eras[0] = MOST_BYTES
    total = sum(weights)
    return [
        Order(projects, seed, number, random.randrange(folders), eras[number], int(mb * 1_000_000 * weight / total))
        for number, weight in enumerate(weights)
    ]


def write(order: Order) -> int:
    """Writes one session; its bytes. Depends on nothing but the order, so sessions can be written side by side."""
    words = project(order.seed, order.project)
    cwd = f"/home/dev/src/{words.name}"
    folder = os.path.join(order.projects, "".join(c if c.isascii() and c.isalnum() else "-" for c in cwd))
    os.makedirs(folder, exist_ok=True)
    era = ERAS[order.era]
    session = Session(folder, era, words, Random(f"session {order.seed} {order.number}"), cwd)
    if not era.titles or order.number % 4:
        return session.write(order.bytes)
    return session.write(order.bytes // 2) + session.fork(order.bytes // 2)


def make(out: str, mb: float, sessions: int, seed: int, big: float) -> int:
    """Writes OUT/projects; the bytes of the sessions. OUT appears only when it is complete."""
    temp = f"{out}.tmp-{os.getpid()}"
    projects = os.path.join(temp, "projects")
    os.makedirs(projects)
    try:
        wanted = sorted(orders(projects, mb, sessions, seed, big), key=lambda order: -order.bytes)
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            total = sum(pool.map(write, wanted))
        os.rename(temp, out)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a folder of invented transcripts.")
    parser.add_argument("out")
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--big", type=float, default=0.0, help="share of the bytes that one session holds")
    given = parser.parse_args()
    began = time.monotonic()
    total = make(given.out, given.mb, given.sessions, given.seed, given.big)
    print(f"{total / 1e6:.0f} MB in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
