"""The Unix socket: takes requests in line by line and hands replies out, whatever a client does or fails to do.

What is asked and answered is left to whoever `answer` is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from fabled.daemon import protocol
from fabled.daemon.listen import peer_uid
from fabled.daemon.protocol import LINE_BYTES, Malformed, Request
from fabled.errors import FabledError, NotRunning

log = structlog.get_logger()

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Answer = Callable[[Request], "bytes | Future[bytes]"]
"""Makes the whole reply to a request, at once or later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost. All of them only matter for clients that misbehave."""

    connections: int = 64
    readers: int = 4
    line_seconds: float = 10.0
    """for a request line, from its first byte to its last"""
    stall_seconds: float = 120.0
    """for a reply of which the client takes nothing"""
    malformed: int = 20
    """lines that are no request"""
    subscriber_bytes: int = 1 << 20
    """events that a subscriber has not taken"""
    all_bytes: int = 256 << 20
    """replies that all clients together have not taken"""
    rest_seconds: float = 10.0
    """after so long without a request, an answering OS thread lets go of what it keeps for the next"""


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Client:
    """One connection: what has come, what is to go, and since when it stands still. Owned by the server's loop."""

    __slots__ = (
        "busy",
        "closed",
        "ended",
        "events",
        "got",
        "id",
        "last",
        "left",
        "line_since",
        "malformed",
        "out",
        "out_bytes",
        "searched",
        "socket",
        "subscribed",
        "watched",
    )

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.socket = connection
        self.got = bytearray()
        self.searched = 0
        """so far there is no end of a line in `got`"""
        self.line_since: float | None = None
        self.out: deque[memoryview] = deque()
        self.out_bytes = 0
        self.last = now
        """when something last went either way"""
        self.busy = False
        """a request is being answered"""
        self.id: str | int | None = None
        """of the request that is being answered"""
        self.ended = False
        """the client sends no more"""
        self.left: float | None = None
        """the last reply is out, or on its way; until then the rest of what comes is thrown away"""
        self.malformed = 0
        self.subscribed = False
        self.events: frozenset[str] | None = None
        self.watched = 0
        """what the selector was last told to look for"""
        self.closed = False


class Server:
    """Owner of all connections, in one OS thread that waits on all of them at once, and of a few that answer.

    No client is waited for: reading, thinking about a slow reply's rest, and closing all happen between others'.
    A request is handed to a lane of OS threads; its reply comes back through `_post`. One request of a
    connection is answered at a time, in order.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Answer,
        version: str,
        *,
        limits: Limits | None = None,
        left: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """`left` is called on each answering OS thread as it rests or ends, `failed` should the loop end by a fault."""
        self._listener = listener
        self._answer = answer
        self._version = version
        self._limits = limits or Limits()
        self._left = left
        self._failed = failed
        # Owned by the loop.
        self._selector = selectors.DefaultSelector()
        self._clients: set[_Client] = set()
        self._deaf_until: float | None = None
        # Left for the loop by other OS threads; `deque` takes and gives whole items.
        self._posts: deque[Callable[[], None]] = deque()
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._stopping = False
        self._loop_thread = threading.Thread(target=self._loop, name="server", daemon=True)
        self._lanes: dict[str, queue.SimpleQueue[tuple[_Client, Request] | None]] = {}
        self._workers: list[tuple[str, threading.Thread]] = []
        for lane, many in (("quick", 1), ("read", self._limits.readers)):
            self._lanes[lane] = queue.SimpleQueue()
            for number in range(many):
                name = f"server-{lane}-{number}"
                self._workers.append((lane, threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)))

    def start(self) -> None:
        """Answer from now on."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ear, selectors.EVENT_READ, self._heard)
        self._loop_thread.start()
        for _, worker in self._workers:
            worker.start()

    def stop(self, seconds: float = 1.0) -> bool:
        """Refuse what is not answered yet, give replies on their way a moment to arrive, and close everything.

        False if an OS thread is still at work on an answer, which nobody will get.
        """
        self._post(self._begin_stop)
        self._loop_thread.join(seconds + 1)
        for lane, _ in self._workers:
            self._lanes[lane].put(None)
        end = time.monotonic() + seconds
        for _, worker in self._workers:
            worker.join(max(0.0, end - time.monotonic()))
        return not any(worker.is_alive() for _, worker in self._workers)

    def publish(self, name: str, message: bytes) -> None:
        """Send an event to those who subscribed to its name."""

        def send() -> None:
            for client in [client for client in self._clients if client.subscribed]:
                if client.events is None or name in client.events:
                    self._send(client, message)
                    if client.out_bytes > self._limits.subscriber_bytes:
                        self._close(client)

        self._post(send)

    # ── lanes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, lane: str) -> None:
        waiting = self._lanes[lane]
        rested = True
        while True:
            try:
                item = waiting.get(timeout=None if rested else self._limits.rest_seconds)
            except queue.Empty:
                self._left()
                rested = True
                continue
            if item is None:
                break
            rested = False
            client, request = item
            reply = self._reply(request)
            if isinstance(reply, Future):
                reply.add_done_callback(
                    lambda done, client=client, request=request: self._finish(  # type: ignore[misc]
                        client, self._outcome(request, done)
                    )
                )
            else:
                self._finish(client, reply)
            del item, client, request, reply  # a long reply must not live until the next request
        self._left()

    def _reply(self, request: Request) -> bytes | Future[bytes]:
        try:
            return self._answer(request)
        except FabledError as fault:
            return protocol.error(request.id, fault)
        except Exception:
            log.exception("request.failed", method=request.method.name)
            return protocol.error(request.id, _internal())

    def _outcome(self, request: Request, done: Future[bytes]) -> bytes:
        fault = done.exception()
        if fault is None:
            return done.result()
        if isinstance(fault, FabledError):
            return protocol.error(request.id, fault)
        log.error("request.failed", method=request.method.name, exc_info=fault)
        return protocol.error(request.id, _internal())

    def _finish(self, client: _Client, reply: bytes) -> None:
        def finish() -> None:
            if client.closed or not client.busy:
                return
            client.busy = False
            if client.id is not None:
                self._send(client, reply)
            self._proceed(client)

        self._post(finish)

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────

    def _post(self, do: Callable[[], None]) -> None:
        self._posts.append(do)
        with contextlib.suppress(BlockingIOError, OSError):  # full: it will wake anyway; closed: nobody is left
            self._bell.send(b"!")

    def _heard(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._ear.recv(4096)) == 4096:
                pass

    def _loop(self) -> None:
        try:
            while not (self._stopping and not any(client.out for client in self._clients)):
                for key, events in self._selector.select(self._patience()):
                    key.data(events)
                while self._posts:
                    self._posts.popleft()()
                self._expire()
        except Exception:  # with nobody to answer, the process is of no use: whoever is told ends it
            log.exception("server.failed")
            self._failed()
        finally:
            for client in list(self._clients):
                self._close(client)
            self._selector.close()
            self._listener.close()
            self._ear.close()
            self._bell.close()

    def _begin_stop(self) -> None:
        self._stopping = True
        if self._deaf_until is None:
            self._selector.unregister(self._listener)
        self._deaf_until = None
        for client in list(self._clients):
            if client.busy:
                client.busy = False
                stopping = NotRunning("the daemon is stopping", "ask again after its next start")
                if client.id is not None:
                    self._send(client, protocol.error(client.id, stopping))
            client.left = time.monotonic() + 0.5
            if not client.closed:
                self._look(client)

    def _deadlines(self, client: _Client) -> list[float]:
        found = [] if client.left is None else [client.left]
        if client.line_since is not None and not client.busy:
            found.append(client.line_since + self._limits.line_seconds)
        if client.out:
            found.append(client.last + self._limits.stall_seconds)
        return found

    def _patience(self) -> float | None:
        """Until when nothing need be done unless something comes; None is for ever."""
        deadlines = [deadline for client in self._clients for deadline in self._deadlines(client)]
        if self._deaf_until is not None:
            deadlines.append(self._deaf_until)
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _expire(self) -> None:
        now = time.monotonic()
        for client in list(self._clients):
            if any(deadline <= now for deadline in self._deadlines(client)):
                self._close(client)
        if self._deaf_until is not None and self._deaf_until <= now:
            self._deaf_until = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _: int) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as fault:
                if fault.errno in _EXHAUSTED and not self._make_room():
                    # Listening on would only report the same connection again and again.
                    self._selector.unregister(self._listener)
                    self._deaf_until = time.monotonic() + 0.5
                    return
                continue
            connection.setblocking(False)
            try:
                foreign = peer_uid(connection) != os.geteuid()
            except OSError:
                foreign = True  # gone already
            if foreign or (len(self._clients) >= self._limits.connections and not self._make_room()):
                connection.close()
                continue
            client = _Client(connection, time.monotonic())
            self._clients.add(client)
            self._look(client)

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; False if all are being served."""
        idle = [client for client in self._clients if not client.busy and not client.out and not client.subscribed]
        if not idle:
            return False
        self._close(min(idle, key=lambda client: client.last))
        return True

    def _look(self, client: _Client) -> None:
        """Have the selector wait for what the client's state allows."""
        wanted = selectors.EVENT_WRITE if client.out else 0
        reads = client.subscribed or client.left is not None or not (client.busy or client.out)
        if reads and not client.ended:
            wanted |= selectors.EVENT_READ
        if wanted == client.watched:
            return
        if not client.watched:
            self._selector.register(client.socket, wanted, lambda events: self._ready(client, events))
        elif wanted:
            self._selector.modify(client.socket, wanted, self._selector.get_key(client.socket).data)
        else:
            self._selector.unregister(client.socket)
        client.watched = wanted

    def _ready(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not client.closed:
                self._read(client)
            if events & selectors.EVENT_WRITE and not client.closed:
                self._write(client)
                self._proceed(client)
        except Exception:  # a fault over one client's bytes ends that client, not the others
            log.exception("connection.failed")
            self._close(client)

    def _read(self, client: _Client) -> None:
        try:
            data = client.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            self._close(client)
            return
        if not data:
            client.ended = True
            if client.subscribed or client.left is not None:
                self._close(client)
                return
        elif not client.subscribed and client.left is None:
            client.last = time.monotonic()
            client.got += data
        self._proceed(client)

    def _proceed(self, client: _Client) -> None:
        """Take up the next request if there is a whole one and none is being answered."""
        while not (client.closed or client.busy or client.out or client.left is not None or client.subscribed):
            end = client.got.find(b"\n", client.searched)
            if end < 0 and len(client.got) <= LINE_BYTES:
                client.searched = len(client.got)
                if not client.got:
                    client.line_since = None
                elif client.line_since is None:
                    client.line_since = time.monotonic()
                if client.ended:
                    self._close(client)
                break
            if end < 0 or end > LINE_BYTES:
                self._refuse(client, Malformed(-32600, f"a request line is at most {LINE_BYTES} bytes"))
                self._leave(client)
                break
            line = bytes(client.got[:end])
            del client.got[: end + 1]
            client.searched = 0
            client.line_since = None
            self._take(client, line)
        if not client.closed:
            self._look(client)

    def _take(self, client: _Client, line: bytes) -> None:
        try:
            request = protocol.parse(line, self._version)
        except Malformed as fault:
            client.malformed += 1
            self._refuse(client, fault)
            if client.malformed >= self._limits.malformed:
                self._leave(client)
            return
        if request.method.lane == "stream":
            events = request.params.get("events")
            client.events = None if events is None else frozenset(events)
            client.subscribed = True
            client.got.clear()
            self._send(client, protocol.result(request.id, {"subscribed": True}))
            return
        client.busy, client.id = True, request.id
        self._lanes[request.method.lane].put((client, request))

    def _refuse(self, client: _Client, fault: Malformed) -> None:
        self._send(client, protocol.error(fault.id, fault))

    def _leave(self, client: _Client) -> None:
        """Say no more after this. What the client still sends is taken and dropped for a moment: to close with
        unread bytes would break the connection before the client has read why."""
        if client.closed:
            return
        client.got.clear()
        client.left = time.monotonic() + 2
        if not client.out:
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
        self._look(client)

    def _send(self, client: _Client, data: bytes) -> None:
        if client.closed:
            return
        if not client.out:
            client.last = time.monotonic()
        client.out.append(memoryview(data))
        client.out_bytes += len(data)
        self._write(client)
        while sum(other.out_bytes for other in self._clients) > self._limits.all_bytes:
            self._close(min((other for other in self._clients if other.out), key=lambda other: other.last))

    def _write(self, client: _Client) -> None:
        sent = 0
        try:
            while client.out and sent < 1 << 20:  # then it is the others' turn
                number = client.socket.send(client.out[0][: 1 << 18])
                sent += number
                client.out_bytes -= number
                if number == len(client.out[0]):
                    client.out.popleft()
                else:
                    client.out[0] = client.out[0][number:]
        except BlockingIOError:
            pass
        except OSError:
            self._close(client)
            return
        if sent:
            client.last = time.monotonic()
        if not client.out and client.left is not None:
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
        self._look(client)

    def _close(self, client: _Client) -> None:
        if client.closed:
            return
        client.closed = True
        self._clients.discard(client)
        if client.watched:
            self._selector.unregister(client.socket)
            client.watched = 0
        client.out.clear()
        client.got.clear()
        client.socket.close()


def _internal() -> FabledError:
    return FabledError("the daemon failed at this request", "see its log: fabled logs")
