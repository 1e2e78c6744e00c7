"""Runs programs as processes of their own, and reads what they used; speaks to a daemon over its socket.

What the figures mean is left to `figures`. Nothing of fabled but its fast path is imported here: a measuring process
that is small lets peak memory of its children be read off their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabled.client import connect

ROOT = Path(__file__).resolve().parent.parent
QUIET_SECONDS = 0.3
PATIENCE_SECONDS = 600.0


class Trouble(Exception):
    """A program that was to be measured failed; the message says how."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process used from its start to its end."""

    cpu: float
    wall: float
    rss_mb: float
    out: bytes


def environment(home: Path, roots: Path | None = None) -> dict[str, str]:
    """An environment in which nothing of the person's own home is met."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "TMPDIR")}
    return kept | {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "FABLED_HOME": str(home / "fabled"),
        "FABLED_ROOTS": str(roots or home / "claude" / "projects"),
        "FABLED_WATCH_QUIET_SECONDS": str(QUIET_SECONDS),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }


def run(argv: Sequence[str], env: Mapping[str, str]) -> Spent:
    """Runs a program to its end. Raises Trouble where it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = subprocess.Popen(argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if process.returncode:
            err.seek(0)
            said = err.read().decode(errors="replace").strip().splitlines() or ["nothing"]
            raise Trouble(f"{' '.join(argv[:5])} ended with {process.returncode}: {said[-1][:200]}")
        per_mb = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return Spent(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / per_mb, out.read())


def inside(job: str, env: Mapping[str, str], *args: object) -> Any:
    """Has `benchmarks.inside` do one job in a fresh process; what it found."""
    return json.loads(run([sys.executable, "-m", "benchmarks.inside", job, *map(str, args)], env).out)


def fabled(*args: str) -> list[str]:
    """The command line as a person has it: the installed script where there is one."""
    script = Path(sys.executable).parent / "fabled"
    return [str(script), *args] if script.exists() else [sys.executable, "-m", "fabled", *args]


class Daemon:
    """A daemon of ours and a line to it."""

    def __init__(self, process: subprocess.Popen[bytes], path: str) -> None:
        self.pid = process.pid
        self._process = process
        self._path = path
        self._line: Line | None = None

    @property
    def line(self) -> Line:
        if self._line is None:
            self._line = Line(self._path)
        return self._line

    def new_line(self) -> Line:
        return Line(self._path)

    def stop(self) -> None:
        if self._line is not None:
            self._line.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def daemon(env: Mapping[str, str]) -> Iterator[Daemon]:
    """A daemon that has brought its Map up to date."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "fabled", "daemon", "--json"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=err,
            stderr=err,
            cwd=ROOT,
        )
        running = Daemon(process, connect.socket_path(env))
        try:
            end = time.monotonic() + 30
            while not os.path.exists(running._path):
                if process.poll() is not None or time.monotonic() > end:
                    err.seek(0)
                    said = err.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                    raise Trouble(f"the daemon did not start: {said[-1][:200]}")
                time.sleep(0.02)
            running.line.ask("index")  # answered when nothing is left to do
            yield running
        finally:
            running.stop()


class Line:
    """A connection to the daemon."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECONDS)
        end = time.monotonic() + 10
        while True:
            try:
                self._socket.connect(path)
                break
            except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
                if time.monotonic() > end:
                    raise Trouble(f"nobody listens at {path}") from None
                time.sleep(0.02)
        self._file = self._socket.makefile("rb")

    def ask(self, method: str, **params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._file.readline() or b'{"error":{"message":"the connection ended"}}')
        if "error" in answer:
            raise Trouble(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def finds(self, word: str) -> bool:
        """Whether a search finds the word."""
        return bool(self.ask("search", query=word, all=True, limit=1)["total"])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


# What /proc tells of a process that goes on


def on_cpu_seconds(pid: int) -> float:
    """CPU time of all its OS threads that live, to the nanosecond (the usual counters step by 10 ms)."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def switches(pid: int) -> int:
    """How often its OS threads gave up or lost the processor."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/status") as file:
            total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return total


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def family(pid: int) -> int:
    """It and its descendants."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return len(found)
