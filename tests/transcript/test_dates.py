"""The dates that a question names."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.dates import Mention, agreement, mentions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what did we do on 8 May 2023?", [Mention(2023, 5, 8)]),
        ("on the 8th of May, 2023", [Mention(2023, 5, 8)]),
        ("May 8th, 2023", [Mention(2023, 5, 8)]),
        ("Sept. 3 then", [Mention(None, 9, 3)]),
        ("2023-05-08 or 2024-01", [Mention(2023, 5, 8), Mention(2024, 1)]),
        ("June 2022", [Mention(2022, 6)]),
        ("back in July", [Mention(None, 7)]),
        ("last Monday", [Mention(weekday=0)]),
        ("may I march in 2023-13-45 or on 45 May", []),
        ("version 2023-05-08-12, the second sun", []),
    ],
)
def test_dates_are_found_in_words(text: str, found: list[Mention]) -> None:
    """Days, months and weekdays as people write them; words that only look like one are none."""
    assert list(mentions(text)) == found


def test_how_well_a_day_agrees() -> None:
    """Fully, in the month only, or not at all."""
    day = date(2023, 5, 8)
    assert Mention(2023, 5, 8).agrees(day) == Mention(None, 5).agrees(day) == Mention(weekday=0).agrees(day) == 1
    assert 0 < Mention(2023, 5, 9).agrees(day) < 1
    assert Mention(2022, 5, 8).agrees(day) == Mention(2023, 6, 8).agrees(day) == Mention(weekday=1).agrees(day) == 0
    noon = int(datetime(2023, 5, 8, 12).timestamp() * 1000)
    assert agreement(mentions("8 May or 9 June"), noon) == 1
    assert agreement((), noon) == agreement(mentions("8 May"), 10**18) == 0


@given(st.text(max_size=80))
def test_any_text_has_its_dates(text: str) -> None:
    """No text is an error."""
    assert len(mentions(text)) <= 8
