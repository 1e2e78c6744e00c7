"""The tool that fabled is measured against: claude-session-search 0.2.0 from PyPI, in an environment of its own.

It reads ~/.claude/projects and writes ~/.cc-search, so it is given a home that holds nothing but a link to the corpus.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.process import Spent, run

PACKAGE = "claude-session-search==0.2.0"


class Baseline:
    """`cc-search --reindex` over one corpus."""

    def __init__(self, program: Path, home: Path, corpus: Path) -> None:
        self._program = program
        self._home = home
        self._env = {"HOME": str(home), "PATH": os.environ.get("PATH", "")}
        claude = home / ".claude"
        claude.mkdir(parents=True, exist_ok=True)
        link = claude / "projects"
        link.unlink(missing_ok=True)
        link.symlink_to(corpus)

    def full(self) -> Spent:
        """Everything, from nothing."""
        shutil.rmtree(self._home / ".cc-search", ignore_errors=True)
        return run([str(self._program), "--reindex"], self._env)

    def again(self) -> Spent:
        """What changed since the last run."""
        return run([str(self._program), "--reindex"], self._env)

    def size(self) -> int:
        """Bytes of its index."""
        return sum(path.stat().st_size for path in (self._home / ".cc-search").iterdir())


def install(folder: Path, package: str = PACKAGE, script: str = "cc-search") -> Path:
    """Its program, installed once below `folder`. Raises OSError or CalledProcessError where that fails."""
    program = folder / "bin" / script
    done = folder / ".ready"
    if not done.exists():
        print(f"Installing the baseline, {package} …", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            package,
        ]
        subprocess.run(pip, check=True)
        done.touch()
    return program
