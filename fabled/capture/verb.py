"""Captures: writes what of a session is not kept yet, indexes it, and retires what the new generations hold.

Which files a session has is told by `units`; putting the Vault in order at a start is left to `start`.

A session's transcript, its subagents with their descriptions, and every other file below its folder are units; each
has its own folder of generations. A unit is captured when neither its stamp nor its bytes are those of a generation it
has. What is new is written, then recorded in the Ledger, then indexed. Older generations of the unit that a newer one
begins with are then retired: proven by reading both, recorded with their holder, removed, and forgotten by the Map.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable
from typing import Any

from ..errors import NotFound, Refused, StorageFault, Unreadable
from ..indexer import Indexer
from ..indexer.scan import YOUNG_NS
from ..store import generations as g
from ..store.files import Stamp, open_regular
from ..store.ledger import Entry, Kept, Ledger
from ..store.map import Map
from ..store.vault import Source, Vault, plain
from ..transcript.record import Read, lines
from .start import FOUND, Adopted, adopt
from .units import Failed, Past, Unit, is_transcript, owner_of, past, plain_name, stem, unit_of, units

DAY = 86_400
NEAR_CLEANUP = 2 * DAY
"""This long before the client may delete a session it is captured, quiet or not,"""
SETTLED = 60
"""unless it was written to so shortly ago."""
YOUNG = -1
"""For the time in a stamp under which the file may still change."""

_MARKER = re.compile(rb"\[fabled block ([0-9a-f]{8}-[0-9a-f-]{27})#")
_OPENING = b"[fabled block "

Step = Callable[[str], None]
"""Called with the name of each act just before it (tests die there)."""


def _no_step(name: str) -> None:
    return None


class Capturer:
    """Owned by the writer."""

    def __init__(
        self, map_: Map, vault: Vault, ledger: Ledger, indexer: Indexer, vault_folder: str, reserve_bytes: int
    ) -> None:
        self.map = map_
        self.vault = vault
        self.ledger = ledger
        self.indexer = indexer
        self.vault_folder = os.path.realpath(vault_folder)
        self.reserve_bytes = reserve_bytes

    # Capturing

    def capture(self, session_id: str, reason: str, step: Step = _no_step) -> dict[str, Any]:
        """Keeps all that is live of a session.

        Raises NotFound; Refused or StorageFault where that prevented all of it, else the files are listed as failed.
        """
        known = past(self.ledger, session_id)
        failed: Failed = []
        found = list(units(self.map, self.vault, session_id, known, failed))
        if not found and not known.highest and self.map.number_of(session_id) is None:
            raise NotFound(f"no session {session_id} is known", "fabled sessions lists them")
        new: list[tuple[Unit, Kept]] = []
        same: list[tuple[Unit, Kept]] = []
        unchanged = 0
        fault: Refused | StorageFault | None = None
        for unit in found:
            try:
                kept, written = self._keep(unit, known, reason, step)
            except (Refused, StorageFault, Unreadable) as refusal:
                failed.append({"path": unit.path, "reason": refusal.message})
                if fault is None and not isinstance(refusal, Unreadable):
                    fault = refusal
                if isinstance(refusal, StorageFault | g.NoRoom):
                    break
            except OSError as trouble:
                failed.append({"path": unit.path, "reason": trouble.strerror or str(trouble)})
            else:
                unchanged += not written
                if kept is not None:
                    (new if written else same).append((unit, kept))
        if fault is not None and not new and not unchanged:
            raise fault
        retired: list[str] = []
        try:
            failed += self._index([kept.path for unit, kept in new if unit.transcript], step)
            retired = self._retire([*same, *new], known, step, failed)
        except StorageFault as trouble:  # what was written is kept all the same
            failed.append({"path": self.vault_folder, "reason": trouble.message})
        return {
            "session_id": session_id,
            "generations": [
                {
                    "path": kept.path,
                    "part": kept.part,
                    "generation": f"v{kept.number}-{kept.kind}",
                    "logical_bytes": kept.logical,
                    "bytes": kept.packed,
                    "reason": reason,
                }
                for _, kept in new
            ],
            "unchanged": unchanged,
            "retired": retired,
            "failed": failed,
        }

    def hold(self, path: str, length: int, reason: str = "prune", step: Step = _no_step) -> Kept:
        """A generation whose first `length` bytes are the live file's: read and compared now, or made now; indexed.

        Raises Refused, StorageFault, Unreadable.
        """
        unit = unit_of(self.vault, path)
        known = past(self.ledger, unit.session)
        began_ns = time.time_ns()
        try:
            source = _opened(unit.path)
        except OSError as fault:
            raise Unreadable(f"{path} cannot be read: {fault.strerror or fault}", "look at its rights") from fault
        try:
            mine = reversed(known.there.get(unit.key(self.vault_folder), ()))
            held = (one for one in mine if one.logical >= length and self._begins(one, source.read, length))
            kept = next(held, None)
            if kept is None:
                stamp = _stamp(source.stamp, began_ns) if length == source.size else None
                check = source.sha256(0, length)
                kept = self._write(unit, known, source, length, check, g.read_meta(unit.meta), stamp, reason, step)
        except OSError as fault:
            raise Unreadable(f"{path} cannot be read: {fault.strerror or fault}", "look at the disk") from fault
        finally:
            source.close()
        if not self.map.stored_whole(kept.path):
            for failure in self._index([kept.path], step):
                raise StorageFault(f"{failure['path']} could not be indexed: {failure['reason']}", "fabled check")
        self._retire([(unit, kept)], known, step, [])
        return kept

    def _begins(self, kept: Kept, read: Read, length: int) -> bool:
        with contextlib.suppress(OSError):  # one that cannot be read is no proof of anything
            source = self.vault.open(kept.path)
            try:
                return source.size == kept.logical and g.begins_alike(source.read, read, length)
            finally:
                source.close()
        return False

    def _keep(self, unit: Unit, known: Past, reason: str, step: Step) -> tuple[Kept | None, bool]:
        """The generation that holds a unit, and whether it was written now; None where a prune of ours left it as it
        is: all it was made from is kept. Raises Refused, StorageFault, OSError."""
        mine = known.there.get(unit.key(self.vault_folder), [])
        meta = g.read_meta(unit.meta)
        began_ns = time.time_ns()
        source = _opened(unit.path)
        try:
            stamp = _stamp(source.stamp, began_ns)
            for kept in mine:
                if stamp[3] != YOUNG and _stamp_of(kept) == stamp and self._described(kept, meta):
                    return kept, False
            check = source.sha256(0, source.size)
            for kept in reversed(mine):
                if (kept.logical, kept.sha256) == (source.size, check) and self._described(kept, meta):
                    self.ledger.seen_again(kept.path, stamp)
                    return kept, False
            if any((one.new_length, one.new_sha) == (source.size, check) for one in filter(_from_kept, known.journal)):
                return None, False
            return self._write(unit, known, source, source.size, check, meta, stamp, reason, step), True
        finally:
            source.close()

    def _write(
        self,
        unit: Unit,
        known: Past,
        source: Source,
        length: int,
        check: bytes,
        meta: bytes | None,
        stamp: tuple[int, int, int, int] | None,
        reason: str,
        step: Step,
    ) -> Kept:
        step("K1")
        folder = unit.key(self.vault_folder)[0]
        written = g.write(
            folder,
            self._kind(unit, known, source, length),
            source.read,
            length,
            suffix=".jsonl" if unit.transcript else "",
            reserve_bytes=self.reserve_bytes,
            expect=check,
            above=known.highest.get(folder, -1),
            meta=meta,
        )
        kept = Kept(
            written.path, unit.folder, unit.session, unit.part, written.number, written.kind, unit.path,
            written.logical, written.packed, written.sha256, int(time.time()), reason, *(stamp or (None,) * 4),
        )  # fmt: skip
        step("K2")
        self.ledger.keep(kept)
        return kept

    def _described(self, kept: Kept, meta: bytes | None) -> bool:
        """Whether a generation has the description that its subagent has now; none now is no change."""
        try:
            return meta is None or g.read_meta(g.meta_of(kept.path)) == meta
        except OSError:
            return False

    def _index(self, paths: list[str], step: Step) -> Failed:
        if not paths:
            return []
        step("K3")
        report = self.indexer.update(paths, count=False)
        return [{"path": path, "reason": why} for path, why in report.failed if path in paths]

    # Raw or pruned

    def _kind(self, unit: Unit, known: Past, source: Source, length: int) -> g.Kind:
        """Whether the bytes hold an edit of ours: as the journal has it; where it says nothing, as the bytes look."""
        if unit.part or not unit.transcript:
            return "raw"
        rows = [entry for entry in known.journal if entry.path == unit.path]
        undone = {json.loads(entry.report or "{}").get("undoes") for entry in rows if entry.what == "undo"}
        for entry in reversed(rows):
            took_place = entry.state in ("replaced", "done") or (
                entry.state == "linked" and entry.new_ino == source.stamp.ino
            )
            if took_place and entry.what == "prune" and entry.id not in undone:
                return "pruned"
            if took_place and entry.what == "restore":
                return "pruned" if entry.level in known.pruned else "raw"
        if rows:
            return "raw"
        found = any(
            one.reason == FOUND for one in known.there.get(unit.key(self.vault_folder), ())
        )  # the Ledger was lost
        return "pruned" if _marked(source.read, length) or (found and self.map.shorter_than_kept(unit.path)) else "raw"

    # Retiring

    def _retire(self, newest: list[tuple[Unit, Kept]], known: Past, step: Step, failed: Failed) -> list[str]:
        """Removes the generations that a newer one begins with; what cannot be read proves nothing, and is told."""
        gone = []
        for unit, holder in newest:
            if unit.transcript and not self.map.stored_whole(holder.path):
                continue
            for old in known.there.get(unit.key(self.vault_folder), ()):
                if old.number >= holder.number or old.logical > holder.logical:
                    continue
                try:
                    if not g.holds(self.vault, old.path, old.logical, holder.path):
                        continue
                except OSError as fault:
                    failed.append({"path": fault.filename or old.path, "reason": fault.strerror or str(fault)})
                    continue
                step("R1")
                self.ledger.retire(old.path, holder.path)
                step("R2")
                g.remove(old.path)
                gone.append(old.path)
        self.forget(gone, step)
        return gone

    def forget(self, paths: list[str], step: Step = _no_step) -> None:
        """Has the Map forget generations that were removed."""
        transcripts = [path for path in paths if is_transcript(path)]
        if transcripts:
            step("R3")
            self.indexer.update(transcripts, count=False)

    def standing(self, path: str) -> str:
        """Where the bytes of a generation lie now: itself, or whatever holds them since it was retired."""
        holders = {one.path: one.holder for one in self.ledger.kept() if one.retired_at is not None}
        seen = set()
        while path not in seen and (holder := holders.get(path)) is not None:
            seen.add(path)
            path = holder
        return path

    # When it is due

    def due(self, now: float, quiet_seconds: float, cleanup_days: float) -> list[tuple[str, str]]:
        """(session, why) of the sessions to be captured now: first those that the client may delete soon, the oldest
        first, then those that have been quiet since they changed."""
        have = self.ledger.stamps()
        ours = {(one.dev, one.new_ino, one.new_length) for one in filter(_from_kept, self.ledger.journal())}
        changed: dict[str, list[float]] = {}
        newest: dict[str, float] = {}
        for path, agent, records_of, stamp in self.map.live_stamps():
            name = (owner_of(self.vault, path) if agent else stem(path)) or records_of
            if name is None or not plain_name(name):
                continue
            written = stamp[3] / 1e9 if stamp[3] != YOUNG else now
            newest[name] = max(newest.get(name, 0.0), written)
            if stamp not in have and stamp[:3] not in ours:
                changed.setdefault(name, []).append(written)
        last = cleanup_days * DAY
        near = min(NEAR_CLEANUP, last / 2)
        soon, quiet = [], []
        for name, times in changed.items():
            if now - min(times) >= max(last - near, SETTLED):
                soon.append((min(times), name))
            elif now - newest[name] >= quiet_seconds:
                quiet.append((min(times), name))
        return [(name, "clean-up") for _, name in sorted(soon)] + [(name, "quiet") for _, name in sorted(quiet)]

    # The start

    def adopt(self, stop: Callable[[], bool] = lambda: False) -> Adopted:
        """Puts Vault and Ledger in order; see `start`. Raises StorageFault."""
        return adopt(self, stop)


def _opened(path: str) -> Source:
    """A live file, as it stands. Raises OSError."""
    return plain(open_regular(path))


def _stamp(stamp: Stamp, began_ns: int) -> tuple[int, int, int, int]:
    """A stamp to be compared with later; one so young that the file may change again under it equals none."""
    young = began_ns - YOUNG_NS < stamp.mtime_ns <= time.time_ns() + YOUNG_NS
    return stamp.dev, stamp.ino, stamp.size, YOUNG if young else stamp.mtime_ns


def _stamp_of(kept: Kept) -> tuple[int | None, int | None, int | None, int | None]:
    return kept.dev, kept.ino, kept.size, kept.mtime_ns


def _from_kept(entry: Entry) -> bool:
    """Whether a replacement wrote nothing but what the Vault holds: others carry over lines appended since, or a last
    line without its newline, and those only the live file has."""
    return entry.state == "done" and entry.what == "prune" and entry.made[0] == entry.new_length


def _marked(read: Read, length: int) -> bool:
    """Whether a record holds a marker of ours that names the record itself; a quoted one names another."""
    before = b""
    for data in g.pieces(read, length):
        if _OPENING in before + data[: len(_OPENING)] or _OPENING in data:
            break
        before = data[-len(_OPENING) :]
    else:
        return False
    return any(
        b'"uuid":"' + name + b'"' in line.data
        for line in lines(read, 0, 1, length)
        if _OPENING in line.data
        for name in _MARKER.findall(line.data)
    )
