"""Real transcripts of many client versions index without a fault, and every talk in them belongs to a thread.

Skipped where the shared inputs do not lie beside the project.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabled.transcript.record import loads, uuid_bytes
from tests.home import Home, differences, dump, rebuilt

SHARED = (Path(__file__).resolve().parents[2] / "shared" / "transcripts").resolve()
TREES = ("real", "skeleton", "synthetic")
ROOTS = [SHARED / tree for tree in TREES] + sorted((SHARED / "client").glob("*/projects")) if SHARED.is_dir() else []
pytestmark = pytest.mark.skipif(not ROOTS, reason="the shared transcripts are not beside this project")
FILES = sorted(path for root in ROOTS for path in root.rglob("*.jsonl"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SHARED))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """All of them in one Map, read where they lie."""
    one = Home(tmp_path_factory.mktemp("transcripts"))
    one.vault.roots = tuple(map(str, ROOTS))
    one.report = one.index()  # type: ignore[attr-defined]
    yield one
    one.close()


def test_all_of_them_index_without_a_fault(home: Home) -> None:
    """No file fails, none is left out, and the deep check finds nothing."""
    report: Any = home.report  # type: ignore[attr-defined]
    assert report.failed == ()
    assert report.scans == len(FILES) == len(list(home.map.db.execute("SELECT 1 FROM files")))
    assert report.bytes_read == pytest.approx(sum(path.stat().st_size for path in FILES), abs=len(FILES))
    assert home.faults() == []


def test_a_second_pass_reads_nothing(home: Home) -> None:
    """Nothing changed, nothing read."""
    again = home.index()
    assert (again.scans, again.bytes_read) == (0, 0)


def test_every_byte_is_accounted_for(home: Home) -> None:
    """Spans tile each file; what is unparsed or pending is what the evidence tells of: nothing in real sessions."""
    for path in FILES:
        spans = list(home.vault.spans(str(path)))
        assert [span.offset for span in spans] == [0, *(s.offset + s.length for s in spans)][: len(spans)], name_of(
            path
        )
        assert sum(span.length for span in spans) == path.stat().st_size, name_of(path)
        if "synthetic" not in path.parts:
            assert [span for span in spans if span.kind in ("unparsed", "pending")] == [], name_of(path)


@pytest.mark.parametrize("tree", ["real", "client"])
def test_the_talk_of_every_file_belongs_to_threads(tree: str, home: Home) -> None:
    """At least 99 % of the user and assistant records of each file are in a thread; of a small file all but one."""
    rows = home.map.db.execute(
        "SELECT f.path, count(*), sum(t.prompt IS NULL) FROM copies c JOIN files f ON f.id=c.file "
        "JOIN records r ON r.id=c.record JOIN names n ON n.id=r.type LEFT JOIN threads t ON t.id=r.thread "
        "WHERE n.text IN ('user','assistant') GROUP BY f.id"
    )
    poor = {
        name_of(Path(path)): (all_of_them, loose)
        for path, all_of_them, loose in rows
        if Path(path).relative_to(SHARED).parts[0] == tree and loose > (1 if all_of_them < 100 else all_of_them * 0.01)
    }
    assert poor == {}


def test_parallel_tool_calls_are_complete(home: Home) -> None:
    """All calls of one message are in one thread, and each result is where its call is.

    Only where a file begins with a call whose prompt was cut off may its result alone know the thread.
    """
    thread_of = {
        (session, uuid): (thread, prompt)
        for session, uuid, thread, prompt in home.map.db.execute(
            "SELECT s.session_id,r.uuid,r.thread,t.prompt FROM records r JOIN sessions s ON s.id=r.session "
            "LEFT JOIN threads t ON t.id=r.thread WHERE length(r.uuid)=16"
        )
    }
    messages: dict[tuple[str, str], set[Any]] = defaultdict(set)
    calls: dict[tuple[str, str], Any] = {}
    apart, pairs = [], 0
    for path in FILES:
        for line in path.read_bytes().split(b"\n"):
            try:
                record = loads(line)
            except ValueError:
                continue
            message = record.get("message") if isinstance(record, dict) else None
            uuid = uuid_bytes(record.get("uuid")) if isinstance(record, dict) else None
            if not isinstance(message, dict) or uuid is None or not isinstance(message.get("content"), list):
                continue
            session = record.get("sessionId") or path.stem
            thread = thread_of[(session, uuid)]
            if record["type"] == "assistant" and isinstance(message.get("id"), str):
                messages[(session, message["id"])].add(thread)
            for block in message["content"]:
                if not isinstance(block, dict):
                    continue
                if block.get("type") == "tool_use":
                    calls.setdefault((session, block["id"]), thread)
                elif block.get("type") == "tool_result" and (session, block["tool_use_id"]) in calls:
                    pairs += 1
                    call = calls[(session, block["tool_use_id"])]
                    if call != thread and call[1] is not None:
                        apart.append((name_of(path), record["uuid"]))
    assert pairs > 1_500
    assert apart == []
    assert {key: threads for key, threads in messages.items() if len(threads) > 1} == {}


def test_no_record_is_in_two_threads_of_a_session(home: Home) -> None:
    """A session has each uuid once, in one thread, and each thread key once."""
    db = home.map.db
    assert list(db.execute("SELECT session,uuid FROM records GROUP BY session,uuid HAVING count(*)>1")) == []
    assert list(db.execute("SELECT session,prompt FROM threads GROUP BY session,prompt HAVING count(*)>1")) == []
    assert (
        list(db.execute("SELECT r.id FROM records r JOIN threads t ON t.id=r.thread WHERE t.session<>r.session")) == []
    )


def test_forks_are_folded(home: Home) -> None:
    """Of every uuid that several sessions hold, exactly one record is shown."""
    rows = home.map.db.execute(
        "SELECT uuid, sum(hidden&1=0) FROM records WHERE length(uuid)=16 GROUP BY uuid HAVING count(*)>1"
    ).fetchall()
    assert len(rows) > 100
    assert {shown for _, shown in rows} == {1}


def test_the_order_of_files_decides_nothing(home: Home, tmp_path: Path) -> None:
    """Indexed file by file from the last to the first, the Map is the one that a single pass makes."""
    (tmp_path / "home").mkdir()
    other = Home(tmp_path / "home")
    other.vault.roots = home.vault.roots
    for path in reversed(FILES):
        other.indexer.update([str(path)], count=False)
    assert differences(dump(other.map_db), dump(home.map_db)) == []
    other.close()


def test_cut_anywhere_and_grown_the_map_is_the_same(tmp_path: Path) -> None:
    """Transcripts seen first as a part, cut within a line, and then whole, give the Map of the whole ones."""
    (tmp_path / "home").mkdir()
    home = Home(tmp_path / "home")
    chosen = [path for path in FILES if path.stat().st_size < 200_000][::3]
    for number, path in enumerate(chosen):
        data = path.read_bytes()
        at = (number * 7919) % (len(data) + 1)
        relative = f"{number}/{path.name}"
        home.write(relative, data[:at])
        home.index(relative)
        home.append(relative, data[at:])
    report = home.index()
    assert report.failed == ()
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []
    assert home.faults() == []
    home.close()
