"""The command line as other programs and people meet it: real processes, a real terminal, a home of one's own."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.build import Transcript, make_uuid

ROOT = Path(__file__).parent.parent
FOLDER = "-home-ana-app"

# What `index --json` must hold.
KEYS = {
    "v", "files", "files_changed", "bytes_read", "records", "no_uuid", "unparsed", "pending_bytes", "threads",
    "seconds", "cpu_seconds",
}  # fmt: skip


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

    def on_terminal(
        self,
        *arguments: str,
        interrupt_at: bytes | None = None,
        columns: int = 100,
        answer: tuple[bytes, bytes] | None = None,
        then: tuple[bytes, bytes] | None = None,
        rows: int = 0,
        **env: str,
    ) -> tuple[int, str]:
        """The command with a real terminal for all three streams; SIGINT when `interrupt_at` has been shown, and the
        second of `answer` typed when its first has been, then that of `then`."""
        parent, child = pty.openpty()
        if rows:
            fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {**self.env, "TERM": "xterm", "COLUMNS": str(columns), **env}
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
                if answer is not None and answer[0] in shown:
                    os.write(parent, answer[1])
                    answer, then = then, None
            return process.wait(60), shown.decode(errors="replace").replace("\r\n", "\n")
        finally:
            os.close(parent)
            process.kill()
            process.wait()


def harbour(session: str = "harbour") -> Transcript:
    """A short conversation with a tool call in it."""
    transcript = Transcript(make_uuid(session))
    transcript.user("Why do bookings after midnight land on the wrong day?")
    call = transcript.call("Bash", {"command": "sqlite3 dev.db .schema"})
    transcript.result(call, "CREATE TABLE bookings(created_at TEXT)")
    transcript.assistant("The report groups by the UTC date; convert to the harbour's zone first.")
    return transcript


def write_much(home: Home) -> None:
    filler = "what the tool said, over and over again. " * 60
    for name in range(6):
        transcript = Transcript(make_uuid(f"large {name}"))
        for number in range(250):
            transcript.user(f"prompt {number} of {name}")
            transcript.assistant(f"{number} {filler * 6}")
        home.write(transcript)


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
