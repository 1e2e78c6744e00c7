"""Work of the writer done in this process, where no daemon runs: everything opened under the instance lock.

What is done with it is left to the commands and the verbs they call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabled.errors import AlreadyRunning

if TYPE_CHECKING:
    from fabled.answers import Reader
    from fabled.config import Config
    from fabled.indexer import Indexer
    from fabled.store.ledger import Ledger
    from fabled.store.map import Map
    from fabled.store.vault import Vault


def open_vault(settings: Config) -> Vault:
    from fabled.store.vault import Vault

    return Vault([settings.places.vault, *settings.vaults], settings.roots)


@contextmanager
def reading(settings: Config) -> Iterator[Reader]:
    """What an answer is read from. Raises NoIndex where there is no Map yet."""
    from fabled.answers import Reader
    from fabled.store.queries import Queries

    queries = Queries(settings.places.map_db)
    try:
        yield Reader(queries, open_vault(settings), settings.places.ledger_db)
    finally:
        queries.close()


def written_to(settings: Config) -> bool:
    """Whether some process has the Map for writing, by the word it left in the lock. Taking the lock to find out could
    stop one that is just starting."""
    from fabled.store.files import Lock
    from fabled.store.owners import running

    owner = Lock(settings.places.lock).owner()
    return owner is not None and running(owner)


@dataclass(frozen=True, slots=True)
class Opened:
    """What the daemon's writer owns, owned by this process."""

    settings: Config
    map: Map
    ledger: Ledger
    vault: Vault
    indexer: Indexer


@contextmanager
def opened(settings: Config) -> Iterator[Opened]:
    """Map, Ledger and Vault for writing. Raises AlreadyRunning where another process has them."""
    from fabled.daemon import memory
    from fabled.indexer import Indexer
    from fabled.store.files import Lock, private_folder
    from fabled.store.ledger import Ledger
    from fabled.store.map import Map

    where = settings.places
    os.umask(0o077)
    private_folder(where.data)
    private_folder(where.state)
    private_folder(where.vault)
    lock = Lock(where.lock)
    if not lock.acquire():
        owner = lock.owner()
        raise AlreadyRunning(
            f"another fabled{f' (pid {owner})' if owner else ''} is writing, or a daemon is just starting or stopping",
            "try again in a moment",
        )
    memory.collect_seldom()
    try:
        map_ = Map(where.map_db)
        try:
            ledger = Ledger(where.ledger_db)
            try:
                vault = open_vault(settings)
                indexer = Indexer(map_, vault, ledger, settings.exclude)
                yield Opened(settings, map_, ledger, vault, indexer)
            finally:
                ledger.close()
        finally:
            map_.close()
    finally:
        lock.release()
