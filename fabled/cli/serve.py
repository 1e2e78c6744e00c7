"""`daemon` and `status`: the process, and how it is.

The daemon itself is in its own room; here only what a person at a terminal sees of its start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fabled.cli import ask, edge, options
from fabled.cli.progress import Bar
from fabled.client import absent, connect
from fabled.present.terminal import count, path, plural

if TYPE_CHECKING:
    from fabled.indexer import Progress


@click.command()
@options.as_json
def daemon(as_json: bool) -> int:
    """Watch transcripts, index them as they are written, and answer; in the foreground, until SIGTERM or SIGINT.

    \b
      fabled daemon
      FABLED_LOG_LEVEL=debug fabled daemon

    SIGHUP reads the configuration again.
    """
    from fabled import config
    from fabled.daemon import app

    settings = config.load(os.environ)
    return app.run(settings, ui=Terminal(sys.stderr.isatty() and not as_json))


class Terminal:
    """What the daemon's start says to the person who watches it; silent where nobody does."""

    def __init__(self, watched: bool) -> None:
        self._watched = watched
        self._bar = Bar("first index") if watched else None

    def progress(self, progress: Progress) -> None:
        if self._bar is not None:
            self._bar(progress)

    def ready(self, summary: Mapping[str, Any]) -> None:
        """Everything there is has been indexed; from here on changes are followed."""
        if self._bar is None:
            return
        self._bar.close()
        self._bar = None
        style = edge.style()
        for root in summary.get("waiting") or []:
            self.note(f"No transcripts yet: waiting for {path(str(root), style)} to appear.")
        if summary.get("records"):
            known = f"{plural(summary.get('sessions') or 0, 'session')}, {count(summary['records'])} records"
            print(
                f"{known} are searchable; new ones follow as they are written. Ctrl-C stops it.\n"
                'Try in another terminal:  fabled search "why did we"',
                file=sys.stderr,
            )
        else:
            print("Nothing is indexed yet. See how it works meanwhile:  make demo  (or fabled demo)", file=sys.stderr)

    def note(self, text: str) -> None:
        if self._watched:
            edge.note(text)


@click.command()
@click.option("--oneline", is_flag=True, help="A few words for a shell prompt.")
@options.output
def status(as_json: bool, oneline: bool, utc: bool) -> int:
    """How fabled is: what it holds, what it does, what needs attention.

    \b
      fabled status
      fabled status --json
    """
    form = "oneline" if oneline else options.form(as_json)
    try:
        return ask.show_running("status", {}, form=form, utc=utc, seconds=2.0)
    except connect.Down:
        return absent.not_running(form)
