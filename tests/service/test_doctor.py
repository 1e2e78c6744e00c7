"""What the doctor says of the service, by a manager's own words, given as it would give them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabled import config
from fabled.cli import outside
from fabled.cli.findings import Seen
from fabled.service import facts, manager
from fabled.service.manager import Done
from fabled.service.systemd import Systemd

WELL = "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\nUnitFileState=enabled"


@pytest.mark.parametrize(
    ("says", "current", "state", "told", "fix"),
    [
        (WELL, True, "ok", "running", ""),
        (WELL, False, "warning", "differs from what this version would write", "fabled service install"),
        (WELL.replace("enabled", "disabled"), True, "warning", "is not started at login", "fabled service install"),
        (
            WELL.replace("=active", "=failed").replace("=7", "=0") + "\nResult=exit-code",
            True, "failure", "the service failed (exit-code); why: journalctl", "fabled service start",
        ),
        ("", True, "warning", "user manager does not answer", "fabled daemon"),
    ],
)  # fmt: skip
def test_the_service_is_told_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, current: bool, state: str, told: str, fix: str
) -> None:
    env = {"HOME": str(tmp_path), "FABLED_HOME": str(tmp_path / "fabled"), "XDG_RUNTIME_DIR": str(tmp_path)}
    settings = config.load(env)

    def run(command: Sequence[str]) -> Done:
        return Done(0, says, "") if says else Done(1, "", "Failed to connect to bus")

    systemd = Systemd(env, run)
    Path(systemd.path).parent.mkdir(parents=True)
    Path(systemd.path).write_bytes(systemd.text(facts.facts(settings, env)) + (b"" if current else b"# older\n"))
    monkeypatch.setattr(manager, "here", lambda env: systemd)
    found = [one for one in outside.service(Seen(settings, (), None, "", env, time.time())) if one.id == "service"]
    assert [one.state for one in found] == [state]
    assert told in found[0].message and fix in found[0].fix
