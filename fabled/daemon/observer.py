"""Puts the path of each file event where it is asked to, and says honestly whether events can be relied on.

What a path means is left to the indexer. An event is a hint: whatever is lost here, a sweep finds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, EventEmitter, ObservedWatch

from fabled.daemon.folders import below, folders, real_paths, two_above
from fabled.daemon.limits import explain, is_limit

SUFFIXES = (".jsonl", ".jsonl.zst", ".meta.json")

# Reading a file makes `opened` and `closed_no_write` events: with those among them the daemon would feed itself.
TREE_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileAttribEvent,
    FileMovedEvent,
    FileDeletedEvent,
    FileClosedEvent,
    DirCreatedEvent,
    DirAttribEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
NAME_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
BEAT_EVENTS: list[type[FileSystemEvent]] = [FileModifiedEvent, FileClosedEvent]

# A new folder in a new folder is given its watch twice, and watchdog warns of it with its whole table of watches: a
# text of megabytes in a large history, made while that table may be changing, which would end its OS thread.
warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)
if sys.platform == "linux":
    from watchdog.observers.inotify import InotifyWatchGroup

    InotifyWatchGroup.__repr__ = object.__repr__  # type: ignore[method-assign]

# Dropping a watch makes its OS thread complain, as an error, that it was ended.
logging.getLogger("watchdog.observers.inotify").addFilter(lambda said: "thread is inactive" not in str(said.msg))

# A watch costs an OS thread; a history linked together from more folders than this is followed by the sweep.
MOST_LINKS = 32


@dataclass(frozen=True, slots=True)
class RootState:
    """A folder of transcripts: watched, waiting (it is not there) or unwatched (it cannot be watched)."""

    path: str
    state: Literal["watched", "waiting", "unwatched"]


@dataclass(frozen=True, slots=True)
class WatchState:
    """How changes are noticed. `polling`: not, or not everywhere, by events; `reason` and `hint` say why."""

    mode: Literal["starting", "events", "polling"]
    reason: str
    hint: str
    roots: tuple[RootState, ...]
    overflow: int
    restarts: int

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(root.path for root in self.roots if root.state == "waiting")


@dataclass(frozen=True, slots=True)
class Hears:
    """Where the watcher tells what it noticed. All are called from its own OS threads and must not block."""

    path: Callable[[str], None]
    """something happened to this file or folder"""
    lost: Callable[[str], None]
    """events were lost, for this reason: everything is to be looked at"""
    state: Callable[[WatchState], None]
    """the state is another one now"""


@dataclass(frozen=True, slots=True)
class _Watch:
    """One watch that there should be. A folder made anew under its old name is another one (`ident`)."""

    path: str
    named: str
    """the path to report for `path`: another one where a symlink was followed"""
    kind: Literal["tree", "above", "beat"]
    ident: tuple[int, int]


class Watcher:
    """Keeps watches on all roots, through their absence, renaming and return, and tests that events still come.

    Its keeper, an OS thread of its own, is the only one that touches watchdog's observer after the start; event
    handlers and the other methods only leave it a note. It waits without a timeout when there is none.
    """

    def __init__(
        self,
        roots: Sequence[str],
        vaults: Sequence[str],
        hears: Hears,
        *,
        own: Sequence[str] = (),
        beat_folder: str,
        patience_seconds: float = 5.0,
    ) -> None:
        """`own` are the daemon's own folders: should one lie below a root, nothing in it is reported."""
        self._roots = real_paths(roots)
        self._vaults = tuple(vault for vault in real_paths(vaults) if vault not in self._roots)
        self._own = tuple({form for folder in own for form in (os.path.abspath(folder), os.path.realpath(folder))})
        self._beat_folder = os.path.realpath(beat_folder)
        self._hears = hears
        self._patience = patience_seconds
        # Owned by the keeper (before the start: by whoever calls it).
        self._observer: BaseObserver | None = None
        self._watches: dict[_Watch, _Scheduled] = {}
        self._links: dict[str, str] = {}
        self._trouble: tuple[str, str] | None = None
        self._keeper = threading.Thread(target=self._keep, name="watch-keeper", daemon=True)
        # Under the lock of `_notes_changed`.
        self._notes_changed = threading.Condition()
        self._notes: set[str] = set()
        self._beat_seen = False
        self._handled = 0
        self._overflow = 0
        self._restarts = 0
        self._stopping = False
        self._state = WatchState("starting", "", "", self._root_states(()), 0, 0)

    # ── for the daemon ──────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Watch. When this returns, a change of any watched folder is reported."""
        self._refresh(first=True)
        self._keeper.start()

    def stop(self) -> None:
        """End all watches and OS threads."""
        with self._notes_changed:
            self._stopping = True
            self._notes_changed.notify_all()
        if self._keeper.is_alive():
            self._keeper.join(2 * self._patience)
        self._end(self._observer)
        self._observer = None
        self._watches = {}

    def beat(self) -> None:
        """Have it tested that events still come, and that each watch is on the folder that bears the name."""
        self._note("beat")

    def check(self) -> None:
        """Have it tested that every folder is watched; return to events where they failed before."""
        self._note("check")

    def follow(self, roots: Sequence[str], vaults: Sequence[str]) -> None:
        """Take over new settings."""
        new = real_paths(roots)
        with self._notes_changed:
            self._roots, self._vaults = new, tuple(vault for vault in real_paths(vaults) if vault not in new)
        self._note("check")

    @property
    def state(self) -> WatchState:
        with self._notes_changed:
            return self._state

    # ── the keeper ──────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, note: str) -> None:
        with self._notes_changed:
            self._notes.add(note)
            self._notes_changed.notify_all()

    def _keep(self) -> None:
        while True:
            with self._notes_changed:
                self._notes_changed.wait_for(lambda: self._notes or self._stopping)
                if self._stopping:
                    return
                notes, self._notes = self._notes, set()
            try:
                # A full comparison costs a walk over all folders; a moved root or a heartbeat some stats.
                self._refresh(walk="check" in notes)
                if "beat" in notes:
                    self._test()
            except Exception as fault:  # whatever fails in here, events cannot be relied on, and the sweep goes on
                self._trouble = (f"the watcher failed: {type(fault).__name__}: {fault}", "")
                self._tell()

    def _refresh(self, *, first: bool = False, walk: bool = True) -> None:
        """Bring the watches in line with the folders that are there, as far as the system allows."""
        if self._observer is None:
            walk = True
            try:
                self._observer = self._begin()
            except OSError as fault:
                self._trouble = explain(fault)
                self._tell()
                return
        if walk:
            self._links = self._find_links()
        troubles = list(self._align(first))
        if walk:
            troubles += self._cover()
        elif not troubles and self._trouble is not None:
            # Only a walk can tell that the trouble is over.
            troubles = [self._trouble]
        self._trouble = troubles[0] if troubles else None
        self._tell()

    def _begin(self) -> BaseObserver:
        observer = Observer()
        try:
            self._hear_overflow(observer)
            observer.start()
        except BaseException:
            self._end(observer)
            raise
        return observer

    def _end(self, observer: BaseObserver | None) -> None:
        """A watcher that hangs is left behind rather than waited for: its OS threads end with the process."""
        if observer is None:
            return

        def end() -> None:
            observer.stop()
            if observer.ident is not None:
                observer.join()

        ending = threading.Thread(target=end, name="watch-end", daemon=True)
        ending.start()
        ending.join(self._patience)

    def _align(self, first: bool) -> Iterator[tuple[str, str]]:
        """Add and drop watches until there are those that should be. Yields what went wrong.

        Repeated, because a root may appear between the look at it and the watch on the folder above it.
        """
        assert self._observer is not None
        refused: dict[_Watch, OSError] = {}
        for _ in range(10):  # ends at the second round unless folders come and go all the while
            wanted = [watch for watch in self._wanted() if watch not in refused]
            dropped = [watch for watch in self._watches if watch not in wanted or not self._alive(watch)]
            for watch in dropped:
                self._observer.unschedule(self._watches.pop(watch).observed)
            added = [watch for watch in wanted if watch not in self._watches]
            for watch in added:
                try:
                    self._watches[watch] = self._schedule(watch)
                except OSError as fault:
                    refused[watch] = fault
            if not first:
                # Whatever came before the watch was there made no event.
                for named in {watch.named for watch in (*dropped, *added) if watch.kind == "tree"}:
                    self._hears.path(named)
            if not added and not dropped:
                break
        for root in self._roots:
            if os.path.isdir(root) and not os.access(root, os.R_OK | os.X_OK):
                yield f"{root} may not be read", "give yourself the right to read it"
        for watch, refusal in refused.items():
            if is_limit(refusal) or os.path.isdir(watch.path):
                yield explain(refusal, watch.path)

    def _wanted(self) -> list[_Watch]:
        """The watches there should be now; roots first, since limits fall on the last."""
        trees: dict[str, str] = {}
        above: list[str] = []
        for root in self._roots:
            real = os.path.realpath(root)
            if os.path.isdir(real):
                trees.setdefault(real, root)
            for path in dict.fromkeys((root, real)):
                above += two_above(path)
        for vault in self._vaults:
            if os.path.isdir(vault):
                trees.setdefault(vault, vault)
        for real, named in self._links.items():
            trees.setdefault(real, named)
        tops = [real for real in trees if not any(below(real, other) for other in trees if other != real)]
        wanted = [_watch(real, trees[real], "tree") for real in tops]
        wanted.append(_watch(self._made_beat_folder(), self._beat_folder, "beat"))
        wanted += [_watch(path, path, "above") for path in dict.fromkeys(map(os.path.realpath, above))]
        return [watch for watch in wanted if watch is not None]

    def _made_beat_folder(self) -> str:
        # Only this one folder: should somebody remove the whole home, it is not for the watcher to bring it back.
        with contextlib.suppress(OSError):
            os.mkdir(self._beat_folder, 0o700)
        return self._beat_folder

    def _schedule(self, watch: _Watch) -> _Scheduled:
        assert self._observer is not None
        handle, events = {
            "tree": (self._in_tree, TREE_EVENTS),
            "above": (self._above, NAME_EVENTS),
            "beat": (self._in_beat_folder, BEAT_EVENTS),
        }[watch.kind]
        handler = _Handler(watch, handle, self._hears.lost)
        observed = self._observer.schedule(handler, watch.path, recursive=watch.kind == "tree", event_filter=events)
        emitter = next(emitter for emitter in self._observer.emitters if emitter.watch == observed)
        # inotify's watches of a tree as watchdog keeps them; on other systems, or should it keep them elsewhere
        # one day, nothing is known folder by folder.
        by_path = getattr(getattr(emitter, "_inotify", None), "_active_callbacks_by_path", None)
        handler.by_path = by_path if isinstance(by_path, dict) else None
        return _Scheduled(observed, emitter, handler)

    def _alive(self, watch: _Watch) -> bool:
        """A watch ends by itself when its folder is deleted, even if one of the same name and inode follows."""
        return self._watches[watch].emitter.is_alive()

    # ── every folder, really? ───────────────────────────────────────────────────────────────────────────────

    def _cover(self) -> list[tuple[str, str]]:
        """What keeps folders unwatched. watchdog says nothing when the system refuses a watch on a sub-folder."""
        assert self._observer is not None
        missing = self._missing(None)
        for look in range(6):
            if not missing:
                return []
            # One more watch tells a limit from folders that were only just made.
            folder = next(iter(missing))
            try:
                one_more = self._observer.schedule(FileSystemEventHandler(), folder, event_filter=BEAT_EVENTS)
                self._observer.unschedule(one_more)
            except FileNotFoundError:
                pass
            except OSError as fault:
                return [explain(fault, folder, len(missing))]
            if look == 3:
                # There for a second and still without: they were refused before, and would not be now.
                for tree in set(missing.values()):
                    self._observer.unschedule(self._watches.pop(tree).observed)
                    try:
                        self._watches[tree] = self._schedule(tree)
                    except OSError as fault:
                        return [explain(fault, tree.path)]
                    self._hears.path(tree.named)
            else:
                with self._notes_changed:
                    if self._notes_changed.wait_for(lambda: self._stopping, 0.3):
                        return []
            missing = self._missing(set(missing))
        return [(f"{len(missing)} folders are not watched, {next(iter(missing))} among them", "")] if missing else []

    def _missing(self, before: set[str] | None) -> dict[str, _Watch]:
        """Folders without a watch, and their trees; those that already were without one `before`, if given."""
        return {
            folder: tree
            for tree in self._watches
            if tree.kind == "tree"
            for folder in self._unwatched(tree)
            if before is None or folder in before
        }

    def _unwatched(self, tree: _Watch) -> list[str]:
        """Readable folders of a tree without a watch; none where the system does not watch folder by folder."""
        by_path = self._watches[tree].handler.by_path
        if by_path is None:
            return []
        watched = {path for path, number in by_path.copy().items() if number != -1}
        return [path for path, _ in folders(tree.path) if os.fsencode(path) not in watched and os.access(path, os.R_OK)]

    def _find_links(self) -> dict[str, str]:
        """Folders that trees hold by symlink only: where each really lies, and its name in the tree."""
        links: dict[str, str] = {}
        tops = [top for top in map(os.path.realpath, (*self._roots, *self._vaults)) if os.path.isdir(top)]
        names = dict(zip(map(os.path.realpath, self._roots), self._roots, strict=True))
        for top in tops:
            for path, found in folders(top):
                for name in found:
                    real = os.path.realpath(os.path.join(path, name))
                    known = any(real == other or below(real, other) or below(other, real) for other in tops)
                    if not known and len(links) < MOST_LINKS:
                        links.setdefault(real, names.get(top, top) + os.path.join(path, name)[len(top) :])
        return links

    # ── do events still come? ───────────────────────────────────────────────────────────────────────────────

    def _test(self) -> None:
        """Touch a watched file; without an event of it the watcher is dead, whatever it says of itself."""
        beat = next((watch for watch in self._watches if watch.kind == "beat"), None)
        if self._observer is None or beat is None:
            return
        with self._notes_changed:
            self._beat_seen = False
        try:
            with open(os.path.join(beat.path, "beat"), "wb") as file:
                file.write(b"1")
        except OSError:
            return  # a full disk is no sign of a dead watcher
        for _ in range(12):
            with self._notes_changed:
                handled = self._handled
                self._notes_changed.wait_for(lambda: self._beat_seen or self._stopping, self._patience)
                if self._beat_seen or self._stopping:
                    return
                if self._handled == handled:
                    break
                # Events do come, only a great many of them lie before ours.
        self._restart("no event of the heartbeat file came")

    def _restart(self, reason: str) -> None:
        self._end(self._observer)
        self._observer = None
        self._watches = {}
        with self._notes_changed:
            self._restarts += 1
        self._refresh(first=True)
        self._hears.lost(f"watcher restarted: {reason}")

    def _hear_overflow(self, observer: BaseObserver) -> None:
        """watchdog renews its watches when the kernel's queue overflowed, but does not tell its handlers."""
        reader: Any = getattr(observer, "_inotify_fd", None)
        inner: Callable[[Any], None] | None = getattr(reader, "handle_event", None)
        if inner is None:
            return

        def handle(event: Any) -> None:
            inner(event)
            if getattr(event, "is_queue_overflow", False):
                with self._notes_changed:
                    self._overflow += 1
                # Told after the watches are renewed: what happens from now on makes events again.
                self._hears.lost("the kernel's event queue overflowed")
                self._note("check")

        reader.handle_event = handle

    def _tell(self) -> None:
        watched = {watch.named for watch in self._watches if watch.kind == "tree"}
        with self._notes_changed:
            roots = self._root_states(watched)
            reason, hint = self._trouble or ("", "")
            state = WatchState(
                "polling" if self._trouble else "events", reason, hint, roots, self._overflow, self._restarts
            )
            changed, self._state = state != self._state, state
        if changed:
            self._hears.state(state)

    def _root_states(self, watched: Iterable[str]) -> tuple[RootState, ...]:
        def state(root: str) -> Literal["watched", "waiting", "unwatched"]:
            if not os.path.isdir(root):
                return "waiting"
            covered = any(root == tree or below(root, tree) for tree in watched)
            return "watched" if covered and os.access(root, os.R_OK | os.X_OK) else "unwatched"

        return tuple(RootState(root, state(root)) for root in self._roots)

    # ── on watchdog's OS thread ─────────────────────────────────────────────────────────────────────────────

    def _in_tree(self, handler: _Handler, event: FileSystemEvent) -> None:
        with self._notes_changed:
            self._handled += 1
        watch = handler.watch
        for raw in (event.src_path, event.dest_path):
            real = os.fsdecode(raw)
            if not real or self._is_ours(real, watch):
                continue
            path = watch.named + real[len(watch.path) :]
            if event.is_directory:
                unwatched = handler.lacks(real)
                if event.event_type == "attrib":
                    # A folder that was closed to us has been opened; other changes of its rights mean nothing.
                    if not unwatched or not os.access(real, os.R_OK):
                        continue
                elif real == watch.path:
                    self._note("roots")
                self._hears.path(path)
                if unwatched:
                    self._note("check")
            elif path.endswith(SUFFIXES):
                self._hears.path(path)
            elif path in self._links.values() or (event.event_type != "modified" and os.path.islink(real)):
                self._hears.path(path)
                self._note("check")

    def _is_ours(self, path: str, watch: _Watch) -> bool:
        """Below a folder of our own that lies in a tree; the vault may lie there too, and is not ours to skip."""
        if any(path == vault or below(path, vault) for vault in self._vaults):
            return False
        return any(below(own, watch.path) and (path == own or below(path, own)) for own in self._own)

    def _above(self, handler: _Handler, event: FileSystemEvent) -> None:
        """In a folder above a root: only what bears the name of the root, or of a folder on the way to it."""
        for raw in (event.src_path, event.dest_path):
            path = os.fsdecode(raw)
            for root in self._roots:
                for target in dict.fromkeys((root, os.path.realpath(root))):
                    if path and (target == path or below(target, path)):
                        self._hears.path(root)
                        self._note("roots")

    def _in_beat_folder(self, handler: _Handler, event: FileSystemEvent) -> None:
        with self._notes_changed:
            self._beat_seen = True
            self._notes_changed.notify_all()


class _Handler(FileSystemEventHandler):
    """Hands every event of one watch on."""

    def __init__(
        self,
        watch: _Watch,
        handle: Callable[[_Handler, FileSystemEvent], None],
        lost: Callable[[str], None],
    ) -> None:
        self.watch = watch
        self.by_path: dict[bytes, int] | None = None
        self._handle = handle
        self._lost = lost

    def lacks(self, folder: str) -> bool:
        """Whether this is a folder the system did not give a watch on."""
        known = self.by_path
        return known is not None and known.get(os.fsencode(folder), -1) == -1 and os.path.isdir(folder)

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            self._handle(self, event)
        except Exception as fault:  # it would end watchdog's OS thread, and with it all events, without a word
            self._lost(f"an event could not be taken in: {type(fault).__name__}: {fault}")


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A watch that stands, with what watchdog made for it."""

    observed: ObservedWatch
    emitter: EventEmitter
    handler: _Handler


def _watch(path: str, named: str, kind: Literal["tree", "above", "beat"]) -> _Watch | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _Watch(path, named, kind, (status.st_dev, status.st_ino))
