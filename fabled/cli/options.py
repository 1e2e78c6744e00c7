"""Options that several commands share.

What they mean to an answer is left to the commands.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def here() -> str | None:
    """The working folder, which decides whose project is meant; None where it was deleted under us."""
    try:
        return os.getcwd()
    except OSError:
        return None


def project(about: str = "Only this project: its path, or its folder's name.") -> Callable[[Command], Command]:
    """The option that says which project is meant."""
    return click.option("--project", metavar="P", callback=_whole, help=about)


def _whole(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A relative path made whole: the daemon, which knows the projects, stands in another folder."""
    relative = value and (value in (".", "..") or ("/" in value and value[0] not in "/~"))
    return os.path.abspath(value) if value and relative else value


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
as_plain = click.option("--plain", "as_plain", is_flag=True, help="One row a line, columns parted by tabs.")
utc = click.option("--utc", is_flag=True, help="Exact times in UTC instead of local ones.")


def output(command: Command) -> Command:
    """The options that say how an answer is printed."""
    return as_json(utc(command))


def form(as_json: bool, as_plain: bool = False) -> str:
    """The form of an answer that was asked for."""
    if as_json and as_plain:
        raise click.UsageError("--json and --plain exclude each other.")
    return "json" if as_json else "plain" if as_plain else "text"


class Helpful(click.Group):
    """A group that knows what a misspelt subcommand may have meant, and says in full what each of its own does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(200)) for name, one in sorted(self.commands.items())])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.commands, 1)
            known = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(self.commands))}."
            raise click.UsageError(f"there is no {ctx.command_path} {name}. {known}", ctx)
        return super().resolve_command(ctx, args)
