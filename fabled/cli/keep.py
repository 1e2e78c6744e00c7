"""`index`, `check` and `spans`: the commands that look after the Map, or at one transcript.

The work is the verbs'; the daemon is asked first where it may do it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from fabled.cli import ask, edge, options
from fabled.cli.here import open_vault, opened
from fabled.cli.progress import Bar, Watching
from fabled.client import connect
from fabled.errors import BadRequest, NoIndex, NotFound, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fabled.config import Config
    from fabled.indexer import IndexReport


# ── index ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("paths", nargs=-1)
@options.as_json
def index(paths: tuple[str, ...], as_json: bool) -> int:
    """Bring the Map up to date now.

    \b
      fabled index                       everything
      fabled index ~/.claude/projects/x  one folder or transcript

    A running daemon does it; without one it is done here, under the same lock.
    """
    from fabled import config, present

    settings = config.load(os.environ)
    wanted = _inside(paths, settings)
    try:
        with Watching(progress_of_daemon):
            value: Mapping[str, Any] = ask.fetch_running("index", {"paths": wanted} if wanted else {}, None)
    except connect.Down:
        value = _index_here(settings, wanted)
    if as_json:
        edge.put_json({key: given for key, given in value.items() if key != "v"})
    else:
        edge.put_text(present.text("index", value, edge.style()))
    if value.get("stopped"):
        return edge.INTERRUPTED
    return 1 if value.get("failed") else 0


def progress_of_daemon() -> Mapping[str, Any] | None:
    try:
        progress = ask.fetch_running("status", {}, 2.0).get("progress")
    except connect.Down:
        return None
    return progress if isinstance(progress, dict) else None


def _inside(paths: Sequence[str], settings: Config) -> list[str]:
    """The paths as the daemon can find them, too; one that can hold no transcript is a mistake worth a word."""
    vault = open_vault(settings)
    wanted = [os.path.abspath(path) for path in paths]
    for path in wanted:
        if vault.base_of(os.path.realpath(path)) is None:
            raise BadRequest(f"{path} lies in none of the transcript folders", "fabled config paths shows them")
        if os.path.isfile(path) and vault.place(path) is None and not path.endswith(".meta.json"):
            raise BadRequest(f"{path} is no transcript", "give a .jsonl file, or a folder that holds some")
    return wanted


def _index_here(settings: Config, paths: Sequence[str]) -> dict[str, Any]:
    with opened(settings) as here:
        if not paths:
            here.indexer.repair()  # without a daemon nobody else looks for damage of the full text
        with Bar() as bar, stop_on_interrupt() as stop:
            report = here.indexer.update(list(paths) or None, progress=bar, stop=stop)
        here.indexer.idle()
    return report_value(report)


def report_value(report: IndexReport) -> dict[str, Any]:
    value = asdict(report)
    del value["grown"]
    value["failed"] = [{"path": path, "reason": reason} for path, reason in report.failed]
    return value


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends the run between two transactions; a second one ends it where it stands, which is safe as well."""
    asked = False

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


# ── check ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.option("--deep", is_flag=True, help="Read every generation and every best pointer again.")
@options.as_json
def check(deep: bool, as_json: bool) -> int:
    """Test every invariant and list what breaks it.

    \b
      fabled check          the Map against itself and the files' stamps
      fabled check --deep   and every byte against its checksum
    """
    from fabled import check as verb
    from fabled import config, present

    settings = config.load(os.environ)
    where = settings.places
    if not os.path.exists(where.map_db):
        raise NoIndex("there is no Map to check yet", "fabled index")
    with Bar("checking") as bar:
        results = verb.run(where.map_db, open_vault(settings), where.ledger_db, deep=deep, progress=bar.records)
    value = {"checks": [asdict(result) for result in results]}
    if as_json:
        edge.put_json(value)
    else:
        edge.put_text(present.text("check", value, edge.style()))
    return 0 if all(result.ok for result in results) else 1


# ── spans ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("file")
@click.option("--all", "everything", is_flag=True, help="List separators (newlines, blanks) too.")
@options.as_json
@options.as_plain
def spans(file: str, everything: bool, as_json: bool, as_plain: bool) -> int:
    """Account for every byte of one transcript, in file order.

    \b
      fabled spans SESSION.jsonl          records, records without uuid, unparsed spans, the pending tail
      fabled spans --json SESSION.jsonl   one JSON object a line

    Needs neither daemon nor Map; packed generations (.zst) are read as what they hold.
    """
    from fabled.store.vault import Vault

    form = options.form(as_json, as_plain)
    rows: list[dict[str, Any]] = []
    try:
        for span in Vault((), ()).spans(file):
            if span.kind == "separator" and not everything:
                continue
            row = {
                "kind": span.kind,
                "line": span.line,
                "offset": span.offset,
                "length": span.length,
                "uuid": span.uuid,
            }
            if form == "json":
                edge.put_json_line(row)
            else:
                rows.append(row)
    except BrokenPipeError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{file} does not exist", "fabled sessions lists what there is") from None
    except PermissionError as fault:
        raise Unreadable(f"{file} cannot be read: {fault.strerror}", f"chmod u+r {file}") from None
    except (OSError, EOFError) as fault:
        said = getattr(fault, "strerror", None) or str(fault) or "it is no transcript"
        raise NotFound(f"{file} cannot be read: {said}", "name one transcript") from None
    if form != "json":
        from fabled import present

        edge.put_text(present.text("spans", {"spans": rows}, edge.style(form)))
    return 0
