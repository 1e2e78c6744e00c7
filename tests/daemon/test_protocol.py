"""The messages: what is a request, what is refused and how, and that every answer is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.daemon import protocol
from fabled.daemon.protocol import METHODS, As, Malformed, Request
from fabled.errors import Ambiguous, BadConfig, StaleIndexError


def parse(value: object) -> Request:
    return protocol.parse(json.dumps(value).encode(), "1.2.3")


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_a_request_is_taken_apart() -> None:
    """Method, parameters, id and the wishes for printing, each in its place; what is null is absent."""
    wishes = {"form": "text", "color": True, "width": 5, "utf8": False}
    found = parse(request("search", query="a b", limit=3, session=None, **{"as": wishes}))
    assert found == Request(
        METHODS["search"], {"query": "a b", "limit": 3}, 1, As("text", color=True, width=20, utf8=False)
    )
    assert parse({"jsonrpc": "2.0", "method": "ping"}) == Request(METHODS["ping"], {}, None, None)


@pytest.mark.parametrize(
    ("value", "number", "words"),
    [
        ([], -32600, "one JSON object"),
        ({"id": 1, "method": "ping"}, -32600, "jsonrpc"),
        ({"jsonrpc": "2.0", "id": 1}, -32600, "method"),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, -32600, "id"),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, -32600, "id"),
        (request("fly"), -32601, "1.2.3, protocol 1"),
        ({"jsonrpc": "2.0", "id": 1, "method": "search", "params": ["x"]}, -32602, "named"),
        (request("search"), -32602, "query is missing"),
        (request("search", query=3), -32602, "query must be a string"),
        (request("search", query="x", limit=True), -32602, "limit must be an integer"),
        (request("search", query="x", limit="3"), -32602, "limit must be an integer"),
        (request("index", paths=["a", 1]), -32602, "paths must be a list of strings"),
        (request("search", query="x", hue=1), -32602, "no parameter 'hue'"),
        (request("status", **{"as": "text"}), -32602, "form"),
        (request("status", **{"as": {"form": "poem"}}), -32602, "form"),
        (request("status", **{"as": {"form": "text", "width": "wide"}}), -32602, "width"),
    ],
)
def test_what_is_no_request_is_refused_in_words(value: object, number: int, words: str) -> None:
    """Each way to be wrong has JSON-RPC's number and says what it is, with the id where there is one."""
    with pytest.raises(Malformed) as told:
        parse(value)
    assert told.value.number == number and words in told.value.message
    line = json.loads(protocol.error(told.value.id, told.value))
    assert line["error"]["code"] == number and line["error"]["data"]["exit"] == 2
    if isinstance(value, dict) and value.get("id") == 1 and value["id"] is not True:
        assert line["id"] == 1


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_malformed(line: bytes) -> None:
    """No line whatever makes anything else than a request or a refusal."""
    try:
        protocol.parse(line, "1.2.3")
    except Malformed as told:
        assert protocol.error(told.id, told).endswith(b"}\n")


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters()),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
)
def test_every_answer_is_one_line_of_json(value: object) -> None:
    """Whatever an answer holds, names of files that are no UTF-8 among it, it is one line and says the same."""
    line = protocol.result(7, value)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line) == {"jsonrpc": "2.0", "id": 7, "result": value}


def test_file_names_that_are_no_text_survive() -> None:
    """A name with bytes outside of UTF-8, as the system gives it, can be answered with."""
    name = b"/r/\xff\xfe.jsonl".decode("utf-8", "surrogateescape")
    assert json.loads(protocol.result(1, {"path": name}))["result"]["path"] == name


def test_ready_to_print_tells_its_length() -> None:
    """The line before printed bytes says how many follow, whatever they are."""
    head, _, body = protocol.printed("x", 1, b"a\nb\xff").partition(b"\n")
    assert json.loads(head) == {"jsonrpc": "2.0", "id": "x", "result": {"exit": 1, "bytes": 4}}
    assert body == b"a\nb\xff"


def test_faults_carry_their_facts() -> None:
    """Code, hint and exit of a fault reach the client, with candidates and problems where it has them."""

    def data(fault: Any) -> dict[str, Any]:
        error = json.loads(protocol.error(1, fault))["error"]
        assert error["code"] == -32000 - fault.exit
        return dict(error["data"])

    assert data(StaleIndexError("moved", "index")) == {"code": "stale", "hint": "index", "exit": 5}
    assert data(Ambiguous("which", ("a", "b")))["candidates"] == ["a", "b"]
    assert data(BadConfig(("x:1: odd",)))["problems"] == ["x:1: odd"]


def test_an_event_is_a_notification() -> None:
    """Events have no id and name themselves."""
    assert json.loads(protocol.event("change", {"files": 1})) == {
        "jsonrpc": "2.0",
        "method": "event",
        "params": {"event": "change", "files": 1},
    }
