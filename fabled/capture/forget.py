"""Has sessions forgotten because a person says so: out of the Map, the Vault and the Ledger, and kept out from then on.

The one removal without a proof that the bytes are elsewhere. What is nowhere else is told first, and nothing happens
without `apply`; asking is left to the command line. Live transcripts are the client's and stay.

The order: the Ledger promises it, the Map lets go, the generations go, the Ledger says that it is done. A kill in
between leaves the promise, which `resume` keeps at the next start.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, Refused, StorageFault
from ..store import generations as g
from ..store.hold import sync_folder
from ..store.ledger import Forgotten
from .units import owner_of

if TYPE_CHECKING:
    from .verb import Capturer


@dataclass(slots=True)
class Holding:
    """What there is of one session."""

    session_id: str
    generations: list[g.Stored] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    """generations in Vaults that are only read, as those of another machine"""
    live: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    """subagents of older clients, which lie among the sessions"""
    records: int = 0
    only: int = 0
    """records that no live transcript holds, or none in full"""
    lost_files: list[str] = field(default_factory=list)
    """other files of the session whose originals are gone"""
    bytes: int = 0

    def told(self) -> dict[str, Any]:
        """The same for a reply."""
        return {
            "session_id": self.session_id,
            "records": self.records,
            "generations": len(self.generations),
            "bytes": self.bytes,
            "only_here": self.only,
            "only_here_files": self.lost_files,
            "live": self.live,
            "elsewhere": self.elsewhere,
        }


def forget(capturer: Capturer, sessions: Sequence[str], project: str | None, apply: bool) -> dict[str, Any]:
    """Forgets sessions, and whatever else a project will hold; or only says what that would remove.

    Raises NotFound, Refused, StorageFault.
    """
    begun = time.monotonic()
    if not sessions and project is None:
        raise NotFound("there is nothing of that name", "fabled sessions lists what there is")
    held = _holdings(capturer, sessions)
    busy = {entry.session_id for entry in capturer.ledger.unfinished()} & set(sessions)
    if busy:
        raise Refused(f"a prune of {sorted(busy)[0]} is just ending; nothing was forgotten", "try again in a moment")
    failed: list[dict[str, str]] = []
    if apply:
        failed = _do(capturer, held, project)
    return {
        "project": project,
        "applied": apply,
        "sessions": [one.told() for one in held],
        "generations": sum(len(one.generations) for one in held),
        "bytes": sum(one.bytes for one in held),
        "only_here": sum(one.only for one in held),
        "only_here_files": sum(len(one.lost_files) for one in held),
        "failed": failed,
        "seconds": round(time.monotonic() - begun, 3),
    }


def let_in(capturer: Capturer, name: str) -> dict[str, Any]:
    """Takes a name off the list: what its live transcripts hold is indexed again. Raises NotFound."""
    mine = [one for one in capturer.ledger.forgotten() if one.name == name or one.name.startswith(name)]
    exact = [one for one in mine if one.name == name]
    found = exact or (mine if len(name) >= 6 and len({one.name for one in mine}) == 1 else [])
    if not found:
        raise NotFound(f"{name} is not among what was forgotten", "fabled forget --list")
    for one in found:
        inside = json.loads(one.detail)
        for file in inside.get("beside", ()):
            capturer.ledger.let_in("file", file)
        for session_id in inside.get("sessions", ()):
            capturer.ledger.let_in("session", session_id)
        capturer.ledger.let_in(one.kind, one.name)
    capturer.indexer.omit_anew()
    report = capturer.indexer.update(None)
    return {"let_in": [one.name for one in found], "records": report.records, "files_changed": report.files_changed}


def resume(capturer: Capturer) -> list[str]:
    """Ends what a kill cut short; the sessions and projects that are forgotten now. What cannot be removed yet is
    tried again at the next start."""
    left = [one for one in capturer.ledger.forgotten() if one.state == "begun"]
    if not left:
        return []
    sessions = {one.name for one in left if one.kind == "session"}
    failed: list[dict[str, str]] = []
    try:
        _let_go(capturer, [path for name in sorted(sessions) for path in capturer.map.paths_of(name)])
        failed = _remove(capturer, [one for one in g.stored(capturer.vault_folder) if one.session in sessions])
        _settle(capturer, left, failed)
    except StorageFault:
        return []
    return [] if failed else [one.name for one in left]


def _let_go(capturer: Capturer, paths: Sequence[str]) -> None:
    """Has the Map forget what stays out now, so that none of its words is left in the file or in older ones."""
    capturer.map.overwrite_freed(True)
    try:
        if paths:
            capturer.indexer.update(dict.fromkeys(paths), count=False)
        capturer.indexer.merge_texts()
        capturer.map.drop_unused()
    finally:
        capturer.map.overwrite_freed(False)
    for path in glob.glob(f"{glob.escape(capturer.map.path)}.corrupt-*"):
        with contextlib.suppress(OSError):
            os.unlink(path)  # a damaged Map that was moved aside: nothing is in it that cannot be indexed again


def _settle(capturer: Capturer, rows: Sequence[Forgotten], failed: Sequence[object]) -> None:
    """Says in the Ledger what became of the promises, and leaves no word of them there either."""
    for row in rows:
        if row.kind == "session":
            capturer.ledger.drop_session(row.name)
    capturer.ledger.clean()
    if not failed:
        capturer.ledger.forget(*(Forgotten(row.kind, row.name, row.at, "done", row.detail) for row in rows))


def _holdings(capturer: Capturer, sessions: Sequence[str]) -> list[Holding]:
    found = {session_id: Holding(session_id) for session_id in sessions}
    for stored in g.stored(capturer.vault_folder):
        if stored.session in found:
            one = found[stored.session]
            one.generations.append(stored)
            with contextlib.suppress(OSError):
                one.bytes += os.stat(stored.path).st_size
    for session_id, one in found.items():
        for path, _, agent in capturer.map.live_files(session_id):
            owner = owner_of(capturer.vault, path) if agent else None
            if not agent and os.path.basename(path) == f"{session_id}.jsonl":
                one.live.append(path)
            elif agent and owner is None and capturer.map.sessions_in(path) == [session_id]:
                one.beside.append(path)
        one.records, one.only = capturer.map.only_kept(session_id)
        one.elsewhere = [
            path for path in capturer.map.generations_of(session_id)
            if not path.startswith(capturer.vault_folder + "/")
        ]  # fmt: skip
        lost = {
            kept.part for kept in capturer.ledger.kept(session_id)
            if kept.part and kept.retired_at is None and not os.path.exists(kept.origin)
        }  # fmt: skip
        one.lost_files = sorted(lost)
    return list(found.values())


def _do(capturer: Capturer, held: Sequence[Holding], project: str | None) -> list[dict[str, str]]:
    ledger, now = capturer.ledger, int(time.time())
    rows = [
        Forgotten(
            "session", one.session_id, now, "begun",
            json.dumps({"generations": len(one.generations), "bytes": one.bytes, "records": one.records,
                        "only_here": one.only, "beside": one.beside}),
        )
        for one in held
    ]  # fmt: skip
    if project is not None:
        detail = json.dumps({"sessions": [one.session_id for one in held]})
        rows.append(Forgotten("project", project, now, "begun", detail))
    paths: list[str] = []
    files: list[Forgotten] = []
    for one in held:
        detail = json.dumps({"session": one.session_id})
        files += [Forgotten("file", path, now, "done", detail) for path in one.beside]
        paths += [*capturer.map.paths_of(one.session_id), *one.live, *one.beside]
    # In one commit: of a project that was half promised nobody would know which half.
    ledger.forget(*files, *rows)
    capturer.indexer.omit_anew()
    _let_go(capturer, paths)
    failed = _remove(capturer, [stored for one in held for stored in one.generations])
    _settle(capturer, rows, failed)
    return failed


def _remove(capturer: Capturer, generations: Sequence[g.Stored]) -> list[dict[str, str]]:
    """Takes generations away, and the folders that are empty then."""
    failed = []
    folders: set[str] = set()
    for stored in generations:
        try:
            g.remove(stored.path)
        except StorageFault as fault:
            failed.append({"path": stored.path, "reason": fault.message})
            continue
        folder = os.path.dirname(stored.path)
        while folder != capturer.vault_folder and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):  # another session of the project lies there
            os.rmdir(folder)
            sync_folder(os.path.dirname(folder))
    return failed
