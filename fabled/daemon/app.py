"""The daemon as a whole: builds, starts and stops its parts, in the order written here, and hears signals.

What the parts do is theirs. Nothing is decided about data here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol, TypeVar

import structlog

import fabled
from fabled import config as configuration
from fabled import logs
from fabled.config import Config
from fabled.daemon import memory, notify, protocol
from fabled.daemon.concerns import Concern
from fabled.daemon.desk import Desk, Sources
from fabled.daemon.inbox import Inbox, Job
from fabled.daemon.listen import bind, claim
from fabled.daemon.observer import Hears, Watcher, WatchState
from fabled.daemon.schedule import Periodic, Schedule
from fabled.daemon.server import Server
from fabled.daemon.trouble import storage_trouble
from fabled.daemon.writer import IDLE, KEEP, SWEEP, TERMS, Health, Tells, Writer
from fabled.errors import AlreadyRunning, BadConfig, StorageFault
from fabled.indexer import Indexer, Progress
from fabled.pruner import Automatic, automatic_level, opened
from fabled.store.files import Lock, private_file, private_folder
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.store.vault import Vault

log = structlog.get_logger()

T = TypeVar("T")

# From the wish to stop to the end of the process, whatever hangs: transactions are atomic, so it may be cut short.
STOP_SECONDS = 4.0
IDLE_SECONDS = 30.0
KEEP_SECONDS = 30.0
# Without a change for so long, what is due by itself is looked for less often: the look costs time per session.
RESTING_SECONDS = 300.0
KEEP_RESTING_SECONDS = 600.0


class Watched(Protocol):
    """The person at the terminal, where there is one."""

    def progress(self, progress: Progress) -> None: ...

    def ready(self, summary: Mapping[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


def run(config: Config, *, ui: Watched | None = None, json_lines: bool = False) -> int:
    """Run until SIGTERM or SIGINT; the exit status. Raises FabledError where it cannot start.

    A start that is refused changes nothing but its own empty folders and the lock.
    """
    return Daemon(config, ui, json_lines).run()


class Daemon:
    """Owner of the lock, the Map, the Ledger and all parts."""

    def __init__(self, config: Config, ui: Watched | None, json_lines: bool = False) -> None:
        self._config = config
        self._ui = ui
        self._json_lines = json_lines
        # Signals and failing parts leave their word here; putting it is all that a handler does.
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._reload_lock = threading.Lock()
        # Under that lock: what was wrong with the configuration file when it was last read.
        self._problems: tuple[str, ...] = ()
        self._rebuilt: str | None = None
        self._schedule: Schedule | None = None
        self._kept_at = 0.0
        """when the writer was last asked to look what is due; on the scheduler's OS thread"""
        # What the service manager shows of this daemon. Set on the writer's OS thread.
        self._says = "indexing what is there"
        self._following = False

    def run(self) -> int:
        with contextlib.ExitStack() as left:
            try:
                self._prepare(left)
                self._start(left)
            except OSError as fault:
                where = f"{fault.filename}: " if fault.filename else ""
                hint = "see that its folder is yours to write, and the disk not full"
                raise StorageFault(f"the daemon cannot start: {where}{fault.strerror or fault}", hint) from fault
            notify.ready(self._says)
            why, code = self._wait()
            self._stop(why, code, left)
            if code and self._ui is not None:
                self._ui.note(f"fabled ended: {why}. Its log says more: {self._config.places.log_file}")
        return code

    # ── start ───────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, left: contextlib.ExitStack) -> None:
        """All that may refuse, before anything is changed."""
        places = self._config.places
        os.umask(0o077)
        memory.one_arena()
        memory.collect_seldom()
        for folder in (places.data, places.state):
            private_folder(folder)
        lock = Lock(places.lock)
        if not lock.acquire():
            owner = lock.owner()
            raise AlreadyRunning(
                f"already running or busy: {f'process {owner}' if owner else 'another process'} holds {places.lock}",
                "fabled status shows it",
            )
        left.callback(lock.release)
        claim(places.socket, shared_folder=os.path.dirname(places.socket) != places.runtime)
        logs.setup(self._config, foreground=True, json_lines=self._json_lines)
        threading.excepthook = _log_uncaught
        private_folder(places.vault)
        _tighten(places.data, places.state)
        self._map = self._open_map()
        left.callback(lambda: self._map.close())
        self._ledger = Ledger(places.ledger_db)
        left.callback(lambda: self._ledger.close())

    def _start(self, left: contextlib.ExitStack) -> None:
        config, places = self._config, self._config.places
        self._hear_signals(left)
        self._inbox = Inbox(config.quiet_seconds, config.max_wait_seconds)
        indexer = _unless_damaged(lambda: Indexer(self._map, self._vault(), self._ledger, self._config.exclude))
        self._writer = Writer(
            self._inbox,
            indexer or self._renew_map("it was damaged"),
            self._stopping,
            Tells(
                event=self._publish,
                progress=self._progress,
                ready=self._ready,
                failed=lambda: self._words.put("failed: the index"),
            ),
            renew=self._renew_map,
            keeps=self._keeps,
        )
        beat_folder = os.path.join(places.state, "watch")
        self._watcher = Watcher(
            config.roots,
            (places.vault, *config.vaults),
            Hears(path=self._inbox.add, lost=self._lost, state=self._watch_changed),
            own=(places.data, places.state, places.runtime),
            beat_folder=beat_folder,
        )
        self._desk = Desk(
            self._inbox,
            Sources(
                config=lambda: self._config,
                health=lambda: self._writer.health,
                watch=lambda: self._watcher.state,
                jobs=lambda: self._schedule.jobs() if self._schedule is not None else (),
                reload=self.reload,
                concerns=self._concerns,
                capture=self._capture,
            ),
        )
        # The server first: how the daemon is can be asked while it begins. Its socket is removed last.
        listener = bind(places.socket)
        left.callback(_unlink_own, places.socket, os.stat(places.socket))
        self._server = Server(
            listener,
            self._desk.answer,
            fabled.__version__,
            left=self._answered,
            failed=lambda: self._words.put("failed: the server"),
        )
        self._server.start()
        _tighten_tree(places.vault)
        # The observer before the first pass, so that nothing falls between the two.
        self._watcher.start()
        self._writer.start()
        self._schedule = Schedule(
            (
                Periodic("sweep", self._sweep_seconds(self._watcher.state), self._sweep),
                Periodic("heartbeat", config.heartbeat_seconds, self._watcher.beat),
                Periodic("idle", IDLE_SECONDS, self._idle),
                Periodic("keep", KEEP_SECONDS, self._keep),
            )
        )
        self._schedule.start()
        log.info("daemon.started", version=fabled.__version__, pid=os.getpid(), path=places.socket)

    def _open_map(self) -> Map:
        path = self._config.places.map_db
        # The Map itself notices when it is no database at all; damage deep inside shows where it is met.
        map_ = _unless_damaged(lambda: Map(path))
        aside = ""
        if map_ is None:
            aside = _put_aside(path)
            map_ = Map(path)
        self._rebuilt = f"it was damaged; it was moved to {aside}" if aside else map_.rebuilt
        if self._rebuilt is not None:
            log.warning("map.rebuilt", reason=self._rebuilt)
        return map_

    def _renew_map(self, reason: str) -> Indexer:
        """Leave the Map for a new one; it is derived, so all that is lost is time. On the writer's OS thread."""
        places = self._config.places
        self._map.close()
        private_folder(places.data)
        aside = _put_aside(places.map_db)
        self._map = self._open_map()
        self._rebuilt = f"{reason}; it was moved to {aside}" if aside else reason
        if not os.path.exists(places.ledger_db):
            self._ledger.close()
            self._ledger = Ledger(places.ledger_db)
        return Indexer(self._map, self._vault(), self._ledger, self._config.exclude)

    def _keeps(self, indexer: Indexer) -> Automatic:
        """What captures and prunes, with the settings as they are now."""
        config = self._config
        level, why = automatic_level(config, os.environ)
        return Automatic(opened(config, indexer), level, why)

    def _vault(self) -> Vault:
        return Vault([self._config.places.vault, *self._config.vaults], self._config.roots)

    def _hear_signals(self, left: contextlib.ExitStack) -> None:
        def handler(word: str) -> Callable[[int, FrameType | None], None]:
            return lambda number, frame: self._words.put(word)

        words = {
            signal.SIGTERM: "stopped by signal TERM",
            signal.SIGINT: "stopped by signal INT",
            signal.SIGHUP: "reload",
        }
        for number, word in words.items():
            left.callback(signal.signal, number, signal.signal(number, handler(word)))
        # Written by the interpreter itself, so that it works when nothing else does: not through the log, but beside
        # its lines.
        in_file = not sys.stderr.isatty() and os.path.exists(self._config.places.log_file)
        where = self._config.places.log_file if in_file else os.dup(2)
        stacks = left.enter_context(open(where, "ab", buffering=0))  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        left.callback(faulthandler.unregister, signal.SIGUSR1)

    # ── between ─────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> tuple[str, int]:
        """Until it is time to stop: why, and the exit status."""
        beat = notify.watchdog_seconds()
        while True:
            try:
                word = self._words.get(timeout=beat)
            except queue.Empty:
                if self._writer.alive:
                    notify.notify("WATCHDOG=1")
                continue
            if word == "reload":
                with contextlib.suppress(BadConfig):
                    self.reload()
                continue
            return word, 1 if word.startswith("failed") else 0

    def reload(self) -> None:
        """Take over the configuration file as it is now. A faulty one changes nothing; raises BadConfig."""
        with self._reload_lock:
            notify.reloading()
            try:
                new = configuration.load(os.environ)
            except BadConfig as fault:
                self._problems = fault.problems
                log.error("config.refused", problems=len(fault.problems))
                for problem in fault.problems:
                    log.error("config.problem", reason=problem[:150])
                raise
            finally:
                notify.ready(self._says)
            self._problems = ()
            old, self._config = self._config, new
            if old.log_level != new.log_level:
                logs.setup(new, foreground=True, json_lines=self._json_lines)
            self._inbox.pace(new.quiet_seconds, new.max_wait_seconds)
            if _indexed(old) != _indexed(new):
                self._watcher.follow(new.roots, (new.places.vault, *new.vaults))
                vault = self._vault()
                self._writer.use(lambda: Indexer(self._map, vault, self._ledger, new.exclude))
            if self._schedule is not None:
                self._schedule.every("sweep", self._sweep_seconds(self._watcher.state))
                self._schedule.every("heartbeat", new.heartbeat_seconds)
            log.info("config.reloaded")

    def _sweep(self) -> None:
        self._inbox.ask(SWEEP, "timer")
        self._watcher.check()

    def _sweep_seconds(self, state: WatchState) -> float:
        return self._config.degraded_sweep_seconds if state.mode == "polling" else self._config.sweep_seconds

    def _keep(self) -> None:
        changed = self._writer.health.last_change
        rests = changed is None or time.time() - changed > RESTING_SECONDS
        if not rests or time.monotonic() - self._kept_at > KEEP_RESTING_SECONDS:
            self._kept_at = time.monotonic()
            self._inbox.ask(KEEP, "timer")

    def _capture(self, session_id: str) -> None:
        """Takes a generation as soon as what waits is read: the client is about to compact."""
        params = protocol.dumps({"sessions": [session_id]}).decode()
        self._inbox.ask(Job("capture", params=params), "the client compacts")

    def _idle(self) -> None:
        if not self._writer.health.rested or self._wal_left():
            self._inbox.ask(IDLE)
        if self._writer.health.terms_due and self._writer.health.first_pass_done:
            self._inbox.ask(TERMS)

    def _answered(self) -> None:
        """An answering OS thread rests or ends."""
        self._desk.leave()
        memory.give_back()

    def _wal_left(self) -> bool:
        """A reader may have been in the way when the writer came to rest."""
        for path in (self._config.places.map_db, self._config.places.ledger_db):
            with contextlib.suppress(OSError):
                if os.stat(path + "-wal").st_size:
                    return True
        return False

    def _lost(self, reason: str) -> None:
        log.warning("events.lost", reason=reason)
        self._inbox.ask(SWEEP, reason)

    def _watch_changed(self, state: WatchState) -> None:
        if self._schedule is not None:
            self._schedule.every("sweep", self._sweep_seconds(state))
        level = log.info if state.mode == "events" else log.warning
        level("watcher.state", mode=state.mode, reason=state.reason, waiting=len(state.waiting))
        self._publish("watcher", {"mode": state.mode, "reason": state.reason, "waiting": list(state.waiting)})

    def _publish(self, name: str, value: Mapping[str, object]) -> None:
        self._server.publish(name, protocol.event(name, value))

    def _concerns(self) -> tuple[Concern, ...]:
        found = []
        if self._problems:
            more = f", and {len(self._problems) - 1} more" if len(self._problems) > 1 else ""
            said = f"the configuration file was not taken over: {self._problems[0]}{more}"
            found.append(Concern("config", said, "correct it, then have it read again (SIGHUP)"))
        if self._rebuilt is not None:
            found.append(Concern("rebuilt", f"the Map was built anew: {self._rebuilt}"))
        return tuple(found)

    def _progress(self, progress: Progress) -> None:
        if progress.bytes and not self._following:
            self._say(f"indexing what is there, {100 * progress.bytes_done // progress.bytes} %")
        if self._ui is not None:
            with contextlib.suppress(OSError):  # a terminal that went away
                self._ui.progress(progress)

    def _ready(self, health: Health) -> None:
        self._following = True
        counts = self._desk.counts()
        known = f"{counts.get('sessions', 0):,} sessions with {counts.get('records', 0):,} records at the start"
        self._say(f"following; {known}")
        if self._ui is not None:
            with contextlib.suppress(OSError):
                self._ui.ready({**counts, "waiting": list(self._watcher.state.waiting)})

    def _say(self, words: str) -> None:
        if words != self._says:
            self._says = words
            notify.notify(f"STATUS={words}")

    # ── stop ────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self, why: str, code: int, left: contextlib.ExitStack) -> None:
        """Nothing new in, then nothing new asked, then the writer to the end of its transaction."""
        notify.notify("STOPPING=1", f"STATUS={why}")
        log.info("daemon.stopping", reason=why)
        places = self._config.places
        _leave_word(places.state, why)
        own = os.stat(places.socket) if os.path.exists(places.socket) else None

        def cut_short() -> None:
            log.warning("daemon.cut_short", seconds=STOP_SECONDS)
            if own is not None:
                _unlink_own(places.socket, own)
            os._exit(code)

        limit = threading.Timer(STOP_SECONDS, cut_short)
        limit.daemon = True
        limit.start()
        self._stopping.set()
        all_ended = self._server.stop()
        if self._schedule is not None:
            self._schedule.stop()
        self._watcher.stop()
        self._inbox.close()
        self._writer.join()
        left.close()
        limit.cancel()
        log.info("daemon.stopped", reason=why)
        if not all_ended:
            # A question of minutes is still being answered, for nobody: the interpreter's end would wait for it.
            os._exit(code)


def _indexed(config: Config) -> tuple[object, ...]:
    """What an indexer and what keeps and prunes are made from."""
    return config.roots, config.vaults, config.exclude, config.prune, config.capture


def _unless_damaged(make: Callable[[], T]) -> T | None:
    """What is made of the Map; None where that meets damage."""
    try:
        return make()
    except Exception as fault:
        if storage_trouble(fault) != "damaged":
            raise
        log.error("map.damaged", reason=str(fault))
        return None


def _put_aside(path: str) -> str:
    """Move a Map that nobody has open out of the way, and say where to; "" if there is none."""
    aside = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
    there = os.path.exists(path)
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)
    return aside if there else ""


def _tighten(*folders: str) -> None:
    """Nobody but the owner reads what is kept here, also where it lay open before (a copied home, another umask)."""
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    private_file(entry.path)


def _tighten_tree(top: str) -> None:
    for folder, _, _ in os.walk(top):
        with contextlib.suppress(FileNotFoundError):
            private_folder(folder)
            _tighten(folder)


def _leave_word(state: str, why: str) -> None:
    """For whoever asks later when this daemon was last seen, and why it ended."""
    with contextlib.suppress(OSError):
        path = os.path.join(state, "last-stop")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(f"{time.time():.0f} {why}\n")
        os.replace(path + ".new", path)


def _unlink_own(path: str, bound: os.stat_result) -> None:
    """Remove our socket, unless another has taken its place."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == (bound.st_dev, bound.st_ino):
            os.unlink(path)


def _log_uncaught(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else ""
    log.error("thread.failed", thread=name, exc_info=args.exc_value)
