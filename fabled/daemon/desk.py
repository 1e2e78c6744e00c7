"""Answers the methods of the protocol: at once from what is known, from a reading connection, or through the inbox.

Carrying requests and replies is left to the server, finding to `answers`, wording to `present`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import structlog

import fabled
from fabled import answers, cards, present, pruner, recall
from fabled.config import Config, cleanup_days
from fabled.daemon import hooks, memory, protocol
from fabled.daemon.concerns import Concern, concerns
from fabled.daemon.inbox import Inbox, Job
from fabled.daemon.observer import WatchState
from fabled.daemon.pace import Pace
from fabled.daemon.protocol import METHODS, PROTOCOL, As, Request
from fabled.daemon.schedule import JobState
from fabled.daemon.trouble import storage_trouble
from fabled.daemon.writer import REPAIR, SWEEP, TERMS, Health
from fabled.errors import FabledError, NoIndex, NotFound, StaleIndexError, StorageFault
from fabled.store.queries import Queries
from fabled.store.vault import Vault

log = structlog.get_logger()

T = TypeVar("T")

REPAIR_SECONDS = 60.0
TERMS_WAIT_SECONDS = 5.0
MUCH_BYTES = 4_000_000
"""From so much on, what is being read is worth a word beside each answer."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the desk finds what it tells; each may be called from any OS thread."""

    config: Callable[[], Config]
    health: Callable[[], Health]
    watch: Callable[[], WatchState]
    jobs: Callable[[], tuple[JobState, ...]]
    reload: Callable[[], None]
    concerns: Callable[[], tuple[Concern, ...]]
    """what only the daemon as a whole knows of"""
    capture: Callable[[str], None] = lambda session_id: None
    """takes a generation of a session when it can"""


class Desk:
    """Owner of the reading connections: one for each OS thread that asks, made when it first does."""

    def __init__(self, inbox: Inbox, sources: Sources) -> None:
        self._inbox = inbox
        self._sources = sources
        self._started = time.monotonic()
        self._mine = threading.local()
        self._pace = Pace()
        # Only used on the server's quick lane, which is one OS thread.
        self._counts: _Counts | None = None

    def answer(self, request: Request) -> bytes | Future[bytes]:
        """The reply to a request; raises FabledError."""
        name, params = request.method.name, request.params
        if name == "index":
            return self._ask(request, Job("index", tuple(request.params.get("paths", ()))))
        if name in cards.METHODS:
            return self._ask(request, Job(name, params=protocol.dumps(params).decode()))
        if name in pruner.METHODS:
            named = self._from_map(lambda reader: answers.resolved(reader, name, params))
            return self._ask(request, Job(name, params=protocol.dumps(named).decode()))
        if name == "block" and (params.get("raw") or (request.as_ is not None and request.as_.form == "raw")):
            data = self._from_map(lambda reader: answers.block_bytes(reader, params))
            return protocol.printed(request.id, 0, data)
        return self._reply(request, self._value(name, request.params))

    def leave(self) -> None:
        """This OS thread asks no more, or not for a while: what its reader keeps would only be held for nothing."""
        mine: tuple[answers.Reader, Config] | None = getattr(self._mine, "reader", None)
        if mine is not None:
            self._mine.reader = None
            mine[0].queries.close()

    # ── replies ─────────────────────────────────────────────────────────────────────────────────────────────

    def _reply(self, request: Request, value: Mapping[str, Any]) -> bytes:
        if request.as_ is None:
            return protocol.result(request.id, value)
        name = request.method.name
        body = self._printed(name, value, request.as_)
        return protocol.printed(request.id, _exit(name, value), body)

    def _printed(self, name: str, value: Mapping[str, Any], wishes: As) -> bytes:
        if name in _FRAMED and wishes.form == "text":
            return str(value["text"]).encode("utf-8", "backslashreplace")
        if wishes.form == "json" or name not in _SHOWN:
            return protocol.dumps({"v": 1, **value}) + b"\n"
        style = present.Style(
            color=wishes.color,
            width=wishes.width,
            folds=wishes.folds,
            utf8=wishes.utf8,
            now=time.time(),
            utc=wishes.utc,
            form=wishes.form,
            home=os.path.expanduser("~"),
        )
        return present.text(name, value, style).encode("utf-8", "backslashreplace")

    def _ask(self, request: Request, job: Job) -> Future[bytes]:
        """Has the writer do something, and gives the promise of the reply."""
        done: Future[Any] = Future()
        reply: Future[bytes] = Future()

        def pass_on(done: Future[Any]) -> None:
            fault = done.exception()
            if fault is not None:
                reply.set_exception(fault)
                return
            try:
                reply.set_result(self._reply(request, done.result()))
            except Exception as own:
                reply.set_exception(own)

        done.add_done_callback(pass_on)
        self._inbox.ask(job, "asked for", done)
        return reply

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match name:
            case "ping":
                return {}
            case "hello":
                return self._hello(params)
            case "status":
                return self.status()
            case "reload":
                self._sources.reload()
                return {"reloaded": True}
            case "hook":
                return self._hook(params)
            case "nudge":
                return self._nudge(params)
            case "statusline":
                path = hooks.transcript_of({}, hooks.data_of(params), self._sources.config().roots)
                return {**self.status(), "transcript_bytes": _size(path) if path is not None else None}
            case "recall" if params["what"] in ("recent", "file"):
                return self._recall_list(params["what"], params)
        return self._read(name, params)

    # ── Claude Code ─────────────────────────────────────────────────────────────────────────────────────────

    def _hook(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Nothing before the first pass is done: what is found then may be any part of what there is."""
        asked = hooks.recall_for(params["event"], hooks.data_of(params), self._sources.config().recall)
        if asked is None or not self._sources.health().first_pass_done:
            return {"text": ""}
        return self._read("recall", asked)

    def _nudge(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        data = hooks.data_of(params)
        path = hooks.transcript_of(params, data, self._sources.config().roots)
        session = hooks.session_of(params, data)
        if path is not None:
            self._inbox.add(path, urgent=True)
        if session is not None and params["event"] == "pre-compact":
            self._sources.capture(session)
        return {"looking": path is not None}

    def _recall_list(self, what: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Another answer's list, as a recall."""
        if what not in METHODS:
            raise FabledError(f"this daemon ({fabled.__version__}) has no list of that kind ({what})", "update fabled")
        known = {param.name for param in METHODS[what].params}
        value = self._read(what, {name: given for name, given in params.items() if name in known})
        body = self._printed(what, value, As("text", width=120))
        return recall.framed_value(body.decode(), value)

    def _hello(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        spoken = params.get("protocol", PROTOCOL)
        if spoken > PROTOCOL:
            fault = FabledError(
                f"the client needs protocol {spoken}; this daemon ({fabled.__version__}) speaks {PROTOCOL}",
                "restart the daemon so that it runs the newer version",
            )
            fault.code = "protocol"
            raise fault
        return {
            "protocol": PROTOCOL,
            "version": fabled.__version__,
            "pid": os.getpid(),
            "methods": sorted(METHODS),
        }

    def _read(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        begun = time.monotonic()
        value = self._from_map(lambda reader: answers.answer(reader, name, params))
        if name == "terms" and value.get("pending"):
            # What is due is derived first, as far as that is a matter of moments; the answer says what is left.
            derived: Future[Any] = Future()
            self._inbox.ask(TERMS, "asked for", derived)
            with contextlib.suppress(FutureTimeout, FabledError):
                derived.result(TERMS_WAIT_SECONDS)
                value = self._from_map(lambda reader: answers.answer(reader, name, params))
        self._pace.note(time.monotonic() - begun)
        if name in _WHOLE:
            told = _indexing(self._sources.health(), self._reader().queries.whole())
            value = {**value, "indexing": told} if told is not None else value
            if told is not None and name == "recall" and not value["arcs"] and value["text"]:
                value["text"] += f" {present.not_yet(told, '')}."
        # Another copy had to stand in: somebody looks at it now, so find out at once what became of the file.
        for path in value.get("stale", ()):
            self._inbox.add(path, urgent=True)
        return value

    def _from_map(self, ask: Callable[[answers.Reader], T]) -> T:
        """What a question to the Map gives. Damage met on the way is mended, and the question asked once more."""
        try:
            return ask(self._reader())
        except StaleIndexError:
            self._inbox.ask(SWEEP, "a record was not where the Map says")
            raise
        except NotFound as fault:
            told = _indexing(self._sources.health(), self._reader().queries.whole())
            if told is not None:
                fault.indexing, fault.hint = told, present.not_yet(told, fault.hint)
            raise
        except Exception as fault:
            # The daemon always has a Map: without one, somebody has just removed it.
            if storage_trouble(fault) != "damaged" and not isinstance(fault, NoIndex):
                raise
            log.warning("read.damaged", reason=str(fault))
        self.leave()
        mended: Future[Any] = Future()
        self._inbox.ask(REPAIR, "a question met damage", mended)
        try:
            mended.result(REPAIR_SECONDS)
        except TimeoutError:
            raise StorageFault("the index is damaged and being built anew", "try again in a while") from None
        return ask(self._reader())

    def _reader(self) -> answers.Reader:
        config = self._sources.config()
        mine: tuple[answers.Reader, Config] | None = getattr(self._mine, "reader", None)
        if mine is not None and mine[1] is config:
            return mine[0]
        self.leave()
        places = config.places
        vault = Vault([places.vault, *config.vaults], config.roots)
        reader = answers.Reader(Queries(places.map_db), vault, places.ledger_db)
        self._mine.reader = reader, config
        return reader

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> dict[str, Any]:
        """All that CONTRACT lists for `status`, cheap enough to be asked for all the time."""
        config, health, watch = self._sources.config(), self._sources.health(), self._sources.watch()
        jobs = self._sources.jobs()
        counts = self._count(health)
        wal = _size(config.places.map_db + "-wal")
        uptime = time.monotonic() - self._started
        vanished = [loss for loss in health.losses if loss.kind == "vanished"]
        value: dict[str, Any] = {
            "running": True,
            "pid": os.getpid(),
            "version": fabled.__version__,
            "protocol": PROTOCOL,
            "uptime_s": round(uptime, 1),
            "rss_bytes": memory.rss_bytes(),
            "cpu_percent": round(100 * time.process_time() / max(uptime, 1.0), 2),
            "sessions": 0,
            "threads": 0,
            "records": 0,
            "no_uuid": 0,
            "unparsed": 0,
            "pending_bytes": 0,
            **counts,
            "queue": len(self._inbox) + health.in_hand,
            "phase": health.phase,
            "progress": asdict(health.progress) if health.progress is not None else None,
            "indexing": _indexing(health, bool(counts.get("whole"))),
            "last_change": health.last_change,
            "scans": health.scans,
            "rescans": health.rescans,
            "failed": [{"path": path, "reason": reason} for path, reason in health.failed],
            # What the Ledger keeps outlives a restart; records that left a session that goes on are counted here.
            "vanished": max(health.vanished, sum(loss.nowhere for loss in health.losses)),
            "vanished_sessions": len({loss.session_id for loss in vanished}),
            "losses": [asdict(loss) for loss in health.losses],
            "overflow": watch.overflow,
            "watcher_restarts": watch.restarts,
            "watcher": {
                "mode": watch.mode,
                "reason": watch.reason,
                "roots": [asdict(root) for root in watch.roots],
            },
            "missed_runs": sum(job.missed for job in jobs),
            "jobs": [asdict(job) for job in jobs],
            "wal_bytes": wal,
            "fts_rebuilds": health.fts_rebuilds,
            "vault": {"generations": 0, "bytes": 0, "logical_bytes": 0, **(counts.get("vault") or {})},
            "prune": asdict(health.outlook),
            "queries": self._pace.figures(),
        }
        found = (*concerns(value, config, health, watch), *self._sources.concerns())
        value["warnings"] = [asdict(concern) for concern in found]
        return value

    def counts(self) -> Mapping[str, Any]:
        """What the Map counts now; for an OS thread that asks once."""
        try:
            return answers.answer(self._reader(), "status_counts", self._counting())
        except FabledError:
            return {}
        finally:
            self.leave()

    def _counting(self) -> dict[str, Any]:
        return {"cleanup_days": cleanup_days(self._sources.config().places)}

    def _count(self, health: Health) -> Mapping[str, Any]:
        """What the Map counts, as of its last change; while a long pass runs, as of some seconds ago.

        Where counting takes noticeable time, in a very large Map, it is done less often than it is asked for.
        """
        known = self._counts
        if known is not None:
            age = time.monotonic() - known.at
            changed = known.changes != health.changes or (health.phase == "working" and age > 2)
            if not changed or (known.seconds > 0.2 and age < 10 * known.seconds):
                return known.values
        try:
            reader = self._reader()
            begun = time.monotonic()
            values = answers.answer(reader, "status_counts", self._counting())
        except Exception as fault:
            self.leave()
            if storage_trouble(fault) == "damaged":
                self._inbox.ask(REPAIR, "a question met damage")
            elif not isinstance(fault, FabledError):
                log.exception("counts.failed")
            return known.values if known is not None else {}
        now = time.monotonic()
        self._counts = _Counts(values, health.changes, now, now - begun)
        return values


# Methods whose answers have a text form.
_SHOWN = frozenset(
    (
        "status", "index", "search", "thread", "block", "sessions", "projects", "spans", "capture", "generations",
        "prune", "prune_check", "restore", "undo", "diff", "statusline",
        "terms", "cards", "card", "recent", "overview", "file",
        "forget", "forgotten", "stats",
    )
)  # fmt: skip


# Answers that may lack something while not everything is read.
_WHOLE = frozenset(METHODS) - {"spans", "forgotten", "threads_like", "statusline", "hook"}


def _indexing(health: Health, whole: bool) -> dict[str, Any] | None:
    """How far the reading of all there is has come; None where answers lack nothing for it. A few changed files are
    read before anybody notices."""
    progress = health.progress
    if health.first_pass_done and (progress is None or progress.bytes < MUCH_BYTES):
        return None
    if progress is None and whole:
        return None  # a start that has found nothing new so far
    return {"first": not whole, "under_way": True, **(asdict(progress) if progress is not None else {})}


def _exit(name: str, value: Mapping[str, Any]) -> int:
    """The status a client ends with."""
    if not present.found(name, value):
        return 1
    return 4 if value.get("refused") and not value.get("applied") else 0


# Methods whose text is made by `recall`, for a model.
_FRAMED = frozenset(("recall", "hook"))


@dataclass(frozen=True, slots=True)
class _Counts:
    values: Mapping[str, Any]
    changes: int
    at: float
    seconds: float


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
