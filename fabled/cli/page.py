"""`export` and `report`: documents of one's own, written to a file or to stdout.

What stands in them comes from the Map and the Vault; how they look is left to `present`, where they go to `output`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from fabled.cli import ask, edge, options, output
from fabled.errors import NotFound, StaleIndexError
from fabled.present.terminal import path as shown_path
from fabled.present.terminal import plural, short, size

FORMATS = ("md", "html", "jsonl")


@click.command()
@click.argument("thread_id", metavar="ID")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="md, html or jsonl.  [default: by FILE's name, or md]"
)
@click.option("-o", "--output", "to", type=click.Path(allow_dash=True), metavar="FILE", help="Where to; - is stdout.")
@click.option("--no-redact", is_flag=True, help="Leave what looks like credentials as it is.")
@click.option("--no-subagents", is_flag=True, help="Without what its subagents did.")
@options.output
def export(
    thread_id: str, kind: str | None, to: str | None, no_redact: bool, no_subagents: bool, as_json: bool, utc: bool
) -> int:
    """Write one thread as a document: Markdown, one self-contained HTML file, or its records byte for byte.

    \b
      fabled export 7c41e0 -o why.md
      fabled export 7c41e0 --format html -o why.html
      fabled export 7c41e0 --format jsonl > why.jsonl    exactly the bytes that were written

    In md and html credentials are masked; jsonl is verbatim, since masked bytes would not be those that were written.
    A file that is there is replaced, unless it is a transcript or another file of Claude Code's or fabled's.
    """
    if not output.to_stdout(to):
        output.place(to or "")  # before any work
    kind = kind or _by_name(to)
    if kind == "jsonl":
        return _verbatim(thread_id, to, no_subagents, as_json)
    from fabled.present import exported

    params: dict[str, Any] = {"id": thread_id, "budget": 0, "branches": True}
    if not no_subagents:
        params["subagents"] = True
    if no_redact:
        params["raw"] = True
    value = ask.fetch("thread", params)
    document = (exported.html if kind == "html" else exported.markdown)(value, edge.style(utc=utc))
    masked = 0 if no_redact else _masked(value)
    rows = value.get("turns") or []
    unread = sum(turn.get("unreadable") is True for turn in rows)
    words = exported.turns(value)
    if unread:
        words += f", {unread:,} of them not readable now (fabled index)"
    cut = sum(turn.get("truncated") is True for turn in rows)
    if cut:
        words += f", {cut:,} of them too long to be here whole (fabled block has all of each)"
    if masked:
        looks = "looks like a key" if masked == 1 else "look like keys"
        words += f".  Masked {plural(masked, 'value')} that {looks} (--no-redact to keep)"
    aside = sum(turn.get("label") == "sidechain" for turn in rows)
    told = {
        "thread": value["thread"], "format": kind, "turns": len(rows) - aside, "subagent_turns": aside,
        "unreadable": unread, "truncated": cut, "redacted": masked,
    }  # fmt: skip
    return _write(to, [document.encode("utf-8", "backslashreplace")], told, words, as_json)


def _verbatim(thread_id: str, to: str | None, no_subagents: bool, as_json: bool) -> int:
    value = ask.fetch("export", {"id": thread_id})
    rows = [row for row in value["records"] if not (no_subagents and row.get("subagent"))]
    if not rows:
        raise NotFound(f"thread {thread_id} holds nothing but what subagents did", "leave out --no-subagents")
    told = {"thread": value["thread"], "format": "jsonl", "records": len(rows), "redacted": 0}
    words = f"{plural(len(rows), 'record')}, verbatim: credentials are not masked"
    return _write(to, _records(rows), told, words, as_json)


def _by_name(to: str | None) -> str:
    end = os.path.splitext(to or "")[1].lower().lstrip(".")
    return {"html": "html", "htm": "html", "jsonl": "jsonl"}.get(end, "md")


def _masked(value: Mapping[str, Any]) -> int:
    from fabled.transcript.mask import MASKED

    return sum(str(turn.get("text") or "").count("…" + MASKED) for turn in value.get("turns") or [])


def _records(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """The records' own bytes, each with its newline, from the first copy that still is the record."""
    from fabled.store.vault import Vault
    from fabled.transcript.record import digest

    vault = Vault((), ())
    for record in rows:
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
@click.option(
    "-o",
    "--output",
    "to",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Where to; - is stdout.  [default: fabled-report.html]",
)
@options.project()
@click.option("--since", metavar="TIME", help="Only what was written since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@options.output
def report(to: str | None, as_json: bool, utc: bool, **filters: Any) -> int:
    """Draw one HTML page about your own history: growth, savings, projects, sessions, threads, recall.

    \b
      fabled report                       fabled-report.html in this folder
      fabled report --since 12w -o q4.html
      fabled report --json                the figures instead of the page

    The page needs no network and no server: open it in any browser. It names projects and titles of threads.
    """
    to = to if to is not None else "fabled-report.html"
    if not as_json and not output.to_stdout(to):
        output.place(to)
    value = ask.fetch("report", {name: given for name, given in filters.items() if given is not None})
    nothing = bool(value.get("unknown"))
    if as_json:
        edge.put_json({key: given for key, given in value.items() if key != "v"})
        return 1 if nothing else 0
    from fabled.present import asides
    from fabled.present import report as page

    if nothing:
        edge.say("No page was made.", *asides.unknown(value, edge.style()))
        return 1

    ask.note_asides(value)
    document = page.report(value, edge.style(utc=utc)).encode("utf-8", "backslashreplace")
    return _write(to, [document], {}, plural(len(value.get("days") or []), "day"), False)


def _write(to: str | None, chunks: Iterable[bytes], told: Mapping[str, Any], words: str, as_json: bool) -> int:
    """To a file, or to stdout with a word on stderr."""
    if output.to_stdout(to):
        if as_json:
            # A byte that is no UTF-8 becomes half a surrogate pair, from which it can be had again.
            edge.put_json({**told, "text": b"".join(chunks).decode("utf-8", "surrogateescape")})
            return 0
        output.put(chunks)
        if not edge.on_terminal():
            edge.note(f"{short(str(told.get('thread') or ''))} {words}.".strip())
        return 0
    path, length = output.write(to or "", chunks)
    if as_json:
        edge.put_json({**told, "path": path, "bytes": length})
    else:
        edge.say(f"{shown_path(path, edge.style())}: {words}, {size(length)}.")
    return 0
