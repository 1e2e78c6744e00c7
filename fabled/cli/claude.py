"""`claude`: Claude Code's plugin of fabled, and exactly what it would be given; the doors that Claude Code itself uses.

The plugin's files and the user's settings are `plugin`'s, the text of a recall is `recall`'s.
"""

from __future__ import annotations

import difflib
import os
from typing import Any

import click

from fabled.cli import ask, edge, options, plugin, standing
from fabled.client import absent
from fabled.errors import FabledError
from fabled.present.terminal import path, plural, tokens


@click.group(invoke_without_command=True, cls=options.Helpful)
@click.pass_context
def claude(ctx: click.Context) -> None:
    """Let Claude Code search its own history."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@claude.command()
@click.option("--print", "only_print", is_flag=True, help="Show what would be changed, and change nothing.")
@click.option("--statusline", is_flag=True, help="Also show fabled's line below the prompt, if there is none yet.")
@options.as_json
def install(only_print: bool, statusline: bool, as_json: bool) -> int:
    """Add the plugin: hooks, MCP server, skill and command. Only our own entries of the settings are touched.

    \b
      fabled claude install
      fabled claude install --print
    """
    spot = _spot()
    change = plugin.added(spot, os.environ, statusline)
    files = plugin.files(os.environ)
    if only_print:
        if as_json:
            edge.put_json({"changed": False, "settings": spot.settings, "folder": spot.folder, "files": sorted(files)})
            return 0
        shown = _difference(change) + "".join(
            f"\n# {spot.folder}/{name}\n{data.decode()}" for name, data in files.items() if name.endswith(".json")
        )
        edge.document(shown.encode("utf-8", "backslashreplace"))
        return 0
    plugin.install(spot, os.environ, change)
    if as_json:
        edge.put_json({"changed": change.needed, "settings": spot.settings, "folder": spot.folder})
        return 0
    style = edge.style()
    edge.say(
        f"✓ plugin {plugin.NAME} {_version()} added (hooks, MCP server, skill and command recall)",
        f"  settings  {path(spot.settings, style)}{'' if change.needed else ' (had it already)'}",
        f"  plugin    {path(spot.folder, style)}",
        "  Sessions that begin from now on have it.  What they are given:  fabled claude show-context",
        "  The prompt hook is off.  On:  on_prompt = true under [recall] of the configuration",
        "  Take it away:  fabled claude uninstall",
    )
    return 0


@claude.command()
@click.option("--print", "only_print", is_flag=True, help="Show what would be changed, and change nothing.")
@options.as_json
def uninstall(only_print: bool, as_json: bool) -> int:
    """Take the plugin away, and our entries of the settings with it.

    \b
      fabled claude uninstall
    """
    spot = _spot()
    change = plugin.taken(spot)
    if only_print:
        edge.document(_difference(change).encode("utf-8", "backslashreplace"))
        return 0
    there = os.path.isdir(spot.folder)
    plugin.uninstall(spot, change)
    if as_json:
        edge.put_json({"changed": change.needed or there, "settings": spot.settings})
    else:
        said = "✓ plugin removed" if change.needed or there else "The plugin was not installed"
        edge.say(f"{said}. Your history stays where it is.")
    return 0


@claude.command()
@options.as_json
def status(as_json: bool) -> int:
    """Whether the plugin is on and works. Exit status 1 if not.

    \b
      fabled claude status
    """
    from fabled import config

    spot = _spot()
    wanted = config.load(os.environ).recall
    found = standing.look(spot, os.environ)
    value: dict[str, Any] = {
        "installed": found.installed,
        "enabled": found.enabled,
        "settings": spot.settings,
        "folder": spot.folder,
        "version": _version(),
        "plugin_version": found.version,
        "on_start": wanted.on_start,
        "on_prompt": wanted.on_prompt,
        "hook_ms": found.hook.ms if found.hook is not None else None,
        "mcp_ms": found.mcp.ms if found.mcp is not None else None,
        "daemon": _daemon(),
    }
    problems = [f"{one.said}: {one.fix}" for one in standing.problems(found)]
    if not value["daemon"]:
        problems.append(f"the daemon is not running, so nothing is recalled: {absent.start_line(os.environ)}")
    value["problems"] = problems
    if as_json:
        edge.put_json(value)
    else:
        edge.say(*_told(value))
    return 1 if problems else 0


@claude.command("show-context")
@click.option("--session-start", is_flag=True, help="What a new session is told (the default).")
@click.option("--prompt", metavar="TEXT", help="What comes up by itself with this prompt.")
@click.option("--thread", "thread_id", metavar="ID", help="A thread as it is handed over.")
@click.option(
    "--source",
    type=click.Choice(["startup", "resume", "clear", "compact"]),
    default="startup",
    show_default=True,
    help="With --session-start: how the session began.",
)
@click.option("--session", metavar="ID", help="The session that is told.")
@click.option("--budget", type=click.IntRange(100, 20_000), help="Tokens.")
@options.as_json
def show_context(
    session_start: bool,
    prompt: str | None,
    thread_id: str | None,
    source: str,
    session: str | None,
    budget: int | None,
    as_json: bool,
) -> int:
    """Exactly what a model would be given, with its size. Exit status 1 if that is nothing.

    \b
      fabled claude show-context
      fabled claude show-context --prompt "why does the watcher miss events after sleep"
      fabled claude show-context --thread 7c41e0aa
    """
    if sum((session_start, prompt is not None, thread_id is not None)) > 1:
        raise click.UsageError("--session-start, --prompt and --thread exclude each other.")
    params: dict[str, Any] = {"cwd": options.here()} if options.here() is not None else {}
    if prompt is not None:
        params |= {"what": "prompt", "query": prompt}
    elif thread_id is not None:
        params = {"what": "thread", "id": thread_id, "automatic": True}
    else:
        params |= {"what": "session-start", "source": source}
    params |= {name: given for name, given in (("session", session), ("budget", budget)) if given}
    value = {name: one for name, one in ask.fetch("recall", params).items() if name != "v"}
    if as_json:
        edge.put_json(value)
    elif value["text"]:
        edge.document(f"{value['text']}\n".encode("utf-8", "backslashreplace"))
        edge.note(f"{tokens(value['est_tokens'])}, {plural(value['chars'], 'character')}")
    else:
        edge.note("Nothing: a model would be given no text here.")
    return 0 if value["text"] else 1


# ── the doors of Claude Code ────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("event")
def hook(event: str) -> int:
    """What Claude Code's hooks run: the hook's JSON on stdin, context or nothing on stdout, always exit status 0.

    EVENT is session-start, user-prompt-submit, pre-compact, session-end or stop.
    """
    from fabled.client import hook as door

    return door.run(event)


@click.command()
def mcp() -> int:
    """The Model Context Protocol on stdin and stdout: search, thread, block, recent and file for Claude Code."""
    from fabled.client import mcp as door

    return door.serve()


@click.command()
def statusline() -> int:
    """One short line for Claude Code's status line."""
    from fabled.client import hook as door

    return door.statusline()


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _spot() -> plugin.Spot:
    from fabled import config

    return plugin.Spot.of(config.places(os.environ))


def _version() -> str:
    from fabled import __version__

    return __version__


def _daemon() -> bool:
    from fabled.client import connect

    try:
        ask.fetch_running("ping", {}, 2.0)
    except (connect.Down, FabledError):
        return False
    return True


def _told(value: dict[str, Any]) -> list[str]:
    style = edge.style()
    lines = []
    if value["installed"]:
        times = [f"{name} {value[key]:.0f} ms" for name, key in (("hooks", "hook_ms"), ("MCP", "mcp_ms")) if value[key]]
        state = "on" if value["enabled"] else "off"
        lines.append(f"plugin     fabled {value['plugin_version']}, {', '.join([state, *times])}")
        told = [name for name, on in (("session start", value["on_start"]), ("prompts", value["on_prompt"])) if on]
        lines.append(f"recalls    {' and '.join(told) or 'nothing by itself'}")
    lines.append(f"settings   {path(value['settings'], style)}")
    lines.append(f"daemon     {'running' if value['daemon'] else 'not running'}")
    if value["problems"]:
        lines += ["", *(f"! {problem}" for problem in value["problems"]), plural(len(value["problems"]), "problem")]
    return lines


def _difference(change: plugin.Change) -> str:
    before, after = (
        (data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in (change.before, change.after)
    )
    lines = difflib.unified_diff(before, after, change.path, change.path)
    said = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    return said or f"{change.path} stays as it is.\n"
