"""What of the daemon's state a person should know, with the next step: the warnings of `status`.

Pure: where the figures come from is `desk`'s business, how they look `present`'s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabled.config import Config
from fabled.daemon.observer import WatchState
from fabled.daemon.writer import Health, StorageWait
from fabled.present.terminal import plural
from fabled.store.ledger import Loss

BIG_WAL_BYTES = 64 << 20
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Concern:
    """A fact and what to do about it; `code` names its kind for programs."""

    code: str
    message: str
    hint: str = ""


def concerns(
    counts: Mapping[str, Any], config: Config, health: Health, watch: WatchState, now: float | None = None
) -> tuple[Concern, ...]:
    """All there is to worry about. `counts` are the figures of `status`."""
    found: list[Concern] = []
    if health.storage is not None:
        found.append(_storage(health.storage, config, time.time() if now is None else now))
    found += _watching(watch, config)
    found += [Concern("root_empty", note, "see that its disk is there") for note in health.notes]
    if counts.get("wal_bytes", 0) > BIG_WAL_BYTES:
        said = f"the Map's log of changes has grown to {counts['wal_bytes'] >> 20} MB: a program keeps reading the Map"
        found.append(Concern("wal", said, f"end what has {config.places.map_db} open"))
    found += _losses(health.losses)
    if health.outlook.disabled:
        found.append(Concern("prune_stopped", f"nothing is pruned by itself: {health.outlook.disabled}"))
    found += _transcripts(counts, health)
    return tuple(found)


def _storage(wait: StorageWait, config: Config, now: float) -> Concern:
    waited = f"changes have waited for {max(0, int(now - wait.since))} s"
    if wait.kind == "locked":
        hint = f"end what writes to {config.places.map_db}"
        return Concern("locked", f"another process has locked the Map; {waited}", hint)
    if wait.kind == "full":
        return Concern("disk_full", f"the disk is full; {waited}", f"free space where {config.places.data} lies")
    return Concern("storage", f"{wait.message}; {waited}", f"see that {config.places.data} can be written")


def _watching(watch: WatchState, config: Config) -> list[Concern]:
    found = []
    if watch.mode == "polling":
        every = f"every {config.degraded_sweep_seconds:g} s"
        said = f"changes are looked for {every}, not told by events: {watch.reason}"
        found.append(Concern("watcher", said, watch.hint))
    hint = "if transcripts lie elsewhere: fabled config set roots FOLDER"
    for root in watch.waiting:
        found.append(Concern("root_missing", f"waiting for {root}: there is no such folder", hint))
    return found


def _losses(losses: Sequence[Loss]) -> list[Concern]:
    found = []
    vanished = list(dict.fromkeys(loss.session_id for loss in losses if loss.kind == "vanished"))
    if vanished:
        said = f"vanished sessions without a copy: {len(vanished)} ({_some(vanished)})"
        found.append(Concern("vanished", said, "if there is a backup of them, put them back"))
    for loss in [loss for loss in losses if loss.kind == "shrunk"][:SHOWN]:
        if loss.nowhere:
            said = f"{loss.path} lost {plural(loss.nowhere, 'record')} that nothing else holds"
            found.append(Concern("shrunk", said, "if there is a backup of it, put it back"))
        else:
            said = f"{loss.path} lost {plural(loss.in_vault, 'record')}, which the Vault still holds"
            found.append(Concern("shrunk", said))
    return found


def _transcripts(counts: Mapping[str, Any], health: Health) -> list[Concern]:
    found = []
    if counts.get("near_cleanup"):
        ids = [str(one["session_id"]) for one in counts.get("near_cleanup_sessions") or ()]
        live = (
            "session exists only as a live transcript that",
            "sessions exist only as live transcripts that",
        )
        said = f"{plural(counts['near_cleanup'], *live)} the client will soon delete"
        found.append(Concern("cleanup", f"{said} ({_some(ids)})", "raise cleanupPeriodDays in the client's settings"))
    if counts.get("unparsed"):
        first = next(iter(counts.get("unparsed_spans") or ()), None)
        where = f"; the first: {first['path']}, line {first['line']}" if isinstance(first, Mapping) else ""
        said = plural(counts["unparsed"], "place in transcripts is no record", "places in transcripts are no records")
        said += where
        found.append(Concern("unparsed", said, "fabled spans FILE shows them"))
    if health.failed:
        path, reason = health.failed[0]
        more = f", and {len(health.failed) - 1} more" if len(health.failed) > 1 else ""
        found.append(Concern("unreadable", f"not read: {path} ({reason}){more}", "each is tried again when it changes"))
    return found


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN]) + (", …" if len(ids) > SHOWN else "")
