"""Tests the invariants of Map, Vault and Ledger and lists what breaks them (`fabled check`).

It changes nothing; mending is left to the indexer and its repair.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .errors import NewerSchema, NoIndex, StorageFault
from .store import generations, kept
from .store.audit import Audit
from .store.ledger import Kept
from .store.vault import Vault
from .transcript.record import digest

SAMPLE = 2_000
"""Best pointers read again by the quick form."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One invariant: how many things were tested, how many failed, and the first failures in words."""

    id: str
    ok: bool
    tested: int
    failed: int
    message: str


def run(
    map_path: str,
    vault: Vault,
    ledger_path: str,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
    reading: Callable[[int, int], None] | None = None,
) -> list[CheckResult]:
    """All checks. `deep` reads every generation and every copy of every record again.

    `progress` is told of copies, `reading` of the bytes of generations: (done, in all). Raises NoIndex where there is
    no Map, NewerSchema where it is another version's.
    """
    if not os.path.exists(map_path):
        raise NoIndex(f"there is no index at {map_path} yet", "fabled index")
    audit = Audit(map_path)
    try:
        if audit.version_differs():
            raise NewerSchema(
                f"{map_path} has another version's schema", "fabled index builds it anew, or update fabled"
            )
        return [
            _result("database", *audit.sound(audit.quick_check), "the Map's pages are sound"),
            _result("ledger", *Audit.ledger_check(ledger_path), "the Ledger's pages are sound"),
            _result(
                "full text", *audit.sound(audit.full_text), "the full text agrees with itself and with the records"
            ),
            _result(
                "copies", *audit.sound(audit.copies), "every copy names a file and a record, every record has a copy"
            ),
            _result("tiling", *audit.sound(audit.tiling), "the spans of each file follow each other without overlap"),
            _result("best pointers", *audit.sound(audit.best_pointers), "every record is read from its best copy"),
            _result("threads", *audit.sound(audit.threads), "every thread counts what its records say"),
            _result("work left", *audit.sound(audit.unfinished), "nothing promised is undone"),
            _result(
                "identity",
                *audit.sound(lambda: _identity(audit, vault, deep, progress)),
                "the bytes at the spans are the records that were indexed",
            ),
            _result(
                "generations",
                *_generations(ledger_path, vault, deep, reading),
                "every generation is there, and holds what was written" if deep else "every generation is there",
            ),
            _result("leftovers", *_leftovers(vault), "nothing half made lies in the Vault"),
            _private(map_path, ledger_path, vault),
        ]
    finally:
        audit.close()


def _result(name: str, tested: int, faults: list[str], fine: str) -> CheckResult:
    shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
    return CheckResult(name, not faults, tested, len(faults), shown or fine)


def _identity(
    audit: Audit, vault: Vault, deep: bool, progress: Callable[[int, int], None] | None
) -> tuple[int, list[str]]:
    """Reads copies again and compares their checksum.

    A file that changed since it was indexed proves nothing: its turn comes with the next index run.
    """
    rows = audit.every_copy() if deep else audit.some_best(SAMPLE)
    total = audit.copies_count() if deep else SAMPLE
    tested = 0
    faults: list[str] = []
    for path, unchanged, spans in rows:
        try:
            source = vault.open(path)
        except OSError as fault:
            if unchanged(None):
                faults.append(f"{path}: {fault.strerror or fault}")
            continue
        try:
            if not unchanged(source.stamp):
                continue
            for offset, length, check in spans:
                tested += 1
                if progress is not None and tested % 5_000 == 0:
                    progress(tested, total)
                found = (
                    digest(source.read(offset, length))
                    if length < 1 << 20
                    else source.sha256(offset, length)[: len(check)]
                )
                if found != check:
                    faults.append(f"{path} at byte {offset}: not the record that was indexed there")
        except (OSError, EOFError) as fault:
            faults.append(f"{path}: {fault}")
        finally:
            source.close()
    return tested, faults


def _generations(
    ledger_path: str, vault: Vault, deep: bool, reading: Callable[[int, int], None] | None
) -> tuple[int, list[str]]:
    """The files of the Vault against what the Ledger says was written; `deep` by the sha256 of their bytes."""
    try:
        with kept.reading(ledger_path) as ledger:
            rows = {one.path: one for one in ledger.kept()}
    except (StorageFault, NewerSchema) as fault:
        return 1, [fault.message]
    total = sum(one.logical for one in rows.values() if one.retired_at is None)
    done = 0
    faults: list[str] = []
    for one in rows.values():
        if one.retired_at is not None:
            if one.holder not in rows:
                faults.append(f"{one.path} was retired, and nothing is known of {one.holder}, which held its bytes")
            continue
        try:
            different = _differs(one, vault, deep)
        except OSError as fault:
            different = fault.strerror or str(fault)
        if different:
            faults.append(f"{one.path}: {different}")
        done += one.logical
        if deep and reading is not None:
            reading(done, total)
    return len(rows), faults


def _differs(one: Kept, vault: Vault, deep: bool) -> str:
    """What a generation is not as it was written; raises OSError."""
    try:
        size = os.stat(one.path).st_size
    except FileNotFoundError:
        return "it is gone"
    if size != one.packed:
        return f"it has {size:,} bytes, and had {one.packed:,} when it was written"
    if not deep:
        return ""
    source = vault.open(one.path)
    try:
        if source.size != one.logical or source.sha256(0, one.logical) != one.sha256:
            return "it does not hold what was written"
    finally:
        source.close()
    return ""


def _leftovers(vault: Vault) -> tuple[int, list[str]]:
    if not vault.vaults:
        return 0, []
    found = generations.leftovers(vault.vaults[0], _running)
    return 1, [f"{path} was left half made: the next start of the daemon removes it" for path in found]


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _private(map_path: str, ledger_path: str, vault: Vault) -> CheckResult:
    """Nobody but the owner may read Map, Ledger and Vault (DESIGN, invariant 8)."""
    tested, faults = 0, []
    for path, status in _private_paths(map_path, ledger_path, vault):
        tested += 1
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.getuid():
            faults.append(f"{path} has mode {stat.S_IMODE(status.st_mode):04o}")
    return _result("private", tested, faults, "only the owner can read Map, Ledger and Vault")


def _private_paths(map_path: str, ledger_path: str, vault: Vault) -> Iterator[tuple[str, os.stat_result]]:
    for path in (map_path, ledger_path):
        for name in (path, path + "-wal", path + "-shm"):
            with contextlib.suppress(FileNotFoundError):
                yield name, os.stat(name)
    yield os.path.dirname(map_path), os.stat(os.path.dirname(map_path))
    if vault.vaults:
        yield from generations.entries(vault.vaults[0])
