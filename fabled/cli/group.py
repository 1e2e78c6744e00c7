"""The list of commands, each brought in when it is called, and the overview that bare `fabled` shows.

The commands themselves stand in the files named here.
"""

from __future__ import annotations

import difflib
from importlib import import_module

import click

from fabled import __version__
from fabled.cli import edge

# command → (file of this room, what it does in a few words)
COMMANDS = {
    "search": ("find", "find threads by their words"),
    "thread": ("find", "read one thread from its first prompt to its last reply"),
    "block": ("find", "one record, byte for byte"),
    "sessions": ("find", "list sessions"),
    "projects": ("find", "list projects"),
    "terms": ("terms", "discovery terms: commands, files, names, topics"),
    "cards": ("cards", "what threads were about, in a few lines"),
    "recent": ("recent", "where was I: the last threads, and what was left open"),
    "overview": ("recent", "every project, its last activity and open ends"),
    "file": ("recent", "every change of a file, over all sessions"),
    "stats": ("look", "sums by project or by day"),
    "report": ("page", "a page of pictures about your own history"),
    "export": ("page", "one thread as Markdown, HTML or JSONL"),
    "logs": ("look", "what the daemon wrote down"),
    "top": ("live", "what goes on, live"),
    "doctor": ("doctor", "is everything set up well; how to mend what is not"),
    "completion": ("shell", "completion for bash, zsh or fish"),
    "index": ("keep", "bring the Map up to date now"),
    "check": ("keep", "test every invariant"),
    "spans": ("keep", "account for every byte of one transcript"),
    "capture": ("vault", "keep sessions' bytes in the Vault now"),
    "generations": ("vault", "what the Vault keeps of a session"),
    "prune": ("vault", "make a live transcript smaller; nothing is lost"),
    "restore": ("vault", "put a kept state of a session back"),
    "undo": ("vault", "take the last prune back"),
    "diff": ("vault", "what a prune or a rewrite cost a session"),
    "forget": ("forget", "remove a session or project for good, and keep it out"),
    "daemon": ("serve", "watch, index and answer, in the foreground"),
    "status": ("serve", "how fabled is"),
    "service": ("service", "fabled in the background, from login on"),
    "config": ("setup", "settings and places"),
    "claude": ("claude", "let Claude Code search its own history"),
    "hook": ("claude", "what Claude Code's hooks run"),
    "mcp": ("claude", "the MCP server that Claude Code starts"),
    "statusline": ("claude", "a line for Claude Code's status line"),
    "demo": ("demo", "see it work on a small invented history"),
}
SECTIONS = {
    "Find": ("search", "thread", "block", "file", "export"),
    "Look": (
        "recent",
        "overview",
        "status",
        "top",
        "stats",
        "report",
        "sessions",
        "projects",
        "terms",
        "cards",
        "logs",
        "doctor",
    ),
    "Keep": ("capture", "prune", "restore", "undo", "diff", "generations", "forget"),
    "Check": ("index", "check", "spans"),
    "Set up": ("service", "daemon", "config", "claude", "completion", "demo"),
    "Machines": ("hook", "mcp", "statusline"),
}


class Lazy(click.Group):
    """Knows the commands by name and brings a file in only for the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"fabled.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        if ctx.resilient_parsing:  # a shell asks what may stand here
            from fabled.cli.shell import knowing

            return knowing(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no command {name[:60]}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("""
Exit status: 0 done, 1 nothing found or failed, 2 wrong usage, 3 the daemon is not running or will not start,
4 refused by a safety rule, 5 stale index, 78 bad configuration, 130 interrupted.
""")


@click.group(
    cls=Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="fabled %(version)s")
@click.pass_context
def fabled(ctx: click.Context) -> int:
    """Searchable, lossless memory of your Claude Code sessions."""
    if ctx.invoked_subcommand is None:
        overview()
    return 0


def overview() -> None:
    lines = [f"fabled {__version__}: searchable, lossless memory of your Claude Code sessions", ""]
    lines += [f"{section:<10}{'  '.join(names)}" for section, names in SECTIONS.items()]
    lines += [
        "",
        'New here?  fabled service install   then  fabled search "why did we"   (just looking: fabled demo)',
        "fabled <command> --help shows examples first.",
    ]
    edge.put_text("\n".join(lines) + "\n")
