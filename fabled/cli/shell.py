"""`completion`: what a shell asks for when Tab is pressed, ids and project names among it.

Ids and names come from the running daemon; without one, or with a slow one, there are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from fabled.cli import ask, edge
from fabled.client import connect
from fabled.errors import FabledError

# What bash takes as it stands in a word; all else could be a command in it.
_BARE = re.compile(r"[^\w@%+,./~-]")


@add_completion_class
class _Bash(BashComplete):
    """bash puts what it is offered into the line as it is, so a folder's name like `$(…)` would run with it."""

    def format_completion(self, item: CompletionItem) -> str:
        word = _BARE.sub(lambda found: f"\\{found[0]}", str(item.value))
        return f"{item.type},{word}".replace("\\", "\\\\")  # the script's `read` takes one of two away


SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE = "_FABLED_COMPLETE"
SECONDS = 0.4
SHOWN = 60

Items = list[CompletionItem]


@click.command()
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> int:
    """Print the completion for a shell: commands, options, ids of sessions and threads, projects, settings.

    \b
      fabled completion bash > ~/.local/share/bash-completion/completions/fabled
      fabled completion zsh > ~/.zfunc/_fabled          with fpath+=~/.zfunc before compinit
      fabled completion fish > ~/.config/fish/completions/fabled.fish
    """
    from fabled.cli.group import fabled

    made = SHELLS[shell](fabled, {}, "fabled", VARIABLE)
    # Not `source()`: of bash it would start another one to learn its version.
    edge.put_text(made.source_template % made.source_vars())
    return 0


def _asked(method: str, **params: Any) -> dict[str, Any]:
    """The daemon's answer, if it is quick; a completion that keeps a person waiting is none."""
    try:
        return ask.fetch_running(method, params, SECONDS)
    except (connect.Down, FabledError):
        return {}


def _sessions(word: str) -> Items:
    rows = _asked("sessions", limit=2_000).get("sessions") or []
    return [
        CompletionItem(row["session_id"], help=str(row.get("title") or row.get("project") or ""))
        for row in rows
        if str(row["session_id"]).startswith(word)
    ][:SHOWN]


def _threads(word: str) -> Items:
    rows = _asked("threads_like", prefix=word, limit=SHOWN).get("threads") or []
    return [CompletionItem(row["thread"], help=str(row.get("title") or "")) for row in rows]


def _projects(word: str) -> Items:
    rows = _asked("projects").get("projects") or []
    names = [str(row["project"]) for row in rows]
    found = [CompletionItem(name) for name in names if name.startswith(word)]
    if "/" not in word:
        found += [CompletionItem(tail) for name in names if (tail := name.rstrip("/").rpartition("/")[2])
                  and tail.startswith(word)]  # fmt: skip
    return found[:SHOWN]


def _settings(word: str) -> Items:
    from fabled.config import setting_names

    return [CompletionItem(name) for name in setting_names() if name.startswith(word)]


# parameter of a command, or of whichever has one of that name → who knows its values
_KNOWN: dict[tuple[str, str], Callable[[str], Items]] = {
    ("thread", "thread_id"): _threads,
    ("export", "thread_id"): _threads,
    ("", "session"): _sessions,
    ("", "sessions"): _sessions,
    ("", "project"): _projects,
    ("", "key"): _settings,
}


def knowing(name: str, command: click.Command) -> click.Command:
    """A command whose parameters complete themselves."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    for one in (command, *below):
        for param in one.params:
            source = _KNOWN.get((name, param.name or "")) or _KNOWN.get(("", param.name or ""))
            if source is not None:
                param.shell_complete = _ask(source)
    return command


def _ask(source: Callable[[str], Items]) -> Callable[[click.Context, str], Items]:
    def complete(ctx: click.Context, incomplete: str) -> Items:
        # The shells read lines: a name that holds the end of one, or moves the cursor, cannot be offered.
        return [
            CompletionItem(
                one.value, help=" ".join("".join(c if c.isprintable() else " " for c in one.help or "").split())
            )
            for one in source(incomplete)
            if str(one.value).isprintable()
        ]

    return complete
