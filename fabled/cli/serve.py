"""`daemon` and `status`: the process, and how it is.

The daemon itself is in its own room; here only what a person at a terminal sees of its start.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fabled.cli import ask, edge, options
from fabled.cli.progress import Bar
from fabled.client import absent, connect
from fabled.present.terminal import path, plural

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
    from fabled import config, logs
    from fabled.daemon import app, starts

    def run() -> int:
        settings = config.load(os.environ)
        # The journal and programs read lines; everybody else is a person, now or later.
        watched = not (as_json or logs.journal_reads_stderr() or os.environ.get("FABLED_SERVICE"))
        return app.run(settings, ui=Terminal() if watched else None, json_lines=as_json)

    if os.environ.get("FABLED_SERVICE") == "launchd":
        return starts.guarded(config.places(os.environ), run)
    return run()


class Terminal:
    """What the daemon's start says to the person who started it. Called on the writer's OS thread."""

    def __init__(self) -> None:
        self._bar = Bar("first index")
        self._ready = False

    def progress(self, progress: Progress) -> None:
        if not self._ready:
            self._bar(progress)

    def ready(self, summary: Mapping[str, Any]) -> None:
        """Everything there is has been indexed; from here on changes are followed."""
        self._ready = True
        self._bar.close()
        style = edge.style()
        for root in summary.get("waiting") or []:
            self.note(f"No transcripts yet: waiting for the folder {path(str(root), style)}.")
        if summary.get("records"):
            known = f"{plural(summary.get('sessions') or 0, 'session')}, {plural(summary['records'], 'record')}"
            self.note(f"{known} searchable; new ones follow as they are written. Ctrl-C stops the daemon.")
            self.note(f'Try in another terminal:  {_called()} search "why did we"')
        else:
            self.note(f"Nothing to search yet. See how it works meanwhile:  {_called()} demo  (or make demo)")

    def note(self, text: str) -> None:
        edge.note(text)


def _called() -> str:
    """How the command is called from here: by its place where a shell would not find it, as in a checkout."""
    script = os.path.join(os.path.dirname(sys.executable), "fabled")
    if shutil.which("fabled") is not None or not os.access(script, os.X_OK):
        return "fabled"
    near = os.path.relpath(script)
    return script if near.startswith("..") else near


@click.command()
@click.option("--oneline", is_flag=True, help="A few words for a shell prompt.")
@click.option("--watch", is_flag=True, help="Again each second, until Ctrl-C.")
@options.output
def status(as_json: bool, oneline: bool, watch: bool, utc: bool) -> int:
    """How fabled is: what it holds, what it does, what needs attention.

    \b
      fabled status
      fabled status --json
      fabled status --watch
    """
    if watch:
        if as_json or oneline:
            raise click.UsageError("--watch is for people; programs take fabled top --json.")
        from fabled.cli import live

        return live.watch(utc)
    if oneline and as_json:
        raise click.UsageError("--oneline and --json exclude each other.")
    form = "oneline" if oneline else options.form(as_json)
    try:
        return ask.show_running("status", {}, form=form, utc=utc, seconds=2.0)
    except connect.Down:
        return absent.not_running(form)
