"""`stats` and `logs`: what happened, added up or line by line.

Sums are made where the Map is read; lines were written by the daemon.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import click

from fabled.cli import ask, edge, journal, options
from fabled.errors import NotFound
from fabled.present.terminal import finish


@click.command()
@click.option("--by", type=click.Choice(("project", "day")), default="project", show_default=True)
@options.project()
@click.option("--since", metavar="TIME", help="Only what was written since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many rows.")
@options.as_plain
@options.output
def stats(as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """What was written, kept, saved and recalled, by project or by day.

    \b
      fabled stats
      fabled stats --by day --since 4w
    """
    params = {name: value for name, value in filters.items() if value is not None}
    return ask.show("stats", params, form=options.form(as_json, as_plain), utc=utc)


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--since", metavar="TIME", help="Only lines since: an ISO date or time, or 10m, 3h, 2d ago.")
@click.option("--level", type=click.Choice(journal.LEVELS), default="debug", help="Only this level and worse.")
@click.option("-n", "--lines", type=click.IntRange(0), help="The last so many.  [default: 50, all with --since]")
@options.output
def logs(follow: bool, since: str | None, level: str, lines: int | None, as_json: bool, utc: bool) -> int:
    """What the daemon wrote down: from its file, or from the journal where systemd runs it.

    \b
      fabled logs --since 3h --level warning
      fabled logs -f
      fabled logs --json -n 0 -f | jq .event

    No line holds text of a transcript.
    """
    from fabled import config, present

    start = None
    if since is not None:
        from fabled.transcript.query import moment

        start = moment(since, time.time())
        if start is None:
            raise click.UsageError(f"--since: {since} is no time; give an ISO date or time, or 90m, 3h, 2d, 6w.")
    source = journal.Source(config.places(os.environ).log_file, os.environ)
    last = lines if lines is not None else None if start is not None else 50
    found = journal.wanted(source.lines(), level, start)
    shown = list(found)[-last:] if last else ([] if last == 0 else list(found))
    if not shown and not follow:
        raise NotFound("the log holds no such line", "fabled logs --level debug, or a longer --since")
    style = edge.style("text", utc)

    def put(entry: journal.Entry) -> None:
        if as_json:
            edge.put_json_text(entry.raw + "\n")
        else:
            edge.put_text(finish(present.log_line(entry.fields, style), style))

    for entry in shown:
        put(entry)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            for entry in journal.wanted(source.follow(), level, None):
                put(entry)
    return 0
