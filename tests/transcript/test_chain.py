"""Which records of a session are on branches it has left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.chain import Link, abandoned, walk
from fabled.transcript.text import CALL, PROMPT, REPLY, RESULT, SUMMARY


def session(*rows: tuple[str, str | None, int]) -> tuple[list[Link], dict[int, str]]:
    """Links from (name, parent's name, kind), and the names of their ids."""
    links = [
        Link(number, name.encode(), parent.encode() if parent is not None else None, kind)
        for number, (name, parent, kind) in enumerate(rows)
    ]
    return links, {number: name for number, (name, _, _) in enumerate(rows)}


def left(*rows: tuple[str, str | None, int]) -> set[str]:
    links, names = session(*rows)
    return {names[number] for number in abandoned(links)}


def test_an_edited_prompt_leaves_a_branch() -> None:
    """The prompt that was taken back and all work under it is a branch; what comes before both is not."""
    assert left(
        ("u1", None, PROMPT),
        ("a1", "u1", REPLY),
        ("u2", "a1", PROMPT),
        ("c2", "u2", CALL),
        ("r2", "c2", RESULT),
        ("u3", "a1", PROMPT),
        ("a3", "u3", REPLY),
    ) == {"u2", "c2", "r2"}


def test_parallel_tool_calls_are_no_branch() -> None:
    """Only one of several results is the next record's parent; the others belong to the chain all the same."""
    rows = (
        ("u1", None, PROMPT),
        ("c1", "u1", CALL),
        ("c2", "c1", CALL),
        ("r1", "c1", RESULT),
        ("r2", "c2", RESULT),
        ("a1", "r2", REPLY),
    )
    links, names = session(*rows)
    assert "r1" not in {names[position] for position in walk(links)}
    assert left(*rows) == set()


def test_a_compaction_breaks_no_chain() -> None:
    """Behind a root that is no first record the walk goes on with the record before it."""
    assert left(
        ("u1", None, PROMPT),
        ("a1", "u1", REPLY),
        ("s1", None, SUMMARY),
        ("u2", "s1", PROMPT),
        ("a2", "gone", REPLY),
        ("a3", "a2", REPLY),
    ) == set()  # fmt: skip


def test_a_chain_that_never_meets_the_walk_is_no_branch() -> None:
    """Cycles and self-parents end, and are not said to be abandoned."""
    assert (
        left(("x", "x", PROMPT), ("y", "z", PROMPT), ("z", "y", REPLY), ("u", None, PROMPT), ("a", "u", REPLY)) == set()
    )


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([PROMPT, REPLY, CALL])), max_size=30))
def test_any_graph_ends(rows: list[tuple[int, int]]) -> None:
    """Whatever the parents say, the walk visits each record at most once and no record on it is abandoned."""
    links = [Link(n, bytes([n]), bytes([parent]), kind) for n, (parent, kind) in enumerate(rows)]
    passed = walk(links)
    assert not links or len(links) - 1 in passed
    assert not passed & abandoned(links)
