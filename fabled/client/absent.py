"""Says that the daemon is not there, or does not answer, and what to do about it.

Only `status` asks for it, in the same light way: no JSON library, no click. Starting anything is left to the person.
"""

from __future__ import annotations

import os
import sys
import time

from fabled.client import connect, streams

TYPE_CHECKING = False  # `typing` itself costs more than everything here
if TYPE_CHECKING:
    from collections.abc import Mapping


def not_running(form: str) -> int:
    """The answer of `status` where no daemon listens: exit 3."""
    seen = _last_seen()
    if form == "json":
        _out(
            f'{{"v":1,"running":false,"error":{{"code":"not_running",'
            f'"message":"fabled is not running{"; " + seen if seen else ""}","hint":"{start_line(os.environ)}"}}}}'
        )
    elif form == "oneline":
        _out("not running")
        return 3
    mark = "○ " if connect.utf8(os.environ) else ""
    _say(f"{mark}fabled is not running")
    if seen:
        _say(f"  L{seen[1:]}")
    start = start_line(os.environ)
    _say(f"  Start it:  {start}")
    if start.endswith("install"):
        _say("  Try once:  fabled daemon")
    return 3


def not_answering(form: str, why: str) -> int:
    """A daemon is there (or something else that holds its socket) but gives no answer: exit 1."""
    if form == "json":
        said = "".join(c if c >= " " and c not in '"\\' else "?" for c in why)
        _out(
            f'{{"v":1,"error":{{"code":"not_answering","message":"the daemon does not answer: {said}",'
            f'"hint":"see its log, then stop and start it"}}}}'
        )
    elif form == "oneline":
        _out("not answering")
    _say(f"fabled: the daemon does not answer: {why}. Next: look at its log ({_log_file()}), then stop and start it.")
    return 1


def _say(line: str) -> None:
    """A line on stderr, on a terminal broken between words; `present` does it better, and costs more than all this."""
    line = "".join(c if c.isprintable() else "?" for c in line)
    width = connect.width(os.environ, 2) if os.isatty(2) else len(line)
    while len(line) > width and (end := line.rfind(" ", 4, width + 1)) > 0:
        streams.tell(line[:end])
        line = f"    {line[end + 1 :]}"
    streams.tell(line)


def start_line(env: Mapping[str, str]) -> str:
    """The command that starts it as it was set up."""
    home = env.get("HOME", "")
    config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    unit = os.path.join(config, "systemd/user/fabled.service")
    agent = os.path.join(home, "Library/LaunchAgents/io.fabled.daemon.plist")
    installed = os.path.exists(agent if sys.platform == "darwin" else unit)
    if installed:
        return "fabled service start"
    return "fabled service install" if _managed(env) else "fabled daemon"


def _managed(env: Mapping[str, str]) -> bool:
    """Whether a service manager is at work here; in most containers none is."""
    own = os.path.join(env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", "systemd")
    return sys.platform == "darwin" or os.path.isdir("/run/systemd/system") or os.path.isdir(own)


def _last_seen() -> str:
    """When and why the last daemon ended, from the note it left; after a kill, when it last wrote its log."""
    folder = connect.state_folder(os.environ)
    try:
        with open(os.path.join(folder, "last-stop"), encoding="utf-8") as note:
            when, _, why = note.readline().strip().partition(" ")
        return f"last seen {_ago(float(when))}: {why}"
    except (OSError, ValueError):
        pass  # no note, or not one of ours: the log is the next witness
    try:
        return f"last seen {_ago(os.stat(_log_file()).st_mtime)}"
    except OSError:
        return ""


def _ago(when: float) -> str:
    seconds = max(0, int(time.time() - when))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _out(line: str) -> None:
    streams.put((line + "\n").encode())


def _log_file() -> str:
    return os.path.join(connect.state_folder(os.environ), "fabled.log")
