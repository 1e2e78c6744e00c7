"""What is excluded or forgotten: out of Map, Vault and Ledger, kept out, and nothing else touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled import answers
from fabled.capture import forget
from fabled.errors import StorageFault
from fabled.indexer import Indexer
from fabled.pruner import perform
from fabled.store import cards, generations
from fabled.transcript.card import Card
from tests.build import Transcript, make_uuid
from tests.keeping import Keeping
from tests.shell import Home, daemon, harbour

DIARY, DIARY_FOLDER = "/home/ana/my-diary", "-home-ana-my-diary"
WORD = "zebrafish"


def diary(name: str = "diary", cwd: str = DIARY) -> Transcript:
    talk = Transcript(make_uuid(name), cwd=cwd)
    talk.user(f"the {WORD} of {name}")
    talk.assistant(f"A secret {WORD}.")
    return talk


@pytest.fixture(params=["daemon", "no daemon"])
def working(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A home with a diary and other work in it, both captured."""
    home = Home(tmp_path)
    home.write(diary(), DIARY_FOLDER)
    home.write(harbour())
    if request.param == "daemon":
        with daemon(home):
            assert home.run("capture").returncode == 0
            yield home
    else:
        assert home.run("capture").returncode == 0
        yield home


def found(home: Home, word: str = WORD) -> int:
    return int(json.loads(home.run("search", word, "--all", "--json").stdout)["total"])


def stored(home: Home) -> bytes:
    """All that fabled itself keeps on the disk, but the log."""
    data = home.path / "fabled" / "data"
    return b"".join(path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file())


def test_a_session_is_forgotten_only_when_confirmed(working: Home) -> None:
    """Without a word of consent nothing goes; with it the session leaves search, Vault and files, and stays out."""
    session = make_uuid("diary")
    live = working.projects / DIARY_FOLDER / f"{session}.jsonl"
    asked = working.run("forget", session[:8])
    assert asked.returncode == 4 and "--yes" in asked.stderr and "1 generation" in asked.stdout
    assert found(working) == 1 and WORD.encode() in stored(working)
    told = json.loads(working.run("forget", session[:8], "--yes", "--json").stdout)
    assert told["applied"] and told["generations"] == 1 and told["failed"] == []
    assert found(working) == 0 and found(working, "midnight") == 1
    assert live.read_bytes() == diary().data
    assert session not in working.run("generations", "--json").stdout
    assert not list((working.path / "fabled" / "data" / "vault").glob(f"*/{session}"))
    with open(live, "ab") as file:  # the client goes on with it
        file.write(diary("later").data)
    assert working.run("index").returncode == 0
    assert found(working) == 0
    assert working.run("check", "--deep").returncode == 0
    listed = json.loads(working.run("forget", "--list", "--json").stdout)["forgotten"]
    assert [(one["kind"], one["name"], one["done"]) for one in listed] == [("session", session, True)]
    assert working.run("forget", session[:8], "--yes").returncode == 1
    assert working.run("forget", "--let-in", session[:8]).returncode == 0
    assert found(working) == 2 or found(working) == 1
    assert working.run("check", "--deep").returncode == 0


def test_no_word_of_it_is_left_on_the_disk(tmp_path: Path) -> None:
    """Neither the Map's pages nor the Ledger hold text of a forgotten session."""
    home = Home(tmp_path)
    for number in range(30):
        home.write(diary(f"diary {number}"), DIARY_FOLDER)
    home.write(harbour())
    assert home.run("capture").returncode == 0
    assert home.run("terms", "--limit", "5").returncode == 0
    assert WORD.encode() in stored(home)
    assert home.run("forget", "--project", DIARY, "--yes").returncode == 0
    assert WORD.encode() not in stored(home)


def test_a_project_is_forgotten_with_what_is_still_to_come(working: Home) -> None:
    """All its sessions go, and a session written there later never comes in; a sibling folder of like name does."""
    done = working.run("forget", "--project", DIARY, "--yes")
    assert done.returncode == 0, done.stderr
    working.write(diary("another"), DIARY_FOLDER)
    working.write(diary("sibling", "/home/ana/my/diary"), DIARY_FOLDER)
    assert working.run("index").returncode == 0
    assert found(working) == 1
    assert working.run("capture").returncode == 0
    vault = working.path / "fabled" / "data" / "vault" / DIARY_FOLDER
    assert [path.name for path in vault.iterdir()] == [make_uuid("sibling")]
    assert working.run("forget", "--let-in", DIARY).returncode == 0
    assert found(working) == 3
    assert working.run("check", "--deep").returncode == 0


def test_it_is_told_what_lies_nowhere_else(tmp_path: Path) -> None:
    """Records that only the Vault holds in full are counted before anything is asked."""
    home = Home(tmp_path)
    path = home.write(diary(), DIARY_FOLDER)
    assert home.run("capture").returncode == 0
    path.unlink()
    (path.parent / "other.jsonl").write_bytes(b"")
    assert home.run("index").returncode == 0
    told = json.loads(home.run("forget", make_uuid("diary"), "--json").stdout.splitlines()[0])
    assert (told["only_here"], told["applied"]) == (2, False)
    assert "2 records exist in full nowhere else" in home.run("forget", make_uuid("diary")).stdout


def test_a_terminal_is_asked_for_the_name(tmp_path: Path) -> None:
    """At a terminal the name is to be typed; another word, or none, changes nothing."""
    home = Home(tmp_path)
    home.write(diary(), DIARY_FOLDER)
    assert home.run("capture").returncode == 0
    name = make_uuid("diary")[:8].encode()
    for word, exit, left in ((b"yes", 4, 1), (b"", 4, 1), (name, 0, 0)):
        status, shown = home.on_terminal("forget", make_uuid("diary"), answer=(b"to forget it", word + b"\r"))
        assert (status, found(home)) == (exit, left), shown


def test_exclusion_keeps_a_project_out_and_gives_it_back(working: Home) -> None:
    """By path, by folder's name or by the path's last part; the Vault keeps what it has, and nothing counts as lost."""
    for name in (DIARY, DIARY_FOLDER, "my-diary"):
        assert working.run("config", "set", "exclude", name).returncode == 0
        assert working.run("index").returncode == 0
        assert (found(working), found(working, "midnight")) == (0, 1)
        assert json.loads(working.run("projects", "--json").stdout)["total"] == 1
        assert list((working.path / "fabled" / "data" / "vault" / DIARY_FOLDER).glob("*/*.zst"))
        assert working.run("check", "--deep").returncode == 0
        status = working.run("status", "--json")
        if status.returncode == 0:
            assert [one for one in json.loads(status.stdout)["warnings"] if one["code"] == "vanished"] == []
        assert working.run("config", "unset", "exclude").returncode == 0
        assert working.run("index").returncode == 0
        assert found(working) == 1


def test_a_kill_between_promise_and_removal_is_made_good(tmp_path: Path) -> None:
    """The promise in the Ledger is kept at the next start, whatever step the process died before: no word is left in
    any file, neither in a card a model made nor in a damaged index that was moved aside."""
    for step in ("forget begun", "promised", "drop", "forget done"):
        home = Keeping(tmp_path / step.replace(" ", "-"))
        for name in ("diary", *(f"diary {number}" for number in range(30))):
            home.write(diary(name).session, diary(name).data, folder=DIARY_FOLDER)
        sessions = [diary("diary").session, *(diary(f"diary {number}").session for number in range(30))]
        home.index()
        home.do("capture", sessions[0])
        card = Card(f"a {WORD}", "decision", source="claude")
        cards.put(home.ledger, (sessions[0], ""), card, 2, None, 0, 1_700_000_000.0)
        data = Path(home.config.places.data)
        (data / "map.db.corrupt-20260101T000000").write_bytes(WORD.encode())

        class Killed(Exception):
            pass

        promised = 0

        def die(name: str, step: str = step) -> None:
            nonlocal promised
            promised += name == "forget begun"
            assert promised < 2, "a promise in several commits could be kept in part"
            if name == step:
                raise Killed

        home.ledger.before_commit = die
        if step == "promised":
            home.map.before_commit = lambda name: die("promised")
        with pytest.raises(Killed):
            perform(home.pruner, "forget", {"sessions": sessions, "apply": True})
        home.close()
        home.open()
        home.index()  # as a start does, before it looks for what was begun
        left = forget.resume(home.pruner.capturer)
        with home.reader() as reader:
            total = answers.answer(reader, "search", {"query": WORD, "all": True})["total"]
        if step == "forget begun":
            assert (left, total) == ([], 31)  # nothing was promised yet
        else:
            assert (sorted(left), total) == (sorted(sessions), 0)
            assert home.ledger.kept(sessions[0]) == [] and not list(Path(home.config.places.vault).rglob("*.zst"))
            assert [str(one) for one in data.rglob("*") if one.is_file() and WORD.encode() in one.read_bytes()] == []
        assert home.faults() == []
        home.close()


def test_what_cannot_be_removed_stays_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that fails to remove a generation says nothing of it being done; the next one removes it."""
    home = Keeping(tmp_path)
    home.put(diary(), folder=DIARY_FOLDER)
    home.index()
    home.do("capture", diary().session)

    def fail(path: str) -> None:
        raise StorageFault("no", "none")

    monkeypatch.setattr(generations, "remove", fail)
    assert perform(home.pruner, "forget", {"sessions": [diary().session], "apply": True})["failed"]
    assert forget.resume(home.pruner.capturer) == []
    assert [one.state for one in home.ledger.forgotten()] == ["begun"]
    monkeypatch.undo()
    assert forget.resume(home.pruner.capturer) == [diary().session]
    assert [one.state for one in home.ledger.forgotten()] == ["done"]
    assert not list(Path(home.config.places.vault).rglob("*.zst"))
    home.close()


def test_an_excluded_project_is_no_loss_when_its_files_go(tmp_path: Path) -> None:
    """A transcript that stays out may come and go without a word."""
    home = Keeping(tmp_path)
    path = home.put(diary(), folder=DIARY_FOLDER)
    home.put(harbour())
    home.index()
    indexer = Indexer(home.map, home.vault, home.ledger, (DIARY,))
    indexer.update(None)
    path.unlink()
    indexer.update(None)
    assert home.ledger.losses() == []
    home.close()
