"""The estimate of tokens follows what the API counted for the person's own replies."""

from __future__ import annotations

from typing import Any

from fabled.transcript.text import estimate
from fabled.transcript.tokens import HIGHEST, factor

WORDS = "the periodic sweep finds what events missed " * 8


def reply(number: int, ratio: float, text: str = WORDS, **block: object) -> dict[str, Any]:
    content = [{"type": "text", "text": text, **block}]
    usage = {"output_tokens": round(estimate(WORDS) * ratio)}
    return {"type": "assistant", "message": {"id": f"msg_{number}", "content": content, "usage": usage}}


def test_the_median_of_enough_replies_counts() -> None:
    replies = [reply(n, 1.3) for n in range(20)] + [reply(99, 50.0)]
    assert abs(factor(replies) - 1.3) < 0.02
    assert factor(replies[:5]) == 1.0
    assert factor([reply(n, 9.0) for n in range(20)]) == HIGHEST


def test_a_message_in_several_records_is_counted_once_and_one_with_thoughts_not() -> None:
    """Each block has a record of its own, with the usage of all; thoughts cost tokens that no text shows."""
    halves = [reply(n, 1.2, WORDS[: len(WORDS) // 2]) for n in range(20) for _ in range(2)]
    assert abs(factor(halves) - 1.2) < 0.05
    thoughts = [reply(n, 6.0, type="thinking", thinking="hm") for n in range(20)]
    assert factor([*thoughts, *[reply(n, 6.0) for n in range(20)]]) == 1.0


def test_odd_records_are_passed_over() -> None:
    assert factor([None, 3, {}, {"message": {"id": 3}}, {"message": {"id": "a", "content": "x", "usage": []}}]) == 1.0
