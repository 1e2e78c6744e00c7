"""The wheel, built from this checkout once for all test processes, and a virtual environment it is installed into."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """What packaging gives: the two archives, and the wheel installed."""

    wheel: Path
    sdist: Path
    venv: Path

    @property
    def fabled(self) -> Path:
        return self.venv / "bin" / "fabled"


@contextmanager
def built(shared: Path) -> Iterator[Built]:
    """`shared`: a folder that all test processes of a run see. The environment lies where another user may enter, so
    not in there; the last one to need it takes it away."""
    note = shared / "wheel.place"
    with _alone(shared):
        if not note.exists():
            note.write_text(str(_build()))
        folder = Path(note.read_text())
        users = os.open(folder / "users", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    try:
        yield Built(wheel, sdist, folder / "venv")
    finally:
        with _alone(shared), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note.unlink()
            shutil.rmtree(folder)
        os.close(users)


@contextmanager
def _alone(shared: Path) -> Iterator[None]:
    with open(shared / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fabled-wheel-"))
    folder.chmod(0o755)
    tree = folder / "tree"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if names.returncode:
        pytest.skip("this checkout is no git repository, so it is not known what belongs to it")
    for name in names.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(tree))
    shutil.rmtree(tree)
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    (wheel,) = folder.glob("*.whl")
    run(str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return folder


def run(*command: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/", timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
