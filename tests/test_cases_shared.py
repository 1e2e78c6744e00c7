"""The shared cases on reading and finding hold: every span table, every search row, every line of their prose.

Skipped where the shared inputs do not lie beside the project: they are evidence kept apart from it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabled.answers import Reader, answer, block_bytes
from fabled.errors import StaleIndexError, Unreadable
from fabled.indexer import IndexReport
from fabled.store.queries import Queries
from fabled.transcript.record import uuid_text
from fabled.transcript.text import estimate
from tests.home import Home, differences, dump, rebuilt

CASES = (Path(__file__).resolve().parents[2] / "shared" / "cases").resolve()
READ = "A|E01|E02|E06|E08|E10"
NAMES = sorted(path.name for path in CASES.iterdir() if re.match(READ, path.name)) if CASES.is_dir() else []
pytestmark = pytest.mark.skipif(not NAMES, reason="the shared cases are not beside this project")
P = "-home-ana-app"


@dataclass
class Case:
    """A case in a home of its own, not yet indexed."""

    folder: Path
    home: Home
    expect: dict[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        """label → uuid."""
        told = dict(re.findall(r"([0-9a-f-]{36}) = (\w+) \|", (self.folder / "expect.md").read_text()))
        return {label: uuid for uuid, label in told.items()} | dict(self.expect.get("labels", {}))

    def place(self, file: str) -> Path:
        """Where a file of the case lies in the home."""
        parts = Path(file).parts[1:]
        return self.home.vault_folder / P / Path(*parts[1:]) if parts[0] == "vault" else self.home.root / Path(*parts)

    def only(self) -> Path:
        """The one live transcript of the case."""
        (path,) = self.home.root.glob("*/*.jsonl")
        return path

    def index(self) -> IndexReport:
        report = self.home.index()
        assert report.failed == ()
        assert self.home.faults() == []
        return report

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        queries = Queries(str(self.home.map_db))
        try:
            return answer(Reader(queries, self.home.vault), method, params)
        finally:
            queries.close()

    def block(self, name: str) -> bytes:
        queries = Queries(str(self.home.map_db))
        try:
            return block_bytes(Reader(queries, self.home.vault), {"id": name})
        finally:
            queries.close()

    def search(self, query: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("search", query=query, limit=100, **params)["results"]
        return found

    def named(self, uuids: list[str]) -> list[str]:
        """The labels of some uuids."""
        names = {uuid: label for label, uuid in self.labels.items()}
        return [names.get(uuid, uuid) for uuid in uuids]

    def shown(self, query: str, **params: Any) -> list[str]:
        """Labels of the records a search shows, one for each thread."""
        return self.named([row["uuid"] for row in self.search(query, **params)])

    def hits(self, word: str) -> list[str]:
        """Labels of all records that hold a word, forks folded."""
        rows = self.home.map.db.execute(
            "SELECT DISTINCT r.uuid FROM fts JOIN records r ON r.id=fts.rowid WHERE fts MATCH ? AND r.hidden&3=0",
            (" ".join(f'"{part}"' for part in word.split()),),
        )
        return sorted(self.named([uuid_text(uuid) for (uuid,) in rows]))

    def thread_of(self, label: str) -> list[str]:
        """Labels of what stands in the thread of a record, subagents and branches with it."""
        turns = self.ask("thread", id=self.labels[label], budget=0, subagents=True, branches=True)["turns"]
        return self.named([turn["uuid"] for turn in turns])

    def rows(self, sql: str) -> list[Any]:
        return list(self.home.map.db.execute(sql))


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[[str], Case]]:
    homes: list[Home] = []

    def begin(name: str) -> Case:
        folder = next(path for path in CASES.iterdir() if path.name.startswith(name))
        home_folder = tmp_path / folder.name
        home_folder.mkdir()
        home = Home(home_folder)
        homes.append(home)
        one = Case(folder, home, json.loads((folder / "expect.json").read_text()))
        for source in (folder / "input").rglob("*") if (folder / "input").is_dir() else ():
            if source.is_file():
                place = one.place("input/" + str(source.relative_to(folder / "input")))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
        return one

    yield begin
    for home in homes:
        home.close()


def spans_of(one: Case) -> dict[str, list[tuple[str, int, int, int, str | None]]]:
    """File → the spans the case tells of, in order."""
    told: dict[str, list[tuple[str, int, int, int, str | None]]] = {}
    for key, kind in (("copies", "record"), ("no_uuid", "no_uuid"), ("unparsed", "unparsed"), ("pending", "pending")):
        for row in one.expect.get(key, []):
            span = (kind, row["line"], row["offset"], row["length"], row.get("uuid"))
            told.setdefault(row["file"], []).append(span)
    return {file: sorted(spans, key=lambda span: span[2]) for file, spans in told.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_span_tables_are_reproduced(name: str, case: Callable[[str], Case]) -> None:
    """Of every file of a case the spans are exactly those of its table, every byte accounted for, in the Map too."""
    one = case(name.split("-")[0])
    told = spans_of(one)
    if not told:
        pytest.skip("this case has no table of spans")
    one.index()
    for file, expected in told.items():
        path = one.place(file)
        found = list(one.home.vault.spans(str(path)))
        assert [(s.kind, s.line, s.offset, s.length, s.uuid) for s in found if s.kind != "separator"] == expected
        assert sum(span.length for span in found) == path.stat().st_size
        stored = one.home.map.db.execute(
            "SELECT CASE length(r.uuid) WHEN 16 THEN 'record' ELSE 'no_uuid' END,c.line,c.offset,c.length,"
            "CASE length(r.uuid) WHEN 16 THEN hex(r.uuid) END FROM copies c JOIN records r ON r.id=c.record "
            "JOIN files f ON f.id=c.file WHERE f.path=?1 UNION ALL SELECT "
            "CASE g.kind WHEN 1 THEN 'unparsed' ELSE 'pending' END,g.line,g.offset,g.length,NULL "
            "FROM gaps g JOIN files f ON f.id=g.file WHERE f.path=?1 ORDER BY 3",
            (os.path.realpath(path),),
        ).fetchall()
        plain = [
            (kind, line, at, size, uuid.replace("-", "").upper() if uuid else None)
            for kind, line, at, size, uuid in expected
        ]
        assert stored == plain
        for kind, _, offset, length, uuid in expected[:: 1 + len(expected) // 100]:
            if kind == "record":
                session = json.loads(path.read_bytes()[offset : offset + length].decode("utf-8", "replace")).get(
                    "sessionId"
                )
                own = f"{uuid}@{session}" if session and name.startswith("A17") else str(uuid)
                assert one.block(own) == path.read_bytes()[offset : offset + length]


@pytest.mark.parametrize("name", NAMES)
def test_the_search_rows_hold(name: str, case: Callable[[str], Case]) -> None:
    """For every query of a case each hit's thread is found and the record shown is a hit; a word finds nothing else."""
    one = case(name.split("-")[0])
    queries = [*one.expect.get("search", []), *one.expect.get("strict_search", [])]
    if not queries or name.startswith("E06"):
        pytest.skip("this case has no searches, or a test of its own")
    one.index()
    for row in queries:
        found = one.search(row["q"])
        hits = [one.labels[label] for label in row["hits"]]
        shown = [result["uuid"] for result in found]
        wanted = {one.ask("thread", id=uuid, budget=1)["thread"] for uuid in hits}
        assert wanted <= {result["thread"] for result in found}, (row["q"], one.named(shown))
        assert set(shown[: len(wanted)]) <= set(hits), (row["q"], one.named(shown))
        if len(row["q"].split()) < 2 or '"' in row["q"] or not hits:
            assert set(shown) <= set(hits), (row["q"], one.named(shown))
        assert not re.search(r"sqlite|fts5|no such column|syntax error", json.dumps(found), re.IGNORECASE)


@pytest.mark.parametrize("name", NAMES)
def test_a_rebuild_of_a_case_says_the_same(name: str, case: Callable[[str], Case], tmp_path: Path) -> None:
    """Indexed file by file, and again after a restart, a case gives the Map of a rebuild."""
    one = case(name.split("-")[0])
    for path in sorted(one.home.root.rglob("*.jsonl"), reverse=True):
        one.home.index(str(path.relative_to(one.home.root)))
        one.home.reopen()
    one.index()
    assert differences(dump(one.home.map_db), rebuilt(one.home, tmp_path)) == []


# The prose of the cases


def test_a01(case: Callable[[str], Case]) -> None:
    """Glued records are all there, and none orphans what follows it."""
    one = case("A01")
    report = one.index()
    assert (report.records, report.unparsed) == (7, 0)
    assert {"u2", "a2"} <= set(one.thread_of("u2"))


def test_a02(case: Callable[[str], Case]) -> None:
    """Torn prefixes are counted, with file and line, and the chain of prompts stays whole."""
    one = case("A02")
    assert one.index().unparsed == 2
    listed = one.ask("status_counts")
    assert [(span["path"], span["line"]) for span in listed["unparsed_spans"]] == [
        (str(one.only()), 2),
        (str(one.only()), 3),
    ]
    for later, before in (("u3", "u2"), ("u2", "u1")):
        thread = one.ask("thread", id=one.labels[later])
        assert thread["previous"] == one.ask("thread", id=one.labels[before])["thread"]


def test_a04(case: Callable[[str], Case]) -> None:
    """What is appended behind a tail of zeros is a record where the file ended."""
    one = case("A04")
    report = one.index()
    assert (report.records, report.unparsed) == (4, 4)
    size = one.only().stat().st_size
    appended = (one.folder / "append.jsonl").read_bytes()
    with one.only().open("ab") as file:
        file.write(appended)
    assert one.index().records == 5
    assert one.rows(f"SELECT length FROM copies WHERE offset={size}") == [(len(appended.rstrip(b"\n")),)]
    assert one.hits("plover migration")[:2] == ["a1", "u1"]


def test_a05(case: Callable[[str], Case]) -> None:
    """A half-written line is waited for over a restart, and then counted once at its own place."""
    one = case("A05")
    report = one.index()
    assert (report.records, report.unparsed, report.pending_bytes) == (2, 0, 337)
    assert one.rows("SELECT resume_offset FROM files") == [(878,)]
    one.home.reopen()
    with one.only().open("ab") as file:
        file.write((one.folder / "append.jsonl").read_bytes())
    report = one.index()
    assert (report.records, report.unparsed, report.pending_bytes) == (4, 0, 0)
    for after in one.expect["after"]:
        assert one.rows(f"SELECT line,length FROM copies WHERE offset={after['offset']}") == [
            (after["line"], after["length"])
        ]
    assert [row["uuid"] for row in one.search("größe")] == [one.expect["after"][0]["uuid"]]


def test_a07(case: Callable[[str], Case]) -> None:
    """Half a character is found by the words around it, shown as U+FFFD and kept as it was written."""
    one = case("A07")
    assert one.index().records == 4
    assert b"\\ud83d" in one.block(one.labels["t1"])
    for method, params in (("search", {"query": "avocet"}), ("thread", {"id": one.labels["t1"]})):
        json.dumps(one.ask(method, **params), ensure_ascii=False).encode()


def test_a13(case: Callable[[str], Case]) -> None:
    """Bookkeeping first, unknown types between: the session is found, the chain holds, titles are no hits."""
    one = case("A13")
    report = one.index()
    assert (report.records, report.no_uuid) == (4, 8)
    assert "a1" in one.thread_of("u1")
    assert set(one.hits("smew")) == {"u1", "a1"}
    assert one.rows("SELECT count(*) FROM sessions") == [(1,)]


def test_a14(case: Callable[[str], Case]) -> None:
    """Content of any shape is read, pictures are not searched."""
    one = case("A14")
    assert one.index().records == 13
    assert one.hits("teal") == sorted(["u1", "u2", "u3", "u6", "u7", "u8", "a1"])
    assert one.search("iVBORw0K") == []


def test_a17(case: Callable[[str], Case]) -> None:
    """Copies of a fork are one hit in one thread, read from the original's session, and never counted again."""
    one = case("A17")
    report = one.index()
    assert one.rows("SELECT count(*) FROM copies") == [(9,)]
    assert report.records == 7  # one a session and uuid; the second file's copies keep the first session's id
    (found,) = one.search("gadwall")
    first = "57ede2bf-95a5-57d4-90e8-d80d2c6ec803"
    assert found["session_id"] == first == one.ask("block", id=one.labels["u1"])["session_id"]
    assert len(found["also_in"]) == 2
    assert one.hits("gadwall") == ["a1", "u1"]
    assert one.thread_of("u1") == ["u1", "a1"]
    for label in ("f1", "u2"):
        thread = one.ask("thread", id=one.labels[label], budget=0)
        assert one.named([turn["uuid"] for turn in thread["turns"]]) == [label]
        assert thread["previous"] == found["thread"]
    assert one.ask("block", id=one.labels["f1"])["session_id"] == "ded7e661-8007-545e-af04-3ffde4ca3325"
    assert found["turns"] == 2


def test_a19(case: Callable[[str], Case]) -> None:
    """Subagents of every layout are one session, attached to the turn that launched them; other files are no hits."""
    one = case("A19")
    assert one.index().records == 9
    assert one.rows("SELECT count(*) FROM sessions") == [(1,)]
    thread = one.ask("thread", id=one.labels["u1"], budget=0, subagents=True)
    labels = {
        name: turn["label"]
        for name, turn in zip(one.named([t["uuid"] for t in thread["turns"]]), thread["turns"], strict=True)
    }
    assert labels == {
        **dict.fromkeys(("u1", "a1", "a2"), "main"),
        **dict.fromkeys(("old1u", "old1a", "new1u", "new1a", "deepu", "deepa"), "sidechain"),
    }
    assert one.hits("godwit") == ["new1a", "new1u"]
    assert {row["thread"] for row in one.search("godwit")} == {thread["thread"]}
    assert one.rows("SELECT count(*) FROM files") == [(4,)]


def test_a20(case: Callable[[str], Case]) -> None:
    """A project is the cwd its folder was named for; two may share a folder, none is a neighbour's."""
    one = case("A20")
    one.index()
    project = {one.named([row["uuid"]])[0]: row["project"] for row in one.search("pintail")}
    assert len(project) == 8
    assert {label: project[label] for label in ("dash", "space", "dash2", "cjk1", "cjk2")} == {
        "dash": "/home/ana/src/my-tool.io",
        "space": "/home/ana/Open Source/app",
        "dash2": "/home/ana/Open-Source/app",
        "cjk1": "/home/ana/外注/app",
        "cjk2": "/home/ana/社内/app",
    }
    assert project["win1"] == project["win2"]
    assert project["wt"] in (
        "/home/ana/app",
        json.loads(next(one.home.root.glob("*worktrees*/*.jsonl")).read_text())["cwd"],
    )
    assert one.shown("pintail", project="/home/ana/外注/app") == ["cjk1"]
    for nothing in ("/home/ana/Open", "/home/ana/src", "no such project"):
        assert one.search("pintail", project=nothing) == []


def test_a23(case: Callable[[str], Case], tmp_path: Path) -> None:
    """What only the Vault holds is read there, by a rebuild too; what is nowhere is told; a root away costs nothing."""
    one = case("A23")
    first = next(
        path for path in one.home.root.glob("*/*.jsonl") if b'"uuid":"' + one.labels["u1"].encode() in path.read_bytes()
    )
    (other,) = [path for path in one.home.root.glob("*/*.jsonl") if path != first]
    data = {path: path.read_bytes() for path in (first, other)}
    generation = one.home.vault_folder / P / first.stem / "v0-raw.jsonl"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(data[first])
    one.index()
    (one.home.root / "-home-ana-keep").mkdir()
    for path in data:
        path.unlink()
    assert one.index().vanished == 1

    def after_step_two() -> None:
        for label in ("u1", "a1"):
            block = one.ask("block", id=one.labels[label])
            assert block["copies"][0]["path"] == str(generation)
            assert one.block(one.labels[label]) in data[first]
        assert one.rows(
            f"SELECT count(*) FROM records WHERE hex(uuid)='{one.labels['v1'].replace('-', '').upper()}'"
        ) == [(0,)]

    after_step_two()
    assert [(loss.kind, loss.session_id, loss.nowhere) for loss in one.home.ledger.losses()] == [
        ("vanished", other.stem, 1)
    ]
    one.home.close()
    one.home.map_db.unlink()
    one.home.open()
    one.index()
    after_step_two()
    assert len(one.home.ledger.losses()) == 1
    for path, content in data.items():
        path.write_bytes(content)
    one.index()
    before = dump(one.home.map_db)
    one.home.root.rename(tmp_path / "away")
    report = one.home.index()
    assert (report.vanished, report.waiting) == (0, (str(one.home.root),))
    assert one.search(json.loads(data[other])["message"]["content"])
    with pytest.raises(Unreadable):
        one.block(one.labels["v1"])
    (tmp_path / "away").rename(one.home.root)
    one.index()
    assert differences(dump(one.home.map_db), before) == []


def test_a24(case: Callable[[str], Case]) -> None:
    """A transcript rewritten to a stub is whole in the Vault, and the loss is told."""
    one = case("A24")
    stub = one.only().read_bytes()
    (generation,) = one.home.vault_folder.rglob("v0-raw.jsonl")
    one.only().write_bytes(generation.read_bytes() + stub)
    one.index()
    one.only().write_bytes(stub)
    assert one.index().vanished == 0
    for best in one.expect["best"]:
        assert one.ask("block", id=best["uuid"])["copies"][0]["path"] == str(one.place(best["file"]))
    assert one.hits("sanderling") == ["a1", "u1"]
    assert [(loss.kind, loss.in_vault, loss.nowhere) for loss in one.home.ledger.losses()] == [("shrunk", 3, 0)]


def test_a24_seen_for_the_first_time(case: Callable[[str], Case]) -> None:
    """Also where the talk was gone from the live file before it was ever indexed, the loss is told."""
    one = case("A24")
    one.index()
    assert one.shown("sanderling") != []
    assert [(loss.kind, loss.in_vault) for loss in one.home.ledger.losses()] == [("shrunk", 3)]


def test_a25(case: Callable[[str], Case]) -> None:
    """Rewritten longer, as long, and under the same stamp: no old words, and never bytes that are not the record's."""
    one = case("A25")
    path, first = one.only(), one.only().read_bytes()
    one.index()
    assert one.shown("INCONE") == ["u1"]

    def rewrite(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()

    rewrite((one.folder / "step2-longer.jsonl").read_bytes())
    one.index()
    assert (len(one.search("INCEDIT")), one.search("INCONE")) == (1, [])
    found = one.search("INCEDIT")[0]["uuid"]
    assert one.block(found) in path.read_bytes()
    third = (one.folder / "step3-same-size.jsonl").read_bytes()
    rewrite(third)
    os.utime(path, (1_772_000_000, 1_772_000_000))
    one.index()
    assert (len(one.search("INCTWO")), one.search("INCEDIT")) == (1, [])
    stamp = path.stat()
    rewrite(first)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    for (uuid,) in one.rows("SELECT uuid FROM records"):
        try:
            data = one.block(uuid_text(uuid))
        except StaleIndexError:
            continue
        assert json.loads(data)["uuid"] == uuid_text(uuid)
        assert data in third
    with pytest.raises(StaleIndexError):
        one.block(one.search("INCTWO")[0]["uuid"])
    os.utime(path)
    one.index()
    assert (one.shown("INCONE"), one.search("INCTWO")) == (["u1"], [])


def test_a26(case: Callable[[str], Case]) -> None:
    """Recalled text is cited, not found, and comes back byte for byte; indexing it again changes nothing."""
    one = case("A26")
    one.index()
    assert one.hits("redshank") == ["a1", "u1"]
    cited = {
        (uuid_text(uuid), ref)
        for uuid, ref in one.rows("SELECT r.uuid,c.ref FROM citations c JOIN records r ON r.id=c.record")
    }
    arcs = ("587aa158-62d1-5c4d-a561-08fa44d973b7", "e7d802a2-c1bb-58e2-a3c7-2dc4d9cbf5c2")
    assert cited == {(one.labels[label], arc) for label in ("t1", "u2", "t2", "t3", "t4") for arc in arcs}
    assert b"<historical_context" in one.block(one.labels["t1"])
    before = dump(one.home.map_db)
    one.only().write_bytes(one.only().read_bytes())
    one.index()
    assert differences(dump(one.home.map_db), before) == []
    assert one.hits("mutex") == ["a1"]


def test_a29(case: Callable[[str], Case]) -> None:
    """A broken graph ends: threads as told, the rest unattached and found, a long thread within its budget."""
    one = case("A29")
    assert one.index().records == 3_011
    assert one.thread_of("u1") == ["u1", "a1"]
    assert set(one.thread_of("u2")) - {"cb"} == {"u2", "a3"}
    assert one.rows(
        "SELECT count(*) FROM records r JOIN threads t ON t.id=r.thread WHERE t.prompt=(SELECT t.prompt FROM records r "
        f"JOIN threads t ON t.id=r.thread WHERE hex(r.uuid)='{one.labels['late'].replace('-', '').upper()}')"
    ) == [(3_002,)]
    loose = one.rows(
        "SELECT r.uuid FROM records r LEFT JOIN threads t ON t.id=r.thread WHERE t.prompt IS NULL AND r.kind>0"
    )
    assert sorted(one.named([uuid_text(uuid) for (uuid,) in loose])) == ["a2", "c1", "c2", "self"]
    (session,) = one.rows("SELECT session_id FROM sessions")[0]
    listed = one.ask("thread", id=f"unattached@{session}", budget=0)["turns"]
    assert set(one.named([turn["uuid"] for turn in listed])) >= {"a2", "self", "c1", "c2"}
    assert one.ask("status_counts")["unattached"] >= 4
    thread = one.ask("thread", id=one.labels["late"], budget=500)
    assert sum(estimate(turn["text"]) for turn in thread["turns"]) <= 750
    assert thread["turns"][-1]["truncated"] or thread["omitted"]
    assert len(thread["turns"]) < 200


def test_a33(case: Callable[[str], Case]) -> None:
    """A line of 16 MB is one record, exact to the byte; its neighbours are found, its text is elided in the thread."""
    one = case("A33")
    path = one.home.root / P / "09d4db72-33ec-5f26-b098-987e15514c0c.jsonl"
    path.parent.mkdir(parents=True)
    subprocess.run([sys.executable, str(one.folder / "make_input.py"), str(path)], check=True)
    assert one.index().records == 3
    assert [(s.kind, s.line, s.offset, s.length) for s in one.home.vault.spans(str(path)) if s.kind != "separator"] == [
        ("record", 1, 0, 379),
        ("record", 2, 380, 16_777_670),
        ("record", 3, 16_778_051, 501),
    ]
    (found,) = one.search("oystercatcher")
    assert found["uuid"] == "f752b701-0240-57a8-ab3b-d2fe76f0177a"
    huge = "0eed6184-c42c-50d3-8d9f-7a2909936643"
    assert len(one.block(huge)) == 16_777_670
    (turn,) = [turn for turn in one.ask("thread", id=found["thread"])["turns"] if turn["uuid"] == huge]
    assert turn["truncated"]
    assert f"[truncated — fabled block {huge}]" in turn["text"]
    assert len(turn["text"]) < 100_000


def test_e01(case: Callable[[str], Case]) -> None:
    """The literal spelling comes first."""
    one = case("E01")
    one.index()
    assert one.shown("foo-bar")[0] == "k1"
    assert one.shown("foo.bar()")[0] == "k4"


def test_e02(case: Callable[[str], Case]) -> None:
    """Exactly the texts that hold the words are found, and what is marked are the letters asked for."""
    one = case("E02")
    one.index()
    for row in one.expect["search"]:
        assert sorted(one.shown(row["q"])) == row["hits"], row["q"]
    for query in ("部署", "部署方案", "gen-itgc", "しりとり"):
        (found,) = one.search(query)
        assert [found["snippet"][start:end] for start, end in found["highlights"]] == [query]
    assert one.shown("部") == ["z1"]


def test_e06(case: Callable[[str], Case]) -> None:
    """The thread that decides comes before the one that asks, and both before the one that mentions everything."""
    one = case("E06")
    one.index()
    asked, decided = "d698596a-3b95-5ff2-8b59-cbc2b09ac0c9", "dc5e08d9-6400-5d6c-816b-9d71fbf0a01a"
    pm, pq, pa = (one.ask("thread", id=uuid, budget=1)["thread"] for uuid in (one.labels["m0"], asked, decided))
    assert [row["thread"] for row in one.search("sandpiper webhook retention")] == [pa, pq, pm]
    found = [row["thread"] for row in one.search("webhook")]
    assert found.count(pm) == 1 and pa in found[:3]
    first = one.search("retention 14 days")[0]
    assert (first["thread"], first["uuid"]) == (pa, decided)


def test_e08(case: Callable[[str], Case]) -> None:
    """Snippets and threads are cut between characters, at any budget."""
    one = case("E08")
    one.index()
    found = one.search("heron")
    assert len(found) == 6
    for row in found:
        assert "heron" in row["snippet"]
        assert "\ufffd" not in row["snippet"]
        for budget in range(1, 600, 23):
            text = json.dumps(one.ask("thread", id=row["thread"], budget=budget), ensure_ascii=False)
            assert "\ufffd" not in text
            text.encode()


SECRETS = re.compile(
    rb"sk-ant-[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{12,}|AKIA[A-Z0-9]{12,}|BEGIN [A-Z ]*PRIVATE KEY-----\S*"
)


def test_e10(case: Callable[[str], Case]) -> None:
    """Credentials are masked in snippets and threads, hashes are not, and blocks are verbatim."""
    one = case("E10")
    one.index()
    data = one.only().read_bytes()
    secrets = {found[0].decode() for found in re.finditer(SECRETS, data)}
    assert len(secrets) >= 3
    found = one.search("lapwing")
    shown = json.dumps([found, *(one.ask("thread", id=row["thread"], budget=0) for row in found)], ensure_ascii=False)
    for secret in secrets:
        assert secret not in shown
        assert secret not in json.dumps(one.search(secret)[:5])
    hashed = json.loads(one.block(one.labels["u2"]))["message"]["content"]
    for value in re.findall(r"[0-9a-f]{32,64}|[0-9a-f]{8}-[0-9a-f-]{27}", hashed):
        assert value in shown
    assert all(one.block(uuid) in data for uuid in one.labels.values())
    assert stat.S_IMODE(one.home.map_db.stat().st_mode) == 0o600
