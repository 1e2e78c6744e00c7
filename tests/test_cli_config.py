"""`config` as people use it: what holds and who says so, changes that keep comments, mistakes that change nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fabled import config
from fabled.cli import rewrite, setup
from tests.shell import Home, daemon, harbour

MINE = """# my settings
roots = ["~/claude/projects"]  # here they lie

[prune]  # how much
# why five: the disk is small
min_bytes = 5  # five
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    (tmp_path / "fabled").mkdir(mode=0o700)
    return made


def file(home: Home) -> Path:
    return home.path / "fabled" / "config.toml"


def test_every_setting_is_listed_with_who_says_so(home: Home) -> None:
    """The file's line, the environment variable, or the default, for every setting there is."""
    file(home).write_text(MINE)
    shown = home.run("config", "--plain", FABLED_LOG_LEVEL="debug").stdout
    rows = {name: (value, origin) for name, value, origin in (line.split("\t") for line in shown.splitlines())}
    assert tuple(rows) == config.setting_names()
    assert rows["prune.min_bytes"] == ("5", f"{file(home)}:6")
    assert rows["log.level"] == ("debug", "FABLED_LOG_LEVEL")
    assert rows["watch.sweep_seconds"][1] == "default"
    value = json.loads(home.run("config", "--json").stdout)
    assert {one["name"] for one in value["settings"]} == set(rows)


def test_a_change_keeps_every_comment(home: Home) -> None:
    """Only the one value differs; a new table and a new top-level setting land where TOML wants them."""
    file(home).write_text(MINE)
    said = home.run("config", "set", "prune.min_bytes", "30MB")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("prune.min_bytes: 5 B → 30 MB")
    assert file(home).read_text() == MINE.replace("= 5 ", "= 30000000 ")
    for words in (("watch.sweep_seconds", "5min"), ("exclude", "~/diary", "taxes"), ("prune.lower_usage", "off")):
        assert home.run("config", "set", *words).returncode == 0
    text = file(home).read_text()
    assert [line for line in MINE.splitlines() if line.startswith("#") and line not in text] == []
    assert home.run("config", "get", "exclude").stdout == '["~/diary", "taxes"]\n'
    assert home.run("config", "get", "watch.sweep_seconds").stdout == "300\n"
    assert home.run("config", "get", "prune.lower_usage").stdout == "false\n"
    assert home.run("config", "unset", "prune.min_bytes").returncode == 0
    assert home.run("config", "get", "prune.min_bytes").stdout == "1000000\n"
    assert "# why five" in file(home).read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prune.min_byte", "3"), "Did you mean prune.min_bytes?"),
        (("prune.min_gain", "3"), "prune.min_gain: expected a number <= 1.0; nothing was changed"),
        (("prune.min_bytes", "lots"), "'lots' is no amount"),
        (("log.level", "info", "debug"), "takes one value"),
        (("prune", "off"), "prune is a table of settings: prune.level, "),
        (("prune.lower_usage", "maybe"), "true or false"),
        (("log.level", "loud"), "expected one of debug, info, warning, error"),
        (("exclude", "/"), "exclude keeps out single projects, each by its own folder, and / is none"),
        (("exclude", ".."), "each by its own folder"),
        (("exclude", ""), "there is nothing to set. Next: fabled config unset exclude"),
        (("roots", ""), "there is nothing to set. Next: fabled config unset roots"),
        (("roots", "[a, b]"), "[a, b] is no list"),
        (("roots", "/a:/b"), "several folders are several words. Next: fabled config set roots /a /b"),
        (("roots", "fabled/config.toml"), "is a file. Next: name the folder that holds it"),
    ],
)
def test_what_is_wrong_changes_nothing(home: Home, words: tuple[str, ...], said: str) -> None:
    """Exit 2, one line that says what may have been meant, and the file as it was."""
    file(home).write_text(MINE)
    done = home.run("config", "set", *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert file(home).read_text() == MINE


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (("claude/projects",), ["{home}/claude/projects"]),
        (("./claude/projects", "/mnt/b"), ["{home}/claude/projects", "/mnt/b"]),
        (("~/claude/projects",), ["~/claude/projects"]),
        (('["~/a", "/b"]',), ["~/a", "/b"]),
        (("['~/a']",), ["~/a"]),
    ],
)
def test_folders_are_set_as_words_or_as_a_list(home: Home, words: tuple[str, ...], held: list[str]) -> None:
    """One, several, a list of TOML or JSON; relative ones are the caller's; one that is not there yet is said to be."""
    done = home.run("config", "set", "roots", *words)
    assert done.returncode == 0
    assert json.loads(home.run("config", "get", "roots").stdout) == [one.format(home=home.path) for one in held]
    assert home.run("config", "check").returncode == 0
    waits = [one for one in held if "projects" not in one]
    assert done.stderr.count("does not exist yet; it is waited for.\n") == len(waits)


def test_a_folder_above_projects_is_no_project(home: Home) -> None:
    """It would keep out less than is meant: the projects below it are named, and nothing is changed. The home and a
    folder nobody knows are taken, with a word of what that means."""
    home.write(harbour())
    assert home.run("index").returncode == 0
    done = home.run("config", "set", "exclude", "/home/ana")
    assert done.returncode == 2 and "below it there is 1 project (/home/ana/app)" in done.stderr
    assert home.run("config", "set", "exclude", "/home/ana/app").stderr == ""
    assert "Only sessions begun in ~ itself stay out" in home.run("config", "set", "exclude", str(home.path)).stderr
    assert "No project diary is known so far" in home.run("config", "set", "exclude", "diary").stderr
    held = json.loads(home.run("config", "get", "exclude").stdout)
    assert held == ["/home/ana/app", str(home.path), "diary"]


def test_a_file_of_windows_stays_one(home: Home) -> None:
    file(home).write_bytes(MINE.replace("\n", "\r\n").encode())
    assert home.run("config", "set", "prune.min_bytes", "30", "MB").returncode == 0
    assert home.run("config", "set", "exclude", "taxes").returncode == 0
    text = file(home).read_bytes()
    assert text.count(b"\r\n") == text.count(b"\n") and b"min_bytes = 30000000  # five\r\n" in text
    assert home.run("config", "get", "exclude").stdout == '["taxes"]\n'


def test_a_misspelt_word_of_config_is_understood(home: Home) -> None:
    """The nearest subcommand is named."""
    done = home.run("config", "stet", "x", "y")
    assert done.returncode == 2 and "Did you mean set?" in done.stderr


def test_an_edit_counts_only_when_it_is_sound(home: Home) -> None:
    """What the editor leaves is checked; a faulty text is put beside the file, which stays."""
    file(home).write_text(MINE)
    done = home.run("config", "edit", EDITOR="sed -i s/min_bytes/min_byte/")
    assert done.returncode == 78 and "Did you mean prune.min_bytes?" in done.stderr
    assert file(home).read_text() == MINE
    assert "min_byte = 5" in file(home).with_name("config.toml.rejected").read_text()
    assert home.run("config", "edit", EDITOR="sed -i s/five/seven/").returncode == 0
    assert file(home).read_text() == MINE.replace("five", "seven", 1).replace("# five", "# seven")
    assert home.run("config", "edit", EDITOR="true").stdout == "Nothing was changed.\n"
    assert home.run("config", "edit", EDITOR="/no/such/editor").returncode == 1


def test_an_edit_begins_with_the_example(home: Home) -> None:
    """Without a file the editor shows every setting with its meaning."""
    assert home.run("config", "edit", EDITOR='sed -i \'s/^# level = "info"/level = "debug"/\'').returncode == 0
    assert home.run("config", "get", "log.level").stdout == "debug\n"
    assert "# A changed transcript is looked at" in file(home).read_text()


def test_the_daemon_takes_a_change_over(home: Home) -> None:
    """`set` and `reload` reach a running daemon, and a faulty file leaves it its settings."""
    home.write(harbour())
    with daemon(home):
        assert "(daemon reloaded)" in home.run("config", "set", "watch.sweep_seconds", "5min").stdout
        jobs = home.json("status")["jobs"]
        assert isinstance(jobs, list) and {one["id"]: one["every_seconds"] for one in jobs}["sweep"] == 300
        file(home).write_text("nonsense = 1\n")
        refused = home.run("config", "reload")
        assert refused.returncode == 78 and "nonsense" in refused.stderr
    assert home.run("config", "reload").returncode == 3


def test_two_changes_at_once_both_hold(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits until the first, which has read the file already, has written it."""
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    file(home).write_text(MINE)
    change, waits, second = rewrite.changed, threading.Event(), []

    def slow(text: str, name: str, value: Any) -> str:
        if not second:
            second.append(threading.Thread(target=lambda: (setup._change("log.level", "debug", True), waits.set())))
            second[0].start()
            waits.wait(30)
        return change(text, name, value)

    monkeypatch.setattr(rewrite, "changed", slow)
    monkeypatch.setattr(rewrite.time, "sleep", lambda seconds: waits.set())
    setup._change("prune.min_gain", 0.5, True)
    second[0].join(30)
    assert file(home).read_text() == MINE + 'min_gain = 0.5\n\n[log]\nlevel = "debug"\n'
