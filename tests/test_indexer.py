"""The Map follows its files: what changed is read once, what is proved gone is forgotten, faults cost nothing."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from fabled.errors import NewerSchema, StorageFault
from fabled.indexer import file, scan
from fabled.store import schema
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.transcript import record as r
from fabled.transcript.record import uuid_text
from tests import packed
from tests.build import Transcript, line, make_uuid
from tests.home import Home, differences, dump, rebuilt
from tests.rights import closed, unprivileged

P = "-home-ana-app"
SLACK = 64 << 10
"""Bytes that may be read beside the tail of a file that grew (PERFORMANCE)."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home whose Map equals a rebuild and has no faults when the test is done, unless the test says otherwise."""
    (tmp_path / "home").mkdir()
    one = Home(tmp_path / "home")
    yield one
    one.close()


def settled(home: Home, rebuild: bool = True) -> None:
    """Nothing is wrong with the Map, and a rebuild from the same files says the same."""
    assert home.faults() == []
    if rebuild:
        folder = home.path / "again"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        assert differences(dump(home.map_db), rebuilt(home, folder)) == []


def hits(home: Home, word: str) -> list[str]:
    """Uuids of the records that a search for one word finds."""
    db = apsw.Connection(str(home.map_db), flags=apsw.SQLITE_OPEN_READONLY)
    rows = db.execute(
        "SELECT r.uuid FROM fts JOIN records r ON r.id=fts.rowid WHERE fts MATCH ? AND r.hidden=0", (f'"{word}"',)
    ).fetchall()
    db.close()
    return sorted(uuid_text(uuid) for (uuid,) in rows)


def hexed(record: dict[str, Any]) -> str:
    """A record's uuid as SQL's hex() shows it."""
    return str(record["uuid"]).replace("-", "").upper()


def rows(home: Home, sql: str) -> list[Any]:
    db = apsw.Connection(str(home.map_db), flags=apsw.SQLITE_OPEN_READONLY)
    found = db.execute(sql).fetchall()
    db.close()
    return found


def story(name: str = "story", size: int = 3_000, new_style: bool = True) -> Transcript:
    """A session of at least so many bytes."""
    talk = Transcript(session=make_uuid(name), new_style=new_style)
    written = 0
    while written < size:
        if talk.count % 9 == 0:
            talk.user(f"question {talk.count} about plover")
        elif talk.count % 9 in (3, 4):
            talk.result(
                talk.call("Bash", {"command": f"make {talk.count}"}), f"made {talk.count} " + "x" * (talk.count % 700)
            )
        else:
            talk.assistant(f"answer {talk.count}: " + "word " * (talk.count % 60))
        written = sum(map(len, talk.lines)) if written < 5_000 else written + len(talk.lines[-1])
    return talk


def path_of(talk: Transcript) -> str:
    return f"{P}/{talk.session}.jsonl"


def age(path: Path) -> Path:
    """Makes a file look as if it was written a while ago: an old stamp is proof enough."""
    touch(path, path.stat().st_mtime - 60)
    return path


def put(home: Home, talk: Transcript, folder: str = P) -> str:
    """Puts a transcript in place; where it lies below the root."""
    age(home.write(f"{folder}/{talk.session}.jsonl", talk.data))
    return f"{folder}/{talk.session}.jsonl"


def grow(home: Home, talk: Transcript, word: str) -> dict[str, Any]:
    """One more reply, appended."""
    reply = talk.assistant(f"one more word: {word}")
    home.append(path_of(talk), talk.lines[-1] + b"\n")
    return reply


@contextmanager
def full_text_writes(home: Home) -> Iterator[list[str]]:
    """The statements that write to the full text meanwhile."""
    seen: list[str] = []

    def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if re.match(r"\s*(INSERT|DELETE|UPDATE)\b.*\bfts\b", sql) and "fts(fts" not in sql:
            seen.append(sql)
        return True

    home.map.db.exec_trace = trace
    try:
        yield seen
    finally:
        home.map.db.exec_trace = None


def touch(path: Path, seconds: float) -> None:
    """Sets a file's time."""
    os.utime(path, ns=(int(seconds * 1e9), int(seconds * 1e9)))


# What changed, and nothing else, is read


@pytest.mark.parametrize("size", [300, 5_000, 47_000, 52_000, 300_000, 3_000_000])
def test_an_append_costs_its_own_bytes(size: int, home: Home) -> None:
    """Whatever a file's size, one more record costs that record and at most 64 KB for the proof of the prefix."""
    talk = story(size=size)
    path = put(home, talk)
    home.index()
    for number in range(5):
        reply = grow(home, talk, f"lapwing{number}")
        report = home.index(path)
        assert report.bytes_read <= len(talk.lines[-1]) + 1 + SLACK
        assert (report.scans, report.whole_scans, report.files_changed) == (1, 0, 1)
        assert hits(home, f"lapwing{number}") == [reply["uuid"]]
        if number == 2:
            home.reopen()
    settled(home)


def test_an_append_to_a_file_with_odd_lines_costs_no_more(home: Home) -> None:
    """Unparsed spans in the prefix change nothing of that."""
    talk = story(size=200_000)
    for at in (3, 30, 100):
        talk.lines.insert(at, b"\0" * 5_000)
        talk.lines.insert(at, b'{"torn":"')
    path = put(home, talk)
    home.index()
    reply = grow(home, talk, "lapwing")
    report = home.index(path)
    assert report.bytes_read <= len(talk.lines[-1]) + 1 + SLACK
    assert report.whole_scans == 0
    assert hits(home, "lapwing") == [reply["uuid"]]
    settled(home)


def test_a_partial_line_is_read_again_from_its_start(home: Home) -> None:
    """The half-written line costs its own bytes once more, and is a record when it is whole, at its own place."""
    talk = story(size=100_000)
    whole = talk.data
    late = talk.user("größe of the lapwing")
    cut = talk.lines[-1].index("ö".encode()) + 1
    path = home.write(path_of(talk), whole + talk.lines[-1][:cut])
    first = home.index()
    assert (first.pending_bytes, first.unparsed) == (cut, 0)
    assert hits(home, "lapwing") == []
    home.reopen()
    home.append(path_of(talk), talk.lines[-1][cut:] + b"\n")
    report = home.index(str(path))
    assert report.bytes_read <= len(talk.lines[-1]) + 1 + SLACK
    assert (report.pending_bytes, report.unparsed, report.whole_scans) == (0, 0, 0)
    assert hits(home, "lapwing") == [late["uuid"]]
    assert rows(home, "SELECT offset,length,line FROM copies ORDER BY offset DESC LIMIT 1") == [
        (len(whole), len(talk.lines[-1]), whole.count(b"\n") + 1)
    ]
    settled(home)


def test_a_whole_record_without_newline_counts_at_once(home: Home) -> None:
    """It is found before its newline is there, and counted once when that comes, or when another is glued to it."""
    for ending in (b"\n", b""):
        talk = story(f"newline {ending!r}")
        last, after = talk.user("no newline yet lapwing"), talk.assistant("glued or not, dunlin")
        path = path_of(talk)
        home.write(path, b"\n".join(talk.lines[:-1]))
        home.index()
        assert last["uuid"] in hits(home, "lapwing")
        home.append(path, ending + talk.lines[-1] + b"\n")
        report = home.index(path)
        assert report.whole_scans == 0
        assert after["uuid"] in hits(home, "dunlin")
        assert rows(
            home,
            f"SELECT count(*) FROM copies c JOIN records r ON r.id=c.record WHERE hex(r.uuid)='{hexed(last)}'",
        ) == [(1,)]
        settled(home)


def test_what_is_written_behind_zeros_is_a_record(home: Home) -> None:
    """A record appended to a tail of zeros, without a newline between, starts where the file ended."""
    talk = story()
    path = home.write(path_of(talk), talk.data + b"\0" * 2_048)
    home.index()
    size = path.stat().st_size
    reply = talk.assistant("behind the zeros lapwing")
    home.append(path_of(talk), talk.lines[-1] + b"\n")
    home.index(path_of(talk))
    assert hits(home, "lapwing") == [reply["uuid"]]
    assert rows(home, "SELECT max(offset) FROM copies") == [(size,)]
    settled(home)


def test_nothing_is_read_where_nothing_changed(home: Home) -> None:
    """A second pass over files that are not brand-new reads none of them, whatever their times are."""
    for number, seconds in enumerate((1_700_000_000, 1_772_000_000, 4_102_444_800)):
        touch(home.root / put(home, story(f"quiet {number}")), seconds)
    assert home.index().scans == 3
    for again in (
        home.index,
        lambda: home.index(P),
        lambda: home.index(*[path_of(story(f"quiet {n}")) for n in range(3)]),
    ):
        report = again()
        assert (report.scans, report.bytes_read, report.files_changed) == (0, 0, 0)
    home.reopen()
    assert home.index().scans == 0


def test_a_file_as_young_as_the_scan_is_looked_at_again(home: Home) -> None:
    """A stamp taken in the same moment as the file changed proves nothing: a change under the same stamp is seen."""
    talk = story()
    path = home.write(path_of(talk), talk.data)
    home.index()
    stamp = path.stat()
    home.overwrite(path_of(talk), talk.data.replace(b"plover", b"dunlin"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    home.index()
    assert hits(home, "plover") == []
    assert hits(home, "dunlin") != []
    settled(home)


@pytest.mark.parametrize("mtime", [1_700_000_000, 4_102_444_800, 0])
def test_a_file_that_arrives_with_any_time_is_read(mtime: int, home: Home) -> None:
    """Restored with an old time, or made with one that is still to come, a file is found by its stamp being unknown."""
    put(home, story("there before"))
    home.index()
    talk = story("arrives")
    late = talk.user("restored lapwing")
    path = home.root / put(home, talk)
    touch(path, mtime)
    assert home.index().scans == 1
    assert hits(home, "lapwing") == [late["uuid"]]
    grown = grow(home, talk, "dunlin")
    touch(path, mtime)
    assert home.index().scans == 1
    assert hits(home, "dunlin") == [grown["uuid"]]
    settled(home)


# Rewritten


def test_growth_is_no_proof_of_an_append(home: Home) -> None:
    """Rewritten from an earlier point, longer or as long as before, a file is read anew and its old words are gone."""
    talk = Transcript(session=make_uuid("rewound"))
    talk.user("first asked INCONE")
    talk.assistant("fine")
    path = put(home, talk)
    home.index()
    again = Transcript(session=talk.session, salt="other")
    again.user("asked anew INCEDIT")
    again.assistant("fine")
    again.user("and more")
    assert len(again.data) > len(talk.data)
    home.overwrite(path, again.data)
    home.index(path)
    assert (hits(home, "INCONE"), hits(home, "INCEDIT")) == ([], [again.records[0]["uuid"]])
    third = talk.data.replace(b"INCONE", b"INCTWO")
    home.overwrite(path, third)
    home.index(path)
    assert (hits(home, "INCEDIT"), hits(home, "INCTWO")) == ([], [talk.records[0]["uuid"]])
    stamp = (home.root / path).stat()
    home.overwrite(path, third.replace(b"INCTWO", b"INCTRE"))
    os.utime(home.root / path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    home.index(path)
    assert (hits(home, "INCTWO"), hits(home, "INCTRE")) == ([], [talk.records[0]["uuid"]])
    settled(home)


@pytest.mark.parametrize("at", [0, 1, 5, -1])
@pytest.mark.parametrize("size", [4_000, 40_000])
def test_a_changed_prefix_is_noticed_anywhere_in_a_small_file(size: int, at: int, home: Home) -> None:
    """One letter changed in place in any record, and the file grown: everything is read again."""
    talk = story(size=size)
    path = put(home, talk)
    home.index()
    talk.lines[at] = talk.lines[at].replace(b"ana", b"bob")
    talk.assistant("grown lapwing")
    home.overwrite(path, talk.data)
    report = home.index(path)
    assert report.whole_scans == 1
    assert len(hits(home, "lapwing")) == 1
    settled(home)


def test_a_changed_end_is_noticed_in_a_large_file(home: Home) -> None:
    """The last records before the old end are always compared."""
    talk = story(size=400_000)
    path = put(home, talk)
    home.index()
    talk.lines[-1] = talk.lines[-1].replace(b"ana", b"bob")
    talk.assistant("grown lapwing")
    home.overwrite(path, talk.data)
    assert home.index(path).whole_scans == 1
    settled(home)


def edited(talk: Transcript, how: str) -> bytes:
    """A rewrite of a file, and how it differs."""
    lines = list(talk.lines)
    if how == "the same bytes":
        pass
    elif how == "one line dropped":
        del lines[10]
    elif how == "one line more":
        lines.insert(10, line({"type": "mode", "mode": "normal", "sessionId": talk.session}))
    elif how == "every record in another place":
        lines = [b'{"type":"mode"}', *lines]
    return b"".join(one + b"\n" for one in lines)


@pytest.mark.parametrize(
    ("how", "writes"),
    [("the same bytes", 0), ("one line dropped", 1), ("one line more", 0), ("every record in another place", 0)],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_unchanged_records_cost_no_full_text(how: str, writes: int, in_place: bool, home: Home) -> None:
    """When a file is rewritten, only records that came or went are written to the full text; the others only move."""
    talk = story(size=60_000)
    path = put(home, talk)
    home.index()
    before = rows(home, "SELECT id,hex(uuid) FROM records")
    data = edited(talk, how)
    with full_text_writes(home) as seen:
        (home.overwrite if in_place else home.write)(path, data)
        home.index(path)
    assert len(seen) == writes
    assert len(set(before) - set(rows(home, "SELECT id,hex(uuid) FROM records"))) == writes
    settled(home)


def test_an_append_writes_one_row_of_full_text(home: Home) -> None:
    """What stood before is not touched by an append."""
    talk = story(size=100_000)
    path = put(home, talk)
    home.index()
    with full_text_writes(home) as seen:
        grow(home, talk, "lapwing")
        home.index(path)
    assert len(seen) == 1


def test_a_record_changed_many_times_leaves_no_ghost(home: Home) -> None:
    """Re-indexed again and again with other words, a record is found by its last ones only."""
    talk = story()
    path = put(home, talk)
    home.index()
    data = talk.data
    for number in range(60):
        home.overwrite(path, data.replace(b"plover", f"bird{number:03}".encode()))
        home.index(path)
    assert all(hits(home, f"bird{number:03}") == [] for number in range(59))
    assert len(hits(home, "bird059")) == data.count(b"plover")
    settled(home)


def test_a_file_that_becomes_another_session_is_read_as_that(home: Home) -> None:
    """Under the same name, other records with another session id: the first session goes, the second is there."""
    one, other = story("first owner"), story("second owner")
    home.write(path_of(one), one.data)
    home.index()
    home.write(path_of(one), other.data)
    home.index()
    assert rows(home, "SELECT session_id FROM sessions") == [(other.session,)]
    settled(home)


# Gone, or only out of sight


def two_sessions(home: Home) -> tuple[Transcript, Transcript]:
    """Two sessions in two project folders, indexed."""
    one, other = story("one of two"), story("other of two")
    one.user("only in one: lapwing")
    other.user("only in the other: dunlin")
    put(home, one)
    put(home, other, "-home-ana-other")
    home.index()
    return one, other


@pytest.mark.parametrize("told", [True, False])
def test_a_removed_transcript_is_forgotten_and_reported(told: bool, home: Home) -> None:
    """Its records, words and citations go, and the loss is shown with its session: by an event or by the sweep."""
    one, _ = two_sessions(home)
    cite = make_uuid("cited")
    one.user(f'<historical_context arcs="{cite}">quoted</historical_context>')
    home.append(path_of(one), one.lines[-1] + b"\n")
    home.index()
    assert rows(home, "SELECT ref FROM citations") == [(cite,)]
    (home.root / path_of(one)).unlink()
    report = home.index(*([path_of(one)] if told else []))
    assert report.vanished == len(one.records)
    assert hits(home, "lapwing") == []
    assert rows(home, "SELECT * FROM citations") == []
    (loss,) = home.ledger.losses()
    assert (loss.kind, loss.session_id, loss.in_vault, loss.nowhere) == ("vanished", one.session, 0, len(one.records))
    settled(home)
    home.write(path_of(one), one.data)
    home.index()
    assert home.ledger.losses() == []
    assert len(hits(home, "lapwing")) == 1


def away(home: Home, how: str) -> Callable[[], None]:
    """Takes the root out of sight; returns what brings it back."""
    hidden = home.path / "away"

    def back() -> None:
        if home.root.is_dir():
            home.root.rmdir()
        elif home.root.exists():
            home.root.unlink()
        hidden.rename(home.root)

    home.root.rename(hidden)
    if how == "empty":
        home.root.mkdir()
    elif how == "a file":
        home.root.write_bytes(b"")
    return back


@pytest.mark.parametrize("how", ["missing", "empty", "a file"])
def test_a_root_out_of_sight_costs_nothing(how: str, home: Home) -> None:
    """With the root missing, replaced or suddenly empty nothing is forgotten; once it is back, all is as before."""
    one, _ = two_sessions(home)
    before = dump(home.map_db)
    back = away(home, how)
    for paths in ([], [""], [path_of(one)], ["-home-ana-app"], ["-home-ana-app/new.jsonl"]):
        report = home.index(*paths)
        assert report.vanished == 0
    assert (home.index().waiting, home.index().notes) == (
        ((), (f"{home.root} is suddenly empty; nothing was forgotten on that word",))
        if how == "empty"
        else ((str(home.root),), ())
    )
    home.reopen()
    home.index()
    assert differences(dump(home.map_db), before) == []
    assert len(hits(home, "lapwing")) == 1
    back()
    assert home.index().scans == 0
    assert home.ledger.losses() == []
    settled(home)


def test_a_root_made_anew_shows_what_is_lost(home: Home) -> None:
    """Once the root is there again with something in it, what it does not hold any more is forgotten and reported."""
    one, other = two_sessions(home)
    shutil.rmtree(home.root)
    assert home.index().vanished == 0
    late = story("made later")
    late.user("appeared later: avocet")
    put(home, late)
    report = home.index()
    assert report.vanished == len(one.records) + len(other.records)
    assert (hits(home, "lapwing"), len(hits(home, "avocet"))) == ([], 1)
    assert {loss.session_id for loss in home.ledger.losses()} == {one.session, other.session}
    settled(home)


def test_a_removed_project_folder_is_forgotten_while_another_is_there(home: Home) -> None:
    """A project folder gone beside others is gone; as the last it leaves an empty root, which proves nothing."""
    two_sessions(home)
    shutil.rmtree(home.root / "-home-ana-app")
    home.index("-home-ana-app")
    assert (hits(home, "lapwing"), len(hits(home, "dunlin"))) == ([], 1)
    settled(home)
    shutil.rmtree(home.root / "-home-ana-other")
    assert home.index().vanished == home.index("-home-ana-other").vanished == 0
    assert len(hits(home, "dunlin")) == 1


@pytest.mark.parametrize("gone", ["-home-ana-app", "{one}", ""])
def test_after_a_rest_files_are_known_as_before(gone: str, home: Home) -> None:
    """The Map is asked of them again: nothing is read twice, and what goes is missed, by any name."""
    one, _ = two_sessions(home)
    for path in home.root.rglob("*.jsonl"):
        os.utime(path, (1e9, 1e9))  # one just written proves nothing by its stamp
    home.index()
    home.indexer.idle()
    assert not home.indexer.files._noted
    assert home.index(path_of(one)).scans == 0
    home.index("odd/\udcff.jsonl", "\udcff")  # no such name can be in the Map
    home.append(path_of(one), line({"type": "user", "uuid": make_uuid("more"), "sessionId": one.session}) + b"\n")
    assert home.index(path_of(one)).whole_scans == 0
    home.indexer.idle()
    shutil.rmtree(home.root / "-home-ana-app")
    told = home.index(*([gone.format(one=path_of(one))] if gone else []))
    assert told.vanished == len(one.records) + 1
    settled(home)


def test_a_closed_folder_costs_nothing() -> None:
    """Without permission for the root, a project or a file nothing is forgotten; each is named with its reason."""
    with unprivileged() as folder:
        home = Home(folder)
        one, _ = two_sessions(home)
        for place in (home.root, home.root / "-home-ana-app"):
            with closed(place):
                for paths in ([], [path_of(one)], ["-home-ana-app"]):
                    report = home.index(*paths)
                    assert report.vanished == 0
                assert home.index().failed == ((str(place), "Permission denied"),)
        assert len(hits(home, "lapwing")) == 1
        assert home.index().failed == ()
        settled(home)
        home.close()


def test_a_file_without_permission_is_named_and_read_once_it_may_be() -> None:
    """The others are indexed; given its rights back the file is read at the next look, though its stamp is the same."""
    with unprivileged() as folder:
        home = Home(folder)
        one, other = story("closed"), story("open")
        closed_path = home.root / put(home, one)
        put(home, other)
        with closed(closed_path):
            for _ in range(2):
                assert home.index().failed == ((str(closed_path), "Permission denied"),)
            assert rows(home, "SELECT session_id FROM sessions") == [(other.session,)]
        report = home.index()
        assert (report.failed, report.scans) == ((), 1)
        assert len(rows(home, "SELECT * FROM sessions")) == 2
        settled(home)
        home.close()


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_linked_disk_that_is_away_costs_nothing(how: str, home: Home) -> None:
    """A project folder linked to another disk is kept while the link leads nowhere, or to an empty mount point."""
    disk = home.path / "disk" / "app"
    disk.parent.mkdir()
    talk = story("on a disk")
    talk.user("on the disk: lapwing")
    put(home, story("at home"))
    disk.mkdir()
    (disk / f"{talk.session}.jsonl").write_bytes(talk.data)
    age(disk / f"{talk.session}.jsonl")
    (home.root / "-linked").symlink_to(disk)
    home.index()
    assert home.index("-linked").vanished == 0
    assert len(hits(home, "lapwing")) == 1
    disk.rename(home.path / "away")
    if how == "empty":
        disk.mkdir()
    for paths in ([], ["-linked"], [f"-linked/{talk.session}.jsonl"]):
        assert home.index(*paths).vanished == 0
    assert len(hits(home, "lapwing")) == 1
    if how == "empty":
        disk.rmdir()
    (home.path / "away").rename(disk)
    assert home.index().scans == 0
    grow_at = disk / f"{talk.session}.jsonl"
    late = talk.assistant("grown on the disk: dunlin")
    with grow_at.open("ab") as file:
        file.write(talk.lines[-1] + b"\n")
    home.index(f"-linked/{talk.session}.jsonl")
    assert hits(home, "dunlin") == [late["uuid"]]
    settled(home)
    (home.root / "-linked").unlink()
    home.index()
    assert hits(home, "lapwing") == []
    settled(home)


def test_a_root_that_left_the_configuration_is_forgotten(home: Home, tmp_path: Path) -> None:
    """A rebuild would not know its records: they go with the root."""
    one, other = story("stays"), story("leaves")
    put(home, one)
    second = tmp_path / "second" / P / f"{other.session}.jsonl"
    second.parent.mkdir(parents=True)
    second.write_bytes(other.data)
    home.vault.roots = (*home.vault.roots, str(tmp_path / "second"))
    home.index()
    assert len(rows(home, "SELECT * FROM sessions")) == 2
    home.vault.roots = home.vault.roots[:1]
    home.index()
    assert rows(home, "SELECT session_id FROM sessions") == [(one.session,)]
    settled(home)


def test_a_folder_or_pipe_in_the_place_of_a_transcript_is_none(home: Home) -> None:
    """Where something else took its name, the transcript is gone."""
    one, other = two_sessions(home)
    for talk, folder in ((one, "-home-ana-app"), (other, "-home-ana-other")):
        (home.root / folder / f"{talk.session}.jsonl").unlink()
    (home.root / path_of(one)).mkdir()
    os.mkfifo(home.root / "-home-ana-other" / f"{other.session}.jsonl")
    home.index()
    assert rows(home, "SELECT * FROM records") == []
    settled(home)


def test_a_renamed_project_folder_keeps_its_records(home: Home) -> None:
    """Moved under another name, a folder's sessions are found there before they are forgotten here: no loss is told."""
    two_sessions(home)
    before = rows(home, "SELECT id FROM records ORDER BY id")
    (home.root / "-home-ana-app").rename(home.root / "-home-ana-moved")
    home.index()
    assert rows(home, "SELECT id FROM records ORDER BY id") == before
    assert home.ledger.losses() == []
    assert len(hits(home, "lapwing")) == 1
    settled(home)


# Generations


def store(home: Home, talk: Transcript, name: str, data: bytes, folder: str = P) -> Path:
    """Puts a generation into the Vault."""
    path = home.vault_folder / folder / talk.session / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return age(path)


@pytest.mark.parametrize("pack", [None, packed.seekable, packed.several, packed.single])
def test_a_generation_takes_over_from_a_removed_transcript(pack: Callable[[bytes], bytes] | None, home: Home) -> None:
    """Losing the live file loses nothing that a generation holds; a rebuild finds it there too."""
    one, other = two_sessions(home)
    generation = store(home, one, "v0-raw.jsonl" + (".zst" if pack else ""), pack(one.data) if pack else one.data)
    home.index()
    (home.root / path_of(one)).unlink()
    (home.root / f"-home-ana-other/{other.session}.jsonl").unlink()
    put(home, story("keeps the root from being empty"))
    with full_text_writes(home) as seen:
        report = home.index()
    assert report.vanished == len(other.records)
    assert len(hits(home, "lapwing")) == 1
    assert set(
        rows(
            home,
            "SELECT f.path FROM records r JOIN files f ON f.id=r.file JOIN sessions s ON s.id=r.session "
            f"WHERE s.session_id='{one.session}'",
        )
    ) == {(str(generation),)}
    assert len([sql for sql in seen if "DELETE" in sql]) <= len(other.records)
    assert [(loss.kind, loss.session_id) for loss in home.ledger.losses()] == [("vanished", other.session)]
    settled(home)


@pytest.mark.parametrize("folder", [P, "-srv-moved-here"], ids=["its own folder", "a folder no record names"])
def test_lines_known_from_elsewhere_are_not_parsed(folder: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of a generation of a live transcript, nor what a rewrite left as it was."""
    one = story("again")
    for number in range(60):
        one.user(f"prompt {number} " + "word " * 80)
    place = put(home, one, folder)
    home.index()
    parsed: list[bytes] = []

    def loads(data: bytes) -> Any:
        parsed.append(data)
        return r.strict_loads(data)

    monkeypatch.setattr(file, "strict_loads", loads)
    store(home, one, "v0-raw.jsonl", one.data, folder)
    home.index()
    home.write(place, one.data[one.data.index(b"\n") + 1 :])
    home.index()
    # Of a file whose folder is named, what stands before the record that names it has to be looked at.
    assert len(parsed) <= 4
    settled(home)


@pytest.mark.parametrize("folder", [P, "-srv-moved-here"], ids=["its own folder", "a folder no record names"])
def test_of_a_record_written_twice_the_first_copy_stays_the_best(folder: str, home: Home) -> None:
    """In a rewritten file the second may be one that is not known by its line, as it has a torn one before it."""
    one = story("twice")
    one.raw(b"\0\0\0" + one.lines[4])
    place = put(home, one, folder)
    home.index()
    home.write(place, b"".join(line + b"\n" for line in one.lines[:1] + one.lines[2:]))
    home.index()
    settled(home)


def test_names_are_known_again_after_a_rest(home: Home) -> None:
    """At rest what was looked up is let go of; a file that a tool touched is then met again as a term."""
    one = story("rests")
    one.result(one.call("Read", {"file_path": "/etc/fabled-rest.conf"}), "x")
    put(home, one)
    home.index()
    home.indexer.idle()
    home.indexer.derive_terms()
    settled(home)


def test_a_transcript_rewritten_to_a_stub_is_still_whole_in_the_vault(home: Home) -> None:
    """Records lost from the live file stay with their generation, and the loss is told; restored, it is made good."""
    talk = story("stubbed")
    asked = talk.user("what about the sanderling")
    stub = b"".join(
        line(one) + b"\n" for one in ({"type": "ai-title", "aiTitle": "x", "sessionId": talk.session}, {"type": "mode"})
    )
    path = put(home, talk)
    store(home, talk, "v0-raw.jsonl", talk.data)
    home.index()
    home.overwrite(path, stub)
    assert home.index().vanished == 0
    assert hits(home, "sanderling") == [asked["uuid"]]
    assert rows(home, "SELECT count(*) FROM copies c JOIN files f ON f.id=c.file WHERE f.generation IS NULL") == [(2,)]
    (loss,) = home.ledger.losses()
    assert (loss.kind, loss.session_id, loss.in_vault, loss.nowhere) == ("shrunk", talk.session, len(talk.records), 0)
    settled(home)
    home.overwrite(path, talk.data)
    home.index()
    assert home.ledger.losses() == []


def test_a_transcript_that_shrank_without_a_generation_is_told(home: Home) -> None:
    """Cut to less than half, the records that exist nowhere any more are counted."""
    talk = story("cut")
    path = put(home, talk)
    home.index()
    home.overwrite(path, b"".join(one + b"\n" for one in talk.lines[:3]))
    home.index()
    (loss,) = home.ledger.losses()
    assert (loss.kind, loss.nowhere) == ("shrunk", len(talk.records) - 3)
    settled(home)


def test_the_best_copy_is_the_longest_then_the_immutable_then_the_earliest(home: Home) -> None:
    """A reduced copy never stands before a full one, whichever was indexed first."""
    talk = story("best")
    short = talk.data.replace(b"x" * 20, b"").replace(b"word " * 5, b"")
    put(home, talk)
    home.index()
    early, late = store(home, talk, "v3-pruned.jsonl", short), store(home, talk, "v5-raw.jsonl", talk.data)
    home.index(str(early), str(late))
    best = "SELECT DISTINCT f.path FROM records r JOIN files f ON f.id=r.file"
    assert {path for (path,) in rows(home, best)} <= {str(early), str(late)}
    unshortened = [one for one in talk.lines if one in short]
    assert len(rows(home, f"{best.replace('DISTINCT f.path', 'r.id')} WHERE f.path='{early}'")) == len(unshortened)
    settled(home)
    late.unlink()
    home.index()
    settled(home)


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_vault_out_of_sight_costs_nothing(how: str, home: Home) -> None:
    """A Vault that is not mounted looks like one that was emptied: its generations stay known."""
    talk = story("vaulted")
    talk.user("only in the vault: lapwing")
    store(home, talk, "v0-raw.jsonl", talk.data)
    put(home, story("at home"))
    home.index()
    home.vault_folder.rename(home.path / "vault-away")
    if how == "empty":
        home.vault_folder.mkdir()
    for paths in ([], [str(home.vault_folder)], [str(home.vault_folder / P / talk.session / "v0-raw.jsonl")]):
        assert home.index(*paths).vanished == 0
    assert len(hits(home, "lapwing")) == 1
    if how == "empty":
        home.vault_folder.rmdir()
    (home.path / "vault-away").rename(home.vault_folder)
    assert home.index().scans == 0
    settled(home)


def test_a_damaged_generation_is_named_and_stops_nothing(home: Home) -> None:
    """What cannot be unpacked is reported at every pass and tried again when it changes; mended, nothing is doubled."""
    talk = story("damaged", size=30_000)
    put(home, story("sound"))
    good = packed.several(talk.data)
    generation = store(home, talk, "v0-raw.jsonl.zst", good[: len(good) // 2])
    for _ in range(2):
        report = home.index()
        assert [path for path, _ in report.failed] == [str(generation)]
    assert rows(home, "SELECT count(*) FROM sessions") != [(0,)]
    spoilt = packed.seekable(talk.data)
    generation.write_bytes(spoilt[:-400] + b"\xff" * 200 + spoilt[-200:])
    assert len(home.index().failed) == 1
    generation.write_bytes(good)
    assert home.index().failed == ()
    assert len(rows(home, "SELECT * FROM files")) == 2
    settled(home)


# Odd files


def test_files_that_are_no_transcripts_are_accounted_for(home: Home) -> None:
    """Whatever lies under a transcript's name is indexed without a fault, as spans that hold no record."""
    odd: dict[str, bytes] = {
        "empty": b"",
        "picture": bytes(random.Random(7).randbytes(20_000)),
        "prose": b"# notes\n\nno transcript\n",
        "array": b'[{"type":"user"},{"type":"x"}]',
        "pretty": json.dumps({"type": "user", "message": {"content": "x"}}, indent=2).encode(),
        "zeros": b"\0" * 9_000,
        "newlines": b"\n" * 500,
        "sixteen": "größe\n{}".encode("utf-16"),
        "braces": b"{" * 5_000 + b"\n",
        "one line": b"x" * 300_000,
    }
    for name, data in odd.items():
        home.write(f"{P}/{name}.jsonl", data)
    put(home, story("sound"))
    report = home.index()
    assert report.failed == ()
    assert report.records == len(story("sound").records)
    assert report.unparsed > 0
    settled(home)


def test_odd_values_in_records_stop_nothing(home: Home) -> None:
    """Half characters in names, numbers for texts, unknown types: each record is stored, the file goes on."""
    talk = Transcript(session=make_uuid("odd values"))
    talk.user("half HALF", cwd="/home/HALF", promptId="HALF", agentId="HALF", gitBranch="HALF")
    talk.call("ToolHALF", {"file_path": "/x/HALF.py"}, call="HALF")
    talk.lines = [one.replace(b"HALF", b"\\ud83d") for one in talk.lines]
    talk.put({"type": 7, "uuid": make_uuid("seven"), "sessionId": 7, "timestamp": -1})
    talk.put(
        {
            "type": "user",
            "uuid": "",
            "parentUuid": 7,
            "message": {"content": [{"type": "tool_result", "tool_use_id": 7}]},
        }
    )
    talk.put({"type": "assistant", "message": None})
    talk.put({})
    talk.raw(
        b'{"type":"user","uuid":"'
        + make_uuid("raw").encode()
        + b'","cwd":"\xff\xfe","message":{"content":"\xff lapwing \x00"}}'
    )
    talk.user("and on: dunlin")
    put(home, talk)
    report = home.index()
    assert (report.failed, report.unparsed) == ((), 0)
    assert report.records + report.no_uuid == len(talk.lines)
    assert hits(home, "lapwing") == [make_uuid("raw")]
    assert len(hits(home, "dunlin")) == 1
    settled(home)


def test_a_huge_line_is_one_record_however_it_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, glued to small ones, in a tail or in a rescan: a huge record has the same text, the small ones theirs."""
    monkeypatch.setattr(r, "HUGE_LINE", 30_000)
    monkeypatch.setattr(r, "KEEP_HEAD", 2_000)
    monkeypatch.setattr(r, "KEEP_TAIL", 500)
    monkeypatch.setattr(r, "CHUNK", 7_000)
    talk = story("huge")
    small = talk.user("größe " * 1_000 + "lapwing")
    huge = talk.assistant("外 " * 20_000 + " dunlin")
    after = talk.user("é" * 2_500 + " avocet")
    tail = talk.lines[-3:]
    talk.lines = talk.lines[:-3]
    path = put(home, talk)
    home.index()
    home.append(path, b"".join(tail) + b"\n")
    home.index(path)
    assert [hits(home, word) for word in ("lapwing", "avocet")] == [[small["uuid"]], [after["uuid"]]]
    assert rows(home, f"SELECT count(*) FROM records WHERE hex(uuid)='{hexed(huge)}'") == [(1,)]
    settled(home)
    home.write(path, talk.data + b"".join(tail[:2]) + b"\n")
    home.index()
    settled(home)


# Asked for by path


def test_paths_of_any_kind_may_be_named(home: Home, tmp_path: Path) -> None:
    """Files, folders, what is outside, what never was, the same through a link: each does its own work only."""
    one, other = story("named"), story("not named")
    put(home, one)
    home.write(f"-home-ana-other/{other.session}.jsonl", other.data)
    assert home.index(path_of(one)).scans == 1
    assert home.index("-home-ana-app", "nothing-there", str(tmp_path), "/dev/null", f"{P}/x.meta.json").scans <= 1
    assert rows(home, "SELECT session_id FROM sessions") == [(one.session,)]
    (tmp_path / "link").symlink_to(home.root)
    assert home.indexer.update([str(tmp_path / "link" / "-home-ana-other")]).scans == 1
    late = talk_more(home, other, "-home-ana-other")
    home.indexer.update([str(tmp_path / "link" / "-home-ana-other" / f"{other.session}.jsonl")])
    assert hits(home, "lapwing") == [late["uuid"]]
    assert len(rows(home, "SELECT * FROM files")) == 2
    settled(home)


def talk_more(home: Home, talk: Transcript, folder: str) -> dict[str, Any]:
    reply = talk.assistant("one more: lapwing")
    home.append(f"{folder}/{talk.session}.jsonl", talk.lines[-1] + b"\n")
    return reply


def test_a_changed_description_moves_a_subagent(home: Home) -> None:
    """What a subagent's .meta.json says is taken up whenever it comes, changes or goes."""
    talk = Transcript(session=make_uuid("described"), new_style=False)
    one = talk.user("one")
    first = talk.call("Task", {"prompt": "a"}, call="toolu_first")
    two = talk.user("two")
    talk.call("Task", {"prompt": "b"}, call="toolu_second")
    side = Transcript(session=talk.session, new_style=False, sidechain=True, agent="a1")
    begun = side.user("count the birds")
    agent = f"{P}/{talk.session}/subagents/agent-a1"
    put(home, talk)
    home.write(agent + ".jsonl", side.data)
    home.index()
    where = f"SELECT t.prompt FROM records r JOIN threads t ON t.id=r.thread WHERE hex(r.uuid)='{hexed(begun)}'"
    assert rows(home, where) == [(begun["uuid"],)]
    for call, prompt in (("toolu_first", one), ("toolu_second", two), ("toolu_nowhere", begun), ("toolu_first", one)):
        home.write(agent + ".meta.json", json.dumps({"agentType": "Explore", "toolUseId": call}).encode())
        home.index(agent + ".meta.json")
        assert rows(home, where) == [(prompt["uuid"],)], call
        settled(home)
    for content in (b"", b"[]", b'{"toolUseId":7}', b"\xff"):
        home.write(agent + ".meta.json", content)
        home.index(agent + ".meta.json")
        assert rows(home, where) == [(begun["uuid"],)]
    (home.root / (agent + ".meta.json")).unlink()
    home.index()
    assert first
    settled(home)


# In slices, interrupted


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits every few records."""
    monkeypatch.setattr(scan, "SLICE_WEIGHT", 900)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("restart", [True, False])
def test_an_update_that_is_stopped_goes_on_later(restart: bool, home: Home) -> None:
    """Asked to stop between slices, an update leaves what it has, and later ones go on to the same Map."""
    for number in range(3):
        put(home, story(f"stopped {number}", size=12_000))
    stops, answers = 0, [True]
    while home.indexer.update(None, stop=lambda: answers.pop(0)).stopped:
        stops += 1
        answers[:] = [False] * 3 + [True] * 50
        if restart:
            home.reopen()
        assert stops < 200
    assert stops > 3
    settled(home)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("restart", [True, False])
def test_a_rewrite_that_is_stopped_may_be_overtaken(restart: bool, home: Home) -> None:
    """Stopped half-way through a rewritten file that is then rewritten again: nothing of either state stays behind."""
    talk = story("overtaken", size=20_000)
    path = put(home, talk)
    put(home, story("goes away"))
    home.index()
    for word in ("dunlin", "avocet", "godwit"):
        home.write(path, talk.data.replace(b"plover", word.encode()))
        (home.root / path_of(story("goes away"))).unlink(missing_ok=True)
        asked = iter([False, False, False] + [True] * 100)
        assert home.indexer.update(None, stop=lambda asked=asked: next(asked)).stopped
        if restart:
            home.reopen()
    report = home.index()
    assert not report.stopped
    assert (hits(home, "plover"), hits(home, "dunlin"), hits(home, "avocet")) == ([], [], [])
    assert hits(home, "godwit") != []
    settled(home)


def test_progress_is_told_from_nothing_to_all(home: Home) -> None:
    """Progress counts files and bytes and ends at their sums."""
    sizes = []
    for number in range(4):
        talk = story(f"progress {number}")
        put(home, talk)
        sizes.append(len(talk.data))
    told: list[Any] = []
    home.indexer.update(None, progress=told.append)
    assert (told[0].files_done, told[0].bytes_done) == (0, 0)
    assert (told[-1].files_done, told[-1].files, told[-1].bytes_done, told[-1].bytes) == (4, 4, sum(sizes), sum(sizes))
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)


# The Map's own file


@contextmanager
def pages(home: Home, more: int) -> Iterator[None]:
    """A Map that can grow by so many pages only."""
    home.map.db.pragma("max_page_count", int(home.map.db.pragma("page_count")) + more)
    try:
        yield
    finally:
        home.map.db.pragma("max_page_count", 1 << 30)


@pytest.mark.usefixtures("slices")
def test_a_full_disk_leaves_nothing_half_done(home: Home) -> None:
    """SQLite out of room: the fault is named, what was committed is whole, and with room the work is finished."""
    talks = [story(f"full {number}", size=60_000) for number in range(3)]
    put(home, talks[0])
    home.index()
    home.overwrite(path_of(talks[0]), talks[0].data.replace(b"plover", b"dunlin"))
    for talk in talks[1:]:
        put(home, talk)
    faults = 0
    while True:
        with pages(home, 3):
            try:
                home.index()
                break
            except StorageFault as fault:
                assert fault.code == "storage"
        faults += 1
        assert [fault for fault in home.faults() if fault.id != "work left"] == []
        assert faults < 100
    assert faults > 5
    assert home.index().failed == ()
    settled(home)


@pytest.mark.parametrize("room", [0, 20_000, 200_000])
def test_a_file_size_limit_leaves_nothing_half_done(room: int, home: Home) -> None:
    """The kernel refuses to let Map or WAL grow: the fault is named and a later run finishes."""
    put(home, story("limited", size=400_000))
    home.map.db.pragma("wal_checkpoint(TRUNCATE)")
    size = max(path.stat().st_size for path in home.path.glob("*.db*"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        with pytest.raises(StorageFault):
            home.index()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    home.index()
    settled(home)


def test_a_locked_map_is_waited_for_and_then_named(home: Home) -> None:
    """Another process that holds the Map too long is a StorageFault; nothing is lost by it."""
    put(home, story("locked"))
    home.map.db.set_busy_timeout(50)
    other = apsw.Connection(str(home.map_db))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageFault):
        home.index()
    other.execute("ROLLBACK")
    other.close()
    home.index()
    settled(home)


def test_a_newer_map_is_refused_and_left_alone(home: Home) -> None:
    """A Map or Ledger of a later version is not opened, not changed, not moved."""
    home.close()
    for path, kind in ((home.map_db, Map), (home.path / "ledger.db", Ledger)):
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version=999")
        db.close()
        before = path.read_bytes()
        with pytest.raises(NewerSchema) as fault:
            kind(str(path))
        assert str(path) in fault.value.message
        assert path.read_bytes() == before
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version={schema.MAP_VERSION if kind is Map else schema.LEDGER_VERSION}")
        db.close()
    assert not list(home.path.glob("*.corrupt-*"))
    home.open()


def test_an_older_map_is_built_anew(home: Home) -> None:
    """A Map of an earlier version is replaced: it can be derived again."""
    put(home, story("older"))
    home.index()
    home.map.db.execute("PRAGMA user_version=1")
    home.reopen()
    assert home.map.rebuilt
    assert rows(home, "SELECT * FROM files") == []
    home.index()
    settled(home)


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "its beginning":
        path.write_bytes(random.Random(3).randbytes(4_096) + data[4_096:])
    elif how == "all of it":
        path.write_bytes(b"no database\n" * 900)
    elif how == "another database":
        path.unlink()
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE notes(x)")
        db.commit()
        db.close()
    elif how == "half of it":
        path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("how", ["its beginning", "all of it", "another database", "half of it"])
def test_a_map_that_is_garbage_is_moved_aside(how: str, home: Home) -> None:
    """It is kept under another name, a new one is built, and transcripts and Vault are not touched."""
    talk = story("garbage", size=50_000)
    put(home, talk)
    generation = store(home, talk, "v0-raw.jsonl", talk.data)
    home.index()
    home.close()
    spoil(home.map_db, how)
    spoilt = home.map_db.read_bytes()
    home.open()
    (aside,) = home.path.glob("map.db.corrupt-*")
    assert aside.read_bytes() == spoilt
    assert str(aside) in (home.map.rebuilt or "")
    assert home.map_db.stat().st_mode & 0o777 == 0o600
    home.index()
    assert hits(home, "plover") != []
    assert generation.read_bytes() == talk.data
    settled(home)


def damage(path: Path) -> None:
    """What a torn write leaves: some rows of the full text's own tables are not there."""
    db = sqlite3.connect(path)
    db.execute("DELETE FROM fts_data WHERE id>10 AND id%2=0")
    db.commit()
    db.close()


@pytest.fixture
def damaged(home: Home) -> Home:
    for number in range(3):
        put(home, story(f"fts {number}", size=40_000))
    put(home, story("other place"))
    home.index()
    home.close()
    damage(home.map_db)
    home.open()
    return home


def test_damaged_full_text_is_mended(damaged: Home) -> None:
    """FTS5's own check finds the damage; built anew from the Vault, searches find what they found before."""
    assert "full text" in [fault.id for fault in damaged.faults()]
    assert damaged.indexer.repair()
    assert not damaged.indexer.repair()
    settled(damaged)
    talk = story("fts 0", size=40_000)
    grow(damaged, talk, "lapwing")
    damaged.index()
    settled(damaged)


def test_a_repair_that_is_cut_short_is_finished_later(damaged: Home) -> None:
    """Whenever a repair dies, a later update writes the rest of the texts, and no text twice."""
    damaged.close()
    template = damaged.map_db.read_bytes()
    for deaths in range(20):
        damaged.map_db.write_bytes(template)
        damaged.open()
        left = iter([True] * deaths)

        def die(name: str, left: Iterator[bool] = left) -> None:
            if not next(left, False):
                raise KeyboardInterrupt

        damaged.map.before_commit = die
        try:
            assert damaged.indexer.repair()
            break
        except KeyboardInterrupt:
            damaged.reopen()
            if deaths == 0:
                assert damaged.indexer.repair()  # nothing was done
            damaged.index()
            settled(damaged)
            damaged.close()
    assert deaths > 5


def test_a_repair_does_not_forget_what_is_out_of_sight(damaged: Home) -> None:
    """Texts of files that cannot be read now are written when they are there again, or by whoever takes them over."""
    back = away(damaged, "missing")
    assert damaged.indexer.repair()
    assert hits(damaged, "plover") == []
    damaged.index()
    talk = story("fts 1", size=40_000)
    store(damaged, talk, "v0-raw.jsonl", talk.data)
    damaged.index()
    back()
    (damaged.root / path_of(talk)).unlink()
    changed = story("fts 0", size=40_000)
    changed.lines = [b'{"type":"mode"}', *changed.lines]
    put(damaged, changed)
    damaged.index()
    settled(damaged)
    assert rows(damaged, "SELECT * FROM owed") == []


# What several records say together


def test_a_queued_text_that_a_prompt_repeats_is_found_once(home: Home) -> None:
    """Typed while Claude worked and sent afterwards, a text is one hit, in whatever order the two records come."""
    for number, first in enumerate(("queue", "prompt")):
        talk = Transcript(session=make_uuid(f"queued {number}"))
        talk.user("go")
        for what in (first, "prompt" if first == "queue" else "queue"):
            if what == "queue":
                talk.queue("look at the  lapwing\n")
            else:
                sent = talk.user("look at the lapwing")
        put(home, talk)
        home.index()
        assert sent["uuid"] in hits(home, "lapwing")
    assert len(hits(home, "lapwing")) == 2
    settled(home)


def test_titles_written_again_and_again_count_once(home: Home) -> None:
    """A title line repeated word for word is one record with several copies."""
    talk = story("titled")
    for _ in range(5):
        talk.title("Porch lights")
    put(home, talk)
    home.index()
    assert rows(home, "SELECT text,count(*) FROM titles") == [("Porch lights", 1)]
    assert rows(home, "SELECT count(*) FROM copies c JOIN titles t ON t.record=c.record") == [(5,)]
    settled(home)


@pytest.mark.parametrize(
    ("folder", "cwds", "project"),
    [
        ("-home-ana-src-my-tool-io", ["/home/ana/src/my-tool.io"], "/home/ana/src/my-tool.io"),
        ("-home-ana-app", ["/tmp", "/home/ana/app", "/home/ana/app/sub"], "/home/ana/app"),
        ("-home-ana-app", ["/somewhere/else"], "-home-ana-app"),
        ("-home-ana----app", ["/home/ana/外注/app"], "/home/ana/外注/app"),
        ("C--git-tool", ["c:\\git\\tool"], "C:\\git\\tool"),
        ("c--git-tool", ["C:\\git\\tool"], "C:\\git\\tool"),
        ("-home-ana-a-b", ["/home/ana/a_b", "/home/ana/a-b"], "/home/ana/a_b"),
        ("-home-ana---", ["/home/ana/🙏"], "/home/ana/🙏"),
    ],
)
def test_a_sessions_project_is_the_first_cwd_its_folder_was_named_for(
    folder: str, cwds: list[str], project: str, home: Home
) -> None:
    """The folder's name is never decoded; without a cwd that fits it is the project."""
    talk = Transcript(session=make_uuid("placed"))
    for cwd in cwds:
        talk.cwd = cwd
        talk.user(f"working in {cwd}")
    home.write(f"{folder}/{talk.session}.jsonl", talk.data)
    home.index()
    assert rows(home, "SELECT project,folder FROM sessions") == [(project, folder)]
    settled(home)


def test_a_record_worked_out_over_a_commit_is_stored_once(home: Home) -> None:
    """Finding the call a lost result answers commits what was gathered; the result keeps its number and links."""
    talk = Transcript(session=make_uuid("in hand"))
    talk.user("go")
    path = put(home, talk)
    home.index()
    begin = len(talk.lines)
    talk.prompt = None
    lost = talk.result(talk.call("Bash", {"command": "x"}), "first word: lapwing", parent=make_uuid("never written"))
    talk.put(
        {**lost, "message": {"role": "user", "content": "said again, and longer than before: dunlin dunlin dunlin"}}
    )
    home.append(path, b"".join(one + b"\n" for one in talk.lines[begin:]))
    assert home.index(path).failed == ()
    assert (hits(home, "lapwing"), hits(home, "dunlin")) in (([], [lost["uuid"]]), ([lost["uuid"]], []))
    assert rows(home, "SELECT count(*) FROM copies") == [(len(talk.lines),)]
    settled(home)


def test_a_fork_is_seen_by_a_single_shared_record(home: Home) -> None:
    """Also where the only record two sessions share is one whose thread took a commit to find."""
    one, other = Transcript(session=make_uuid("shares one")), Transcript(session=make_uuid("shares the same"), salt="x")
    for talk in (one, other):
        talk.user("go")
        put(home, talk)
    home.index()
    for talk in (one, other):
        begin, talk.prompt = len(talk.lines), None
        call = talk.call("Bash", {"command": "x"})
        talk.result(call, "shared lapwing", uuid=make_uuid("the shared one"), parent=make_uuid("never written"))
        home.append(path_of(talk), b"".join(line + b"\n" for line in talk.lines[begin:]))
        home.index(path_of(talk))
    assert hits(home, "lapwing") == [make_uuid("the shared one")]
    assert rows(home, "SELECT hidden&1 FROM records WHERE kind=5 ORDER BY 1") == [(0,), (1,)]
    settled(home)


# What follows from other records, and files that only look like trouble


def test_a_result_has_no_tool_once_its_call_is_gone(home: Home) -> None:
    talk = Transcript()
    talk.user("look")
    call = talk.call("Bash", {"command": "ls"})
    talk.result(call, "wombat")
    name = f"{P}/{talk.session}.jsonl"
    home.write(name, talk.data)
    home.index()
    del talk.lines[1]
    home.write(name, talk.data)
    home.index()
    settled(home)


def test_a_fork_forgets_its_origin_with_the_marks_of_it(home: Home) -> None:
    """`forkedFrom` gone from the file: the session stands for itself, as in a rebuild."""
    talk = Transcript()
    talk.user("asked", forkedFrom={"sessionId": make_uuid("elsewhere"), "messageUuid": make_uuid("m")})
    name = f"{P}/{talk.session}.jsonl"
    home.write(name, talk.data)
    home.index()
    talk.records[0].pop("forkedFrom")
    home.write(name, line(talk.records[0]) + b"\n")
    home.index()
    settled(home)


def test_each_forked_copy_has_the_origin_it_names(home: Home) -> None:
    """Copies in one session that name different origins: each is folded into its own, whichever was seen first."""
    talks = [Transcript(session=make_uuid(name)) for name in ("origin a", "origin b")]
    fork = Transcript(session=make_uuid("a fork of both"))
    for talk in talks:
        talk.user("the same words")
        home.write(f"{P}/{talk.session}.jsonl", talk.data)
    name = f"{P}/{fork.session}.jsonl"
    for talk in reversed(talks):
        origin = {"sessionId": talk.session, "messageUuid": talk.records[0]["uuid"]}
        fork.put({**talk.records[0], "sessionId": fork.session, "forkedFrom": origin})
        home.write(name, fork.data)
        home.index()
    fork.lines.reverse()
    home.write(name, fork.data)
    home.index()
    hidden = "SELECT s.session_id FROM records r JOIN sessions s ON s.id=r.session WHERE r.hidden=0 ORDER BY 1"
    assert [one for (one,) in home.map.db.execute(hidden)] == sorted(talk.session for talk in talks)
    settled(home)


def test_an_unforeseen_fault_costs_one_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one file's records do to the code that reads or stores them, the others are indexed, each once."""
    for number in range(6):
        talk = Transcript(session=make_uuid(f"s{number}"))
        talk.user(f"plover {number}")
        home.write(f"{P}/{talk.session}.jsonl", talk.data)
    real = file.t.facts

    def faulty(obj: dict[str, Any], recalled: bool) -> Any:
        if "plover 3" in json.dumps(obj):
            raise TypeError("nobody thought of that")
        return real(obj, recalled)

    monkeypatch.setattr(file.t, "facts", faulty)
    report = home.index()
    assert [reason for _, reason in report.failed] == ["TypeError: nobody thought of that"]
    assert (len(hits(home, "plover")), report.records) == (5, 5)
    monkeypatch.undo()
    home.reopen()
    assert (home.index().failed, len(hits(home, "plover"))) == ((), 6)
    settled(home)


def test_an_update_that_fails_leaves_no_number_to_be_stored_later(home: Home) -> None:
    """Another process holds the lock: what was gathered is dropped whole, no empty thread comes of it."""
    talk = Transcript()
    talk.user("first")
    name = f"{P}/{talk.session}.jsonl"
    home.write(name, talk.data)
    home.map.db.set_busy_timeout(1)
    other = apsw.Connection(str(home.map_db))  # of the same SQLite: locks do not part two of them in one process
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageFault):
        home.index()
    other.execute("ROLLBACK")
    other.close()
    (home.root / name).unlink()
    later = Transcript(session=make_uuid("later"))
    later.user("another prompt")
    home.write(f"{P}/{later.session}.jsonl", later.data)
    home.index()
    assert [row[0] for row in home.map.db.execute("SELECT session_id FROM sessions")] == [later.session]
    settled(home)


def test_a_next_best_copy_is_read_only_where_its_bytes_prove_it(home: Home) -> None:
    """The longer copy goes while the shorter one's file has changed: nothing is taken from the wrong bytes."""
    talk = Transcript()
    talk.user("the short plover", label="one")
    name = f"{P}/{talk.session}.jsonl"
    home.write(name, talk.data)
    longer = Transcript()
    longer.user("the short plover and its long tail of words", label="one")
    generation = home.vault_folder / P / talk.session / "v0-raw.jsonl"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(longer.data)
    home.index()
    stranger = Transcript()
    stranger.user("the wrong godwit", label="two")
    home.overwrite(name, stranger.data.ljust(len(talk.data)))
    generation.unlink()
    home.indexer.update([str(generation)])
    assert hits(home, "godwit") == []
    home.index()
    assert len(hits(home, "godwit")) == 1
    settled(home)


def test_a_generation_of_more_than_was_read_of_the_live_file_is_no_loss(home: Home) -> None:
    """A file that grew since it was read is not smaller than the generation taken of it now."""
    made = Transcript(make_uuid("grown"))
    for number in range(5):
        made.user(f"early {number}")
    path = f"-home-ana-app/{made.session}.jsonl"
    home.write(path, made.data)
    home.index()
    for number in range(50):
        made.user(f"later {number} " + "x" * 100)
    (home.root / path).write_bytes(made.data)
    kept = home.vault_folder / "-home-ana-app" / made.session / "v0-raw.jsonl.zst"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.parent.parent.chmod(0o700)
    kept.write_bytes(packed.seekable(made.data))
    kept.chmod(0o400)
    home.indexer.update([str(kept)])
    assert home.ledger.losses() == []
    home.index()
    assert home.ledger.losses() == []
    settled(home)
