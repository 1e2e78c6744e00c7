"""`terms`: the words, names, files and commands that conversations can be found by.

Counting is done where the Map is read; deriving, by whoever writes it.
"""

from __future__ import annotations

import os
from typing import Any

import click

from fabled.cli import ask, options
from fabled.client import connect
from fabled.errors import AlreadyRunning, NoIndex

KINDS = ("operative", "target", "concept", "wikilink")


@click.command()
@click.argument("prefix", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="Commands, files and names, topics, or [[links]].")
@options.project()
@click.option("--thread", metavar="ID", help="Only of this thread, the most telling first.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0), help="Leave out the first ones.")
@options.as_plain
@options.output
def terms(as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """List discovery terms, those of most threads first.

    \b
      fabled terms                            what there is
      fabled terms git --kind operative       commands that begin so
      fabled terms --project indexer --kind target
      fabled terms --thread 7c41e0            what one thread is about
      fabled search retry --term 'git rebase' searches only threads with a term

    Terms are derived when nothing else waits, or when they are asked for.
    """
    params = {name: value for name, value in filters.items() if value not in (None, "")}
    form = options.form(as_json, as_plain)
    try:
        ask.fetch_running("ping", {}, 5.0)
    except connect.Down:
        _derive()
    return ask.show("terms", params, form=form, utc=utc)


def _derive() -> None:
    """Without a daemon the terms are derived here, if nobody else writes."""
    from fabled import config
    from fabled.cli import here

    settings = config.load(os.environ)
    if not os.path.exists(settings.places.map_db):
        raise NoIndex("there is no index yet", "fabled index, or start the daemon: fabled daemon")
    try:
        with here.opened(settings) as own:
            own.indexer.derive_terms()
    except AlreadyRunning:
        return  # then the answer says what is left
