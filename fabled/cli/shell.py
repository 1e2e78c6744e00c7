"""`completion`: what a shell asks for when Tab is pressed, ids and project names among it.

Ids and names come from the running daemon; without one, or with a slow one, there are none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from fabled.cli import ask, edge
from fabled.client import connect
from fabled.errors import FabledError
from fabled.present import visible

# Words as they are, backslashes and signs that bash would take for a pattern among them; and also where bash is old.
_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""
# Only the first comma parts the kind from the word: names have commas, too.
_FISH = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')
SHELLS: dict[str, tuple[type[ShellComplete], str]] = {
    "bash": (BashComplete, _BASH),
    "zsh": (ZshComplete, ZshComplete.source_template),
    "fish": (FishComplete, _FISH),
}
VARIABLE = "_FABLED_COMPLETE"
_LITERAL = re.compile(r"([^\w@%+=:,./~-])")
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

    kind, template = SHELLS[shell]
    edge.put_text(template % kind(fabled, {}, "fabled", VARIABLE).source_vars())
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
        items = [
            CompletionItem(one.value, help=" ".join(visible(one.help or "").split()))
            for one in source(incomplete)
            if str(one.value).isprintable()
        ]
        if os.environ.get(VARIABLE, "").startswith("bash"):
            # zsh and fish quote what they insert; bash would run what stands in a project's name.
            for item in items:
                item.value = _LITERAL.sub(r"\\\1", item.value)
        return items

    return complete
