"""The command line without anything running: help, wrong usage, settings, spans, and indexing in the process itself."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from fabled.cli import group
from fabled.store.files import unopened
from tests.build import Transcript, make_uuid
from tests.rights import unprivileged
from tests.shell import FOLDER, KEYS, Home, harbour, write_much


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# ── help and wrong usage ────────────────────────────────────────────────────────────────────────────────────────

# What the contract promises: command → its options.
CONTRACT = {
    "daemon": "", "status": "", "check": "--deep", "spans": "--all", "index": "", "sessions": "", "projects": "",
    "search": "--limit --offset --project --all --session --role --tool --file --since --until --kind --term --sort "
              "--exact --regex --include-subagents --no-subagents --json-lines",
    "thread": "--budget --branches --subagents --around --raw",
    "block": "--raw --info --force",
    "config paths": "", "config check": "",
}  # fmt: skip


@pytest.mark.parametrize("command", CONTRACT)
def test_each_command_explains_itself_with_an_example_first(home: Home, command: str) -> None:
    """--help names every option of the contract and shows how to call the command before it lists them."""
    done = home.run(*command.split(), "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert [option for option in [*CONTRACT[command].split(), "--json"] if option not in done.stdout] == []
    assert f"\n    fabled {command}" in done.stdout or command == "projects"
    assert done.stdout.index("Options:") > done.stdout.rfind(f"    fabled {command}")


def test_bare_fabled_is_an_overview_of_what_there_is(home: Home) -> None:
    done = home.run()
    assert done.returncode == 0 and done.stderr == ""
    assert [name for name in group.COMMANDS if name not in done.stdout] == []
    assert sorted(name for names in group.SECTIONS.values() for name in names) == sorted(group.COMMANDS)


def test_help_brings_in_only_what_it_needs(home: Home) -> None:
    """Neither the daemon's libraries nor SQLite for a page of text."""
    code = (
        "import sys; sys.argv = ['fabled', 'search', '--help']; from fabled.client.main import main; main();"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=home.env, capture_output=True, text=True, check=True)
    heavy = {"apsw", "structlog", "rich", "orjson", "apscheduler", "watchdog", "platformdirs", "msgspec"}
    assert heavy & set(done.stderr.split()) == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serch", "x"], "fabled: there is no command serch. Did you mean search? Next: fabled --help"),
        (["search"], "fabled: Missing argument 'QUERY...'. Next: fabled search --help"),
        (["search", "--limit", "0", "x"], "is not in the range"),
        (["search", "-x"], "Next: fabled search --help; a query that begins with a minus follows --"),
        (["search", "--all", "--project", "p", "x"], "--all and --project exclude each other."),
        (["search", "--json", "--plain", "x"], "--json and --plain exclude each other."),
        (["thread"], "Missing argument 'ID'"),
        (["config", "pathss"], "Did you mean paths?"),
        (["--frobnicate"], "No such option"),
        (["status", "--oneline", "--json"], "--oneline and --json exclude each other."),
        (["search", "--sesion", "x"], "fabled: No such option --sesion. Did you mean --session? Next: fabled search"),
        (["search", "--limit"], "requires an argument. Next: fabled search --help"),
        (["search", "--limit", "x", "y"], "'x' is no whole number. Next: fabled search --help"),
        (["service", "instal"], "there is no fabled service instal. Did you mean install?"),
        (["claude", "foo"], "There are install, show-context, status, uninstall. Next: fabled claude --help"),
        (["cards", "rnu"], "there is no fabled cards rnu. Did you mean run?"),
        (["index", "/"], "fabled: / lies in none of the transcript folders. Next: fabled config paths shows them"),
        (
            ["search", "caf\udce9"],
            "fabled: the argument caf\\xe9 is not UTF-8; nothing was done. Next: write it in UTF-8",
        ),
        (["config", "set", "exclude", "/x\udcff"], "fabled: the argument /x\\xff is not UTF-8; nothing was done."),
        (["forget", "--project", "x\udcff"], "fabled: the argument x\\xff is not UTF-8"),
        (["config", "get", "\x1b]0;x\x07"], "fabled: no setting ^[]0;x^G."),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(home: Home, arguments: list[str], said: str) -> None:
    done = home.run(*arguments)
    assert (done.returncode, done.stdout.count("\n") if "--json" not in arguments else 0) == (2, 0)
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["config", "get", "\x1b[31m\u202e"], {}, "\n  Next: fabled config shows those there are\n"),
        (
            ["config", "paths"],
            {"FABLED_HOME": "/x\x1b[31m\u202e\x9b"},
            "config_file  /x^[[31m<202E><009B>/config.toml\n",
        ),
        (["status"], {}, "  Last seen "),
        (["export", "7c41e0aa", "-o", "\x1b[31m"], {"FABLED_HOME": "/\x1b[31m"}, "fabled: "),
        (["spans", "/nowhere/" + "long/" * 20 + "\x1b[31m"], {}, "\n  Next: fabled sessions lists what there is\n"),
        (["service", "print"], {}, "[Service]"),
    ],
)
def test_no_argument_and_no_setting_steers_a_terminal(
    home: Home, arguments: list[str], env: dict[str, str], said: str
) -> None:
    """On stdout and on stderr; a line that is too long for it is broken by us."""
    (home.path / "fabled" / "state").mkdir(parents=True)
    (home.path / "fabled" / "state" / "last-stop").write_text(f"{time.time():.0f} {'it was ended by ' * 5}\x1b[2J\n")
    shown = home.on_terminal(*arguments, columns=60, **env)[1]
    assert said in shown and [c for c in shown if c != "\n" and not c.isprintable()] == []
    assert arguments[0] == "service" or max(map(len, shown.split("\n"))) <= 60


@pytest.mark.parametrize("width", [60, 80, 100])
def test_help_keeps_to_the_terminal(width: int) -> None:
    """Of every command and what is below it; only a command that is longer than a line stays as it is."""
    pages = [group.fabled, *(group.fabled.get_command(click.Context(group.fabled), name) for name in group.COMMANDS)]
    pages += [below for page in pages[1:] if isinstance(page, click.Group) for below in page.commands.values()]
    for page in pages:
        assert page is not None
        text = page.get_help(click.Context(page, info_name=str(page.name), terminal_width=width))
        wide = [line for line in text.split("\n") if len(line) > width]
        assert [line for line in wide if not re.match(r" +(\S+=\S+ )?fabled ", line) or "  " in line.strip()] == []


def test_an_error_is_an_object_too_where_json_is_asked_for(home: Home) -> None:
    done = home.run("search", "--json", "--sort", "size", "x")
    error = json.loads(done.stdout)
    assert (error["v"], error["error"]["code"], error["error"]["hint"]) == (1, "usage", "fabled search --help")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_bad_configuration_is_exit_78_with_every_problem(home: Home) -> None:
    config = home.path / "fabled" / "config.toml"
    config.parent.mkdir()
    config.write_text('[watch]\nquiet_second = 1\n[log]\nlevel = "loud"\n')
    done = home.run("index")
    assert done.returncode == 78
    assert done.stderr == (
        "fabled: the configuration has 2 problems:\n"
        f"  {config}:2: no setting watch.quiet_second. Did you mean watch.quiet_seconds?\n"
        f"  {config}:4: log.level: expected one of debug, info, warning, error.\n"
        "Next: correct the lines named, then try again\n"
    )
    value = json.loads(home.run("config", "paths", "--json").stdout)
    assert value["error"]["code"] == "bad_config" and len(value["error"]["problems"]) == 2


def test_config_check_is_for_before_a_reload(home: Home) -> None:
    assert home.run("config", "check").stdout == "~/fabled/config.toml does not exist: every setting has its default.\n"
    (home.path / "fabled").mkdir()
    (home.path / "fabled/config.toml").write_text("[log]\nlevel = 'debug'\n")
    assert home.run("config", "check").stdout == "~/fabled/config.toml is sound.\n"
    (home.path / "fabled/config.toml").write_text("[log]\nlevel = 3\n")
    assert home.run("config", "check").returncode == 78


def test_config_paths_lists_every_place(home: Home) -> None:
    value = home.json("config", "paths")
    assert value["roots"] == [str(home.projects)]
    assert value["map_db"] == str(home.path / "fabled/data/map.db")
    text = home.run("config", "paths").stdout
    assert "socket       ~/fabled/run/fabled.sock\n" in text
    assert not (home.path / "fabled").exists()


# ── spans ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_spans_account_for_every_byte_without_daemon_or_map(home: Home) -> None:
    """Records, one without uuid, something unparsed and an unfinished tail; together they are the file."""
    transcript = harbour()
    transcript.queue("and also the e-mails")
    transcript.raw(b"not json")
    path = home.write(transcript)
    path.write_bytes(path.read_bytes() + b'{"type":"user","mess')
    rows = [json.loads(line) for line in home.run("spans", "--json", "--all", str(path)).stdout.splitlines()]
    data = path.read_bytes()
    assert b"".join(data[row["offset"] : row["offset"] + row["length"]] for row in rows) == data
    kinds = [row["kind"] for row in rows if row["kind"] != "separator"]
    assert kinds == ["record"] * 4 + ["no_uuid", "unparsed", "pending"]
    written = [record["uuid"] for record in transcript.records[:4]]
    assert [row["uuid"] for row in rows if row["kind"] == "record"] == written
    fewer = home.run("spans", "--json", str(path)).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in fewer] == kinds
    text = home.run("spans", str(path)).stdout
    assert text.endswith("4 records, 1 record without uuid, 1 unparsed span, 1 pending tail\n")
    assert not (home.path / "fabled").exists()


def test_spans_of_what_is_no_transcript_is_one_clear_line(home: Home) -> None:
    """A missing file, a folder, a pipe that nobody writes to: exit 1, at once."""
    os.mkfifo(home.path / "pipe")
    for name, why in (("gone", "does not exist"), (".", "not a regular file"), ("pipe", "not a regular file")):
        done = home.run("spans", name)
        assert (done.returncode, done.stdout) == (1, "")
        assert why in done.stderr and done.stderr.count("\n") == 1
    (home.path / "text").write_text("plain text\n")
    assert home.run("spans", "text").stdout.endswith("1 unparsed span\n")


def test_a_reader_that_leaves_early_is_no_fault(home: Home) -> None:
    transcript = Transcript(make_uuid("long"))
    for number in range(3000):
        transcript.user(f"prompt {number}")
    path = home.write(transcript)
    command = f"{sys.executable} -m fabled spans --json {path} | head -n 1"
    done = subprocess.run(["sh", "-c", command], env=home.env, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


# ── index without a daemon ──────────────────────────────────────────────────────────────────────────────────────


def test_index_works_without_a_daemon(home: Home) -> None:
    path = home.write(harbour())
    value = home.json("index")
    assert set(value) >= KEYS
    assert (value["files"], value["files_changed"], value["records"], value["threads"]) == (1, 1, 4, 1)
    assert value["bytes_read"] == path.stat().st_size
    again = home.run("index")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("Nothing has changed (") and "1 file, 4 records, 1 thread in the Map" in again.stdout
    home.write(harbour("second"))
    one = home.json("index", str(home.projects / FOLDER / f"{make_uuid('second')}.jsonl"))
    assert (one["files"], one["files_changed"]) == (2, 1)


def test_what_index_makes_is_private_whatever_the_umask(home: Home) -> None:
    home.write(harbour())
    command = f"umask 000; {sys.executable} -m fabled index"
    subprocess.run(["sh", "-c", command], env=home.env, check=True, capture_output=True)
    for path in [home.path / "fabled", *(home.path / "fabled").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_no_transcripts_yet_is_said(home: Home) -> None:
    home.projects.rmdir()
    done = home.run("index")
    assert done.returncode == 0
    assert "waiting for ~/claude/projects: there is no such folder yet" in done.stdout


def test_index_does_not_work_beside_another(home: Home) -> None:
    """The same lock as the daemon's, and its holder is named."""
    lock = home.path / "fabled/state/fabled.lock"
    lock.parent.mkdir(parents=True, mode=0o700)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4127\n")
        file.flush()
        done = home.run("index")
    assert done.returncode == 3
    assert "another fabled (pid 4127) is writing" in done.stderr
    assert home.run("index").returncode == 0


def test_a_file_that_is_no_transcript_is_named(home: Home) -> None:
    (home.projects / FOLDER).mkdir()
    (home.projects / FOLDER / "notes.txt").write_text("x")
    done = home.run("index", str(home.projects / FOLDER / "notes.txt"))
    assert done.returncode == 2 and "notes.txt is no transcript" in done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Enough to read for a bar to be worth drawing."""
    home = Home(tmp_path_factory.mktemp("large"))
    write_much(home)
    return home


def test_a_terminal_sees_a_bar_that_leaves_nothing_behind(large: Home) -> None:
    code, shown = large.beside("bar").on_terminal("index")
    assert code == 0
    assert "indexing" in shown and "/6 files" in shown
    assert shown.rstrip().endswith("6 files, 3,000 records, 1,500 threads in the Map")


def test_ctrl_c_ends_a_run_between_two_transactions(large: Home) -> None:
    """Exit 130, what was done is kept, and the next run does the rest."""
    home = large.beside("interrupted")
    code, shown = home.on_terminal("index", interrupt_at=b"indexing")
    assert code == 130, shown
    assert "Traceback" not in shown
    value = home.json("index")
    assert (value["files"], value["records"]) == (6, 3000)


@pytest.mark.parametrize(
    ("redirect", "said"), [(">&-", "the output is closed"), ("> /dev/full", "could not be written")]
)
def test_output_that_takes_nothing_is_one_line(home: Home, redirect: str, said: str) -> None:
    """Closed or full: what happened and what to do, exit 1, and no second complaint at the end."""
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    home.run("index")
    for command in ("projects", "projects --json", "", "--help", "--version"):
        if (command, redirect) in (("--help", ">&-"), ("--version", ">&-")):
            continue  # click says nothing there
        done = subprocess.run(
            ["sh", "-c", f"exec {sys.executable} -m fabled {command} {redirect}"],
            env=home.env, cwd=home.path, capture_output=True, text=True,
        )  # fmt: skip
        told = [one for one in done.stderr.splitlines() if not one.startswith("fabled is not running")]
        assert done.returncode == 1 and len(told) == 1 and said in told[0] and "Next: " in told[0]


@pytest.mark.parametrize("redirect", ["2>&-", "2> /dev/full", "<&-"])
def test_a_person_who_cannot_be_told_changes_no_status_and_no_answer(home: Home, redirect: str) -> None:
    """A closed or full stderr takes no word of ours, stdout gets none of them, and the exit status is what it is."""
    home.write(harbour())
    home.run("index")
    for command, status, said in (("serch", 2, ""), ("sessions", 0, "Why do bookings"), ("projects -n 0", 2, "")):
        done = subprocess.run(
            ["sh", "-c", f"exec {sys.executable} -m fabled {command} {redirect}"],
            env=home.env, cwd=home.path, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, bool(done.stdout)) == (status, bool(said)) and said in done.stdout, command


@pytest.mark.parametrize(
    "command",
    [
        "report",
        "export ffffff -o x.md",
        "index .",
        "claude show-context",
        "sessions --project .",
        "restore ffffff --to x",
    ],
)
def test_a_working_folder_that_is_gone_is_one_line(home: Home, command: str) -> None:
    """Whatever needs it says so, whatever does not works."""
    home.write(harbour())
    home.run("index")
    gone = home.path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m fabled {command}"
    done = subprocess.run(["sh", "-c", script], env=home.env, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    told = [one for one in done.stderr.splitlines() if not one.startswith("fabled is not running")]
    assert len(told) == 1
    if command != "claude show-context" and "ffffff -o" not in command:
        assert told[0] == "fabled: the folder you are in does not exist any more. Next: cd to one that does"


def test_a_home_that_cannot_be_made_is_one_line(home: Home) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("this system has no folder where nothing can be made")
    done = home.run("index", FABLED_HOME="/proc/fabled")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot be made" in done.stderr and "set FABLED_HOME" in done.stderr


@pytest.mark.parametrize("command", ["index", "search x", "check", "terms", "capture", "daemon"])
def test_an_index_that_cannot_be_opened_is_one_line(home: Home, command: str) -> None:
    """Here a folder lies in its place: each command names it and ends, and none of them moves it aside."""
    home.write(harbour())
    (home.path / "fabled" / "data" / "map.db").mkdir(parents=True)
    done = home.run(*command.split())
    told = [one for one in done.stderr.splitlines() if one.startswith("fabled: ")]
    assert done.returncode == 1 and len(told) == 1 and "map.db cannot be opened: " in told[0], done.stderr
    assert "Traceback" not in done.stderr and (home.path / "fabled" / "data" / "map.db").is_dir()


def test_rights_are_the_reason_where_they_are() -> None:
    """What may not be read or written is told so, with the command that opens it."""
    with unprivileged() as folder:
        path = folder / "map.db"
        path.write_bytes(b"")
        for place, mode, said in (
            (path, 0o000, "you may not read it"), (path, 0o400, "you may not write it"),
            (folder, 0o500, "its folder cannot be written"), (folder, 0o000, "its folder may not be read"),
        ):  # fmt: skip
            before = place.stat().st_mode
            place.chmod(mode)
            told = unopened(str(path), OSError("unable to open database file"))
            place.chmod(before)
            assert said in told.message and told.hint.startswith("chmod u+") and str(place) in told.hint
        assert "unable to open" in unopened(str(path), OSError("unable to open database file")).message


def test_check_reports_a_damaged_page_as_a_failure(home: Home) -> None:
    """A page of the Map overwritten: exit 1 and a line that says so, no traceback."""
    talk = Transcript()
    for number in range(400):
        talk.user(f"prompt {number} " + "words to fill pages " * 20)
    home.write(talk)
    home.run("index")
    path = home.path / "fabled/data/map.db"
    data = bytearray(path.read_bytes())
    assert len(data) > 200_000
    data[40_000:150_000] = b"\xa5" * 110_000
    path.write_bytes(data)
    done = home.run("check")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "database" in done.stdout + done.stderr
