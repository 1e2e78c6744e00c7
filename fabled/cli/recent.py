"""`recent`, `overview` and `file`: where was I, and what became of a file.

What the answers say is worked out where the Map is read; how they look is `present`'s business.
"""

from __future__ import annotations

from typing import Any

import click

from fabled.cli import ask, options


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value not in (None, False, ())}


@click.command()
@options.project("This project: its path, or its folder's name.")
@click.option("--all", "everywhere", is_flag=True, help="Every project, wherever you are.")
@click.option("--session", metavar="S", help="This session, and what its last compaction put out of sight.")
@click.option("--since", metavar="TIME", help="Only threads at work since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="Only threads begun until then.")
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="How many threads.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out the first ones.")
@options.as_plain
@options.output
def recent(as_json: bool, as_plain: bool, utc: bool, everywhere: bool, **filters: Any) -> int:
    """Where was I: the last threads, what they left open, the files they changed.

    \b
      fabled recent                     the project you stand in
      fabled recent --project indexer -n 3
      fabled recent --session 6513270e  also what went behind its last compaction

    A thread is open when it ends its session with a question, a failure, an interruption or half way. After a
    compaction, the threads that the model no longer sees are listed, each one command away. Exit status 1: none.
    """
    if everywhere and filters.get("project"):
        raise click.UsageError("--all and --project exclude each other.")
    params = _given(cwd=options.here(), all=everywhere, **filters)
    return ask.show("recent", params, form=options.form(as_json, as_plain), utc=utc)


@click.command()
@click.option("--since", metavar="TIME", help="Only projects at work since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out the first ones.")
@options.as_plain
@options.output
def overview(as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """Every project: its last activity, what its last sessions left open, how much there is of it.

    \b
      fabled overview
      fabled overview --since 2w
    """
    return ask.show("overview", _given(**filters), form=options.form(as_json, as_plain), utc=utc)


@click.command()
@click.argument("path")
@click.option("--diff", is_flag=True, help="Show each change as a unified diff.")
@options.project("Only sessions of this project.")
@click.option("--since", metavar="TIME", help="Not before: an ISO date or time, or 90m, 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@click.option("-n", "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="The last so many.")
@options.as_plain
@options.output
def file(path: str, as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """Every change of a file by a tool call, over all sessions, in order of time.

    \b
      fabled file src/app/main.py          as seen from here, else whatever ends so
      fabled file ~/src/app/main.py --diff
      fabled file main.py --since 2w

    Only what editing tools did is known; a change by a shell command or by hand is not. Exit status 1: none.
    """
    params = _given(path=path, cwd=options.here(), **filters)
    return ask.show("file", params, form=options.form(as_json, as_plain), utc=utc)
