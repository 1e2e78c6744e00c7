"""Every byte of a transcript is a record, an unparsed span, a pending tail or a separator, whatever the bytes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fabled.transcript import record as r
from tests.build import Transcript, line, make_uuid

Piece = tuple[str, bytes]


def prompt(text: str = "hello", label: str = "one", **more: Any) -> bytes:
    """The bytes of one prompt."""
    talk = Transcript(session=make_uuid("reader"))
    talk.user(text, label=label, **more)
    return talk.lines[0]


def reader(data: bytes) -> r.Read:
    return lambda offset, length: data[offset : offset + length]


def found(data: bytes) -> list[r.Span]:
    return list(r.spans(reader(data), len(data)))


def shown(data: bytes) -> list[tuple[str, int, int, int]]:
    """(kind, line, offset, length) of all spans but separators."""
    return [(span.kind, span.line, span.offset, span.length) for span in found(data) if span.kind != "separator"]


def laid(pieces: list[Piece]) -> tuple[bytes, list[tuple[str, int, int, int]]]:
    """The bytes of some pieces laid end to end, and the spans they are to be found as."""
    data, expected = b"", []
    for kind, piece in pieces:
        if kind != "separator":
            expected.append((kind, data.count(b"\n") + 1, len(data), len(piece)))
        data += piece
    return data, expected


ONE, TWO, THREE = prompt("one", "one"), prompt("two {}", "two"), prompt('three } { "}{" [', "three")
MODE = line({"type": "mode", "mode": "normal", "sessionId": make_uuid("reader")})
SUMMARY = line({"type": "summary", "summary": "Porch lights", "leafUuid": make_uuid("leaf")})
SNAPSHOT = line(
    {
        "type": "file-history-snapshot",
        "messageId": make_uuid("m"),
        "snapshot": {"messageId": make_uuid("m")},
        "isSnapshotUpdate": False,
    }
)
NL, NUL = ("separator", b"\n"), b"\0"
NESTED = {
    "type": "assistant",
    "uuid": make_uuid("nested"),
    "timestamp": "2026-03-02T09:00:01.137Z",
    "message": {"id": "msg_n", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "inside"}]},
}
PROGRESS = line(
    {
        "parentUuid": make_uuid("p"),
        "isSidechain": False,
        "type": "progress",
        "sessionId": make_uuid("reader"),
        "data": {"type": "agent_progress", "message": NESTED, "agentId": "a1b2c3d"},
        "uuid": make_uuid("progress"),
    }
)


def record(data: bytes) -> Piece:
    return "record", data


def blank(data: bytes) -> Piece:
    return "separator", data


def torn(data: bytes) -> Piece:
    return "unparsed", data


def cut(data: bytes, after: bytes) -> bytes:
    """The beginning of a record, up to and with some bytes of it."""
    return data[: data.index(after) + len(after)]


CASES: dict[str, list[Piece]] = {
    # A01: whole records on one line
    "two records glued": [record(ONE), record(TWO), NL],
    "three on a line, braces in strings": [record(THREE), record(ONE), record(THREE), NL],
    "blanks and tabs between": [record(ONE), blank(b" "), record(THREE), blank(b"\t \t"), record(TWO), NL],
    "glued records without uuid": [("no_uuid", MODE), record(ONE), ("no_uuid", SUMMARY), ("no_uuid", SNAPSHOT), NL],
    "an object that is no record, glued": [("no_uuid", b'{"a":1}'), ("no_uuid", b"{}"), record(ONE), NL],
    "glued across escaped quotes": [record(prompt('a \\" {"} \\\\')), record(prompt("\\")), NL],
    # A02: a cut record, then a whole one
    "cut within a string": [torn(cut(THREE, b"three }")), record(ONE), NL],
    "cut within a string that ends with a brace": [torn(cut(THREE, b"three } {")), record(ONE), NL],
    "cut within a key": [torn(cut(ONE, b'"userTy')), record(TWO), NL],
    "cut behind a key": [torn(cut(ONE, b'"userType"')), record(TWO), NL],
    "cut behind a colon": [torn(cut(ONE, b'"message":')), record(TWO), NL],
    "cut behind a comma": [torn(cut(ONE, b'"isSidechain":false,')), record(TWO), NL],
    "cut behind an opening bracket": [torn(b'{"parentUuid":null,"content":['), record(TWO), NL],
    "cut within a word": [torn(cut(ONE, b'"isSidechain":fal')), record(TWO), NL],
    "cut within a number": [torn(b'{"type":"user","n":12'), record(TWO), NL],
    "cut behind a backslash": [torn(prompt('say \\"hi')[:-90].rsplit(b"\\", 1)[0] + b"\\"), record(TWO), NL],
    "cut within a unicode escape": [
        torn(b'{"parentUuid":null,"type":"user","message":{"content":"caf\\u00'),
        record(TWO),
        NL,
    ],
    "cut within a letter": [torn(cut(prompt("größe"), "grö".encode())[:-1]), record(TWO), NL],
    "cut behind an escaped quote": [torn(b'{"parentUuid":null,"message":{"content":"he said \\"'), record(ONE), NL],
    "cut behind an inner object": [torn(cut(ONE, b'"content":"one"}')), record(TWO), NL],
    "cut, then two whole": [torn(cut(ONE, b'"one')), record(TWO), record(THREE), NL],
    "whole, cut, whole": [record(TWO), torn(cut(ONE, b'"one')), record(THREE), NL],
    "two cut ones, then whole": [torn(cut(ONE, b'"content":"on') + cut(TWO, b'"content":"tw')), record(THREE), NL],
    "two cut ones with a whole between": [
        torn(cut(ONE, b'"on')),
        record(TWO),
        torn(cut(ONE, b'"message":')),
        record(THREE),
        NL,
    ],
    "metadata cut, then whole": [torn(MODE[:-20]), record(ONE), NL],
    "cut, then metadata": [torn(cut(ONE, b'"on')), ("no_uuid", MODE), NL],
    "cut behind a colon, then metadata": [
        torn(cut(ONE, b'"message":')),
        ("no_uuid", SUMMARY),
        ("no_uuid", SNAPSHOT),
        NL,
    ],
    "cut within a string, then a type never seen": [
        torn(cut(ONE, b'"on')),
        ("no_uuid", b'{"type":"quantum-note","x":1}'),
        NL,
    ],
    "cut and nothing behind": [torn(cut(ONE, b'"one')), NL, record(TWO), NL],
    "a whole record, then a cut one": [record(ONE), torn(cut(TWO, b'"two')), NL, record(THREE), NL],
    "talk before and behind a record": [torn(b"panic: "), record(ONE), blank(b" "), torn(b"at line 3"), NL],
    # nothing inside a torn record is a record
    "a progress record cut behind its nested record": [torn(cut(PROGRESS, line(NESTED))), NL, record(ONE), NL],
    "a progress record cut behind its data": [torn(cut(PROGRESS, b'"a1b2c3d"}')), NL],
    "a progress record cut, then whole": [torn(cut(PROGRESS, line(NESTED))), record(ONE), NL],
    "content blocks of a cut record": [
        torn(b'{"parentUuid":null,"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}'),
        NL,
    ],
    "many nested blocks before a whole record": [
        torn(b'{"parentUuid":null,"b":[' + b'{"type":"text","text":"x"},' * 900),
        record(ONE),
        NL,
    ],
    "the text of a record within a string": [torn(cut(prompt(ONE.decode()), b'one\\"}')), NL],
    # A04: zeros after a crash
    "zeros before a record": [torn(NUL * 311), record(ONE), NL],
    "zeros behind a record": [record(ONE), torn(NUL * 4096), NL, record(TWO), NL],
    "zeros on both sides": [torn(NUL), record(ONE), torn(NUL * 2), NL],
    "zeros between two records": [record(ONE), torn(NUL * 9), record(TWO), NL],
    "a line of zeros": [record(ONE), NL, torn(NUL * 700), NL, record(TWO), NL],
    "zeros at the end": [record(ONE), NL, torn(NUL * 2048)],
    "zeros behind a last record": [record(ONE), torn(NUL * 5)],
    "zeros, then what was appended": [record(ONE), NL, torn(NUL * 2048), record(TWO), NL],
    "a cut record, zeros, a whole one": [torn(cut(ONE, b'"one') + NUL * 64), record(TWO), NL],
    "blanks and zeros": [blank(b" "), torn(NUL * 3), blank(b" "), torn(NUL * 3), record(ONE), NL],
    "a cut last record with zeros": [record(ONE), NL, torn(cut(TWO, b'"tw') + NUL * 100)],
    # A05: a tail that is being written
    "a partial tail": [record(ONE), NL, ("pending", TWO[:-30])],
    "a tail cut in a letter": [record(ONE), NL, ("pending", cut(prompt("größe"), "grö".encode())[:-1])],
    "a tail cut in an escape": [record(ONE), NL, ("pending", b'{"type":"user","x":"a\\u00')],
    "a tail of one brace": [record(ONE), NL, ("pending", b"{")],
    "a whole record without its newline": [record(ONE), NL, record(TWO)],
    "metadata without its newline": [record(ONE), NL, ("no_uuid", MODE)],
    "glued to a whole one, a partial tail": [record(ONE), NL, record(TWO), ("pending", THREE[:-30])],
    "a whole one behind a tear, without newline": [torn(cut(ONE, b'"one')), record(TWO)],
    "a tail that ends in blanks": [record(ONE), NL, ("pending", TWO[:50] + b"  ")],
    "a tail of blanks": [record(ONE), NL, blank(b"  ")],
    "a whole record and a carriage return": [record(ONE), blank(b"\r")],
    "half a byte order mark": [("pending", b"\xef\xbb")],
    "a single partial record": [("pending", ONE[:-1])],
    # A07 and RULES 2: what orjson refuses
    "half a pair as an escape": [record(ONE.replace(b'"one"', b'"half \\ud83d of it"')), NL],
    "the other half": [record(ONE.replace(b'"one"', b'"\\ude00"')), NL],
    "half a pair in a key": [record(ONE.replace(b'"cwd"', b'"\\udfff"')), NL],
    "half a pair, glued": [record(ONE.replace(b'"one"', b'"\\ud83d"')), record(TWO), NL],
    "half a pair behind a tear": [torn(cut(TWO, b'"two')), record(ONE.replace(b'"one"', b'"\\ud83d"')), NL],
    "a pair": [record(ONE.replace(b'"one"', b'"\\ud83d\\ude00"')), NL],
    "bytes that are no UTF-8": [record(ONE.replace(b"one", b"a\xff\xfe\xc3(\xed\xa0\x80")), NL],
    "bytes that are no UTF-8, glued": [
        record(ONE.replace(b"one", b"\x80")),
        record(ONE.replace(b"one", b"\xf0\x9f")),
        NL,
    ],
    "NaN and the infinities": [record(ONE.replace(b'"one"', b"[NaN,Infinity,-Infinity]")), NL],
    "control bytes in a string": [record(ONE.replace(b"one", b"\x01\x02\t\x1b[31m\x7f\r")), NL],
    "zeros in a string": [record(ONE.replace(b"one", b"a\0b")), NL],
    "line separators in a string": [
        record(ONE.replace(b"one", "a\u2028b\u2029c\u0085d\x0be\x0cf".encode())),
        NL,
        record(TWO),
        NL,
    ],
    "an escaped zero": [record(ONE.replace(b"one", b"\\u0000")), NL],
    "huge numbers": [record(ONE.replace(b'"one"', b"[" + b"9" * 40 + b"," + b"9" * 6_000 + b",1e999,-0]")), NL],
    "a key twice": [record(ONE.replace(b'{"parentUuid"', b'{"uuid":"x","parentUuid"')), NL],
    "deeply nested, but readable": [record(ONE.replace(b'"one"', b"[" * 500 + b"]" * 500)), NL, record(TWO), NL],
    "nested beyond what a parser follows": [
        torn(ONE.replace(b'"one"', b"[" * 50_000 + b"]" * 50_000)),
        NL,
        record(TWO),
        NL,
    ],
    "opened and never closed": [torn(b'{"a":' * 30_000), NL, record(TWO), NL],
    # separators
    "a byte order mark": [blank(b"\xef\xbb\xbf"), record(ONE), NL, record(TWO), NL],
    "a mark on every line": [blank(b"\xef\xbb\xbf"), record(ONE), NL, blank(b"\xef\xbb\xbf"), record(TWO), NL],
    "a mark between glued records": [record(ONE), blank(b"\xef\xbb\xbf"), record(TWO), NL],
    "CR LF": [record(ONE), blank(b"\r"), NL, record(TWO), blank(b"\r"), NL],
    "blank lines": [NL, record(ONE), NL, NL, blank(b"  \t"), NL, record(TWO), NL, NL],
    "blanks inside a record": [record(b'{ "type" : "user" ,\t"uuid": "' + make_uuid("b").encode() + b'" }'), NL],
    # lines that are JSON and no record
    "other JSON values": [
        torn(b"[1,2]"),
        NL,
        torn(b'"text"'),
        NL,
        torn(b"null"),
        NL,
        torn(b"42"),
        NL,
        torn(b"true"),
        NL,
        record(ONE),
        NL,
    ],
    "an array of records": [torn(b"[" + ONE + b"]"), NL],
    "plain text": [torn(b"# notes"), NL, torn(b"no transcript"), blank(b" "), NL],
    # uuids
    "a uuid of another form": [("no_uuid", prompt(uuid="request_1")), NL],
    "a uuid that is a number": [("no_uuid", b'{"type":"user","uuid":7}'), NL],
    "a uuid in capitals": [record(b'{"type":"user","uuid":"' + make_uuid("c").upper().encode() + b'"}'), NL],
    "no bytes": [],
}


@pytest.mark.parametrize("name", CASES)
def test_spans_of(name: str) -> None:
    """The spans of a file are those of the pieces it was laid from."""
    data, expected = laid(CASES[name])
    assert shown(data) == expected
    assert_tiled(data)


def assert_tiled(data: bytes) -> None:
    """Spans follow each other from the first byte to the last, each on the line it starts in."""
    spans = found(data)
    assert [span.offset for span in spans] == [0, *(s.offset + s.length for s in spans)][: len(spans)]
    assert sum(span.length for span in spans) == len(data)
    assert all(span.length > 0 for span in spans)
    assert [span.line for span in spans] == [data.count(b"\n", 0, span.offset) + 1 for span in spans]
    for span in spans:
        piece = data[span.offset : span.offset + span.length]
        if span.kind == "record":
            assert r.loads(piece)["uuid"] == span.uuid
        elif span.kind == "no_uuid":
            assert isinstance(r.loads(piece), dict)
            assert span.uuid is None
        elif span.kind == "separator":
            assert piece == b"\n" or not piece.replace(b"\xef\xbb\xbf", b"").strip(b" \t\r")


# Properties


keys = st.sampled_from(["type", "uuid", "parentUuid", "message", "content", "sessionId", "a", "é", '"', "{", "\\"])
texts = st.text(max_size=12) | st.sampled_from(
    ['{"type":"user"}', "}{", '"', "\\", "\\u12", "\u2028", "\0", "🙏", "外", "<historical_context a"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | texts
    | st.builds(make_uuid, texts.map(ascii))
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(keys, values, max_size=5)
fragments = st.sampled_from(
    [
        ONE,
        TWO,
        THREE,
        MODE,
        PROGRESS,
        SUMMARY,
        b"\n",
        b"\n",
        b"\n",
        b"\0",
        b"\0\0\0",
        b" ",
        b"\r",
        b"\t",
        b"\xef\xbb\xbf",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\\u",
        b"00e9",
        b'{"type":"',
        b'{"parentUuid":',
        b",",
        b":",
        b"[",
        b"]",
        b"null",
        b"\xff",
        "外".encode(),
        b"\xc3",
        b'{"',
        b'"}',
        b"NaN",
    ]
)
cuts = st.builds(lambda piece, n: piece[: n % (len(piece) + 1)], fragments, st.integers(0, 1_000))
messy = st.lists(fragments | cuts | st.binary(max_size=6), max_size=14).map(b"".join)


def written(value: Any, plain: bool) -> bytes:
    """A value as some program would write it."""
    try:
        return json.dumps(value, ensure_ascii=plain, separators=(",", ":") if plain else (", ", ": ")).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


@given(messy)
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_tiled(data: bytes) -> None:
    """Whatever a file holds, each of its bytes lies in exactly one span."""
    assert_tiled(data)


@given(
    st.lists(
        st.tuples(
            objects,
            st.booleans(),
            st.sampled_from([b"", b"\n", b" ", b"\t", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\0\0"]),
        ),
        max_size=6,
    )
)
@settings(max_examples=120, deadline=None)
def test_records_come_back_however_they_are_joined(parts: list[tuple[dict[str, Any], bool, bytes]]) -> None:
    """Objects written one behind the other, glued or on lines, are found exactly, and nothing else is."""
    data = b"".join(written(value, plain) + joint for value, plain, joint in parts)
    spans = [span for span in found(data) if span.kind in ("record", "no_uuid")]
    assert [r.loads(data[s.offset : s.offset + s.length]) for s in spans] == [
        r.loads(written(value, plain)) for value, plain, _ in parts
    ]
    assert all(data[s.offset : s.offset + s.length].strip(b"\0") == b"" for s in found(data) if s.kind == "unparsed")
    assert not [span for span in found(data) if span.kind == "pending"]


@given(messy, st.integers(1, 400))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_size_of_reads_changes_nothing(data: bytes, chunk: int) -> None:
    """The same spans come out however many bytes are read at a time."""
    expected = found(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(r, "CHUNK", chunk)
        assert found(data) == expected


def huge(patch: pytest.MonkeyPatch, limit: int = 100, chunk: int = 64) -> None:
    """Makes lines of a few hundred bytes count as huge."""
    patch.setattr(r, "HUGE_LINE", limit)
    patch.setattr(r, "KEEP_HEAD", 48)
    patch.setattr(r, "KEEP_TAIL", 16)
    patch.setattr(r, "CHUNK", chunk)


@given(
    st.lists(st.tuples(objects, st.booleans(), st.sampled_from([b"", b"\n", b" "]), st.integers(0, 200)), max_size=4),
    st.integers(32, 90),
    st.integers(20, 300),
)
@settings(max_examples=120, deadline=None)
def test_huge_lines_have_the_spans_of_plain_ones(
    parts: list[tuple[dict[str, Any], bool, bytes, int]], chunk: int, limit: int
) -> None:
    """Leaving out the middle of long strings moves no span and changes no kind."""
    data = b"".join(
        written({**value, "long": list(value)[:1] * n, "é" * n: '\\"外é' * n}, plain) + joint
        for value, plain, joint, n in parts
    )
    expected = found(data)
    with pytest.MonkeyPatch.context() as patch:
        huge(patch, limit, chunk)
        assert found(data) == expected


@pytest.mark.parametrize(
    "name", [name for name in CASES if "nested" not in name and "never closed" not in name and "numbers" not in name]
)
@pytest.mark.parametrize("chunk", [33, 64, 1000])
def test_odd_huge_lines_have_the_spans_of_plain_ones(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a torn, glued or padded line is taken apart alike when it counts as huge."""
    data, expected = laid(CASES[name])
    huge(monkeypatch, chunk=chunk)
    assert shown(data) == expected


@pytest.mark.parametrize("unit", ["\\u00e9", "\\ud83d\\ude00", "\\\\", '\\"', "é", "外", "🙏", "\\n", "a", "\\\\u12"])
@pytest.mark.parametrize("shift", range(7))
def test_a_huge_string_is_never_cut_within_a_letter_or_an_escape(
    unit: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortened form of a huge record parses, whatever its string is made of and wherever the cut falls."""
    huge(monkeypatch)
    data = ONE.replace(b'"one"', b'"' + b"x" * shift + unit.encode() * 400 + b'"')
    (only,) = r.lines(reader(data + b"\n"), 0, 1, len(data) + 1)
    assert only.cuts
    assert len(only.data) < len(ONE) + 200 or unit == "\\\\"
    assert [kind for kind, *_ in r.segments(only.data, True)] == ["record"]
    text, whole = (r.loads(form)["message"]["content"] for form in (only.data, data))
    assert whole.startswith(text[:3])
    assert whole.endswith(text[-1:])
    assert "\ufffd" not in text


def test_the_length_of_a_line_alone_decides_that_it_is_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is shortened or not whatever stands before it, so its text does not depend on where reading began."""
    data = prompt("x" * 300)
    forms = set()
    for before in range(0, 300, 7):
        huge(monkeypatch, limit=len(data) - 1, chunk=len(data) // 3 + before)
        whole = b"[" * before + b"\n" + data + b"\n" + ONE + b"\n"
        forms.add([one.data for one in r.lines(reader(whole), 0, 1, len(whole))][1])
    (form,) = forms
    assert len(form) < len(data)


@given(messy)
@settings(max_examples=150, deadline=None)
@example(b"a\n\n\nb")
def test_reading_goes_on_from_any_line(data: bytes) -> None:
    """From the start of any line the same rest is read as from the beginning."""
    every = [(one.offset, one.number, one.data, one.complete) for one in r.lines(reader(data), 0, 1, len(data))]
    for at, (offset, number, _, _) in enumerate(every):
        assert [
            (one.offset, one.number, one.data, one.complete) for one in r.lines(reader(data), offset, number, len(data))
        ] == every[at:]


@given(messy, st.integers(0, 2_000))
@settings(max_examples=200, deadline=None)
def test_what_is_appended_takes_back_nothing_but_the_last_line(data: bytes, at: int) -> None:
    """Seen half, a file has the spans it has when whole, up to the start of the line that was being written."""
    half = data[: at % (len(data) + 1)]
    settled = half.rfind(b"\n") + 1
    assert [s for s in found(half) if s.offset < settled] == [s for s in found(data) if s.offset < settled]


@given(st.lists(st.sampled_from([ONE, TWO, THREE, MODE]), min_size=1, max_size=4), st.integers(1, 5_000), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_tear_costs_no_other_record(records: list[bytes], at: int, zeros: bool) -> None:
    """Cut one record anywhere and glue whole ones behind it: all of them are found, where they are."""
    head = PROGRESS[: 1 + at % (len(PROGRESS) - 1)] + (b"\0" * 8 if zeros else b"")
    data = head + b"".join(records) + b"\n"
    places = [len(head) + sum(map(len, records[:n])) for n in range(len(records))]
    spans = [span for span in found(data) if span.kind in ("record", "no_uuid")]
    assert [(span.offset, span.length) for span in spans] == [
        (place, len(one)) for place, one in zip(places, records, strict=True)
    ]


# Work and memory


def work_on(data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Characters shown to the decoder to take a line apart."""
    spent = 0

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            nonlocal spent
            spent += len(s)
            return plain(s, idx)

    plain = json.JSONDecoder(strict=False).raw_decode
    monkeypatch.setattr(r, "_walker", Counting(strict=False))
    r.segments(data, True)
    return spent


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "opening braces": lambda n: b"{" * n,
    "objects opened by a known key": lambda n: b'{"type":' * (n // 8),
    "strings opened and cut": lambda n: b'{"type":"' * (n // 9),
    "records cut at once": lambda n: (b'{"parentUuid":null,"type":"user","x":"') * (n // 38),
    "quotes": lambda n: b'{"' * (n // 2),
    "backslashes": lambda n: b'{"a":"' + b"\\" * n,
    "closing braces": lambda n: b"}{" * (n // 2),
    "nested, each with a record inside": lambda n: b'{"type":"a","b":[{"sessionId":"s","type":"t"} ,' * (n // 48),
    "records and commas": lambda n: b'{"type":"a","sessionId":"s"},' * (n // 29),
    "a tear before each record": lambda n: b'{"a":"x{"type":"a","sessionId":"s"}' * (n // 36),
    "long strings never closed": lambda n: (b'{"type":["' + b"x" * 2_000 + b'",') * (n // 2_012),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_costs_its_length_squared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight times the length costs about eight times the work, or at most fifty looks at each byte."""
    small, large = HOSTILE[name](20_000), HOSTILE[name](160_000)
    assert work_on(large, monkeypatch) <= max(12 * work_on(small, monkeypatch), 50 * len(large))
    assert_tiled(small)


def test_a_huge_line_is_read_with_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a line far longer than the limit only the ends of its strings are held, and its span is exact."""
    body = b"0123456789abcdef" * (1 << 20)
    data = ONE + b"\n" + prompt("@@", "big").replace(b"@@", body) + b"\n" + TWO + b"\n"
    held = 0
    kept = []
    for one in r.lines(reader(data), 0, 1, len(data)):
        held = max(held, len(one.data))
        kept.append(one.length)
    assert held < 1 << 20
    assert kept == [len(ONE), len(prompt("@@", "big")) - 2 + len(body), len(TWO)]
    assert [kind for kind, *_ in shown(data)] == ["record", "record", "record"]


def test_structure_beyond_all_bounds_is_one_unparsed_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that stays too long even without its strings is accounted for, and the next line is read."""
    monkeypatch.setattr(r, "STRUCTURE_LIMIT", 4_000)
    huge(monkeypatch)
    long = b'{"a":[' + b"1," * 9_000 + b"1]}"
    data = ONE + b"\n" + long + b"\n" + TWO + b"\n"
    assert shown(data) == [
        ("record", 1, 0, len(ONE)),
        ("unparsed", 2, len(ONE) + 1, len(long)),
        ("record", 3, len(ONE) + len(long) + 2, len(TWO)),
    ]


# Values and ids


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'"\\ud83d"', "\ufffd"),
        (b'"\xff"', "\ufffd"),
        (b'{"\\ud83d":["\\ude00",{"a":"\\ud83d\\ude00\\ud83d"}]}', {"\ufffd": ["\ufffd", {"a": "😀\ufffd"}]}),
        (b'"a\x01b"', "a\x01b"),
        (b"[Infinity]", [float("inf")]),
        (b"12345678901234567890", 12345678901234567890),
    ],
)
def test_values_are_read_as_the_client_wrote_them(data: bytes, value: object) -> None:
    """What the fast parser refuses, the lenient one reads."""
    assert r.loads(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"{'a':1}", b"{}{}", b"[" * 100_000, b"\xef\xbb\xbf"])
def test_what_is_no_value_is_refused(data: bytes) -> None:
    """Anything that is not one JSON text raises ValueError and nothing else."""
    with pytest.raises(ValueError):
        r.loads(data)


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        "x",
        "587aa158-62d1-5c4d-a561-08fa44d973b",
        "587aa158-62d1-5c4d-a561-08fa44d973b77",
        "587aa158062d1-5c4d-a561-08fa44d973b7",
        "587aa158-62d1-5c4d-a561-08fa44d973bg",
        "587aa158-62d1-5c4d-a561- 8fa44d973b7",
        "request_01",
        ["587aa158-62d1-5c4d-a561-08fa44d973b7"],
        "５87aa158-62d1-5c4d-a561-08fa44d973b7",
    ],
)
def test_what_has_not_the_form_of_a_uuid_counts_as_none(value: object) -> None:
    """Only 32 hexadecimal digits in the known grouping are a uuid."""
    assert r.uuid_bytes(value) is None


@given(st.uuids())
def test_a_uuid_is_shown_as_it_was_written(value: Any) -> None:
    """Sixteen bytes of a uuid give its text again, whatever the case it was written in."""
    assert r.uuid_text(r.uuid_bytes(str(value)) or b"") == str(value)
    assert r.uuid_bytes(str(value).upper()) == value.bytes


def test_a_record_without_uuid_is_called_by_its_content() -> None:
    """The id of a record without uuid is L- and the first 16 hex digits of the sha256 of its bytes."""
    assert (
        r.content_id(r.digest(b'{"type":"mode"}'))
        == "L-" + __import__("hashlib").sha256(b'{"type":"mode"}').hexdigest()[:16]
    )
    assert r.uuid_text(r.digest(b"x")[:8]) == r.content_id(r.digest(b"x"))


def test_cases_are_told_apart() -> None:
    """No two of the literal cases are the same input."""
    inputs = sorted(laid(pieces)[0] for pieces in CASES.values())
    assert all(one != other for one, other in pairwise(inputs))


def test_a_line_made_of_structure_is_one_unparsed_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values would take far more memory than its bytes (RULES 25); the line behind it is a record as ever."""
    monkeypatch.setattr(r, "HUGE_LINE", 4_000)
    monkeypatch.setattr(r, "CHUNK", 1_000)
    monkeypatch.setattr(r, "VALUES_LIMIT", 100_000)
    many = b'{"type":"user","d":[' + b",".join([b'{"a":1}'] * 1_000) + b"]}"
    data = many + b'\n{"type":"mode","mode":"plan"}\n'
    spans = r.spans(lambda o, n: data[o : o + n], len(data))
    found = [(s.kind, s.offset, s.length) for s in spans if s.kind != "separator"]
    assert found == [("unparsed", 0, len(many)), ("no_uuid", len(many) + 1, 29)]
