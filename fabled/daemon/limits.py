"""Says in words which limit of the system keeps folders from being watched, and what to do about it.

Noticing that a limit was met is left to the observer.
"""

from __future__ import annotations

import errno
import os

_LIMITS = {errno.ENOSPC: "watches", errno.EMFILE: "instances"}

# What the hint asks for: the value many distributions ship, and more than anyone's history has folders.
_PLENTY = {"watches": 524_288, "instances": 1024}


def is_limit(fault: OSError) -> bool:
    """Whether a refused watch is a matter of limits. ENOSPC does not mean the disk here."""
    return fault.errno in _LIMITS


def explain(fault: OSError, path: str = "", folders: int = 1) -> tuple[str, str]:
    """Why something cannot be watched, and what to do: (reason, hint)."""
    limit = _LIMITS.get(fault.errno or 0)
    if limit is None:
        return f"{path or 'the watcher'} cannot be watched: {fault.strerror or fault}", ""
    if limit == "instances" and _files_exhausted():
        return "this process may not open more files", "raise its limit of open files (ulimit -n)"
    name = f"fs.inotify.max_user_{limit}"
    value, binding = _binding(limit)
    reason = f"the system's limit of inotify {limit} is reached: {name} is {'unknown' if value < 0 else value}"
    if binding not in ("", name):
        reason += f" here, by {binding}"
    if folders > 1:
        reason += f"; {folders} folders are not watched"
    return reason, f"sudo sysctl {name}={max(_PLENTY[limit], 2 * value)}"


def _binding(limit: str) -> tuple[int, str]:
    """The value that holds and its name: a user namespace may have a lower one than the system; -1 if unknown."""
    found: list[tuple[int, str]] = []
    for name in (f"fs.inotify.max_user_{limit}", f"user.max_inotify_{limit}"):
        try:
            with open("/proc/sys/" + name.replace(".", "/"), encoding="ascii") as file:
                found.append((int(file.read()), name))
        except (OSError, ValueError):
            continue
    return min(found, key=lambda pair: pair[0], default=(-1, ""))


def _files_exhausted() -> bool:
    try:
        os.close(os.open("/", os.O_RDONLY))
    except OSError as fault:
        return fault.errno == errno.EMFILE
    return False
