"""Gets an answer: from the daemon where one runs, else from the Map, read in this process.

What the answer says is `answers`' business, how it looks `present`'s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from fabled.cli import edge
from fabled.client import absent, connect
from fabled.errors import Ambiguous, FabledError, NotAnswering, NotFound

# A search over a large history with a cold disk takes its time; a daemon that takes longer than this hangs.
ANSWER_SECONDS = 60.0
# One that is well answers this at once, whatever else it does.
PING_SECONDS = 5.0
PING = b'{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}\n'

Params = Mapping[str, Any]


def show(method: str, params: Params, *, form: str, utc: bool = False) -> int:
    """Print the answer in `form` (text, plain or json) and return the exit status."""
    try:
        if form != "plain":
            return show_running(method, params, form=form, utc=utc)
        value = fetch_running(method, params, ANSWER_SECONDS)
    except connect.Down:
        value = _without_daemon(method, params)
    put(method, value, form, utc)
    return exit_of(method, value)


def show_running(
    method: str, params: Params, *, form: str, utc: bool = False, seconds: float | None = ANSWER_SECONDS
) -> int:
    """Print the daemon's answer as it comes; raises connect.Down where none runs."""
    reply = _request(method, params, form, utc, seconds)
    if form == "json":
        edge.put_json_text(reply.body.decode("utf-8", "backslashreplace"))
    else:
        (edge.show if form == "text" else edge.put)(reply.body)
    return reply.exit or 0


def fetch(
    method: str, params: Params, seconds: float | None = ANSWER_SECONDS, *, quiet: bool = False
) -> dict[str, Any]:
    """The answer as a value, from wherever it can be had; `quiet`: without a word of where that was."""
    try:
        return fetch_running(method, params, seconds)
    except connect.Down:
        return _without_daemon(method, params, quiet)


def fetch_running(method: str, params: Params, seconds: float | None) -> dict[str, Any]:
    """The daemon's answer as a value; raises connect.Down where none runs."""
    body = _request(method, params, "json", False, seconds).body
    try:
        value = json.loads(body)
    except ValueError:
        raise NotAnswering("the daemon sent something that is no answer", "stop it and start this version") from None
    return value if isinstance(value, dict) else {}


def put(method: str, value: Mapping[str, Any], form: str, utc: bool) -> None:
    """Print an answer that is already here."""
    if form == "json":
        edge.put_json(value)
        return
    from fabled import present

    if form == "plain":
        note_asides(value)
    text = present.text(method, value, edge.style(form, utc))
    (edge.show if form == "text" else edge.put)(text.encode("utf-8", "backslashreplace"))


def note_asides(value: Mapping[str, Any]) -> None:
    """What a person should know of an answer whose form is for programs."""
    from fabled.present import asides

    for line in (*asides.unknown(value, edge.style()), *asides.indexing(value, edge.style())):
        edge.note(line)


def exit_of(method: str, value: Mapping[str, Any]) -> int:
    """1 where nothing was found, 0 otherwise; faults have their own way out."""
    from fabled.present import found

    return 0 if found(method, value) else 1


def _request(method: str, params: Params, form: str, utc: bool, seconds: float | None) -> connect.Reply:
    _sound(params)
    wishes = json.loads(connect.wishes(os.environ, form, utc))
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "as": wishes}}
    try:
        path = connect.socket_path(os.environ)
        if seconds is None or seconds > PING_SECONDS:
            connect.ask(path, PING, PING_SECONDS)
        reply = connect.ask(path, json.dumps(request).encode() + b"\n", seconds)
    except connect.Silent as trouble:
        hint = "look at its log, then stop and start it"
        raise NotAnswering(f"the daemon does not answer: {trouble}", hint) from None
    if reply.refused:
        raise _told(reply.head)
    return reply


def _sound(params: Params) -> None:
    """Raises BadRequest for bytes of an argument that are no text: they could neither be sent nor be found."""
    for value in params.values():
        for word in value if isinstance(value, list | tuple) else (value,):
            if isinstance(word, str):
                edge.text_of(word)


def _told(head: bytes) -> FabledError:
    """The daemon's error as the exception it was there, with its own code and exit status."""
    try:
        error = json.loads(head)["error"]
        data = error.get("data") or {}
        candidates = tuple(str(one) for one in data.get("candidates") or ())
        message, hint = str(error["message"]), str(data.get("hint") or "")
        fault = Ambiguous(message, candidates, hint) if candidates else FabledError(message, hint)
        if data.get("code") == NotFound.code:
            fault = NotFound(message, hint)
            fault.indexing = data.get("indexing")
        fault.code = str(data.get("code") or "failed")
        fault.exit = int(data.get("exit") or 1)
    except (ValueError, KeyError, TypeError, AttributeError):
        return NotAnswering("the daemon sent something that is no answer", "stop it and start this version")
    return fault


def _without_daemon(method: str, params: Params, quiet: bool = False) -> dict[str, Any]:
    from fabled import answers, config
    from fabled.cli.here import reading, written_to

    _sound(params)
    settings = config.load(os.environ)
    with reading(settings) as reader:
        unfinished = answers.unfinished(reader)
        if unfinished and written_to(settings):
            unfinished["indexing"]["under_way"] = True
        try:
            value = answers.answer(reader, method, dict(params)) | unfinished
        except NotFound as fault:
            from fabled import present

            if unfinished:
                told = fault.indexing = unfinished["indexing"]
                fault.hint = present.not_yet(told, fault.hint)
            raise
    if quiet:
        return value
    start = absent.start_line(os.environ)
    edge.note(f"fabled is not running: answered from the Map as it was last written (start it: {start})")
    return value
