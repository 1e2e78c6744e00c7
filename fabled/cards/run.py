"""Works through the threads that are due for a card: asks a model for each, and hands what it makes to the writer.

Everything that must survive a kill is kept there: a request is counted before it is made, a card is stored as soon as
it is there, and a thread that gave nothing is noted. So the next run goes on where this one ended, however it did.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import Cards
from ..errors import BadRequest, FabledError, NotFound, Refused, StaleIndexError, Unreadable
from ..transcript.card import BadCard
from . import brief, place
from .providers import Anthropic, Claude, OpenAI, Provider, Unanswered

Door = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Asks the daemon, or does the same in this process: method and parameters."""

TRIES = 3
"""Requests for one thread before a run ends because the model does not answer."""
_BATCH = 20
_DEFAULT_URL = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_DEFAULT_KEY = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


@dataclass(slots=True)
class Report:
    """What one run did. `ended`: why it did not do more, None: nothing was left."""

    made: int = 0
    refused: int = 0
    requests: int = 0
    tokens: int = 0
    left: int = 0
    ended: str | None = None
    hint: str = ""
    fault: bool = False
    """the model did not answer as it should"""
    spent: dict[str, Any] = field(default_factory=dict)


def provider_of(settings: Cards, env: Mapping[str, str], state: str) -> Provider:
    """Who is asked, by the settings. Raises BadRequest where they do not say."""
    name = settings.provider
    if name == "off":
        raise BadRequest(
            "no model is set up for cards", 'set cards.provider: fabled config set cards.provider "claude"'
        )
    if name == "claude":
        return Claude(settings.command, settings.model, place.folder(state))
    if not settings.model:
        raise BadRequest(f"cards.model is not set, which {name} needs", "name the model in [cards]")
    url = settings.url or _DEFAULT_URL[name]
    if not url.startswith(("http://", "https://")):
        raise BadRequest(f"cards.url is no web address: {url[:80]}", "it begins with https:// or http://")
    variable = settings.key_env or _DEFAULT_KEY[name]
    key = env.get(variable)
    if key is None and (name == "anthropic" or not settings.url or settings.key_env):
        raise BadRequest(
            f"there is no key: {variable} is not set", f"export {variable}=…, or name another: cards.key_env"
        )
    return Anthropic(url, settings.model, key or "") if name == "anthropic" else OpenAI(url, settings.model, key)


def run(
    door: Door,
    provider: Provider,
    settings: Cards,
    *,
    project: str | None = None,
    most: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[int, int, str], None] = lambda done, total, title: None,
    pause: Callable[[float], None] = time.sleep,
) -> Report:
    """One run, until nothing is due, the day's budget is used, the model does not answer, `most` cards are made or
    `stop` says so. `told`: cards made, threads due at first, title of the last."""
    report = Report()
    total = None
    seen: set[str] = set()
    while report.ended is None:
        wanted: dict[str, Any] = {
            "limit": _BATCH, "quiet_seconds": int(settings.quiet_seconds), "min_turns": settings.min_turns,
        }  # fmt: skip
        due = door("cards_due", {**wanted, **({"project": project} if project else {})})
        report.left, report.spent = due["total"], due["spent"]
        total = due["total"] if total is None else total
        fresh = [row for row in due["due"] if row["thread"] not in seen]
        if not fresh:
            break
        for row in fresh:
            if stop():
                report.ended = "interrupted"
            elif most is not None and report.made >= most:
                report.ended = f"{most} were asked for"
            if report.ended is not None:
                break
            seen.add(row["thread"])
            title = _one(door, provider, settings, row, report, stop, pause)
            if title is not None:
                report.left -= 1
                told(report.made, total, title)
    return report


def _one(
    door: Door,
    provider: Provider,
    settings: Cards,
    row: Mapping[str, Any],
    report: Report,
    stop: Callable[[], bool],
    pause: Callable[[float], None],
) -> str | None:
    """One thread's card, and its title; None where there is none, and `report.ended` says if the run ends with that."""
    try:
        thread = door("thread", {"id": row["thread"], "budget": settings.input_tokens})
        own = door("card", {"id": row["thread"], "extracted": True})
    except (NotFound, StaleIndexError, Unreadable):
        return None  # it went away, or is just being written
    text = brief.request(thread, own, secrets.token_hex(8))
    counted = brief.counted(text)
    key = {"session_id": row["session_id"], "prompt_id": row["prompt_id"]}
    for number in range(1, TRIES + 1):
        granted = door(
            "card_begin",
            {
                **key, "turns": row["turns"], "tokens": counted,
                "requests_per_day": settings.requests_per_day, "tokens_per_day": settings.tokens_per_day,
            },
        )  # fmt: skip
        report.spent = {name: granted[name] for name in ("day", "requests", "tokens")}
        if not granted["granted"]:
            report.ended = "the day's budget is used"
            return None
        report.requests += 1
        try:
            answer = provider.ask(text, settings.timeout_seconds)
        except Unanswered as fault:
            last = number == TRIES or not fault.again or stop()
            door("card_fail", {**key, "reason": fault.message, "counts": last and fault.slow})
            if last:
                report.ended, report.hint, report.fault = fault.message, fault.hint, True
                return None
            pause(fault.wait if fault.wait is not None else settings.retry_seconds * 2 ** (number - 1))
            continue
        report.tokens += answer.tokens or counted
        return _taken(door, provider, row, key, answer.text, answer.tokens or counted, counted, answer.model, report)
    return None


def _taken(
    door: Door,
    provider: Provider,
    row: Mapping[str, Any],
    key: Mapping[str, Any],
    said: str,
    tokens: int,
    counted: int,
    model: str,
    report: Report,
) -> str | None:
    """Hands an answer in; None where it is refused, here or there."""
    try:
        card = brief.card(said, provider.name, model)
        value = {name: given for name, given in card.value().items() if name not in ("source", "model")}
        stored = door(
            "card_put",
            {
                **key, **value, "provider": provider.name, "model": model, "turns": row["turns"],
                "tokens": tokens, "counted": counted,
            },
        )  # fmt: skip
    except (BadCard, Refused, FabledError) as fault:
        if isinstance(fault, FabledError) and fault.code != Refused.code:
            raise
        report.refused += 1
        door("card_fail", {**key, "reason": str(fault), "counts": True})
        return None
    report.made += 1
    return str(stored["title"])
