"""Puts the Vault and the Ledger in order at the start of the writer, after whatever happened before.

What is captured from then on is left to `verb`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..store import generations as g
from ..store.files import private_folder
from ..store.ledger import Kept
from . import forget
from .units import NO_FOLDER, is_transcript

if TYPE_CHECKING:
    from .verb import Capturer

FOUND = "found"
"""Why a generation was kept, where only the Vault knows of it."""


@dataclass(slots=True)
class Adopted:
    """What a start found in the Vault and put in order."""

    found: list[str] = field(default_factory=list)
    """generations the Ledger did not know"""
    retired: list[str] = field(default_factory=list)
    """generations whose removal had been cut short"""
    removed: list[str] = field(default_factory=list)
    """files that a writer had left half made"""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason)"""


def adopt(capturer: Capturer, stop: Callable[[], bool]) -> Adopted:
    """Puts the Vault and the Ledger in order after whatever happened: removes what is half made, ends retirements
    that were begun, records the generations the Ledger does not know. The Vault's listing is the truth."""
    private_folder(capturer.vault_folder)
    forget.resume(capturer)
    report = Adopted(removed=g.sweep(capturer.vault_folder))
    known = {one.path: one for one in capturer.ledger.kept()}
    for stored in g.stored(capturer.vault_folder):
        if stop():
            break
        row = known.get(stored.path)
        try:
            if row is None:
                capturer.ledger.keep(_read(capturer, stored))
                report.found.append(stored.path)
            elif row.retired_at is not None:
                _end_retirement(capturer, row, report)
        except OSError as fault:
            report.failed.append((stored.path, fault.strerror or str(fault)))
    capturer.forget(report.retired)
    return report


def _end_retirement(capturer: Capturer, row: Kept, report: Adopted) -> None:
    """Removes a generation whose row says so, if the proof still holds; else it is kept as if never retired."""
    holder = capturer.standing(row.path)
    indexed = not is_transcript(row.path) or capturer.map.stored_whole(holder)
    if indexed and os.path.exists(holder) and g.holds(capturer.vault, row.path, row.logical, holder):
        g.remove(row.path)
        report.retired.append(row.path)
    else:
        capturer.ledger.keep(replace(row, retired_at=None, holder=None))


def _read(capturer: Capturer, stored: g.Stored) -> Kept:
    """What a generation says of itcapturer. Raises OSError."""
    source = capturer.vault.open(stored.path)
    try:
        check = source.sha256(0, source.size)
        status = os.fstat(source.fd)
        folder = "" if stored.folder == NO_FOLDER else stored.folder
        return Kept(
            stored.path, folder, stored.session, stored.part, stored.number, stored.kind,
            _origin(capturer, stored, folder), source.size, status.st_size, check, int(status.st_mtime), FOUND,
        )  # fmt: skip
    finally:
        source.close()


def _origin(capturer: Capturer, stored: g.Stored, folder: str) -> str:
    """Where the live file of a generation lies, or lay."""
    suffix = ".jsonl" if stored.transcript else ""
    name = f"{stored.session}/{stored.part}{suffix}" if stored.part else stored.session + suffix
    beside = os.path.basename(stored.part) + suffix  # a subagent of an older client
    choices = [os.path.join(root, folder, one) for one in (name, beside) for root in capturer.vault.roots]
    return next((path for path in choices if os.path.exists(path)), choices[0] if choices else stored.path)
