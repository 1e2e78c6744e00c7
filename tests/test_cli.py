"""The command line from outside: each command as a real process, over real transcripts of our own making."""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabled.cli import group
from tests.build import Transcript, make_uuid

ROOT = Path(__file__).parent.parent
FOLDER = "-home-ana-app"


class Home:
    """A home of its own with transcripts in it, and the command to run there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.projects = path / "claude" / "projects"
        self.projects.mkdir(parents=True)
        self.env = {
            "FABLED_HOME": str(path / "fabled"), "CLAUDE_CONFIG_DIR": str(path / "claude"), "HOME": str(path),
            "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "120", "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def write(self, transcript: Transcript, folder: str = FOLDER) -> Path:
        path = self.projects / folder / f"{transcript.session}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(transcript.data)
        return path

    def beside(self, name: str) -> Home:
        """The same transcripts seen from another home of fabled's."""
        other = copy.copy(self)
        other.env = {**self.env, "FABLED_HOME": str(self.path / name)}
        return other

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fabled", *arguments], env={**self.env, **env}, cwd=self.path,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def bytes(self, *arguments: str) -> bytes:
        command = [sys.executable, "-m", "fabled", *arguments]
        return subprocess.run(command, env=self.env, cwd=self.path, capture_output=True, check=True).stdout

    def json(self, *arguments: str) -> dict[str, object]:
        value = json.loads(self.run(*arguments, "--json").stdout)
        assert isinstance(value, dict) and value["v"] == 1
        return value

    def on_terminal(self, *arguments: str, interrupt_at: bytes | None = None, columns: int = 100) -> tuple[int, str]:
        """The command with a real terminal for all three streams; SIGINT when `interrupt_at` has been shown."""
        parent, child = pty.openpty()
        env = {**self.env, "TERM": "xterm", "COLUMNS": str(columns)}
        command = [sys.executable, "-m", "fabled", *arguments]
        process = subprocess.Popen(command, env=env, cwd=self.path, stdin=child, stdout=child, stderr=child)
        os.close(child)
        shown = b""
        try:
            while select.select([parent], [], [], 60)[0]:
                try:
                    more = os.read(parent, 65536)
                except OSError:  # Linux's way to say that the last writer is gone
                    break
                if not more:
                    break
                shown += more
                if interrupt_at is not None and interrupt_at in shown:
                    process.send_signal(signal.SIGINT)
                    interrupt_at = None
            return process.wait(60), shown.decode(errors="replace").replace("\r\n", "\n")
        finally:
            os.close(parent)
            process.kill()
            process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def harbour(session: str = "harbour") -> Transcript:
    """A short conversation with a tool call in it."""
    transcript = Transcript(make_uuid(session))
    transcript.user("Why do bookings after midnight land on the wrong day?")
    call = transcript.call("Bash", {"command": "sqlite3 dev.db .schema"})
    transcript.result(call, "CREATE TABLE bookings(created_at TEXT)")
    transcript.assistant("The report groups by the UTC date; convert to the harbour's zone first.")
    return transcript


# ── help and wrong usage ────────────────────────────────────────────────────────────────────────────────────────

# What the contract promises: command → its options.
CONTRACT = {
    "daemon": "", "status": "", "check": "--deep", "spans": "--all", "index": "", "sessions": "", "projects": "",
    "search": "--limit --offset --project --all --session --role --tool --file --since --until --kind --term --sort "
              "--exact --regex --include-subagents --no-subagents --json-lines",
    "thread": "--budget --branches --subagents --around --raw",
    "block": "--raw --info --force",
    "config paths": "",
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
        (["config", "pathss"], "Did you mean 'paths'?"),
        (["--frobnicate"], "No such option"),
        (["index", "/"], "fabled: / lies in none of the transcript folders. Next: fabled config paths shows them"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(home: Home, arguments: list[str], said: str) -> None:
    done = home.run(*arguments)
    assert (done.returncode, done.stdout.count("\n") if "--json" not in arguments else 0) == (2, 0)
    assert said in done.stderr and done.stderr.count("\n") == 1


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

KEYS = {
    "v", "files", "files_changed", "bytes_read", "records", "no_uuid", "unparsed", "pending_bytes", "threads",
    "seconds", "cpu_seconds",
}  # fmt: skip


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
    assert "waiting for ~/claude/projects: the folder does not exist yet" in done.stdout


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
    assert "another fabled (pid 4127) is indexing" in done.stderr
    assert home.run("index").returncode == 0


def test_a_file_that_is_no_transcript_is_named(home: Home) -> None:
    (home.projects / FOLDER).mkdir()
    (home.projects / FOLDER / "notes.txt").write_text("x")
    done = home.run("index", str(home.projects / FOLDER / "notes.txt"))
    assert done.returncode == 2 and "notes.txt is no transcript" in done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Enough to read for a bar to be worth drawing."""
    home = Home(tmp_path_factory.mktemp("large"))
    filler = "what the tool said, over and over again. " * 60
    for name in range(6):
        transcript = Transcript(make_uuid(f"large {name}"))
        for number in range(250):
            transcript.user(f"prompt {number} of {name}")
            transcript.assistant(f"{number} {filler * 6}")
        home.write(transcript)
    yield home


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


# ── finding, with and without a daemon ──────────────────────────────────────────────────────────────────────────


@contextmanager
def daemon(home: Home) -> Iterator[subprocess.Popen[str]]:
    """A daemon that has looked at everything once; stopped by SIGTERM at the end, and it must end well."""
    command = [sys.executable, "-m", "fabled", "daemon"]
    process = subprocess.Popen(command, env=home.env, cwd=home.path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        told = []
        for line in process.stderr:
            told.append(line)
            if "Try in another terminal" in line or "Nothing to search yet" in line:
                break
        assert process.poll() is None, told
        yield process
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(params=["daemon", "no daemon"])
def answering(request: pytest.FixtureRequest, home: Home) -> Iterator[Home]:
    """A home with two sessions, answered for by a daemon, or by the command itself from the Map."""
    home.write(harbour())
    other = Transcript(make_uuid("other"), cwd="/home/ana/shop")
    other.user("Rename the basket to cart")
    other.assistant("Done, the basket is a cart now.")
    home.write(other, "-home-ana-shop")
    if request.param == "daemon":
        with daemon(home):
            yield home
    else:
        assert home.run("index").returncode == 0
        yield home


def talk(home: Home, done: subprocess.CompletedProcess[str]) -> str:
    """What was said on stderr beside the one line that tells that no daemon runs."""
    running = (home.path / "fabled/run/fabled.sock").exists()
    note = "fabled is not running: answered from the Map as it was last written (start it: fabled daemon)\n"
    assert (note in done.stderr) is not running
    return done.stderr.replace(note, "")


def test_search_thread_and_block_lead_from_words_to_bytes(answering: Home) -> None:
    """The whole way: a word, its thread, a record of it, exactly its bytes."""
    done = answering.run("search", "harbour's", "zone")
    assert (done.returncode, talk(answering, done)) == (0, "")
    assert "Why do bookings after midnight" in done.stdout and "Open one:  fabled thread " in done.stdout
    (hit,) = answering.json("search", "harbour's", "zone")["results"]  # type: ignore[misc]
    thread = answering.run("thread", hit["thread"][:8])
    assert (thread.returncode, talk(answering, thread)) == (0, "")
    assert "── user  " in thread.stdout and "convert to the harbour's zone first." in thread.stdout
    written = harbour().lines[3]
    assert answering.bytes("block", hit["uuid"], "--raw") == written
    assert answering.bytes("block", hit["uuid"][:8], "--raw") == written
    info = answering.json("block", hit["uuid"], "--info")
    assert info["copies"][0]["sha256"] == hashlib.sha256(written).hexdigest()  # type: ignore[index]
    assert hit["uuid"] in answering.run("block", hit["uuid"], "--info").stdout


def test_nothing_found_is_exit_1(answering: Home) -> None:
    done = answering.run("search", "zebra")
    assert (done.returncode, talk(answering, done)) == (1, "")
    assert done.stdout.startswith("Nothing found for zebra.")
    value = json.loads(answering.run("search", "zebra", "--json").stdout)
    assert (value["v"], value["results"], value["total"]) == (1, [], 0)


def test_results_come_as_lines_too(answering: Home) -> None:
    """`--json-lines` for programs that stream, `--plain` for those that cut."""
    lines = answering.run("search", "basket", "harbour's", "--json-lines").stdout.splitlines()
    assert {json.loads(line)["session_id"] for line in lines} == {make_uuid("harbour"), make_uuid("other")}
    rows = answering.run("search", "basket", "--plain").stdout.splitlines()
    assert len(rows) == 1 and rows[0].split("\t")[2] == "/home/ana/shop"


def test_a_query_may_begin_with_a_minus_behind_two(answering: Home) -> None:
    assert answering.run("search", "--", "basket", "-zebra").returncode == 0
    assert answering.run("search", "--", "-zebra").returncode in (0, 1)


def test_sessions_and_projects_are_listed(answering: Home) -> None:
    text = answering.run("sessions").stdout
    assert make_uuid("harbour")[:8] in text and make_uuid("other")[:8] in text
    rows = answering.run("projects", "--plain").stdout.splitlines()
    assert {row.split("\t")[0] for row in rows} == {"/home/ana/app", "/home/ana/shop"}
    assert len(answering.json("projects")["projects"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "exit", "said"),
    [
        (["thread", "ffffffff"], 1, "no thread ffffffff"),
        (["block", "ffffffff"], 1, "unknown uuid ffffffff"),
        (["block", "xyz"], 1, "unknown uuid xyz"),
        (["search", "--since", "yesterdayish", "basket"], 2, "yesterdayish"),
    ],
)
def test_what_cannot_be_answered_is_one_line(answering: Home, arguments: list[str], exit: int, said: str) -> None:
    done = answering.run(*arguments, "--json")
    error = json.loads(done.stdout)
    assert (done.returncode, error["v"]) == (exit, 1) and said in error["error"]["message"]
    told = talk(answering, done)
    assert told.startswith("fabled: ") and told.count("\n") == 1


def test_the_working_folder_is_the_scope(home: Home) -> None:
    """Inside a known project only it is searched, and the answer says so; --all searches every one."""
    for name in ("one", "two"):
        (home.path / name).mkdir()
        transcript = Transcript(make_uuid(name), cwd=str(home.path / name))
        transcript.user("where is the kettle")
        home.write(transcript, str(home.path / name).replace("/", "-").replace("_", "-").replace(".", "-"))
    assert home.run("index").returncode == 0
    command = [sys.executable, "-m", "fabled", "search", "kettle"]
    inside = subprocess.run(command, env=home.env, cwd=home.path / "one", capture_output=True, text=True, timeout=60)
    assert inside.stdout.startswith("1 thread, ") and "project ~/one  (--all for every project)" in inside.stdout
    everywhere = subprocess.run(
        [*command, "--all"], env=home.env, cwd=home.path / "one", capture_output=True, text=True, timeout=60
    )
    assert everywhere.stdout.startswith("2 threads, ") and "all projects" in everywhere.stdout


def test_without_a_map_the_commands_say_what_to_do(home: Home) -> None:
    done = home.run("search", "x")
    assert done.returncode == 3 and "Next: fabled" in done.stderr and done.stderr.count("\n") <= 2


# ── block ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_changed_file_is_stale_and_never_served(home: Home) -> None:
    """Other bytes at the record's place: exit 5, nothing on stdout."""
    transcript = harbour()
    path = home.write(transcript)
    assert home.run("index").returncode == 0
    path.write_bytes(path.read_bytes().replace(b"convert to", b"CONVERT TO"))
    done = home.run("block", transcript.records[3]["uuid"], "--raw")
    assert (done.returncode, done.stdout) == (5, "")
    assert "Next: fabled index" in done.stderr or "Next: " in done.stderr
    assert home.run("index").returncode == 0
    assert home.bytes("block", transcript.records[3]["uuid"], "--raw") == path.read_bytes().splitlines()[3]


def test_a_terminal_sees_control_characters_instead_of_obeying_them(home: Home) -> None:
    """DEL and a bidirectional override may stand raw in JSON; --force sends them."""
    transcript = Transcript(make_uuid("nasty"))
    transcript.user("left \u202e right \x7f end")
    home.write(transcript)
    assert home.run("index").returncode == 0
    uuid = transcript.records[0]["uuid"]
    code, shown = home.on_terminal("block", uuid, "--raw", columns=2000)
    assert code == 0 and "left <202E> right ^? end" in shown and "Control characters are shown" in shown
    code, shown = home.on_terminal("block", uuid, "--raw", "--force", columns=2000)
    assert code == 0 and "left \u202e right \x7f end" in shown
    assert home.bytes("block", uuid, "--raw") == transcript.lines[0]
    assert home.bytes("block", uuid) == transcript.lines[0] + b"\n"


# ── the daemon's own commands ───────────────────────────────────────────────────────────────────────────────────


def test_a_terminal_is_told_what_to_try_next(home: Home) -> None:
    """The first index ends with one line that says how to go on; Ctrl-C is a clean end."""
    home.write(harbour())
    code, shown = home.on_terminal("daemon", interrupt_at=b"Try in another terminal")
    assert code == 0 and "Traceback" not in shown
    assert "1 session, 4 records searchable" in shown and 'fabled search "why did we"' in shown
    assert "Last seen 0 s ago: stopped by signal INT" in home.run("status").stderr.replace("1 s", "0 s")


def test_a_missing_folder_is_waited_for_and_the_demo_pointed_at(home: Home) -> None:
    home.projects.rmdir()
    code, shown = home.on_terminal("daemon", interrupt_at=b"make demo")
    assert code == 0
    assert "No transcripts yet: waiting for the folder ~/claude/projects." in shown and "fabled demo" in shown


def test_status_and_index_go_through_the_daemon(home: Home) -> None:
    home.write(harbour())
    with daemon(home) as process:
        value = home.json("status")
        assert (value["running"], value["pid"], value["records"]) == (True, process.pid, 4)
        text = home.run("status")
        assert text.returncode == 0 and text.stdout.startswith("● fabled ") and "  sessions   1" in text.stdout
        assert home.run("status", "--oneline").stdout == "ok 1 session, queue 0\n"
        assert home.run("status", "--utc").stdout.startswith("● fabled ")
        home.write(harbour("second"))
        indexed = home.json("index")
        assert set(indexed) >= KEYS and (indexed["files"], indexed["records"]) == (2, 8)
        assert home.run("check").returncode == 0
        second = home.run("daemon")
        assert second.returncode == 3 and "already running" in second.stderr and second.stderr.count("\n") == 1


def test_a_daemon_for_a_program_writes_its_log_to_stdout(home: Home) -> None:
    command = [sys.executable, "-m", "fabled", "daemon", "--json"]
    process = subprocess.Popen(command, env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.terminate()
    rest, talk = process.communicate(timeout=20)
    assert first["event"] and [json.loads(line)["level"] for line in rest.splitlines()]
    assert (process.returncode, talk) == (0, "")


def test_check_finds_nothing_in_a_fresh_map_and_a_fault_in_a_broken_one(home: Home) -> None:
    home.write(harbour())
    assert home.run("check").returncode == 3
    assert home.run("index").returncode == 0
    good = home.run("check", "--deep")
    assert good.returncode == 0 and good.stdout.endswith("Everything holds.\n")
    assert all(one["ok"] for one in home.json("check")["checks"])  # type: ignore[attr-defined, index]
    (home.path / "fabled/data/map.db").chmod(0o644)
    broken = home.run("check")
    assert broken.returncode == 1 and broken.stdout.endswith("1 check failed.\n")


def test_the_demo_shows_the_product_and_leaves_nothing(home: Home) -> None:
    """Index, search, thread in a temporary home: nothing of it remains, and the person's own is not touched."""
    temporary = home.path / "tmp"
    temporary.mkdir()
    before = sorted(home.path.rglob("*"))
    done = home.run("demo", TMPDIR=str(temporary))
    assert (done.returncode, done.stderr) == (0, "")
    for shown in ("$ fabled index", '$ fabled search "why did we drop the retry queue"', "$ fabled thread "):
        assert shown in done.stdout
    assert "mailroom: Then let us drop the retry queue." in done.stdout and "A `dead_letters` table:" in done.stdout
    assert sorted(home.path.rglob("*")) == before
    steps = json.loads(home.run("demo", "--json", TMPDIR=str(temporary)).stdout)["steps"]
    assert [step["exit"] for step in steps] == [0, 0, 0]
