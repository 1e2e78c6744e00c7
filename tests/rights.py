"""Works without root's rights, so that a closed door is closed also where tests run as root."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65_534


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of one's own, as a user who is not root."""
    folder = Path(tempfile.mkdtemp(prefix="fabled-rights-"))
    root = os.getuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.setresgid(NOBODY, NOBODY, 0)
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield folder
    finally:
        if root:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def closed(path: Path) -> Iterator[None]:
    """Nobody may read or enter it."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)
