"""The stories of membership told to a real Map: at once, line by line, and in any order of files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from fabled.transcript.record import uuid_text
from tests.home import Home, differences, dump, rebuilt
from tests.stories import STORIES, Story

STEP = 700
"""Lines added at a time to the long stories."""


def found(home: Home) -> dict[tuple[str, str], str | None]:
    """(session, uuid) → thread key, as the Map has it."""
    db = apsw.Connection(str(home.map_db), flags=apsw.SQLITE_OPEN_READONLY)
    rows = db.execute(
        "SELECT s.session_id,r.uuid,t.prompt FROM records r JOIN sessions s ON s.id=r.session "
        "LEFT JOIN threads t ON t.id=r.thread"
    ).fetchall()
    db.close()
    return {(session, uuid_text(uuid)): prompt for session, uuid, prompt in rows}


def assert_told(home: Home, story: Story, folder: Path) -> None:
    """The Map says what the story says, and what a rebuild says."""
    have = found(home)
    for name, thread in story.threads.items():
        if thread == "any of their own":
            assert have[name] is not None
            assert have[name] not in story.threads.values()
    told = {name: thread for name, thread in story.threads.items() if thread != "any of their own"}
    assert {name: have.get(name) for name in told} == told
    assert differences(dump(home.map_db), rebuilt(home, folder)) == []
    assert home.faults() == []


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    (tmp_path / "home").mkdir()
    one = Home(tmp_path / "home")
    yield one
    one.close()


@pytest.mark.parametrize("name", STORIES)
def test_a_story_told_at_once(name: str, home: Home, tmp_path: Path) -> None:
    """Indexed in one go, every record is in the thread the story tells of."""
    story = STORIES[name]()
    for path, data in story.data.items():
        home.write(path, data)
    home.index()
    assert_told(home, story, tmp_path)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_told_line_by_line(name: str, home: Home, tmp_path: Path) -> None:
    """Seen after every line that any of its files gained, the story comes out the same."""
    story = STORIES[name]()
    lines = {path: data.splitlines(keepends=True) for path, data in story.data.items()}
    step = STEP if sum(map(len, lines.values())) > 200 else 1
    chooser = random.Random(name)
    while lines:
        path = chooser.choice(sorted(lines))
        (home.root / path).parent.mkdir(parents=True, exist_ok=True)
        home.append(path, b"".join(lines[path][:step]))
        lines[path] = lines[path][step:]
        if not lines[path]:
            del lines[path]
        assert home.index(path).failed == ()
    assert_told(home, story, tmp_path)


@pytest.mark.parametrize("name", [name for name in STORIES if len(STORIES[name]().files) > 1])
def test_a_story_told_file_by_file(name: str, home: Home, tmp_path: Path) -> None:
    """In the opposite order of files, with a restart between any two, the story comes out the same."""
    story = STORIES[name]()
    for path, data in reversed(story.data.items()):
        home.write(path, data)
        home.index(path)
        home.reopen()
    assert_told(home, story, tmp_path)


@pytest.mark.parametrize("name", [name for name in STORIES if len(STORIES[name]().files) > 1])
def test_a_story_whose_files_come_back(name: str, home: Home, tmp_path: Path) -> None:
    """Each file taken away and put back once leaves the story as it was."""
    story = STORIES[name]()
    for path, data in story.data.items():
        home.write(path, data)
    home.write("-home-ana-other/keeps-the-root-from-being-empty.jsonl", b"")
    home.index()
    for path, data in story.data.items():
        (home.root / path).unlink()
        home.index()
        assert not any(thread == path for thread in found(home).values())
        home.write(path, data)
        home.index()
    assert_told(home, story, tmp_path)
