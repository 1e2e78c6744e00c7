"""The command line with answers in it: from a running daemon, from the Map alone, and about the daemon itself."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled.client import absent
from tests.build import Transcript, make_uuid
from tests.shell import KEYS, Home, daemon, harbour, write_much


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# ── finding, with and without a daemon ──────────────────────────────────────────────────────────────────────────


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
    """What was said on stderr beside the one line that tells that no daemon runs; an error stands alone."""
    running = (home.path / "fabled/run/fabled.sock").exists()
    start = absent.start_line(home.env)
    note = f"fabled is not running: answered from the Map as it was last written (start it: {start})\n"
    assert (note in done.stderr) is not (running or done.stderr.startswith("fabled: "))
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


@pytest.mark.parametrize(
    "command", ["search basket", "sessions", "terms", "cards", "stats", "report", "recent", "file cart.py"]
)
def test_an_unknown_project_is_exit_1_with_those_near(answering: Home, command: str) -> None:
    """In every list: a line for people, on stderr where stdout is for programs, and the same as JSON."""
    done = answering.run(*command.split(), "--project", "shopp")
    assert (done.returncode, talk(answering, done)) == (1, "")
    assert "No project shopp is known.  Near:  /home/ana/shop\n" in done.stdout
    done = answering.run(*command.split(), "--project", "shopp", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["unknown"][0] == {
        "filter": "project", "value": "shopp", "near": ["/home/ana/shop"],
    }  # fmt: skip
    if command != "report":
        done = answering.run(*command.split(), "--project", "shopp", "--plain")
        assert (done.returncode, done.stdout) == (1, "")
        assert "No project shopp is known." in talk(answering, done)


def test_a_relative_project_is_the_callers(home: Home) -> None:
    """The daemon stands in another folder than whoever asks it."""
    (home.path / "one").mkdir()
    transcript = Transcript(make_uuid("one"), cwd=str(home.path / "one"))
    transcript.user("where is the kettle")
    home.write(transcript, str(home.path / "one").replace("/", "-").replace("_", "-").replace(".", "-"))
    with daemon(home):
        for name in ("./one", "one/", "."):
            done = home.run("sessions", "--project", name, "--json")
            assert done.returncode == int(name == "."), name


def test_results_come_as_lines_too(answering: Home) -> None:
    """`--json-lines` for programs that stream, `--plain` for those that cut."""
    lines = answering.run("search", "basket", "harbour's", "--json-lines").stdout.splitlines()
    assert {json.loads(line)["session_id"] for line in lines} == {make_uuid("harbour"), make_uuid("other")}
    rows = answering.run("search", "basket", "--plain").stdout.splitlines()
    assert len(rows) == 1 and rows[0].split("\t")[2] == "/home/ana/shop"


def test_a_regular_expression_goes_through_everything(answering: Home) -> None:
    """Whether a daemon runs or not, all threads are looked at, and an offset skips what was found."""
    done = answering.run("search", "--regex", "--all", "--json", "ba.ket")
    value = json.loads(done.stdout)
    assert (done.returncode, value["searched"]["complete"], value["total"]) == (0, True, 1)
    row = value["results"][0]
    assert {row["snippet"][start:end] for start, end in row["highlights"]} == {"basket"}
    assert answering.run("search", "--regex", "--all", "--offset", "1", "ba.ket").returncode == 1
    wrong = answering.run("search", "--regex", "(")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no regular expression" in wrong.stderr


def test_a_result_says_why_it_is_there(answering: Home) -> None:
    """--explain names the parts of the score, for people and for programs."""
    done = answering.run("search", "--all", "--explain", "basket cart")
    assert "words: basket" in done.stdout
    value = json.loads(answering.run("search", "--all", "--explain", "--json", "basket cart").stdout)
    assert value["parsed"]["words"] == ["basket", "cart"]
    assert set(value["results"][0]["explain"]["words"]) == {"basket", "cart"}


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


@pytest.mark.parametrize(
    "command", ["search x", "sessions", "projects", "recent", "overview", "stats", "terms", "cards"]
)
def test_an_empty_index_says_where_it_looks(home: Home, command: str) -> None:
    """Nothing found where there is nothing at all is no word about the question."""
    assert home.run("index").returncode == 0
    done = home.run(*command.split())
    said = "Nothing is indexed yet.  Where transcripts are looked for:  fabled config paths\n"
    assert (done.returncode, done.stdout.endswith(said)) == (1, True)
    assert json.loads(home.run(*command.split(), "--json").stdout)["empty"] is True


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


def test_a_terminal_sees_how_far_the_daemon_is(home: Home) -> None:
    """`index` waits for the daemon and shows the daemon's progress. (Events wait for quiet, so `index` is first.)"""
    home.env |= {"FABLED_WATCH_QUIET_SECONDS": "30", "FABLED_WATCH_MAX_WAIT_SECONDS": "60"}
    with daemon(home):
        write_much(home)
        code, shown = home.on_terminal("index")
    assert code == 0
    assert "indexing" in shown and "/6 files" in shown
    assert shown.rstrip().endswith("6 files, 3,000 records, 1,500 threads in the Map")


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
