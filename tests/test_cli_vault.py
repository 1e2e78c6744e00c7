"""`capture`, `generations`, `prune`, `restore`, `undo` and `diff` as people and programs call them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build import Transcript, make_uuid
from tests.shell import FOLDER, Home, daemon, harbour

SESSION = make_uuid("old")
VERBS = ("capture", "generations", "prune", "restore", "undo", "diff")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 40_000}}
NO_FLOORS = (
    "[prune]\nmin_bytes = 0\nmin_gain_bytes = 0\nmin_gain = 0.0\nquiet_seconds = 0\ndrain_seconds = 1\n"
    "[capture]\nreserve_bytes = 0\n"
)


def old_talk() -> Transcript:
    """A long session: an old picture and long results at its beginning."""
    talk = Transcript(SESSION)
    talk.user("Draw the harbour's chart")
    call = talk.call("Draw", {"what": "chart"})
    talk.result(call, [{"type": "text", "text": "here it is"}, IMAGE], toolUseResult={"file": "x" * 30_000})
    for number in range(70):
        talk.user(f"And berth {number}?")
        call = talk.call("Bash", {"command": f"berth {number}"})
        talk.add("progress", data={"type": "bash_progress", "output": "tick " * 200})
        talk.result(call, f"berth {number} is free\n" * 300, parent=call["uuid"])
        talk.assistant(f"Berth {number} is free.")
    return talk


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    (tmp_path / "fabled").mkdir(mode=0o700)
    (tmp_path / "fabled" / "config.toml").write_text(NO_FLOORS)
    return made


def old_file(home: Home) -> tuple[Path, Transcript]:
    """The old session, last written an hour ago."""
    talk = old_talk()
    path = home.write(talk)
    before = path.stat().st_mtime - 3_600
    os.utime(path, (before, before))
    return path, talk


@pytest.fixture(params=["daemon", "no daemon"])
def working(request: pytest.FixtureRequest, home: Home) -> Iterator[Home]:
    """A home with the old session in it, worked on by a daemon or by the command itself."""
    old_file(home)
    home.write(harbour())
    if request.param == "daemon":
        with daemon(home):
            yield home
    else:
        assert home.run("index").returncode == 0
        yield home


def sound(home: Home) -> None:
    assert home.run("check", "--deep").returncode == 0, home.run("check", "--deep").stdout


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a command that failed."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("fabled: ") and "not running" not in line]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


# ── the whole way ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_kept_made_smaller_looked_at_and_put_back(working: Home) -> None:
    """The promise end to end: plan, prune, diff, every block opens, check, undo: byte for byte what it was."""
    path = working.projects / FOLDER / f"{SESSION}.jsonl"
    before = path.read_bytes()
    plan = working.run("prune", SESSION[:8], "--level", "standard")
    assert (plan.returncode, path.read_bytes()) == (0, before), plan.stdout + plan.stderr
    assert f"Do it:  fabled prune {SESSION[:8]} --level standard --apply" in plan.stdout
    done = working.run("prune", SESSION[:8], "--level", "standard", "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Undo:  fabled undo {SESSION[:8]} --apply" in done.stdout
    assert len(path.read_bytes()) < len(before) * 0.7

    value = working.json("diff", SESSION[:8])
    blocks = [block for thread in value["threads"] for block in thread["blocks"]]  # type: ignore[attr-defined]
    assert {"image", "tool output"} <= {block["what"] for block in blocks}
    picture = next(block["id"] for block in blocks if block["what"] == "image")
    assert working.bytes("block", picture, "--raw") in before
    assert f"fabled block {picture[:8]}#" in working.run("diff", SESSION[:8]).stdout
    assert working.run("prune", SESSION[:8], "--check").returncode == 0

    dry = working.run("undo", SESSION[:8])
    assert dry.returncode == 0 and f"Do it:  fabled undo {SESSION[:8]} --apply" in dry.stdout
    undone = working.run("undo", SESSION[:8], "--apply")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert path.read_bytes() == before
    sound(working)


def test_a_kept_state_comes_back_and_newer_lines_stay(working: Home) -> None:
    path = working.projects / FOLDER / f"{make_uuid('harbour')}.jsonl"
    before = path.read_bytes()
    value = working.json("capture", make_uuid("harbour")[:8])
    assert value["captured"] == 1 and value["sessions"][0]["failed"] == []  # type: ignore[index]
    listed = working.json("generations", make_uuid("harbour"))
    assert [row["generation"] for row in listed["generations"]] == ["v0-raw"]  # type: ignore[attr-defined]
    assert listed["generations"][0]["sha256"] == hashlib.sha256(before).hexdigest()  # type: ignore[index]
    out = working.path / "all.jsonl"
    done = working.run("restore", f"{make_uuid('harbour')[:8]}@v0", "--to", "all.jsonl", "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert out.read_bytes() == before
    again = working.run("restore", f"{make_uuid('harbour')[:8]}@v0", "--to", "all.jsonl", "--apply")
    assert again.returncode == 4 and out.read_bytes() == before


def test_a_deleted_transcript_comes_back(working: Home) -> None:
    path = working.projects / FOLDER / f"{make_uuid('harbour')}.jsonl"
    before = path.read_bytes()
    assert working.run("capture", make_uuid("harbour")).returncode == 0
    path.unlink()
    dry = working.run("restore", f"{make_uuid('harbour')[:8]}@v0")
    assert dry.returncode == 0 and not path.exists() and "Nothing was changed" in dry.stdout
    done = working.run("restore", f"{make_uuid('harbour')[:8]}@v0", "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == before


def test_capture_of_everything_keeps_each_session_once(working: Home) -> None:
    assert working.json("capture")["captured"] == 2
    second = working.json("capture")
    assert (second["captured"], second["unchanged"]) == (0, 2)
    assert working.run("capture").stdout.startswith("Nothing to keep: 2 files unchanged")
    rows = working.run("generations", "--plain").stdout.splitlines()
    assert {row.split("\t")[0] for row in rows} == {SESSION, make_uuid("harbour")}


# ── refusals and mistakes ───────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_prune_is_exit_4_and_changes_nothing(working: Home) -> None:
    """The short session has nothing to take out: both forms say so, and the bytes are the same."""
    path = working.projects / FOLDER / f"{make_uuid('harbour')}.jsonl"
    before = path.read_bytes()
    for apply in ([], ["--apply"]):
        done = working.run("prune", make_uuid("harbour")[:8], *apply)
        assert done.returncode == 4 and "Refused: " in done.stdout and "Nothing was changed." in done.stdout
        value = json.loads(working.run("prune", make_uuid("harbour")[:8], "--json", *apply).stdout)
        assert value["v"] == 1 and value["applied"] is False and value["refused"][0]["code"]
    undo = working.run("undo", make_uuid("harbour")[:8], "--apply")
    assert undo.returncode == 4 and "no prune of it" in undo.stdout
    assert path.read_bytes() == before


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_session_is_one_line(working: Home, verb: str) -> None:
    done = working.run(verb, "ffffffff", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (1, "not_found") and "no session ffffffff" in error["message"]
    assert "no session ffffffff" in told(done)


@pytest.mark.parametrize("verb", VERBS)
def test_a_prefix_of_less_than_six_is_none(home: Home, verb: str) -> None:
    old_file(home)
    assert home.run("index").returncode == 0
    done = home.run(verb, SESSION[:5])
    assert done.returncode == 1 and "at least 6 characters" in told(done)


@pytest.mark.parametrize("verb", VERBS)
def test_an_ambiguous_prefix_lists_what_it_may_mean(home: Home, verb: str) -> None:
    names = ["abcdef12-0000-4000-8000-000000000001", "abcdef12-0000-4000-8000-000000000002"]
    for name in names:
        talk = Transcript(name)
        talk.user(f"hello {name}")
        home.write(talk)
    assert home.run("index").returncode == 0
    done = home.run(verb, "abcdef", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], sorted(error["candidates"])) == (2, "ambiguous", names)
    assert all(name in told(done) for name in names)


@pytest.mark.parametrize(
    ("arguments", "exit", "said"),
    [
        (["restore", "{}@v9"], 1, "has no generation v9"),
        (["diff", "{}@v0..v9"], 1, "has no generation v9"),
        (["restore", "{}@nine"], 2, "@nine names no state"),
        (["restore", "{}@v0", "--full"], 2, "but not both"),
        (["restore", "{}@"], 2, "ends with @"),
        (["undo", "{}@v0"], 2, "without a state"),
        (["prune", "{}@v0"], 2, "without a state"),
        (["generations", "{}@v0"], 2, "without a state"),
        (["prune", "{}", "--level", "wild"], 2, "wild"),
        (["prune", "{}", "--check", "--apply"], 2, "--check takes neither"),
        (["prune"], 2, "SESSION"),
        (["generations", "{}", "--json", "--plain"], 2, "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(home: Home, arguments: list[str], exit: int, said: str) -> None:
    """Wrong states, wrong options: what, why, and the next step, with nothing changed."""
    path, talk = old_file(home)
    assert home.run("capture", SESSION).returncode == 0
    done = home.run(*(argument.format(SESSION[:8]) for argument in arguments))
    assert done.returncode == exit and said in told(done)
    assert path.read_bytes() == talk.data


def test_without_a_map_everything_is_indexed_first(home: Home) -> None:
    """The first command somebody runs may be this one."""
    path, talk = old_file(home)
    done = home.run("prune", SESSION[:8])
    assert done.returncode == 0 and done.stdout.startswith(f"Plan for {SESSION[:8]}"), done.stdout + done.stderr
    assert path.read_bytes() == talk.data


def test_help_begins_with_examples(home: Home) -> None:
    for verb in VERBS:
        done = home.run(verb, "--help")
        assert done.returncode == 0 and f"fabled {verb}" in done.stdout
    assert all(verb in home.run("--help").stdout for verb in VERBS)


def test_a_narrow_terminal_and_ascii_show_the_same_facts(home: Home) -> None:
    old_file(home)
    assert home.run("capture").returncode == 0
    for env in ({"COLUMNS": "40"}, {"LANG": "C", "LC_ALL": "C"}):
        shown = home.run("generations", SESSION[:8], **env).stdout
        assert "v0-raw" in shown and "live" in shown
        assert "LANG" not in env or shown.isascii()


# ── one value of a record ───────────────────────────────────────────────────────────────────────────────────────


def test_a_value_of_a_record_is_shown_as_text_and_raw_as_written(working: Home) -> None:
    talk = old_talk()
    uuid = talk.records[6]["uuid"]
    text = talk.records[6]["message"]["content"][0]["content"]
    assert text.startswith("berth 0 is free")
    id_ = f"{uuid[:8]}#message.content.0.content"
    assert working.bytes("block", id_) == text.encode() + b"\n"
    assert working.bytes("block", id_, "--raw") == json.dumps(text).encode()
    part = working.json("block", id_)["part"]
    assert part["length"] == len(json.dumps(text)) and part["path"] == "message.content.0.content"  # type: ignore[index]
    assert "message.content.0.content" in working.run("block", id_, "--info").stdout
    done = working.run("block", f"{uuid}#message.nothing")
    assert done.returncode == 1 and "has no value at message.nothing" in told(done)
