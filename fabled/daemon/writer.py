"""The one writer: takes what is due from the inbox, has it done, and says how it went.

What is done is the indexer's business; when it is due, the inbox's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import msgspec
import structlog

from fabled import cards
from fabled.daemon import memory
from fabled.daemon.inbox import Asked, Batch, Inbox, Job
from fabled.daemon.trouble import of_sqlite, storage_trouble
from fabled.errors import FabledError, NotRunning, StorageFault
from fabled.indexer import Indexer, IndexReport, Progress
from fabled.indexer.report import GROWN
from fabled.pruner import Automatic, Outlook, perform
from fabled.store.ledger import Loss

log = structlog.get_logger()

START = Job("start")
SWEEP = Job("sweep")
IDLE = Job("idle")
REPAIR = Job("repair")
INDEX = Job("index")
KEEP = Job("keep")
TERMS = Job("terms")

# How often a replaced transcript's old file is looked at for what a client still writes to it.
DRAIN_SECONDS = 0.1
# So long sessions are captured or pruned before waiting paths have their turn.
KEEP_SECONDS = 0.5
# After so long without work, what is only held to be faster is let go of; amid work, when the idle job asks for it.
REST_SECONDS = 10.0
# So long a request waits for a drain to end.
LATER_SECONDS = 10.0
# So long terms are derived before waiting paths have their turn, and so long a thread is quiet before it is looked
# through unasked: one that is being written would be read again and again.
TERMS_SECONDS = 2.0
TERMS_QUIET_SECONDS = 120.0
# So long the end waits for drains; what is left then is carried over at the next start.
LAST_DRAIN_SECONDS = 2.5

# A pass over everything stands back for waiting paths, but not before it has done this much itself.
YIELD_SECONDS = 10.0

# A WAL of this size is given back as soon as nothing waits; a smaller one at the next idle job.
BIG_WAL_BYTES = 16 << 20

# After reading so much, memory that was freed is given back to the system.
BIG_WORK_BYTES = 8 << 20

RETRY_SECONDS = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
TELL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StorageWait:
    """Work that cannot be stored now: another process holds the lock, or the disk is full. It is tried again."""

    kind: Literal["locked", "full", "failing"]
    message: str
    since: float
    """seconds since the epoch"""


@dataclass(frozen=True, slots=True)
class Health:
    """How the writer is. Replaced as a whole, so that others may read it at any time."""

    phase: Literal["starting", "idle", "working", "waiting", "stopped", "failed"] = "starting"
    first_pass_done: bool = False
    in_hand: int = 0
    """paths and jobs taken out of the inbox and not done yet"""
    progress: Progress | None = None
    report: IndexReport | None = None
    changes: int = 0
    """reports that changed the Map"""
    last_change: float | None = None
    scans: int = 0
    rescans: int = 0
    vanished: int = 0
    """records that no copy holds any more, since the start"""
    fts_rebuilds: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    """roots that were not there at the last pass over everything"""
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    outlook: Outlook = field(default_factory=Outlook)
    terms_due: bool = True
    """threads may lack their terms"""
    rested: bool = False
    """nothing was done since what is only held to be faster was let go of"""
    storage: StorageWait | None = None


class _Stopping(Exception):
    """The daemon ends; what is in hand is left to the next start."""


@dataclass(frozen=True, slots=True)
class Tells:
    """Whom the writer tells, on its own OS thread."""

    event: Callable[[str, dict[str, object]], None] = lambda name, value: None
    """something subscribers may want to know"""
    progress: Callable[[Progress], None] = lambda progress: None
    """how far the first pass is"""
    ready: Callable[[Health], None] = lambda health: None
    """the first pass is done"""
    failed: Callable[[], None] = lambda: None
    """the index itself fails; the process is to end, to be started again"""


class Writer:
    """Owner of the writing connection from `start` to the end of its OS thread, and of its `health`."""

    def __init__(
        self,
        inbox: Inbox,
        indexer: Indexer,
        stopping: threading.Event,
        tells: Tells | None = None,
        *,
        renew: Callable[[str], Indexer] | None = None,
        keeps: Callable[[Indexer], Automatic] | None = None,
    ) -> None:
        """`renew` leaves the Map for a new one, for the reason given, and makes an indexer over that; `keeps` makes
        what captures and prunes, over an indexer."""
        self._inbox = inbox
        self._renew = renew
        self._indexer = indexer
        self._keeps = keeps
        self._automatic = keeps(indexer) if keeps is not None else None
        self._place = _ident(indexer.map.path)
        self._stopping = stopping
        self._tells = tells or Tells()
        self._health = Health()
        self._next: Callable[[], Indexer] | None = None
        self._failed: dict[str, str] = {}
        self._later: list[tuple[float, Asked]] = []
        """(until when at the latest, request) that wait for a drain"""
        self._requests: tuple[Asked, ...] = ()
        """of the batch in hand, not carried out yet"""
        self._read_since = 0
        """bytes of transcripts read since memory was last given back"""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    @property
    def health(self) -> Health:
        return self._health

    @property
    def indexer(self) -> Indexer:
        return self._indexer

    def start(self) -> None:
        """Begin with a pass over everything."""
        self._inbox.ask(START)
        self._thread.start()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end; False if it did not come in time. The inbox must have been closed."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def use(self, make: Callable[[], Indexer]) -> None:
        """From the next work on, index with other roots (a reload); everything is looked at with them.

        The indexer is made on the writer's OS thread, since it reads the Map by the writer's connection.
        """
        self._next = make
        self._inbox.ask(SWEEP, "the configuration changed")

    # ── on the writer's OS thread ───────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        phase: Literal["stopped", "failed"] = "stopped"
        try:
            self._note_losses()
            self._recover()
            while (batch := self._inbox.take(self._patience())) is not None:
                if batch.paths or batch.jobs or batch.overfull:
                    self._batch(batch)
                elif not self._draining():
                    self._idle()
                self._drain()
                self._held_back()
            self._last_drain()
        except _Stopping:
            self._last_drain()
        except Exception:
            log.exception("writer.failed")
            phase = "failed"
        self._answer([asked for _, asked in self._later], fault=NotRunning("the daemon is stopping", ""))
        self._set(phase=phase, progress=None)
        self._inbox.close()
        if phase == "failed":
            self._tells.failed()

    def _patience(self) -> float | None:
        """How long the next work is waited for."""
        if self._draining():
            return DRAIN_SECONDS
        return None if self._health.rested else REST_SECONDS

    def _set(self, **changes: Any) -> None:
        self._health = replace(self._health, **changes)

    def _batch(self, batch: Batch) -> None:
        make, self._next = self._next, None
        if make is not None:
            self._over(make())
        self._set(phase="working", in_hand=len(batch.paths) + len(batch.jobs) + batch.overfull, rested=False)
        try:
            self._do(batch)
        except BaseException as fault:
            told = fault if isinstance(fault, FabledError) else NotRunning("the daemon is stopping", "")
            self._answer(batch.jobs, fault=told)
            raise
        self._set(phase="idle", in_hand=0)

    def _do(self, batch: Batch) -> None:
        jobs = {asked.job.name: asked for asked in batch.jobs if asked.job in _OWN}
        self._requests = tuple(asked for asked in batch.jobs if asked.job.params)
        index = [asked for asked in batch.jobs if asked.job.name == "index"]
        mended = False
        anew = not self._in_place() and self._begin_anew("its file was removed")
        if not anew and ("repair" in jobs or "start" in jobs):
            # Damage is looked for before the first pass, which would only meet it in the middle of its work.
            mended = self._repair()
            if not mended and "repair" in jobs:
                # Somebody met damage, and it is not in the full text.
                anew = not self._sound() and self._begin_anew("its pages are not in order")
        whole = [asked for asked in batch.jobs if asked.job in (START, SWEEP, INDEX)]
        if whole or batch.overfull or anew:
            reasons = [reason for asked in whole for reason in asked.reasons]
            reasons += ["too many paths waited"] * batch.overfull + ["the Map is built anew"] * anew
            self._pass("start" in jobs, tuple(dict.fromkeys(reasons)), index)
        else:
            paths = dict.fromkeys((*batch.paths, *(path for asked in index for path in asked.job.paths)))
            if paths:
                report = self._update(tuple(paths), index)
                if report is not None:
                    self._take_in(report, tuple(paths))
                    self._answer(index, report=report)
        for reply in jobs["repair"].replies if "repair" in jobs else ():
            reply.set_result(mended or anew)
        requests, self._requests = self._requests, ()
        for asked in requests:
            if asked.replies and all(reply.done() for reply in asked.replies):
                continue  # told meanwhile that it cannot be done now
            if self._draining() and asked.job.name != "capture":
                self._later.append((time.monotonic() + LATER_SECONDS, asked))  # the same transcript, most likely
            else:
                self._perform(asked)
        if "keep" in jobs:
            self._keep()
        if "terms" in jobs:
            self._derive_terms(jobs["terms"])
        if "idle" in jobs or (not len(self._inbox) and self._wal_bytes() > BIG_WAL_BYTES):
            self._idle()
        elif self._read_since > BIG_WORK_BYTES and not len(self._inbox):
            self._read_since = 0
            memory.give_back()

    def _pass(self, first: bool, reasons: tuple[str, ...], index: list[Asked]) -> None:
        """A pass over everything, in pieces if paths wait: a first index of hours must not hold up today's work."""
        pieces: list[IndexReport] = []
        while True:
            report = self._update(None, index)
            if report is None:
                break
            pieces.append(report)
            if not report.stopped:
                break
            if self._stopping.is_set():
                raise _Stopping
            # Paths that came meanwhile. Jobs wait for the end, which is what most of them ask for anyway.
            between = self._inbox.take_paths()
            if between:
                self._set(in_hand=len(between) + 1)
                found = self._update(between, ())
                if found is not None:
                    self._take_in(found, between)
        if not first:
            self._set(rescans=self._health.rescans + 1)
        if report is not None:
            report = _together(pieces)
            self._take_in(report, None, reasons)
            self._answer(index, report=report)
        if first:
            self._set(first_pass_done=True, progress=None)
            if self._automatic is not None:
                self._automatic.adopt(self._stopping.is_set)
                self._look_out()
                self._inbox.ask(KEEP, "the first pass is done")
            self._tells.ready(self._health)

    def _update(self, paths: tuple[str, ...] | None, waiting: Iterable[Asked]) -> IndexReport | None:
        """One update, tried until it is stored; whoever waits for it is told at once where that takes longer.

        None after a fault of ours, which is no reason to end: what was stored before it stays, and other files
        are looked at as ever. A Map that fails in a way nobody foresaw is one.
        """
        tries = 0
        since = told = time.time()
        # Counting the Map costs time that grows with history: only where somebody reads the figures.
        count = bool(tuple(waiting)) or not self._health.first_pass_done
        while True:
            begun = time.monotonic()

            def stop(begun: float = begun) -> bool:
                if self._stopping.is_set():
                    return True
                if paths is not None or time.monotonic() - begun < YIELD_SECONDS:
                    return False
                return self._inbox.paths_due()

            try:
                report = self._indexer.update(paths, progress=self._progress, stop=stop, count=count)
                break
            except Exception as fault:
                kind = storage_trouble(fault)
                if kind is None:
                    if of_sqlite(fault):
                        raise
                    self._mark_failed(paths, fault)
                    self._answer(waiting, fault=FabledError(f"the update failed: {_named(fault)}", "fabled logs"))
                    return None
                if self._stopping.is_set():
                    raise _Stopping from None
                if kind == "damaged":
                    # First the full text, then the Map as a whole; if that does not help, it is not the Map.
                    tries += 1
                    mended = tries == 1 and self._repair()
                    if not mended:
                        if tries > 2 or not self._begin_anew(f"it was damaged: {fault}"):
                            raise
                        if paths is not None:
                            self._inbox.ask(SWEEP, "the Map is built anew")
                    continue
                message = getattr(fault, "message", "") or str(fault)
                self._set(phase="waiting", progress=None, storage=StorageWait(kind, message, since))
                if kind != "locked":
                    # Whoever asked for work that writes is told so, and does not wait for a disk to be freed.
                    told_so = StorageFault(message, getattr(fault, "hint", ""))
                    self._answer((*waiting, *self._requests, *self._inbox.take_requests()), fault=told_so)
                now = time.time()
                if now - told >= TELL_SECONDS or (tries == 0 and kind != "locked"):
                    told = now
                    log.warning("storage.waiting", kind=kind, reason=message, seconds=round(now - since, 1))
                    self._tells.event("storage", {"state": kind, "reason": message})
                # A lock has been waited for already, inside SQLite.
                pause = RETRY_SECONDS[0 if kind == "locked" else min(tries + 1, len(RETRY_SECONDS) - 1)]
                tries += 1
                if self._stopping.wait(pause):
                    raise _Stopping from None
        if self._health.storage is not None:
            log.warning("storage.waited", kind=self._health.storage.kind, seconds=round(time.time() - since, 1))
            self._tells.event("storage", {"state": "well"})
            self._set(phase="working", storage=None)
        return report

    def _mark_failed(self, paths: tuple[str, ...] | None, fault: Exception) -> None:
        log.exception("index.failed", paths=len(paths or ()))
        self._failed.update(dict.fromkeys(paths or ("everything",), _named(fault)))
        self._set(failed=tuple(self._failed.items()), progress=None)

    def _progress(self, progress: Progress) -> None:
        if progress.bytes and self._health.storage is None:
            self._set(progress=progress)
        if not self._health.first_pass_done:
            self._tells.progress(progress)

    def _take_in(self, report: IndexReport, paths: tuple[str, ...] | None, reasons: tuple[str, ...] = ()) -> None:
        """One report: into the health, one line of the log, one event."""
        changed = bool(report.scans or report.vanished)
        self._read_since += report.bytes_read
        if paths is None:
            self._failed = dict(report.failed)
        else:
            for path in paths:
                below = path.rstrip("/") + "/"
                for failed in [one for one in self._failed if one == path or one.startswith(below)]:
                    del self._failed[failed]
            self._failed.update(report.failed)
        before = self._health
        self._set(
            progress=None,
            report=report,
            changes=before.changes + changed,
            terms_due=before.terms_due or changed,
            last_change=time.time() if changed else before.last_change,
            scans=before.scans + report.scans,
            vanished=before.vanished + report.vanished,
            failed=tuple(self._failed.items()),
            missing=report.waiting if paths is None else before.missing,
            notes=report.notes if paths is None else before.notes,
        )
        if changed or before.losses:
            self._note_losses()
        facts: dict[str, object] = {
            "files": report.files_changed,
            "bytes": report.bytes_read,
            "seconds": round(report.seconds, 4),
        }
        if report.records:
            facts["records"] = report.records
        if report.vanished:
            facts["vanished"] = report.vanished
        if report.failed:
            facts["failed"] = len(report.failed)
        grown = [
            {
                "session_id": one.session, "subagent": one.agent is not None, "project": one.project,
                "added": one.now - one.before, "bytes": one.now,
            }
            for one in report.grown
        ]  # fmt: skip
        whole = paths is None
        if whole or changed:
            log.info("index.everything" if whole else "index.paths", reason=", ".join(reasons), **facts)
            told = {**facts, "paths": list(paths or ())[:20], "grown": grown}
            self._tells.event("index" if whole else "change", told)
        else:
            log.debug("index.unchanged", paths=len(paths or ()))
        for path, reason in report.failed:
            if path not in dict(before.failed):
                log.warning("file.failed", path=path, reason=reason)

    def _note_losses(self) -> None:
        try:
            self._set(losses=tuple(self._indexer.ledger.losses()))
        except Exception as fault:
            if storage_trouble(fault) is None:
                raise
            log.warning("losses.unread", reason=str(fault))

    def _answer(
        self, asked: Iterable[Asked], *, report: IndexReport | None = None, fault: Exception | None = None
    ) -> None:
        for one in asked:
            for reply in one.replies:
                if reply.done():
                    continue
                if fault is not None:
                    reply.set_exception(fault)
                else:
                    reply.set_result(report_value(report) if report is not None else None)

    def _repair(self) -> bool:
        """Look for damage of the full text, and mend it; True if there was some."""
        begun = time.monotonic()
        try:
            damaged = self._indexer.repair()
        except Exception as fault:
            if storage_trouble(fault) is None:
                raise
            # Locked or full: later. Damaged elsewhere, too: the next update meets it.
            log.warning("repair.failed", reason=str(fault))
            return False
        if damaged:
            self._set(fts_rebuilds=self._health.fts_rebuilds + 1, changes=self._health.changes + 1)
            log.warning("fulltext.rebuilt", seconds=round(time.monotonic() - begun, 2))
            self._tells.event("storage", {"state": "full text rebuilt"})
        return damaged

    def _in_place(self) -> bool:
        """Whether the Map we write is still the one that lies there: it may be deleted at any time, being derived."""
        return _ident(self._indexer.map.path) == self._place

    def _sound(self) -> bool:
        """SQLite's own opinion of the Map's pages."""
        try:
            rows = self._indexer.map.db.execute("PRAGMA quick_check(1)").fetchall()
        except Exception as fault:
            if storage_trouble(fault) is None:
                raise
            return storage_trouble(fault) != "damaged"
        return bool(rows == [("ok",)])

    def _begin_anew(self, reason: str) -> bool:
        """Leave a Map that cannot be mended, or is gone, for a new one, which everything is then indexed into."""
        if self._renew is None:
            return False
        log.error("map.begun_anew", reason=reason)
        self._over(self._renew(reason))
        self._place = _ident(self._indexer.map.path)
        self._set(changes=self._health.changes + 1)
        return True

    # ── keeping and pruning ─────────────────────────────────────────────────────────────────────────────────

    def _over(self, indexer: Indexer) -> None:
        """Goes on with another indexer; drains that still run are taken up from the journal."""
        if self._automatic is not None:
            self._automatic.pruner.leave()
        self._indexer = indexer
        self._automatic = self._keeps(indexer) if self._keeps is not None else None
        self._recover()

    def _recover(self) -> None:
        """What a process before this one left half done, before anything is read."""
        if self._automatic is None:
            return
        try:
            for told in self._automatic.recover():
                log.warning("prune.recovered", reason=told)
        except Exception as fault:
            if storage_trouble(fault) is None and not isinstance(fault, FabledError | OSError):
                raise
            log.error("prune.unrecovered", reason=str(fault))

    def _perform(self, asked: Asked) -> None:
        """One request for a verb; its answer or its fault goes to everyone who asked."""
        name = asked.job.name
        begun = time.monotonic()
        try:
            if name in cards.METHODS:
                value = cards.perform(self._indexer.ledger, name, msgspec.json.decode(asked.job.params))
                self._answer_with(asked, value)
                return
            if self._automatic is None:
                raise FabledError("this daemon keeps nothing", "")
            value = perform(self._automatic.pruner, name, msgspec.json.decode(asked.job.params))
        except Exception as fault:
            if not isinstance(fault, FabledError):
                if of_sqlite(fault) and storage_trouble(fault) is None:
                    raise
                log.exception("request.failed", reason=name)
                fault = FabledError(f"{name} failed: {_named(fault)}", "fabled logs")
            self._answer((asked,), fault=fault)
            return
        log.info(f"{name}.done", seconds=round(time.monotonic() - begun, 3), **_told_of(value))
        if value.get("applied") or value.get("captured"):
            self._tells.event(name, {"session_id": value.get("session_id"), **_told_of(value)})
            self._set(changes=self._health.changes + 1)
        self._look_out()
        self._answer_with(asked, value)

    def _answer_with(self, asked: Asked, value: Mapping[str, Any]) -> None:
        for reply in asked.replies:
            if not reply.done():
                reply.set_result(value)

    def _keep(self) -> None:
        """What is due unasked, for a moment; then again, behind whatever waits."""
        if self._automatic is None or not self._health.first_pass_done:
            return
        until = time.monotonic() + KEEP_SECONDS
        more = True
        while more and time.monotonic() < until and not self._stopping.is_set():
            try:
                done = self._automatic.turn(lambda: self._stopping.is_set() or self._inbox.paths_due())
            except Exception as fault:
                if storage_trouble(fault) is None and not isinstance(fault, FabledError):
                    if of_sqlite(fault):
                        raise
                    log.exception("keep.failed")
                else:
                    log.warning("keep.postponed", reason=str(fault))
                done = None
            more = done is not None
            if done is None:
                break
            facts = _told_of(done.value)
            if done.refused is not None:
                log.info(f"{done.what}.refused", session=done.session_id, reason=done.refused.code)
            else:
                log.info(f"{done.what}.done", session=done.session_id, **facts)
                self._tells.event(done.what, {"session_id": done.session_id, **facts})
                self._set(changes=self._health.changes + 1)
        if more or self._inbox.paths_due():
            self._inbox.ask(KEEP, "there may be more")
        self._look_out()

    def _look_out(self) -> None:
        """How keeping and pruning stand, for `status`."""
        if self._automatic is None:
            return
        try:
            self._set(outlook=self._automatic.outlook())
        except Exception as fault:
            if storage_trouble(fault) is None and of_sqlite(fault):
                raise
            log.warning("outlook.unread", reason=_named(fault))

    def _draining(self) -> bool:
        return self._automatic is not None and bool(self._automatic.pruner.drains)

    def _drain(self) -> None:
        if not self._draining():
            return
        assert self._automatic is not None
        try:
            for told in self._automatic.pruner.visit(time.monotonic()):
                log.warning("drain.over", reason=told)
        except Exception as fault:
            if storage_trouble(fault) is None and not isinstance(fault, FabledError | OSError):
                raise
            log.warning("drain.postponed", reason=str(fault))

    def _held_back(self) -> None:
        """Requests that waited for a drain to end; after a while they are told so."""
        now = time.monotonic()
        ready = [one for one in self._later if not self._draining() or one[0] < now]
        self._later = [one for one in self._later if one not in ready]
        if ready:
            self._set(rested=False)
        for _, asked in ready:
            self._perform(asked)

    def _last_drain(self) -> None:
        """Before the end drains come to theirs, if that takes no longer than usual."""
        until = time.monotonic() + LAST_DRAIN_SECONDS
        while self._draining() and time.monotonic() < until:
            self._drain()
            time.sleep(DRAIN_SECONDS / 2)
        if self._automatic is not None:
            self._automatic.pruner.leave()

    def _derive_terms(self, asked: Asked) -> None:
        """The terms that are due, for a moment: all where somebody waits for them, else of threads that are quiet."""
        until = time.monotonic() + TERMS_SECONDS
        before = None if asked.replies else int((time.time() - TERMS_QUIET_SECONDS) * 1000)
        stopped = False

        def stop() -> bool:
            nonlocal stopped
            stopped = self._stopping.is_set() or self._inbox.paths_due() or time.monotonic() > until
            return stopped

        try:
            done, left = self._indexer.derive_terms(stop, before)
        except Exception as fault:
            if storage_trouble(fault) is None:
                raise
            log.debug("terms.postponed", reason=str(fault))
            done, left, stopped = 0, 1, True
        if done:
            log.debug("terms.derived", threads=done, left=left)
        # Threads that are not quiet yet have their turn later. Those that could not be read are not tried again and
        # again: until something changes they will not read either.
        self._set(terms_due=stopped or self._indexer.terms_due() > left)
        if done and left and not asked.replies:
            self._inbox.ask(TERMS)
        for reply in asked.replies:
            if not reply.done():
                reply.set_result(left)

    def _idle(self) -> None:
        try:
            self._indexer.idle()
        except Exception as fault:
            if storage_trouble(fault) is None:
                raise
            log.debug("idle.postponed", reason=str(fault))
        self._read_since = 0
        memory.give_back()
        self._set(rested=True)

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._indexer.map.path + "-wal").st_size
        except OSError:
            return 0


def _ident(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_OWN = frozenset((START, SWEEP, IDLE, REPAIR, KEEP, TERMS))
"""The writer's own jobs, each one at a time."""


def _told_of(value: Mapping[str, Any]) -> dict[str, object]:
    """The figures of an answer that the log and subscribers are told; no text of transcripts."""
    names = ("level", "applied", "before_bytes", "after_bytes", "captured", "bytes", "logical_bytes", "generation")
    told: dict[str, object] = {name: value[name] for name in names if value.get(name) is not None}
    if value.get("refused"):
        told["refused"] = ",".join(one["code"] for one in value["refused"])
    return told


def _named(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"


def report_value(report: IndexReport) -> dict[str, Any]:
    """A report as the answer to `index`."""
    value = asdict(report)
    del value["grown"]  # for those who follow what happens
    value["failed"] = [{"path": path, "reason": reason} for path, reason in report.failed]
    return value


def _together(pieces: list[IndexReport]) -> IndexReport:
    """The report of a pass done in pieces: what each did, and the totals of the last."""
    added = ("files_changed", "bytes_read", "seconds", "cpu_seconds", "scans", "whole_scans", "vanished")
    grown = tuple(one for piece in pieces for one in piece.grown)[:GROWN]
    sums = {name: sum(getattr(piece, name) for piece in pieces) for name in added}
    return replace(pieces[-1], grown=grown, **sums)
