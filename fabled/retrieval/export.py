"""Says where every record of a thread lies, so that a client can copy it byte for byte.

Reading the spans is the client's: a thread may be larger than any reply.
"""

from __future__ import annotations

from typing import Any

from ..errors import BadRequest, NotFound
from ..store.figures import Figures
from ..transcript.record import uuid_text
from .common import Params, Reader, find_thread, is_side, iso, number_of, text_of, thread_id
from .titles import title_of, titles


def threads_like(reader: Reader, params: Params) -> dict[str, Any]:
    """The latest threads whose ids begin so."""
    prefix = text_of(params, "prefix") or ""
    limit = number_of(params, "limit", 60, 1, 1_000)
    found = Figures(reader.queries).latest(prefix, limit)
    names = titles(reader, found)
    return {"threads": [{"thread": thread_id(one), "title": names[one.id]} for one in found]}


def exported(reader: Reader, params: Params) -> dict[str, Any]:
    """The records of one thread in order, each with its copies, the best first."""
    given = text_of(params, "id")
    if given is None:
        raise BadRequest("export needs the id of a thread", "fabled search prints ids")
    with reader.queries.snapshot():
        found = find_thread(reader, given)
        numbers = Figures(reader.queries).records_of(found) or reader.queries.loose(found.session)
        copies = reader.queries.copies_of(numbers)
        known = reader.queries.records(numbers)
    if not numbers:
        raise NotFound(f"thread {given} holds no record", "fabled search prints ids")
    return {
        "thread": thread_id(found),
        "session_id": found.session_id,
        "project": found.project,
        "title": title_of(reader, found),
        "first_ts": iso(found.first_ts),
        "last_ts": iso(found.last_ts),
        "records": [
            {
                "uuid": uuid_text(known[number].uuid),
                "subagent": is_side(known[number].flags, known[number].agent),
                "copies": [
                    {"path": copy.path, "offset": copy.offset, "length": copy.length, "digest": copy.digest.hex()}
                    for copy in copies[number]
                ],
            }
            for number in numbers
        ],
    }
