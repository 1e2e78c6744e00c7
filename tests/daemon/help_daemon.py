"""What several tests of the daemon need: waiting on conditions, and transcripts written by us."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pytest


def until(condition: Callable[[], object], seconds: float = 10.0, every: float = 0.005) -> bool:
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
