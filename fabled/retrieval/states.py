"""Which session and which of its states an argument names, as people write them: `6513270e@v3`, `6513270e@v1..live`.

What is done with them is left to others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ..errors import Ambiguous, BadRequest, NotFound
from ..store.kept import reading
from ..store.rows import State
from . import unknown
from .common import Params, Reader, one_session, text_of
from .scope import sessions_of

_STATE = re.compile(r"v(\d{1,9})(-raw|-pruned)?|live")


def session_of(reader: Reader, params: Params, key: str = "session") -> tuple[str, str | None]:
    """(the session's whole id, what stands behind the @) of a parameter."""
    given = text_of(params, key)
    if given is None:
        raise BadRequest("the id of a session is missing", "fabled sessions lists them")
    prefix, at, states = given.strip().partition("@")
    if at and not states:
        raise BadRequest(f"{given} ends with @ and names no state", f"fabled generations {prefix}")
    return one_session(reader, prefix)[1], states or None


def resolved(reader: Reader, method: str, params: Params) -> dict[str, Any]:
    """The parameters of a verb with its session's whole id in them, and for `restore` `@` and its generation."""
    if method == "capture":
        names = dict.fromkeys(one_session(reader, name)[1] for name in params.get("sessions") or ())
        return {"sessions": list(names)} if names else {}
    if method == "forget":
        return _to_forget(reader, params)
    session_id, behind = session_of(reader, params)
    if behind is None:
        return {**params, "session": session_id}
    if method != "restore":
        raise BadRequest(f"{method} takes a session without a state", f"leave out @{behind}")
    if params.get("full"):
        raise BadRequest("--full takes every generation: give it, or @vN, but not both")
    if ".." in behind or behind == "live":
        raise BadRequest(f"@{behind} is no state to restore", f"give one, as @v0; fabled generations {session_id[:8]}")
    return {**params, "session": f"{session_id}@{one_state(reader, session_id, behind).name}"}


def _to_forget(reader: Reader, params: Params) -> dict[str, Any]:
    """The sessions that are meant: one, or all of a project, which then is named as exclusions name it."""
    name, project = text_of(params, "session"), text_of(params, "project")
    if params.get("let_in"):
        return {"let_in": params["let_in"]}
    if (name is None) == (project is None):
        raise BadRequest("name one session, or one project", "fabled forget SESSION, or fabled forget --project P")
    apply = {"apply": bool(params.get("apply"))}
    if name is not None:
        return {"sessions": [one_session(reader, name)[1]], **apply}
    assert project is not None
    numbers = sessions_of(reader.queries, project)
    known = {row["session_id"]: row for row in reader.queries.session_list(numbers, None, None)}
    if not known:
        near = unknown.project(reader.queries, project)["near"]
        also = f"; near: {', '.join(near)}" if near else ""
        raise NotFound(f"no project {project}{also}", "fabled projects lists them")
    names = {str(row["project"] or row["folder"]) for row in known.values()}
    if len(names) > 1:
        raise Ambiguous(f"{project} means several projects: {', '.join(sorted(names))}", tuple(sorted(names)))
    return {"sessions": sorted(known), "project": names.pop(), **apply}


def forgotten(reader: Reader, params: Params) -> dict[str, Any]:
    """What a person had forgotten, and what stays out since."""
    with reading(reader.ledger) as ledger:
        rows = ledger.forgotten()
    return {
        "forgotten": [
            {"kind": one.kind, "name": one.name, "at": one.at, "done": one.state == "done", **json.loads(one.detail)}
            for one in rows
            if one.kind != "file"
        ]
    }


def one_state(reader: Reader, session_id: str, name: str) -> State:
    """The state of a session that `v3`, `v3-raw` or `live` names."""
    match = _STATE.fullmatch(name)
    if match is None:
        raise BadRequest(
            f"@{name} names no state; one is called v0, v1, … or live", f"fabled generations {session_id[:8]}"
        )
    states = reader.queries.states(session_id)
    if match[1] is None:
        found = [state for state in states if state.generation is None]
        if not found:
            raise NotFound(f"session {session_id} has no live transcript", f"fabled generations {session_id[:8]}")
        return found[-1]  # of several, the one written last
    found = [state for state in states if state.generation is not None and state.rank == int(match[1])]
    if match[2]:
        found = [state for state in found if state.name.endswith(match[2])]
    if len(found) > 1:
        # The session lies, or lay, in several project folders: the one where it lives now, else where it was last.
        folder = next((state.folder for state in reversed(states) if state.generation is None), None)
        found = [state for state in found if state.folder == folder] or found
        found = [max(found, key=lambda state: state.mtime_ns)]
    if not found:
        raise _unknown(reader, session_id, int(match[1]), name, states)
    return found[0]


def _unknown(reader: Reader, session_id: str, number: int, name: str, states: list[State]) -> NotFound:
    with reading(reader.ledger) as ledger:
        gone = [
            kept for kept in ledger.kept(session_id)
            if kept.part == "" and kept.number == number and kept.retired_at is not None
        ]  # fmt: skip
    if gone:
        holder = re.search(r"/(v\d+-\w+)\.jsonl[^/]*\Z", gone[0].holder or "")
        where = holder[1] if holder else "a newer one"
        return NotFound(f"{name} was retired: {where} begins with all its bytes", f"use {where}")
    there = [state.name for state in states if state.generation is not None]
    have = f"it has {', '.join(there)}" if there else "it has none yet"
    return NotFound(f"session {session_id} has no generation {name}; {have}", f"fabled generations {session_id[:8]}")


def generations(reader: Reader, params: Params) -> dict[str, Any]:
    """What the Vault keeps, of one session (with how whole each state is) or of all."""
    session_id: str | None = None
    if params.get("session") is not None:
        session_id, behind = session_of(reader, params)
        if behind is not None:
            raise BadRequest("generations takes a session without a state", f"leave out @{behind}")
    with reading(reader.ledger) as ledger:
        kept = {one.path: one for one in ledger.kept(session_id)}
    queries = reader.queries
    with queries.snapshot():
        states = queries.states(session_id)
        projects = queries.project_of(session_id)
        whole = {state.file: queries.fidelity(state.file) for state in states} if session_id is not None else {}
    rows: list[dict[str, Any]] = []
    for state in states:
        if state.generation is None:
            continue
        one = kept.pop(state.path, None)
        rows.append(
            {
                "session_id": state.session_id, "project": projects.get(state.session_id), "part": "",
                "generation": state.generation, "number": state.rank, "kind": state.generation.rpartition("-")[2],
                "path": state.path, "logical_bytes": one.logical if one is not None else state.bytes,
                "bytes": state.size, "sha256": one.sha256.hex() if one is not None else None,
                "at": one.at if one is not None else state.mtime_ns // 10**9,
                "reason": one.reason if one is not None else None, "retired": False,
                **_whole(whole.get(state.file)),
            }
        )  # fmt: skip
    for one in kept.values():  # subagents, other files of the session, and what was retired
        rows.append(
            {
                "session_id": one.session_id, "project": projects.get(one.session_id), "part": one.part,
                "generation": f"v{one.number}-{one.kind}", "number": one.number, "kind": one.kind, "path": one.path,
                "logical_bytes": one.logical, "bytes": one.packed, "sha256": one.sha256.hex(), "at": one.at,
                "reason": one.reason, "retired": one.retired_at is not None,
                **({"holder": one.holder} if one.holder else {}),
                **({} if one.retired_at is not None or os.path.exists(one.path) else {"missing": True}),
            }
        )  # fmt: skip
    rows.sort(key=lambda row: (row["session_id"], row["part"], row["number"]))
    live = [
        {
            "session_id": state.session_id, "project": projects.get(state.session_id), "path": state.path,
            "bytes": state.size, "at": state.mtime_ns // 10**9, **_whole(whole.get(state.file)),
        }
        for state in states if state.generation is None and session_id is not None
    ]  # fmt: skip
    return {"session_id": session_id, "generations": rows, "live": live}


def _whole(counted: tuple[int, int, int] | None) -> Mapping[str, int]:
    """How much of a state is there in full; counted only where one session is asked about."""
    return {} if counted is None else dict(zip(("records", "full", "only"), counted, strict=True))
