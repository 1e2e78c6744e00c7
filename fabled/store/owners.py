"""Which running clients a session belongs to, by the files they keep in `sessions/` of their folder.

Each client writes `<pid>.json` there and removes it when it ends, but not when it is killed. Whether an owner forbids
anything is left to the pruner.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"([1-9][0-9]{0,9})\.json")
_PROC = "/proc"


@dataclass(frozen=True, slots=True)
class Owner:
    """A client that runs now, or may run."""

    pid: int
    """0 where the folder itself could not be read"""
    session_id: str
    """"" where it could not be told: it may be any session"""
    status: str | None
    """`idle`, `busy`, `waiting` (a question is open) or a word unknown to us; None in versions that do not say, and in
    the first moments of a client's life"""
    file: str


def live(claude_folder: str, session_id: str) -> list[Owner]:
    """The running clients that have the session open, or may have: who cannot be told apart counts (when in doubt,
    refuse). Two clients may have one session open."""
    folder = os.path.join(claude_folder, "sessions")
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [Owner(0, "", None, folder)]
    found = (_owner(os.path.join(folder, name), int(match[1])) for name in names if (match := _NAME.fullmatch(name)))
    return [owner for owner in found if owner is not None and owner.session_id in ("", session_id)]


def _owner(path: str, pid: int) -> Owner | None:
    """The client a file speaks of, None when it is gone."""
    try:
        with open(path, "rb") as file:
            said = json.loads(file.read(1 << 20))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        said = None  # being written, or not to be read: its name still says which process
    facts: dict[str, Any] = said if isinstance(said, dict) else {}
    if not _alive(pid, facts):
        return None
    session, status = facts.get("sessionId"), facts.get("status")
    return Owner(pid, session if isinstance(session, str) else "", status if isinstance(status, str) else None, path)


def running(pid: int) -> bool:
    """Whether a process of that number is at work; one that only waits to be reaped is not."""
    return _alive(pid, {})


def _alive(pid: int, facts: dict[str, Any]) -> bool:
    """Whether the client still runs; True where that cannot be told.

    `procStart` is the start of the process in clock ticks after boot, as text: field 22 of /proc/<pid>/stat. A number
    that differs is another process with a number used again. `pidDomain` names machine and pid namespace: a number of
    another domain says nothing here.
    """
    domain = facts.get("pidDomain")
    if isinstance(domain, str) and (ours := _domain()) is not None and domain != ours:
        return True
    if not os.path.exists(os.path.join(_PROC, "self", "stat")):
        return _signalled(pid)
    try:
        with open(os.path.join(_PROC, str(pid), "stat"), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        state, start = fields[0], fields[19].decode()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, IndexError):
        return _signalled(pid)
    said = facts.get("procStart")
    ended = state in (b"Z", b"X", b"x")  # it waits to be reaped, and writes no more
    return not ended and (not isinstance(said, str) or not said.isdecimal() or said == start)


def _domain() -> str | None:
    """This machine and pid namespace as the client names them; None where that cannot be told."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            return f"linux:{file.read().strip()}:{os.readlink(os.path.join(_PROC, 'self', 'ns', 'pid'))}"
    except (OSError, ValueError):
        return None


def _signalled(pid: int) -> bool:
    """Whether a process of that number exists; no signal is sent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
