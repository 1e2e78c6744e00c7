"""Tells the service manager how the daemon is, where one asked to be told (sd_notify).

What to tell, and when, is left to `app`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time


def notify(*states: str) -> None:
    """Send states such as "READY=1". Nobody listening is no fault."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(1)
        manager.sendto("\n".join(states).encode(), address)


def ready(status: str) -> None:
    notify("READY=1", f"STATUS={status}")


def reloading() -> None:
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog_seconds() -> float | None:
    """How often the manager wants a sign of life from this process; None if it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2_000_000
    except (KeyError, ValueError):
        return None
