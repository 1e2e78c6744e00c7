"""One record, or one value of it: its bytes exactly as written, and where each copy of it lies.

How they are printed is left to others; nothing is masked here, a block is verbatim by definition.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ..errors import BadRequest, FabledError, NotFound, StaleIndexError, Unreadable
from ..store.reading import Reading
from ..store.rows import Copy, Record
from ..transcript import splice
from ..transcript.record import content_id, uuid_text
from .common import Params, Reader, find_record, iso, text_of


def block_bytes(reader: Reader, params: Params) -> bytes:
    """Exactly the bytes of a record, or of the value of it that `#PATH` names.

    Raises StaleIndexError or Unreadable where no copy reads.
    """
    record, copies, path = _found(reader, params)
    with Reading(reader.vault) as reading:
        if path is None:
            return reading.data(copies)[1]
        return _part(record, copies, path, reading)[2]


def block(reader: Reader, params: Params) -> dict[str, Any]:
    """What a record is and where every copy of it lies, the one that is read from first."""
    record, copies, path = _found(reader, params)
    part: dict[str, Any] = {}
    with Reading(reader.vault) as reading:
        if path is not None:
            copy, offset, data = _part(record, copies, path, reading)
            # The copy that holds the value stands before those that hold a stub of it.
            copies = [copy, *(other for other in copies if other is not copy)]
            part = {
                "path": path, "offset": offset, "length": len(data), "sha256": sha256(data).hexdigest(),
            }  # fmt: skip
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
        **({"part": part} if part else {}),
        **({"stale": sorted(reading.stale)} if reading.stale else {}),
    }


def _found(reader: Reader, params: Params) -> tuple[Record, list[Copy], str | None]:
    """The record asked for, its copies, those with the content asked for first, and the path of a value in it."""
    given = text_of(params, "id")
    if given is None:
        raise BadRequest("block needs the id of a record", "fabled search prints ids")
    name, mark, path = given.strip().partition("#")
    if mark and not path:
        raise BadRequest(f"{given} names no value behind the #", "as in UUID#message.content.0")
    record, content = find_record(reader, name)
    copies = reader.queries.copies(record.id)
    if content is not None:
        # Asked for by its content, other bytes are no answer, be they of the same record.
        copies = [copy for copy in copies if copy.digest[: len(content)] == content]
    return record, copies, path or None


def _part(record: Record, copies: list[Copy], path: str, reading: Reading) -> tuple[Copy, int, bytes]:
    """(copy, offset in it, bytes) of the value at a path, from the first copy that holds it and no stub of it.

    Raises NotFound where only stubs are left or no copy has such a value, StaleIndexError or Unreadable where none
    reads.
    """
    steps = tuple(int(step) if step.isdecimal() and len(step) < 10 else step for step in path.split("."))
    stub = f"[fabled block {uuid_text(record.uuid)}#{path} ".encode()
    tried: set[bytes] = set()
    stubbed = False
    fault: FabledError = NotFound(f"no copy of {uuid_text(record.uuid)} is known", "fabled index")
    for copy in copies:
        if copy.digest in tried:
            continue
        try:
            found, data = reading.data([copy])
        except (StaleIndexError, Unreadable) as unread:
            fault = unread
            continue
        tried.add(copy.digest)
        span = splice.find(data, steps)
        if span is None:
            continue
        value = data[span[0] : span[1]]
        if stub not in value:
            return found, span[0], value
        stubbed = True
    if not tried:
        raise fault
    id_ = uuid_text(record.uuid)
    if stubbed:
        raise NotFound(f"of {id_}#{path} only the stub is left; no copy that reads holds it in full", "fabled index")
    raise NotFound(f"record {id_} has no value at {path}", f"fabled block {id_} shows the whole record")


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
