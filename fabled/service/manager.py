"""What both service managers can be asked, how a program of theirs is run, and how files are put in place for them.

What to ask for, and in which order, is left to the commands.
"""

from __future__ import annotations

import contextlib
import glob
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import FabledError, StorageFault
from .facts import Facts, NoManager

RUN_SECONDS = 150.0
"""Longer than a unit may take to start or stop, so that the manager's own words come first."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a manager's program ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return " ".join((self.err or self.out).split())[:400]


Run = Callable[[Sequence[str]], Done]


def run(command: Sequence[str]) -> Done:
    """Run a manager's program. Raises NoManager where it is not there, FabledError where it does not end."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=RUN_SECONDS,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
        )  # fmt: skip
    except OSError as fault:
        hint = "fabled daemon runs in the foreground, under whatever starts programs here"
        raise NoManager(f"{command[0]} cannot be run: {fault.strerror or fault}", hint) from None
    except subprocess.TimeoutExpired:
        raise FabledError(f"{' '.join(command[:3])} did not end within {RUN_SECONDS:g} s", "try again") from None
    return Done(done.returncode, done.stdout.strip(), done.stderr.strip())


@dataclass(frozen=True, slots=True)
class State:
    """How the service stands, in words that both managers have."""

    manager: str
    path: str
    installed: bool
    enabled: bool
    state: str
    """running, starting, reloading, stopping, stopped or failed"""
    pid: int | None = None
    exit_status: int | None = None
    """how the last process ended, where it has"""
    restarts: int | None = None
    reason: str = ""
    """why it failed, in the manager's word"""
    says: str = ""
    """what the daemon told the manager of itself"""
    sandbox: bool = False


class Manager(Protocol):
    """systemd or launchd, for one user."""

    name: str
    path: str
    """of the unit or agent"""

    def text(self, facts: Facts) -> bytes:
        """What the file would hold."""

    def reachable(self) -> None:
        """Raises NoManager where it cannot be asked from here."""

    def write(self, facts: Facts) -> bool:
        """Put the file in place; whether it changed."""

    def enable(self) -> None:
        """Have it started at each login."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def restart(self) -> None: ...

    def remove(self) -> list[str]:
        """Stop it and take its files away; those that were there."""

    def state(self) -> State: ...

    def why(self) -> str:
        """The command that tells why it failed."""

    def advice(self) -> str:
        """What a person should do so that it runs when it should; "" for nothing."""


def here(env: Mapping[str, str], name: str | None = None) -> Manager:
    """The manager of this system, or the one of that name."""
    from .launchd import Launchd
    from .systemd import Systemd

    if name is None:
        name = "launchd" if sys.platform == "darwin" else "systemd"
    return Launchd(env) if name == "launchd" else Systemd(env)


def home_of(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    return home if os.path.isabs(home) else os.path.expanduser("~")


def put(path: str, data: bytes, mode: int = 0o644) -> bool:
    """Write a file whole or not at all; whether it changed. Raises StorageFault."""
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return False
    except OSError:
        pass  # not there, or to be replaced anyway
    # A name of this process's own: of two installations at once each puts a whole file in place.
    temp = f"{path}.fabled-new-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _sweep(f"{path}.fabled-new")
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(temp, path)
    except OSError as fault:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise StorageFault(
            f"{path} could not be written: {fault.strerror or fault}", "make its folder writable, then try again"
        ) from None
    return True


def _sweep(prefix: str) -> None:
    """Takes away what installations that were killed half-way left; one that is at work is let be."""
    for left in glob.glob(f"{glob.escape(prefix)}*"):
        pid = left.removeprefix(prefix).lstrip("-")
        if not (pid.isdecimal() and int(pid) != os.getpid() and _runs(int(pid))):
            with contextlib.suppress(OSError):
                os.unlink(left)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def take_away(path: str) -> bool:
    """Remove a file; whether it was there. Raises StorageFault."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as fault:
        raise StorageFault(f"{path} could not be removed: {fault.strerror or fault}", "remove it by hand") from None
    return True
