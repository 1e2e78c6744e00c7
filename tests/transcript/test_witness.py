"""The short way of comparing a line that lost its `toolUseResult` says yes only where the long way does."""

from __future__ import annotations

import pytest

from fabled.transcript.record import strict_loads
from fabled.transcript.witness import muted

HEAD = b'{"parentUuid":"p","type":"user","uuid":"u","n":1.50'
RESULT = b',"toolUseResult":{"file":{"content":"toolUseResult"}}'
TAIL = b',"timestamp":"t"}\n'


def lost(line: bytes, after: bytes) -> bool:
    return muted((line, strict_loads(line)), (after, strict_loads(after)))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (HEAD + RESULT + TAIL, HEAD + TAIL),
        (HEAD + RESULT + b"}\n", HEAD + b"}\n"),
        (b'{"toolUseResult":"x",' + HEAD[1:] + b"}\n", HEAD + b"}\n"),
        (HEAD + b',"toolUseResult":[1,2]' + b',"too":1}\n', HEAD + b',"too":1}\n'),
        (HEAD + RESULT + TAIL[:-1] + b"\r\n", HEAD + TAIL[:-1] + b"\r\n"),
    ],
)
def test_a_line_that_lost_just_that(line: bytes, after: bytes) -> None:
    assert lost(line, after)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (HEAD + RESULT + TAIL, HEAD + RESULT + TAIL),
        (HEAD + RESULT + TAIL, HEAD.replace(b"1.50", b"1.5") + TAIL),
        (HEAD + RESULT + TAIL, HEAD.replace(b'"u"', b'"v"') + TAIL),
        (HEAD + RESULT + TAIL, HEAD + b"}\n"),
        (HEAD + b',"toolUseResult":{"agentId":"a"}' + TAIL, HEAD + TAIL),
        (HEAD + b',"toolUseResult":{"task":{"taskId":"a"}}' + TAIL, HEAD + TAIL),
        (HEAD + RESULT + RESULT + TAIL, HEAD + RESULT + TAIL),
        (HEAD + b',"m":{"toolUseResult":1}' + TAIL, HEAD + b',"m":{}' + TAIL),
        (HEAD + RESULT + b',"uuid":"w"' + TAIL, HEAD + TAIL),
        (HEAD + RESULT + TAIL, HEAD + TAIL[:-1]),
        (HEAD + b',"other":1' + TAIL, HEAD + TAIL),
    ],
)
def test_anything_else_is_looked_at_closely(line: bytes, after: bytes) -> None:
    assert not lost(line, after)
