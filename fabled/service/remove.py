"""Takes fabled's own files away for good, and says before what they weigh and what of it exists nowhere else.

Asking is left to the commands; the service is already gone by then.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass

from ..config import Places
from ..errors import AlreadyRunning, Refused, StorageFault
from ..store.files import Lock
from ..store.sole import Sole, sole

# What is ours in a folder that a person chose (FABLED_HOME); the platform's own `fabled` folders are ours as a whole.
_OURS = re.compile(
    r"(map\.db|ledger\.db|fabled\.log|fabled\.sock|last-stop|quick-failures)([.-].*)?"
    r"|vault|claude|watch|service\.log|fabled\.lock|\.fabled-.*"
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is kept on this machine."""

    folder: str
    name: str
    """what a person types to have it removed"""
    bytes: int
    vault_bytes: int
    sole: Sole


def holdings(places: Places) -> Holdings:
    folder = places.home or places.data
    weight = sum(_weight(one) for one in {places.data, places.state})
    only = sole(places.map_db, places.ledger_db, places.vault)
    name = os.path.basename(folder.rstrip("/")) or folder  # of `/` as well there is something to type
    return Holdings(folder, name, weight, _weight(places.vault), only)


def begun(places: Places) -> bool:
    """Whether fabled was ever at work in these folders: a folder that a person named by mistake has a `data` or a
    `config.toml` that may be anybody's."""
    if places.home is None:
        return os.path.isdir(places.data) or os.path.isdir(places.state)
    return any(os.path.lexists(one) for one in (places.map_db, places.ledger_db, places.lock, places.log_file))


def purge(places: Places) -> list[str]:
    """Remove all of it, under the instance lock; what was left because it is not ours, or lies behind a link. Raises
    AlreadyRunning, Refused or StorageFault."""
    if not begun(places):
        return []
    note = os.path.join(places.data, "claude", "installed.json")
    if os.path.exists(note):
        raise Refused("Claude Code still has the plugin of fabled; nothing was removed", "fabled claude uninstall")
    left = [target for one in (places.data, places.state, places.vault) if (target := _behind(one)) is not None]
    lock = Lock(places.lock)
    held = False
    if os.path.isdir(places.state):
        held = lock.acquire()
        if not held:
            owner = lock.owner()
            who = f"process {owner}" if owner else "another process"
            raise AlreadyRunning(f"{who} is at work on these files; nothing was removed", "stop it, then try again")
    try:
        # The index first, the lock's folder last: whatever interrupts this, what remains is of one piece.
        folders = dict.fromkeys((places.runtime, os.path.dirname(places.socket), places.data, places.state))
        for folder in folders:
            _clear(folder, whole=places.home is None and os.path.basename(folder) == "fabled")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(places.config_file)
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        raise StorageFault(f"not everything could be removed: {where}{fault.strerror or fault}", "try again") from None
    finally:
        if held:
            lock.release()
    for folder in (*folders, os.path.dirname(places.config_file), *([places.home] if places.home else [])):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            if not os.path.islink(folder):
                left.append(folder)
    return sorted(set(left))


def _behind(folder: str) -> str | None:
    """Where a folder of ours really lies, if a person put it elsewhere and left a link: only the link is ours."""
    return os.path.realpath(folder) if os.path.islink(folder) and os.path.isdir(folder) else None


def _clear(folder: str, *, whole: bool) -> None:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if not (whole or _OURS.fullmatch(name)) or name == "config.toml":
            continue
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _weight(folder: str) -> int:
    found = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(top, name)).st_size
    return found
