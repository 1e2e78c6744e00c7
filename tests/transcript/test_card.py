"""Cards made by rule: recognisable, the same each time, and nothing but data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.card import (
    DECISIONS,
    FILES,
    LINE,
    PATH,
    SUMMARY,
    TITLE,
    TOPICS,
    TYPES,
    BadCard,
    Material,
    checked,
    extract,
    headline,
)


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Why do bookings land on the wrong day?", "Why do bookings land on the wrong day?"),
        ("ok, can you please rename the basket to cart", "Rename the basket to cart"),
        ("Thanks! Could you add a retry queue? It should back off.", "Add a retry queue?"),
        ("<command-message>review</command-message>\n<command-name>/review</command-name>\n"
         "<command-args>PR 12</command-args>", "/review PR 12"),
        ("Implement the following plan:\n\n# Plan: Remove the retry queue\n\n## Context\nIt hangs.",
         "Remove the retry queue"),
        ("Implement the following plan: # Plan: Remove it all ## Context", "Remove it all"),
        ("<ide_opened_file>The user opened x.py</ide_opened_file>fix the parser", "Fix the parser"),
        ("This session is being continued from a previous conversation that ran out of context.", ""),
        ("continue", ""),
        ("yes please", ""),
        ("```\nTraceback\n```\nthis fails since the update", "This fails since the update"),
        ("部署を外注する手順を確認してください。お願いします", "部署を外注する手順を確認してください。"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_prompt_becomes_a_title_without_politeness_and_framing(prompt: str, title: str) -> None:
    assert headline(prompt) == title


def test_a_card_says_what_was_asked_done_decided_and_how_it_ended() -> None:
    card = extract(
        Material(
            prompts=["please fix the parser, it drops the last line"],
            replies=[
                "Let me look at it.",
                "We decided to keep the newline, instead of trimming it.\n\n## Summary\nThe parser now keeps the last "
                "line. All 12 tests pass.",
            ],
            edited=["src/parser.py"],
            read=["src/lines.py"],
            commands=["pytest", "git commit"],
            topics=["parser", "newline"],
            tools=4,
        )
    )
    assert (card.title, card.type, card.source) == ("Fix the parser, it drops the last line", "workflow", "extracted")
    assert card.decisions == ("We decided to keep the newline, instead of trimming it.",)
    assert card.files == ("src/parser.py", "src/lines.py") and card.topics == ("parser", "newline")
    assert "Edited parser.py. Ran pytest, git commit." in card.summary


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (Material(["why does it hang?"], ["It waits."], tools=2), "insight"),
        (Material(["explain the lock"], ["It is a lock."]), "concept"),
        (Material(["which one?"], ["Let us weigh it. We went with SQLite because it is one file."]), "decision"),
        (Material(["write it"], ["Done."], edited=["a"], tools=1), "workflow"),
    ],
)
def test_the_type_is_what_was_done(of: Material, kind: str) -> None:
    assert extract(of).type == kind


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (Material(["do it"], ["Fine. Shall I push it?"]), "Asks: Shall I push it?"),
        (Material(["do it"], [], last="prompt"), "No answer was written."),
        (Material(["do it"], ["Let me see."], last="work", last_tool="Bash"), "Ended in the middle of work (Bash)."),
        (Material(["do it"], ["Let me see."], last="interrupted"), "Interrupted."),
        (Material(["do it"], ["Perfect! The queue is gone from all callers."]), "The queue is gone from all callers."),
    ],
)
def test_how_a_thread_ended_shows(of: Material, outcome: str) -> None:
    assert extract(of).outcome == outcome


def test_a_prompt_that_tells_nothing_is_named_by_its_answer() -> None:
    card = extract(Material(["continue"], ["The retry queue was removed from all callers. More later."]))
    assert card.title == "continue: The retry queue was removed from all callers."
    assert extract(Material([], [])).title == "Untitled"


hostile = st.text(
    st.sampled_from("ab <>/\u202e\x1b\x07\U000e0041\n.?!system-reminder_historical_context\ud800外"), max_size=200
)


@given(st.lists(hostile, max_size=4), st.lists(hostile, max_size=4), st.lists(hostile, max_size=20))
def test_a_card_is_bounded_flat_and_without_frames(prompts: list[str], replies: list[str], more: list[str]) -> None:
    """Whatever was said, the card cannot end a frame, command a terminal, or grow."""
    card = extract(Material(prompts, replies, edited=more, read=more, commands=more, topics=more))
    limits = ((card.title, TITLE), (card.outcome, LINE), (card.summary, SUMMARY), *((one, PATH) for one in card.files),
              *((one, LINE) for one in card.decisions))  # fmt: skip
    for text, limit in limits:
        assert len(text) <= limit and "\n" not in text
        text.encode()
        assert not set(text) & set("\u202e\x1b\x07\U000e0041")
        assert "<system-reminder" not in text and "</historical_context" not in text
    assert card.title and card.type in TYPES
    assert len(card.topics) <= TOPICS and len(card.decisions) <= DECISIONS and len(card.files) <= FILES


@given(st.dictionaries(st.sampled_from(["title", "type", "topics", "decisions", "files", "outcome", "summary"]),
                       st.none() | st.integers() | hostile | st.lists(hostile | st.integers(), max_size=3)
                       | st.sampled_from(TYPES)))  # fmt: skip
def test_what_a_model_gives_is_a_card_or_refused(value: dict[str, object]) -> None:
    try:
        card = checked(value, "openai", "tiny")
    except BadCard:
        return
    assert 0 < len(card.title) <= TITLE and 0 < len(card.summary) <= SUMMARY and card.type in TYPES
    assert not set(card.title + card.summary + card.outcome) & set("\u202e\x1b\x07\U000e0041\n")
