"""The list of commands, each brought in when it is called, and the overview that bare `fabled` shows.

The commands themselves stand in the files named here.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

import click

from fabled import __version__
from fabled.cli import edge
from fabled.present.columns import cells, fold, pad, widest

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
        formatter.write("\n")
        formatter.write_text(
            "Exit status: 0 done, 1 nothing found or failed, 2 wrong usage, 3 the daemon is not running or will not "
            "start, 4 refused by a safety rule, 5 stale index, 78 bad configuration, 130 interrupted."
        )


class Formatter(click.HelpFormatter):
    """Help that keeps to the terminal's width in its examples, too: commands whole, what they do beside or below."""

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
            if number:
                self.write("\n")
            if paragraph.startswith("\b"):
                for line in _examples(paragraph.split("\n")[1:], self.current_indent, self.width):
                    self.write(f"{line}\n")
            else:
                super().write_text(paragraph)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, self.width * 2 // 5), col_spacing)


def _examples(lines: Sequence[str], indent: int, width: int) -> Iterator[str]:
    """Lines of a command and, behind a gap, what it does."""
    if all(indent + cells(line) <= width for line in lines):
        yield from (" " * indent + line for line in lines)
        return
    rows = [re.split(r"(?<=\S)  +", line, maxsplit=1) for line in lines]
    column = indent + widest(row[0] for row in rows if len(row) > 1) + 2
    for command, *said in rows:
        command = " " * indent + command
        if not said:
            yield command
        elif width - column >= 24:
            yield from fold(f"{pad(command, column)}{said[0]}", width, column)
        else:
            yield command
            yield from fold(" " * (indent + 6) + said[0], width, indent + 6)


click.Context.formatter_class = Formatter


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
    edge.say(
        f"fabled {__version__}: searchable, lossless memory of your Claude Code sessions",
        "",
        *(f"{section:<10}{'  '.join(names)}" for section, names in SECTIONS.items()),
        "",
        'New here?  fabled service install   then  fabled search "why did we"   (just looking: fabled demo)',
        "fabled <command> --help shows examples first.",
    )
