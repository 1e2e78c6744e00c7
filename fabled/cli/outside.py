"""The doctor's checks of what stands around fabled: the shell, Claude Code, and the system's service manager.

They start programs of others (the plugin's commands, `systemctl`), so each is bounded in time where it is called.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator

from fabled.cli import plugin, standing
from fabled.cli.findings import Finding, Seen
from fabled.client import absent
from fabled.errors import FabledError
from fabled.service import facts as about
from fabled.service import manager as managers
from fabled.service.manager import Manager

LINGER = "/var/lib/systemd/linger"


def program(seen: Seen) -> Iterator[Finding]:
    """Whether a shell finds the command. What hooks and services run is named by its whole path."""
    found = shutil.which("fabled", path=seen.env.get("PATH"))
    version = ".".join(map(str, sys.version_info[:3]))
    if found is not None:
        yield Finding("program", "ok", f"{found}, Python {version}")
        return
    folder = os.path.dirname(sys.executable)
    if os.access(os.path.join(folder, "fabled"), os.X_OK):
        fix = f'export PATH="{folder}:$PATH" in your shell\'s start file; or, as it may fit: pipx ensurepath'
    else:
        fix = "pipx install .  (or: uv tool install .) in the checkout"
    yield Finding("program", "warning", "a shell does not find fabled on the PATH", fix)


def claude(seen: Seen) -> Iterator[Finding]:
    """Whether Claude Code has the plugin, of this version, and whether its commands answer."""
    if seen.config is None:
        return
    places = seen.config.places
    if not os.path.isdir(places.claude):
        yield Finding("claude", "ok", f"Claude Code has no folder {places.claude} yet")
        return
    spot = plugin.Spot.of(places)
    found = standing.look(spot, seen.env)
    problems = standing.problems(found)
    if not problems:
        assert found.hook is not None and found.mcp is not None
        times = f"hooks answer in {found.hook.ms:.0f} ms, MCP in {found.mcp.ms:.0f} ms"
        yield Finding("claude", "ok", f"plugin {found.version} on, {times}")
        return
    for one in problems:
        yield Finding("claude", "failure" if one.broken else "warning", one.said, one.fix)


def service(seen: Seen) -> Iterator[Finding]:
    """Whether it comes back after a login, is what this installation would write, and stays after a logout."""
    manager = managers.here(seen.env)
    if not os.path.exists(manager.path):
        try:
            manager.reachable()
        except FabledError as fault:
            said = f"fabled does not start by itself, and no service manager can be asked: {fault.message}"
            yield Finding("service", "warning", said, "fabled daemon, by whatever starts programs here")
        else:
            yield Finding("service", "warning", "fabled does not start by itself at login", "fabled service install")
        return
    yield from _installed(seen, manager)
    if manager.name == "systemd" and os.path.isdir(os.path.dirname(LINGER)):
        user = _user()
        if not os.path.exists(os.path.join(LINGER, user)):
            yield Finding("linger", "warning", "user services stop at logout", f"loginctl enable-linger {user}")
        else:
            yield Finding("linger", "ok", "the service stays when you log out")


def _installed(seen: Seen, manager: Manager) -> Iterator[Finding]:
    try:
        manager.reachable()
        state = manager.state()
    except FabledError as fault:
        yield Finding("service", "warning", fault.message, fault.hint)
        return
    if state.state == "failed":
        why = f"the service failed{f' ({state.reason})' if state.reason else ''}"
        yield Finding("service", "failure", f"{why}; why: {manager.why()}", "fabled service start")
    elif not state.enabled:
        yield Finding("service", "warning", f"{manager.path} is not started at login", "fabled service install")
    elif seen.config is not None and not _current(seen, manager):
        said = f"{manager.path} differs from what this version would write"
        yield Finding("service", "warning", said, "fabled service install")
    else:
        yield Finding("service", "ok", f"{manager.path}, {state.state}")


def _current(seen: Seen, manager: Manager) -> bool:
    assert seen.config is not None
    try:
        with open(manager.path, "rb") as file:
            return file.read() == manager.text(about.facts(seen.config, seen.env))
    except FabledError:
        return False


def start(seen: Seen) -> str:
    """The command that starts the daemon here."""
    line = absent.start_line(seen.env)
    return f"{line}, or in the foreground: fabled daemon" if line.endswith("install") else line


def restart(seen: Seen) -> str:
    """The command that ends the daemon and starts it again."""
    if absent.start_line(seen.env).endswith("start"):
        return "fabled service restart"
    pid = (seen.status or {}).get("pid") or _owner(seen)
    return f"{f'kill {pid}' if pid else 'end it'}, then start it again: fabled daemon"


def _owner(seen: Seen) -> int | None:
    from fabled.store.files import Lock

    return Lock(seen.config.places.lock).owner() if seen.config is not None else None


def _user() -> str:
    import pwd

    try:
        return shlex.quote(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return str(os.getuid())
