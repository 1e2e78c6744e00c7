"""What stays when the service goes, what a purge takes, and what is said of the only copies; and the one setting."""

from __future__ import annotations

import fcntl
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled import config
from fabled.errors import AlreadyRunning, Refused
from fabled.service import level, remove
from fabled.store.sole import sole
from tests.shell import Home, harbour
from tests.test_cli_vault import NO_FLOORS, old_file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def places(home: Home) -> config.Places:
    return config.places(home.env)


def only(home: Home) -> tuple[bool, int, int]:
    where = places(home)
    found = sole(where.map_db, where.ledger_db, where.vault)
    return found.known, found.records, len(found.sessions)


def test_only_what_no_live_transcript_has_exists_nowhere_else(home: Home) -> None:
    """Files are looked at now: what the Map has not heard of yet counts as well."""
    assert only(home) == (True, 0, 0)
    one, two = home.write(harbour("one")), home.write(harbour("two"))
    home.run("index")
    home.run("capture")
    assert only(home) == (True, 0, 0)
    one.unlink()
    assert only(home) == (True, 4, 1)
    two.write_bytes(two.read_bytes())  # the same bytes at the same place
    assert only(home) == (True, 4, 1)
    two.write_bytes(two.read_bytes().splitlines(True)[0])
    home.run("index")
    assert only(home) == (True, 7, 2)


def test_a_pruned_transcript_is_not_the_whole(home: Home) -> None:
    """What a prune took out lies in the Vault alone; the rest of the session does not."""
    config_file = Path(places(home).config_file)
    config_file.parent.mkdir(mode=0o700)
    config_file.write_text(NO_FLOORS)
    _, talk = old_file(home)
    home.run("index")
    assert only(home) == (True, 0, 0)
    done = home.run("prune", talk.session, "--level", "standard", "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    known, records, sessions = only(home)
    assert known and sessions == 1 and 0 < records < len(talk.lines)


def test_where_the_map_cannot_be_read_everything_may_be_the_only_copy(home: Home) -> None:
    home.write(harbour())
    home.run("index")
    home.run("capture")
    Path(places(home).map_db).write_bytes(b"no database at all" * 100)
    assert only(home)[0] is False
    done = home.run("service", "uninstall")
    assert "all may exist nowhere else" in done.stdout
    done = home.run("service", "uninstall", "--purge", "--confirm", "wrong")
    assert done.returncode == 4 and "it may be all of it" in done.stderr
    assert os.path.exists(places(home).vault)


def test_a_purge_leaves_what_is_not_ours(home: Home) -> None:
    """FABLED_HOME may be anybody's folder: only our own names go from it, and the rest is named."""
    home.write(harbour())
    home.run("index")
    home.run("capture")
    mine = Path(home.env["FABLED_HOME"])
    (mine / "config.toml").write_text("[log]\nlevel = 'info'\n")
    (mine / "data" / "my notes.txt").write_text("mine")
    value = home.json("service", "uninstall", "--purge", "--confirm", "fabled")
    assert value["purged"] is True and value["left"] == [str(mine), str(mine / "data")]
    assert [path.name for path in mine.rglob("*")] == ["data", "my notes.txt"]
    assert list(home.projects.rglob("*.jsonl"))


def test_a_purge_waits_for_nobody_and_takes_nothing_from_under_a_process(home: Home) -> None:
    home.write(harbour())
    home.run("index")
    where = places(home)
    with open(where.lock, "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AlreadyRunning):
            remove.purge(where)
    assert os.path.exists(where.map_db)


def test_a_plugin_still_in_the_client_is_taken_out_first(home: Home) -> None:
    home.write(harbour())
    home.run("index")
    note = Path(places(home).data, "claude", "installed.json")
    note.parent.mkdir()
    note.touch()
    with pytest.raises(Refused, match="plugin"):
        remove.purge(places(home))
    assert os.path.exists(places(home).map_db)


def test_links_in_our_folders_are_not_followed(home: Home, tmp_path: Path) -> None:
    home.write(harbour())
    home.run("index")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "keep").touch()
    os.symlink(mine, Path(places(home).data, "claude"))
    remove.purge(places(home))
    assert (mine / "keep").exists() and not Path(home.env["FABLED_HOME"]).exists()


def test_a_folder_that_fabled_never_used_loses_nothing(home: Home) -> None:
    """Named as FABLED_HOME by mistake, it keeps its own data, notes and configuration, like names or not."""
    mine = home.path / "mine"
    for name in ("data/vault/precious", "data/claude/notes", "state/service.log", "config.toml"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("mine")
    before = sorted(mine.rglob("*"))
    done = home.run("service", "uninstall", "--purge", "--confirm", "mine", FABLED_HOME=str(mine))
    assert done.returncode == 0 and "no data of fabled's" in done.stderr and "Removed" not in done.stdout
    remove.purge(config.places({**home.env, "FABLED_HOME": str(mine)}))
    assert sorted(mine.rglob("*")) == before
    assert remove.holdings(config.places({**home.env, "FABLED_HOME": "/"})).name == "/"


def test_a_vault_behind_a_link_is_named_as_left(home: Home, tmp_path: Path) -> None:
    vault = Path(places(home).vault)
    home.write(harbour())
    home.run("index")
    away = tmp_path / "large disk"
    away.mkdir(mode=0o700)
    vault.rmdir() if vault.exists() else None
    vault.symlink_to(away)
    home.run("capture")
    kept = list(away.rglob("*.zst"))
    done = home.run("service", "uninstall", "--purge", "--confirm", "fabled")
    assert kept and list(away.rglob("*.zst")) == kept
    assert str(away.name) in done.stdout


# ── prune.level in the file ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[prune]\nlevel = "off"\n'),
        ("# mine\nroots = ['/r']\n", "# mine\nroots = ['/r']\n\n[prune]\nlevel = \"off\"\n"),
        ("[prune] # p\nmin_gain = 0.2\n", '[prune] # p\nlevel = "off"\nmin_gain = 0.2\n'),
        ("[prune]\n# so\nlevel = 'gentle' # mild\r\n[log]\n", '[prune]\n# so\nlevel = "off" # mild\r\n[log]\n'),
        ("[prune]", '[prune]\nlevel = "off"\n'),
        ("[log]\nlevel = 'info'\n[prune]\n[watch]", "[log]\nlevel = 'info'\n[prune]\nlevel = \"off\"\n[watch]"),
    ],
)
def test_the_level_is_written_and_all_else_stays(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(before, newline="")
    path.chmod(0o640)
    assert level.set_level(str(path), "off") is True
    assert path.read_bytes().decode() == after
    assert path.stat().st_mode & 0o777 == 0o640
    assert level.set_level(str(path), "off") is False


@pytest.mark.parametrize(
    "text", ["prune.level = 'gentle'\n", "prune = {level = 'gentle'}\n", 'x = """\n[prune]\n"""\n']
)
def test_a_file_written_otherwise_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(Refused) as caught:
        level.set_level(str(path), "off")
    assert "by hand" in caught.value.hint and path.read_text() == text


def test_a_new_file_is_private_and_a_link_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    level.set_level(str(path), "standard")
    assert path.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    level.set_level(str(link), "off")
    assert link.is_symlink() and tomllib.loads(path.read_text())["prune"]["level"] == "off"


@given(st.lists(st.sampled_from(["[prune]\n", "[log]\n", "level = 'info'\n", "# x\n", "min_gain = 0.5\n", "\n"])))
def test_whatever_stands_there_stays_or_the_file_is_refused(lines: list[str]) -> None:
    text = "".join(lines)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    after = tomllib.loads(level.with_level(text, "off"))
    assert after == {**before, "prune": {**before.get("prune", {}), "level": "off"}}
    assert [line for line in lines if line.startswith("#")] == [
        line for line in level.with_level(text, "off").splitlines(True) if line.startswith("#")
    ]
