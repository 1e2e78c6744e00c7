"""`config`: which settings and places hold, and how they are changed.

Reading and checking them is `fabled.config`'s, changing the file `rewrite`'s, showing them `present.settings`'.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import asdict
from typing import Any

import click

from fabled.cli import ask, edge, folders, options
from fabled.client import connect
from fabled.errors import BadConfig, BadRequest, FabledError
from fabled.present import settings as shown
from fabled.present.terminal import finish, path


@click.group(invoke_without_command=True, cls=options.Helpful)
@options.as_json
@options.as_plain
@click.pass_context
def config(ctx: click.Context, as_json: bool, as_plain: bool) -> int:
    """Settings and places; alone, every setting with its value and who says so.

    \b
      fabled config
      fabled config get prune.min_bytes
      fabled config set prune.min_bytes 30MB    keeps your comments, checks, tells a running daemon
      fabled config unset prune.min_bytes       back to the default
      fabled config edit                        in your editor, checked before it counts
    """
    from fabled import config as settings

    if ctx.invoked_subcommand is not None:
        return 0
    found = settings.in_force(os.environ)
    file = settings.places(os.environ).config_file
    value = {"config_file": file, "exists": os.path.exists(file), "settings": [asdict(one) for one in found]}
    if as_json:
        edge.put_json(value)
        return 0
    style = edge.style(options.form(False, as_plain))
    edge.put_text(finish(shown.listed(value, style), style))
    return 0


@config.command()
@click.argument("key")
@options.as_json
def get(key: str, as_json: bool) -> int:
    """One setting's value.

    \b
      fabled config get prune.min_bytes
    """
    from fabled import config as settings

    settings.kind_of(key)
    found = next(one for one in settings.in_force(os.environ) if one.name == key)
    if as_json:
        edge.put_json(asdict(found))
    else:
        edge.put_text(shown.plain(found.value) + "\n")
    return 0


# Folders of projects are named `-home-ana-app`: such a word is a value, `-h` among its letters or not.
@config.command("set", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("key")
@click.argument("words", nargs=-1, required=True, metavar="VALUE...")
@options.as_json
def set_(key: str, words: tuple[str, ...], as_json: bool) -> int:
    """Change one setting in the configuration file; comments and all else stay.

    \b
      fabled config set prune.min_bytes 30MB
      fabled config set watch.sweep_seconds 5min
      fabled config set exclude ~/src/diary ~/src/taxes
      fabled config set roots ~/.claude/projects /mnt/old/projects

    The file as it would be is checked first; a running daemon takes it over at once. `exclude` is added to: what was
    kept out stays out until `fabled config unset exclude`.
    """
    from fabled.cli import rewrite

    value = rewrite.value_of(key, words)
    notes: list[str] = []
    if key in folders.LISTS:
        value, notes = folders.checked(key, value)
    status = _change(key, value, as_json)
    for note in notes:
        edge.note(note)
    return status


@config.command()
@click.argument("key")
@options.as_json
def unset(key: str, as_json: bool) -> int:
    """Take one setting out of the file: its default holds again.

    \b
      fabled config unset prune.min_bytes
    """
    from fabled import config as settings

    settings.kind_of(key)
    return _change(key, None, as_json)


def _change(key: str, value: Any, as_json: bool) -> int:
    from fabled import config as settings
    from fabled.cli import rewrite

    file = settings.places(os.environ).config_file
    with rewrite.alone(file):
        before = _held(key)
        if key == "exclude" and value is not None:
            value = list(dict.fromkeys([*(before or ()), *value]))
        text = rewrite.changed(_text(file), key, value)
        try:
            settings.load(os.environ, text.encode())
        except BadConfig as fault:
            own = next((one for one in fault.problems if f": {key}: " in one), None)
            if own is None:
                raise
            said = own.partition(f": {key}: ")[2].rstrip(".")
            raise BadRequest(f"{key}: {said}; nothing was changed", "fabled.toml.example tells its bounds") from None
        rewrite.write(file, text)
    found = next(one for one in settings.in_force(os.environ) if one.name == key)
    told = _tell_daemon()
    answer = {"setting": key, "before": before, "value": found.value, "origin": found.origin, "daemon": told}
    if as_json:
        edge.put_json(answer)
        return 0
    was, now = shown.amount(key, before), shown.amount(key, found.value)
    edge.say(f"{key}: {was} → {now}   ({_TOLD[told]})")
    if found.origin == settings.variable_of(key):
        edge.note(f"{found.origin} is set in this environment and goes before the file.")
    return 0


def _held(key: str) -> Any:
    """The value before; of a file that is faulty only what the default is, since mending it is what `set` is for."""
    from fabled import config as settings

    try:
        return next(one.value for one in settings.in_force(os.environ) if one.name == key)
    except BadConfig:
        return settings.default_of(key, os.environ)


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", newline="") as source:
            return source.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        # `load` says what is wrong with it, in its own words.
        from fabled import config as settings

        settings.load(os.environ)
        raise FabledError(f"{file} cannot be read", "look at its rights") from None


_TOLD = {
    "reloaded": "daemon reloaded",
    "absent": "no daemon runs; it holds from its next start",
    "refused": "the daemon did not take it over: fabled status",
}


def _tell_daemon() -> str:
    """Has a running daemon read the file again, and says how that went."""
    try:
        ask.fetch_running("reload", {}, 5.0)
    except connect.Down:
        return "absent"
    except FabledError as fault:
        edge.note(f"the daemon kept its settings: {fault.message}")
        return "refused"
    return "reloaded"


@config.command()
@options.as_json
def reload(as_json: bool) -> int:
    """Have the running daemon read the configuration file again; a faulty one changes nothing.

    \b
      fabled config reload
    """
    try:
        ask.fetch_running("reload", {}, 5.0)
    except connect.Down:
        from fabled.errors import NotRunning

        raise NotRunning("fabled is not running", "fabled daemon reads it at its start") from None
    if as_json:
        edge.put_json({"reloaded": True})
    else:
        edge.say("The daemon has taken over the configuration file.")
    return 0


@config.command()
def edit() -> int:
    """Open the configuration file in your editor ($VISUAL, $EDITOR); what you save is checked before it counts.

    \b
      fabled config edit
      EDITOR=nano fabled config edit
    """
    from fabled import config as settings
    from fabled.cli import rewrite

    file = settings.places(os.environ).config_file
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    before = _text(file) or example()
    with tempfile.TemporaryDirectory(prefix="fabled-") as folder:
        draft = os.path.join(folder, "config.toml")
        with open(draft, "w", encoding="utf-8", newline="") as target:
            target.write(before)
        try:
            ended = subprocess.run([*shlex.split(editor), draft], check=False).returncode
        except (OSError, ValueError):
            raise FabledError(f"the editor {editor!r} cannot be started", "EDITOR=nano fabled config edit") from None
        text = _text(draft)
        if ended != 0:
            raise FabledError(f"the editor ended with status {ended}; nothing was changed", "fabled config edit")
        if text == before:
            edge.say("Nothing was changed.")
            return 0
        try:
            settings.load(os.environ, text.encode())
        except BadConfig as fault:
            kept = f"{file}.rejected"
            rewrite.write(kept, text)
            edge.note(f"What you wrote is in {kept}; {file} is as it was.")
            raise BadConfig(fault.problems) from None
    rewrite.write(file, text)
    edge.say(f"{path(file, edge.style())} is saved.  ({_TOLD[_tell_daemon()]})")
    return 0


def example() -> str:
    """The file that teaches every setting: beside the package in a checkout, inside it once installed."""
    import fabled

    package = os.path.dirname(os.path.abspath(fabled.__file__))
    for folder in (package, os.path.dirname(package)):
        try:
            with open(os.path.join(folder, "fabled.toml.example"), encoding="utf-8") as source:
                return source.read()
        except OSError:
            continue
    return ""


@config.command()
@options.as_json
def paths(as_json: bool) -> int:
    """Where everything of fabled lies, and where it looks for transcripts.

    \b
      fabled config paths
      FABLED_HOME=/elsewhere fabled config paths --json
    """
    from fabled import config as settings

    found = settings.load(os.environ)
    value = {**asdict(found.places), "roots": list(found.roots), "vaults": list(found.vaults)}
    if as_json:
        edge.put_json(value)
        return 0
    style = edge.style()
    lines = []
    for name, place in value.items():
        for number, one in enumerate(place if isinstance(place, list) else [place]):
            if one is not None:
                lines.append(f"{name if number == 0 else '':<12} {path(one, style)}")
    edge.say(*lines)
    return 0


@config.command()
@options.as_json
def check(as_json: bool) -> int:
    """Whether the configuration is sound; else every problem with its line, and exit status 78.

    \b
      fabled config check
    """
    from fabled import config as settings

    file = settings.load(os.environ).places.config_file
    there = os.path.exists(file)
    if as_json:
        edge.put_json({"ok": True, "config_file": file, "exists": there})
    else:
        said = "is sound" if there else "does not exist: every setting has its default"
        edge.say(f"{path(file, edge.style())} {said}.")
    return 0
