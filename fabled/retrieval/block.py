"""One record: its bytes exactly as written, and where each copy of it lies.

How they are printed is left to others; nothing is masked here, a block is verbatim by definition.
"""

from __future__ import annotations

from typing import Any

from ..errors import BadRequest
from ..store.reading import Reading
from ..store.rows import Copy, Record
from ..transcript.record import content_id, uuid_text
from .common import Params, Reader, find_record, iso, text_of


def block_bytes(reader: Reader, params: Params) -> bytes:
    """Exactly the bytes of a record. Raises StaleIndexError or Unreadable where no copy reads."""
    _, copies = _found(reader, params)
    with Reading(reader.vault) as reading:
        return reading.data(copies)[1]


def block(reader: Reader, params: Params) -> dict[str, Any]:
    """What a record is and where every copy of it lies, the one that is read from first."""
    record, copies = _found(reader, params)
    with Reading(reader.vault) as reading:
        sums: dict[bytes, str] = {}
        readable: list[bool] = []
        faults: list[str] = []
        for copy in copies:
            try:
                checksum = reading.checksum(copy)
            except OSError as fault:
                faults.append(f"{copy.path}: {fault.strerror or fault}")
                checksum = None
            readable.append(checksum is not None)
            if checksum is not None:
                sums[copy.digest] = checksum
        if not any(readable):
            raise reading.fault(copies, faults)
    best = readable.index(True)
    listed = [
        _copy(copy, copies[best], sums, here, number == best)
        for number, (copy, here) in enumerate(zip(copies, readable, strict=True))
    ]
    listed.insert(0, listed.pop(best))
    return {
        "id": content_id(copies[best].digest) if len(record.uuid) != 16 else uuid_text(record.uuid),
        "uuid": uuid_text(record.uuid),
        "session_id": record.session_id,
        "project": record.project,
        "type": record.type,
        "ts": iso(record.ts),
        "also_in": reader.queries.also_in([record.id])[record.id],
        "copies": listed,
        **({"stale": sorted(reading.stale)} if reading.stale else {}),
    }


def _found(reader: Reader, params: Params) -> tuple[Record, list[Copy]]:
    """The record asked for and its copies, those with the content asked for first."""
    given = text_of(params, "id")
    if given is None:
        raise BadRequest("block needs the id of a record", "fabled search prints ids")
    record, content = find_record(reader, given)
    copies = reader.queries.copies(record.id)
    if content is not None:
        # Asked for by its content, other bytes are no answer, be they of the same record.
        copies = [copy for copy in copies if copy.digest[: len(content)] == content]
    return record, copies


def _copy(copy: Copy, best: Copy, sums: dict[bytes, str], readable: bool, is_best: bool) -> dict[str, Any]:
    return {
        "path": copy.path,
        "generation": copy.generation,
        "line": copy.line,
        "offset": copy.offset,
        "length": copy.length,
        "sha256": sums.get(copy.digest, copy.digest.hex()),
        "content_id": content_id(copy.digest),
        "fidelity": "reduced" if copy.length < best.length and copy.digest != best.digest else "full",
        "best": is_best,
        "readable": readable,
    }
