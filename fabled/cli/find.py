"""`search`, `thread`, `block`, `sessions` and `projects`: the commands that find and show records.

Ranking, reading and rendering are done where the Map is read: in the daemon, or here when none runs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from fabled.cli import ask, edge, options
from fabled.client import connect
from fabled.errors import BadRequest, StaleIndexError, Unreadable

KINDS = ("prompt", "reply", "thinking", "tool", "queued", "summary")
DEFAULT_BUDGET = 8000
PATTERN_SECONDS = 2

# A leading minus must reach the query: `fabled search -- -x`. click takes care of the `--`.
_QUERY = {"ignore_unknown_options": False}


def _given(**params: Any) -> dict[str, Any]:
    """Only what was asked for, so that an older daemon is not told of options it does not know."""
    return {name: value for name, value in params.items() if value not in (None, False, ())}


@click.command(context_settings=_QUERY)
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many threads.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out the first ones.")
@options.project()
@click.option("--all", "everywhere", is_flag=True, help="Every project, wherever you are.")
@click.option("--session", metavar="S", help="Only this session.")
@click.option("--role", metavar="R", help="Only records of this role: user or assistant.")
@click.option("--tool", metavar="T", help="Only calls and results of this tool.")
@click.option("--file", "file", metavar="GLOB", help="Only records whose tool calls name such a file.")
@click.option("--since", metavar="TIME", help="An ISO date or time, or 90m, 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind of record.")
@click.option("--term", metavar="TERM", help="Only threads with this discovery term.")
@click.option("--sort", type=click.Choice(("rank", "time")), default="rank", show_default=True)
@click.option("--exact", is_flag=True, help="The words next to each other, as written.")
@click.option("--regex", is_flag=True, help="The query is a regular expression, looked for in all texts; latest first.")
@click.option("--explain", is_flag=True, help="Say for each result which part gave which score.")
@click.option(
    "--include-subagents/--no-subagents",
    "subagents",
    default=None,
    help="Show subagents' hits apart, or leave them out.",
)
@click.option("--json-lines", "json_lines", is_flag=True, help="One result a line, as JSON.")
@options.as_plain
@options.output
def search(
    query: tuple[str, ...],
    as_json: bool,
    as_plain: bool,
    json_lines: bool,
    utc: bool,
    everywhere: bool,
    subagents: bool | None,
    **filters: Any,
) -> int:
    """Find threads by their words, best first.

    \b
      fabled search why did we drop the retry queue
      fabled search '"exact phrase" +must -mustnot' --since 60d
      fabled search 'src/app/main.py:42' --tool Edit --all
      fabled search -- -x            a query that begins with a minus

    Words are literal. "a phrase" and +word must occur, -word must not. Without --project or --all, the project the
    working folder lies in is searched, if it is known. Exit status 1: nothing found.
    """
    if everywhere and filters.get("project"):
        raise click.UsageError("--all and --project exclude each other.")
    params = _given(query=" ".join(query), cwd=options.here(), all=everywhere, **filters)
    if subagents is not None:
        params["subagents"] = subagents
    form = options.form(as_json, as_plain)
    if not json_lines and not params.get("regex"):
        return ask.show("search", params, form=form, utc=utc)
    value = _by_pattern(params) if params.get("regex") else ask.fetch("search", params)
    if not json_lines:
        ask.put("search", value, form, utc)
        return ask.exit_of("search", value)
    for row in value.get("results") or []:
        edge.put_json_line(row)
    ask.note_asides(value)
    return ask.exit_of("search", value)


def _by_pattern(params: dict[str, Any]) -> dict[str, Any]:
    """A search by regular expression, a few seconds at a time: the daemon serves others in between, a terminal sees
    how far it came, and Ctrl-C ends it."""
    skip, limit = params.pop("offset", 0), params["limit"]
    wanted = skip + limit
    found: dict[tuple[str, bool], Any] = {}
    looked: dict[str, Any] = {}
    took, after = 0.0, 0
    stale: dict[str, None] = {}
    running = True
    while True:
        asked = {**params, "limit": min(1000, wanted - len(found)), "after": after}
        if running:
            try:
                value = ask.fetch_running("search", {**asked, "seconds": PATTERN_SECONDS}, ask.ANSWER_SECONDS)
            except connect.Down:
                running = False
        if not running:
            value = ask.fetch("search", {**asked, "seconds": 3_600})
        for row in value["results"]:
            found.setdefault((row["thread"], row["subagent"]), row)
        stale.update(dict.fromkeys(value.get("stale") or ()))
        now = value["searched"]
        for name in ("records", "timed_out"):
            now[name] += looked.get(name, 0)
        took, looked, after = took + value["took_ms"], now, now["threads"]
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{now['threads']:,} of {now['of']:,} threads, {len(found):,} found\x1b[K")
            sys.stderr.flush()
        if now["complete"] or len(found) >= wanted:
            break
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    rows = list(found.values())[skip:wanted]
    more = {"stale": list(stale)} if stale else {}
    return {**value, **more, "total": len(found), "offset": skip, "took_ms": took, "results": rows, "searched": looked}


@click.command()
@click.argument("thread_id", metavar="ID")
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=DEFAULT_BUDGET,
    show_default=True,
    metavar="TOKENS",
    help="About how much to show; 0 shows all.",
)
@click.option("--branches", is_flag=True, help="Show abandoned branches too.")
@click.option("--subagents", is_flag=True, help="Show what its subagents did.")
@click.option("--around", metavar="UUID", help="The turns around this record.")
@click.option("--raw", is_flag=True, help="Verbatim: nothing masked or neutralised.")
@options.output
def thread(thread_id: str, as_json: bool, utc: bool, **more: Any) -> int:
    """Read one thread: a prompt and all the work done for it.

    \b
      fabled thread 7c41e0
      fabled thread 7c41e0 --budget 0 --subagents
    """
    budget = more.pop("budget")
    params = {**_given(id=thread_id, **more), "budget": budget}
    return ask.show("thread", params, form=options.form(as_json), utc=utc)


@click.command()
@options.project()
@click.option("--since", metavar="TIME", help="Only those written since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("--until", metavar="TIME", help="The same, for the end.")
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--offset", type=click.IntRange(0), help="Leave out the first ones.")
@options.as_plain
@options.output
def sessions(as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """List sessions, the latest first.

    \b
      fabled sessions --project indexer --since 6w
    """
    return ask.show("sessions", _given(**filters), form=options.form(as_json, as_plain), utc=utc)


@click.command()
@click.option("--since", metavar="TIME", help="Only those written since: an ISO date, or 3h, 2d, 6w ago.")
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many.")
@options.as_plain
@options.output
def projects(as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """List projects, the latest first."""
    return ask.show("projects", _given(**filters), form=options.form(as_json, as_plain), utc=utc)


# ── block ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("record", metavar="ID[@SESSION][#PATH]")
@click.option("--raw", is_flag=True, help="Exactly its bytes, to stdout.")
@click.option("--info", is_flag=True, help="Where its copies lie instead of what it says.")
@click.option("--force", is_flag=True, help="Send control characters to a terminal, too.")
@options.output
def block(record: str, raw: bool, info: bool, force: bool, as_json: bool, utc: bool) -> int:
    """One record, byte for byte.

    \b
      fabled block 9f02ab                      to read
      fabled block 9f02ab --raw > record.json  exactly what was written
      fabled block 9f02ab --info               where its copies lie
      fabled block 9f02ab#message.content.0.content    one value of it, such as a prune took out

    ID is a uuid or a content id (L-…), or the beginning of one. A uuid in several sessions means the original one's.
    A text named by #PATH is shown as text; --raw writes its JSON as it was written.
    """
    if as_json or info:
        return ask.show("block", {"id": record}, form=options.form(as_json), utc=utc)
    value = ask.fetch("block", {"id": record})
    data = _value_of(_read(value), value.get("part"), raw)
    if raw and (force or not edge.on_terminal()):
        edge.put(data)
        return 0
    edge.document(data + b"\n")
    if raw and edge.steers(data):
        edge.note("Control characters are shown, not sent, to a terminal. The exact bytes: --force, or > FILE.")
    return 0


def _value_of(data: bytes, part: Mapping[str, Any] | None, raw: bool) -> bytes:
    """What of a record was asked for: all of it, or one value; a text is decoded unless it is to be `raw`."""
    if part is None:
        return data
    data = data[part["offset"] : part["offset"] + part["length"]]
    if hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise StaleIndexError("the value is not where the answer says", "try again")
    if raw or data[:1] != b'"':
        return data
    try:
        text = json.loads(data)
    except ValueError:
        return data
    return str(text).encode("utf-8", "backslashreplace")


def _read(value: Mapping[str, Any]) -> bytes:
    """The record's bytes from the first copy that still is this record, the best one first."""
    from fabled.store.vault import Vault

    copies = sorted(value.get("copies") or [], key=lambda copy: not copy.get("best"))
    best = next((copy["sha256"] for copy in copies), None)
    vault = Vault((), ())
    unreadable = ""
    for copy in copies:
        # Another copy may hold other bytes (a reduced one): it may not stand in for the one asked for.
        if copy["sha256"] != best:
            continue
        try:
            data = vault.read(copy["path"], copy["offset"], copy["length"])
        except EOFError:
            continue
        except OSError as fault:
            unreadable = f"{copy['path']}: {fault.strerror or fault}"
            continue
        if hashlib.sha256(data).hexdigest().startswith(copy["sha256"]):
            return data
    if unreadable:
        raise Unreadable(f"the record's file cannot be read: {unreadable}", "fabled index, when it is there again")
    if not copies:
        raise BadRequest("the answer names no copy of this record", "fabled status")
    raise StaleIndexError("the record is not where the Map says, and no other copy of it reads", "fabled index")
