"""systemd's user manager: the unit in its folder, `systemctl --user`, and the trial of the sandbox.

What the files say is `unit`'s.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
from collections.abc import Mapping

from ..errors import FabledError
from . import unit
from .facts import Facts, NoManager
from .manager import Done, Run, State, home_of, put, run, take_away

NAME = "fabled.service"
LINGER = "/var/lib/systemd/linger"

_STATES = {
    "active": "running", "activating": "starting", "reloading": "reloading", "deactivating": "stopping",
    "failed": "failed",
}  # fmt: skip
_SHOWN = "LoadState,ActiveState,SubState,MainPID,Result,ExecMainStatus,ExecMainCode,NRestarts,StatusText,UnitFileState"


class Systemd:
    """The manager of the user who calls."""

    name = "systemd"

    def __init__(self, env: Mapping[str, str], run: Run = run) -> None:
        self._env = env
        self._run = run
        given = env.get("XDG_CONFIG_HOME", "")
        config = given if os.path.isabs(given) else os.path.join(home_of(env), ".config")
        self.path = os.path.join(config, "systemd", "user", NAME)
        self.sandbox_path = os.path.join(f"{self.path}.d", "sandbox.conf")

    def text(self, facts: Facts) -> bytes:
        return unit.unit(facts).encode()

    def sandbox_text(self, facts: Facts) -> bytes:
        return unit.sandbox(facts, self._env.get("XDG_RUNTIME_DIR")).encode()

    def _ask(self, *words: str) -> Done:
        return self._run(("systemctl", "--user", "--no-ask-password", *words))

    def _must(self, *words: str) -> Done:
        done = self._ask(*words)
        if done.status:
            raise FabledError(f"systemctl --user {' '.join(words)}: {done.said or f'status {done.status}'}", self.why())
        return done

    def reachable(self) -> None:
        done = self._ask("show-environment")
        if done.status == 0:
            return
        user = _user()
        if not self._env.get("XDG_RUNTIME_DIR"):
            hint = (
                f"log in as {user} itself instead of by su or sudo, or: loginctl enable-linger {user}, then "
                f"export XDG_RUNTIME_DIR=/run/user/{os.getuid()}; without systemd: fabled daemon, in the foreground"
            )
        else:
            hint = "fabled daemon runs in the foreground, under whatever starts programs here"
        raise NoManager(f"systemd's user manager does not answer: {done.said or 'no reason given'}", hint)

    def write(self, facts: Facts) -> bool:
        changed = put(self.path, self.text(facts))
        if os.path.exists(self.sandbox_path):
            changed = put(self.sandbox_path, self.sandbox_text(facts)) or changed
        self._must("daemon-reload")
        return changed

    def sandbox(self, facts: Facts) -> bool:
        """Put the drop-in in place; whether it changed."""
        changed = put(self.sandbox_path, self.sandbox_text(facts))
        self._must("daemon-reload")
        return changed

    def no_sandbox(self) -> bool:
        """Take the drop-in away; whether it was there."""
        if not take_away(self.sandbox_path):
            return False
        self._drop_folder()
        self._must("daemon-reload")
        return True

    def _drop_folder(self) -> None:
        with contextlib.suppress(OSError):  # it holds a person's own drop-ins, or is not there
            os.rmdir(os.path.dirname(self.sandbox_path))

    def sandbox_fails(self, facts: Facts) -> str:
        """Why the sandbox would not hold here; "" where it was tried and does.

        Some systems start a unit with these settings and change nothing, so it is tried with a process that writes to
        a folder that must be read-only and to one that must not be.
        """
        tried, _ = unit.properties(facts, self._env.get("XDG_RUNTIME_DIR"))
        inside, outside = facts.writable[0], os.path.dirname(self.path)
        name = f".fabled-trial-{secrets.token_hex(4)}"
        # Statuses of its own: 41 the sandbox does not hold, 42 it holds back what must be written.
        script = (
            '[ -d "$1" ] && [ -d "$2" ] || exit 43; (: > "$2") 2>/dev/null; if (: > "$2/$0") 2>/dev/null; then '
            'rm -f "$2/$0"; exit 41; fi; (: > "$1/$0") 2>/dev/null || exit 42; rm -f "$1/$0"'
        )
        settings = [f"--property={name_}={value}" for name_, value in tried.items()]
        done = self._run(
            ("systemd-run", "--user", "--wait", "--quiet", "--collect", *settings, "--", "/bin/sh", "-c",
             script.replace("$", "$$"), name, inside.replace("$", "$$"), outside.replace("$", "$$"))
        )  # fmt: skip
        match done.status:
            case 0:
                return ""
            case 41:
                return "it was accepted, but other folders could still be written"
            case 42:
                return f"{inside} could not be written from within it"
            case _:
                return "user namespaces are not to be had here" + (f" ({done.said})" if done.said else "")

    def verified(self) -> str:
        """What systemd's own checker says of the unit; "" for nothing, or where there is no checker."""
        with contextlib.suppress(NoManager):
            done = self._run(("systemd-analyze", "--user", "verify", self.path))
            lines = [line for line in done.err.splitlines() if NAME in line]
            return " ".join(lines)[:400]
        return ""

    def enable(self) -> None:
        self._must("enable", NAME)

    def start(self) -> None:
        self._ask("reset-failed", NAME)  # start limits count no start that a person asks for
        self._must("start", NAME)

    def stop(self) -> None:
        self._must("stop", NAME)

    def restart(self) -> None:
        self._ask("reset-failed", NAME)
        self._must("restart", NAME)

    def remove(self) -> list[str]:
        if os.path.exists(self.path):
            self._must("disable", "--now", NAME)
        gone = [path for path in (self.path, self.sandbox_path) if take_away(path)]
        self._drop_folder()
        if gone:
            self._ask("daemon-reload")
            self._ask("reset-failed", NAME)
        return gone

    def state(self) -> State:
        done = self._ask("show", NAME, f"--property={_SHOWN}")
        said = dict(line.partition("=")[::2] for line in done.out.splitlines())
        pid, status, code = (int(said.get(name) or 0) for name in ("MainPID", "ExecMainStatus", "ExecMainCode"))
        result = said.get("Result", "")
        return State(
            manager=self.name,
            path=self.path,
            installed=os.path.exists(self.path),
            enabled=said.get("UnitFileState") == "enabled",
            state="starting" if said.get("SubState") == "auto-restart" else _STATES.get(
                said.get("ActiveState", ""), "stopped"),
            pid=pid or None,
            exit_status=status if code and not pid else None,
            restarts=int(said.get("NRestarts") or 0),
            reason="" if result in ("", "success") else result,
            says=said.get("StatusText", ""),
            sandbox=os.path.exists(self.sandbox_path),
        )  # fmt: skip

    def why(self) -> str:
        return "journalctl --user -u fabled -n 20"

    def advice(self) -> str:
        user = _user()
        if os.path.exists(os.path.join(LINGER, user)):
            return ""
        return f"It stops when you log out of this machine for good. Keep it running: loginctl enable-linger {user}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "$USER"
