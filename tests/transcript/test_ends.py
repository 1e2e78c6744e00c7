"""How a thread ends: from its last records alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript import ends
from fabled.transcript.text import facts
from tests.build import Transcript

REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit)."


def told(talk: Transcript, without: tuple[str, ...] = ()) -> tuple[str, str, str | None] | None:
    """(kind, text, tool) of how a conversation ends; calls without result are those no record answers."""
    last, answers, tools = [], set(without), {}
    for record in talk.records:
        found = facts(record, False)
        for call in found.calls:
            tools[call] = found.tool
        if found.answers is not None:
            answers.add(found.answers)
        last.append(ends.Last(found.kind, record, found.tool or tools.get(found.answers or "")))
    end = ends.end(last, answers.__contains__)
    return None if end is None else (end.kind, end.text, end.tool)


def talk() -> Transcript:
    made = Transcript()
    made.user("mend the gate")
    return made


def test_a_statement_closes_a_thread() -> None:
    """What ends with a reply that says something is not open."""
    one = talk()
    one.assistant("The gate is mended.")
    assert told(one) is None


def test_a_prompt_without_a_reply_is_unanswered() -> None:
    """The person's own words are what is open."""
    assert told(talk()) == ("unanswered", "mend the gate", None)


def test_a_question_at_the_end_waits_for_the_person() -> None:
    """The last sentence is told, not the whole reply."""
    one = talk()
    one.assistant("It has two hinges. One is rusty.\n\nShall I replace **both** of them?")
    assert told(one) == ("asks", "Shall I replace **both** of them?", None)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Done. Which colour do you want?\n\n1. green\n2. blue", "Which colour do you want?"),
        ("Which one:\n- green\n- blue", None),
        ("どちらにしますか？", "どちらにしますか？"),
        ("*Ready to go on?* 🚀", "Ready to go on?"),
        ("Why? Because of the rain.", None),
        ("The gate is done. Is there anything else I can help with?", None),
        ("- Should the hinge be oiled?", "Should the hinge be oiled?"),
        ("", None),
        ("?", "?"),
        ("See `what?`", "See `what?"),
    ],
)
def test_what_counts_as_a_question(text: str, asked: str | None) -> None:
    """A list of choices may follow it; an offer of more help is none; nor is one that the text answers itself."""
    assert ends.question(text) == asked


def test_a_call_to_ask_is_a_question() -> None:
    """The tools that ask wait for the person, not for a machine."""
    one = talk()
    one.call("AskUserQuestion", {"questions": [{"question": "Which hinge?", "options": []}]})
    assert told(one) == ("asks", "Which hinge?", "AskUserQuestion")


def test_a_call_without_a_result_is_unanswered() -> None:
    """What was called is told; of parallel calls the one that still waits."""
    one = talk()
    one.call("Bash", {"command": "make gate", "description": "build"})
    assert told(one) == ("unanswered", "make gate", "Bash")
    one = talk()
    first = one.call("Bash", {"command": "sleep 100"}, call="c1")
    second = one.call("Read", {"file_path": "/gate"}, call="c2", message="m")
    one.result(second, "wood")
    assert told(one) == ("unanswered", "sleep 100", "Bash")
    one.result(first, "")
    assert told(one) == ("unfinished", "", "Bash")


def test_a_failure_at_the_end_is_told_with_its_words() -> None:
    """A tool's error without the client's tags; an error of the API; not an error that Claude went on from."""
    one = talk()
    call = one.call("Edit", {"file_path": "/gate"})
    result = one.result(call, "<tool_use_error>File does not exist.</tool_use_error>")
    result["message"]["content"][0]["is_error"] = True
    assert told(one) == ("failed", "File does not exist.", "Edit")
    one.assistant("There is no gate.")
    assert told(one) is None
    one.assistant("API Error: 529 overloaded", isApiErrorMessage=True)
    assert told(one) == ("failed", "API Error: 529 overloaded", None)


def test_an_interruption_tells_what_was_interrupted() -> None:
    """By its marker, or by the rejection of a call."""
    one = talk()
    call = one.call("Bash", {"command": "make gate"})
    result = one.result(call, REJECTED)
    result["message"]["content"][0]["is_error"] = True
    assert told(one) == ("interrupted", "make gate", "Bash")
    one.user([{"type": "text", "text": "[Request interrupted by user for tool use]"}], prompt=one.prompt)
    assert told(one) == ("interrupted", "make gate", "Bash")
    two = talk()
    two.user("[Request interrupted by user]", prompt=two.prompt)
    assert told(two) == ("interrupted", "mend the gate", None)


def test_a_missing_permission_asks() -> None:
    """A call that was not permitted waits for the person."""
    one = talk()
    result = one.result(
        one.call("Write", {"file_path": "/gate"}),
        "Claude requested permissions to write to /gate, but you haven't granted it yet.",
    )
    result["message"]["content"][0]["is_error"] = True
    assert told(one) == (
        "asks",
        "Claude requested permissions to write to /gate, but you haven't granted it yet.",
        "Write",
    )


def test_work_that_stops_half_way_is_unfinished() -> None:
    """After a thought, after a result, at the length limit."""
    one = talk()
    one.thinking("the hinge …")
    assert told(one) == ("unfinished", "", None)
    two = talk()
    two.result(two.call("Read", {"file_path": "/gate"}), "wood")
    assert told(two) == ("unfinished", "", "Read")
    three = talk()
    three.assistant("The gate consists of")["message"]["stop_reason"] = "max_tokens"
    assert told(three) == ("unfinished", "The gate consists of", None)


def test_what_the_client_adds_at_the_end_decides_nothing() -> None:
    """A made-up reply, a reminder: the end is what was before; a command of the person's closes."""
    one = talk()
    one.assistant("Shall I?")
    one.assistant("No response requested.")["message"]["model"] = "<synthetic>"
    one.user("<system-reminder>x</system-reminder>", isMeta=True, prompt=one.prompt)
    assert told(one) == ("asks", "Shall I?", None)
    one.user("<command-name>/exit</command-name>")
    assert told(one) is None


def test_recalled_words_are_no_question_of_the_session() -> None:
    """A passage of another session in a reply is not what this one asks."""
    one = talk()
    one.assistant('Done. <historical_context arcs="a">Shall we?</historical_context>')
    assert told(one) is None


shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "content", "type", "text", "id", "input", "is_error", "name", "questions"]),
            inner | st.sampled_from(["tool_use", "tool_result", "text"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.integers(0, 9), st.dictionaries(st.just("message"), shapes) | st.none()), max_size=6))
def test_any_shape_has_an_end(records: list[tuple[int, Any]]) -> None:
    """Odd content never raises, and the record named is one of those given."""
    found = ends.end([ends.Last(kind, obj) for kind, obj in records], lambda call: False)
    assert found is None or (0 <= found.at < len(records) and isinstance(found.text, str))
