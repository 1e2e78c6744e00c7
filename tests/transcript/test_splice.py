"""One value of a line is found and replaced by its bytes alone, however the line is spelt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript import splice
from fabled.transcript.splice import Splice

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
SPELLINGS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : "), (",\r", ":")])


def paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    """Every value inside a value, with its path."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(at, value), *(found for step, inner in pairs for found in paths(inner, (*at, step)))]


@given(VALUES, SPELLINGS, st.booleans())
def test_every_value_is_found_at_its_path(value: Any, spelling: tuple[str, str], escaped: bool) -> None:
    """The span of a path is that value's JSON text, with blanks and escapes of any kind around it."""
    raw = json.dumps(value, separators=spelling, ensure_ascii=escaped).encode()
    for path, inner in paths(value):
        span = splice.find(raw, path)
        assert span is not None
        found = raw[span[0] : span[1]]
        assert json.loads(found) == inner
        assert found == found.strip()


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=6), SPELLINGS, st.data())
def test_members_go_with_their_commas(value: dict[str, Any], spelling: tuple[str, str], data: st.DataObject) -> None:
    """Whichever members are cut out, the rest is the object without them, in its order and spelling."""
    gone = data.draw(st.sets(st.integers(0, len(value) - 1)))
    raw = json.dumps(value, separators=spelling, ensure_ascii=False).encode() + b"\r\n"
    members = splice.members(raw, 0)
    after = splice.apply(raw, splice.cut([(one.start, one.end) for one in members], gone))
    left = {key: inner for at, (key, inner) in enumerate(value.items()) if at not in gone}
    assert after == json.dumps(left, separators=spelling, ensure_ascii=False).encode() + b"\r\n"


@given(st.lists(VALUES, min_size=1, max_size=6), SPELLINGS, st.data())
def test_items_go_with_their_commas(value: list[Any], spelling: tuple[str, str], data: st.DataObject) -> None:
    """Whichever items are cut out, the rest is the array without them."""
    gone = data.draw(st.sets(st.integers(0, len(value) - 1)))
    raw = json.dumps(value, separators=spelling).encode()
    after = splice.apply(raw, splice.cut(splice.items(raw, 0), gone))
    assert after == json.dumps([one for at, one in enumerate(value) if at not in gone], separators=spelling).encode()


@given(VALUES, SPELLINGS, st.text(), st.data())
def test_a_replaced_value_leaves_all_others(
    value: Any, spelling: tuple[str, str], said: str, data: st.DataObject
) -> None:
    """Only the bytes of the value change."""
    raw = json.dumps(value, separators=spelling, ensure_ascii=False).encode()
    path, _ = data.draw(st.sampled_from(paths(value)))
    said = said.encode("utf-8", "ignore").decode()
    start, end = splice.find(raw, path) or (0, 0)
    after = splice.apply(raw, [Splice(start, end, splice.text(said))])
    assert (after[:start], after[len(after) - (len(raw) - end) :]) == (raw[:start], raw[end:])
    again = splice.find(after, path)
    assert again is not None
    assert json.loads(after[again[0] : again[1]]) == said


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'{"a":1,"a":2}', ("a",)),
        (b'{"a":1,"\\u0061":2}', ("a",)),
        (b'{"m":{"x":1},"m":{"y":2}}', ("m", "y")),
        (b'{"a":[1]}', ("a", 1)),
        (b'{"a":[1]}', ("a", "b")),
        (b'{"a":{"0":1}}', ("a", 0)),
        (b'{"a":"b', ("a",)),
        (b'{"a":{"b":1}', ("a",)),
        (b"", ("a",)),
    ],
)
def test_what_is_not_surely_one_value_is_not_found(raw: bytes, path: tuple[str | int, ...]) -> None:
    """Doubled keys, missing places and torn lines have no span."""
    assert splice.find(raw, path) is None


def test_text_is_written_as_the_client_writes_it() -> None:
    """Non-ASCII stays raw, controls and quotes are escaped."""
    assert splice.text('é\u2028😀"\\\n\x01/') == "é\u2028😀".join(['"', '\\"\\\\\\n\\u0001/"']).encode()


def test_edits_that_overlap_are_refused() -> None:
    """Two edits of the same bytes are a fault, not a guess."""
    with pytest.raises(ValueError, match="overlap"):
        splice.apply(b"abcdef", [Splice(0, 3), Splice(2, 4)])
