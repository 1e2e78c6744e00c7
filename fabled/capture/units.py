"""Says which live files a session consists of, where in the Vault each is kept, and what is kept of it already.

Capturing them is left to `verb`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Refused
from ..store.files import utf8
from ..store.ledger import Entry, Kept, Ledger
from ..store.map import Map
from ..store.vault import Vault

NO_FOLDER = "-"
"""Stands for the project folder of a transcript that lies in none."""

Key = tuple[str, bool]
"""Folder of generations, and whether they are transcripts."""
Failed = list[dict[str, str]]
"""What could not be kept: path and reason."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A live file, and which folder of the Vault its generations lie in."""

    path: str
    folder: str
    """name of the project folder"""
    session: str
    part: str
    """as `Kept.part`"""
    transcript: bool = True
    meta: str | None = None
    """path of the description of a subagent"""

    def key(self, vault_folder: str) -> Key:
        """Where its generations lie."""
        parts = [self.folder or NO_FOLDER, self.session, *filter(None, self.part.split("/"))]
        return os.path.join(vault_folder, *parts), self.transcript


@dataclass(slots=True)
class Past:
    """The generations a session has."""

    there: dict[Key, list[Kept]] = field(default_factory=dict)
    """those that are recorded and lie in the Vault, by their folder, the oldest first"""
    highest: dict[str, int] = field(default_factory=dict)
    """folder → the highest number that was ever given in it: it is not given again to other bytes"""
    pruned: set[str] = field(default_factory=set)
    """the pruned ones of the transcript itself, as `v3`"""
    journal: list[Entry] = field(default_factory=list)
    """what replaced live transcripts of the session, the oldest first"""


def past(ledger: Ledger, session_id: str) -> Past:
    """What is known of a session's generations."""
    found = Past(journal=ledger.journal(session_id))
    for kept in ledger.kept(session_id):
        folder = os.path.dirname(kept.path)
        found.highest[folder] = max(kept.number, found.highest.get(folder, -1))
        if kept.kind == "pruned" and kept.part == "":
            found.pruned.add(f"v{kept.number}")
        with contextlib.suppress(OSError):
            if kept.retired_at is None and os.stat(kept.path).st_size == kept.packed:
                found.there.setdefault((folder, is_transcript(kept.path)), []).append(kept)
    return found


def units(map_: Map, vault: Vault, session_id: str, known: Past, failed: Failed) -> Iterator[Unit]:
    """Every live file of a session: its transcript first, then what lies in its folder, then the subagents that
    lie elsewhere (beside the sessions, in older clients) and name it in their records."""
    if not plain_name(session_id):
        raise Refused(f"{session_id!r} cannot be a name in the Vault; nothing was kept", "rename the transcript")
    homes: dict[str, str] = {}
    beside: list[tuple[str, str]] = []
    for path, folder, agent in map_.live_files(session_id):
        owner = owner_of(vault, path) if agent else stem(path)
        if not agent and owner in (None, session_id):
            homes.setdefault(os.path.join(os.path.dirname(path), session_id), folder)
            yield Unit(path, folder, session_id, "")
        elif agent and owner is None:
            beside.append((path, folder))
        elif agent and owner == session_id:
            homes.setdefault(path[: path.index(f"/{owner}/subagents/")] + "/" + owner, folder)
    for kept in (one for mine in known.there.values() for one in mine):
        if kept.part == "":  # the transcript may be gone and its other files not yet
            homes.setdefault(kept.origin.removesuffix(".jsonl"), kept.folder)
    for home, folder in homes.items():
        yield from _inside(home, folder, session_id, failed)
    for path, folder in beside:
        yield Unit(path, folder, session_id, f"subagents/{stem(path)}", meta=_meta(path))


def owner_of(vault: Vault, path: str) -> str | None:
    """The session whose folder a subagent's file lies in; None for one beside the sessions."""
    above, found, _ = path[len(vault.base_of(path) or "") :].partition("/subagents/")
    return os.path.basename(above) or None if found else None


def unit_of(vault: Vault, path: str) -> Unit:
    """What a live transcript's path names."""
    place = vault.place(path)
    if place is None or place.generation is not None or place.session is None or not plain_name(place.session):
        raise Refused(f"{path} is no transcript of a session; nothing was kept", "name a session's transcript")
    part = ""
    if place.agent is not None:
        part = "subagents/" + place.path.partition(f"/{place.session}/subagents/")[2].removesuffix(".jsonl")
    return Unit(place.path, place.folder, place.session, part, meta=place.meta)


def _inside(home: str, folder: str, session_id: str, failed: Failed) -> Iterator[Unit]:
    """The files below a session's folder. Links are not followed: what they lead to is not the session's."""

    def tell(fault: OSError) -> None:
        if not isinstance(fault, FileNotFoundError):
            failed.append({"path": str(fault.filename), "reason": fault.strerror or str(fault)})

    for top, below, files in os.walk(home, onerror=tell):
        below.sort()
        for name in sorted(files):
            path = os.path.join(top, name)
            part = os.path.relpath(path, home)
            try:
                regular = stat.S_ISREG(os.lstat(path).st_mode)
            except FileNotFoundError:
                continue
            except OSError as fault:  # it is there, and it would not be kept: that must be told
                failed.append({"path": path, "reason": fault.strerror or str(fault)})
                continue
            if not regular or not utf8(part):
                continue
            inner = part.split("/")[:-1]
            if not name.endswith(".jsonl") or "tool-results" in inner:
                described = name.removesuffix(".meta.json") + ".jsonl"
                if not (name.endswith(".meta.json") and inner[:1] == ["subagents"] and described in files):
                    yield Unit(path, folder, session_id, part, transcript=False)
            elif inner[:1] == ["subagents"]:
                yield Unit(path, folder, session_id, part.removesuffix(".jsonl"), meta=_meta(path))
            # else a session's transcript of its own


def is_transcript(path: str) -> bool:
    return path.endswith((".jsonl", ".jsonl.zst"))


def plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name


def stem(path: str) -> str | None:
    """The session a transcript's name tells; None where a link brought it in under another."""
    name = os.path.basename(path)
    return name.removesuffix(".jsonl") if name.endswith(".jsonl") else None


def _meta(path: str) -> str:
    return path.removesuffix(".jsonl") + ".meta.json"
