"""Carries out what was asked for by name: the same for a daemon's writer and for a process without one.

What each verb does is its own; how the answer looks is left to `present`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..capture import forget
from ..errors import BadRequest
from . import back, selfcheck
from .verb import Pruner, session_of

METHODS = ("capture", "prune", "prune_check", "restore", "undo", "forget")

Told = Callable[[int, int], None]
"""How far it is: sessions done, sessions in all."""


def perform(
    pruner: Pruner, method: str, params: Mapping[str, Any], told: Told = lambda done, total: None
) -> dict[str, Any]:
    """The answer to one request; sessions are named by their whole ids. Raises the errors of `errors`."""
    apply = bool(params.get("apply"))
    match method:
        case "capture":
            return capture(pruner, params.get("sessions"), told)
        case "prune":
            return pruner.prune(_session(params), params.get("level") or "gentle", apply)
        case "prune_check":
            return selfcheck.run(pruner, _session(params))
        case "restore":
            session_id, _, generation = _session(params).partition("@")
            return back.restore(
                pruner, session_id, generation or None, bool(params.get("full")), params.get("to"), apply
            )
        case "undo":
            return back.undo(pruner, _session(params), apply)
        case "forget":
            if params.get("let_in"):
                return forget.let_in(pruner.capturer, str(params["let_in"]))
            return forget.forget(pruner.capturer, params.get("sessions") or (), params.get("project"), apply)
    raise BadRequest(f"there is nothing called {method[:80]!r}", f"known are {', '.join(METHODS)}")


def _session(params: Mapping[str, Any]) -> str:
    session_id = params.get("session")
    if not isinstance(session_id, str) or not session_id:
        raise BadRequest("no session was named", "fabled sessions lists them")
    return session_id


def capture(pruner: Pruner, sessions: object, told: Told) -> dict[str, Any]:
    """Generations of the sessions named, or of all that have a live transcript, now."""
    begun = time.monotonic()
    if isinstance(sessions, list | tuple):
        wanted = [str(one) for one in sessions]
    else:
        wanted = sorted({session_of(path) for path in pruner.map.live_transcripts()})
    found = []
    for number, session_id in enumerate(wanted):
        told(number, len(wanted))
        value = pruner.capturer.capture(session_id, "asked for")
        found.append(value)
        if not value["failed"]:
            for path in pruner.map.live_transcripts():
                if session_of(path) == session_id:
                    pruner.ledger.accept(path)
    made = [one for value in found for one in value["generations"]]
    return {
        "sessions": found,
        "captured": len(made),
        "unchanged": sum(value["unchanged"] for value in found),
        "bytes": sum(one["bytes"] for one in made),
        "logical_bytes": sum(one["logical_bytes"] for one in made),
        "failed": [one for value in found for one in value["failed"]],
        "seconds": round(time.monotonic() - begun, 3),
    }
