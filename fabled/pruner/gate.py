"""The gate: proves that every byte a prune takes away is held by an immutable, indexed generation (I14).

What is taken away is decided by `transcript.rules`; making the generation is left to `capture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ..store.ledger import Kept
from ..store.map import Map
from ..store.vault import Vault
from ..transcript import splice
from ..transcript.record import DIGEST_BYTES, Read, uuid_bytes
from ..transcript.rules import Change

SHOWN = 3


def misses(map_: Map, vault: Vault, kept: Kept, changes: Sequence[Change], original: Read) -> list[str]:
    """What of the changed lines the generation does not prove to hold; empty where all is well.

    Each line is read from the transcript and again from the generation, and the Map must have the record there: then
    `block` finds it after the prune. `original(offset, length)`: the bytes in the live transcript.
    """
    row = map_.db.execute("SELECT id FROM files WHERE path=? AND complete=1", (kept.path,)).fetchone()
    if row is None:
        return [f"{kept.path} is not in the Map"]
    found: list[str] = []
    try:
        source = vault.open(kept.path)
    except OSError as fault:
        return [f"{kept.path} cannot be read: {fault.strerror or fault}"]
    try:
        for change in changes:
            line = original(change.offset, change.length)
            if source.read(change.offset, change.length) != line:
                found.append(f"byte {change.offset}: the generation holds other bytes")
                continue
            copy = map_.db.execute(
                "SELECT length,digest FROM copies WHERE file=? AND offset=?", (row[0], change.offset)
            ).fetchone()
            if copy is None or sha256(line[: copy[0]]).digest()[:DIGEST_BYTES] != copy[1]:
                found.append(f"byte {change.offset}: the Map does not know the record in the generation")
            if len(found) >= SHOWN:
                break
    except (OSError, EOFError) as fault:
        found.append(f"{kept.path} cannot be read: {fault}")
    finally:
        source.close()
    return found


class Markers:
    """Tells our own markers from quoted ones: ours name a block that a generation of the session holds."""

    def __init__(self, map_: Map, vault: Vault, session_id: str) -> None:
        self._map = map_
        self._vault = vault
        self._session = session_id
        self._known: dict[tuple[str, str], bytes | None] = {}

    def __call__(self, uuid: str, path: str, size: int, check: str) -> bool:
        block = self.block(uuid, path)
        return block is not None and len(block) == size and sha256(block).hexdigest().startswith(check)

    def block(self, uuid: str, path: str) -> bytes | None:
        """The JSON text of a block as the record's longest immutable copy has it; None where there is none."""
        key = (uuid, path)
        if key not in self._known:
            self._known[key] = self._read(uuid, path)
            while len(self._known) > 64:
                self._known.pop(next(iter(self._known)))
        return self._known[key]

    def _read(self, uuid: str, path: str) -> bytes | None:
        raw = uuid_bytes(uuid)
        if raw is None:
            return None
        steps = tuple(int(step) if step.isascii() and step.isdigit() else step for step in path.split("."))
        for file, offset, length, check in self._map.kept_spans(raw, self._session):
            try:
                data = self._vault.read(file, offset, length)
            except (OSError, EOFError):
                continue
            if sha256(data).digest()[:DIGEST_BYTES] != check:
                continue
            span = splice.find(data, steps)
            return data[span[0] : span[1]] if span is not None else None
        return None
