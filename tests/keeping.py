"""A home with everything that keeps and prunes opened in this process, as the writer has it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from fabled import check, config
from fabled.indexer import Indexer
from fabled.pruner import Pruner, opened, perform
from fabled.retrieval import block_bytes
from fabled.retrieval.common import Reader
from fabled.store.files import private_folder
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.store.queries import Queries
from fabled.store.vault import Vault
from tests.build import Transcript

FOLDER = "-home-ana-app"
HOUR_AGO = 7_200
FLOORS_OFF = {
    "FABLED_PRUNE_MIN_BYTES": "0", "FABLED_PRUNE_MIN_GAIN_BYTES": "0", "FABLED_PRUNE_MIN_GAIN": "0",
    "FABLED_CAPTURE_RESERVE_BYTES": "0",
}  # fmt: skip


class Keeping:
    """Transcripts under `projects`, and what is made of them."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self.claude = path / "claude"
        self.projects = self.claude / "projects"
        self.projects.mkdir(parents=True, exist_ok=True)
        self.env = {
            "FABLED_HOME": str(path / "fabled"), "CLAUDE_CONFIG_DIR": str(self.claude), "HOME": str(path),
            **FLOORS_OFF, **settings,
        }  # fmt: skip
        self.config = config.load(self.env)
        for folder in (self.config.places.data, self.config.places.state, self.config.places.vault):
            private_folder(folder)
        self.open()

    def open(self) -> None:
        where = self.config.places
        self.map = Map(where.map_db)
        self.ledger = Ledger(where.ledger_db)
        self.vault = Vault([where.vault], self.config.roots)
        self.indexer = Indexer(self.map, self.vault, self.ledger)
        self.pruner: Pruner = opened(self.config, self.indexer)

    def close(self) -> None:
        self.map.close()
        self.ledger.close()

    def write(self, session: str, data: bytes, *, age: float = HOUR_AGO, folder: str = FOLDER) -> Path:
        """A live transcript, last written `age` seconds ago."""
        path = self.projects / folder / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        aged(path, age)
        return path

    def put(self, transcript: Transcript, **more: Any) -> Path:
        return self.write(transcript.session, transcript.data, **more)

    def index(self) -> None:
        report = self.indexer.update(None)
        assert report.failed == ()

    def do(self, method: str, session: str, **params: Any) -> dict[str, Any]:
        """A verb, and then the end of what it left running."""
        value = perform(self.pruner, method, {"session": session, "sessions": [session], **params})
        self.settle()
        return value

    def settle(self, visits: int = 1_000) -> None:
        """The drains' time goes by, by their own clock."""
        now = time.monotonic()
        while self.pruner.drains and visits:
            visits -= 1
            now += 60
            self.pruner.visit(now)

    def prune(self, session: str, level: str = "gentle", apply: bool = True) -> dict[str, Any]:
        return self.do("prune", session, level=level, apply=apply)

    def faults(self) -> list[check.CheckResult]:
        """What `fabled check --deep` finds."""
        where = self.config.places
        return [one for one in check.run(where.map_db, self.vault, where.ledger_db, deep=True) if not one.ok]

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        queries = Queries(self.config.places.map_db)
        try:
            yield Reader(queries, self.vault, self.config.places.ledger_db)
        finally:
            queries.close()

    def records(self, path: Path) -> list[tuple[str, bytes]]:
        """(content id, bytes) of each record in a file."""
        data = path.read_bytes()
        found = []
        for span in self.vault.spans(str(path)):
            if span.kind in ("record", "no_uuid"):
                raw = data[span.offset : span.offset + span.length]
                found.append(("L-" + sha256(raw).hexdigest()[:16], raw))
        return found

    def lost(self, records: list[tuple[str, bytes]]) -> list[str]:
        """Those records that `block` does not give back byte for byte."""
        with self.reader() as reader:
            return [name for name, raw in records if block_bytes(reader, {"id": name}) != raw]


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))
