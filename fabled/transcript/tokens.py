"""How many tokens a person's texts really have, learned from what the API counted for their own replies.

Which records to look at is left to `recall`; the estimate itself is `text.estimate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from .text import estimate

FEWEST, LOWEST, HIGHEST = 12, 0.8, 2.0
"""Fewer replies prove nothing; what lies outside was counted for something else than the text."""
SHORTEST = 40
"""Replies of fewer tokens are mostly what is around the text."""


def factor(records: Iterable[Any]) -> float:
    """Tokens for each estimated one, by the `usage` of parsed assistant records; 1.0 where they tell too little.

    A message comes in one record for each block, and its usage counts them all. Thoughts are counted and not always
    written down, so a message with any is left out.
    """
    sizes: dict[str, int] = {}
    counted: dict[str, int] = {}
    for record in records:
        message = record.get("message") if type(record) is dict else None
        if type(message) is not dict or type(message.get("id")) is not str or type(message.get("content")) is not list:
            continue
        id_, usage = message["id"], message.get("usage")
        for block in message["content"]:
            said = block.get("text") if type(block) is dict and block.get("type") == "text" else None
            sizes[id_] = sizes.get(id_, 0) + (estimate(said) if type(said) is str else -(10**9))
        if type(usage) is dict and type(usage.get("output_tokens")) is int:
            counted[id_] = max(counted.get(id_, 0), usage["output_tokens"])
    ratios = [counted[id_] / size for id_, size in sizes.items() if size >= SHORTEST and counted.get(id_, 0) > 0]
    return min(max(median(ratios), LOWEST), HIGHEST) if len(ratios) >= FEWEST else 1.0
