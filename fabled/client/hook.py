"""What Claude Code runs at its events and for its status line: an answer in time, or none.

What the answer says is left to the daemon, which is given the client's JSON as it came.

The client waits for a hook before it goes on, a late answer is worth nothing, and exit status 2 would stop the
person's work. So a clock runs from the first line on, and whatever happens (no daemon, one that is stuck, a stdin
that never ends) the process ends with status 0 when it strikes, having printed all of its answer or nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` brings in enum
import os
import sys
import time

from fabled.client import connect

CARD_JOB = "FABLED_CARD_JOB"
"""Set for a client that `fabled cards run` starts."""
DEADLINE_SECONDS = 0.25
"""From the start of the process on; of the 300 ms that a hook may take, the rest is its end."""
LEAST_SECONDS = 0.02
LONGEST_REQUEST = 1 << 20
LONGEST_ANSWER, LONGEST_LINE = 40_000, 400
"""Bytes. The daemon keeps below the 10,000 characters at which the client cuts; what is longer is no answer of it."""

_ANSWERED = ("session-start", "user-prompt-submit")
_NUDGES = ("pre-compact", "session-end", "stop")


def run(event: str) -> int:
    """One event. Always 0."""
    if os.environ.get(CARD_JOB):
        return 0  # the client makes a card for us: nothing is recalled to it, and nothing of it is looked at
    _set_clock()
    try:
        if event in _ANSWERED:
            _answer(f'"hook","params":{{"event":"{event}",', LONGEST_ANSWER)
        elif event in _NUDGES:
            request = f'{{"jsonrpc":"2.0","method":"nudge","params":{{"event":"{event}","input":"'.encode()
            connect.tell(connect.socket_path(os.environ), _bounded(request + _input() + b'"}}\n'))
    except (connect.Down, connect.Silent, OSError, ValueError):
        pass  # without a daemon there is nothing to say, and nobody to tell
    finally:
        _stop_clock()
    return 0


def statusline() -> int:
    """The line that Claude Code shows below its prompt."""
    _set_clock()
    try:
        _answer('"statusline","params":{', LONGEST_LINE)
    except connect.Down:
        _put(b"mem off\n")
    except (connect.Silent, OSError, ValueError):
        pass
    finally:
        _stop_clock()
    return 0


def _set_clock() -> None:
    # A signal reaches every wait: for stdin, for the daemon, for whoever reads stdout.
    _signal.signal(_signal.SIGALRM, lambda number, frame: os._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, max(LEAST_SECONDS, DEADLINE_SECONDS - _age()))


def _stop_clock() -> None:
    """The interpreter takes our handler away before it ends: struck then, the clock would kill the process."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def _age() -> float:
    """Seconds since this process began: on a busy machine the interpreter's own start takes its share. Where the
    system does not say, what it takes at rest."""
    try:
        with open("/proc/self/stat", "rb") as file:
            began = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return min(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began), DEADLINE_SECONDS)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.03


def _answer(method: str, longest: int) -> None:
    wishes = f'"as":{{"form":"text","color":false,"width":200,"utf8":{str(connect.utf8(os.environ)).lower()}}}'
    request = f'{{"jsonrpc":"2.0","id":1,"method":{method}{wishes},"input":"'.encode() + _input() + b'"}}\n'
    reply = connect.ask(connect.socket_path(os.environ), _bounded(request), DEADLINE_SECONDS)
    if reply.exit == 0 and len(reply.body) <= longest:
        # From here on the answer is whole, and printing it takes no time worth guarding.
        _put(reply.body)


def _bounded(request: bytes) -> bytes:
    if len(request) > LONGEST_REQUEST:
        raise ValueError("the daemon takes no line of that length")
    return request


def _input() -> bytes:
    """Stdin, which is one JSON object, as the inside of a JSON string; the daemon makes sense of it."""
    data = b""
    if sys.stdin is not None and not os.isatty(0):
        while len(data) <= LONGEST_REQUEST and (more := os.read(0, 1 << 16)):
            data += more
    # Between the tokens of JSON a newline is a blank; inside of its strings there is none.
    for byte in (b"\n", b"\r", b"\t"):
        data = data.replace(byte, b" ")
    return data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _put(data: bytes) -> None:
    _stop_clock()
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass  # nobody reads it
