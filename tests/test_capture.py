"""What is captured is found, read and had back whole, whatever becomes of the live files and of our own databases."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabled import check
from fabled.answers import Reader, answer, block_bytes
from fabled.capture import Adopted, Capturer
from fabled.errors import NotFound, Refused
from fabled.store import generations as g
from fabled.store.queries import Queries
from tests.build import Transcript, make_uuid
from tests.home import Home, differences, dump, rebuilt
from tests.rights import closed, unprivileged

P = "-home-ana-app"
DAY = 86_400


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    (tmp_path / "home").mkdir()
    one = Home(tmp_path / "home")
    yield one
    assert one.faults() == []
    one.close()


def capturer(home: Home, reserve_bytes: int = 0) -> Capturer:
    return Capturer(home.map, home.vault, home.ledger, home.indexer, str(home.vault_folder), reserve_bytes)


def capture(home: Home, talk: Transcript, reason: str = "asked") -> dict[str, Any]:
    return capturer(home).capture(talk.session, reason)


def path_of(talk: Transcript) -> str:
    return f"{P}/{talk.session}.jsonl"


def work(talk: Transcript, turns: int, word: str) -> None:
    for number in range(turns):
        talk.user(f"question {number} about {word}")
        talk.result(talk.call("Bash", {"command": f"make {number}"}), f"made {word}")
        talk.assistant(f"answer {number} on {word}")


def session(home: Home, name: str = "one", turns: int = 3, word: str = "plover") -> Transcript:
    """A session with two subagents, one of them nested, and an output that was too large for its transcript."""
    talk = Transcript(session=make_uuid(f"capture {name}"))
    work(talk, turns, word)
    for agent, place in (("a01", "agent-a01"), ("a02", "deep/agent-a02")):
        task = talk.call("Task", {"prompt": f"count the {agent}", "description": "d"}, call=f"toolu_{agent}")
        talk.result(task, "seven")
        side = Transcript(session=talk.session, sidechain=True, agent=agent)
        side.user(f"count the {agent}")
        side.assistant(f"seven {agent} {word}")
        base = f"{P}/{talk.session}/subagents/{place}"
        home.write(f"{base}.meta.json", b'{"agentType":"Explore","toolUseId":"toolu_%s"}' % agent.encode())
        home.write(f"{base}.jsonl", side.data)
    home.write(f"{P}/{talk.session}/tool-results/toolu_1.txt", b"a large output\n" * 50)
    home.write(path_of(talk), talk.data)
    return talk


def in_vault(home: Home) -> list[str]:
    return sorted(str(path.relative_to(home.vault_folder)) for path in home.vault_folder.rglob("*") if path.is_file())


def everything(talk: Transcript, number: int = 0) -> list[str]:
    base = f"{P}/{talk.session}"
    return sorted(
        [
            f"{base}/v{number}-raw.jsonl.zst",
            f"{base}/subagents/agent-a01/v{number}-raw.jsonl.zst",
            f"{base}/subagents/agent-a01/v{number}-raw.meta.json",
            f"{base}/subagents/deep/agent-a02/v{number}-raw.jsonl.zst",
            f"{base}/subagents/deep/agent-a02/v{number}-raw.meta.json",
            f"{base}/tool-results/toolu_1.txt/v{number}-raw.zst",
        ]
    )


def bytes_of(home: Home, path: str) -> bytes:
    source = home.vault.open(path)
    try:
        return source.read(0, source.size)
    finally:
        source.close()


def said(home: Home) -> dict[str, Any]:
    """What the Map says of records, texts, threads and subagents, free of where their copies lie."""
    whole = dump(home.map_db)
    return {
        "records": sorted((row[:10], row[13:]) for row in whole["records"]),
        "threads": whole["threads"],
        "sessions": whole["sessions"],
        "texts": whole["texts"],
        "titles": whole["titles"],
    }


def test_a_session_is_captured_as_a_whole(home: Home) -> None:
    """Its transcript, subagents at any depth with their descriptions, and its other files each become a generation."""
    talk = session(home)
    home.index()
    value = capture(home, talk)
    assert in_vault(home) == everything(talk)
    assert (value["session_id"], value["unchanged"], value["failed"], value["retired"]) == (talk.session, 0, [], [])
    assert [(one["part"], one["generation"], one["reason"]) for one in value["generations"]] == [
        ("", "v0-raw", "asked"),
        ("subagents/agent-a01", "v0-raw", "asked"),
        ("subagents/deep/agent-a02", "v0-raw", "asked"),
        ("tool-results/toolu_1.txt", "v0-raw", "asked"),
    ]
    for one in home.ledger.kept():
        assert bytes_of(home, one.path) == Path(one.origin).read_bytes()
        assert (one.logical, one.packed) == (os.stat(one.origin).st_size, os.stat(one.path).st_size)
    assert all(
        stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o400)
        for path in home.vault_folder.rglob("*")
    )


def test_the_map_of_what_was_captured_is_that_of_a_rebuild(home: Home, tmp_path: Path) -> None:
    """Indexed as it is captured, a Vault gives the Map that a rebuild gives."""
    talk = session(home)
    home.index()
    capture(home, talk)
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []


def test_what_did_not_change_is_not_captured_again(home: Home) -> None:
    """Neither a second run nor a new stamp on the same bytes makes a generation."""
    talk = session(home)
    home.index()
    capture(home, talk)
    before = in_vault(home)
    for path in (home.root / P).rglob("*"):
        if path.is_file():
            os.utime(path, (1_700_000_000, 1_700_000_000))
    for _ in range(2):
        value = capture(home, talk)
        assert (value["generations"], value["unchanged"], value["failed"]) == ([], 4, [])
    assert in_vault(home) == before
    assert {one.mtime_ns for one in home.ledger.kept()} == {1_700_000_000 * 10**9}


def test_a_changed_description_alone_is_captured(home: Home) -> None:
    """A subagent's transcript and description are one: where either changed both are kept, and the old ones stay."""
    talk = session(home)
    home.index()
    capture(home, talk)
    home.write(f"{P}/{talk.session}/subagents/agent-a01.meta.json", b'{"agentType":"Plan","toolUseId":"toolu_a01"}')
    value = capture(home, talk)
    assert [(one["part"], one["generation"]) for one in value["generations"]] == [("subagents/agent-a01", "v1-raw")]
    assert value["retired"] == []
    folder = home.vault_folder / P / talk.session / "subagents" / "agent-a01"
    assert [(folder / f"v{n}-raw.meta.json").read_bytes()[:20] for n in (0, 1)] == [
        b'{"agentType":"Explor', b'{"agentType":"Plan",',
    ]  # fmt: skip


def test_a_generation_that_another_begins_with_is_retired(home: Home, tmp_path: Path) -> None:
    """What only grew is kept once, in its newest generation; the Ledger says what holds it, and no loss is told."""
    talk = session(home)
    home.index()
    capture(home, talk)
    first = home.ledger.kept()[0]
    for turn in range(2):
        begin = len(talk.lines)
        work(talk, 2, f"godwit{turn}")
        home.append(path_of(talk), b"".join(line + b"\n" for line in talk.lines[begin:]))
        home.index()
        value = capture(home, talk)
        assert [one["generation"] for one in value["generations"]] == [f"v{turn + 1}-raw"]
        assert value["unchanged"] == 3
    assert [path for path in in_vault(home) if "/v" in path and path.count("/") == 2] == [
        f"{P}/{talk.session}/v2-raw.jsonl.zst"
    ]
    assert bytes_of(home, value["generations"][0]["path"]) == talk.data
    assert capturer(home).standing(first.path) == value["generations"][0]["path"]
    assert home.ledger.losses() == []
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []


def test_a_generation_that_cannot_be_read_is_no_proof(home: Home) -> None:
    """Where an old generation is damaged it stays, however alike its row in the Ledger looks."""
    talk = session(home)
    home.index()
    capture(home, talk)
    old = Path(home.ledger.kept()[0].path)
    whole = old.read_bytes()
    old.chmod(0o600)
    old.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    old.chmod(0o400)
    home.append(path_of(talk), b'{"type":"summary","summary":"more"}\n')
    assert capture(home, talk)["retired"] == []
    assert old.exists()
    old.chmod(0o600)
    old.write_bytes(whole)
    old.chmod(0o400)


def test_a_rewritten_transcript_retires_nothing(home: Home) -> None:
    """Bytes that only an older generation holds stay."""
    talk = session(home)
    home.index()
    capture(home, talk)
    home.write(path_of(talk), talk.data.replace(b"question 1", b"question 9"))
    home.index()
    value = capture(home, talk)
    assert ([one["generation"] for one in value["generations"]], value["retired"]) == (["v1-raw"], [])
    assert bytes_of(home, home.ledger.kept()[0].path) == talk.data


def test_a_subagent_beside_the_sessions_is_kept_with_the_session_it_names(home: Home, tmp_path: Path) -> None:
    """Files of older clients, `agent-*.jsonl` beside the sessions, go with the session their records name."""
    talk = Transcript(session=make_uuid("old layout"))
    talk.result(talk.call("Task", {"prompt": "count", "description": "d"}), "ok", toolUseResult={"agentId": "a9"})
    side = Transcript(session=talk.session, sidechain=True, agent="a9")
    side.user("count")
    home.write(path_of(talk), talk.data)
    home.write(f"{P}/agent-a9.jsonl", side.data)
    home.index()
    capture(home, talk)
    assert in_vault(home) == [
        f"{P}/{talk.session}/subagents/agent-a9/v0-raw.jsonl.zst", f"{P}/{talk.session}/v0-raw.jsonl.zst",
    ]  # fmt: skip
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []
    assert capture(home, talk)["unchanged"] == 2


def test_an_unfinished_last_line_is_kept_too(home: Home) -> None:
    """Every byte that is there is captured; when the line is finished the generation is retired like any other."""
    talk = Transcript(session=make_uuid("torn"))
    work(talk, 1, "knot")
    last = talk.lines[-1]
    home.write(path_of(talk), talk.data[: -len(last) // 2])
    home.index()
    capture(home, talk)
    assert bytes_of(home, home.ledger.kept()[0].path) == talk.data[: -len(last) // 2]
    home.write(path_of(talk), talk.data)
    home.index()
    assert len(capture(home, talk)["retired"]) == 1


def test_nobody_is_captured_who_is_not_known(home: Home) -> None:
    """A session that neither the Map nor the Ledger knows is not found."""
    with pytest.raises(NotFound):
        capturer(home).capture(make_uuid("nobody"), "asked")


def test_a_full_disk_refuses_and_leaves_nothing(home: Home) -> None:
    """Where the reserve would be touched the capture is refused; Vault, Ledger and Map are as before."""
    talk = session(home)
    home.index()
    before = dump(home.map_db)
    with pytest.raises(Refused, match="stay free"):
        capturer(home, reserve_bytes=1 << 62).capture(talk.session, "asked")
    assert list(home.vault_folder.iterdir()) == []
    assert home.ledger.kept() == []
    assert dump(home.map_db) == before


# The pruner's question


def test_the_pruner_is_held_what_it_asks_for(home: Home) -> None:
    """A generation that begins with the live file's first bytes is found if there is one, else made and indexed."""
    talk = session(home)
    home.index()
    path = str(home.root / path_of(talk))
    length = len(talk.data)
    kept = capturer(home).hold(path, length)
    assert (kept.number, kept.kind, kept.part, kept.logical, kept.reason) == (0, "raw", "", length, "prune")
    assert home.map.stored_whole(kept.path)
    for shorter in (length, length - 1, len(talk.lines[0]) + 1, 0):
        assert capturer(home).hold(path, shorter) == kept
    begin = len(talk.lines)
    work(talk, 1, "smew")
    home.append(path_of(talk), b"".join(line + b"\n" for line in talk.lines[begin:]))
    assert capturer(home).hold(path, length).number == 0
    longer = capturer(home).hold(path, len(talk.data) - 5)
    assert (longer.number, longer.logical) == (1, len(talk.data) - 5)
    assert not os.path.exists(kept.path)
    assert bytes_of(home, longer.path) == talk.data[:-5]


def test_a_generation_that_rotted_is_not_handed_to_the_pruner(home: Home) -> None:
    """What is held is read and compared each time: one that does not read is passed over and another is made."""
    talk = session(home)
    home.index()
    path = str(home.root / path_of(talk))
    kept = capturer(home).hold(path, len(talk.data))
    whole = Path(kept.path).read_bytes()
    Path(kept.path).chmod(0o600)
    Path(kept.path).write_bytes(whole[:60] + b"\xff" + whole[61:])
    Path(kept.path).chmod(0o400)
    again = capturer(home).hold(path, len(talk.data))
    assert again.number == 1 and bytes_of(home, again.path) == talk.data
    Path(kept.path).chmod(0o600)
    Path(kept.path).write_bytes(whole)
    Path(kept.path).chmod(0o400)


def test_what_is_no_live_transcript_is_not_held(home: Home, tmp_path: Path) -> None:
    """Neither a generation nor a file outside the roots is captured by its path."""
    talk = session(home)
    home.index()
    capture(home, talk)
    for path in (home.ledger.kept()[0].path, str(tmp_path / "x.jsonl")):
        with pytest.raises(Refused, match="no transcript"):
            capturer(home).hold(path, 0)


# Raw or pruned


def journal(home: Home, talk: Transcript, what: str, **more: Any) -> int:
    live = home.root / path_of(talk)
    return home.ledger.begin(
        {
            "session_id": talk.session, "path": str(live), "what": what, "level": "gentle", "at": 1, "state": "done",
            "base_length": 0, "base_sha": b"", "new_length": 0, "new_sha": b"", **more,
        }
    )  # fmt: skip


def next_kind(home: Home, talk: Transcript) -> str:
    talk.user(f"more {len(talk.lines)}")
    home.append(path_of(talk), talk.lines[-1] + b"\n")
    home.index()
    (one,) = capture(home, talk)["generations"]
    return str(one["generation"]).partition("-")[2]


def test_a_generation_is_pruned_where_the_journal_says_so(home: Home) -> None:
    """From a prune to its undo or a restore, what is captured holds an edit of ours."""
    talk = Transcript(session=make_uuid("kinds"))
    work(talk, 1, "knot")
    home.write(path_of(talk), talk.data)
    home.index()
    assert next_kind(home, talk) == "raw"
    first = journal(home, talk, "prune")
    assert next_kind(home, talk) == "pruned"
    journal(home, talk, "undo", report=f'{{"undoes":{first}}}')
    assert next_kind(home, talk) == "raw"
    journal(home, talk, "prune")
    journal(home, talk, "prune", state="given_up")
    assert next_kind(home, talk) == "pruned"
    journal(home, talk, "restore", level="full")
    assert next_kind(home, talk) == "raw"


def test_a_prune_that_nothing_followed_is_not_captured(home: Home) -> None:
    """What a prune left is made from a generation: it is no change until something is appended."""
    talk = session(home)
    home.index()
    live = home.root / path_of(talk)
    capture(home, talk)
    short = Transcript(session=talk.session)
    work(short, 1, "plover")
    home.write(path_of(talk), short.data)
    os.utime(live, (1_700_000_000, 1_700_000_000))
    journal(
        home, talk, "prune", new_length=len(short.data), new_sha=g.sha256(short.data).digest(),
        dev=live.stat().st_dev, new_ino=live.stat().st_ino, report=json.dumps({"made": len(short.data)}),
    )  # fmt: skip
    home.index()
    assert capture(home, talk)["generations"] == []
    assert talk.session not in [name for name, _ in capturer(home).due(1_800_000_000, 0, 30)]
    home.append(path_of(talk), b'{"type":"summary","summary":"more"}\n')
    home.index()
    assert [one["generation"] for one in capture(home, talk)["generations"]] == ["v1-pruned"]


def test_a_generation_is_pruned_where_it_looks_so_and_the_journal_is_lost(home: Home) -> None:
    """A marker that names its own record is an edit of ours; a quoted one is not; nor is a shorter record, as long as
    the Ledger was there to say otherwise."""
    for name, own in (("own", True), ("quoted", False)):
        talk = Transcript(session=make_uuid(name))
        record = talk.result(talk.call("Bash", {"command": "x"}), "words")
        named = record["uuid"] if own else make_uuid("another record")
        talk.lines[-1] = talk.lines[-1].replace(
            b"words", f"[fabled block {named}#message.content.0.content 9000B sha256:0123456789ab]".encode()
        )
        home.write(path_of(talk), talk.data)
        home.index()
        (one,) = capture(home, talk)["generations"]
        assert one["generation"] == ("v0-pruned" if own else "v0-raw")


# Thirty days later


def answers(home: Home, word: str) -> tuple[list[str], list[Any]]:
    """(threads a search finds, the turns of the first of them), as a user is answered."""
    queries = Queries(str(home.map_db))
    try:
        reader = Reader(queries, home.vault)
        hits = answer(reader, "search", {"query": word})["results"]
        found = [hit["thread"] for hit in hits]
        return found, answer(reader, "thread", {"id": found[0]})["turns"] if found else []
    finally:
        queries.close()


def read_back(home: Home, talk: Transcript) -> list[bytes]:
    """Every record of a transcript, as `block` gives it."""
    queries = Queries(str(home.map_db))
    try:
        reader = Reader(queries, home.vault)
        return [block_bytes(reader, {"id": record["uuid"]}) for record in talk.records]
    finally:
        queries.close()


def test_a_captured_session_that_is_deleted_is_still_there(home: Home, tmp_path: Path) -> None:
    """After somebody else's clean-up a session is found, read and had back as before, and no loss is told."""
    talk, other = session(home), session(home, "two", word="godwit")
    home.index()
    for one in (talk, other):
        capture(home, one)
    before, told, blocks = said(home), answers(home, "plover"), read_back(home, talk)
    assert told[0] and blocks == talk.lines
    os.unlink(home.root / path_of(talk))
    shutil.rmtree(home.root / P / talk.session)
    report = home.index()
    assert report.vanished == 0
    assert home.ledger.losses() == []
    assert (said(home), answers(home, "plover"), read_back(home, talk)) == (before, told, blocks)
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []
    value = capture(home, talk)
    assert (value["generations"], value["unchanged"], value["failed"]) == ([], 0, [])


def test_a_missing_root_takes_nothing(home: Home) -> None:
    """Where the whole root is away nothing is forgotten, in the Map or in the Vault."""
    talk = session(home)
    home.index()
    capture(home, talk)
    before, files = said(home), in_vault(home)
    home.root.rename(home.path / "away")
    assert home.index().waiting == (str(home.root),)
    value = capture(home, talk)
    assert value["generations"] == [] and value["retired"] == []
    assert (said(home), in_vault(home), home.ledger.losses()) == (before, files, [])
    home.root.mkdir()
    home.index()
    assert (said(home), in_vault(home), home.ledger.losses()) == (before, files, [])
    home.root.rmdir()
    (home.path / "away").rename(home.root)


def test_a_map_made_from_the_vault_alone_says_the_same(home: Home) -> None:
    """Transcripts deleted and the Map deleted: records, texts, threads and subagents come back from the Vault."""
    talk = session(home)
    home.index()
    capture(home, talk)
    before, told = said(home), answers(home, "plover")
    home.close()
    shutil.rmtree(home.root / P)
    (home.root / "-somewhere").mkdir()
    for path in home.path.glob("map.db*"):
        path.unlink()
    home.open()
    home.index()
    assert said(home) == before
    assert answers(home, "plover") == told
    assert read_back(home, talk) == talk.lines


def test_what_was_not_captured_is_told_as_lost(home: Home) -> None:
    """Only what no generation holds is a loss."""
    talk = session(home)
    home.index()
    capture(home, talk)
    talk.user("said after the capture")
    home.append(path_of(talk), talk.lines[-1] + b"\n")
    home.index()
    os.unlink(home.root / path_of(talk))
    assert home.index().vanished == 1


# The start


def test_generations_the_ledger_does_not_know_are_adopted(home: Home) -> None:
    """A lost Ledger is made again from the Vault's listing, and nothing is captured twice for it."""
    talk = session(home)
    home.index()
    capture(home, talk)
    before = [replace(one, reason="found", at=0, dev=None, ino=None, size=None, mtime_ns=None)
              for one in home.ledger.kept()]  # fmt: skip
    home.close()
    for path in home.path.glob("ledger.db*"):
        path.unlink()
    home.open()
    report = capturer(home).adopt()
    assert sorted(report.found) == sorted(one.path for one in before)
    assert [replace(one, at=0) for one in home.ledger.kept()] == before
    assert capturer(home).adopt() == Adopted()
    assert capture(home, talk)["unchanged"] == 4


def test_a_generation_that_cannot_be_read_is_not_adopted(home: Home) -> None:
    """A damaged file is told at each start and stands in nobody's way."""
    folder = home.vault_folder / P / make_uuid("damaged")
    folder.mkdir(parents=True, mode=0o700)
    (folder / "v0-raw.jsonl.zst").write_bytes(b"no zstd at all, however long it goes on")
    ((path, reason),) = capturer(home).adopt().failed
    assert path == str(folder / "v0-raw.jsonl.zst") and reason
    assert home.ledger.kept() == []
    shutil.rmtree(folder.parent)


def test_a_retirement_that_was_cut_short_is_ended(home: Home, tmp_path: Path) -> None:
    """A generation whose row says that it goes is removed at the next start, after the proof was made again."""
    talk = session(home)
    home.index()
    capture(home, talk)
    home.append(path_of(talk), b'{"type":"summary","summary":"more"}\n')
    home.index()

    class Killed(BaseException):
        pass

    def step(name: str) -> None:
        if name == "R2":
            raise Killed

    with pytest.raises(Killed):
        capturer(home).capture(talk.session, "asked", step)
    old, new = (one for one in home.ledger.kept(talk.session) if one.part == "")
    assert old.retired_at is not None and os.path.exists(old.path)
    assert capturer(home).adopt().retired == [old.path]
    assert not os.path.exists(old.path) and os.path.exists(new.path)
    assert differences(dump(home.map_db), rebuilt(home, tmp_path)) == []


def test_a_retirement_without_its_holder_is_taken_back(home: Home) -> None:
    """Where the generation that held the bytes is gone, the one that was to go stays and counts again."""
    talk = session(home)
    home.index()
    capture(home, talk)
    old = home.ledger.kept(talk.session)[0]
    home.ledger.retire(old.path, old.path.replace("v0", "v1"))
    report = capturer(home).adopt()
    assert (report.retired, os.path.exists(old.path)) == ([], True)
    assert home.ledger.kept(talk.session)[0].retired_at is None


def test_half_made_files_are_removed_and_rights_taken(home: Home) -> None:
    """A start removes what a writer left half made, and closes a Vault that was put back with wide rights."""
    talk = session(home)
    home.index()
    capture(home, talk)
    left = home.vault_folder / P / talk.session / ".fabled-1-0123456789abcdef.tmp"
    left.write_bytes(b"")
    for path in home.vault_folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert capturer(home).adopt().removed == [str(left)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.vault_folder.rglob("*"))


# When


def test_a_session_is_due_when_it_is_quiet_or_near_its_end(home: Home) -> None:
    """Changed and quiet for long enough, or so old that the client may delete it: the oldest of these first."""
    now, due = 2_000_000_000, capturer(home).due
    ages = {"quiet": 5 * 3_600, "busy": 60, "old": 29 * DAY, "older": 40 * DAY, "kept": 29 * DAY}
    talks = {}
    for name, age in ages.items():
        talks[name] = talk = Transcript(session=make_uuid(f"due {name}"))
        work(talk, 1, name)
        os.utime(home.write(path_of(talk), talk.data), (now - age, now - age))
    home.index()
    capture(home, talks["kept"])
    names = {talk.session: name for name, talk in talks.items()}
    assert [(names[one], why) for one, why in due(now, 14_400, 30)] == [
        ("older", "clean-up"), ("old", "clean-up"), ("quiet", "quiet"),
    ]  # fmt: skip
    assert [names[one] for one, why in due(now, 14_400, 1) if why == "quiet"] == ["quiet"]
    assert names[due(now + 13 * 3_600, 10**6, 1)[-1][0]] == "busy"
    assert [names[one] for one, _ in due(now, 30, 30)] == ["older", "old", "quiet", "busy"]
    for name in ("quiet", "old", "older", "busy"):
        capture(home, talks[name])
    assert due(now + 365 * DAY, 0, 30) == []


def test_a_session_whose_subagent_changed_is_due(home: Home) -> None:
    """A subagent that went on after its session was captured makes the session due."""
    talk = session(home)
    home.index()
    capture(home, talk)
    side = f"{P}/{talk.session}/subagents/agent-a01.jsonl"
    home.append(side, b'{"type":"summary","summary":"more"}\n')
    for path in (home.root / P).rglob("*.jsonl"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    home.index()
    assert capturer(home).due(1_700_100_000, 3_600, 30) == [(talk.session, "quiet")]
    assert [one["part"] for one in capture(home, talk)["generations"]] == ["subagents/agent-a01"]
    assert capturer(home).due(1_700_100_000, 3_600, 30) == []


def test_a_file_that_cannot_be_read_does_not_stop_the_others(home: Home) -> None:
    """What fails is listed with its reason; the rest of the session is captured."""
    talk = session(home)
    home.index()
    bad = home.root / P / talk.session / "subagents" / "agent-a01.jsonl"
    bad.unlink()
    bad.mkdir()
    home.write(f"{P}/{talk.session}/subagents/odd.txt", b"x")
    value = capture(home, talk)
    assert [one["part"] for one in value["generations"]] == [
        "", "subagents/agent-a01.meta.json", "subagents/odd.txt", "subagents/deep/agent-a02",
        "tool-results/toolu_1.txt",
    ]  # fmt: skip


def test_a_closed_folder_is_told(tmp_path: Path) -> None:
    """What lies in a folder that may not be entered is not kept, and the capture says so."""
    with unprivileged() as folder:
        home = Home(folder)
        talk = session(home)
        home.index()
        shut = home.root / P / talk.session / "tool-results"
        with closed(shut):
            value = capture(home, talk)
        assert value["failed"] == [{"path": str(shut), "reason": "Permission denied"}]
        assert len(value["generations"]) == 3
        assert capture(home, talk)["failed"] == []
        home.close()


# What a check finds


def result(home: Home, name: str, deep: bool = True, **more: Any) -> tuple[bool, str]:
    (found,) = [
        one
        for one in check.run(str(home.map_db), home.vault, str(home.path / "ledger.db"), deep, **more)
        if one.id == name
    ]
    return found.ok, found.message


def test_a_check_reads_every_generation(home: Home) -> None:
    """Its deep form compares each with what was written, side files too, and tells how far it is."""
    talk = session(home)
    home.index()
    capture(home, talk)
    told: list[tuple[int, int]] = []
    assert result(home, "generations", reading=lambda done, total: told.append((done, total)))[0]
    total = sum(one.logical for one in home.ledger.kept())
    assert len(told) == 4 and told[-1] == (total, total)
    side = next(Path(one.path) for one in home.ledger.kept() if one.part.startswith("tool-results"))
    whole = side.read_bytes()
    side.chmod(0o600)
    side.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    assert result(home, "generations", deep=False)[0]
    ok, message = result(home, "generations")
    assert not ok and str(side) in message
    side.unlink()
    assert result(home, "generations", deep=False) == (False, f"{side}: it is gone")
    side.write_bytes(whole)


def test_a_check_finds_what_is_left_half_made_and_what_others_can_read(home: Home) -> None:
    """A writer's hidden file counts once its process is gone; any file or folder of the Vault with wide rights."""
    talk = session(home)
    home.index()
    capture(home, talk)
    assert result(home, "private")[0] and result(home, "leftovers")[0]
    left = home.vault_folder / P / f".fabled-{os.getpid()}-0123456789abcdef.tmp"
    left.touch(0o600)
    assert result(home, "leftovers")[0]
    left.rename(left.with_name(".fabled-999999999-0123456789abcdef.tmp"))
    assert not result(home, "leftovers")[0]
    assert len(capturer(home).adopt().removed) == 1
    (home.vault_folder / P).chmod(0o755)
    assert not result(home, "private")[0]
