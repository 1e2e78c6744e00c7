"""The agent, through a stand-in for launchctl with the real one's habits, and the daemon's own count of failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabled.daemon import starts
from fabled.errors import AlreadyRunning, FabledError
from fabled.service.facts import Facts, NoManager
from fabled.service.launchd import Launchd
from fabled.service.manager import Done
from tests.daemon.help import Daemon

FACTS = Facts(("/opt/fabled",), (), "/nowhere", "/run", ("/data",))


class Stand:
    """Answers as launchctl of macOS 14 does: what is loaded, what runs, and a bootout that takes its time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.loaded = False
        self.lingers = 0
        self.session = True
        self.last_exit = 0

    def __call__(self, command: Sequence[str]) -> Done:
        name, *rest = command[1:]
        self.asked.append(" ".join(command[1:]))
        target = f"gui/{os.getuid()}"
        match name:
            case "print" if rest == [target]:
                return Done(0, "", "") if self.session else Done(113, "", 'Could not find domain for "gui"')
            case "print":
                if self.loaded or self.lingers > 0:
                    self.lingers -= 1
                    running = self.loaded and not self.last_exit
                    said = "state = running\n\tpid = 71\n\truns = 3\n\tlast exit code = (never exited)"
                    ended = f"state = not running\n\truns = 5\n\tlast exit code = {self.last_exit}"
                    return Done(0, f"{target}/io.fabled.daemon = {{\n\t{said if running else ended}\n}}", "")
                return Done(113, "", "Could not find service")
            case "bootstrap":
                if self.loaded or self.lingers > 0:
                    return Done(5, "", "Bootstrap failed: 5: Input/output error")
                self.loaded = True
            case "bootout":
                self.loaded, self.lingers = False, 3
        return Done(0, "", "")


@pytest.fixture
def stand() -> Stand:
    return Stand()


@pytest.fixture
def agent(stand: Stand, tmp_path: Path) -> Launchd:
    return Launchd({"HOME": str(tmp_path)}, stand)


def write(agent: Launchd, tmp_path: Path) -> bool:
    return agent.write(Facts(("/opt/fabled",), (), str(tmp_path / "state/log"), "/run", ("/data",)))


def test_it_is_loaded_once_and_restarted_by_loading_it_anew(agent: Launchd, stand: Stand, tmp_path: Path) -> None:
    """A changed agent is only read at bootstrap, which fails while the old process has not ended."""
    assert write(agent, tmp_path) and not write(agent, tmp_path)
    assert agent.state().state == "stopped"
    agent.enable()
    agent.restart()
    state = agent.state()
    assert (state.state, state.pid, state.restarts, state.installed, state.enabled) == ("running", 71, 2, True, True)
    agent.restart()
    changes = [one.split()[0] for one in stand.asked if not one.startswith("print")]
    assert changes == ["enable", "bootstrap", "bootout", "bootstrap"]
    agent.start()
    assert stand.asked[-1].startswith("kickstart")


def test_removing_stops_it_and_takes_the_file_away(agent: Launchd, stand: Stand, tmp_path: Path) -> None:
    write(agent, tmp_path)
    agent.start()
    assert agent.remove() == [agent.path]
    assert not stand.loaded and not os.path.exists(agent.path)
    assert agent.remove() == []


def test_a_failed_agent_tells_its_status(agent: Launchd, stand: Stand, tmp_path: Path) -> None:
    write(agent, tmp_path)
    stand.loaded, stand.last_exit = True, 78
    state = agent.state()
    assert (state.state, state.exit_status, state.pid) == ("failed", 78, None)


def test_without_a_session_it_says_so(agent: Launchd, stand: Stand) -> None:
    stand.session = False
    with pytest.raises(NoManager) as caught:
        agent.reachable()
    assert "fabled daemon" in caught.value.hint


# ── failures that launchd does not count ────────────────────────────────────────────────────────────────────────


def failing() -> int:
    raise AlreadyRunning("another process holds the lock")


def test_the_fifth_quick_failure_ends_with_status_0_and_a_word(daemon: Daemon) -> None:
    """launchd starts again whatever ended otherwise; exit 3 and 78 are failures like any other to it."""
    config = daemon.home / "config.toml"
    config.parent.mkdir()
    config.write_text("[log]\nlevel = 'loud'\n")
    daemon.env["FABLED_SERVICE"] = "launchd"
    ends = []
    for _ in range(5):
        daemon.launch()
        ends.append(daemon.exit())
    assert [code for code, _ in ends] == [78, 78, 78, 78, 0]
    assert "5 starts failed within 2 minutes" in ends[-1][1] and "Traceback" not in ends[-1][1]
    (line,) = daemon.log("daemon.gave_up")
    assert "log.level" in line["reason"] and line["level"] == "critical"
    assert "5 starts failed" in daemon.command("status").stderr

    config.unlink()
    daemon.launch()
    assert daemon.exit()[0] == 0  # not tried again by itself
    starts.forget(str(daemon.home / "state"))
    daemon.start()
    assert daemon.stop() == 0
    assert not (daemon.home / "state" / "quick-failures").exists()


def test_a_daemon_that_is_killed_again_and_again_is_counted_too(daemon: Daemon) -> None:
    """A crash leaves no word of its own: the start was noted when it began."""
    note = daemon.home / "state" / "quick-failures"
    note.parent.mkdir(parents=True)
    now = time.time()
    note.write_text("".join(f"{now - 10 * number}\n" for number in range(5)))
    daemon.env["FABLED_SERVICE"] = "launchd"
    daemon.launch()
    assert daemon.exit()[0] == 0
    note.write_text("".join(f"{now - 121 - number}\n" for number in range(9)))
    daemon.start()
    assert daemon.stop() == 0


def test_under_systemd_and_by_hand_nothing_is_counted(daemon: Daemon) -> None:
    for service in ("systemd", ""):
        daemon.env["FABLED_SERVICE"] = service
        daemon.start()
        assert daemon.stop() == 0
        assert not (daemon.home / "state" / "quick-failures").exists()


def test_a_note_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    from fabled import config

    places = config.places({"FABLED_HOME": str(tmp_path), "HOME": str(tmp_path)})
    os.makedirs(places.state)
    Path(places.state, "quick-failures").write_bytes(b"\xff nonsense\n")
    with pytest.raises(FabledError):
        starts.guarded(places, failing)


# ── the bare environment of a manager ───────────────────────────────────────────────────────────────────────────


def test_it_runs_with_nothing_but_a_home(folder: Path) -> None:
    """No PATH, no LANG, no XDG (case C12); names that are not ASCII are found."""
    probe = Daemon(folder)
    (probe.root / "-home-ana-größe").mkdir(parents=True)
    env = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(probe.claude), "FABLED_HOME": str(probe.home),
           "PYTHONPATH": probe.env["PYTHONPATH"]}  # fmt: skip
    probe.env = env
    try:
        probe.start()
        from tests.daemon.help import record

        path = probe.root / "-home-ana-größe" / "5f3b0000-0000-4000-8000-000000000001.jsonl"
        path.write_bytes(record("größe", 0, "übermut tut selten gut"))
        assert probe.finds("übermut")
        assert "größe" in json.dumps(probe.ask("projects"), ensure_ascii=False)
        done = subprocess.run([sys.executable, "-m", "fabled", "status"], env=env, capture_output=True, text=True)
        assert done.returncode == 0
        assert probe.stop() == 0
    finally:
        probe.close()
