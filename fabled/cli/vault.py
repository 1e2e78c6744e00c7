"""`capture`, `generations`, `prune`, `restore`, `undo` and `diff`: what is kept of sessions, and how they get smaller.

A running daemon does the work; without one it is done here, under the instance lock. What may be done at all is decided
by the verbs; without `--apply` they only say what they would do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import click

from fabled.cli import ask, edge, here, options
from fabled.cli.keep import progress_of_daemon, stop_on_interrupt
from fabled.cli.progress import Bar, Watching
from fabled.client import connect
from fabled.errors import Refused

LEVELS = ("gentle", "standard", "aggressive")

_apply = click.option("--apply", is_flag=True, help="Do it; without this it is only told what would be done.")


def _done(method: str, params: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the writer answers: the daemon's, or this process in its place.

    `shown`: what the person asked for, for the command that a dry run names.
    """
    value: dict[str, Any] | None = None
    with contextlib.suppress(connect.Down), Watching(progress_of_daemon):
        value = ask.fetch_running(method, params, None)
    if value is None:
        value = _here(method, params)
    value.pop("v", None)
    return {**value, **(shown or {})}


def _here(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    from fabled import answers, config, pruner

    settings = config.load(os.environ)
    with here.opened(settings) as own:
        writer = pruner.opened(settings, own.indexer)
        left = pruner.Automatic(writer, None, "")
        for told in left.recover():
            edge.note(told)
        with Bar() as bar, stop_on_interrupt() as stop:
            own.indexer.update(None, progress=bar, stop=stop)
            left.adopt(stop)
            if stop():
                raise KeyboardInterrupt
        writer.calm(10)
        with here.reading(settings) as reader:
            asked = answers.resolved(reader, method, params)
        try:
            return pruner.perform(writer, method, asked)
        finally:
            writer.finish()
            own.indexer.idle()


def _put(method: str, value: Mapping[str, Any], as_json: bool, utc: bool = False) -> None:
    if as_json:
        edge.put_json(value)
        return
    from fabled import present

    edge.put_text(present.text(method, value, edge.style(utc=utc)))


def _exit(value: Mapping[str, Any]) -> int:
    """4 where a safety rule forbade it and nothing was done."""
    return Refused.exit if value.get("refused") and not value.get("applied") else 0


# ── what is kept ────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@options.as_json
def capture(sessions: tuple[str, ...], as_json: bool) -> int:
    """Keep sessions' bytes in the Vault now: transcripts, subagents and the files beside them.

    \b
      fabled capture             every session that changed since it was last kept
      fabled capture 6513270e    this one

    What is kept is immutable, compressed (zstdcat gives the bytes back), and read back before it counts.
    """
    value = _done("capture", {"sessions": list(sessions)} if sessions else {})
    _put("capture", value, as_json)
    return 1 if any(one.get("failed") for one in value.get("sessions") or []) else 0


@click.command()
@click.argument("session", required=False)
@options.as_plain
@options.output
def generations(session: str | None, as_json: bool, as_plain: bool, utc: bool) -> int:
    """List what the Vault keeps, of one session or of all.

    \b
      fabled generations             how much of each session
      fabled generations 6513270e    every state of it, and how whole each is
    """
    params = {"session": session} if session else {}
    return ask.show("generations", params, form=options.form(as_json, as_plain), utc=utc)


# ── smaller, and back ───────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="gentle",
    show_default=True,
    help="gentle leaves what the model is sent as it is; standard shortens old tool output and images, too; "
    "aggressive more of it, and old thinking.",
)
@click.option("--check", is_flag=True, help="Prove the last prune once more instead.")
@_apply
@options.as_json
def prune(session: str, level: str, check: bool, apply: bool, as_json: bool) -> int:
    """Make a live transcript smaller. Every byte that goes is in the Vault first.

    \b
      fabled prune 6513270e                            what it would save; changes nothing
      fabled prune 6513270e --level standard --apply   do it
      fabled prune 6513270e --check                    is the last prune still sound?

    What was taken out opens with fabled block, and fabled undo takes it back. Exit status 4: refused, nothing changed.
    """
    if check:
        if apply or level != "gentle":
            raise click.UsageError("--check takes neither --level nor --apply.")
        value = _done("prune_check", {"session": session})
        _put("prune_check", value, as_json)
        return 0 if all(one.get("ok") for one in value.get("checks") or []) else 1
    value = _done("prune", {"session": session, "level": level, "apply": apply})
    _put("prune", value, as_json)
    return _exit(value)


@click.command()
@click.argument("session", metavar="SESSION[@vN]")
@click.option("--full", is_flag=True, help="The longest copy of every record that was ever kept.")
@click.option("--to", metavar="FILE", help="Write a new file instead of the live transcript.")
@_apply
@options.as_json
def restore(session: str, full: bool, to: str | None, apply: bool, as_json: bool) -> int:
    """Put a kept state of a session back, with all that was written since behind it.

    \b
      fabled restore 6513270e@v0              what that would do; changes nothing
      fabled restore 6513270e@v0 --apply      do it
      fabled restore 6513270e --full --apply  everything that was ever there
      fabled restore 6513270e --to old.jsonl --apply

    The present transcript is kept as another generation first. Exit status 4: refused, nothing changed.
    """
    params: dict[str, Any] = {"session": session, "apply": apply}
    if full:
        params["full"] = True
    if to is not None:
        params["to"] = os.path.abspath(to)
    value = _done("restore", params, {"asked": {"session": session, "full": full, "to": to}})
    if as_json:
        value.pop("asked")
    _put("restore", value, as_json)
    return _exit(value)


@click.command()
@click.argument("session")
@_apply
@options.as_json
def undo(session: str, apply: bool, as_json: bool) -> int:
    """Take the last prune of a session back; what was written since stays.

    \b
      fabled undo 6513270e            what that would do; changes nothing
      fabled undo 6513270e --apply    do it
    """
    value = _done("undo", {"session": session, "apply": apply})
    _put("undo", value, as_json)
    return _exit(value)


@click.command()
@click.argument("session", metavar="SESSION[@vA[..vB]]")
@click.option("--limit", type=click.IntRange(0), help="How many blocks of each thread; 0 is all.  [default: 5]")
@options.output
def diff(session: str, limit: int | None, as_json: bool, utc: bool) -> int:
    """What a prune or a rewrite cost a session, thread by thread.

    \b
      fabled diff 6513270e             what the last prune took out
      fabled diff 6513270e@v0          from v0 to the live transcript
      fabled diff 6513270e@v0..v2      from v0 to v2

    Every block it names opens with fabled block ID.
    """
    params: dict[str, Any] = {"session": session}
    if limit is not None or as_json:
        params["limit"] = limit or 0
    return ask.show("diff", params, form=options.form(as_json), utc=utc)
