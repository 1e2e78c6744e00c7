"""What a unit or agent must say of this installation: how fabled is called, in which environment, where it writes.

The grammar of unit and agent is left to `unit` and `agent`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import fabled

from ..config import Config
from ..errors import FabledError, Refused

# What decides where fabled and the client keep things. A manager starts services without the shell's environment, so
# these are written down; settings belong into the configuration file, which client and service both read.
_PLACES = ("FABLED_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")

# Folders whose content goes away by itself.
_PASSING = ("/tmp/", "/var/tmp/", "/dev/shm/", "/.cache/", "/Caches/")


class NoManager(FabledError):
    """No service manager can be asked from here."""

    code = "no_manager"


@dataclass(frozen=True, slots=True)
class Facts:
    """All paths are absolute."""

    command: tuple[str, ...]
    """program and first arguments; `daemon` follows"""
    environment: tuple[tuple[str, str], ...]
    log: str
    """where a manager without a journal puts what the process prints"""
    runtime: str
    writable: tuple[str, ...]
    """folders that fabled writes to, for a sandbox"""
    version: str = fabled.__version__


def facts(config: Config, env: Mapping[str, str], command: tuple[str, ...] | None = None) -> Facts:
    """What holds for this installation and `env`. Raises Refused for a path that no unit can name."""
    places = config.places
    found = Facts(
        command=command or own_command(),
        environment=tuple((name, _absolute(env[name])) for name in _PLACES if env.get(name)),
        log=os.path.join(places.state, "service.log"),
        runtime=os.path.dirname(places.socket),
        # The client's folder as a whole: roots below it come and go, and a mount follows no new folder.
        writable=tuple(dict.fromkeys((places.data, places.state, places.claude, *config.roots))),
    )
    for text in (*found.command, found.log, found.runtime, *found.writable, *(v for _, v in found.environment)):
        if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) < 0xE000 for c in text):
            raise Refused(f"a service cannot be given the path {text!r}: it holds a control character or no UTF-8")
    return found


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def own_command() -> tuple[str, ...]:
    """How this installation is called from anywhere. `-P`: a folder `fabled` in the working folder is not meant."""
    script = os.path.join(os.path.dirname(sys.executable), "fabled")
    return (script,) if os.access(script, os.X_OK) else (sys.executable, "-P", "-m", "fabled")


def passing(command: tuple[str, ...]) -> bool:
    """Whether the program lies where things are cleaned away: an environment made for one run."""
    return any(part in command[0] for part in _PASSING)


def unsaid(env: Mapping[str, str]) -> list[str]:
    """Settings in the environment that will not reach a service."""
    return sorted(
        name for name in env if name.startswith("FABLED_") and name not in (*_PLACES, "FABLED_SERVICE") and env[name]
    )


def template(name: str) -> str:
    """A template as it is shipped: in the wheel beside this file, in a checkout below `service/`."""
    package = Path(fabled.__file__).parent
    for folder in (package / "service", package.parent / "service"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise Refused(f"the template {name} is not part of this installation", "install fabled anew")
