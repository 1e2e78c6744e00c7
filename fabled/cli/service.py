"""`service`: fabled in the background from login on, under systemd or launchd.

What is written and asked of a manager is the room `service`'s; here is only what a person is asked and told.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fabled.cli import ask, edge, options
from fabled.cli.progress import POLL_SECONDS, Bar
from fabled.client import connect
from fabled.errors import BadRequest, FabledError, Refused
from fabled.present import service as words
from fabled.present.terminal import path, plural, size

if TYPE_CHECKING:
    from fabled.config import Config
    from fabled.service.facts import Facts
    from fabled.service.manager import Manager
    from fabled.service.remove import Holdings

ANSWER_SECONDS = 30.0
"""From the manager's word that it runs to its first answer: more than a disk at work needs."""

LEVELS = {
    "gentle": "what Claude is sent stays exactly the same; only what never reaches it leaves the transcript",
    "standard": "also shortens tool output and images that lie far back, so that resuming is cheaper",
    "off": "transcripts are only read, unless you call fabled prune",
}


@click.group(invoke_without_command=True, cls=options.Helpful)
@click.pass_context
def service(ctx: click.Context) -> None:
    """fabled in the background, from login on: a systemd user unit or a launchd agent.

    \b
      fabled service install
      fabled service status
      fabled service uninstall
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


# ── install ─────────────────────────────────────────────────────────────────────────────────────────────────────


@service.command()
@click.option("--level", type=click.Choice(sorted(LEVELS)), help="What is pruned unasked; else it is asked for.")
@click.option("--sandbox/--no-sandbox", default=None, help="All folders but its own read-only; tried out first.")
@click.option("--print", "only_print", is_flag=True, help="Show the file; change nothing.")
@click.option("--no-start", is_flag=True, help="Only have it started at the next login.")
@options.as_json
def install(level: str | None, sandbox: bool | None, only_print: bool, no_start: bool, as_json: bool) -> int:
    """Start fabled at each login, and now. Called again it brings an older installation up to date.

    \b
      fabled service install
      fabled service install --level standard
      fabled service install --print
    """
    settings, facts, manager = _here()
    if only_print:
        return _print(manager.text(facts), manager, as_json)
    from fabled.service import facts as about

    say = edge.note
    manager.reachable()
    _refuse_beside_another(manager)
    style = edge.style()
    say(f"Will write   {path(manager.path, style)}")
    program = " ".join(path(one, style) for one in facts.command)
    say(f"Will run     {program} daemon   at login, low priority, no network")
    notes = []
    if about.passing(facts.command):
        notes.append(f"{facts.command[0]} lies where things are cleaned away; better: install it with pipx or uv")
    if unsaid := about.unsaid(os.environ):
        notes.append(f"Not known to the service: {', '.join(unsaid)}. It reads {path(_config_file(settings), style)}")
    level = _level(settings, level, as_json)
    changed = manager.write(facts)
    result: dict[str, Any] = {"manager": manager.name, "path": manager.path, "changed": changed, "level": level}
    result |= _sandbox(manager, facts, sandbox, say)
    manager.enable()
    if not no_start:
        began = time.monotonic()
        # Also an unchanged one: the version or the configuration may be new.
        _forget_failures(settings)
        manager.restart()
        result["started_in"] = round(time.monotonic() - began, 2)
        status = _follow_first_index(manager, say, result["started_in"])
        result |= {name: status.get(name) for name in ("pid", "sessions", "records", "version")}
    if advice := manager.advice():
        notes.append(advice)
    result["notes"] = notes
    for note in notes:
        say(note)
    if as_json:
        edge.put_json(result)
    else:
        edge.say('Next:  fabled status        Find something:  fabled search "why did we" --all')
    return 0


def _here() -> tuple[Config, Facts, Manager]:
    """Settings, facts and manager. Raises BadConfig: a service that could only fail is not installed."""
    from fabled import config
    from fabled.service import facts, manager

    settings = config.load(os.environ)
    return settings, facts.facts(settings, os.environ), manager.here(os.environ)


def _config_file(settings: Config) -> str:
    return settings.places.config_file


def _refuse_beside_another(manager: Manager) -> None:
    """Two cannot run: the second ends with status 3, and a person would look for the reason in the journal."""
    if manager.state().state in ("running", "starting", "reloading"):
        return
    try:
        pid = ask.fetch_running("hello", {}, 2.0).get("pid")
    except connect.Down:
        return
    raise Refused(
        f"a daemon that no service manager started is running (process {pid}); nothing was installed",
        f"end it (Ctrl-C where it runs, or: kill {pid}), then again: fabled service install",
    )


def _level(settings: Config, wished: str | None, as_json: bool) -> str:
    """What is pruned unasked from now on; asked for where nobody has said so yet and somebody can answer."""
    from fabled.service.level import set_level

    now = settings.prune.level
    if wished is None:
        said = now != "auto" or bool(os.environ.get("FABLED_PRUNE_LEVEL"))
        if said or as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return "gentle" if now == "auto" else now
        edge.note("\nLive transcripts are made smaller by themselves; what goes is kept in the Vault. How much may go?")
        for name in ("gentle", "standard", "off"):
            edge.note(f"  {name:<9} {LEVELS[name]}")
        wished = click.prompt(
            "prune.level", type=click.Choice(list(LEVELS)), default="gentle", show_choices=False, err=True
        )
    if wished != now and set_level(_config_file(settings), str(wished)):
        edge.note(f'prune.level = "{wished}"   written to {path(_config_file(settings), edge.style())}')
    return str(wished)


def _sandbox(manager: Manager, facts: Facts, wished: bool | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The sandbox put in place, taken away, or left as it is."""
    from fabled.service.systemd import Systemd
    from fabled.store.files import private_folder

    if not isinstance(manager, Systemd):
        if wished:
            say("! no sandbox: launchd agents have none; going on without")
        return {"sandbox": False}
    if unsound := manager.verified():
        say(f"! systemd-analyze says: {unsound}")
    else:
        say("✓ unit checked")
    if wished is False and manager.no_sandbox():
        say("✓ sandbox taken away")
    if not wished:
        return {"sandbox": manager.state().sandbox}
    for folder in facts.writable[:2]:
        private_folder(folder)
    why = manager.sandbox_fails(facts)
    if why:
        manager.no_sandbox()
        say(f"! no sandbox: {why}; going on without")
        return {"sandbox": False, "sandbox_failed": why}
    manager.sandbox(facts)
    say("✓ sandbox tried out: every folder but its own is read-only")
    say("  In it nothing is pruned: other programs' open files cannot be seen. Without it:  --no-sandbox")
    return {"sandbox": True}


def _forget_failures(settings: Config) -> None:
    from fabled.daemon import starts

    starts.forget(settings.places.state)


def _follow_first_index(manager: Manager, say: Callable[[str], None], took: float) -> dict[str, Any]:
    """Until everything there is has been indexed: the last status. The daemon goes on whoever stops watching."""
    status = _first_answer(manager)
    say(f"✓ started in {took:.1f} s")
    began = time.monotonic()
    try:
        with Bar("first index") as bar:
            while status.get("phase") in ("starting", "working"):
                if status.get("progress"):
                    from fabled.indexer import Progress

                    bar(Progress(**status["progress"]))
                time.sleep(POLL_SECONDS)
                status = _first_answer(manager)
    except KeyboardInterrupt:
        say("It goes on in the background:  fabled status")
        return status
    if status.get("records"):
        known = f"{plural(status.get('sessions') or 0, 'session')}, {plural(status['records'], 'record')}"
        amount = f"{size(status['live_bytes'])}, " if status.get("live_bytes") else ""
        say(f"✓ indexed {amount}{known}   {time.monotonic() - began:.1f} s")
    else:
        say("✓ nothing to index yet: it waits for transcripts of Claude Code")
    return status


def _first_answer(manager: Manager) -> dict[str, Any]:
    """The daemon's status. Raises FabledError where it ended instead of answering."""
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return ask.fetch_running("status", {}, ANSWER_SECONDS)
        except connect.Down:
            state = manager.state()
            if state.state in ("failed", "stopped") or time.monotonic() > end:
                raise FabledError(words.trouble(asdict(state)), manager.why()) from None
            time.sleep(POLL_SECONDS)


# ── the others ──────────────────────────────────────────────────────────────────────────────────────────────────


@service.command("print")
@click.option("--for", "name", type=click.Choice(["systemd", "launchd"]), help="Another manager than this system's.")
@click.option("--sandbox", is_flag=True, help="The drop-in of the sandbox instead (systemd).")
@options.as_json
def print_(name: str | None, sandbox: bool, as_json: bool) -> int:
    """The unit or agent as `install` would write it; nothing is changed.

    \b
      fabled service print
      fabled service print --for launchd
    """
    from fabled import config
    from fabled.service import facts, manager
    from fabled.service.systemd import Systemd

    about = facts.facts(config.load(os.environ), os.environ)
    chosen = manager.here(os.environ, name)
    if not sandbox:
        return _print(chosen.text(about), chosen, as_json)
    if not isinstance(chosen, Systemd):
        raise BadRequest("launchd agents have no sandbox", "fabled service print --for systemd --sandbox")
    return _print(chosen.sandbox_text(about), chosen, as_json, chosen.sandbox_path)


def _print(text: bytes, manager: Manager, as_json: bool, place: str | None = None) -> int:
    if as_json:
        edge.put_json({"manager": manager.name, "path": place or manager.path, "text": text.decode()})
    else:
        edge.document(text)
    return 0


def _installed() -> tuple[Config, Manager]:
    settings, _, manager = _here()
    if not os.path.exists(manager.path):
        raise FabledError("the service is not installed", "fabled service install")
    manager.reachable()
    return settings, manager


def _done(manager: Manager, what: str, as_json: bool, **more: Any) -> int:
    if as_json:
        edge.put_json({"manager": manager.name, "done": what, **more})
    else:
        edge.say(f"{what.capitalize()}.")
    return 0


@service.command()
@options.as_json
def start(as_json: bool) -> int:
    """Start the installed service now.

    \b
      fabled service start
    """
    settings, manager = _installed()
    _refuse_beside_another(manager)
    _forget_failures(settings)
    manager.start()
    return _done(manager, "started", as_json, pid=_first_answer(manager).get("pid"))


@service.command()
@options.as_json
def stop(as_json: bool) -> int:
    """Stop the service until the next login; nothing that it was doing is left half done.

    \b
      fabled service stop
    """
    _, manager = _installed()
    manager.stop()
    return _done(manager, "stopped", as_json)


@service.command()
@options.as_json
def restart(as_json: bool) -> int:
    """Stop the service and start it again, with the configuration as it is now.

    \b
      fabled service restart
    """
    settings, manager = _installed()
    if manager.state().state == "stopped":
        _refuse_beside_another(manager)
    _forget_failures(settings)
    manager.restart()
    return _done(manager, "restarted", as_json, pid=_first_answer(manager).get("pid"))


@service.command()
@options.as_json
def status(as_json: bool) -> int:
    """How the service stands with its manager: exit status 0 where it runs, 3 where not.

    \b
      fabled service status
      fabled service status --json
    """
    _, facts, manager = _here()
    value: dict[str, Any] = asdict(manager.state())
    if value["installed"]:
        with open(manager.path, "rb") as file:
            value["current"] = file.read() == manager.text(facts)
    value["why"] = manager.why()
    value["advice"] = manager.advice() if value["installed"] else ""
    if as_json:
        edge.put_json(value)
    else:
        edge.put_text(words.status(value, edge.style()))
    return 0 if value["state"] in ("running", "reloading") else 3


@service.command()
@click.option("--purge", is_flag=True, help="Remove all that fabled keeps as well; asks for the folder's name.")
@click.option("--confirm", metavar="NAME", help="The folder's name, where nobody can be asked.")
@options.as_json
def uninstall(purge: bool, confirm: str | None, as_json: bool) -> int:
    """Stop and remove the service. What fabled keeps stays, and it is said where.

    \b
      fabled service uninstall
      fabled service uninstall --purge
    """
    from fabled import config
    from fabled.service import manager as managers
    from fabled.service import remove

    places = config.places(os.environ)  # also where the configuration is faulty
    manager = managers.here(os.environ)
    gone = manager.remove() if os.path.exists(manager.path) else []
    style = edge.style()
    edge.note("Stopped and removed the service." if gone else "The service was not installed.")
    holdings = remove.holdings(places)
    result: dict[str, Any] = {"removed": gone, "data": holdings.folder, **asdict(holdings), "purged": False}
    if not remove.begun(places):
        edge.note("There is no data of fabled's.")
    elif not purge:
        if not as_json:
            edge.put_text(words.stays(holdings.folder, holdings.bytes, asdict(holdings.sole), style))
    else:
        _confirm(holdings, confirm, style)
        left = remove.purge(places)
        result |= {"purged": True, "left": left}
        if not as_json:
            edge.put_text(words.purged(holdings.folder, holdings.bytes, left, style))
    if as_json:
        edge.put_json(result)
    return 0


def _confirm(holdings: Holdings, confirm: str | None, style: Any) -> None:
    """Raises Refused unless the folder's name was given, after it was said what would be lost."""
    edge.note(words.would_go(holdings.folder, holdings.bytes, asdict(holdings.sole), style).rstrip("\n"))
    if confirm is None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(
                "nobody can be asked here; no data was removed",
                f"fabled service uninstall --purge --confirm {holdings.name}",
            )
        confirm = edge.typed(f"Type {holdings.name} to remove it for good")
    if confirm != holdings.name:
        raise Refused(f"that is not {holdings.name}; no data was removed", "fabled service uninstall --purge")
