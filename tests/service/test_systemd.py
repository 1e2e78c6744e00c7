"""The installed unit under a real user manager: as people have it, from the built wheel."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.daemon.help import until
from tests.service.manager import UserManager


def test_installing_starts_indexes_and_says_what_to_do_next(manager: UserManager) -> None:
    """From nothing to a search: one command, with the first index in it."""
    manager.transcript("harbour", "Why do bookings after midnight land on the wrong day?")
    done = manager.call("service", "install")
    assert done.returncode == 0, done.stderr
    for words in ("✓ unit checked", "✓ started in", "✓ indexed", "1 session, 1 record   ", "loginctl enable-linger"):
        assert words in done.stderr
    assert 'fabled search "why did we"' in done.stdout
    assert manager.show("ActiveState", "SubState", "UnitFileState", "Type") == {
        "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", "Type": "notify",
    }  # fmt: skip
    assert "bookings" in manager.call("search", "midnight", "--all").stdout
    status = manager.json("service", "status")
    assert (status["state"], status["current"], status["enabled"]) == ("running", True, True)
    assert status["pid"] == manager.json("status")["pid"]
    assert manager.json("status")["prune"]["level"] == "gentle"


def test_the_unit_is_sound_to_systemds_own_checker(manager: UserManager) -> None:
    manager.call("service", "install", "--no-start")
    unit = str(manager.home / ".config/systemd/user/fabled.service")
    done = manager.run("systemd-analyze", "--user", "verify", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_ready_comes_with_a_word_and_a_reload_is_seen(manager: UserManager) -> None:
    """STATUS is shown by systemctl; a reload takes the settings over, and a faulty file keeps the old ones."""
    manager.call("service", "install")
    assert until(lambda: manager.show("StatusText")["StatusText"].startswith("following"), 20, 0.1)
    pid = manager.show("MainPID")["MainPID"]
    manager.config('[log]\nlevel = "debug"\n')
    assert manager.systemctl("reload", "fabled").returncode == 0
    assert manager.becomes(ActiveState="active", SubState="running", MainPID=pid)
    assert until(lambda: any("config.reloaded" in line["MESSAGE"] for line in manager.journal()), 20, 0.2)
    manager.config('[log]\nlevel = "loud"\n')
    manager.systemctl("reload", "fabled")
    assert until(lambda: any(one["code"] == "config" for one in manager.json("status")["warnings"]), 20, 0.2)
    assert manager.becomes(ActiveState="active", SubState="running", MainPID=pid)


def test_the_journal_holds_structured_lines_with_their_level(manager: UserManager) -> None:
    """Each line is one JSON object, its level is the journal's, and no text of a transcript is in it."""
    manager.transcript("harbour", "the secret of the harbour")
    manager.call("service", "install")
    assert until(lambda: any("daemon.started" in line["MESSAGE"] for line in manager.journal()), 20, 0.2)
    lines = [line for line in manager.journal() if line.get("_TRANSPORT") == "stdout"]
    assert lines
    for line in lines:
        value = json.loads(line["MESSAGE"])
        assert {"event", "level", "timestamp"} <= set(value), value
        assert line["PRIORITY"] == {"debug": "7", "info": "6", "warning": "4", "error": "3"}[value["level"]]
        assert "secret" not in line["MESSAGE"]
    assert not list(manager.home.rglob("fabled.log"))


def test_a_killed_daemon_is_started_again(manager: UserManager) -> None:
    manager.call("service", "install")
    manager.drop_in("RestartSec=200ms")
    before = manager.show("MainPID")["MainPID"]
    manager.run("kill", "-9", before)
    assert manager.becomes(NRestarts="1", SubState="running")
    after = manager.show("MainPID")["MainPID"]
    assert after not in (before, "0")
    assert manager.json("status")["pid"] == int(after)


def test_a_daemon_that_hangs_is_ended_by_the_watchdog_and_started_again(manager: UserManager) -> None:
    """A stopped process gives no sign of life; one that lives is left alone."""
    manager.call("service", "install", "--no-start")
    manager.drop_in("WatchdogSec=2s", "RestartSec=200ms")
    manager.call("service", "start")
    before = manager.show("MainPID")["MainPID"]
    assert not until(lambda: manager.show("MainPID")["MainPID"] != before, 5, 0.5)
    manager.run("kill", "-STOP", before)
    assert manager.becomes(NRestarts="1", SubState="running")
    assert manager.show("MainPID")["MainPID"] != before


@pytest.mark.parametrize("status", [3, 78])
def test_exits_that_trying_again_cannot_help_end_the_service_visibly(manager: UserManager, status: int) -> None:
    """3: another holds the lock. 78: the configuration is wrong."""
    manager.call("service", "install", "--no-start")
    manager.drop_in("RestartSec=100ms")
    other = None
    if status == 78:
        manager.config('[log]\nlevel = "loud"\n')
    else:
        place = manager.home / ".local/state/fabled"
        code = (
            "import fcntl,os,sys; os.makedirs(sys.argv[1],0o700,True); f=open(sys.argv[1]+'/fabled.lock','a+'); "
            "fcntl.flock(f,fcntl.LOCK_EX); print('held',flush=True); sys.stdin.read()"
        )
        python = str(Path(manager.fabled).with_name("python"))
        other = subprocess.Popen(
            [*manager._enter({}), python, "-c", code, str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert other.stdout is not None and other.stdout.readline() == "held\n"
    try:
        manager.systemctl("start", "fabled")
        assert manager.becomes(ActiveState="failed", ExecMainStatus=str(status), NRestarts="0")
        assert not until(lambda: manager.show("ActiveState")["ActiveState"] != "failed", 1, 0.1)
    finally:
        if other is not None:
            other.communicate(timeout=10)
    if status == 3:
        shown = manager.call("service", "status")
        assert shown.returncode == 3 and "status 3 (another daemon runs" in shown.stdout


def test_a_faulty_configuration_is_told_instead_of_installed(manager: UserManager) -> None:
    manager.config("[watch]\nquiet_second = 1\n")
    done = manager.call("service", "install")
    assert done.returncode == 78 and "Did you mean watch.quiet_seconds?" in done.stderr
    assert not (manager.home / ".config/systemd").exists()


def test_failures_that_follow_each_other_end_at_the_start_limit(manager: UserManager) -> None:
    """A daemon that cannot start is tried five times, not for ever; a person's start counts anew."""
    manager.call("service", "install", "--no-start")
    manager.drop_in("RestartSec=10ms", "ExecStart=", "ExecStart=/bin/false")
    manager.systemctl("start", "fabled")
    assert manager.becomes(ActiveState="failed", NRestarts="5")
    manager.drop_in("RestartSec=10ms")
    assert manager.call("service", "start").returncode == 0
    assert manager.becomes(ActiveState="active")


def test_stopping_is_quick_and_clean(manager: UserManager) -> None:
    """SIGTERM ends it within 5 s: systemd is told to wait no longer here, and sees no timeout."""
    manager.transcript("harbour", *(f"prompt {number}" for number in range(200)))
    manager.call("service", "install", "--no-start")
    manager.drop_in("TimeoutStopSec=5")
    manager.call("service", "start")
    assert manager.call("service", "stop").returncode == 0
    assert manager.show("ActiveState", "Result", "ExecMainStatus") == {
        "ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0",
    }  # fmt: skip
    done = manager.call("service", "status")
    assert done.returncode == 3 and "fabled service start" in done.stdout
    assert "stopped by signal TERM" in manager.call("status").stderr


def test_installing_again_brings_an_older_unit_up_to_date_and_restarts(manager: UserManager) -> None:
    manager.call("service", "install")
    unit = manager.home / ".config/systemd/user/fabled.service"
    whole = unit.read_text()
    unit.write_text(whole.replace("WatchdogSec=120\n", ""))
    assert manager.json("service", "status")["current"] is False
    before = manager.show("MainPID")["MainPID"]
    result = manager.json("service", "install")
    assert result["changed"] is True and unit.read_text() == whole
    assert str(result["pid"]) == manager.show("MainPID")["MainPID"] != before
    assert manager.json("service", "install")["changed"] is False


def test_what_hardens_the_unit_truly_holds(manager: UserManager) -> None:
    """Each with a process under the same settings: no network, no new privileges, no writable code."""
    manager.call("service", "install", "--no-start")
    text = (manager.home / ".config/systemd/user/fabled.service").read_text()
    names = ("NoNewPrivileges", "RestrictAddressFamilies", "SystemCallFilter", "SystemCallErrorNumber",
             "MemoryDenyWriteExecute", "RestrictNamespaces", "UMask")  # fmt: skip
    settings = [line for line in text.splitlines() if line.partition("=")[0] in names]
    assert len(settings) == len(names)
    code = (
        "import socket,mmap,os\n"
        "def denied(f):\n"
        "    try: f()\n"
        "    except OSError as fault: return fault.errno\n"
        "print([denied(lambda: socket.socket(socket.AF_INET)),"
        " denied(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE|mmap.PROT_EXEC)),"
        " denied(lambda: socket.socket(socket.AF_UNIX).close()), oct(os.umask(0)),"
        " [l.split()[1] for l in open('/proc/self/status') if l.startswith('NoNewPrivs')]])"
    )
    done = manager.run(
        "systemd-run", "--user", "--pipe", "--wait", "--quiet", *(f"--property={one}" for one in settings),
        "/usr/bin/env", str(Path(manager.fabled).with_name("python")), "-c", code.replace("%", "%%"),
    )  # fmt: skip
    assert done.stdout.strip() == "[97, 1, None, '0o77', ['1']]", done.stderr


def test_the_sandbox_is_tried_out_and_holds(manager: UserManager) -> None:
    """Where it can be had: the daemon works in it, other folders are read-only, and live transcripts are left alone."""
    path = manager.transcript("harbour", *("what the tool said, over and over again. " * 60 for _ in range(30)))
    result = manager.json("service", "install", "--sandbox")
    if result.get("sandbox_failed"):
        pytest.skip(f"no sandbox on this system: {result['sandbox_failed']}")
    assert result["sandbox"] is True and result["records"] == 30
    mounts = Path(f"/proc/{result['pid']}/mountinfo").read_text().splitlines()
    assert any(row.split()[4] == "/" and row.split()[5].startswith("ro") for row in mounts)
    done = manager.call("prune", path.stem, "--apply", "--json")
    assert "unseen" in done.stdout or "from here it cannot be seen" in done.stdout + done.stderr
    assert manager.call("capture").returncode == 0
    result = manager.json("service", "install", "--no-sandbox")
    assert result["sandbox"] is False
    assert "from here it cannot be seen" not in manager.call("prune", path.stem).stderr


def test_without_user_namespaces_it_goes_on_without_the_sandbox(manager: UserManager) -> None:
    """A trial that fails takes nothing away: said in words, and the service runs. Here the trial's shell is missing."""
    manager.home.joinpath("bin").mkdir()
    fake = manager.home / "bin" / "systemd-run"
    fake.write_text("#!/bin/sh\necho 'Failed to set up user namespacing: Operation not permitted' >&2\nexit 217\n")
    fake.chmod(0o755)
    done = manager.call("service", "install", "--sandbox", PATH=f"{manager.home}/bin:/usr/bin:/bin")
    assert done.returncode == 0
    assert "! no sandbox: user namespaces are not to be had here" in done.stderr and "✓ started" in done.stderr
    assert not list(manager.home.rglob("sandbox.conf"))


def test_on_a_terminal_it_asks_how_much_may_be_pruned(manager: UserManager) -> None:
    """One line for each level, gentle if nothing is said; the answer is written and all else in the file stays."""
    manager.config('# mine\n[log]\nlevel = "debug"  # loud\n')
    shown = manager.on_terminal("standard\n", "service", "install", "--no-start")
    assert [name for name in ("  gentle ", "  standard ", "  off ", "[gentle]") if name not in shown] == []
    text = (manager.home / ".config/fabled/config.toml").read_text()
    assert text == '# mine\n[log]\nlevel = "debug"  # loud\n\n[prune]\nlevel = "standard"\n'
    again = manager.on_terminal("", "service", "install", "--no-start")
    assert "How much may go?" not in again


def test_a_daemon_started_by_hand_is_not_pushed_aside(manager: UserManager) -> None:
    command = [*manager._enter({}), manager.fabled, "daemon"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as by_hand:
        try:
            assert until(lambda: manager.call("status").returncode == 0, 30, 0.1)
            done = manager.call("service", "install")
            assert done.returncode == 4 and "(process" in done.stderr and "end it" in done.stderr
        finally:
            by_hand.terminate()


def test_uninstalling_keeps_the_data_and_says_how_much_exists_nowhere_else(manager: UserManager) -> None:
    kept = manager.transcript("harbour", "only kept")
    manager.transcript("other", "still live")
    manager.call("service", "install")
    manager.call("capture")
    kept.unlink()
    manager.call("index")
    done = manager.call("service", "uninstall")
    assert done.returncode == 0
    assert "of which 1 record (" in done.stdout and "exists nowhere else" in done.stdout
    assert "~/.local/share/fabled" in done.stdout and "--purge" in done.stdout
    assert not (manager.home / ".config/systemd/user/fabled.service").exists()
    assert (manager.home / ".local/share/fabled/map.db").exists()
    assert manager.show("LoadState")["LoadState"] == "not-found"

    refused = manager.call("service", "uninstall", "--purge")
    assert refused.returncode == 4 and "--confirm fabled" in refused.stderr
    assert "exist nowhere else and cannot be brought back" in refused.stderr
    wrong = manager.on_terminal("fable\n", "service", "uninstall", "--purge")
    assert "no data was removed" in wrong and (manager.home / ".local/share/fabled/vault").exists()
    shown = manager.on_terminal("fabled\n", "service", "uninstall", "--purge")
    assert "Removed ~/.local/share/fabled" in shown
    left = [str(path.relative_to(manager.home)) for path in manager.home.rglob("*fabled*")]
    assert left == []
    assert (manager.home / ".claude/projects").is_dir()


def test_odd_homes_are_quoted_as_systemd_reads_them(manager: UserManager) -> None:
    """Blanks, `&`, `%`, quotes, backslashes, `$` and letters of other scripts, in FABLED_HOME and the program."""
    odd = manager.home / 'A & B%h "q" \\n $x ü'
    odd.mkdir()
    program = odd / "fabled"
    program.write_text(f'#!/bin/sh\nexec {manager.fabled} "$@"\n')
    program.chmod(0o755)
    manager._own()
    from fabled.service import unit
    from fabled.service.facts import Facts

    data = odd / "home"
    facts = Facts((str(program),), (("FABLED_HOME", str(data)),), str(odd / "log"), str(data / "run"), (str(data),))
    place = manager.home / ".config/systemd/user/fabled.service"
    place.parent.mkdir(parents=True)
    place.write_text(unit.unit(facts))
    manager._own()
    manager.systemctl("daemon-reload")
    assert manager.systemctl("start", "fabled").returncode == 0, manager.journal()
    assert manager.call("status", FABLED_HOME=str(data)).returncode == 0
    assert (data / "data" / "map.db").exists()
