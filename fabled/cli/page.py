"""`export` and `report`: documents of one's own, written to a file or to stdout.

What stands in them comes from the Map and the Vault; how they look is `present`'s.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import click

from fabled.cli import ask, edge, options
from fabled.errors import OutputFault, StaleIndexError
from fabled.present.terminal import finish, plural, short, size
from fabled.present.terminal import path as shown_path

FORMATS = ("md", "html", "jsonl")


@click.command()
@click.argument("thread_id", metavar="ID")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="md, html or jsonl.  [default: by FILE's name, or md]"
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Where to; - is stdout.")
@click.option("--no-redact", is_flag=True, help="Leave what looks like credentials as it is.")
@click.option("--no-subagents", is_flag=True, help="Without what its subagents did (md and html).")
@options.output
def export(
    thread_id: str, kind: str | None, output: str | None, no_redact: bool, no_subagents: bool, as_json: bool, utc: bool
) -> int:
    """Write one thread as a document: Markdown, one self-contained HTML file, or its records byte for byte.

    \b
      fabled export 7c41e0 -o why.md
      fabled export 7c41e0 --format html -o why.html
      fabled export 7c41e0 --format jsonl > why.jsonl    exactly the bytes that were written

    In md and html credentials are masked; jsonl is verbatim, since masked bytes would not be those that were written.
    """
    kind = kind or _by_name(output)
    if kind == "jsonl":
        value = ask.fetch("export", {"id": thread_id})
        lines = list(_records(value))
        told = {"thread": value["thread"], "format": kind, "records": len(lines), "redacted": 0}
        return _write(output, b"".join(lines), told, f"{plural(len(lines), 'record')}, verbatim", as_json)
    from fabled.present import exported

    params: dict[str, Any] = {"id": thread_id, "budget": 0, "branches": True}
    if not no_subagents:
        params["subagents"] = True
    if no_redact:
        params["raw"] = True
    value = ask.fetch("thread", params)
    document = (exported.html if kind == "html" else exported.markdown)(value, edge.style(utc=utc))
    masked = 0 if no_redact else _masked(value)
    words = plural(len(value.get("turns") or []), "turn")
    if masked:
        words += (
            f".  Masked {plural(masked, 'value')} that look{'s' if masked == 1 else ''} like keys (--no-redact to keep)"
        )
    told = {"thread": value["thread"], "format": kind, "turns": len(value.get("turns") or []), "redacted": masked}
    return _write(output, document.encode("utf-8", "backslashreplace"), told, words, as_json)


def _by_name(output: str | None) -> str:
    end = os.path.splitext(output or "")[1].lower().lstrip(".")
    return {"html": "html", "htm": "html", "jsonl": "jsonl"}.get(end, "md")


def _masked(value: Mapping[str, Any]) -> int:
    from fabled.transcript.mask import MASKED

    return sum(str(turn.get("text") or "").count("…" + MASKED) for turn in value.get("turns") or [])


def _records(value: Mapping[str, Any]) -> Iterator[bytes]:
    """The records' own bytes, each with its newline, from the first copy that still is the record."""
    from fabled.store.vault import Vault
    from fabled.transcript.record import digest

    vault = Vault((), ())
    for record in value["records"]:
        best = next((copy["digest"] for copy in record["copies"]), None)
        for copy in record["copies"]:
            if copy["digest"] != best:
                continue  # another copy may be a reduced one, and may not stand in for this
            try:
                data = vault.read(copy["path"], copy["offset"], copy["length"])
            except (OSError, EOFError):
                continue
            if digest(data).hex() == best:
                yield data + b"\n"
                break
        else:
            uuid = record["uuid"]
            raise StaleIndexError(f"record {uuid} is not where the Map says; nothing was written", "fabled index")


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Where to; - is stdout.")
@options.project()
@click.option("--since", metavar="TIME", help="Only what was written since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@options.output
def report(output: str | None, as_json: bool, utc: bool, **filters: Any) -> int:
    """Draw one HTML page about your own history: growth, savings, projects, sessions, threads, recall.

    \b
      fabled report                       fabled-report.html in this folder
      fabled report --since 12w -o q4.html
      fabled report --json                the figures instead of the page

    The page needs no network and no server: open it in any browser. It names projects and titles of threads.
    """
    value = ask.fetch("report", {name: given for name, given in filters.items() if given is not None})
    nothing = bool(value.get("unknown"))
    if as_json:
        edge.put_json({key: given for key, given in value.items() if key != "v"})
        return 1 if nothing else 0
    from fabled.present import asides
    from fabled.present import report as page

    if nothing:
        lines = ["No page was made.", *asides.unknown(value, edge.style())]
        edge.put_text(finish(lines, edge.style()))
        return 1

    ask.note_asides(value)
    document = page.report(value, edge.style(utc=utc)).encode("utf-8", "backslashreplace")
    return _write(output or "fabled-report.html", document, {}, plural(len(value.get("days") or []), "day"), False)


def _write(output: str | None, data: bytes, told: Mapping[str, Any], words: str, as_json: bool) -> int:
    """To a file, whole or not at all and for its owner only, or to stdout with a word on stderr."""
    if output is None or output == "-":
        if as_json:
            edge.put_json({**told, "text": data.decode("utf-8", "backslashreplace")})
            return 0
        edge.put(data)
        if not edge.on_terminal():
            edge.note(f"{short(str(told.get('thread') or ''))} {words}".strip())
        return 0
    path = os.path.abspath(output)
    folder = os.path.dirname(path)
    try:
        fd, temp = tempfile.mkstemp(prefix=".fabled-export-", dir=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.replace(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
    except OSError as fault:
        raise OutputFault(f"{path} could not be written: {fault.strerror or fault}", "give another with -o") from None
    if as_json:
        edge.put_json({**told, "path": path, "bytes": len(data)})
    else:
        edge.put_text(f"{shown_path(path, edge.style())}: {words}, {size(len(data))}.\n")
    return 0
