"""Counts starts that ended badly and quickly, where the service manager does not: launchd restarts on every failure.

Everything else of a start is `app`'s.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from fabled import logs
from fabled.config import Places
from fabled.errors import FabledError

LIMIT = 5
WINDOW_SECONDS = 120.0

# Ended in order, so there is nothing to count; or asked for anew by a person.
_NOTE = "quick-failures"


def guarded(places: Places, run: Callable[[], int]) -> int:
    """Run the daemon. After five starts within two minutes that did not end well: a word in the log and status 0,
    which is the only thing that keeps launchd from starting it again.

    A start is counted when it begins, so that a process killed or crashed counts as well.
    """
    begun = _begun(places.state)
    if begun > LIMIT:
        return _give_up(places, "the last starts ended without a word")
    try:
        code = run()
        why = f"exit status {code}"
    except FabledError as fault:
        if begun < LIMIT:
            raise
        code, why = fault.exit, fault.message
    if code == 0:
        forget(places.state)
    elif begun >= LIMIT:
        return _give_up(places, why)
    return code


def forget(state_folder: str) -> None:
    """Count anew: the daemon ended well, or a person starts it."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(state_folder, _NOTE))


def _begun(state_folder: str) -> int:
    """Note this start; how many there were within the window, this one included."""
    now = time.time()
    path = os.path.join(state_folder, _NOTE)
    times = [now]
    try:
        with open(path, encoding="ascii") as file:
            times += [at for line in file if now - WINDOW_SECONDS < (at := float(line)) <= now]
    except (OSError, ValueError):
        pass  # the first, or not written by us
    with contextlib.suppress(OSError):  # an unwritable folder: then there is nothing to count in
        os.makedirs(state_folder, mode=0o700, exist_ok=True)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.writelines(f"{at:.3f}\n" for at in times)
        os.replace(path + ".new", path)
    return len(times)


def _give_up(places: Places, why: str) -> int:
    said = f"{LIMIT} starts failed within {WINDOW_SECONDS / 60:.0f} minutes, so no more are tried: {why}"
    line = {
        "level": "critical", "event": "daemon.gave_up", "reason": said[: logs.VALUE_BYTES],
        "timestamp": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    with contextlib.suppress(OSError):
        logs.RotatingFile(places.log_file).write(logs.dumps(line))
    with contextlib.suppress(OSError), open(os.path.join(places.state, "last-stop"), "w", encoding="utf-8") as file:
        file.write(f"{time.time():.0f} {' '.join(said.split())}\n")
    print(f"fabled: {said}. Next: correct that, then fabled service start", file=sys.stderr)
    return 0
