"""Prunes, undoes and restores real files through every real part: rules, proof, Vault, gate, replacement, Map."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from fabled.answers import answer
from fabled.errors import NotFound, StorageFault
from fabled.pruner import Pruner, due
from fabled.store.files import Scratch
from fabled.store.owners import Owner
from tests.build import Transcript, make_uuid
from tests.keeping import FOLDER, Keeping, aged

SHARED = Path(__file__).parents[2] / "shared"
LEVELS = ("gentle", "standard", "aggressive")
SESSION = make_uuid("session")


@pytest.fixture
def home(tmp_path: Path) -> Any:
    home = Keeping(tmp_path)
    yield home
    assert home.faults() == []
    home.close()


def working_day(turns: int = 40, session: str = SESSION, size: int = 6_000) -> Transcript:
    """A session that prunes well: tool output stored twice, progress records, snapshots."""
    transcript = Transcript(session)
    for number in range(turns):
        prompt = transcript.user(f"step {number}: why does booking {number} land on the wrong day?")
        for word in ("before", "after"):
            transcript.put(
                {
                    "type": "file-history-snapshot", "messageId": prompt["uuid"],
                    "snapshot": {"messageId": prompt["uuid"], "trackedFileBackups": {"a.py": {"v": word == "after"}}},
                }
            )  # fmt: skip
        call = transcript.call("Read", {"file_path": f"/home/ana/app/part{number}.py"})
        for tick in range(3):
            transcript.add("progress", data={"type": "hook_progress", "tick": tick, "pad": "x" * 200})
        text = f"part {number} says: " + "the zone is taken from the clerk's clock — née Übung 時刻 " * (size // 60)
        transcript.result(call, text, toolUseResult={"type": "text", "file": {"content": text}})
        transcript.assistant(f"Booking {number} is grouped by the UTC date.")
    return transcript


def restored_and_again(home: Keeping, session: str, original: bytes, path: Path) -> None:
    """Restore gives the original back byte for byte."""
    value = home.do("restore", session, apply=True)
    assert value["applied"], value["refused"]
    assert path.read_bytes() == original


# ── every transcript there is ───────────────────────────────────────────────────────────────────────────────────


def shared_transcripts() -> list[Path]:
    top = SHARED / "transcripts"
    return sorted(
        path for path in top.rglob("*.jsonl") if "subagents" not in path.parts and not path.name.startswith("agent-")
    )


@pytest.mark.skipif(not (SHARED / "transcripts").is_dir(), reason="the shared transcripts are not beside the project")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("part", range(6))
def test_no_byte_of_a_real_transcript_is_lost(part: int, level: str, tmp_path: Path) -> None:
    """At every level: the invariants hold, every record opens as it was, a second prune changes nothing, and restore
    gives back the file byte for byte."""
    pruned = 0
    for number, source in enumerate(shared_transcripts()[part::6]):
        home = Keeping(tmp_path / str(number))
        session = source.stem
        path = home.write(session, source.read_bytes())
        original, records = path.read_bytes(), home.records(path)
        home.index()
        value = home.prune(session, level)
        told = f"{source} {level}: {value['refused']}"
        assert [one for one in value["invariants"] if not one["ok"]] == [], told
        assert {one["code"] for one in value["refused"]} <= {"nothing"}, told
        assert home.lost(records) == [], told
        after = path.read_bytes()
        if value["applied"]:
            pruned += 1
            assert len(after) == value["after_bytes"] < len(original)
            again = home.prune(session, level)
            assert [one["code"] for one in again["refused"]] == ["nothing"], told
            assert path.read_bytes() == after
            assert all(one["ok"] for one in home.do("prune_check", session)["checks"]), told
            restored_and_again(home, session, original, path)
            assert home.lost(records) == [], told
        else:
            assert after == original
        assert home.faults() == [], told
        home.close()
        shutil.rmtree(home.path)
    assert pruned > 3


# ── the file itself ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_reports_what_the_real_one_does_and_changes_nothing(home: Keeping) -> None:
    path = home.put(working_day())
    home.index()
    before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino
    planned = home.prune(SESSION, apply=False)
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert not planned["applied"] and planned["refused"] == [] and planned["generation"] is None
    assert list(Path(home.config.places.vault).rglob("*.zst")) == []
    done = home.prune(SESSION)
    same = ("before_bytes", "after_bytes", "rules", "est_tokens_before", "est_tokens_after", "invariants", "windows")
    assert {key: done[key] for key in same} == {key: planned[key] for key in same}
    assert done["applied"] and path.stat().st_size == planned["after_bytes"] < 0.6 * len(before[0])


def test_a_full_disk_leaves_the_transcript_free(home: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prune whose scratch file finds no room is refused, holds nothing open, and works when there is room again."""
    path = home.put(working_day())
    home.index()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    make = home.pruner.scratch

    def made() -> Scratch:
        scratch = make()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        return scratch

    monkeypatch.setattr(home.pruner, "scratch", made)
    try:
        with pytest.raises(StorageFault):
            home.pruner.prune(SESSION, "gentle", True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    monkeypatch.undo()
    assert str(path) not in {os.path.realpath(f"/dev/fd/{name}") for name in os.listdir("/dev/fd")}
    assert home.prune(SESSION)["applied"]


def test_mode_time_and_owner_stay(home: Keeping) -> None:
    """I18: the resume list goes by the time, and nobody else may read it (cases 63, 67)."""
    path = home.put(working_day())
    before = path.stat()
    home.index()
    assert home.prune(SESSION)["applied"]
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (before.st_mode, before.st_mtime_ns, before.st_uid)
    assert after.st_ino != before.st_ino
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    for one in Path(home.config.places.vault).rglob("*"):
        assert stat.S_IMODE(one.stat().st_mode) & 0o077 == 0


def test_what_is_appended_after_a_prune_survives_undo_and_restore(home: Keeping) -> None:
    transcript = working_day()
    path = home.put(transcript)
    original = path.read_bytes()
    home.index()
    assert home.prune(SESSION)["applied"]
    transcript.user("and one more thing")
    more = transcript.lines[-1] + b"\n"
    with path.open("ab") as file:
        file.write(more)
    aged(path, 3_600)
    home.index()
    told = home.do("undo", SESSION)
    assert not told["applied"] and told["after_bytes"] == len(original) + len(more)
    assert home.do("undo", SESSION, apply=True)["applied"]
    assert path.read_bytes() == original + more
    assert home.do("undo", SESSION, apply=True)["refused"][0]["code"] == "nothing"
    assert home.prune(SESSION, "standard")["applied"]
    value = home.do("restore", f"{SESSION}@v0", apply=True)
    assert value["applied"], value
    assert path.read_bytes() == original + more


def test_undo_refuses_what_is_not_the_prunes_result(home: Keeping) -> None:
    path = home.put(working_day())
    home.index()
    assert home.prune(SESSION)["applied"]
    data = path.read_bytes().replace(b"step 3:", b"Step 3:")
    path.write_bytes(data)
    aged(path, 3_600)
    home.index()
    assert home.do("undo", SESSION, apply=True)["refused"][0]["code"] == "changed"
    assert path.read_bytes() == data


def test_a_session_that_the_client_deleted_comes_back(home: Keeping) -> None:
    """The clean-up's victim, after a prune, with a new line since: restored whole, its subagent and results too."""
    transcript = working_day()
    path = home.put(transcript)
    side = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    side.parent.mkdir(parents=True)
    agent = Transcript(SESSION, agent="a1", sidechain=True)
    agent.user("look into it")
    agent.assistant("looked")
    side.write_bytes(agent.data)
    side.with_suffix("").with_suffix(".meta.json").write_text('{"agentType":"Explore"}')
    result = path.with_suffix("") / "tool-results" / "out.txt"
    result.parent.mkdir()
    result.write_text("a long output")
    records = home.records(path)
    home.index()
    assert home.prune(SESSION, "standard")["applied"]
    transcript.user("one more thing")
    with path.open("ab") as file:
        file.write(transcript.lines[-1] + b"\n")
    home.index()
    records += home.records(path)[-1:]
    original = transcript.data
    assert home.do("capture", SESSION)["captured"] >= 2
    path.unlink()
    shutil.rmtree(path.with_suffix(""))
    home.index()
    assert home.lost(records) == []
    value = home.do("restore", SESSION, apply=True)
    assert value["applied"], value
    assert path.read_bytes() == original
    assert side.read_bytes() == agent.data and result.read_text() == "a long output"
    assert time.time() - path.stat().st_mtime < 600, "an old time would let the clean-up take it again"


def test_restore_into_a_file_of_ones_own(home: Keeping, tmp_path: Path) -> None:
    path = home.put(working_day())
    original = path.read_bytes()
    home.index()
    assert home.prune(SESSION)["applied"]
    pruned = path.read_bytes()
    to = tmp_path / "back.jsonl"
    assert not home.do("restore", f"{SESSION}@v0", to=str(to))["applied"] and not to.exists()
    assert home.do("restore", f"{SESSION}@v0", to=str(to), apply=True)["applied"]
    assert to.read_bytes() == original and path.read_bytes() == pruned
    assert home.do("restore", f"{SESSION}@v0", to=str(to), apply=True)["refused"][0]["code"] == "exists"


def test_a_generation_that_is_not_there_is_named(home: Keeping) -> None:
    home.put(working_day())
    home.index()
    home.prune(SESSION)
    with pytest.raises(NotFound, match="v9"):
        home.do("restore", f"{SESSION}@v9", apply=True)


# ── what must refuse ────────────────────────────────────────────────────────────────────────────────────────────


def owner_file(home: Keeping, session: str, **more: Any) -> Path:
    """What a running client leaves in its sessions folder: this process, as it stands in /proc."""
    started = Path("/proc/self/stat").read_text().rsplit(") ", 1)[1].split()[19]
    folder = home.claude / "sessions"
    folder.mkdir(exist_ok=True)
    path = folder / f"{os.getpid()}.json"
    path.write_text(json.dumps({"pid": os.getpid(), "sessionId": session, "procStart": started, **more}))
    return path


def test_a_busy_client_is_left_alone_and_an_idle_one_is_pruned_gently(home: Keeping) -> None:
    path = home.put(working_day())
    original = path.read_bytes()
    home.index()
    owner_file(home, SESSION, status="busy")
    refused = home.prune(SESSION)
    assert [one["code"] for one in refused["refused"]] == ["busy"] and path.read_bytes() == original
    owner_file(home, SESSION, status="idle")
    aged(path, 600)
    assert [one["code"] for one in home.prune(SESSION, "standard")["refused"]] == ["open"]
    assert home.prune(SESSION)["applied"]


def test_a_transcript_just_written_is_left_alone(home: Keeping) -> None:
    path = home.put(working_day(), age=3)
    home.index()
    assert [one["code"] for one in home.prune(SESSION)["refused"]] == ["active"]
    assert list(Path(home.config.places.vault).rglob("*.zst")) == [], "a refusal leaves no generation behind"
    aged(path, 100)
    assert home.prune(SESSION)["applied"]


def test_too_small_or_too_little_gained_leaves_no_trace(tmp_path: Path) -> None:
    """Case 61: a transcript that cannot be pruned gathers no backups, however often it is tried."""
    home = Keeping(tmp_path, FABLED_PRUNE_MIN_BYTES="1000000", FABLED_PRUNE_MIN_GAIN="0.1")
    small = home.put(working_day(3))
    lean = Transcript(make_uuid("lean"))
    for number in range(3_000):
        lean.user(f"{number} " + "words that somebody typed " * 10)
    path = home.put(lean)
    home.index()
    for _ in range(20):
        assert home.prune(SESSION)["refused"][0]["code"] == "small"
        assert home.prune(lean.session)["refused"][0]["code"] in ("nothing", "no_gain")
    assert list(Path(home.config.places.vault).rglob("*.zst")) == []
    assert small.exists() and path.stat().st_size == len(lean.data)
    home.close()


def test_what_another_program_cut_short_waits_for_its_owner(home: Keeping) -> None:
    """A file that lost records to somebody else is not pruned until it was captured or restored."""
    transcript = working_day(60)
    path = home.put(transcript)
    home.index()
    home.do("capture", SESSION)
    path.write_bytes(b"".join(line + b"\n" for line in transcript.lines[:150]))
    aged(path, 3_600)
    home.index()
    assert [one["code"] for one in home.prune(SESSION)["refused"]] == ["rewritten"]
    assert home.do("restore", SESSION, apply=True)["applied"]
    assert path.read_bytes() == transcript.data


def test_a_link_is_no_transcript_to_replace(home: Keeping, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.jsonl"
    real.write_bytes(working_day().data)
    aged(real, 7_200)
    (home.projects / FOLDER).mkdir(parents=True)
    (home.projects / FOLDER / f"{SESSION}.jsonl").symlink_to(real)
    home.index()
    before = real.read_bytes()
    with pytest.raises(NotFound):
        home.prune(SESSION)
    assert real.read_bytes() == before


# ── deciding ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_ownership_rule_in_all_its_cases(tmp_path: Path) -> None:
    settings = Keeping(tmp_path).config.prune
    idle, busy, silent = (Owner(9, SESSION, status, "") for status in ("idle", "busy", None))

    def code(*owners: Owner, quiet: float = 7_200, unanswered: bool = False, level: Any = "gentle") -> str | None:
        found = due.may_touch(owners, quiet, unanswered, level, settings)
        return found.code if found else None

    assert code() is None
    assert code(idle, busy) == "shared"
    assert code(quiet=29) == "active" and code(quiet=31) is None
    assert code(busy) == "busy" and code(idle) is None
    assert code(Owner(9, SESSION, "waiting", "")) == "busy", "it waits for a permission, in the middle of a turn"
    assert code(silent, unanswered=True) == "busy" and code(silent) is None
    assert code(idle, level="standard", quiet=3_599) == "open" and code(idle, level="standard", quiet=3_601) is None
    assert code(unanswered=True, quiet=100) == "busy" and code(unanswered=True, quiet=601) is None


def test_waiting_doubles_while_nothing_comes_of_it(tmp_path: Path) -> None:
    """I22: ten minutes, twenty, … up to a day; growth by a fifth begins anew."""
    settings = Keeping(tmp_path).config.prune
    attempt, waits = None, []
    for _ in range(10):
        one = due.Candidate(SESSION, "/x", 2_000_000, 0, None, attempt)
        attempt = due.tried(one, "gentle", due.Refusal("no_gain", "too little"), 2_000_000, 1_000_000, settings)
        waits.append(attempt.not_before - 1_000_000)
    assert waits[:4] == [600, 1_200, 2_400, 4_800] and waits[-1] == 86_400
    settings = Keeping(tmp_path, FABLED_PRUNE_MIN_BYTES="1000000").config.prune
    one = due.Candidate(SESSION, "/x", 2_000_000, 0, None, attempt)
    assert due.due(one, "gentle", settings, 1_000_100).level is None
    grown = due.Candidate(SESSION, "/x", 2_400_000, 0, None, attempt)
    assert due.due(grown, "gentle", settings, 1_000_100).level == "gentle"


def test_automatic_pruning_captures_prunes_once_and_comes_to_rest(home: Keeping) -> None:
    """Nothing is done over and over without gain, also across a restart."""
    from fabled.pruner import Automatic

    path = home.put(working_day(200), age=20_000)
    assert path.stat().st_size > 1_000_000
    home.index()
    done = []
    for _ in range(2):
        automatic = Automatic(home.pruner, "gentle", "")
        while (one := automatic.turn(lambda: False)) is not None:
            done.append((one.what, one.refused.code if one.refused else None))
            home.settle()
            assert len(done) < 10, done
        home.close()
        home.open()
    assert done.count(("prune", None)) == 1 and {what for what, refused in done if refused} <= {"prune"}, done
    outlook = Automatic(home.pruner, "gentle", "").outlook()
    assert outlook.pruned == 1 and outlook.saved_bytes > 0
    assert outlook.sessions and outlook.sessions[0]["verdict"]


def test_pruner_is_what_the_writer_opens(home: Keeping) -> None:
    assert isinstance(home.pruner, Pruner)


# ── what only the live file has ─────────────────────────────────────────────────────────────────────────────────


def test_a_last_record_without_its_newline_is_captured_after_a_prune(home: Keeping) -> None:
    """The prune carries it over, and the next capture keeps it: nothing else has it."""
    transcript = working_day()
    path = home.write(SESSION, transcript.data[:-1])
    last = home.records(path)[-1:]
    home.index()
    assert home.prune(SESSION)["applied"]
    assert home.do("capture", SESSION)["captured"] == 1
    path.unlink()
    home.index()
    assert home.lost(last) == []
    assert home.do("restore", SESSION, apply=True)["applied"]
    assert path.read_bytes() == transcript.data[:-1]


def test_what_is_appended_while_a_prune_runs_is_captured_afterwards(home: Keeping) -> None:
    transcript = working_day()
    path = home.put(transcript)
    home.index()
    transcript.user("in the middle of it")
    late = transcript.lines[-1] + b"\n"

    def step(name: str) -> None:
        if name == "K7" and not path.read_bytes().endswith(late):
            with path.open("ab") as file:
                file.write(late)
            aged(path, 3_600)

    home.pruner.step = step
    assert home.prune(SESSION)["applied"]
    assert path.read_bytes().endswith(late)
    (one,) = home.records(path)[-1:]
    home.index()
    assert [session for session, _ in home.pruner.capturer.due(time.time(), 60, 30)] == [SESSION]
    assert home.do("capture", SESSION)["captured"] == 1
    path.unlink()
    home.index()
    assert home.lost([one]) == []


def test_a_fork_of_a_pruned_session_stands_its_check(home: Keeping) -> None:
    """Its markers name blocks that the other session's generations hold; they are text here, and no fault."""
    home.put(working_day())
    home.index()
    assert home.prune(SESSION, "standard")["applied"]
    pruned = (home.projects / FOLDER / f"{SESSION}.jsonl").read_bytes()
    assert b"[fabled block " in pruned
    other = make_uuid("fork")
    more = working_day(30, other)
    home.write(other, pruned.replace(SESSION.encode(), other.encode()) + more.data)
    home.index()
    assert home.prune(other)["applied"]
    checks = home.do("prune_check", other)["checks"]
    assert [one for one in checks if not one["ok"]] == []


def test_a_session_that_moved_to_another_folder_comes_back(home: Keeping) -> None:
    transcript = working_day()
    path = home.put(transcript)
    home.index()
    assert home.prune(SESSION)["applied"]
    moved = home.projects / "-home-ana-moved" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    home.index()
    assert home.do("undo", SESSION, apply=True)["applied"]
    assert moved.read_bytes() == transcript.data
    assert home.prune(SESSION, "standard")["applied"]
    for _ in range(2):
        assert home.do("restore", f"{SESSION}@v0", apply=True)["refused"] in (
            [], [{"code": "nothing", "message": "the live transcript already holds all of it"}],
        )  # fmt: skip
        assert moved.read_bytes() == transcript.data


def test_a_line_that_a_capture_saw_half_of_is_restored_once(home: Keeping) -> None:
    transcript = working_day()
    path = home.write(SESSION, transcript.data[:-200])
    home.index()
    assert home.do("capture", SESSION)["captured"] == 1
    path.write_bytes(transcript.data)
    aged(path, 7_200)
    home.index()
    assert home.prune(SESSION)["applied"]
    assert home.do("restore", SESSION, apply=True, full=True)["applied"]
    assert path.read_bytes() == transcript.data


def test_a_capture_by_hand_settles_what_another_program_did(home: Keeping) -> None:
    transcript = working_day(60)
    path = home.put(transcript)
    home.index()
    home.do("capture", SESSION)
    path.write_bytes(b"".join(line + b"\n" for line in transcript.lines[:150]))
    aged(path, 3_600)
    home.index()
    assert [one["code"] for one in home.prune(SESSION)["refused"]] == ["rewritten"]
    home.do("capture", SESSION)
    assert "rewritten" not in [one["code"] for one in home.prune(SESSION)["refused"]]
    assert [loss.kind for loss in home.ledger.losses()] == ["shrunk"], "it is still told"


# ── the check of the last prune ─────────────────────────────────────────────────────────────────────────────────


def checks_of(home: Keeping) -> dict[str, bool]:
    return {one["id"]: one["ok"] for one in home.do("prune_check", SESSION)["checks"]}


def test_what_another_program_put_there_says_nothing_of_the_prune(home: Keeping) -> None:
    """A new file in its place is no fault of ours and stops nothing; a result changed in its place is one."""
    path = home.put(working_day())
    home.index()
    assert home.prune(SESSION)["applied"]
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data.replace(b"step 3:", b"Step 3:"))
    assert not checks_of(home)["result"]
    assert home.ledger.checks()[SESSION][1] is False
    other = path.with_suffix(".tmp")
    other.write_bytes(data.replace(b"step 3:", b"Step 3:"))
    other.replace(path)
    assert all(checks_of(home).values())
    assert home.ledger.checks()[SESSION][1] is True


def test_a_prune_of_other_rules_is_held_to_its_own_bytes(home: Keeping) -> None:
    """After an update the same plan cannot be made again; the bytes are still those that were proven."""
    home.put(working_day())
    home.index()
    assert home.prune(SESSION, "standard")["applied"]
    (entry,) = home.ledger.journal(SESSION)
    report = json.loads(entry.report or "")
    home.ledger.set(entry.id, report=json.dumps({**report, "limits": [700, True]}))
    assert all(checks_of(home).values())


def test_a_call_larger_than_the_window_still_waits_for_its_result(home: Keeping) -> None:
    """The last line alone may be longer than the end that is looked at."""
    transcript = working_day(20)
    transcript.user("write it")
    transcript.call("Write", {"file_path": "/a", "content": "z" * 400_000})
    home.put(transcript, age=60)
    home.index()
    assert [one["code"] for one in home.prune(SESSION)["refused"]] == ["busy"]


def test_a_diff_of_equal_states_tells_equal_sizes(home: Keeping) -> None:
    """Also where the last record has no newline yet."""
    home.write(SESSION, working_day(20).data[:-1])
    home.index()
    home.do("capture", SESSION)
    with home.reader() as reader:
        told = answer(reader, "diff", {"session": SESSION})
    assert told["before_bytes"] == told["after_bytes"] == len(working_day(20).data) - 1
