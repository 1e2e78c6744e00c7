"""Cards a model made, what was tried for them and what was spent, in the Ledger: no transcript can give them back.

What a card is, is left to `transcript.card`; asking a model to `cards`, a process of its own.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from ..transcript.card import Card
from .kept import reading
from .ledger import Ledger

_SINCE = 3
"""An older Ledger has no cards; the next writer brings it forward."""
GIVEN_UP = 3
"""After so many requests for the same state of a thread that gave nothing, no more are made."""
_FIRST_PAUSE_SECONDS = 600

Key = tuple[str, str]
"""A thread by what stays: its session's id and its prompt's."""


@dataclass(frozen=True, slots=True)
class Made:
    """A card a model made of a thread that had so many turns then."""

    card: Card
    at: int
    turns: int
    last_ts: int | None


@dataclass(frozen=True, slots=True)
class Try:
    """A request for a card that was begun and, so far, gave none."""

    at: int
    turns: int
    fruitless: int
    not_before: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What was asked of models on one day."""

    day: str
    requests: int
    tokens: int


def today(now: float) -> str:
    """The day that a budget counts for, by the local clock."""
    return time.strftime("%Y-%m-%d", time.localtime(now))


# Reading


def made(path: str | None, keys: set[Key] | None = None) -> dict[Key, Made]:
    """The cards of some threads, or all. Raises NewerSchema, StorageFault."""
    with reading(path, _SINCE) as ledger:
        columns = "SELECT session_id,prompt,at,turns,last_ts,card FROM cards"
        if keys is not None and len(keys) <= 200:
            rows = [row for key in keys for row in ledger.rows(f"{columns} WHERE session_id=? AND prompt=?", key)]
        else:
            rows = ledger.rows(columns)
    return {
        (session, prompt): Made(_card(card), at, turns, last)
        for session, prompt, at, turns, last, card in rows
        if keys is None or (session, prompt) in keys
    }


def tries(path: str | None) -> dict[Key, Try]:
    """The requests that gave nothing yet, by thread."""
    with reading(path, _SINCE) as ledger:
        rows = ledger.rows("SELECT session_id,prompt,at,turns,fruitless,not_before,reason FROM card_tries")
    return {(session, prompt): Try(*rest) for session, prompt, *rest in rows}


def spent(path: str | None, day: str) -> Spent:
    with reading(path, _SINCE) as ledger:
        rows = ledger.rows("SELECT requests,tokens FROM card_spending WHERE day=?", (day,))
    return Spent(day, *rows[0]) if rows else Spent(day, 0, 0)


def _card(text: str) -> Card:
    value: dict[str, Any] = json.loads(text)
    lists = {name: tuple(value[name]) for name in ("topics", "decisions", "files")}
    return Card(**{**value, **lists})


# Writing: on the writer's connection


def begin(
    ledger: Ledger, key: Key, turns: int, tokens: int, requests_per_day: int, tokens_per_day: int, now: float
) -> tuple[bool, Spent]:
    """Counts a request before it is made, if the day's budget has room for it: (whether it has, what is spent).

    Counted first, so that a budget holds through any kill; and the try is noted, so that a thread that ends the process
    each time is given up like any other that gives nothing.
    """
    day = today(now)
    before = _spent(ledger, day)
    if before.requests + 1 > requests_per_day or before.tokens + tokens > tokens_per_day:
        return False, before
    tried = _try(ledger, key)
    fruitless = tried.fruitless + 1 if tried is not None and tried.turns == turns else 1
    ledger.write_all(
        "card begun",
        ("DELETE FROM card_spending WHERE day<?", (today(now - 40 * 86_400),)),
        (
            "INSERT INTO card_spending VALUES(?,1,?) ON CONFLICT DO UPDATE SET requests=requests+1, "
            "tokens=tokens+excluded.tokens",
            (day, tokens),
        ),
        ("INSERT OR REPLACE INTO card_tries VALUES(?,?,?,?,?,?,?)", (*key, int(now), turns, fruitless, 0, "begun")),
    )
    return True, Spent(day, before.requests + 1, before.tokens + tokens)


def fail(ledger: Ledger, key: Key, reason: str, counts: bool, now: float) -> Try:
    """A request gave nothing; `counts` False: for no fault of the thread's, which is tried again as if never before."""
    tried = _try(ledger, key) or Try(int(now), 0, 1, 0, "")
    fruitless = tried.fruitless if counts else max(0, tried.fruitless - 1)
    pause = _FIRST_PAUSE_SECONDS * 4 ** (fruitless - 1) if counts else 0
    told = Try(int(now), tried.turns, fruitless, int(now) + pause, reason)
    ledger.write_all(
        "card failed",
        (
            "INSERT OR REPLACE INTO card_tries VALUES(?,?,?,?,?,?,?)",
            (*key, told.at, told.turns, told.fruitless, told.not_before, reason),
        ),
    )
    return told


def put(ledger: Ledger, key: Key, card: Card, turns: int, last_ts: int | None, more_tokens: int, now: float) -> None:
    """Stores a card; `more_tokens`: what it cost beyond what was counted when it was begun, or less."""
    ledger.write_all(
        "card",
        (
            "INSERT OR REPLACE INTO cards VALUES(?,?,?,?,?,?,?,?)",
            (*key, int(now), card.source, card.model or "", turns, last_ts, json.dumps(card.value())),
        ),
        ("DELETE FROM card_tries WHERE session_id=? AND prompt=?", key),
        ("UPDATE card_spending SET tokens=max(0,tokens+?) WHERE day=?", (more_tokens, today(now))),
    )


def _spent(ledger: Ledger, day: str) -> Spent:
    rows = ledger.rows("SELECT requests,tokens FROM card_spending WHERE day=?", (day,))
    return Spent(day, *rows[0]) if rows else Spent(day, 0, 0)


def _try(ledger: Ledger, key: Key) -> Try | None:
    rows = ledger.rows(
        "SELECT at,turns,fruitless,not_before,reason FROM card_tries WHERE session_id=? AND prompt=?", key
    )
    return Try(*rows[0]) if rows else None
