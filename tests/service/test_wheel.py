"""What people install: one version everywhere, everything in it that is needed, nothing that is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from fabled import __version__
from tests.service.wheel import ROOT, Built, run


def test_the_version_is_written_once(wheel: Built) -> None:
    """The package says it; archives, command and change log follow."""
    stem = f"fabled-{__version__}"
    assert (wheel.wheel.name, wheel.sdist.name) == (f"{stem}-py3-none-any.whl", f"{stem}.tar.gz")
    with zipfile.ZipFile(wheel.wheel) as archive:
        told = Parser().parsestr(archive.read(f"{stem}.dist-info/METADATA").decode())
    assert told["Version"] == __version__
    assert run(str(wheel.fabled), "--version") == f"fabled {__version__}\n"
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None and heading[1] == __version__
    written = [path for path in ROOT.glob("*.toml") if re.search(rf'"{re.escape(__version__)}"', path.read_text())]
    assert written == []


def test_the_wheel_holds_the_package_and_the_templates(wheel: Built) -> None:
    with zipfile.ZipFile(wheel.wheel) as archive:
        names = set(archive.namelist())
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "fabled").rglob("*.py")}
    assert ours - names == set()
    templates = {f"fabled/service/{name}" for name in ("fabled.service", "sandbox.conf", "io.fabled.daemon.plist")}
    assert templates <= names
    strange = {name for name in names if not name.startswith(("fabled/", f"fabled-{__version__}.dist-info/"))}
    assert strange == {f"fabled-{__version__}.data/data/share/man/man1/fabled.1"}
    assert f"fabled-{__version__}.dist-info/licenses/LICENSE" in names


def test_the_source_archive_is_enough_to_work_on(wheel: Built) -> None:
    """The wheel was built from it; tests, documents and templates are in it too."""
    with tarfile.open(wheel.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "fabled.toml.example", "service/fabled.service",
              "docs/PROTOCOL.md", "docs/TROUBLESHOOTING.md", "tests/test_layers.py"}  # fmt: skip
    assert needed - names == set()
    assert [name for name in names if name.startswith((".ci", ".venv", ".wheel"))] == []


def test_what_it_needs_is_there_and_agrees(wheel: Built) -> None:
    assert "No broken requirements" in run(str(wheel.venv / "bin/python"), "-m", "pip", "check")


def test_the_installed_command_works_from_anywhere(wheel: Built, tmp_path: Path) -> None:
    """Templates are found in the installed package; the unit names the installed command."""
    env = {"HOME": str(tmp_path), "FABLED_HOME": str(tmp_path / "f"), "PATH": "/usr/bin:/bin"}
    for name in ("systemd", "launchd"):
        done = subprocess.run(
            [str(wheel.fabled), "service", "print", "--for", name],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and str(wheel.fabled) in done.stdout, done.stderr
    done = subprocess.run([str(wheel.fabled), "demo"], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _tool(name: str) -> str:
    found = shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_pipx_installs_it(wheel: Built, tmp_path: Path) -> None:
    env = {**os.environ, "PIPX_HOME": str(tmp_path / "h"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "USE_EMOJI": "0",
           "PIPX_MAN_DIR": str(tmp_path / "man"), "PIPX_DEFAULT_PYTHON": sys.executable}  # fmt: skip
    done = subprocess.run([_tool("pipx"), "install", str(wheel.wheel)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(str(tmp_path / "bin" / "fabled"), "--version") == f"fabled {__version__}\n"


def test_uv_installs_it(wheel: Built, tmp_path: Path) -> None:
    env = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
           "UV_PYTHON_DOWNLOADS": "never"}  # fmt: skip
    command = [_tool("uv"), "tool", "install", "--python", sys.executable, str(wheel.wheel)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(str(tmp_path / "bin" / "fabled"), "--version") == f"fabled {__version__}\n"
