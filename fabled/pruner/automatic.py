"""What is done unasked: sessions are captured, and live transcripts made smaller, one at a time.

When a session's turn has come is decided in `due` from what Map and Ledger say, so it survives a restart; when to look
is the scheduler's business.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ..config import Config, cleanup_days
from ..errors import FabledError, NotFound
from ..store.ledger import Entry
from ..store.recover import recover
from ..transcript.rules import Level
from . import due, selfcheck
from .due import Candidate, Refusal, Verdict
from .verb import Pruner, session_of

WEEK_SECONDS = 7 * 86_400
SHOWN = 50
"""Sessions whose verdict `status` tells, the largest first."""


@dataclass(frozen=True, slots=True)
class Done:
    """One thing done unasked."""

    what: Literal["capture", "prune", "check"]
    session_id: str
    value: Mapping[str, Any]
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """How automatic pruning stands: for `status` and `doctor`. Replaced as a whole."""

    level: str = "off"
    why: str = ""
    summary: str = ""
    disabled: str = ""
    """a failed self-check; nothing is pruned unasked until one succeeds"""
    sessions: tuple[Mapping[str, Any], ...] = ()
    """the large ones: session_id, bytes, verdict, last_prune"""
    pruned: int = 0
    saved_bytes: int = 0


def automatic_level(config: Config, env: Mapping[str, str]) -> tuple[Level | None, str]:
    """What is pruned unasked, and why that and not more: gentle under an installed service, nothing by hand."""
    match config.prune.level:
        case "off":
            return None, "prune.level is off"
        case "auto" if env.get("FABLED_SERVICE"):
            return "gentle", ""
        case "auto":
            return None, "a daemon started by hand prunes nothing unasked; fabled prune SESSION does, or prune.level"
        case level:
            return level, ""


class Automatic:
    """Owner of what was tried; on the writer's OS thread."""

    def __init__(self, pruner: Pruner, level: Level | None, why: str) -> None:
        """`level` None: nothing is pruned unasked; `why` says so in words."""
        self.pruner = pruner
        self.level = level
        self.why = why
        self.disabled = self._distrust()
        self._failed: dict[str, float] = {}
        self._waiting: deque[tuple[str, str]] = deque()
        """sessions that were due to be captured when last looked, and why"""

    def recover(self) -> list[str]:
        """Ends what a process before this one left half done; what was found, in words. Before anything is read."""
        pruner = self.pruner
        folders = {os.path.dirname(entry.path) for entry in pruner.ledger.journal()}
        for root in pruner.vault.roots:  # a Ledger that was lost cannot tell where something was left
            with suppress(OSError), os.scandir(root) as entries:
                folders |= {entry.path for entry in entries if entry.is_dir(follow_symlinks=False)}
        found = recover(
            pruner.ledger, pruner.step, folders=sorted(folders), drain_seconds=pruner.config.prune.drain_seconds
        )
        pruner.drains += [(one.path, one.drain) for one in found if one.drain is not None]
        return [f"{one.path}: {one.what}" for one in found]

    def adopt(self, stop: Callable[[], bool]) -> None:
        """Takes up generations that the Ledger does not know: it was lost, or they came from another machine."""
        self.pruner.capturer.adopt(stop)

    def turn(self, stop: Callable[[], bool]) -> Done | None:
        """Does the one thing that is due most, if any: a capture before a prune. Ask again after each."""
        return self._capture(stop) or self._prune(stop) or self._check()

    def _distrust(self) -> str:
        """A prune that did not stand its check: nothing more is pruned unasked until a check by hand succeeds."""
        for session_id, (_, ok, message) in sorted(self.pruner.ledger.checks().items()):
            if not ok:
                return f"the check of {session_id} failed ({message}); fabled prune {session_id} --check"
        return ""

    def _check(self) -> Done | None:
        """Proves a prune once more: soon after it was made, and every week (PRUNING, section 8)."""
        ledger = self.pruner.ledger
        if self.level is None or self.disabled or self.pruner.drains:
            return None
        checks = ledger.checks()
        now = time.time()
        for entry in ledger.journal():
            at = checks.get(entry.session_id, (0, True, ""))[0]
            due_now = entry.what == "prune" and entry.state == "done" and (at < entry.at or now - at > WEEK_SECONDS)
            if due_now and self._failed.get(entry.session_id, 0) <= now - due.FRUITLESS_SECONDS:
                try:
                    value = selfcheck.run(self.pruner, entry.session_id)
                except FabledError as fault:  # its transcript is gone, or cannot be read now
                    self._failed[entry.session_id] = now
                    ledger.checked(entry.session_id, True, f"not checked: {fault.message}"[:500])
                    continue
                self.disabled = self._distrust()
                return Done("check", entry.session_id, {"checks": len(value["checks"])})
        return None

    def _capture(self, stop: Callable[[], bool]) -> Done | None:
        pruner, now = self.pruner, time.time()
        if not self._waiting:
            # Finding out looks at every file: once for all that are due, not once for each.
            days = cleanup_days(pruner.config.places)
            self._waiting.extend(pruner.capturer.due(now, pruner.config.capture.quiet_seconds, days))
        while self._waiting:
            if stop():
                return None
            session_id, reason = self._waiting.popleft()
            if self._failed.get(session_id, 0) > now - due.FRUITLESS_SECONDS:
                continue
            try:
                value = pruner.capturer.capture(session_id, reason)
            except FabledError as fault:
                self._failed[session_id] = now
                return Done("capture", session_id, {}, Refusal(fault.code, fault.message))
            if value["failed"] or not (value["generations"] or value["unchanged"]):
                self._failed[session_id] = now
            if value["generations"] or value["failed"]:
                return Done("capture", session_id, value)
        return None

    def _prune(self, stop: Callable[[], bool]) -> Done | None:
        if self.level is None or self.disabled:
            return None
        settings = self.pruner.config.prune
        now = time.time()
        for one in self.candidates():
            if stop():
                return None
            verdict = due.due(one, self.level, settings, now)
            if verdict.level is None:
                continue
            done = self._try(one, verdict.level, now)
            if done is not None and done.refused is not None and verdict.level == "standard":
                done = self._try(one, "gentle", now) or done
            if done is not None:
                return done
        return None

    def _try(self, one: Candidate, level: Level, now: float) -> Done | None:
        pruner, settings = self.pruner, self.pruner.config.prune
        grown = one.size - ((one.last.new_length or 0) if one.last is not None else 0)
        try:
            value, refused = pruner.attempt(
                one.session_id,
                level,
                True,
                lambda before, after: due.enough(level, before, after, grown, settings),
            )
        except NotFound:
            return None
        except FabledError as fault:
            value, refused = {}, Refusal(fault.code, fault.message)
        pruner.ledger.attempted(due.tried(one, level, refused, one.size, now, settings))
        return Done("prune", one.session_id, value, refused)

    def candidates(self) -> list[Candidate]:
        """The live transcripts that are not too small, the largest first."""
        ledger = self.pruner.ledger
        attempts = ledger.attempts()
        last: dict[str, Entry] = {
            entry.path: entry for entry in ledger.journal() if entry.state in ("replaced", "done")
        }
        paths = self.pruner.map.live_transcripts(self.pruner.config.prune.min_bytes)
        found = []
        for path in paths:
            session_id = session_of(path)
            try:
                status = os.stat(path)
            except OSError:
                continue  # the next sweep says what became of it
            mtime = status.st_mtime if status.st_mtime <= time.time() + 1 else status.st_ctime
            found.append(Candidate(session_id, path, status.st_size, mtime, last.get(path), attempts.get(session_id)))
        return found

    def outlook(self) -> Outlook:
        """How things stand now."""
        now, settings = time.time(), self.pruner.config.prune
        self.disabled = self._distrust()
        rows = []
        for one in self.candidates()[:SHOWN]:
            if self.level is None:
                verdict = Verdict(one.session_id, None, self.why)
            else:
                verdict = due.due(one, self.level, settings, now)
            rows.append(
                {
                    "session_id": one.session_id,
                    "bytes": one.size,
                    "verdict": verdict.reason if verdict.level is None else f"next: {verdict.level}",
                    "last_prune": one.last.at if one.last is not None and one.last.what == "prune" else None,
                }
            )
        prunes = [e for e in self.pruner.ledger.journal() if e.what == "prune" and e.state in ("replaced", "done")]
        saved = sum(entry.base_length - entry.made[0] for entry in prunes)
        how = f"automatic ({self.level}) above {settings.min_bytes / 1e6:g} MB" if self.level else "only when asked"
        if self.disabled:
            how = f"stopped: {self.disabled}"
        if prunes:
            how += f"; {len(prunes):,} done, {saved / 1e6:,.1f} MB saved"
        return Outlook(self.level or "off", self.why, how, self.disabled, tuple(rows), len(prunes), saved)
