"""What several tests of the daemon need: waiting on conditions, and transcripts written by us."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

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
