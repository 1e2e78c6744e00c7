"""How the plugin stands with Claude Code: what the settings say, what lies in its folder, whether its commands answer.

Putting it there and taking it away is `plugin`'s; here everything is only looked at and tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fabled
from fabled.cli import plugin
from fabled.client.hook import DEADLINE_SECONDS
from fabled.errors import FabledError

TRIAL_SECONDS = 5.0
SLOW_MS = 1000 * (DEADLINE_SECONDS + 0.05)
"""A hook that takes longer has met its own deadline: the machine was busy, or the daemon is."""

_START = {"hook_event_name": "SessionStart", "source": "startup", "cwd": "/"}
_HELLO = (
    {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
    {"id": 2, "method": "tools/list"},
)


@dataclass(frozen=True, slots=True)
class Trial:
    """How one of the plugin's commands fared: `ms` from start to end, or `why` it gave no good answer."""

    ms: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What was found. The trials are None where there is nothing to try."""

    trouble: str = ""
    """why the client's settings tell nothing"""
    named: bool = False
    """the settings name our folder"""
    enabled: bool = False
    hooks_off: bool = False
    """the person has switched off all hooks"""
    there: bool = False
    """the folder is there"""
    version: str | None = None
    """of the plugin that lies in it"""
    current: bool = False
    """it holds what this installation would write"""
    hook: Trial | None = None
    mcp: Trial | None = None

    @property
    def installed(self) -> bool:
        return self.named and self.there


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not well, and the command or the step that mends it. `broken`: what is there does not work."""

    said: str
    fix: str
    broken: bool = False


def look(spot: plugin.Spot, env: Mapping[str, str]) -> Standing:
    """Everything there is to see. Starts the plugin's own commands where it is installed."""
    there = os.path.isdir(spot.folder)
    try:
        settings = plugin.settings(spot)
    except FabledError as fault:
        return Standing(trouble=fault.message, there=there)
    named, enabled = plugin.is_on(spot, settings)
    version, current = _lying(spot, env) if there else (None, False)
    tried = there and named
    return Standing(
        named=named,
        enabled=enabled,
        hooks_off=settings.get("disableAllHooks") is True,
        there=there,
        version=version,
        current=current,
        hook=_hook(spot, env) if tried else None,
        mcp=_mcp(spot, env) if tried else None,
    )


def problems(found: Standing) -> list[Problem]:
    """All that is not well, the worst first."""
    if found.trouble:
        return [Problem(found.trouble, "correct it there; Claude Code cannot use it either", True)]
    if not found.installed:
        return [Problem("the plugin is not installed", "fabled claude install")]
    told = []
    for name, trial in (("hook", found.hook), ("MCP server", found.mcp)):
        if trial is not None and trial.ms is None:
            told.append(Problem(f"the plugin's {name} gives no answer: {trial.why}", "fabled claude install", True))
    if not found.enabled:
        told.append(Problem("the plugin is switched off in Claude Code", f"claude plugin enable {plugin.PLUGIN}"))
    if not found.current:
        other = found.version != fabled.__version__
        of = f"{found.version or 'no known version'}, this is {fabled.__version__}" if other else "another installation"
        told.append(Problem(f"the plugin that lies there is of {of}", "fabled claude install"))
    if found.hooks_off:
        said = "Claude Code runs no hooks at all: disableAllHooks is set"
        told.append(Problem(said, "take disableAllHooks out of Claude Code's settings.json"))
    if found.hook is not None and found.hook.ms is not None and found.hook.ms > SLOW_MS:
        told.append(Problem(f"a hook took {found.hook.ms:.0f} ms, longer than it may", "fabled status"))
    return told


def _lying(spot: plugin.Spot, env: Mapping[str, str]) -> tuple[str | None, bool]:
    """(version, whether all files are as this installation writes them) of the plugin in our folder."""
    try:
        value = _json(spot, ".claude-plugin/plugin.json")
        version = value.get("version")
        wanted = plugin.files(env)
        held = {name: _bytes(os.path.join(spot.folder, name)) for name in wanted}
    except (OSError, ValueError, AttributeError, FabledError):
        return None, False
    return version if isinstance(version, str) else None, held == wanted


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _json(spot: plugin.Spot, name: str) -> Any:
    return json.loads(_bytes(os.path.join(spot.folder, plugin.NAME, name)))


def _hook(spot: plugin.Spot, env: Mapping[str, str]) -> Trial:
    """The command for a session's start, as the client would run it."""
    try:
        command = _json(spot, "hooks/hooks.json")["hooks"]["SessionStart"][0]["hooks"][0]["command"]
        server = _json(spot, ".mcp.json")["mcpServers"][plugin.NAME]
        lost = [one for one in (server["command"], *server["args"]) if os.path.isabs(one) and not os.path.exists(one)]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return Trial(None, "its file names none")
    if lost:  # the hook itself would be silent about that
        return Trial(None, f"{lost[0]} is not there")
    done = _run(["sh", "-c", command], json.dumps(_START).encode(), env)
    if isinstance(done, str):
        return Trial(None, done)
    ms, status, _ = done
    return Trial(ms) if status == 0 else Trial(None, f"it ended with status {status}")


def _mcp(spot: plugin.Spot, env: Mapping[str, str]) -> Trial:
    """The server, greeted and asked for its tools."""
    try:
        server = _json(spot, ".mcp.json")["mcpServers"][plugin.NAME]
        command = [server["command"], *server["args"]]
    except (OSError, ValueError, KeyError, TypeError):
        return Trial(None, "its file names none")
    said = b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in _HELLO)
    done = _run(command, said, {**env, **server.get("env", {})})
    if isinstance(done, str):
        return Trial(None, done)
    ms, status, out = done
    try:
        hello, tools = (json.loads(line)["result"] for line in out.splitlines())
        version, many = hello["serverInfo"]["version"], len(tools["tools"])
    except (ValueError, KeyError, TypeError):
        return Trial(None, f"it ended with status {status} and no answer")
    if version != fabled.__version__ or not many:
        return Trial(None, f"it is of version {version}, this is {fabled.__version__}")
    return Trial(ms)


def _run(command: Sequence[str], given: bytes, env: Mapping[str, str]) -> tuple[float, int, bytes] | str:
    """(milliseconds, status, output), or why there are none."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TRIAL_SECONDS, env=env,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"none within {TRIAL_SECONDS:g} s"
    except OSError as fault:
        return f"{command[0]}: {fault.strerror or fault}"
    return round((time.monotonic() - begun) * 1000, 1), done.returncode, done.stdout
