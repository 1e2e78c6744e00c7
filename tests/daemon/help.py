"""What several tests of the daemon need: waiting on conditions, and transcripts written by us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest


def until(condition: Callable[[], object], seconds: float = 20.0, every: float = 0.005) -> bool:
    """Wait for a condition; False if it does not come in time."""
    end = time.monotonic() + seconds
    waiting = threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        waiting.wait(every)
    return True


def in_user_namespace(limit: str, command: list[str]) -> list[str]:
    """The command with a limit of /proc/sys/user (`max_inotify_watches=3`) for it alone; skips where forbidden."""
    name, value = limit.split("=")
    setting = f"/proc/sys/user/{name}"
    wrapped = ["unshare", "-Ur", "sh", "-c", f'echo {value} > {setting} && exec "$@"', "sh"]
    try:
        subprocess.run([*wrapped, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        pytest.skip(f"no user namespace with a limit of its own can be made here: {fault}")
    return [*wrapped, *command]


def record(session: str, number: int, text: str, **more: object) -> bytes:
    """One line of a transcript: a prompt that says `text`."""
    value = {
        "type": "user",
        "uuid": str(uuid5(NAMESPACE_URL, f"{session}/{number}/{text}")),
        "parentUuid": None,
        "sessionId": str(uuid5(NAMESPACE_URL, session)),
        "cwd": "/home/ana/app",
        "promptId": str(uuid5(NAMESPACE_URL, f"{session}/prompt {number}")),
        "timestamp": f"2026-03-02T10:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
        "message": {"role": "user", "content": text},
        **more,
    }
    return json.dumps(value).encode() + b"\n"


def transcript(root: Path, session: str, *texts: str, project: str = "-home-ana-app") -> Path:
    """A transcript with a prompt for each text; added to where it exists."""
    path = root / project / f"{uuid5(NAMESPACE_URL, session)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    first = path.read_bytes().count(b"\n") if path.exists() else 0
    with path.open("ab") as file:
        file.write(b"".join(record(session, first + number, text) for number, text in enumerate(texts)))
    return path


# ── a daemon ────────────────────────────────────────────────────────────────────────────────────────────────────

REPOSITORY = str(Path(__file__).parents[2])

slow = pytest.mark.skipif(
    not os.environ.get("FABLED_SLOW_TESTS"), reason="the long form of another test; FABLED_SLOW_TESTS=1 runs it"
)


class Daemon:
    """A real daemon process with a home and a client's folder of its own."""

    def __init__(self, folder: Path, *, home: Path | None = None, **env: str) -> None:
        self.folder = folder
        self.home = home or folder / "home"
        self.claude = folder / "claude"
        self.root = self.claude / "projects"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(filter(None, (REPOSITORY, os.environ.get("PYTHONPATH")))),
            "FABLED_HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.claude),
            "FABLED_WATCH_QUIET_SECONDS": "0.1",
            **env,
        }
        self.process: subprocess.Popen[str] | None = None

    @property
    def socket_path(self) -> Path:
        return self.home / "run" / "fabled.sock"

    @property
    def map_db(self) -> Path:
        return self.home / "data" / "map.db"

    def launch(self, *wrapped: str) -> subprocess.Popen[str]:
        """Start the process; `wrapped` is a command that runs its arguments."""
        command = [*wrapped, sys.executable, "-m", "fabled", "daemon"]
        self.process = subprocess.Popen(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self.process

    def start(self, *wrapped: str, indexed: bool = True) -> Daemon:
        """Start it and wait until it answers, and has done its first pass."""
        process = self.launch(*wrapped)

        def up() -> bool:
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            try:
                status = self.status()
            except OSError:
                return False
            return not indexed or (status["phase"] == "idle" and status["watcher"]["mode"] != "starting")

        assert until(up, 60, 0.02)
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 5.0) -> int:
        """End it and give its exit status; it must end in time."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            return process.wait(seconds)
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def exit(self, seconds: float = 20) -> tuple[int, str]:
        """Wait until it ends by itself: the exit status and what it said."""
        assert self.process is not None
        process, self.process = self.process, None
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise AssertionError(f"it still runs; it said: {said}") from None
        return process.returncode, said

    def ask(self, method: str, seconds: float = 10, **params: Any) -> Any:
        """A request over the socket and its result; raises AssertionError with the error otherwise."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(seconds)
            line.connect(str(self.socket_path))
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as answer:
                reply = json.loads(answer.readline())
                if isinstance(reply.get("result"), dict) and {"exit", "bytes"} == reply["result"].keys():
                    return answer.read(reply["result"]["bytes"])
        assert "error" not in reply, reply["error"]
        return reply["result"]

    def status(self) -> Any:
        return self.ask("status")

    def hits(self, query: str) -> int:
        """How many threads a word is found in."""
        return int(self.ask("search", query=query, all=True, limit=1)["total"])

    def finds(self, query: str, many: int = 1, seconds: float = 20) -> bool:
        """Whether a word comes to be found in so many threads in time."""
        return until(lambda: self.hits(query) == many, seconds, 0.02)

    def settled(self) -> bool:
        """Whether all work that waits is done in time."""
        return until(lambda: self.status()["queue"] == 0 and self.status()["phase"] == "idle", 60, 0.02)

    def warnings(self) -> dict[str, str]:
        """Warnings by code: message and hint."""
        return {one["code"]: f"{one['message']} / {one['hint']}" for one in self.status()["warnings"]}

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of the log, of one event or all. Lines that are no JSON are stack dumps."""
        lines = (self.home / "state" / "fabled.log").read_text().splitlines()
        values = [json.loads(line) for line in lines if line.startswith("{")]
        return [value for value in values if not event or value["event"] == event]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the same home."""
        command = [sys.executable, "-m", "fabled", *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def close(self) -> None:
        """End it however it is, and remove what it may have put outside of its folder."""
        if self.process is not None:
            with contextlib.suppress(Exception):
                self.stop(signal.SIGKILL)
