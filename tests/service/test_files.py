"""What is written for the service managers: units, agents, and how all that is quoted."""

from __future__ import annotations

import json
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabled import config
from fabled.errors import Refused
from fabled.service import agent, facts, unit
from fabled.service.facts import Facts
from tests.shell import ROOT, Home

CASE = ROOT.parent / "shared" / "cases" / "C12-service-files"
ODD = [
    "/tmp/A & B%h ü", '/opt/it\'s "q" <x>', "/opt/back\\slash $HOME ${x} ;", "/opt/日本 é%%", "/opt/plain",
    "/opt/x=y @z@",
]  # fmt: skip
CONTROLS = "".join(map(chr, range(0x20))) + "\x7f"
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=CONTROLS), min_size=1)
paths = names.map(lambda name: f"/{name}")


def made(folder: str) -> Facts:
    return Facts((f"{folder}/fabled",), (("FABLED_HOME", folder),), f"{folder}/log", f"{folder}/run", (folder,))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# ── systemd ─────────────────────────────────────────────────────────────────────────────────────────────────────


def words(line: str) -> list[str]:
    """A setting's words as systemd takes them: quotes, backslashes, then `%%`."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"(?= |$)|([^ "]+)(?= |$)', line)
    return [(re.sub(r"\\(.)", r"\1", quoted) if quoted else bare).replace("%%", "%") for quoted, bare in found]


def lines(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.split("\n") if line.startswith(f"{name}=")]


@given(paths)
@example(ODD[0])
@example(ODD[1])
@example(ODD[2])
@example("/=")
@example("/-")
def test_every_path_reaches_systemd_as_it_is(folder: str) -> None:
    """As the program, in the environment and as a writable folder."""
    text = unit.unit(made(folder))
    (command,) = lines(text, "ExecStart")
    *wrapped, program, last = words(command)
    assert last == "daemon"
    if wrapped:
        assert wrapped == ["/bin/sh", "-c", 'exec "$$0" "$$@"']
        program = program.replace("$$", "$")
    assert program == f"{folder}/fabled"
    assert [words(line) for line in lines(text, "Environment")][-1] == [f"FABLED_HOME={folder}"]
    (writable,) = lines(unit.sandbox(made(folder), None), "ReadWritePaths")
    assert words(writable) == [f"-{folder}", f"-{folder}/run"]


def test_a_path_that_no_unit_can_name_is_refused_in_words(tmp_path: Path) -> None:
    env = {"FABLED_HOME": f"{tmp_path}/a\nb", "HOME": str(tmp_path)}
    with pytest.raises(Refused, match="control character"):
        facts.facts(config.load(env), env)


def test_the_unit_says_what_the_docs_say(home: Home) -> None:
    """The settings that a restart loop, a hang or an open door would come from."""
    text = home.run("service", "print", "--for", "systemd").stdout
    for name, value in {
        "Type": "notify", "Restart": "on-failure", "RestartPreventExitStatus": "3 78", "StartLimitBurst": "5",
        "StartLimitIntervalSec": "300", "WatchdogSec": "120", "RestrictAddressFamilies": "AF_UNIX", "UMask": "0077",
        "WantedBy": "default.target",
    }.items():  # fmt: skip
        assert lines(text, name) == [value]
    # Accepted in user units without effect, or refused there.
    for name in ("ProtectSystem", "ReadOnlyPaths", "PrivateTmp", "PrivateDevices", "CapabilityBoundingSet", "After"):
        assert lines(text, name) == []
    assert lines(text, "Environment")[:2] == ["FABLED_SERVICE=systemd", "PYTHONUTF8=1"]
    assert f"FABLED_HOME={home.env['FABLED_HOME']}" in text and f"CLAUDE_CONFIG_DIR={home.path}/claude" in text


def test_the_socket_in_the_sessions_folder_is_made_with_the_service() -> None:
    """The session's folder is new at each login: a mount over a folder of ours in it would miss."""
    about = Facts(("/bin/fabled",), (), "/log", "/run/user/7/fabled", ("/data",))
    text = unit.sandbox(about, "/run/user/7")
    assert lines(text, "RuntimeDirectory") == ["fabled"] and lines(text, "ReadWritePaths") == ["-/data"]
    assert lines(text, "PrivateTmp") == ["yes"]
    assert lines(unit.sandbox(made("/tmp/x"), "/run/user/7"), "PrivateTmp") == ["no"]


def test_systemds_own_checker_finds_nothing(home: Home, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "fabled.service"
    path.write_text(home.run("service", "print", "--for", "systemd").stdout)
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ── launchd ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(paths)
@example(ODD[0])
@example(ODD[1])
def test_every_path_reaches_launchd_as_it_is(folder: str) -> None:
    about = made(folder)
    try:
        value = plistlib.loads(agent.plist(about))
    except Exception as fault:  # what XML cannot hold at all
        assert re.search("[\ufffe\uffff]", folder), fault
        return
    assert value["ProgramArguments"] == [f"{folder}/fabled", "daemon"]
    assert value["EnvironmentVariables"]["FABLED_HOME"] == folder
    assert value["StandardOutPath"] == value["StandardErrorPath"] == f"{folder}/log"


def test_the_agent_restarts_failures_only_and_in_the_background() -> None:
    value = plistlib.loads(agent.plist(made("/Users/ana")))
    assert value["KeepAlive"] == {"SuccessfulExit": False} and value["ThrottleInterval"] == 10
    assert (value["RunAtLoad"], value["ProcessType"], value["LowPriorityIO"]) == (True, "Background", True)
    assert value["Label"] == agent.LABEL and value["Umask"] == 0o077
    assert value["EnvironmentVariables"]["FABLED_SERVICE"] == "launchd"


@pytest.mark.parametrize("folder", ODD)
def test_the_agent_is_sound_xml(folder: str, tmp_path: Path) -> None:
    if shutil.which("xmllint") is None:
        pytest.skip("xmllint is not installed")
    path = tmp_path / "agent.plist"
    path.write_bytes(agent.plist(made(folder)))
    done = subprocess.run(["xmllint", "--nonet", "--noout", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ── both ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["systemd", "launchd"])
@pytest.mark.parametrize("folder", ["plain", "A & B%h ü"])
def test_c12(name: str, folder: str, tmp_path: Path) -> None:
    """The checker of the users' case says ok, with an ordinary home and an odd one."""
    if not CASE.exists():
        pytest.skip("the shared cases do not lie beside the project")
    home = Home(tmp_path / folder)
    ending = {"systemd": "service", "launchd": "plist"}[name]
    path = tmp_path / f"fabled.{ending}"
    path.write_text(home.run("service", "print", "--for", name).stdout)
    done = subprocess.run([sys.executable, str(CASE / "check.py"), str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_printing_changes_nothing_and_programs_get_it_as_a_value(home: Home) -> None:
    for name in ("systemd", "launchd"):
        value = json.loads(home.run("service", "print", "--for", name, "--json").stdout)
        assert value["manager"] == name and value["path"].startswith(str(home.path))
        assert value["text"] == home.run("service", "print", "--for", name).stdout
    done = home.run("service", "print", "--for", "launchd", "--sandbox")
    assert done.returncode == 2 and "--for systemd --sandbox" in done.stderr
    assert not (home.path / ".config").exists() and not (home.path / "Library").exists()


def test_settings_that_a_service_would_not_see_are_named() -> None:
    env = {"FABLED_HOME": "/x", "FABLED_LOG_LEVEL": "debug", "FABLED_ROOTS": "", "HOME": "/h"}
    assert facts.unsaid(env) == ["FABLED_LOG_LEVEL"]
    assert facts.passing(("/home/a/.cache/uv/x/bin/fabled",)) and not facts.passing(("/home/a/.local/bin/fabled",))
