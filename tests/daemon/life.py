"""A simulated life around one daemon: sessions that grow, fork and compact, prunes, questions, reloads, sleeps, a root
that goes and returns, a disk that fills, clients that hang. What must hold afterwards is said by `test_life`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.build import Transcript, make_uuid
from tests.daemon.help import Daemon, until
from tests.keeping import FLOORS_OFF

FOUND_SECONDS = 15.0
OPEN_SESSIONS = 10
SETTINGS = FLOORS_OFF | {
    # No sweep comes to the help of an event that was missed.
    "FABLED_WATCH_SWEEP_SECONDS": "86400", "FABLED_WATCH_QUIET_SECONDS": "0.1", "FABLED_WATCH_MAX_WAIT_SECONDS": "1",
    "FABLED_CAPTURE_QUIET_SECONDS": "2",
    "FABLED_PRUNE_LEVEL": "gentle", "FABLED_PRUNE_QUIET_SECONDS": "0", "FABLED_PRUNE_IDLE_SECONDS": "0",
    "FABLED_PRUNE_PAUSE_SECONDS": "5", "FABLED_PRUNE_GROWN_BYTES": "20000", "FABLED_PRUNE_DRAIN_SECONDS": "1",
    "FABLED_PRUNE_MAX_GENERATIONS": "1000",
}  # fmt: skip


# ── a small disk ────────────────────────────────────────────────────────────────────────────────────────────────


class Disk:
    """A file system of its own at one folder, seen by what is run `inside` and through `seen`; ends with `close`.

    Not in a user namespace: from inside one the kernel does not tell who has files open, and nothing is pruned then.
    """

    def __init__(self, place: Path, megabytes: int) -> None:
        place.mkdir(parents=True, exist_ok=True)
        script = f'mount -t tmpfs -o size={megabytes}m,mode=700 tmpfs "$1" && echo mounted && exec cat'
        self._keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script, "sh", str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        self.mounted = self._keeper.stdout.readline() == b"mounted\n"
        self.inside = ["nsenter", "-t", str(self._keeper.pid), "-m", "--"]
        self.seen = Path(f"/proc/{self._keeper.pid}/root{place}")

    @classmethod
    def made(cls, place: Path, megabytes: int) -> Disk | None:
        """None where none can be made: without the right to mount."""
        if sys.platform != "linux" or not (shutil.which("unshare") and shutil.which("nsenter")):
            return None
        disk = cls(place, megabytes)
        if disk.mounted:
            return disk
        disk.close()
        return None

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        filler = self.seen / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                block = b"x" * (1 << 20)
                while True:
                    file.write(block)
            with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
                while True:
                    file.write(b"x" * 512)
            yield
        finally:
            filler.unlink()

    def close(self) -> None:
        self._keeper.communicate()


# ── what is written, and what the process looks like ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Wrote:
    """One record as it was appended."""

    session: str
    mark: str
    """a word that only this record and its copies in forks have"""
    raw: bytes

    @property
    def id(self) -> str:
        return f"L-{sha256(self.raw).hexdigest()[:16]}@{self.session}"


@dataclass
class Session:
    """One client's session: its transcript, and how many of its lines are in the file."""

    path: Path
    made: Transcript
    written: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at one time, seen from outside."""

    at: float
    rss: int
    anonymous: int
    descriptors: Counter[str]
    threads: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        said = Path(f"/proc/{pid}/status").read_text()
        names = ("VmRSS", "RssAnon", "Threads")
        rss, anonymous, threads = (int(said.split(f"{name}:", 1)[1].split(maxsplit=1)[0]) for name in names)
        return cls(time.monotonic(), rss << 10, anonymous << 10, descriptors(pid), threads)


def descriptors(pid: int) -> Counter[str]:
    """Open descriptors by what they are; sockets and the like by kind."""
    found: Counter[str] = Counter()
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found[re.sub(r":\[\d+\]$", "", os.readlink(f"{folder}/{name}"))] += 1
    return found


# ── the life ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Life:
    """One daemon, its clients, and all that was written. `round` is one piece of life."""

    daemon: Daemon
    disk: Disk | None
    seed: int
    wrote: list[Wrote] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """questions that were answered by a fault nobody expects"""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.root = self.daemon.root
        self.open: list[Session] = []
        self.hung: list[socket.socket] = []
        self._checked = 0
        self._number = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._awake = threading.Event()
        self._awake.set()
        self._beside = [threading.Thread(target=self._client), threading.Thread(target=self._asker)]

    @property
    def pid(self) -> int:
        assert self.daemon.process is not None
        return self.daemon.process.pid

    def begin(self) -> None:
        """Every kind of question was asked once by every reader, before it is first measured."""
        for _ in range(3):
            self.append(self.begun())
        self.arrived()
        askers = [threading.Thread(target=self._questions, args=(random.Random(n), 40)) for n in range(8)]
        for one in askers:
            one.start()
        for one in askers:
            one.join()
        self.sample()
        for one in self._beside:
            one.start()

    def round(self) -> None:
        """Each thing that happens in a life once, in any order, and then all that was written must be there."""
        things = [self.grow, self.fork, self.compact, self.prune, self.prune, self.sleep, self.reload, self.hang,
                  self.capture, self.undo, self.end_one, self.root_away, self.late_writer]  # fmt: skip
        if self.disk is not None:
            things.append(self.disk_full)
        self.rng.shuffle(things)
        for thing in things:
            self.did[thing.__name__] += 1
            self.append(self.any())
            thing()
        self.arrived()
        self.sample()

    def rest(self, most: int, seconds: float = 45) -> Sample:
        """The clients go, and the daemon comes to rest: until it needs no more than `most` bytes, or for so long; then
        it is as it was when it needed least."""
        self._awake.clear()
        for one in self.hung:
            one.close()
        self.hung.clear()
        self.arrived()
        assert self.daemon.settled()
        found = [Sample.of(self.pid)]

        def small() -> bool:
            found.append(min(found.pop(), Sample.of(self.pid), key=lambda one: one.rss))
            return found[0].rss <= most

        until(small, seconds, 0.1)
        self._awake.set()
        return found[0]

    def over(self) -> None:
        self._over.set()
        self._awake.set()
        for one in self._beside:
            if one.ident is not None:
                one.join()

    def sample(self) -> None:
        self.samples.append(Sample.of(self.pid))

    # Writing

    def begun(self) -> Session:
        """A new session, in one of some projects."""
        self._number += 1
        name = make_uuid(f"life {self.seed} {self._number}")
        project = self.rng.choice(("app", "site", "a b"))
        made = Transcript(name, cwd=f"/home/ana/{project}", salt=str(self._number))
        path = self.root / f"-home-ana-{project.replace(' ', '-')}" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        session = Session(path, made)
        self.open.append(session)
        return session

    def any(self) -> Session:
        while len(self.open) < 3:
            self.append(self.begun())
        return self.rng.choice(self.open)

    def say(self, session: Session, turns: int = 2) -> None:
        """A prompt, a call with a result that a prune can shorten, a reply; each with a mark."""
        made = session.made
        for _ in range(turns):
            made.user(f"ask {self.mark()} about herons")
            call = made.call("Read", {"file_path": f"/home/ana/app/{self.mark()}.py"})
            text = f"{self.mark()} " + "reed bed at low tide " * self.rng.randint(5, 300)
            made.result(call, text, toolUseResult={"file": {"content": text, "filePath": "/home/ana/app/x.py"}})
            made.assistant(f"done with {self.mark()}, the bittern is in the reeds")

    def mark(self) -> str:
        with self._lock:
            self.did["records"] += 1
            return f"mark{self.seed}x{self.did['records']}"

    def append(self, session: Session, turns: int = 2, fd: int | None = None) -> None:
        self.say(session, turns)
        self.write(session, fd)

    def write(self, session: Session, fd: int | None = None) -> None:
        """As the client: open, append, close, line by line."""
        for raw in session.made.lines[session.written :]:
            while fd is None:
                try:
                    own = os.open(session.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                except FileNotFoundError:  # the root is away
                    time.sleep(0.01)
                    continue
                os.write(own, raw + b"\n")
                os.close(own)
                break
            else:
                os.write(fd, raw + b"\n")
            found = re.search(rb"mark\d+x\d+", raw)
            self.wrote.append(Wrote(session.made.session, found[0].decode() if found else "", raw))
        session.written = len(session.made.lines)

    def _client(self) -> None:
        """A client beside all else that never rests for long, with a session after the other."""
        number = 0
        rng = random.Random(self.seed)
        while not self._over.is_set():
            number += 1
            name = make_uuid(f"busy {self.seed} {number}")
            path = self.root / "-home-ana-app" / f"{name}.jsonl"
            session = Session(path, Transcript(name, salt="busy"))
            for _ in range(60):
                self._awake.wait()
                self.append(session, 1)
                if self._over.wait(rng.random() * 0.3):
                    return

    # What is asked

    def _asker(self) -> None:
        rng = random.Random(-self.seed)
        while not self._over.is_set():
            self._awake.wait()
            self._questions(rng, 3)
            self._over.wait(0.05)

    def _questions(self, rng: random.Random, many: int) -> None:
        for _ in range(many):
            method, params = rng.choice(QUESTIONS)(rng, self)
            form = rng.choice(({}, {"as": {"form": "text"}}, {"as": {"form": "json"}}))
            try:
                self.daemon.ask(method, seconds=60, **params, **form)
                self.did["questions"] += 1
            except (AssertionError, OSError) as fault:
                # A prune that goes on beside the question may have moved what it would read, and searches by regular
                # expression stand back when many come at once.
                if not any(code in str(fault) for code in ("'stale'", "'busy'")):
                    self.faults.append(f"{method} {params}: {fault!r}")

    # What happens

    def grow(self) -> None:
        """Many sessions at once, in small steps."""
        for session in [*self.open, self.begun()]:
            self.append(session, self.rng.randint(1, 8))

    def fork(self) -> None:
        """A new session that begins with a copy of another's records."""
        source = self.any()
        fork = self.begun()
        records = source.made.records
        for record in records[: self.rng.randint(1, len(records))]:
            copy = record | {"sessionId": fork.made.session}
            if "uuid" in record:
                copy["forkedFrom"] = {"sessionId": source.made.session, "messageUuid": record["uuid"]}
            fork.made.put(copy)
            fork.made.last = record.get("uuid", fork.made.last)
        self.append(fork)

    def compact(self) -> None:
        session = self.any()
        session.made.compact(f"what was said so far, {self.mark()}")
        self.append(session, 6)

    def prune(self) -> None:
        session = self.any()
        self.append(session, 12)
        level = self.rng.choice(("gentle", "gentle", "standard", "aggressive"))
        self._verb("prune", session=session.made.session, level=level, apply=True)

    def late_writer(self) -> None:
        """A client that has the transcript open while it is replaced, and writes on to the old file."""
        session = self.any()
        self.append(session, 12)
        fd = os.open(session.path, os.O_WRONLY | os.O_APPEND)
        try:
            self._verb("prune", session=session.made.session, level="gentle", apply=True)
            self.append(session, 2, fd)
        finally:
            os.close(fd)
        self.append(session)

    def capture(self) -> None:
        self._verb("capture", sessions=[self.any().made.session])

    def undo(self) -> None:
        self._verb("undo", session=self.any().made.session, apply=True)

    def _verb(self, verb: str, **params: Any) -> bool:
        """Whether it was done; why it was refused is counted."""
        assert until(lambda: self.known(params), FOUND_SECONDS), f"{verb} {params}: a session nobody knows"
        try:
            value = self.daemon.ask(verb, seconds=60, **params)
        except AssertionError as fault:
            code = re.search(r"'code': '([a-z_]+)'", str(fault))
            self.did[f"{verb}: {code[1] if code else fault}"] += 1
            return False
        except TimeoutError:
            raise AssertionError(f"{verb}: no answer; {self.told()}") from None
        codes = {one["code"] for one in value.get("refused") or ()}
        for code in codes or {"done"}:
            self.did[f"{verb}: {code}"] += 1
        return not codes

    def told(self) -> str:
        """Where the daemon stands, for whoever looks into why it does not answer."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.5)
        log = (self.daemon.home / "state" / "fabled.log").read_text().splitlines()[-120:]
        return "\n".join((str(self.daemon.status()), str(self.used()), *log))

    def used(self) -> dict[str, int]:
        """Bytes of the home, by folder and kind of file."""
        found: Counter[str] = Counter()
        for path in self.daemon.home.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    name = "vault" if "vault" in path.parts else path.name
                    found[name] += path.stat().st_size
        return dict(found)

    def known(self, params: dict[str, Any]) -> bool:
        names = {params.get("session"), *params.get("sessions", ())} - {None}
        value = self.daemon.ask("sessions", limit=10_000)
        return names <= {one["session_id"] for one in value["sessions"]}

    def end_one(self) -> None:
        """Old sessions are left; once kept, the client's clean-up removes some of their transcripts."""
        while len(self.open) > OPEN_SESSIONS:
            session = self.open.pop(self.rng.randrange(len(self.open)))
            if self.rng.random() < 0.5 and self._verb("capture", sessions=[session.made.session]):
                self.did["cleaned up"] += 1
                session.path.unlink()

    def sleep(self) -> None:
        """The machine sleeps: the daemon does nothing, and much has changed when it wakes."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            for session in self.open:
                self.append(session, 1)
            self.append(self.begun())
            self._over.wait(self.rng.random())
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def root_away(self) -> None:
        """Its disk is taken out, written to elsewhere, and put back."""
        away = self.root.with_name("away")
        self.root.rename(away)
        assert until(lambda: "root_missing" in self.daemon.warnings()), "nobody saw the root go"
        session = self.any()
        elsewhere = Session(away / session.path.relative_to(self.root), session.made, session.written)
        self.append(elsewhere)
        session.written = elsewhere.written
        away.rename(self.root)
        assert until(lambda: "root_missing" not in self.daemon.warnings()), "nobody saw the root return"

    def disk_full(self) -> None:
        """Changes wait, questions are answered, and all goes on when there is room."""
        assert self.disk is not None
        with self.disk.full():
            for _ in range(50):
                self.append(self.any(), 6)
                if until(lambda: "disk_full" in self.daemon.warnings(), 0.5):
                    self.did["disk full noticed"] += 1
                    break
            assert self.daemon.ask("search", query="bittern", all=True)["total"]

    def reload(self) -> None:
        """By signal and by request; a bad file keeps the old settings."""
        config = self.daemon.home / "config.toml"
        config.write_text(f"[watch]\nheartbeat_seconds = {self.rng.randint(1, 9)}\n")
        os.kill(self.pid, signal.SIGHUP)
        self.daemon.ask("reload")
        config.write_text("[watch]\nheartbeat_second = 3\n")
        with contextlib.suppress(AssertionError):
            self.daemon.ask("reload")
            raise RuntimeError("a bad file was taken")
        config.write_text("")
        self.daemon.ask("reload")

    def hang(self) -> None:
        """Clients that say nothing, half of a line, nonsense, or take nothing of what they asked for; some leave."""
        ask = {name: json.dumps({"jsonrpc": "2.0", "id": 1, "method": name}).encode() + b"\n" for name in ASKED}
        for data in (b"", b"", b'{"jsonrpc":', b"nonsense\n" * 5, ask["report"] * 500, ask["subscribe"]):
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            one.connect(str(self.daemon.socket_path))
            with contextlib.suppress(OSError):
                one.send(data)
            self.hung.append(one)
            self.did["hung clients"] += 1
        for _ in range(3):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as gone:
                gone.connect(str(self.daemon.socket_path))
                gone.sendall(ask["report"])
        while len(self.hung) > 60:
            self.hung.pop(self.rng.randrange(len(self.hung))).close()

    def arrived(self) -> None:
        """Everything written since the last time is found by its mark, soon; what is not was missed."""
        wrote, self._checked = self.wrote[self._checked :], len(self.wrote)
        end = time.monotonic() + FOUND_SECONDS
        for one in wrote:
            if one.mark and not until(lambda one=one: self.daemon.hits(one.mark), end - time.monotonic(), 0.05):  # type: ignore[misc]
                self.missed.append(one.mark)


Question = Callable[[random.Random, Life], tuple[str, dict[str, Any]]]
ASKED = ("report", "subscribe")
WORDS = ("heron", "bittern reeds", '"low tide"', "file:*.py bittern", "tool:Read reed", "nowhere")
QUESTIONS: tuple[Question, ...] = (
    *(lambda rng, life, sort=sort: ("search", {"query": rng.choice(WORDS), "all": True, "sort": sort})
      for sort in ("rank", "time")),
    lambda rng, life: ("search", {"query": rng.choice(life.wrote).mark or "heron", "all": True}),
    lambda rng, life: ("search", {"query": "bit+ern", "all": True, "regex": True}),
    lambda rng, life: ("search", {"query": "low tide", "all": True, "exact": True}),
    lambda rng, life: ("recent", {"all": True}),
    lambda rng, life: ("overview", {}),
    lambda rng, life: ("file", {"path": "/home/ana/app/x.py"}),
    lambda rng, life: ("status", {}),
    lambda rng, life: ("sessions", {"limit": 20}),
    lambda rng, life: ("projects", {}),
    lambda rng, life: ("generations", {}),
    lambda rng, life: ("stats", {"by": rng.choice(("project", "day"))}),
    lambda rng, life: ("report", {}),
    lambda rng, life: ("cards", {"limit": 5}),
    lambda rng, life: ("recall", {"what": "search", "query": rng.choice(WORDS), "all": True}),
    lambda rng, life: ("recall", {"what": "session-start", "cwd": "/home/ana/app"}),
)  # fmt: skip


def live_lines(root: Path) -> Iterator[tuple[str, bytes]]:
    """(session, line) of all live transcripts."""
    for path in root.rglob("*.jsonl"):
        for raw in path.read_bytes().splitlines():
            yield path.stem, raw
