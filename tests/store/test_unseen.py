"""Whether open files of others can be looked at: told apart from a look that finds nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabled.errors import Refused
from fabled.store import hold
from tests.daemon.help import REPOSITORY


def proc(folder: Path, uid_map: str) -> str:
    (folder / "self").mkdir()
    (folder / "self" / "uid_map").write_text(uid_map)
    (folder / "71").mkdir()
    return str(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces are Linux's")
def test_outside_of_a_namespace_nobody_is_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a process hides: here its files are its own matter, not the kernel's refusal to a stranger."""
    monkeypatch.setattr(hold, "_PROC", proc(tmp_path, "         0          0 4294967295\n"))
    assert hold.unseen() is None


def test_where_nothing_is_told_nobody_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.setattr(hold, "_PROC", "/nonexistent")
    assert hold.unseen() is None


def test_in_a_user_namespace_a_process_outside_is_unseen(tmp_path: Path) -> None:
    """The real thing: as another user within a namespace of one's own, the process that made it cannot be looked into,
    and a transcript is left alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    code = f"import sys; sys.path.insert(0, {REPOSITORY!r})\nfrom fabled.store import hold\nprint(hold.unseen())"
    script = 'sleep 60 & pid=$!; unshare --user "$0" -c "$1"; kill $pid; echo $pid'
    python = "/usr/bin/python3"
    try:
        done = subprocess.run(
            ["setpriv", "--reuid", "47111", "--regid", "47111", "--clear-groups", "sh", "-c", script, python, code],
            capture_output=True, text=True, timeout=60, cwd="/",
        )  # fmt: skip
    except OSError as fault:
        pytest.skip(f"cannot become another user here: {fault}")
    lines = done.stdout.split()
    if len(lines) != 2:
        pytest.skip(f"no user namespace, or no interpreter that everybody may run: {done.stderr.strip()[-200:]}")
    assert lines[0] != "None"


def test_what_cannot_be_seen_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"{}\n")
    monkeypatch.setattr(hold, "unseen", lambda: 71)
    with pytest.raises(Refused) as caught:
        hold.hold(str(path), reserve_bytes=0)
    assert caught.value.reason == "unseen" and "process 71" in caught.value.message
    assert "--no-sandbox" in caught.value.hint and path.read_bytes() == b"{}\n"
