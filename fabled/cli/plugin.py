"""What of fabled stands in Claude Code: the plugin's folder, and the entries in the user's settings that name it.

Carrying changes out is `store.rewrite`'s, asking the person `claude`'s.

Claude Code reads a plugin of a folder on this machine in place. So the folder, with the commands of this installation
written into it, lies among fabled's own data, and all that is added to the user's settings is where it is and that it
is on. The settings as they were are kept: where they are still as we left them, taking the plugin away gives back the
very bytes; else only our entries go.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabled
from fabled.cli import jsonedit
from fabled.client import door
from fabled.config import Places
from fabled.errors import Refused
from fabled.store import rewrite
from fabled.store.files import private_folder

NAME = "fabled"
PLUGIN = f"{NAME}@{NAME}"
MARKET_PATH = ("extraKnownMarketplaces", NAME)
ENABLED_PATH = ("enabledPlugins", PLUGIN)
LINE_PATH = ("statusLine",)


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the user's before and after; None: not there."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def needed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Spot:
    """Where what lies."""

    folder: str
    """the marketplace that holds the plugin"""
    note: str
    backup: str
    settings: str
    client: str
    """the client's own lists of plugins"""

    @classmethod
    def of(cls, places: Places) -> Spot:
        own = os.path.join(places.data, "claude")
        return cls(
            folder=os.path.join(own, "plugin"),
            note=os.path.join(own, "installed.json"),
            backup=os.path.join(own, "settings-before.json"),
            settings=os.path.join(places.claude, "settings.json"),
            client=os.path.join(places.claude, "plugins"),
        )


# ── the plugin's files ──────────────────────────────────────────────────────────────────────────────────────────


def source() -> Path:
    """The plugin as it is shipped: in the wheel below the package, in a checkout beside it."""
    package = Path(fabled.__file__).parent
    for folder in (package / "service" / "claude-plugin", package.parent / "service" / "claude-plugin"):
        if (folder / ".claude-plugin" / "marketplace.json").is_file():
            return folder
    raise Refused("the plugin's files are not part of this installation", "install fabled anew")


def command() -> list[str]:
    """How this installation is called from anywhere: never by a search along PATH, which hooks may have another of."""
    return [sys.executable, "-I", "-S", os.path.abspath(door.__file__)]


def surroundings(env: Mapping[str, str]) -> dict[str, str]:
    """What of the environment decides where the daemon is found."""
    return {"FABLED_HOME": os.path.abspath(env["FABLED_HOME"])} if env.get("FABLED_HOME") else {}


def files(env: Mapping[str, str]) -> dict[str, bytes]:
    """The plugin's files with the commands of this installation in them."""
    found = {}
    top = source()
    for path in sorted(top.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(top))
        data = path.read_bytes()
        if name.endswith("hooks.json"):
            data = _json(_hooks(json.loads(data), env))
        elif name.endswith(".mcp.json"):
            data = _json(_servers(json.loads(data), env))
        elif name.endswith("plugin.json"):
            data = _json({**json.loads(data), "version": fabled.__version__})
        found[name] = data
    return found


def called(arguments: str, env: Mapping[str, str]) -> str:
    """`fabled ARGUMENTS` as a line for the shell; silent where fabled was removed without its plugin."""
    given = [f"{name}={shlex.quote(value)}" for name, value in surroundings(env).items()]
    first, *_, last = map(shlex.quote, command())
    guard = f"! [ -x {first} ] || ! [ -r {last} ] ||"
    return " ".join([guard, *given, shlex.join(command()), arguments])


def _hooks(value: Any, env: Mapping[str, str]) -> Any:
    for groups in value["hooks"].values():
        for group in groups:
            for hook in group["hooks"]:
                hook["command"] = called(hook["command"].removeprefix("fabled "), env)
    return value


def _servers(value: Any, env: Mapping[str, str]) -> Any:
    first, *rest = command()
    for server in value["mcpServers"].values():
        server.update(command=first, args=[*rest, *server["args"]])
        if surroundings(env):
            server["env"] = surroundings(env)
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


# ── the user's settings ─────────────────────────────────────────────────────────────────────────────────────────


def entry(spot: Spot) -> dict[str, Any]:
    return {"source": {"source": "directory", "path": spot.folder}}


def added(spot: Spot, env: Mapping[str, str], statusline: bool) -> Change:
    """The settings with our entries. Another marketplace of our name, or another status line, is not replaced."""
    before = rewrite.read(spot.settings)
    text = held = _sound(spot, _text(spot, before))
    known = _at(text, MARKET_PATH)
    if known is not None and known != entry(spot) and not _ours(known):
        raise Refused(
            f"{spot.settings} names another plugin marketplace {NAME!r}; nothing was changed",
            "claude plugin marketplace remove fabled",
        )
    if known != entry(spot):
        text = jsonedit.put(text, MARKET_PATH, entry(spot))
    if _at(text, ENABLED_PATH) is not True:
        text = jsonedit.put(text, ENABLED_PATH, True)
    if statusline:
        line = {"type": "command", "command": called("statusline", env)}
        there = _at(text, LINE_PATH)
        if there is not None and there != line and not _our_line(there):
            raise Refused(f"{spot.settings} has a statusLine already; nothing was changed", "leave out --statusline")
        text = jsonedit.put(text, LINE_PATH, line) if there != line else text
    return Change(spot.settings, before, text.encode() if text != held else before)


def taken(spot: Spot) -> Change:
    """The settings without our entries; the bytes of before, where nothing else has changed since."""
    before = rewrite.read(spot.settings)
    if before is None or not before.strip():
        return Change(spot.settings, before, before)
    note = read_note(spot)
    if note.get("after") == _sum(before):
        kept = rewrite.read(spot.backup)
        if note.get("before") == (None if kept is None else _sum(kept)):
            return Change(spot.settings, before, kept)
    text = _sound(spot, before.decode("utf-8", "surrogateescape"))
    created = note.get("created", [])
    if _ours(_at(text, MARKET_PATH)) or note:
        text = _dropped(text, MARKET_PATH, created)
        text = _dropped(text, ENABLED_PATH, created)
    if _our_line(_at(text, LINE_PATH)):
        text = jsonedit.drop(text, LINE_PATH)
    return Change(spot.settings, before, text.encode("utf-8", "surrogateescape"))


def _sound(spot: Spot, text: str) -> str:
    """The text, if it can be changed in place; else Refused."""
    try:
        _parsed(spot, text)
    except Refused as fault:
        raise Refused(f"{fault.message}; nothing was changed", fault.hint) from None
    return text


def _dropped(text: str, path: tuple[str, ...], created: list[str]) -> str:
    text = jsonedit.drop(text, path)
    # An object that was made for our entry goes with it.
    return jsonedit.drop(text, path[:1]) if path[0] in created and _at(text, path[:1]) == {} else text


def client_lists(spot: Spot) -> list[Change]:
    """What the client itself wrote down of our plugin when it met it, to be taken away with it."""
    changes = []
    for name, path in (("known_marketplaces.json", (NAME,)), ("installed_plugins.json", ("plugins", PLUGIN))):
        file = os.path.join(spot.client, name)
        before = rewrite.read(file)
        if before is None:
            continue
        try:
            text = before.decode()
            mine = name != "known_marketplaces.json" or _ours(_at(text, path))
            changes.append(Change(file, before, jsonedit.drop(text, path).encode() if mine else before))
        except (Refused, ValueError):
            continue  # the client's file, and of another shape than is known here: it is left alone
    return [change for change in changes if change.needed]


def install(spot: Spot, env: Mapping[str, str], change: Change) -> None:
    """Writes the plugin's folder, then the settings."""
    private_folder(os.path.dirname(spot.folder))
    rewrite.fill(spot.folder, files(env))
    if not change.needed or change.after is None:
        return
    note = read_note(spot)
    if note.get("after") != _sum(change.before or b""):
        # Not our own last state: these are the user's settings as they are without us.
        _keep(spot.backup, change.before)
        before = json.loads(_text(spot, change.before))
        note = {
            "created": [path[0] for path in (MARKET_PATH, ENABLED_PATH) if path[0] not in before],
            "before": None if change.before is None else _sum(change.before),
        }
    rewrite.replace(spot.settings, change.after, change.before)
    _keep(spot.note, json.dumps({**note, "settings": spot.settings, "after": _sum(change.after)}).encode())


def uninstall(spot: Spot, change: Change) -> None:
    """Takes our entries out of the settings, then the folder away."""
    if change.needed and change.after is None:
        rewrite.remove(spot.settings)
    elif change.needed and change.after is not None:
        rewrite.replace(spot.settings, change.after, change.before)
    for listed in client_lists(spot):
        if listed.after is not None:
            rewrite.replace(listed.path, listed.after, listed.before)
    rewrite.clear(os.path.dirname(spot.folder))


def read_note(spot: Spot) -> dict[str, Any]:
    """What was noted at the installation, {} where there was none."""
    try:
        value = json.loads(rewrite.read(spot.note) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.get("settings", spot.settings) == spot.settings else {}


def settings(spot: Spot) -> dict[str, Any]:
    """What the client's settings hold. Raises Refused where they are not to be understood, StorageFault where they do
    not read."""
    return _parsed(spot, _text(spot, rewrite.read(spot.settings)))


def _parsed(spot: Spot, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as fault:
        said = str(fault).rpartition(" (char")[0] or str(fault)
        raise Refused(f"{spot.settings} is not plain JSON ({said})", "mend it first") from None
    if not isinstance(value, dict):
        raise Refused(f"{spot.settings} holds no JSON object", "mend it first")
    return value


def is_on(spot: Spot, held: Mapping[str, Any]) -> tuple[bool, bool]:
    """(the settings name our folder, and it is on)."""
    return _member(held, MARKET_PATH) == entry(spot), _member(held, ENABLED_PATH) is True


def _keep(path: str, data: bytes | None) -> None:
    if data is None:
        rewrite.remove(path)
    else:
        rewrite.replace(path, data, rewrite.read(path))


def _text(spot: Spot, data: bytes | None) -> str:
    if data is None or not data.strip():
        return "{}\n"
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{spot.settings} is not UTF-8 text; nothing was changed", "save it as UTF-8") from None


def _at(text: str, path: tuple[str, ...]) -> Any:
    return _member(json.loads(text), path)


def _member(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _ours(market: Any) -> bool:
    """Whether a marketplace's entry points to a folder that fabled made, if perhaps for another home."""
    place = market.get("source") if isinstance(market, dict) else None
    path = place.get("path") if isinstance(place, dict) else None
    return isinstance(path, str) and path.endswith(os.path.join("claude", "plugin"))


def _our_line(line: Any) -> bool:
    said = line.get("command") if isinstance(line, dict) else None
    return isinstance(said, str) and "fabled" in said and said.endswith(" statusline")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
