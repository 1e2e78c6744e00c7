"""Proves the last prune of a session once more, from the Vault and the live transcript (`fabled prune --check`).

The same invariants as before the replacement, on what lies there now; mending is left to `undo` and `restore`.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

from ..errors import NotFound
from ..store import replace
from ..store.ledger import Entry
from ..transcript import rules
from ..transcript.record import Read, strict_loads
from . import compose
from .gate import Markers
from .verb import Pruner

MARKERS = 200
_MARKER = re.compile(rb"\[fabled block ([0-9a-f-]{36})#([A-Za-z0-9_.]{1,200}) (\d{1,12})B sha256:([0-9a-f]{12})\]")


def run(pruner: Pruner, session_id: str) -> dict[str, Any]:
    """The checks of PRUNING section 8, a to e. Raises NotFound where the session was never pruned."""
    journal = [one for one in pruner.ledger.journal(session_id) if one.state in ("replaced", "done")]
    prunes = [one for one in journal if one.what == "prune"]
    if not prunes:
        raise NotFound(f"session {session_id} was never pruned", f"fabled prune {session_id}")
    entry = prunes[-1]
    live = pruner.live(session_id)
    checks: list[dict[str, Any]] = []

    def say(name: str, faults: list[str], tested: int, fine: str) -> None:
        checks.append(
            {
                "id": name, "ok": not faults, "tested": tested, "failed": len(faults),
                "message": "; ".join(faults[:3]) or fine,
            }
        )  # fmt: skip

    generations = [one for one in pruner.ledger.kept(session_id) if one.retired_at is None]
    say("generations", _generations(pruner, session_id), len(generations), "every generation holds what it held")
    with ExitStack() as stack:
        kept = stack.enter_context(pruner.source(pruner.capturer.standing(entry.generation or "")))
        now = stack.enter_context(pruner.source(live))
        length, check = entry.made
        taken_back = journal[-1].id != entry.id
        untouched = not taken_back and now.size >= length and now.sha256(0, length) == check
        say(
            "base",
            [] if kept.sha256(0, entry.base_length) == entry.base_sha else ["the generation is not what was pruned"],
            1,
            "the generation holds what was pruned",
        )
        if untouched:
            results = _proven(pruner, session_id, entry, kept.read, now.read)
            checks += results
        elif taken_back:
            say("result", [], 1, "it was taken back since")
        elif os.stat(live).st_ino != entry.new_ino:
            # Whether that lost anything is another rule's to say (`rewritten`); of the prune there is nothing to prove.
            say("result", [], 1, "another program put a new file in the place of its result since")
        else:
            say("result", [f"the result was changed in its place; fabled restore {session_id} puts it back"], 1, "")
        before = set(_named(compose.lines(kept.read, entry.base_length)))
        made = [one for one in _named(compose.lines(now.read, now.size)) if one not in before]
        faults, tested = _markers(pruner, session_id, made)
        say("markers", faults, tested, "every marker names a block the Vault holds")
    left = [
        path for path in replace.leftover_files([os.path.dirname(live)]) if not any(p == live for p, _ in pruner.drains)
    ]
    say("leftovers", [f"{path} was left behind" for path in left], 1, "nothing was left behind")
    failed = [f"{one['id']}: {one['message']}" for one in checks if not one["ok"]]
    pruner.ledger.checked(session_id, not failed, "; ".join(failed)[:500])
    return {"session_id": session_id, "checks": checks}


def uuid_of(line: bytes) -> str | None:
    try:
        record = strict_loads(line)
    except ValueError:
        return None
    uuid = record.get("uuid") if isinstance(record, dict) else None
    return uuid if isinstance(uuid, str) else None


def _generations(pruner: Pruner, session_id: str) -> list[str]:
    faults = []
    for one in pruner.ledger.kept(session_id):
        if one.retired_at is not None:
            continue
        try:
            source = pruner.vault.open(one.path)
        except OSError as fault:
            faults.append(f"{one.path}: {fault.strerror or fault}")
            continue
        try:
            if source.size != one.logical or source.sha256(0, source.size) != one.sha256:
                faults.append(f"{one.path} does not hold what was captured")
        except OSError as fault:
            faults.append(f"{one.path}: {fault}")
        finally:
            source.close()
    return faults


def _proven(pruner: Pruner, session_id: str, entry: Entry, kept: Read, now: Read) -> list[dict[str, Any]]:
    """The invariants on the generation and what became of it, by the same plan as then."""
    report = json.loads(entry.report or "{}")
    chars, lower_usage = report["limits"]
    limits = rules.Limits(chars, lower_usage)
    ours = Markers(pruner.map, pruner.vault, session_id)
    length, check = entry.made

    def before() -> Iterator[bytes]:
        return compose.lines(kept, entry.base_length)

    plan = rules.plan(rules.survey(before()), entry.level, report["stored"], limits, ours)  # type: ignore[arg-type]
    again = sha256()
    outcome = rules.carry_out(before(), plan, limits, ours, report["lower"], again.update)
    if again.digest() != check:
        # Another version made it. Its bytes are those that were proven then, which is all that can be said today.
        said = "it holds the bytes that were proven when it was made; today's rules would make others"
        return [{"id": "result", "ok": True, "tested": 1, "failed": 0, "message": said}]
    results = pruner.results(before, lambda: compose.lines(now, length), plan, outcome.changes, limits, ours)
    return [
        {"id": one.id, "ok": one.ok, "tested": 1, "failed": int(not one.ok), "message": one.message} for one in results
    ]


def _named(lines: Iterator[bytes]) -> Iterator[tuple[str, str, int, str]]:
    """What the markers of a transcript say that name the record they stand in; others are quoted."""
    for line in lines:
        uuid = uuid_of(line) if b"[fabled block " in line else None
        for match in _MARKER.finditer(line) if uuid else ():
            if match[1].decode() == uuid:
                yield match[1].decode(), match[2].decode(), int(match[3]), match[4].decode()


def _markers(pruner: Pruner, session_id: str, made: list[tuple[str, str, int, str]]) -> tuple[list[str], int]:
    """Some of the markers that the prune made, each looked up and its block's checksum compared. Those that stood there
    before were proved when they were made, or are text: a fork's tell of blocks that another session's Vault has."""
    found = random.sample(made, MARKERS) if len(made) > MARKERS else made
    ours = Markers(pruner.map, pruner.vault, session_id)
    faults = [f"{one[0]}#{one[1]} is not in the Vault" for one in found if not ours(*one)]
    return faults, len(found)
