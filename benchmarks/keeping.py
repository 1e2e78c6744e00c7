"""What is measured within fabled when it keeps and prunes: each job is a fresh process over the home its environment
names, and prints JSON.

What it is done on, and what the figures are held to, is left to `pruning`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from benchmarks.inside import Home, quantiles
from fabled import config
from fabled.answers import Reader, block_bytes
from fabled.errors import FabledError
from fabled.pruner import Pruner, opened
from fabled.store.queries import Queries
from fabled.transcript import sent

PER_MB = 1 << 20 if sys.platform == "darwin" else 1 << 10


class Kept:
    """The home with all that captures and prunes, as the writer has it."""

    def __init__(self) -> None:
        self.home = Home()
        self.pruner: Pruner = opened(config.load(os.environ), self.home.indexer)

    def session(self) -> tuple[str, Path]:
        """The largest live transcript, and the session it is."""
        path = self.home.transcripts()[0]
        return path.stem, path

    def close(self) -> None:
        self.pruner.finish()
        self.home.close()


class Clock:
    """CPU seconds within functions that are called by name; what one spends within another counts for the inner one."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inner = 0.0

    def watch(self, owner: Any, name: str, as_: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(as_):
                return original(*args, **kwargs)

        setattr(owner, name, timed)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        outer, self._inner = self._inner, 0.0
        began = time.process_time()
        try:
            yield
        finally:
            whole = time.process_time() - began
            self.spent[name] = self.spent.get(name, 0.0) + whole - self._inner
            self._inner = outer + whole


# Jobs


def savings(level: str) -> dict[str, Any]:
    """Every live transcript pruned; what became of each, by its path below the root."""
    kept = Kept()
    kept.home.update()
    found = {}
    before = {path: path.stat().st_size for path in kept.home.transcripts()}
    for path in before:
        try:
            value = kept.pruner.prune(path.stem, level, True)
            codes = [one["code"] for one in value["refused"]]
            said = [one["message"] for one in value["refused"]]
        except FabledError as fault:
            codes, said = [fault.code], [fault.message]
        except Exception as fault:  # one file that breaks it is a result, not the end of the others
            codes, said = [type(fault).__name__], [str(fault)]
        found[path] = {"before": before[path], "refused": codes, "said": said}
    kept.close()  # what is left of each file is known only when it ended
    return {
        "files": {
            os.path.relpath(path, kept.home.root): {**one, "after": path.stat().st_size} for path, one in found.items()
        }
    }


def requests(before: str, after: str) -> dict[str, Any]:
    """Which transcripts would be sent otherwise than before: `same`, `cut` (results of tools, pictures or thinking are
    shorter or gone) or `less` (a text of a person or model, a call or the result of one is not there)."""
    found = {}
    for path in sorted(Path(before).rglob("*.jsonl")):
        name = os.path.relpath(path, before)
        old, new = _view(path), _view(Path(after) / name)
        found[name] = "same" if old == new else "less" if _lacks(old, new) else "cut"
    return {"files": found}


Sent = list[tuple[str, str, str | None, bytes]]


def _view(path: Path) -> Sent:
    with open(path, "rb") as file:
        return [(one.role, one.kind, one.tool_id, one.digest) for one in sent.view(file)]


def _lacks(old: Sent, new: Sent) -> bool:
    loose = ("image", "document", "thinking", "redacted_thinking")
    said = [Counter(one for one in view if one[1] not in (*loose, "tool_result")) for view in (old, new)]
    tools = [[one[:3] for one in view if one[1] not in (*loose, "text")] for view in (old, new)]
    return bool(said[0] - said[1]) or tools[0] != tools[1]


def capture() -> dict[str, Any]:
    """The largest session brought into the Vault; the Map knows its live transcript already."""
    kept = Kept()
    kept.home.update()
    session_id, _ = kept.session()
    clock = Clock()
    clock.watch(kept.pruner.capturer.indexer, "update", "index")
    with clock.part("write"):
        value = kept.pruner.capturer.capture(session_id, "bench")
    made = value["generations"]
    assert made and not value["failed"], value
    kept.close()
    return {
        "spent": clock.spent,
        "mb": sum(one["logical_bytes"] for one in made) / 1e6,
        "packed_mb": sum(one["bytes"] for one in made) / 1e6,
        "rss_mb": _rss_mb(),
    }


def block() -> dict[str, Any]:
    """Records read from a generation of our own when their live transcript is gone."""
    kept = Kept()
    _, path = kept.session()
    path.unlink()
    kept.home.update()
    db = kept.home.map.db
    rows = db.execute(
        "SELECT r.uuid FROM records r JOIN copies c ON c.record=r.id JOIN files f ON f.id=c.file "
        "WHERE length(r.uuid)=16 AND f.path LIKE '%.jsonl.zst' GROUP BY r.id ORDER BY r.id"
    ).fetchall()
    ids = [str(UUID(bytes=uuid)) for (uuid,) in Random("block").sample(rows, min(400, len(rows)))]
    reader = Reader(Queries(kept.home.places.map_db), kept.home.vault, kept.home.places.ledger_db)
    cpu: list[float] = []
    for number, identity in enumerate(ids):
        began = time.process_time()
        found = block_bytes(reader, {"id": identity})
        if number >= 5:
            cpu.append(1000 * (time.process_time() - began))
        assert identity.encode() in found
    kept.close()
    return {**quantiles(cpu), "count": len(cpu)}


def index() -> dict[str, Any]:
    """Brings the Map up to date, so that it is no part of what comes next."""
    home = Home()
    spent, report = home.update()
    assert not report.failed, report
    home.close()
    return {"cpu": spent}


def prune(level: str, parts: str = "") -> dict[str, Any]:
    """The largest session pruned, whose bytes the Vault has already. `parts`: also how long each step takes."""
    kept = Kept()
    session_id, path = kept.session()
    size = path.stat().st_size
    with open(path, "rb") as file:
        longest = max(map(len, file), default=0)
    started = _rss_mb()
    clock = Clock()
    pruner = kept.pruner
    clock.watch(pruner.indexer, "update", "index")
    if parts:
        _watch(clock, pruner.capturer)
    with clock.part("rest"):
        value = pruner.prune(session_id, level, True)
    peak = _rss_mb()
    kept.close()
    assert value["applied"], value["refused"]
    return {
        "spent": clock.spent,
        "mb": size / 1e6,
        "after_mb": path.stat().st_size / 1e6,
        "longest_mb": longest / 1e6,
        "rss_mb": peak,
        "rss_before_mb": started,
        "changes": sum(one["records"] for one in value["rules"]),
    }


def _watch(clock: Clock, capturer: Any) -> None:
    """Where the time goes, by the parts of a prune."""
    from fabled.pruner import verb
    from fabled.transcript import proof, rules

    for name in ("survey", "plan", "carry_out"):
        clock.watch(rules, name, name)
    clock.watch(sent, "view", "view")
    clock.watch(proof, "prove", "prove")
    clock.watch(verb, "hold", "hold")
    clock.watch(capturer, "hold", "find the generation")
    clock.watch(verb, "misses", "gate")
    clock.watch(verb, "write_temp", "write the new file")
    clock.watch(verb, "swap", "swap")


def _rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PER_MB


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    job.__name__: job for job in (savings, requests, capture, block, index, prune)
}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](*sys.argv[2:])))
