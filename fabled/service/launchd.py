"""launchd's domain of a user: the agent in its folder, and `launchctl`.

What the file says is `agent`'s; launchd has no start limits and restarts on every failure, so the daemon counts quick
failures itself (`daemon.starts`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from ..errors import FabledError
from . import agent
from .facts import Facts, NoManager
from .manager import Done, Run, State, home_of, put, run, take_away

GONE_SECONDS = 20.0
"""`bootout` answers before the process has ended; a `bootstrap` before that fails with an input/output error."""

_STATES = {"running": "running", "spawn scheduled": "starting", "not running": "stopped", "exited": "stopped"}


class Launchd:
    """The graphical session's domain of the user who calls."""

    name = "launchd"

    def __init__(self, env: Mapping[str, str], run: Run = run) -> None:
        self._run = run
        self.path = os.path.join(home_of(env), "Library", "LaunchAgents", f"{agent.LABEL}.plist")
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{agent.LABEL}"

    def text(self, facts: Facts) -> bytes:
        return agent.plist(facts)

    def _ask(self, *words: str) -> Done:
        return self._run(("launchctl", *words))

    def _must(self, *words: str) -> None:
        done = self._ask(*words)
        if done.status:
            raise FabledError(f"launchctl {' '.join(words)}: {done.said or f'status {done.status}'}", self.why())

    def reachable(self) -> None:
        done = self._ask("print", self._domain)
        if done.status:
            hint = "log in on the machine itself once: agents belong to a graphical session; or run fabled daemon"
            raise NoManager(f"launchd has no session of yours: {done.said or 'no reason given'}", hint)

    def write(self, facts: Facts) -> bool:
        os.makedirs(os.path.dirname(facts.log), mode=0o700, exist_ok=True)
        return put(self.path, self.text(facts))

    def enable(self) -> None:
        self._must("enable", self._target)

    def _loaded(self) -> bool:
        return self._ask("print", self._target).status == 0

    def start(self) -> None:
        if self._loaded():
            self._must("kickstart", self._target)
        else:
            self._must("bootstrap", self._domain, self.path)

    def stop(self) -> None:
        if not self._loaded():
            return
        self._must("bootout", self._target)
        end = time.monotonic() + GONE_SECONDS
        while self._loaded():
            if time.monotonic() > end:
                raise FabledError(f"launchd still has {agent.LABEL} after {GONE_SECONDS:g} s", self.why())
            time.sleep(0.1)

    def restart(self) -> None:
        """A changed agent is only read when it is loaded anew."""
        self.stop()
        self._must("bootstrap", self._domain, self.path)

    def remove(self) -> list[str]:
        self.stop()
        return [self.path] if take_away(self.path) else []

    def state(self) -> State:
        done = self._ask("print", self._target)
        said: dict[str, str] = {}
        for name, value in re.findall(r"^\s*([a-z ]+) = (.+)$", done.out, re.MULTILINE):
            said.setdefault(name, value)
        disabled = self._ask("print-disabled", self._domain).out
        pid = said.get("pid", "")
        last = re.match(r"-?\d+", said.get("last exit code", ""))
        running = _STATES.get(said.get("state", ""), "stopped")
        failed = running == "stopped" and last is not None and int(last[0]) != 0
        return State(
            manager=self.name,
            path=self.path,
            installed=os.path.exists(self.path),
            enabled=os.path.exists(self.path)
            and not re.search(rf'"{re.escape(agent.LABEL)}" => (true|disabled)', disabled),
            state="failed" if failed else running,
            pid=int(pid) if pid.isdecimal() else None,
            exit_status=int(last[0]) if last is not None and running != "running" else None,
            restarts=max(int(said["runs"]) - 1, 0) if said.get("runs", "").isdecimal() else None,
        )

    def why(self) -> str:
        return f"launchctl print {self._target}"

    def advice(self) -> str:
        return ""
