"""What is measured within fabled: each job is a fresh process over the home its environment names, and prints JSON.

Which corpora, how often, and what the figures are held to is left to `figures`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import apsw

from benchmarks.tail import Tail, end_line
from fabled import config
from fabled.answers import Reader, answer, block_bytes
from fabled.indexer import Indexer
from fabled.store.files import private_folder
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.store.queries import Queries
from fabled.store.vault import Vault

FRAME_BYTES = 1 << 20
_PLAIN = re.compile("[a-z]{4,}")
_PHRASE = re.compile(r"[a-z]{4,} [a-z]{4,} [a-z]{4,}")


class Home:
    """The home named by the environment, open for writing."""

    def __init__(self) -> None:
        settings = config.load(os.environ)
        self.places = settings.places
        for folder in (self.places.data, self.places.state, self.places.vault):
            private_folder(folder)
        self.root = Path(settings.roots[0])
        self.map = Map(self.places.map_db)
        self.ledger = Ledger(self.places.ledger_db)
        self.vault = Vault([self.places.vault, *settings.vaults], settings.roots)
        self.indexer = Indexer(self.map, self.vault, self.ledger)

    def transcripts(self) -> list[Path]:
        """The largest first."""
        return sorted(self.root.rglob("*.jsonl"), key=lambda path: (-path.stat().st_size, str(path)))

    def update(self, *paths: Path) -> tuple[float, Any]:
        """CPU seconds of one update as the daemon has it done, and its report."""
        began = time.process_time()
        report = self.indexer.update([str(path) for path in paths] or None, count=False)
        return time.process_time() - began, report

    def close(self) -> None:
        self.map.close()
        self.ledger.close()


class Counters:
    """Bytes read from files, and rows of the full text that were written, counted where neither can hide."""

    def __init__(self, home: Home) -> None:
        self.bytes = 0
        self._inserted: set[int] = set()
        self._deleted: set[int] = set()
        self._db = home.map.db
        self._pread = os.pread

    def __enter__(self) -> Counters:
        def pread(fd: int, length: int, offset: int, /) -> bytes:
            data = self._pread(fd, length, offset)
            self.bytes += len(data)
            return data

        def row(kind: int, database: str, table: str, number: int) -> None:
            if table == "fts_docsize":  # one row for each text in the index
                if kind == apsw.SQLITE_INSERT:
                    self._inserted.add(number)
                elif kind == apsw.SQLITE_DELETE:
                    self._deleted.add(number)

        os.pread = pread
        self._db.set_update_hook(row)
        return self

    def __exit__(self, *_: object) -> None:
        os.pread = self._pread
        self._db.set_update_hook(None)

    @property
    def inserted(self) -> int:
        """Texts of records; a row that the load itself adds and takes away is none."""
        return sum(
            self._db.execute("SELECT 1 FROM records WHERE id=?", (number,)).fetchone() is not None
            for number in self._inserted
        )

    @property
    def deleted(self) -> int:
        return len(self._deleted - self._inserted)


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for name, part in parts.items()}


# Jobs


def versions() -> dict[str, str]:
    return {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}


def append(count: str) -> dict[str, Any]:
    """Records appended one by one to the largest transcript, then to the largest of a subagent."""
    home = Home()
    home.update()
    paths = home.transcripts()
    agents = [path for path in paths if path.stem.startswith("agent-")]
    found = {"main": _appended(home, paths[0], int(count))}
    if agents:
        found["subagent"] = _appended(home, agents[0], int(count) // 3)
    home.close()
    return found


def _appended(home: Home, path: Path, count: int) -> dict[str, Any]:
    """Each record is brought into the Map by itself, as by a daemon with nothing else to do."""
    cpu: list[float] = []
    beyond: list[int] = []
    rows: list[float] = []
    end_line(path)
    home.update(path)
    for line in Tail(path).lines(count):
        with open(path, "ab") as file:
            file.write(line)
        changes = home.map.db.total_changes()
        with Counters(home) as counted:
            spent, report = home.update(path)
        assert report.files_changed == 1 and not report.failed, report
        cpu.append(spent * 1000)
        beyond.append(counted.bytes - len(line))
        rows.append(home.map.db.total_changes() - changes)
    return {
        "ms": cpu,
        **quantiles(cpu),
        "kinds": {kind: quantiles(cpu[at :: len(Tail.KINDS)])["p50"] for at, kind in enumerate(Tail.KINDS)},
        "beyond_tail": max(beyond),
        "rows_p50": quantiles(rows)["p50"],
    }


def tail(path: str, count: str, *words: str) -> dict[str, Any]:
    """Lines that continue a transcript, with words of ours in them; for a process that imports nothing of fabled."""
    end_line(Path(path))
    source = Tail(Path(path))
    return {
        "lines": [
            source.line(number, words[number % len(words)] if words else "").decode() for number in range(int(count))
        ]
    }


def rewrite() -> dict[str, Any]:
    """The largest transcript rewritten without one line; kept as a generation; then as a prune leaves it."""
    home = Home()
    home.update()
    path = home.transcripts()[0]
    lines = path.read_bytes().splitlines(keepends=True)
    found: dict[str, Any] = {}

    def replaced(name: str, where: Path, kept: list[bytes]) -> None:
        where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temp = where.with_name("new")
        temp.write_bytes(b"".join(kept))
        os.replace(temp, where)
        with Counters(home) as counted:
            spent, report = home.update(where)
        assert report.files_changed == 1 and not report.failed, report
        megabytes = where.stat().st_size / 1e6
        found[name] = {
            "ms_per_mb": 1000 * spent / megabytes,
            "mb": megabytes,
            "records": len(kept),
            "fts_inserted": counted.inserted,
            "fts_deleted": counted.deleted,
        }

    dropped = next(at for at, line in enumerate(lines) if at > 10 and b'"uuid"' in line)
    lines = lines[:dropped] + lines[dropped + 1 :]
    replaced("one_line_less", path, lines)
    session = path.stem
    generation = Path(home.places.vault) / path.parent.name / session / "v0-raw.jsonl"
    replaced("generation", generation, lines)
    replaced("pruned", path, list(_pruned(lines)))
    home.close()
    return found


def _pruned(lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            yield line
            continue
        if record.get("type") == "progress":
            continue  # the chain is mended by a real prune; for the index a dangling parent is the harder case
        result = record.get("toolUseResult")
        if result is None or len(line) < 4_000:
            yield line
            continue
        record["toolUseResult"] = "pruned"
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def sweep(files: str) -> dict[str, Any]:
    """A pass over everything when nothing has changed."""
    home = Home()
    count = int(files)
    for number in range(count):
        path = home.root / f"-home-dev-p{number % 100}" / f"{UUID(int=number + 1)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        message = {"role": "user", "content": f"small session {number}"}
        record = {
            "type": "user",
            "uuid": str(UUID(int=number + 10**9)),
            "parentUuid": None,
            "sessionId": path.stem,
            "message": message,
        }
        path.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    home.update()
    time.sleep(0.1)  # the stamps must be old enough to prove something
    home.update()
    samples = []
    for _ in range(9):
        spent, report = home.update()
        assert not report.files_changed and not report.bytes_read and not report.failed, report
        samples.append(1e6 * spent / count)
    home.close()
    return {"us_per_file": quantiles(samples)["p50"], "samples": samples}


def words() -> dict[str, Any]:
    """Words of this Map to search for, chosen by how many records hold them."""
    settings = config.load(os.environ)
    db = apsw.Connection(
        f"file:{settings.places.map_db}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main','fts','row')")
    counts = [(docs, term) for term, docs in db.execute("SELECT term,doc FROM temp.terms") if _PLAIN.fullmatch(term)]

    def hits(expression: str) -> int:
        return int(next(db.execute("SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)))[0])

    def near(wanted: int) -> str:
        """The term that stands for itself (a stem may not) and is found about that often."""
        for docs, term in sorted(counts, key=lambda one: (abs(one[0] - wanted), one[1])):
            if hits(f'"{term}"') == docs:
                return str(term)
        raise LookupError(f"no word with about {wanted} hits")

    return {
        "records": int(next(db.execute("SELECT count(*) FROM records"))[0]),
        "queries": {
            "rare": near(2),
            "phrase": f'"{_phrase(settings, hits)}"',
            "two words": f"{near(40)} {near(60)}",
            "none": "qzxjvkwq",
            "common": near(30_000),
            "commonest": max(counts)[1],
        },
        "hits": {name: hits(f'"{near(wanted)}"') for name, wanted in (("rare", 2), ("common", 30_000))}
        | {"commonest": max(counts)[0]},
    }


def _phrase(settings: config.Config, hits: Callable[[str], int]) -> str:
    """Three words in a row that somebody typed, found in few records."""
    for path in sorted(Path(settings.roots[0]).rglob("*.jsonl"), key=str):
        with open(path, "rb") as file:
            for line in file:
                if b'"role":"user","content":"' not in line:
                    continue
                with contextlib.suppress(ValueError):
                    for match in _PHRASE.findall(json.loads(line)["message"]["content"]):
                        if 1 <= hits(f'"{match}"') <= 20:
                            return str(match)
    raise LookupError("no phrase")


def search(rounds: str) -> dict[str, Any]:
    """How long an answer takes within the process that holds the Map open, warm."""
    settings = config.load(os.environ)
    places = settings.places
    reader = Reader(Queries(places.map_db), Vault([places.vault, *settings.vaults], settings.roots))
    chosen = words()
    found: dict[str, Any] = {**chosen, "ms": {}}
    for name, query in chosen["queries"].items():
        params = {"query": query, "all": True}
        for _ in range(3):
            total = answer(reader, "search", params)["total"]
        cpu = []
        for _ in range(int(rounds)):
            began = time.process_time()
            answer(reader, "search", params)
            cpu.append(1000 * (time.process_time() - began))
        found["ms"][name] = {**quantiles(cpu), "threads": total}
    return found


def block(source: str, megabytes: str) -> dict[str, Any]:
    """Records read from a compressed generation when no other copy of them is left."""
    home = Home()
    home.root.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as file:
        data = file.read(int(megabytes) << 20)
    data = data[: data.rfind(b"\n") + 1]
    generation = Path(home.places.vault) / "-home-dev-bench" / Path(source).stem / "v0-raw.jsonl.zst"
    generation.parent.mkdir(parents=True, mode=0o700)
    packed = compressed(data)
    generation.write_bytes(packed)
    spent, report = home.update()
    assert report.files_changed == 1 and not report.failed, report
    reader = Reader(Queries(home.places.map_db), home.vault)
    rows = home.map.db.execute("SELECT uuid FROM records WHERE length(uuid)=16 ORDER BY id").fetchall()
    ids = [str(UUID(bytes=uuid)) for (uuid,) in Random("block").sample(rows, min(400, len(rows)))]
    cpu: list[float] = []
    for number, identity in enumerate(ids):
        began = time.process_time()
        found = block_bytes(reader, {"id": identity})
        if number >= 5:
            cpu.append(1000 * (time.process_time() - began))
        assert identity.encode() in found
    home.close()
    return {**quantiles(cpu), "index_mb_per_s": len(data) / 1e6 / spent, "ratio": len(data) / len(packed)}


def compressed(data: bytes) -> bytes:
    """Independent frames of 1 MiB and a seek table behind them, as a generation is kept."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    frames = [zstd.compress(data[at : at + FRAME_BYTES]) for at in range(0, len(data), FRAME_BYTES)]
    sizes = [min(FRAME_BYTES, len(data) - at) for at in range(0, len(data), FRAME_BYTES)]
    rows = b"".join(
        len(frame).to_bytes(4, "little") + size.to_bytes(4, "little") for frame, size in zip(frames, sizes, strict=True)
    )
    footer = len(frames).to_bytes(4, "little") + b"\0" + 0x8F92EAB1.to_bytes(4, "little")
    table = rows + footer
    return b"".join(frames) + 0x184D2A5E.to_bytes(4, "little") + len(table).to_bytes(4, "little") + table


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    job.__name__: job for job in (versions, append, tail, rewrite, sweep, words, search, block)
}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](*sys.argv[2:])))
