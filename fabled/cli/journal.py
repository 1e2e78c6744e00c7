"""Reads the daemon's log lines from its rotating file, or from systemd's journal where a unit runs it.

How a line looks is left to `present`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabled.present.terminal import seconds_of

LEVELS = ("debug", "info", "warning", "error")
KEPT_FILES = 5
POLL_SECONDS = 0.2
UNIT = "fabled.service"
_WORSE = {"critical": "error", "exception": "error", "warn": "warning"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: as it was written, and what it says."""

    raw: str
    fields: Mapping[str, Any]
    ours: bool = True
    """False: not a line as the daemon writes them, so nobody knows what its words are"""

    @property
    def at(self) -> float:
        return seconds_of(self.fields.get("timestamp")) or 0.0

    @property
    def level(self) -> str:
        name = str(self.fields.get("level") or "info")
        return _WORSE.get(name, name)


def entry(line: str) -> Entry:
    """A line of ours; what is none (a stack dump) becomes one that says it."""
    line = line.rstrip("\n")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not _as_written(fields):
        fields = {"event": line[:200], "level": "error"}
        return Entry(json.dumps(fields, ensure_ascii=False), fields, False)
    return Entry(line, fields)


def _as_written(fields: Any) -> bool:
    """Whether a value has the shape that the daemon's lines have; other programs write JSON, too."""
    return isinstance(fields, dict) and isinstance(fields.get("event"), str) and _traced(fields.get("exception"))


def _traced(exception: Any) -> bool:
    return exception is None or (
        isinstance(exception, list)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("frames", []), list)
            and all(isinstance(frame, dict) for frame in one.get("frames", []))
            and _traced(one.get("exceptions"))
            for one in exception
        )
    )


def wanted(entries: Iterable[Entry], level: str, since: float | None) -> Iterator[Entry]:
    """Only those of a level and worse, and of a time."""
    least = LEVELS.index(level)
    for one in entries:
        rank = LEVELS.index(one.level) if one.level in LEVELS else 1
        if rank >= least and (since is None or one.at >= since):
            yield one


class Source:
    """Where the lines are. The journal is asked only where the unit is installed and no file is being written."""

    def __init__(self, log_file: str, env: Mapping[str, str]) -> None:
        self._file = log_file
        self._journal = "" if os.path.exists(log_file) else _journalctl(env)

    def lines(self) -> Iterator[Entry]:
        """All there are, the oldest first."""
        if self._journal:
            yield from self._from_journal("--no-pager")
            return
        for path in (*(f"{self._file}.{number}" for number in range(KEPT_FILES - 1, 0, -1)), self._file):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    for line in file:
                        if line.strip():
                            yield entry(line)
            except OSError:
                continue

    def follow(self) -> Iterator[Entry]:
        """What is written from now on; a file that is rotated away is read to its end first."""
        if self._journal:
            yield from self._from_journal("-f", "-n0")
            return
        file, rest = None, ""
        first = True
        while True:
            if file is None:
                try:
                    file = open(self._file, encoding="utf-8", errors="replace")  # noqa: SIM115 (closed when rotated)
                    if first:
                        file.seek(0, os.SEEK_END)
                except OSError:
                    pass
                first = False
            more = file.read() if file is not None else ""
            if more:
                *whole, rest = (rest + more).split("\n")
                yield from (entry(line) for line in whole if line.strip())
                continue
            if file is not None and _replaced(self._file, file.fileno()):
                file.close()
                file = None
                continue
            time.sleep(POLL_SECONDS)

    def _from_journal(self, *options: str) -> Iterator[Entry]:
        command = [self._journal, "--user", "--user-unit", UNIT, "-o", "cat", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("{"):
                        yield entry(line)
            finally:
                process.terminate()


def _journalctl(env: Mapping[str, str]) -> str:
    folder = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    there = os.path.exists(os.path.join(folder, "systemd", "user", UNIT))
    return (shutil.which("journalctl") or "") if there else ""


def _replaced(path: str, fd: int) -> bool:
    try:
        now, mine = os.stat(path), os.fstat(fd)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino) or now.st_size < os.lseek(fd, 0, os.SEEK_CUR)
