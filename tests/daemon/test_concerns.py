"""What `status` warns of: each fact with its figures, and the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabled import config as configuration
from fabled.config import Config
from fabled.daemon.concerns import concerns
from fabled.daemon.observer import RootState, WatchState
from fabled.daemon.writer import Health, StorageWait
from fabled.store.ledger import Loss

EVENTS = WatchState("events", "", "", (RootState("/r", "watched"),), 0, 0)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return configuration.load({"FABLED_HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})


def told(settings: Config, counts: dict[str, Any], health: Health, watch: WatchState = EVENTS) -> dict[str, str]:
    found = concerns(counts, settings, health, watch, now=1000.0)
    return {one.code: f"{one.message} / {one.hint}" for one in found}


def test_all_well_is_silent(settings: Config) -> None:
    """Nothing wrong, no warning; a start under way is nothing wrong."""
    assert told(settings, {"wal_bytes": 64 << 20, "unparsed": 0, "near_cleanup": 0}, Health()) == {}
    starting = WatchState("starting", "", "", (RootState("/r", "unwatched"),), 0, 0)
    assert told(settings, {}, Health(), starting) == {}


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("locked", "locked", "another process has locked the Map"),
        ("full", "disk_full", "the disk is full"),
        ("failing", "storage", "no such device"),
    ],
)
def test_storage_that_waits(settings: Config, kind: Any, code: str, words: str) -> None:
    """Why changes wait, for how long, and what would help."""
    health = Health(storage=StorageWait(kind, "no such device", 988.0))
    said = told(settings, {}, health)[code]
    assert words in said and "waited for 12 s" in said and settings.places.data in said


def test_polling_and_missing_roots(settings: Config) -> None:
    """A way of watching that is not by events is told with its reason; each missing root by its name."""
    watch = WatchState("polling", "the limit is 3", "raise it", (RootState("/a", "waiting"),), 0, 0)
    said = told(settings, {}, Health(), watch)
    assert said["watcher"] == "changes are looked for every 30 s, not told by events: the limit is 3 / raise it"
    assert said["root_missing"].startswith("waiting for /a: there is no such folder / ")


def test_a_log_of_changes_that_grew(settings: Config) -> None:
    """Above 64 MB the Map's log of changes is a warning with its size."""
    assert "has grown to 65 MB" in told(settings, {"wal_bytes": 65 << 20}, Health())["wal"]


def test_losses(settings: Config) -> None:
    """Vanished sessions are counted and named, the first of many; a cut file says what it lost."""
    losses = [Loss("vanished", f"s{number}", f"/r/s{number}.jsonl", 1, 0, 3) for number in range(7)]
    said = told(settings, {}, Health(losses=tuple(losses)))["vanished"]
    assert said.startswith("vanished sessions without a copy: 7 (s0, s1, s2, s3, s4, …)")
    cut = Loss("shrunk", "s", "/r/s.jsonl", 1, 0, 4)
    assert "/r/s.jsonl lost 4 records that nothing else holds" in told(settings, {}, Health(losses=(cut,)))["shrunk"]
    kept = Loss("shrunk", "s", "/r/s.jsonl", 1, 5, 0)
    assert "lost 5 records, which the Vault still holds" in told(settings, {}, Health(losses=(kept,)))["shrunk"]


def test_transcripts_that_need_a_look(settings: Config) -> None:
    """Sessions about to be deleted, places that are no records, and files that cannot be read."""
    counts = {
        "near_cleanup": 2,
        "near_cleanup_sessions": [{"session_id": "s1"}, {"session_id": "s2"}],
        "unparsed": 3,
        "unparsed_spans": [{"path": "/r/a.jsonl", "line": 7}],
    }
    said = told(settings, counts, Health(failed=(("/r/b.jsonl", "Permission denied"), ("/r/c.jsonl", "odd"))))
    assert "2 sessions exist only as live transcripts" in said["cleanup"] and "(s1, s2)" in said["cleanup"]
    assert "3 places in transcripts are no records; the first: /r/a.jsonl, line 7" in said["unparsed"]
    assert "not read: /r/b.jsonl (Permission denied), and 1 more" in said["unreadable"]
