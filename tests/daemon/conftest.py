"""After every test of the daemon: no OS thread, descriptor or process of it is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.help import Daemon, until


def _descriptors() -> set[str]:
    """Open descriptors by what they are; the interpreter's own caches (urandom and the like) do not count."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(("/dev/", "/proc/")):
            found.add(f"{name} {target}")
    return found


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves something running or open."""
    linux = os.path.isdir("/proc/self/fd")
    threads = set(threading.enumerate())
    descriptors = _descriptors() if linux else set()
    children = _children() if linux else set()
    yield
    assert until(lambda: set(threading.enumerate()) <= threads), set(threading.enumerate()) - threads
    if linux:
        assert until(lambda: _descriptors() <= descriptors), _descriptors() - descriptors
        assert _children() <= children


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: a socket's path may have no more than 103 bytes, and pytest's are long."""
    made = Path(tempfile.mkdtemp(prefix="fabled-", dir="/tmp")).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    """A daemon not yet started."""
    made = Daemon(folder)
    yield made
    made.close()
