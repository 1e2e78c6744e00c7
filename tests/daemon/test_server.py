"""The server on a real socket: whatever one client does, the others are answered."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from fabled.daemon import protocol
from fabled.daemon.listen import bind, claim
from fabled.daemon.protocol import LINE_BYTES, METHODS, Request
from fabled.daemon.server import Limits, Server
from fabled.errors import AlreadyRunning, ForeignSocket, NotFound, NotRunning
from tests.daemon.help import until


class Client:
    """The other end of a connection, taking lines out of it."""

    def __init__(self, path: Path, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def send(self, method: str, id: Any = 1, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def line(self) -> Any:
        line = self.file.readline()
        return json.loads(line) if line else None

    def ask(self, method: str, **params: Any) -> Any:
        self.send(method, **params)
        return self.line()

    def ended(self) -> bool:
        """Whether the server closed the connection, with nothing more to read."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class House:
    """A server with answers of our own: `search` waits for its gate, `block` is big, `thread` fails."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.gate = threading.Event()
        self.searching = 0
        self.jobs: list[tuple[Request, Future[bytes]]] = []
        self.clients: list[Client] = []
        self.let_go: list[str] = []
        claim(str(path), shared_folder=False)
        self.server = Server(bind(str(path)), self.answer, "1.2.3", limits=limits, left=self.left)
        self.server.start()

    def answer(self, request: Request) -> bytes | Future[bytes]:
        match request.method.name:
            case "search":
                self.searching += 1
                assert self.gate.wait(20)
            case "thread":
                raise NotFound("no such thread", "fabled search")
            case "spans":
                raise ZeroDivisionError("a fault of ours")
            case "block":
                return protocol.printed(request.id, 0, b"x" * 8_000_000)
            case "index":
                job: Future[bytes] = Future()
                self.jobs.append((request, job))
                return job
        return protocol.result(request.id, {"method": request.method.name})

    def left(self) -> None:
        self.let_go.append(threading.current_thread().name)

    def client(self, **options: Any) -> Client:
        self.clients.append(Client(self.path, **options))
        return self.clients[-1]

    def answers(self) -> bool:
        """Whether a newcomer is answered, and soon."""
        client = Client(self.path)
        begun = time.monotonic()
        try:
            return bool(client.ask("ping")["result"] == {"method": "ping"} and time.monotonic() - begun < 1)
        finally:
            client.close()

    def close(self) -> None:
        self.gate.set()
        self.server.stop()
        for client in self.clients:
            client.close()
        self.path.unlink(missing_ok=True)


Open = Callable[..., House]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Open]:
    opened: list[House] = []

    def open_(**limits: Any) -> House:
        opened.append(House(tmp_path / "run" / "fabled.sock", Limits(**limits)))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


# ── requests and replies ────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_is_answered(house: Open) -> None:
    """One line in, one line out, with the id it came with."""
    client = house().client()
    assert client.ask("ping", id="seven") == {"jsonrpc": "2.0", "id": "seven", "result": {"method": "ping"}}


def test_many_requests_in_one_breath_are_answered_in_order(house: Open) -> None:
    """Requests sent without waiting, whole or cut anywhere, are answered one by one in their order."""
    client = house().client()
    stream = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number for number in range(50))
    for at in range(0, len(stream), 17):
        client.socket.sendall(stream[at : at + 17])
    assert [client.line()["id"] for _ in range(50)] == list(range(50))


def test_a_client_that_only_listens_after_its_request_gets_its_reply(house: Open) -> None:
    """Closing the sending side after a request is a way to say that it was the last."""
    client = house().client()
    client.send("ping")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.line()["result"] == {"method": "ping"}
    assert client.ended()


def test_a_notification_is_done_but_not_answered(house: Open) -> None:
    """Without an id there is no reply; the next request's comes as usual."""
    one = house()
    client = one.client()
    client.socket.sendall(b'{"jsonrpc":"2.0","method":"index"}\n')
    client.send("ping", id=2)
    assert until(lambda: one.jobs)
    one.jobs[0][1].set_result(b"never sent\n")
    assert client.line()["id"] == 2


def test_faults_are_told_in_the_reply(house: Open) -> None:
    """A foreseeable fault keeps its code, hint and exit; one of ours says no more than that."""
    client = house().client()
    error = client.ask("thread", id=1)
    assert error["error"]["code"] == -32602
    error = Client.ask(client, "thread", id=1)
    client.socket.sendall(b'{"jsonrpc":"2.0","id":9,"method":"thread","params":{"id":"abcdef"}}\n')
    error = client.line()
    assert error["id"] == 9
    assert error["error"] == {
        "code": -32001,
        "message": "no such thread",
        "data": {"code": "not_found", "hint": "fabled search", "exit": 1},
    }
    client.socket.sendall(b'{"jsonrpc":"2.0","id":10,"method":"spans","params":{"path":"/x"}}\n')
    error = client.line()["error"]
    assert error["data"]["code"] == "failed" and "fault of ours" not in str(error)
    assert client.ask("ping")


def test_a_job_is_answered_when_it_is_done_and_blocks_nobody(house: Open) -> None:
    """More jobs under way than there are OS threads, and everybody else is still answered."""
    one = house()
    waiting = [one.client() for _ in range(20)]
    for client in waiting:
        client.send("index")
    assert until(lambda: len(one.jobs) == 20)
    assert one.answers()
    for request, job in one.jobs:
        job.set_result(protocol.result(request.id, "done"))
    assert all(client.line()["result"] == "done" for client in waiting)


def test_long_questions_do_not_delay_status(house: Open) -> None:
    """With every reader busy, quick questions are answered, and further long ones have their turn later."""
    one = house()
    searching = [one.client() for _ in range(10)]
    for client in searching:
        client.send("search", query="x")
    assert until(lambda: one.searching == 4)
    begun = time.monotonic()
    assert one.client().ask("status")["result"] == {"method": "status"}
    assert time.monotonic() - begun < 1
    one.gate.set()
    assert all(client.line()["result"] for client in searching)


def test_subscribers_hear_events_of_their_choice(house: Open) -> None:
    """An event goes to those who asked for its name, in order, until they leave."""
    one = house()
    all_, some, leaver = one.client(), one.client(), one.client()
    assert all_.ask("subscribe")["result"] == {"subscribed": True}
    assert some.ask("subscribe", events=["index"])["result"] == {"subscribed": True}
    assert leaver.ask("subscribe")["result"]
    leaver.close()
    for number in range(3):
        one.server.publish("change", protocol.event("change", {"number": number}))
    one.server.publish("index", protocol.event("index", {"files": 1}))
    assert [all_.line()["params"].get("number") for _ in range(4)] == [0, 1, 2, None]
    assert some.line()["params"] == {"event": "index", "files": 1}


# ── clients that misbehave ──────────────────────────────────────────────────────────────────────────────────────


def test_garbage_is_refused_in_words_and_in_the_end_no_more(house: Open) -> None:
    """Lines that are no request get an error each; whoever sends nothing else is left."""
    client = house(malformed=5).client()
    lines = [b"\x00\xff\xfe", b"[]", b"{}", b"GET / HTTP/1.1", b'{"jsonrpc":"2.0","id":3,"method":"fly"}']
    client.socket.sendall(b"\n".join(lines) + b"\n")
    assert [client.line()["error"]["code"] for _ in lines] == [-32700, -32600, -32600, -32700, -32601]
    assert client.ended()


def test_an_endless_line_is_refused(house: Open) -> None:
    """A line over the limit is told so and cut off, whole or still growing; one of the limit is fine."""
    one = house()
    fits = one.client()
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    fits.socket.sendall(message + b" " * (LINE_BYTES - len(message)) + b"\n")
    assert fits.line()["result"]
    for tail in (b"\n", b""):
        client = one.client()

        def flood(client: Client = client, tail: bytes = tail) -> None:
            with contextlib.suppress(OSError):  # cut off, as it should be
                client.socket.sendall(b"x" * (4 * LINE_BYTES) + tail)

        sender = threading.Thread(target=flood)
        sender.start()
        error = client.line()
        assert error["error"]["code"] == -32600 and str(LINE_BYTES) in error["error"]["message"]
        assert client.ended()
        sender.join()
    assert one.answers()


def test_silent_slow_and_vanished_clients_cost_nobody(house: Open) -> None:
    """Clients that say nothing, half a line, or go in the middle of everything: the rest is served."""
    one = house(line_seconds=0.3, connections=200)
    silent = [one.client() for _ in range(50)]
    halves = [one.client() for _ in range(20)]
    for client in halves:
        client.socket.sendall(b'{"jsonrpc":')
    for _ in range(20):
        gone = one.client()
        gone.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"search","params":{"query":"x"}}\n{"half')
        gone.close()
    assert one.answers()
    assert all(client.ended() for client in halves)
    one.gate.set()
    assert one.answers()
    assert all(client.ask("ping") for client in silent)


def test_a_dripping_client_is_cut_off(house: Open) -> None:
    """Sending a byte now and then does not win time for a line without end."""
    one = house(line_seconds=0.5)
    client = one.client()
    stop = time.monotonic() + 8
    pause = threading.Event()
    with pytest.raises(OSError):
        while time.monotonic() < stop:
            client.socket.sendall(b"x")
            pause.wait(0.02)
    assert one.answers()


def test_a_reader_that_takes_its_time_gets_everything(house: Open) -> None:
    """A big reply is given as fast as it is taken, and others are answered in between."""
    one = house()
    client = one.client(receive_buffer=4096)
    client.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"block","params":{"id":"abcdef"}}\n')
    head = client.line()
    assert head["result"] == {"exit": 0, "bytes": 8_000_000}
    taken = 0
    while taken < 8_000_000:
        data = client.file.read1(500_000)
        assert data
        taken += len(data)
        assert one.answers()
    assert client.ask("ping")["result"]


def test_a_reader_that_takes_nothing_is_dropped_after_a_while(house: Open) -> None:
    """A reply nobody fetches is kept for its time and not longer."""
    one = house(stall_seconds=0.3)
    client = one.client(receive_buffer=4096)
    client.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"block","params":{"id":"abcdef"}}\n')
    assert until(lambda: not one.server._clients)
    assert one.answers()


def test_unfetched_replies_are_bounded_together(house: Open) -> None:
    """When all unfetched replies are too much, the one not fetched for longest is given up."""
    one = house(all_bytes=20_000_000)
    greedy = [one.client(receive_buffer=4096) for _ in range(8)]
    for client in greedy:
        client.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"block","params":{"id":"abcdef"}}\n')
    assert until(lambda: len(one.server._clients) == 2)
    assert one.answers()


def test_a_subscriber_that_does_not_listen_is_dropped(house: Open) -> None:
    """Events for one who takes none are given up with him."""
    one = house(subscriber_bytes=100_000)
    deaf = one.client(receive_buffer=4096)
    deaf.send("subscribe")
    assert until(lambda: any(client.subscribed for client in one.server._clients))
    message = protocol.event("change", {"text": "x" * 10_000})
    for _ in range(100):
        one.server.publish("change", message)
    assert until(lambda: not one.server._clients)
    assert one.answers()


def test_the_idlest_connection_makes_room(house: Open) -> None:
    """Above the bound the connection idle for longest is closed; one that waits for its answer is not."""
    one = house(connections=8)
    busy = one.client()
    busy.send("index")
    assert until(lambda: one.jobs)
    idle = [one.client() for _ in range(7)]
    for client in idle:
        client.ask("ping")
    newer = [one.client() for _ in range(5)]
    assert all(client.ask("ping") for client in newer)
    assert all(client.ended() for client in idle[:5])
    assert all(client.ask("ping") for client in idle[5:])
    request, job = one.jobs[0]
    job.set_result(protocol.result(request.id, "done"))
    assert busy.line()["result"] == "done"


def test_out_of_descriptors_it_goes_on(house: Open) -> None:
    """With no descriptor left for a connection the server neither spins nor ends, and recovers."""
    one = house()
    held = one.client()
    assert held.ask("ping")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.open(os.devnull, os.O_RDONLY)]
    knockers = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare[0] + 30, hard))
        try:
            while True:
                spare.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        begun = time.process_time()
        for knocker in knockers:
            knocker.connect(str(one.path))
        threading.Event().wait(0.5)
        assert time.process_time() - begun < 0.4
    finally:
        for fd in spare:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for knocker in knockers:
            knocker.close()
    assert until(one.answers)


def test_an_idle_server_does_not_wake(house: Open) -> None:
    """With connections open and nothing said, the server comes to rest and stays there."""
    one = house()
    clients = [one.client() for _ in range(10)]
    assert all(client.ask("ping") for client in clients)
    selections = 0
    inner = one.server._selector.select

    def select(timeout: float | None = None) -> Any:
        nonlocal selections
        selections += 1
        return inner(timeout)

    one.server._selector.select = select  # type: ignore[method-assign]
    # The last answers may still be on their way back into the wait; then it rests, though ten clients are there.
    end = time.monotonic() + 10
    seen = -1
    while seen != selections:
        assert time.monotonic() < end, "it keeps waking"
        seen = selections
        threading.Event().wait(0.5)


def test_who_answered_lets_go_when_nothing_more_is_asked(house: Open) -> None:
    """Once after each time of work, and only those that worked."""
    one = house(rest_seconds=0.01)
    client = one.client()
    for times in range(1, 4):
        assert client.ask("ping")
        assert until(lambda times=times: len(one.let_go) == times)  # type: ignore[misc]
    assert set(one.let_go) == {"server-quick-0"}


# ── stopping ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stopping_tells_those_who_wait(house: Open) -> None:
    """Whoever waits for an answer at the end is told why there is none; the rest is closed at once."""
    one = house()
    waiting, idle = one.client(), one.client()
    assert idle.ask("ping")
    waiting.send("index", id=5)
    assert until(lambda: one.jobs)
    begun = time.monotonic()
    one.server.stop()
    assert time.monotonic() - begun < 2
    reply = waiting.line()
    assert reply["id"] == 5 and reply["error"]["data"]["code"] == NotRunning.code
    assert waiting.ended() and idle.ended()


# ── the socket's place ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask, socket and folder are closed to others, a folder that was open included."""
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o777)
    before = os.umask(0)
    try:
        claim(str(folder / "s"), shared_folder=False)
        bind(str(folder / "s")).close()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "s").stat().st_mode) == 0o600


def test_a_socket_nobody_listens_at_is_replaced(tmp_path: Path) -> None:
    """A socket file left by a killed process is no obstacle."""
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    claim(str(path), shared_folder=False)
    assert not path.exists()


@pytest.mark.parametrize("backlog", [0, 5])
def test_a_socket_somebody_listens_at_is_not_touched(tmp_path: Path, backlog: int) -> None:
    """Neither one that is accepted nor one whose queue is full proves anything stale."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as fills:
        listener.bind(str(path))
        listener.listen(backlog)
        if not backlog:
            fills.connect(str(path))
        before = path.lstat().st_ino
        with pytest.raises(AlreadyRunning, match="already running or busy"):
            claim(str(path), shared_folder=False)
        assert path.lstat().st_ino == before


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link", "pipe"])
def test_a_foreign_thing_at_the_place_is_left_alone(tmp_path: Path, kind: str) -> None:
    """Anything but a socket is somebody else's."""
    path = tmp_path / "run" / "s"
    path.parent.mkdir(mode=0o700)
    if kind == "file":
        path.write_text("precious\n")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    before = path.lstat()
    with pytest.raises(ForeignSocket, match="left alone"):
        claim(str(path), shared_folder=False)
    assert path.lstat().st_ino == before.st_ino
    assert kind != "file" or path.read_text() == "precious\n"


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_the_shared_folder_must_be_ours_alone(tmp_path: Path, kind: str) -> None:
    """In a place where everybody may write, a symlink or file is refused and an open folder closed."""
    folder = tmp_path / "fabled-1000"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    if kind == "open":
        claim(str(folder / "s"), shared_folder=True)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    else:
        with pytest.raises(ForeignSocket):
            claim(str(folder / "s"), shared_folder=True)


def test_a_foreign_users_folder_is_refused(tmp_path: Path) -> None:
    """A folder somebody else made for us is not trusted, whatever its mode."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    folder = tmp_path / "fabled-0"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(ForeignSocket):
        claim(str(folder / "s"), shared_folder=True)
    os.chown(folder, 0, 0)


def test_another_user_is_not_answered(house: Open) -> None:
    """Who may open the socket but is not its owner is cut off without a word."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    one = house()
    for folder in (one.path, *one.path.parents):
        if str(folder).startswith("/tmp/"):
            os.chmod(folder, 0o777)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as foreign:
                foreign.settimeout(5)
                foreign.connect(str(one.path))
                foreign.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
                os._exit(0 if foreign.recv(1) == b"" else 1)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert one.answers()


# ── the page that describes all this ────────────────────────────────────────────────────────────────────────────


def test_protocol_page_lists_what_there_is() -> None:
    """docs/PROTOCOL.md names every method and parameter with its kind, and nothing else."""
    page = (Path(__file__).parents[2] / "docs" / "PROTOCOL.md").read_text()
    assert f"protocol {protocol.PROTOCOL}" in page
    said: dict[str, dict[str, str]] = {}
    method = ""
    for line in page.splitlines():
        if line.startswith("### `"):
            method = line.split("`")[1]
            said[method] = {}
        elif line.startswith("## "):
            method = ""
        elif method and line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            said[method][cells[0].strip("`")] = cells[1]
    assert said == {
        name: {param.name: param.kind + (", required" if param.required else "") for param in method.params}
        for name, method in METHODS.items()
    }
