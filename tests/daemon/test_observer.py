"""The observer on real folders: what is reported, what is not, and what it says of itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabled.daemon import limits
from fabled.daemon.observer import Hears, Watcher, WatchState
from tests.daemon.help import in_user_namespace, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at inotify's own behaviour"),
    pytest.mark.filterwarnings("ignore:Callback with id"),
]


class Ear:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.lost: list[str] = []
        self.states: list[WatchState] = []
        self.hears = Hears(self.paths.append, self.lost.append, self.states.append)

    def heard(self, path: Path | str) -> bool:
        return str(path) in self.paths

    def covered(self, path: Path, since: int) -> bool:
        """Whether the path, or a folder that holds it, was told."""
        return any(path == Path(told) or Path(told) in path.parents for told in self.paths[since:])


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cfg" / "projects"


Make = Callable[..., Watcher]


@pytest.fixture
def watch(tmp_path: Path, root: Path, ear: Ear) -> Iterator[Make]:
    made: list[Watcher] = []

    def make(*roots: Path, vaults: tuple[Path, ...] = (), own: tuple[Path, ...] = ()) -> Watcher:
        watcher = Watcher(
            [str(path) for path in roots or (root,)],
            [str(path) for path in vaults],
            ear.hears,
            own=[str(path) for path in own],
            beat_folder=str(tmp_path / "watch"),
            patience_seconds=2,
        )
        made.append(watcher)
        watcher.start()
        return watcher

    yield make
    for watcher in made:
        watcher.stop()


def fence(watcher: Watcher, ear: Ear, folder: Path) -> None:
    """Wait until everything done before has been reported."""
    since = len(ear.paths)
    name = folder / f"fence{since}.jsonl"
    name.write_bytes(b"")
    assert until(lambda: ear.covered(name, since))


def test_changes_of_transcripts_are_reported(watch: Make, root: Path, ear: Ear) -> None:
    """New, appended, renamed and deleted transcripts are, with a subagent's description; other files are not."""
    project = root / "-p"
    project.mkdir(parents=True)
    old = project / "old.jsonl"
    old.write_bytes(b"{}\n")
    watcher = watch()
    with old.open("ab") as file:
        file.write(b"{}\n")
    (project / "a.meta.json").write_bytes(b"{}")
    (project / "v0-raw.jsonl.zst").write_bytes(b"")
    (project / "notes.txt").write_bytes(b"x")
    (project / "x.jsonl.tmp").write_bytes(b"x")
    (project / "x.jsonl.tmp").rename(project / "moved.jsonl")
    for name in ("old.jsonl", "a.meta.json", "v0-raw.jsonl.zst", "moved.jsonl"):
        assert until(lambda name=name: ear.heard(project / name)), name  # type: ignore[misc]
    ear.paths.clear()
    old.unlink()
    (project / "moved.jsonl").rename(project / "again.jsonl")
    for name in ("old.jsonl", "moved.jsonl", "again.jsonl"):
        assert until(lambda name=name: ear.heard(project / name)), name  # type: ignore[misc]
    fence(watcher, ear, project)
    assert not [path for path in ear.paths if path.endswith((".txt", ".tmp"))]


def test_reading_is_no_change(watch: Make, root: Path, ear: Ear) -> None:
    """However often files are read or listed, nothing is reported."""
    project = root / "-p"
    project.mkdir(parents=True)
    for number in range(10):
        (project / f"{number}.jsonl").write_bytes(b"{}\n")
    watcher = watch()
    ear.paths.clear()
    for _ in range(5):
        for path in project.iterdir():
            path.read_bytes()
    fence(watcher, ear, project)
    assert {Path(path).name for path in ear.paths} == {"fence0.jsonl"}


def test_own_folders_below_a_root_are_silent(watch: Make, root: Path, ear: Ear) -> None:
    """The daemon's files, should they lie in a root, are not reported; generations in its vault are."""
    home = root / "fabled"
    vault = home / "data" / "vault"
    vault.mkdir(parents=True)
    (home / "state").mkdir()
    watcher = watch(vaults=(vault,), own=(home / "data", home / "state"))
    (home / "data" / "x.jsonl").write_bytes(b"")
    (home / "state" / "log.jsonl").write_bytes(b"")
    (home / "state" / "sub").mkdir()
    generation = vault / "-p" / "s" / "v0-raw.jsonl.zst"
    generation.parent.mkdir(parents=True)
    generation.write_bytes(b"")
    assert until(lambda: ear.heard(generation) or ear.heard(vault / "-p"))
    fence(watcher, ear, root)
    assert not [p for p in ear.paths if p.startswith((f"{home}/state", f"{home}/data/x"))]


def test_a_folder_that_appears_or_goes_is_reported_itself(watch: Make, root: Path, ear: Ear, tmp_path: Path) -> None:
    """A made, moved-in, renamed or deleted folder stands for everything below it."""
    root.mkdir(parents=True)
    watcher = watch()
    outside = tmp_path / "outside" / "tree" / "deep"
    outside.mkdir(parents=True)
    (outside / "s.jsonl").write_bytes(b"{}")
    outside.parent.rename(root / "moved-in")
    (root / "made" / "subagents").mkdir(parents=True)
    assert until(lambda: ear.heard(root / "moved-in") and ear.heard(root / "made"))
    (root / "made").rename(root / "renamed")
    assert until(lambda: ear.heard(root / "renamed"))
    fence(watcher, ear, root / "moved-in" / "deep")
    fence(watcher, ear, root / "renamed" / "subagents")
    ear.paths.clear()
    shutil.rmtree(root / "moved-in")
    assert until(lambda: ear.heard(root / "moved-in"))
    (root / "renamed").rename(tmp_path / "gone")
    assert until(lambda: ear.heard(root / "renamed"))


def test_nested_folders_made_at_once_lose_nothing(watch: Make, root: Path, ear: Ear) -> None:
    """A file written into folders made in the same breath is reported, or a folder above it is."""
    root.mkdir(parents=True)
    watch()
    files = []
    for number in range(100):
        folder = root / f"-q{number}" / "s" / "subagents"
        folder.mkdir(parents=True)
        files.append(folder / "agent.jsonl")
        files[-1].write_bytes(b"{}")
    assert until(lambda: all(ear.covered(file, 0) for file in files))


def test_a_missing_root_is_waited_for(watch: Make, root: Path, ear: Ear) -> None:
    """A root that is not there is found when it comes, however much of the way to it is missing."""
    watcher = watch()
    assert watcher.state.mode == "events"
    assert watcher.state.waiting == (str(root),)
    project = root / "-p"
    project.mkdir(parents=True)
    assert until(lambda: ear.heard(root))
    assert until(lambda: not watcher.state.waiting)
    fence(watcher, ear, project)


def test_a_root_deleted_and_made_again_is_followed(watch: Make, root: Path, ear: Ear) -> None:
    """Deleted and made anew, again and again, a root is watched in each of its lives."""
    watcher = watch()
    for life in range(5):
        (root / "-p").mkdir(parents=True)
        assert until(lambda: not watcher.state.waiting), life
        fence(watcher, ear, root / "-p")
        shutil.rmtree(root if life % 2 else root.parent)
        if life % 3:
            assert until(lambda: watcher.state.waiting), life
    assert watcher.state.restarts == 0


def test_a_renamed_root_is_left_and_its_successor_watched(watch: Make, root: Path, ear: Ear) -> None:
    """A root moved away is absent, one moved into its place is the root; the same one folder above."""
    (root / "-p").mkdir(parents=True)
    watcher = watch()
    for moved, away in ((root, root.with_name("away")), (root.parent, root.parent.with_name("cfg-away"))):
        moved.rename(away)
        assert until(lambda: watcher.state.waiting)
        ear.paths.clear()
        (root / "-new").mkdir(parents=True)
        assert until(lambda: not watcher.state.waiting)
        fence(watcher, ear, root / "-new")
        assert not [path for path in ear.paths if "away" in path]
        shutil.rmtree(root.parent if moved == root.parent else root)
        away.rename(moved)
        assert until(lambda: not watcher.state.waiting)
        fence(watcher, ear, root / "-p")


def test_a_root_behind_a_symlink_and_a_linked_project(watch: Make, root: Path, ear: Ear, tmp_path: Path) -> None:
    """Links to folders are followed, at the root and in it, once, and without going round in circles."""
    real = tmp_path / "disk" / "projects"
    elsewhere = tmp_path / "elsewhere"
    (real / "-p").mkdir(parents=True)
    elsewhere.mkdir()
    root.parent.mkdir()
    root.symlink_to(real)
    (real / "-linked").symlink_to(elsewhere)
    (real / "-p" / "round").symlink_to(real)
    watcher = watch()
    fence(watcher, ear, real / "-p")
    (elsewhere / "s.jsonl").write_bytes(b"{}")
    assert until(lambda: ear.heard(real / "-linked" / "s.jsonl"))
    late = tmp_path / "late"
    late.mkdir()
    (real / "-late").symlink_to(late)
    assert until(lambda: ear.heard(real / "-late"))
    assert until(lambda: (late / "x.jsonl").write_bytes(b"{}") and ear.heard(real / "-late" / "x.jsonl"))


def test_a_folder_opened_to_us_is_reported(watch: Make, root: Path, ear: Ear) -> None:
    """A folder that could not be read is looked at when its rights allow it."""
    if os.geteuid() == 0:
        pytest.skip("root reads every folder")
    closed = root / "-closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    try:
        watcher = watch()
        assert watcher.state.mode == "events"
        ear.paths.clear()
        closed.chmod(0o700)
        assert until(lambda: ear.heard(closed))
        fence(watcher, ear, closed)
    finally:
        closed.chmod(0o700)


def test_a_living_watcher_passes_its_test(watch: Make, root: Path, ear: Ear) -> None:
    """With events coming, a heartbeat changes nothing and reports nothing."""
    root.mkdir(parents=True)
    watcher = watch()
    beat = Path(watcher._beat_folder) / "beat"
    watcher.beat()
    assert until(beat.exists)
    watcher.beat()
    fence(watcher, ear, root)
    assert (watcher.state.restarts, ear.lost) == (0, [])


@pytest.mark.parametrize("part", ["reader", "dispatcher", "emitter"])
def test_a_dead_watcher_is_noticed_and_made_anew(watch: Make, root: Path, ear: Ear, part: str) -> None:
    """Whichever of watchdog's OS threads died, the next heartbeat finds out and events come again."""
    (root / "-p").mkdir(parents=True)
    watcher = watch()
    observer = watcher._observer
    assert observer is not None
    if part == "reader":
        observer._inotify_fd.handle_event = lambda event: 1 / 0  # type: ignore[attr-defined]
    elif part == "dispatcher":
        observer.dispatch_events = lambda queue: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    else:
        tree = next(emitter for emitter in observer.emitters if emitter.watch.path == str(root))
        tree.queue_events = lambda timeout: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    watchdogs = [observer, observer._inotify_fd, *observer.emitters]  # type: ignore[attr-defined]
    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        for _ in range(2):
            (root / "-p" / "killer.jsonl").write_bytes(b"{}")
        assert until(lambda: not all(thread.is_alive() for thread in watchdogs))
        ear.paths.clear()
        watcher.beat()
        if part == "emitter":
            # A single dead emitter is replaced alone; what it missed is in its tree.
            assert until(lambda: ear.heard(root))
        else:
            assert until(lambda: watcher.state.restarts == 1)
            assert until(lambda: ear.lost)
            assert "restarted" in ear.lost[0]
        fence(watcher, ear, root / "-p")
    finally:
        threading.excepthook = hook


def test_new_roots_are_followed_after_a_reload(watch: Make, root: Path, ear: Ear, tmp_path: Path) -> None:
    """Other roots in the configuration are other watches."""
    root.mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    watcher = watch()
    watcher.follow([str(other)], [])
    assert until(lambda: [state.path for state in watcher.state.roots] == [str(other)])
    assert ear.heard(other)
    fence(watcher, ear, other)
    ear.paths.clear()
    (root / "s.jsonl").write_bytes(b"")
    fence(watcher, ear, other)
    assert not ear.heard(root / "s.jsonl")


# ── limits and overflow: real ones, in a process of their own ───────────────────────────────────────────────────

CHILD = """
import os, sys, time, threading
sys.path.insert(0, sys.argv[1])
from fabled.daemon.observer import Hears, Watcher
top = sys.argv[2]
root = top + "/root"
for number in range(12):
    os.makedirs(f"{root}/p{number}")
paths, lost, states = [], [], []
changed = threading.Condition()
def note(where):
    def noted(value):
        with changed:
            where.append(value)
            changed.notify_all()
    return noted
def wait(condition, seconds=20):
    with changed:
        assert changed.wait_for(condition, seconds), (condition, states[-1:], lost)
watcher = Watcher([root], [], Hears(note(paths), note(lost), note(states)),
                  beat_folder=top + "/beat", patience_seconds=5)
"""


def run(code: str, tmp_path: Path, limit: str = "") -> str:
    """Run a watcher in a child; `limit` is set in a user namespace around it."""
    script = tmp_path / "child.py"
    script.write_text(CHILD + textwrap.dedent(code))
    repository = str(Path(__file__).parents[2])
    command = [sys.executable, str(script), repository, str(tmp_path)]
    if limit:
        command = in_user_namespace(limit, command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "value", "again"), [("max_inotify_watches", 9, 5000), ("max_inotify_instances", 0, 100)]
)
def test_watch_limits_are_named_and_left_behind(tmp_path: Path, name: str, value: int, again: int) -> None:
    """With too few watches (or none) the state says so in the right words; with enough, events are back."""
    said = run(
        f"""
        watcher.start()
        state = watcher.state
        print(state.mode, "|", state.reason, "|", state.hint)
        watcher.check()
        watcher.beat()
        with open("/proc/sys/user/{name}", "w") as limit:
            limit.write("{again}")
        watcher.check()
        wait(lambda: watcher.state.mode == "events")
        wait(lambda: root in paths)
        for number in range(12):
            open(f"{{root}}/p{{number}}/s.jsonl", "wb").close()
        wait(lambda: all(f"{{root}}/p{{number}}/s.jsonl" in paths for number in range(12)))
        watcher.stop()
        """,
        tmp_path,
        f"{name}={value}",
    )
    mode, reason, hint = (part.strip() for part in said.split("|"))
    kernel = name.replace("max_inotify", "max_user")
    assert mode == "polling"
    assert f"fs.inotify.{kernel} is {value}" in reason
    assert "disk" not in said and "space left" not in said
    assert hint.startswith(f"sudo sysctl fs.inotify.{kernel}=")


def test_a_folder_made_at_the_limit_is_noticed(tmp_path: Path) -> None:
    """Watches that run out later, at a new folder, change the state as well."""
    said = run(
        """
        watcher.start()
        assert watcher.state.mode == "events", watcher.state
        for number in range(40):
            os.makedirs(f"{root}/new{number}")
        wait(lambda: watcher.state.mode == "polling")
        print(watcher.state.reason)
        watcher.stop()
        """,
        tmp_path,
        "max_inotify_watches=30",
    )
    assert "fs.inotify.max_user_watches is 30" in said


def test_an_overflow_is_counted_and_told(tmp_path: Path) -> None:
    """More events than the kernel's queue holds: one overflow, told once, and events go on."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        queue = int(file.read())
    if queue > 100_000:
        pytest.skip(f"the kernel's queue holds {queue} events here; filling it takes too long")
    run(
        f"""
        watcher.start()
        held = threading.Event()
        reader = watcher._observer._inotify_fd
        inner = reader.handle_event
        reader.handle_event = lambda event: (held.wait(), inner(event))
        files = [open(f"{{root}}/p0/{{number}}.jsonl", "wb", 0) for number in range(2)]
        for number in range({queue} // 2 + 5000):
            for file in files:
                file.write(b"x")
        [file.close() for file in files]
        held.set()
        wait(lambda: watcher.state.overflow == 1)
        wait(lambda: lost)
        assert "overflow" in lost[0]
        open(f"{{root}}/p0/after.jsonl", "wb").close()
        wait(lambda: f"{{root}}/p0/after.jsonl" in paths)
        assert watcher.state.mode == "events"
        watcher.stop()
        assert len(lost) == 1, lost
        """,
        tmp_path,
    )


def test_other_faults_keep_their_own_words() -> None:
    """Only the two limits are explained as limits."""
    reason, _ = limits.explain(PermissionError(13, "Permission denied"), "/x")
    assert reason == "/x cannot be watched: Permission denied"
    reason, hint = limits.explain(OSError(28, "No space left on device"), "/x", 4)
    assert "max_user_watches" in reason and "4 folders" in reason and "space" not in reason
    assert hint.startswith("sudo sysctl")
