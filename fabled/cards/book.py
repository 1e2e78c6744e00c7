"""Counts requests for cards and stores the cards, for the daemon's writer and for a process without one.

Nothing here trusts the one who hands a card in: its text came from a model that read transcripts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import BadRequest, Refused
from ..store import cards as kept
from ..store.ledger import Ledger
from ..transcript.card import BadCard, checked, safe

METHODS = ("card_begin", "card_put", "card_fail")
_MOST_TOKENS = 10_000_000


def perform(ledger: Ledger, method: str, params: Mapping[str, Any], now: float | None = None) -> dict[str, Any]:
    """The answer to one request about a thread named by its `session_id` and `prompt_id`. Raises the errors of
    `errors`."""
    now = time.time() if now is None else now
    key = (_text(params, "session_id"), _text(params, "prompt_id"))
    match method:
        case "card_begin":
            granted, spent = kept.begin(
                ledger,
                key,
                _number(params, "turns"),
                _number(params, "tokens"),
                _number(params, "requests_per_day"),
                _number(params, "tokens_per_day"),
                now,
            )
            return {"granted": granted, "day": spent.day, "requests": spent.requests, "tokens": spent.tokens}
        case "card_fail":
            told = kept.fail(ledger, key, safe(_text(params, "reason"), 200), bool(params.get("counts")), now)
            return {"fruitless": told.fruitless, "given_up": told.fruitless >= kept.GIVEN_UP}
        case "card_put":
            try:
                card = checked(params, safe(_text(params, "provider"), 40), params.get("model") or None)
            except BadCard as fault:
                raise Refused(f"the card was not taken: {fault}", "", "bad_card") from None
            cost = _number(params, "tokens") - _number(params, "counted")
            last = params.get("last_ts")
            kept.put(ledger, key, card, _number(params, "turns"), last if isinstance(last, int) else None, cost, now)
            return {"stored": True, "title": card.title}
    raise BadRequest(f"there is nothing called {method[:80]!r}", f"known are {', '.join(METHODS)}")


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value or len(value) > 1_000:
        raise BadRequest(f"{name} is missing, or no short text")
    return value


def _number(params: Mapping[str, Any], name: str) -> int:
    value = params.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        raise BadRequest(f"{name} must be a whole number from 0 to {_MOST_TOKENS:,}")
    return value
