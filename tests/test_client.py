"""The fast path: light, bounded in time, and never wrong about who is at the socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabled.client import connect

ROOT = Path(__file__).parent.parent
HEAVY = {
    "apscheduler", "apsw", "click", "dataclasses", "enum", "json", "logging", "msgspec", "orjson", "platformdirs", "re",
    "rich", "selectors", "socket", "structlog", "subprocess", "threading", "typing", "watchdog",
}  # fmt: skip

Serve = Callable[[socket.socket], None]


def variables(home: Path, **more: str) -> dict[str, str]:
    """An environment of its own, with a service manager at work as far as that can be seen in it."""
    (home / "runtime" / "systemd").mkdir(parents=True, exist_ok=True)
    return {
        "XDG_RUNTIME_DIR": str(home / "runtime"),
        "FABLED_HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "HOME": str(home), "LANG": "C.UTF-8",
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more,
    }  # fmt: skip


def fabled(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a cold process of its own."""
    command = [sys.executable, "-m", "fabled", *arguments]
    return subprocess.run(command, env=variables(home, **more), capture_output=True, text=True, timeout=60)


@contextmanager
def listening(home: Path, serve: Serve | None) -> Iterator[list[bytes]]:
    """A listener at the daemon's place that treats each caller with `serve`; None accepts nobody."""
    path = connect.socket_path({"FABLED_HOME": str(home)})
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    asked: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8 if serve else 0)
    callers: list[socket.socket] = []

    def work() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            callers.append(caller)
            if serve is not None:
                asked.append(_line(caller))
                serve(caller)

    worker = threading.Thread(target=work) if serve else None
    if worker is not None:
        worker.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if worker is not None:
            worker.join()
        for caller in callers:
            caller.close()


def _line(caller: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = caller.recv(65536)
        if not more:
            break
        data += more
    return data


def answering(body: bytes, exit: int = 0) -> Serve:
    head = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"exit": exit, "bytes": len(body)}}).encode()
    return lambda caller: caller.sendall(head + b"\n" + body)


# ── light ───────────────────────────────────────────────────────────────────────────────────────────────────────

COUNT = """
import sys
sys.argv = ["fabled", *{arguments!r}]
from fabled.client.main import main
code = main()
sys.stdout.flush()
sys.stderr.write("\\n" + str(code) + " " + " ".join(sorted(sys.modules)))
"""


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"], ["status", "--oneline"]])
@pytest.mark.parametrize("running", [True, False])
def test_a_cold_status_imports_nothing_heavy(tmp_path: Path, arguments: list[str], running: bool) -> None:
    """Counted in a real process, with and without a daemon: modules, because milliseconds differ by machine."""

    def run() -> list[str]:
        code = COUNT.format(arguments=arguments)
        done = subprocess.run(
            [sys.executable, "-c", code], env=variables(tmp_path), capture_output=True, text=True, check=True
        )
        return done.stderr.splitlines()[-1].split()

    if running:
        with listening(tmp_path, answering(b"fine\n")):
            code, *modules = run()
    else:
        code, *modules = run()
    assert code == ("0" if running else "3")
    assert HEAVY & {name.split(".")[0] for name in modules} == set()
    ours = [name for name in modules if name.startswith("fabled")]
    lean = ["fabled", "fabled.client", "fabled.client.connect", "fabled.client.main", "fabled.client.streams"]
    assert ours == (lean if running else sorted([*lean, "fabled.client.absent"]))


# ── the exchange ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_daemons_bytes_pass_through_unchanged(tmp_path: Path) -> None:
    """Whatever they are, and however many: the client looks at the first line only."""
    body = bytes(range(256)) * 20_000
    with listening(tmp_path, answering(body)) as asked:
        command = [sys.executable, "-m", "fabled", "status", "--json"]
        done = subprocess.run(command, env=variables(tmp_path), capture_output=True, timeout=60)
    assert (done.returncode, done.stdout == body, done.stderr) == (0, True, b"")
    request = json.loads(asked[0])
    assert (request["method"], request["params"]["as"]["form"]) == ("status", "json")


def test_a_reply_may_come_in_any_pieces(tmp_path: Path) -> None:
    def dribble(caller: socket.socket) -> None:
        head = b'{"jsonrpc": "2.0", "result": {"bytes": 7, "exit": 1}, "id": 1}\n'
        for byte in head + b"in bits":
            caller.sendall(bytes([byte]))

    with listening(tmp_path, dribble):
        done = fabled(tmp_path, "status")
    assert (done.returncode, done.stdout) == (1, "in bits")


def test_the_exit_status_is_the_daemons(tmp_path: Path) -> None:
    with listening(tmp_path, answering(b"", exit=5)):
        assert fabled(tmp_path, "status").returncode == 5


def test_an_error_of_the_daemon_is_worded_by_the_command(tmp_path: Path) -> None:
    """The fast path does not know errors: the same request goes through the ordinary command."""
    error = {"code": -32000, "message": "the Map is being built", "data": {"code": "busy", "hint": "wait", "exit": 1}}
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode() + b"\n"
    with listening(tmp_path, lambda caller: caller.sendall(reply)) as asked:
        done = fabled(tmp_path, "status")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fabled: the Map is being built. Next: wait\n"
    assert len(asked) == 2


def test_the_reader_may_leave_early(tmp_path: Path) -> None:
    """`fabled status | head -0`: no complaint."""
    with listening(tmp_path, answering(b"x" * 1_000_000)):
        command = f"{sys.executable} -m fabled status | head -c 1"
        done = subprocess.run(["sh", "-c", command], env=variables(tmp_path), capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"x", b"")


@pytest.mark.parametrize("redirect", [">&-", "> /dev/full"])
def test_a_status_that_cannot_be_printed_is_one_line(tmp_path: Path, redirect: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with listening(tmp_path, answering(b"fine\n")):
        command = f"exec {sys.executable} -m fabled status {redirect}"
        done = subprocess.run(["sh", "-c", command], env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("fabled: the output could not be written: ")


# ── nobody there, or nobody who answers ─────────────────────────────────────────────────────────────────────────


START = "○ fabled is not running\n  Start it:  fabled service install\n  Try once:  fabled daemon\n"


def test_no_daemon_is_exit_3_and_says_what_to_do(tmp_path: Path) -> None:
    done = fabled(tmp_path, "status")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == START
    value = json.loads(fabled(tmp_path, "status", "--json").stdout)
    assert (value["v"], value["running"], value["error"]["code"]) == (1, False, "not_running")
    oneline = fabled(tmp_path, "status", "--oneline")
    assert (oneline.returncode, oneline.stdout, oneline.stderr) == (3, "not running\n", "")


@pytest.mark.skipif(sys.platform == "darwin", reason="the agent lies elsewhere there")
def test_an_installed_service_is_what_to_start(tmp_path: Path) -> None:
    unit = tmp_path / ".config" / "systemd" / "user" / "fabled.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    done = fabled(tmp_path, "status", HOME=str(tmp_path))
    assert done.stderr == "○ fabled is not running\n  Start it:  fabled service start\n"


@pytest.mark.skipif(
    os.path.isdir("/run/systemd/system") or sys.platform == "darwin", reason="a manager is at work here"
)
def test_where_no_service_manager_is_the_daemon_is_what_to_start(tmp_path: Path) -> None:
    done = fabled(tmp_path, "status", XDG_RUNTIME_DIR=str(tmp_path))
    assert done.stderr == "○ fabled is not running\n  Start it:  fabled daemon\n"


def test_ascii_where_the_locale_has_no_more(tmp_path: Path) -> None:
    assert fabled(tmp_path, "status", LANG="C").stderr.startswith("fabled is not running\n")


def test_the_last_stop_is_remembered(tmp_path: Path) -> None:
    """The note of a clean stop, else the time of the last line in the log; a note that is none is no matter."""
    (tmp_path / "state").mkdir()
    note = tmp_path / "state" / "last-stop"
    note.write_text(f"{time.time() - 7300} stopped by signal TERM\n")
    assert "  Last seen 2 h ago: stopped by signal TERM\n" in fabled(tmp_path, "status").stderr
    note.write_bytes(b"\xff\x00")
    assert fabled(tmp_path, "status").stderr == START
    log = tmp_path / "state" / "fabled.log"
    log.touch()
    os.utime(log, (time.time() - 90, time.time() - 90))
    assert "  Last seen 1 min ago\n" in fabled(tmp_path, "status").stderr


def test_a_stale_socket_means_not_running(tmp_path: Path) -> None:
    """A socket file whose owner was killed refuses; it is not the client that may remove it."""
    with listening(tmp_path, answering(b"")):
        pass
    assert (tmp_path / "run" / "fabled.sock").exists()
    assert fabled(tmp_path, "status").returncode == 3
    assert (tmp_path / "run" / "fabled.sock").exists()


@pytest.mark.parametrize("form", [[], ["--json"], ["--oneline"], ["--utc"]])
def test_a_daemon_that_never_answers_is_exit_1_within_the_deadline(tmp_path: Path, form: list[str]) -> None:
    """Accepting is not answering, and not answering is not "not running"; the socket stays."""
    with listening(tmp_path, lambda caller: None):
        began = time.monotonic()
        done = fabled(tmp_path, "status", *form)
        took = time.monotonic() - began
    assert done.returncode == 1
    assert "not running" not in done.stderr + done.stdout
    assert 1.9 < took < 10
    if form == ["--json"]:
        assert json.loads(done.stdout)["error"]["code"] == "not_answering"
    if form == ["--oneline"]:
        assert done.stdout == "not answering\n"
    assert "fabled: the daemon does not answer: no answer within 2 s. Next: " in done.stderr


def test_a_full_queue_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    """Nobody accepts: the kernel lets few callers wait and turns the others away at once."""
    with listening(tmp_path, None):
        waiting = []
        path = connect.socket_path({"FABLED_HOME": str(tmp_path)})
        while True:
            caller = socket.socket(socket.AF_UNIX)
            caller.setblocking(False)
            waiting.append(caller)
            try:
                caller.connect(path)
            except BlockingIOError:
                break
        done = fabled(tmp_path, "status")
        for caller in waiting:
            caller.close()
    assert done.returncode == 1 and "no answer within 2 s" in done.stderr


@pytest.mark.parametrize(
    "serve",
    [
        lambda caller: caller.shutdown(socket.SHUT_RDWR),
        lambda caller: (caller.sendall(b'{"result":{"exit":0,"bytes":10}}\nhalf'), caller.shutdown(socket.SHUT_RDWR)),
    ],
    ids=["at once", "in the middle"],
)
def test_a_daemon_that_goes_away_is_exit_1(tmp_path: Path, serve: Serve) -> None:
    with listening(tmp_path, serve):
        done = fabled(tmp_path, "status")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the connection ended in the middle of an answer" in done.stderr or "connection broke" in done.stderr


@pytest.mark.parametrize("reply", [b"garbage\n", b"[]\n", b'{"result":{}}\n', b"\xff\xfe\n", b'{"error":3}\n'])
def test_garbage_is_no_answer(tmp_path: Path, reply: bytes) -> None:
    """Whatever stands in for a reply, the client says so in one line."""
    with listening(tmp_path, lambda caller: caller.sendall(reply)):
        done = fabled(tmp_path, "status")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fabled: ") and done.stderr.count("\n") == 1


def test_the_short_folder_must_be_ours_alone(tmp_path: Path) -> None:
    """The fallback stands where everybody may write: a folder open to others is not trusted."""
    short = Path("/tmp") / f"fabled-test-{os.getpid()}"
    short.mkdir(mode=0o755)
    try:
        with pytest.raises(connect.Silent, match="not a private folder"):
            connect.ask(str(short / "x.sock"), b"{}\n", 1.0)
        short.chmod(0o700)
        with pytest.raises(connect.Down):
            connect.ask(str(short / "x.sock"), b"{}\n", 1.0)
    finally:
        short.rmdir()


# ── what the terminal can show ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, True),
        ({"LANG": "en_GB.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "fr_FR.ISO-8859-1"}, False),
        ({"LANG": "C", "LC_ALL": "en_US.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False),
    ],
)
def test_utf8_is_known_from_the_locale(env: dict[str, str], expected: bool) -> None:
    assert connect.utf8(env) is expected


def test_colour_and_width_follow_the_conventions() -> None:
    """NO_COLOR wins, FORCE_COLOR forces, else only a terminal that is not dumb; COLUMNS says the width."""
    parent, child = os.openpty()
    try:
        assert connect.colour({"TERM": "xterm"}, child)
        assert not connect.colour({"TERM": "dumb"}, child)
        assert not connect.colour({"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, child)
        assert connect.width({"COLUMNS": "132"}, child) == 132
        assert connect.width({"COLUMNS": "²"}, child) == 80
    finally:
        os.close(parent)
        os.close(child)
    with open(os.devnull, "wb") as nothing:
        assert not connect.colour({"TERM": "xterm"}, nothing.fileno())
        assert connect.colour({"FORCE_COLOR": "1"}, nothing.fileno())
        assert connect.width({}, nothing.fileno()) == 80
