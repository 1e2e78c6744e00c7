"""The daemon as a process: it finds what is written, survives what happens to it, and ends when told."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled.client import connect
from tests.daemon.help import Daemon, in_user_namespace, record, slow, transcript, until

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and inotify")


# ── finding what is written ─────────────────────────────────────────────────────────────────────────────────────


def test_appends_are_found_soon_however_they_come(daemon: Daemon) -> None:
    """A transcript appended to without pause is searchable all the while, and so is another beside it."""
    path = transcript(daemon.root, "busy", "a heron stands")
    daemon.start()
    assert daemon.hits("heron") == 1
    end = time.monotonic() + 3
    waits: list[float] = []
    pause = threading.Event()
    number = 0
    while time.monotonic() < end:
        number += 1
        with path.open("ab") as file:
            file.write(record("busy", number, f"mark{number}"))
        if number % 10 == 0:
            begun = time.monotonic()
            assert daemon.finds(f"mark{number}", seconds=3)
            waits.append(time.monotonic() - begun)
        pause.wait(0.03)
    assert len(waits) >= 2
    transcript(daemon.root, "calm", "a bittern booms")
    assert daemon.finds("bittern", seconds=3)


def test_a_burst_is_indexed_together(daemon: Daemon) -> None:
    """A thousand appends in one breath cost a few passes, not a thousand, and none is missed."""
    path = transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    scans = daemon.status()["scans"]
    with path.open("ab", buffering=0) as file:
        for number in range(1000):
            file.write(record("one", number + 1, f"burst {number}"))
    assert until(lambda: daemon.status()["records"] == 1001)
    assert daemon.status()["scans"] - scans < 30
    assert daemon.hits('"burst 999"') == 1


def test_new_nested_folders_lose_nothing(daemon: Daemon) -> None:
    """Files in folders made in the same breath are found, in every run."""
    daemon.root.mkdir(parents=True)
    daemon.start()
    for run in range(3):
        for number in range(40):
            folder = daemon.root / f"-q{run}-{number}" / f"s{number}" / "subagents"
            folder.mkdir(parents=True)
            (folder / f"agent-{number}.jsonl").write_bytes(record(f"{run}/{number}", 1, f"race{run}"))
        assert daemon.finds(f"race{run}", 40, seconds=5)


def test_reading_and_own_files_cause_no_work(folder: Path) -> None:
    """Others reading transcripts, and the daemon's own files below a watched root, cause no scan at all."""
    root = folder / "claude" / "projects"
    daemon = Daemon(folder, home=root / "fabled")
    try:
        files = [transcript(root, f"quiet {number}", f"a heron {number}") for number in range(30)]
        daemon.start()
        assert daemon.settled()
        # Young stamps prove nothing: let the files grow older than that before counting.
        assert until(lambda: daemon.ask("index")["scans"] == 0)
        before = daemon.status()
        assert before["records"] == 30
        for _ in range(20):
            for file in files:
                file.read_bytes()
            daemon.hits("heron")
        (daemon.home / "state" / "mine.jsonl").write_bytes(record("mine", 1, "a bittern"))
        (daemon.home / "data" / "new").mkdir()
        transcript(root, "fence", "a fence")
        assert daemon.finds("fence")
        after = daemon.status()
        assert (after["scans"], after["rescans"]) == (before["scans"] + 1, before["rescans"])
        assert after["records"] == 31
    finally:
        daemon.close()


def test_a_root_may_come_late_go_and_return(daemon: Daemon) -> None:
    """A root that is missing is waited for by name, found when it comes, and its absence is no deletion."""
    daemon.start()
    assert f"waiting for {daemon.root}" in daemon.warnings()["root_missing"]
    transcript(daemon.root, "first", "the first life")
    assert daemon.finds("first", seconds=5)
    assert "root_missing" not in daemon.warnings()
    shutil.rmtree(daemon.root)
    assert until(lambda: "root_missing" in daemon.warnings())
    assert daemon.ask("index")["vanished"] == 0
    assert daemon.hits("first") == 1
    transcript(daemon.root, "second", "the second life")
    assert daemon.finds("second", seconds=5)
    transcript(daemon.root, "second", "appended later")
    assert daemon.finds("appended", seconds=5)
    assert daemon.finds("first", 0)
    assert daemon.status()["vanished"] == 1
    assert "first" not in str(daemon.log())


def test_what_changed_while_it_was_down_is_found(daemon: Daemon) -> None:
    """Files with times long ago or far ahead, put in place while no daemon ran, are indexed at its start."""
    transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    assert daemon.stop() == 0
    for name, when in (("restored", 1_700_000_000), ("future", 4_102_444_800)):
        path = transcript(daemon.root, name, f"a fulmar {name}")
        os.utime(path, (when, when))
    daemon.start()
    assert daemon.hits("fulmar") == 2
    assert daemon.hits("heron") == 1


# ── when events fail ────────────────────────────────────────────────────────────────────────────────────────────


@linux
@pytest.mark.parametrize(("limit", "value"), [("max_inotify_watches", 3), ("max_inotify_instances", 0)])
def test_without_watches_it_looks_by_itself(folder: Path, limit: str, value: int) -> None:
    """Refused watches, it stays up, sweeps often, says why in the right words, and returns to events by itself."""
    if shutil.which("nsenter") is None:
        pytest.skip("nsenter, which raises the limit again, is not here")
    daemon = Daemon(folder, FABLED_WATCH_DEGRADED_SWEEP_SECONDS="1")
    wrapped = in_user_namespace(f"{limit}={value}", [])
    try:
        for number in range(12):
            transcript(daemon.root, f"s{number}", f"a grebe {number}", project=f"-p{number}")
        daemon.start(*wrapped)
        assert daemon.hits("grebe") == 12
        status = daemon.status()
        assert status["watcher"]["mode"] == "polling"
        said = daemon.warnings()["watcher"]
        assert f"fs.inotify.{limit.replace('max_inotify', 'max_user')} is {value}" in said and "sysctl" in said
        assert "disk" not in said and "space" not in said
        for number in range(12):
            transcript(daemon.root, f"s{number}", f"a merlin {number}", project=f"-p{number}")
        assert daemon.finds("merlin", 12, seconds=5)
        assert daemon.process is not None
        subprocess.run(
            ["nsenter", "-t", str(daemon.process.pid), "-U", "--preserve-credentials", "sh", "-c",
             f"echo 5000 > /proc/sys/user/{limit}"],
            check=True,
        )  # fmt: skip
        assert until(lambda: daemon.status()["watcher"]["mode"] == "events", 10)
        assert "watcher" not in daemon.warnings()
        assert {job["id"]: job["every_seconds"] for job in daemon.status()["jobs"]}["sweep"] == 600
        transcript(daemon.root, "s1", "an osprey", project="-p1")
        assert daemon.finds("osprey")
    finally:
        daemon.close()


@linux
def test_an_overflow_of_events_loses_nothing(daemon: Daemon) -> None:
    """More events than the kernel keeps, while the process is stopped: counted once, and all is found."""
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue > 100_000:
        pytest.skip(f"the kernel's queue holds {queue} events here; filling it takes too long")
    old = transcript(daemon.root, "old", "a heron stands")
    other = transcript(daemon.root, "other", "a bittern booms")
    daemon.start()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    with old.open("ab", buffering=0) as one, other.open("ab", buffering=0) as two:
        for _ in range(queue // 2 + 2000):
            one.write(b"\n")
            two.write(b"\n")
    new = transcript(daemon.root, "new", "made when nobody could tell", project="-new")
    transcript(daemon.root, "old", "the very last append")
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.finds('"very last append"')
    assert daemon.finds('"nobody could tell"')
    assert daemon.settled()
    status = daemon.status()
    assert status["overflow"] == 1
    assert status["rescans"] >= 1
    transcript(daemon.root, "new", "an osprey", project="-new")
    assert daemon.finds("osprey") and new.exists()


@linux
def test_runs_missed_in_sleep_are_run_once_and_counted(folder: Path) -> None:
    """Stopped over several due times, a job runs once on waking, and `status` counts what was missed."""
    daemon = Daemon(folder, FABLED_WATCH_SWEEP_SECONDS="1")
    try:
        daemon.root.mkdir(parents=True)
        daemon.start()
        assert until(lambda: daemon.status()["rescans"] >= 1)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGSTOP)
        before = daemon.log("index.everything")
        threading.Event().wait(3.2)
        daemon.process.send_signal(signal.SIGCONT)
        assert until(lambda: daemon.status()["missed_runs"] >= 2)
        assert until(lambda: len(daemon.log("index.everything")) > len(before))
        runs = len(daemon.log("index.everything")) - len(before)
        assert runs in (1, 2)  # the one that makes up for them, and perhaps the next
    finally:
        daemon.close()


# ── storage ─────────────────────────────────────────────────────────────────────────────────────────────────────

HOLD = """
import sys, apsw
held = apsw.Connection(sys.argv[1])
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the write lock of a Map."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.kill()


@slow
def test_a_long_lock_of_another_process(daemon: Daemon) -> None:
    """Held for longer than SQLite waits by itself: nothing is lost, reads go on, one warning tells how long."""
    path = transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    with locked(daemon.map_db):
        with path.open("ab") as file:
            for number in range(20):
                file.write(record("one", number + 1, f"locked out {number}"))
        assert until(lambda: "locked" in daemon.warnings(), 8)
        assert daemon.hits("heron") == 1
    assert until(lambda: daemon.status()["records"] == 21, 5)
    (said,) = daemon.log("storage.waited")
    assert said["level"] == "warning" and said["seconds"] >= 5
    assert not [line for line in daemon.log() if "exception" in line]


def begun(daemon: Daemon) -> None:
    """A Map that holds one session of two: the first index was cut short."""
    transcript(daemon.root, "two", "a bittern booms")
    path = transcript(daemon.root, "one", "a heron stands")
    assert daemon.command("index", str(path)).returncode == 0


def test_answers_say_that_the_first_index_is_under_way(daemon: Daemon) -> None:
    """Every answer, as text, as rows and as JSON, until everything was read once; then none, also after a restart."""
    begun(daemon)
    with locked(daemon.map_db):
        daemon.start(indexed=False)
        assert until(lambda: daemon.status()["indexing"] is not None)
        for command, status in (("search bittern --all", 1), ("search heron", 0), ("recent", 0), ("sessions", 0),
                                ("stats", 0), ("status --oneline", 0), ("status", 0)):  # fmt: skip
            done = daemon.command(*command.split())
            assert (done.returncode, done.stderr) == (status, ""), command
            assert "first index under way" in done.stdout.lower(), command
        assert "First index under way" in daemon.command("sessions", "--plain").stderr
        found = json.loads(daemon.command("search", "bittern", "--json").stdout)
        assert (found["results"], found["indexing"]["first"], found["indexing"]["under_way"]) == ([], True, True)
        missed = daemon.command("thread", "ffffffff", "--json")
        assert json.loads(missed.stdout)["error"]["indexing"]["first"] is True
        assert "Next: first index under way" in missed.stderr and "try again in a while" in missed.stderr
    assert daemon.finds("bittern") and daemon.settled()
    for _ in range(2):
        assert daemon.status()["indexing"] is None
        assert "indexing" not in daemon.ask("sessions")
        assert daemon.command("status", "--oneline").stdout.startswith("ok 2 sessions")
        daemon.stop()
        daemon.start()


def test_a_first_index_that_was_cut_short_is_told_without_a_daemon(daemon: Daemon) -> None:
    begun(daemon)
    said = "The first index was not finished; results are of what was read.  Go on with it:  fabled index\n"
    assert daemon.command("search", "bittern").stdout.endswith(said)
    assert "Next: the first index was not finished: fabled index" in daemon.command("thread", "ffffffff").stderr
    assert json.loads(daemon.command("sessions", "--json").stdout)["indexing"] == {"first": True, "under_way": False}
    assert daemon.command("index").returncode == 0
    assert "first index" not in daemon.command("search", "bittern").stdout


def test_the_end_does_not_wait_for_a_lock(daemon: Daemon) -> None:
    """With a write that hangs at another process's lock, SIGTERM ends the daemon in time and with success."""
    transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    with locked(daemon.map_db):
        transcript(daemon.root, "one", "written before the end")
        assert until(lambda: daemon.status()["queue"] == 1)
        assert daemon.stop(seconds=5) == 0
    assert not daemon.socket_path.exists()
    daemon.start()
    assert daemon.hits('"before the end"') == 1


def test_damage_is_mended_at_start_and_when_met(daemon: Daemon) -> None:
    """Full text that a torn write damaged is found out and built anew, before a start or under a running daemon."""
    path = transcript(daemon.root, "one", *(f"word{number} alpha beta" for number in range(1500)))
    daemon.start()
    words = [f"word{number}" for number in range(0, 1500, 100)]
    assert [daemon.hits(word) for word in words] == [1] * len(words)
    daemon.stop()
    damage = [
        sys.executable, "-c",
        "import sys, apsw; c = apsw.Connection(sys.argv[1]);"
        "c.execute('DELETE FROM fts_data WHERE id > 10 AND id % 2 = 0'); assert c.changes()",
        str(daemon.map_db),
    ]  # fmt: skip
    subprocess.run(damage, check=True)
    daemon.start()
    assert [daemon.hits(word) for word in words] == [1] * len(words)
    assert daemon.status()["fts_rebuilds"] == 1
    subprocess.run(damage, check=True)
    assert [daemon.hits(word) for word in words] == [1] * len(words)
    assert daemon.status()["fts_rebuilds"] == 2
    assert path.exists()


def test_a_map_of_garbage_is_put_aside(daemon: Daemon) -> None:
    """A Map that is no database any more is moved away and built anew; the Vault is not touched."""
    transcript(daemon.root, "one", "a heron stands")
    generation = daemon.home / "data" / "vault" / "-p" / "two" / "v0-raw.jsonl"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(record("two", 1, "kept in the vault"))
    daemon.start()
    assert daemon.hits("vault") == 1
    daemon.stop()
    before = generation.stat()
    with daemon.map_db.open("r+b") as file:
        file.write(b"garbage!" * 512)
    daemon.start()
    assert (daemon.hits("heron"), daemon.hits("vault")) == (1, 1)
    assert list(daemon.map_db.parent.glob("map.db.corrupt-*"))
    assert "rebuilt" in daemon.warnings()
    assert generation.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("part", ["front", "middle", "back"])
def test_a_map_damaged_within_is_put_aside(daemon: Daemon, part: str) -> None:
    """Garbage anywhere in a Map, met at the start or later at work, ends in a new Map with the same answers."""
    for number in range(40):
        transcript(daemon.root, f"s{number}", *(f"word{number} heron {one} " + "x " * 100 for one in range(20)))
    daemon.start()
    assert daemon.hits("word7") == 20
    daemon.stop()
    size = daemon.map_db.stat().st_size
    start = {"front": 4096, "middle": size // 3, "back": size * 2 // 3}[part]
    with daemon.map_db.open("r+b") as file:
        file.seek(start // 4096 * 4096)
        file.write(os.urandom(size // 3))
    daemon.start()
    for number in range(40):
        transcript(daemon.root, f"s{number}", f"appended{number}")
    assert until(lambda: daemon.status()["records"] == 840, 20)
    assert daemon.settled()
    assert [daemon.hits(f"word{number}") for number in range(40)] == [20] * 40
    assert [daemon.hits(f"appended{number}") for number in range(40)] == [1] * 40
    daemon.stop()
    checked = daemon.command("check")
    assert checked.returncode == 0, checked.stdout


def test_a_map_damaged_under_a_running_daemon_is_put_aside(daemon: Daemon) -> None:
    """Garbage in the Map met by a question or a change: both have their right answer in the end."""
    for number in range(40):
        transcript(daemon.root, f"s{number}", *(f"word{number} heron {one} " + "x " * 100 for one in range(20)))
    daemon.start()
    daemon.stop()
    daemon.start()
    size = daemon.map_db.stat().st_size
    with daemon.map_db.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    transcript(daemon.root, "late", "a bittern booms")

    def right() -> bool:
        try:
            return [daemon.hits(f"word{number}") for number in range(40)] == [20] * 40 and daemon.hits("bittern") == 1
        except AssertionError as told:
            assert "damaged" in str(told) or "index" in str(told)
            return False

    assert until(right, 20)
    assert "rebuilt" in daemon.warnings()
    daemon.stop()
    checked = daemon.command("check")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("what", ["map", "data"])
def test_a_map_removed_under_a_running_daemon_is_built_anew(daemon: Daemon, what: str) -> None:
    """Deleted while in use, alone or with the whole data folder, the Map is there again for the next question."""
    transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    assert daemon.hits("heron") == 1
    if what == "map":
        for path in daemon.map_db.parent.glob("map.db*"):
            path.unlink()
    else:
        shutil.rmtree(daemon.map_db.parent)
    assert daemon.hits("heron") == 1
    assert daemon.map_db.exists() and stat.S_IMODE(daemon.map_db.stat().st_mode) == 0o600
    transcript(daemon.root, "one", "a bittern booms")
    assert daemon.finds("bittern")
    assert "removed" in daemon.warnings()["rebuilt"]


@linux
def test_a_full_disk_is_waited_for(folder: Path) -> None:
    """With the disk full, the daemon stays up, says so, and goes on when there is room."""
    script = folder / "inside"
    script.write_text('mount -t tmpfs -o size=3m,mode=700 tmpfs "$1" && shift && exec "$@"')
    wrapped = ["unshare", "-Urm", "sh", str(script), str(folder / "home")]
    (folder / "home").mkdir()
    try:
        subprocess.run([*wrapped, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        pytest.skip(f"no small disk can be made here: {fault}")
    daemon = Daemon(folder)
    try:
        transcript(daemon.root, "one", "a heron stands")
        daemon.launch(*wrapped)
        assert daemon.process is not None
        # Its home is a disk of its own that only shows below the process.
        inside = Path(f"/proc/{daemon.process.pid}/root{daemon.home}")
        daemon.home = inside
        assert until(lambda: daemon.socket_path.exists() and daemon.finds("heron"), 20)
        fill = inside / "data" / "filler"
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        path = transcript(daemon.root, "one", *(f"bittern {number} " + "a b c " * 300 for number in range(200)))
        assert until(lambda: "disk_full" in daemon.warnings(), 10)
        assert daemon.hits("heron") == 1
        fill.unlink()
        assert until(lambda: daemon.status()["records"] == 201, 20)
        assert "disk_full" not in daemon.warnings() and path.exists()
        assert daemon.stop() == 0
    finally:
        daemon.close()


# ── one daemon, its socket, its files ───────────────────────────────────────────────────────────────────────────


def test_of_several_daemons_one_stays(daemon: Daemon) -> None:
    """Started at once, one of them runs and the others say that it does, and end with 3."""
    daemon.root.mkdir(parents=True)
    command = [sys.executable, "-m", "fabled", "daemon"]
    started = [
        subprocess.Popen(command, env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(5)
    ]
    try:
        assert until(lambda: [one.poll() for one in started].count(3) == 4, 30)
        assert [one.poll() for one in started].count(None) == 1
        assert until(daemon.socket_path.exists) and daemon.status()["running"]
        assert all("already running or busy" in one.stdout.read() for one in started if one.poll() == 3 and one.stdout)
    finally:
        for one in started:
            one.kill()
            one.wait()
            if one.stdout:
                one.stdout.close()


def test_after_a_kill_the_next_start_works(daemon: Daemon) -> None:
    """What a killed daemon leaves, its socket and its lock's file, stops nobody."""
    transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    daemon.stop(signal.SIGKILL)
    assert daemon.socket_path.exists()
    daemon.start()
    assert daemon.hits("heron") == 1


@pytest.mark.parametrize("kind", ["listens", "file", "folder"])
def test_what_lies_at_the_sockets_place_is_left_alone(daemon: Daemon, kind: str) -> None:
    """Somebody else's socket, file or folder there: exit 3, one clear line, nothing touched."""
    path = daemon.socket_path
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "listens":
            other.bind(str(path))
            other.listen(1)
        elif kind == "file":
            path.write_text("precious\n")
        else:
            path.mkdir()
        before = path.lstat()
        daemon.launch()
        code, said = daemon.exit()
        assert code == 3
        assert ("already running or busy" if kind == "listens" else "left alone") in said
        assert "Traceback" not in said and len(said.strip().splitlines()) == 1
        assert (path.lstat().st_ino, path.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert not daemon.map_db.exists()


@pytest.mark.parametrize("letters", ["a" * 150, "ü" * 60])
def test_a_socket_path_too_long_has_a_short_one(folder: Path, letters: str) -> None:
    """Two homes with paths too long for a socket have two sockets in a private folder; clients find their own."""
    daemons: list[Daemon] = []
    shared = Path(f"/tmp/fabled-{os.getuid()}")
    new: set[Path] = set()  # another run's sockets may come and go beside them
    try:
        for number in range(2):
            top = folder / letters / str(number)
            top.mkdir(parents=True)
            daemon = Daemon(top, XDG_RUNTIME_DIR=str(top / "run"))
            del daemon.env["FABLED_HOME"]
            daemon.home = top / ".local" / "state"
            daemon.launch()
            daemons.append(daemon)
            new.add(Path(connect.socket_path(daemon.env)))
        for daemon in daemons:

            def answer(daemon: Daemon = daemon) -> bool:
                assert daemon.process is not None
                done = daemon.command("status", "--json")
                return done.returncode == 0 and json.loads(done.stdout)["pid"] == daemon.process.pid

            assert until(answer, 20)
        assert len(new) == 2 and new <= set(shared.iterdir())
        assert all(len(os.fsencode(path)) <= 103 for path in new)
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700
        assert [daemon.stop() for daemon in daemons] == [0, 0]
        assert not set(shared.iterdir()) & new
    finally:
        for daemon in daemons:
            daemon.close()
        for path in new:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("umask", ["000", "022"])
def test_nobody_else_can_read_what_it_keeps(daemon: Daemon, umask: str) -> None:
    """Folders are 0700 and files at most 0600, whatever the umask, and where they lay open before."""
    generation = daemon.home / "data" / "vault" / "-p" / "two" / "v0-raw.jsonl"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(record("two", 1, "kept"))
    log = daemon.home / "state" / "fabled.log"
    log.parent.mkdir()
    log.write_text("")
    for path in (generation, log):
        path.chmod(0o666)
    for path in (daemon.home / "data", generation.parent, log.parent):
        path.chmod(0o777)
    transcript(daemon.root, "one", "a heron stands")
    daemon.start("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    assert daemon.hits("heron") == 1
    transcript(daemon.root, "one", "a bittern booms")
    assert daemon.finds("bittern")
    (daemon.home / "config.toml").write_text("")
    names = set()
    for place in ("data", "state", "run"):
        for top, folders, files in os.walk(daemon.home / place):
            assert stat.S_IMODE(os.lstat(top).st_mode) == 0o700, top
            for name in files:
                assert stat.S_IMODE(os.lstat(os.path.join(top, name)).st_mode) & 0o177 == 0, name
                names.add(name)
            del folders
    assert {"map.db", "map.db-wal", "ledger.db", "fabled.log", "fabled.sock", "fabled.lock", "v0-raw.jsonl"} <= names


def test_a_newer_map_is_left_alone(daemon: Daemon) -> None:
    """A Map of a newer version is neither read nor changed: exit 3."""
    daemon.map_db.parent.mkdir(parents=True)
    newer = "PRAGMA journal_mode=WAL; CREATE TABLE t(x); PRAGMA user_version=9999"
    script = "import sys, apsw; apsw.Connection(sys.argv[1]).execute(sys.argv[2]).fetchall()"
    subprocess.run([sys.executable, "-c", script, str(daemon.map_db), newer], check=True)
    before = hashlib.sha256(daemon.map_db.read_bytes()).digest()
    daemon.launch()
    code, said = daemon.exit()
    assert code == 3 and "newer" in said
    assert hashlib.sha256(daemon.map_db.read_bytes()).digest() == before
    assert not daemon.socket_path.exists()


def test_a_folder_it_may_not_write_is_one_clear_line(daemon: Daemon) -> None:
    """Where its home cannot be written the start says so and fails, without a traceback."""
    daemon.home.mkdir()
    (daemon.home / "data").write_text("a file where a folder should be")
    daemon.launch()
    code, said = daemon.exit()
    assert code not in (0, 3, 78)
    assert "Traceback" not in said and str(daemon.home / "data") in said
    assert len(said.strip().splitlines()) == 1


# ── signals and settings ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_and_leaves_word(daemon: Daemon, number: signal.Signals) -> None:
    """Both signals end it with success and leave nothing but what it keeps, and word of when and why."""
    transcript(daemon.root, "one", "a heron stands")
    daemon.start()
    begun = time.monotonic()
    assert daemon.stop(number) == 0
    assert time.monotonic() - begun < 3
    assert not daemon.socket_path.exists()
    assert not [name for name in os.listdir(daemon.map_db.parent) if name.endswith(("-wal", "-shm"))]
    when, why = (daemon.home / "state" / "last-stop").read_text().strip().split(" ", 1)
    assert abs(float(when) - time.time()) < 60
    assert why == f"stopped by signal {number.name.removeprefix('SIG')}"
    assert daemon.log("daemon.stopped")


def test_a_first_index_can_be_watched_stopped_and_goes_on(daemon: Daemon) -> None:
    """In the middle of a long first pass `status` answers at once, SIGTERM ends it soon, and the next start
    finishes what was begun."""
    filler = "lorem ipsum dolor sit amet " * 120
    for number in range(40):
        path = transcript(daemon.root, f"s{number}", project=f"-p{number}")
        texts = (record(f"s{number}", one, f"heron{number} {one} {filler}") for one in range(100))
        path.write_bytes(b"".join(texts))
    daemon.start(indexed=False)
    waits = []

    def under_way() -> bool:
        begun = time.monotonic()
        status = daemon.status()
        waits.append(time.monotonic() - begun)
        return bool(status["progress"] and status["progress"]["bytes_done"]) or status["records"] > 0

    assert until(under_way, 20)
    begun = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begun < 5
    assert max(waits) < 1
    daemon.start()
    assert until(lambda: daemon.status()["records"] == 40 * 100, 60)
    assert daemon.settled()
    daemon.stop()
    checked = daemon.command("check")
    assert checked.returncode == 0, checked.stdout


def test_settings_are_read_again_and_bad_ones_refused(daemon: Daemon) -> None:
    """SIGHUP and `reload` take over new roots; a faulty file changes nothing and is told of."""
    transcript(daemon.root, "one", "a heron stands")
    other = daemon.folder / "other"
    transcript(other, "two", "a bittern booms")
    daemon.start()
    config = daemon.home / "config.toml"
    config.write_text("[watch]\nquiet_second = 1\nsweep_seconds = -5\n")
    with pytest.raises(AssertionError) as told:
        daemon.ask("reload")
    assert "quiet_second" in str(told.value) and "sweep_seconds" in str(told.value)
    assert "config" in daemon.warnings()
    assert daemon.hits("heron") == 1
    config.write_text(f'roots = ["{daemon.root}", "{other}"]\n[watch]\nsweep_seconds = 300\n')
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.finds("bittern")
    assert "config" not in daemon.warnings()
    both = {str(daemon.root), str(other)}
    assert until(lambda: {root["path"] for root in daemon.status()["watcher"]["roots"]} == both)
    status = daemon.status()
    assert {job["id"]: job["every_seconds"] for job in status["jobs"]}["sweep"] == 300
    transcript(other, "two", "an osprey")
    assert daemon.finds("osprey")
    config.write_text("")
    assert daemon.ask("reload") == {"reloaded": True}
    assert daemon.finds("bittern", 0)
    assert daemon.hits("heron") == 1


def test_the_service_manager_is_told(daemon: Daemon) -> None:
    """Ready, alive, reloading and stopping are told where a service manager asked to be told."""
    address = daemon.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(20)
        daemon.env |= {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000"}
        heard: list[str] = []

        def hear(what: str) -> bool:
            while what not in heard:
                heard.extend(manager.recv(4096).decode().splitlines())
            heard.clear()
            return True

        daemon.root.mkdir(parents=True)
        daemon.start()
        assert daemon.process is not None
        assert hear("READY=1") and hear("WATCHDOG=1")
        daemon.process.send_signal(signal.SIGHUP)
        assert hear("RELOADING=1") and hear("READY=1")
        daemon.process.send_signal(signal.SIGTERM)
        assert hear("STOPPING=1")
        assert daemon.process.wait(5) == 0


def test_stacks_can_be_asked_for(daemon: Daemon) -> None:
    """SIGUSR1 writes what every OS thread is doing into the log, and the daemon goes on."""
    daemon.root.mkdir(parents=True)
    daemon.start()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGUSR1)
    log = daemon.home / "state" / "fabled.log"
    assert until(lambda: "writer.py" in log.read_text() and "app.py" in log.read_text())
    assert daemon.status()["running"]


# ── the socket, end to end ──────────────────────────────────────────────────────────────────────────────────────


def test_questions_over_the_socket(daemon: Daemon) -> None:
    """Each method answers as a value, and ready to print where that is asked for."""
    path = transcript(daemon.root, "one", "a heron stands", "a bittern booms")
    daemon.start()
    hello = daemon.ask("hello", protocol=1, version="x")
    assert daemon.process is not None
    assert (hello["protocol"], hello["pid"]) == (1, daemon.process.pid)
    assert "search" in hello["methods"]
    with pytest.raises(AssertionError, match="protocol 99"):
        daemon.ask("hello", protocol=99)
    (hit,) = daemon.ask("search", query="heron", all=True)["results"]
    assert daemon.ask("thread", id=hit["thread"])["turns"]
    (line, *_) = path.read_bytes().splitlines()
    assert daemon.ask("block", id=hit["uuid"])["copies"][0]["path"] == str(path)
    assert daemon.ask("block", id=hit["uuid"], raw=True) == line
    assert daemon.ask("block", id=hit["uuid"], **{"as": {"form": "raw"}}) == line
    assert len(daemon.ask("sessions")["sessions"]) == len(daemon.ask("projects")["projects"]) == 1
    assert [span["kind"] for span in daemon.ask("spans", path=str(path))["spans"]] == ["record", "record"]
    text = daemon.ask("search", query="heron", all=True, **{"as": {"form": "text", "color": False}})
    assert b"heron" in text.lower()
    value = json.loads(daemon.ask("search", query="heron", all=True, **{"as": {"form": "json"}}))
    assert value["v"] == 1 and value["total"] == 1
    for method, params in (("status", {}), ("sessions", {}), ("projects", {}), ("thread", {"id": hit["thread"]})):
        for form in ("text", "json"):
            assert daemon.ask(method, **params, **{"as": {"form": form}})
    with pytest.raises(AssertionError, match="not_found"):
        daemon.ask("thread", id="ffffffff")
    with pytest.raises(AssertionError, match="no parameter 'colour'"):
        daemon.ask("search", query="x", colour=True)


def test_a_stale_read_finds_out_what_happened(daemon: Daemon) -> None:
    """A record whose bytes are gone is told as stale, and the Map soon knows better."""
    path = transcript(daemon.root, "one", "a heron stands")
    daemon.env["FABLED_WATCH_QUIET_SECONDS"] = "60"
    daemon.env["FABLED_WATCH_MAX_WAIT_SECONDS"] = "60"
    daemon.start()
    (hit,) = daemon.ask("search", query="heron", all=True)["results"]
    path.write_bytes(record("one", 1, "a bittern, of another length altogether"))
    with pytest.raises(AssertionError, match="stale"):
        daemon.ask("block", id=hit["uuid"], raw=True)
    assert daemon.finds("bittern")


def test_changes_are_streamed_to_subscribers(daemon: Daemon) -> None:
    """Whoever subscribed hears of an indexed change, with its path and without its text."""
    daemon.root.mkdir(parents=True)
    daemon.start()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(str(daemon.socket_path))
        request = {"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": {"events": ["change"]}}
        line.sendall(json.dumps(request).encode() + b"\n")
        with line.makefile("rb") as answer:
            assert json.loads(answer.readline())["result"] == {"subscribed": True}
            path = transcript(daemon.root, "one", "a heron stands")
            said = answer.readline()
    event = json.loads(said)["params"]
    assert event["event"] == "change"
    assert any(str(path).startswith(told) for told in event["paths"])
    assert b"heron" not in said


def test_an_index_request_has_its_answer(daemon: Daemon) -> None:
    """`index` comes back when the Map is up to date, with the figures of the command line's contract."""
    daemon.env["FABLED_WATCH_QUIET_SECONDS"] = "60"
    daemon.env["FABLED_WATCH_MAX_WAIT_SECONDS"] = "60"
    daemon.root.mkdir(parents=True)
    daemon.start()
    path = transcript(daemon.root, "one", "a heron stands")
    value = daemon.ask("index", paths=[str(path)])
    keys = "files files_changed bytes_read records no_uuid unparsed pending_bytes threads seconds cpu_seconds"
    assert set(keys.split()) <= set(value)
    assert (value["files_changed"], value["records"]) == (1, 1)
    assert daemon.hits("heron") == 1


def test_status_lists_what_the_contract_lists(daemon: Daemon) -> None:
    """Every key that may be relied on is there, from the first moment on."""
    daemon.root.mkdir(parents=True)
    daemon.start(indexed=False)
    keys = """running pid version uptime_s rss_bytes sessions threads records queue scans rescans unparsed no_uuid
    vanished vanished_sessions overflow watcher_restarts missed_runs wal_bytes fts_rebuilds vault prune warnings
    watcher jobs last_change"""
    status = daemon.status()
    assert set(keys.split()) <= set(status)
    assert set(status["vault"]) >= {"generations", "bytes", "logical_bytes"}
    assert status["running"] is True and status["rss_bytes"] > 1_000_000


@linux
def test_it_is_one_process_that_sleeps(daemon: Daemon) -> None:
    """With nothing to do it has no children and uses no time, and what it logs holds no transcript's text."""
    transcript(daemon.root, "one", "unmistakable heron")
    daemon.start()
    assert daemon.settled()
    assert daemon.process is not None
    pid = daemon.process.pid

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    before = used()
    threading.Event().wait(1.5)
    assert used() - before <= 1
    assert "unmistakable" not in (daemon.home / "state" / "fabled.log").read_text()
