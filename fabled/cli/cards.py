"""`cards`: what threads were about. `cards run` asks a model, where one is set up; everything else is made by rule.

A card a model made is stored by the daemon's writer, or by this process in its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import click

from fabled.cli import ask, edge, options
from fabled.client import connect
from fabled.errors import AlreadyRunning, FabledError

_KEPT = ("card_begin", "card_put", "card_fail")
RUNS_SECONDS = 60.0


@click.group(invoke_without_command=True, cls=options.Helpful)
@options.project()
@click.option("--source", type=click.Choice(("model", "extracted")), help="Only those a model made, or made by rule.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0), help="Leave out the first ones.")
@options.as_plain
@options.output
@click.pass_context
def cards(ctx: click.Context, /, as_json: bool, as_plain: bool, utc: bool, **filters: Any) -> int:
    """List threads with their cards, the latest first.

    \b
      fabled cards --project indexer
      fabled cards show 7c41e0        one card, whole
      fabled cards run                has a model make better ones ([cards] in the configuration)
    """
    if ctx.invoked_subcommand is not None:
        return 0
    params = {name: value for name, value in filters.items() if value is not None}
    return ask.show("cards", params, form=options.form(as_json, as_plain), utc=utc)


@cards.command()
@click.argument("thread_id", metavar="THREAD")
@click.option("--extracted", is_flag=True, help="The one made by rule, also where a model made one.")
@options.output
def show(thread_id: str, extracted: bool, as_json: bool, utc: bool) -> int:
    """Show the card of one thread.

    \b
      fabled cards show 7c41e0
    """
    params: dict[str, Any] = {"id": thread_id, **({"extracted": True} if extracted else {})}
    return ask.show("card", params, form=options.form(as_json), utc=utc)


@cards.command()
@options.project()
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many cards.")
@options.as_json
def run(project: str | None, limit: int | None, as_json: bool) -> int:
    """Have a model make cards of finished threads that have none yet.

    \b
      fabled cards run --limit 10

    Who is asked, and how much a day, is set in [cards]. It can be stopped and killed at any time; the next run goes on.
    Exit status 1: the model does not answer.
    """
    from fabled import config, present
    from fabled.cards import run as runs
    from fabled.cli.keep import stop_on_interrupt
    from fabled.store.files import Lock, private_folder

    settings = config.load(os.environ)
    provider = runs.provider_of(settings.cards, os.environ, settings.places.state)
    private_folder(settings.places.state)
    lock = Lock(os.path.join(settings.places.state, "cards.lock"))
    if not lock.acquire():
        raise AlreadyRunning("another `fabled cards run` is at work", "wait for its end")

    def told(done: int, total: int, title: str) -> None:
        if not as_json:
            edge.note(f"{done} of {total}  {title}")

    try:
        with stop_on_interrupt() as stop:
            report = runs.run(_door, provider, settings.cards, project=project, most=limit, stop=stop, told=told)
    finally:
        lock.release()
    value = {
        "made": report.made, "refused": report.refused, "requests": report.requests, "tokens": report.tokens,
        "left": report.left, "ended": report.ended, "spent": report.spent,
    }  # fmt: skip
    if as_json:
        edge.put_json(value)
    else:
        edge.put_text(present.text("cards_run", value, edge.style()))
    if report.fault:
        edge.note(f"fabled: {report.ended}. Next: {report.hint}")
    if report.ended == "interrupted":
        return edge.INTERRUPTED
    return 1 if report.fault else 0


def _door(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Asks the daemon; where none runs, does the same in this process, holding the instance lock for that moment."""
    with contextlib.suppress(connect.Down):
        value = ask.fetch_running(method, params, RUNS_SECONDS)
        value.pop("v", None)
        return value
    from fabled import answers, config
    from fabled import cards as verbs
    from fabled.cli import here

    settings = config.load(os.environ)
    if method not in _KEPT:
        with here.reading(settings) as reader:
            return answers.answer(reader, method, dict(params))
    for _ in range(50):
        try:
            with here.opened(settings) as own:
                return verbs.perform(own.ledger, method, params)
        except AlreadyRunning:  # a daemon is just starting: it takes over
            with contextlib.suppress(connect.Down):
                return ask.fetch_running(method, params, RUNS_SECONDS)
    raise FabledError("another fabled is writing and does not answer", "try again in a moment")
