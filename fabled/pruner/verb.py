"""Makes a live transcript smaller: weigh, prove, keep, replace.

What may go is `transcript.rules`' to say, whether the result is right `transcript.proof`'s, whether now is the time
`due`'s; the steps on files are `store.replace`'s. Putting back is left to `back`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, get_args

from ..capture import Capturer
from ..config import Config
from ..errors import BadRequest, FabledError, NotFound, Refused, StorageFault, Unreadable
from ..indexer import Indexer
from ..store import owners
from ..store.files import Scratch
from ..store.ledger import Kept, Ledger
from ..store.map import Map
from ..store.replace import Drain, Held, hold, swap, write_temp
from ..store.vault import Source, Vault
from ..transcript import proof, rules, sent
from ..transcript.record import strict_loads
from ..transcript.rules import Change, Level, Limits, Plan, RuleCount
from . import due
from .due import Refusal
from .gate import Markers, misses

TAIL_BYTES = 256 << 10
"""So much of a transcript's end tells whether a tool call still waits for its result."""
WORTH_LOWERING = 0.8
"""At standard and aggressive the last reply's usage is lowered when the request shrank at least to this share."""
SESSION_FACTOR = 3
"""Generations of a session that together take more than this many times its size are over the cap (I21)."""


@dataclass(slots=True)
class Weighed:
    """What a prune would make of a transcript, as far as it was worked out."""

    plan: Plan | None = None
    changes: tuple[Change, ...] = ()
    counts: tuple[RuleCount, ...] = ()
    results: Sequence[proof.Result] = ()
    after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    lower: float | None = None
    """what the input figures of the last reply are multiplied by"""
    scratch: Scratch | None = None

    def hear(self, before: sent.View, after: sent.View) -> None:
        """What the client would send."""
        self.tokens_before, self.tokens_after = sent.tokens(before), sent.tokens(after)


Lines = Callable[[], Iterator[bytes]]


@contextmanager
def in_one_line() -> Iterator[None]:
    """What the disk refuses becomes one of our own faults; nothing was changed then, replacing has its own care."""
    try:
        yield
    except (OSError, EOFError) as fault:
        where = f"{fault.filename}: " if isinstance(fault, OSError) and fault.filename else ""
        why = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
        raise StorageFault(f"the disk refused, so nothing was changed: {where}{why}", "fabled check --deep") from fault


class Pruner:
    """Owner of the drains that still run; on the writer's OS thread."""

    def __init__(
        self, map_: Map, vault: Vault, ledger: Ledger, indexer: Indexer, capturer: Capturer, config: Config
    ) -> None:
        self.map = map_
        self.vault = vault
        self.ledger = ledger
        self.indexer = indexer
        self.capturer = capturer
        self.config = config
        self.step: Callable[[str], None] = lambda name: None
        """called with the name of each step before it is made (tests die there)"""
        self.drains: list[tuple[str, Drain]] = []

    # Where

    @contextmanager
    def source(self, path: str) -> Iterator[Source]:
        """A generation or live transcript, opened for reading. Raises Unreadable where it cannot be."""
        try:
            source = self.vault.open(path)
        except OSError as fault:
            raise Unreadable(f"{path} cannot be read: {fault.strerror or fault}", "fabled check --deep") from None
        try:
            yield source
        finally:
            source.close()

    def live(self, session_id: str) -> str:
        """The live transcript of a session. Raises NotFound."""
        found: list[tuple[int, str]] = []
        for path in self.map.live_transcripts():
            if session_of(path) == session_id and not os.path.islink(path):
                try:
                    found.append((os.stat(path).st_mtime_ns, path))
                except OSError:
                    continue
        if not found:
            hint = f"fabled restore {session_id} puts it back if it is kept"
            raise NotFound(f"session {session_id} has no live transcript", hint)
        return max(found)[1]

    # Prune

    def prune(self, session_id: str, level: str = "gentle", apply: bool = False) -> dict[str, Any]:
        """Makes the live transcript of a session smaller, or says what that would do (`apply` False).

        The value is the contract's for `prune`. Raises NotFound, BadRequest, StorageFault.
        """
        if level not in get_args(Level):
            raise BadRequest(f"there is no level {level[:40]!r}", f"one of {', '.join(get_args(Level))}")
        return self.attempt(session_id, level, apply)[0]  # type: ignore[arg-type]

    @in_one_line()
    def attempt(
        self,
        session_id: str,
        level: Level,
        apply: bool,
        more: Callable[[int, int], Refusal | None] = lambda before, after: None,
    ) -> tuple[dict[str, Any], Refusal | None]:
        """A prune, and why it was not done. `more(before, after)` may refuse what gains too little."""
        begun = time.monotonic()
        path = self.live(session_id)
        weighed = Weighed()
        before, generation = 0, None
        refused: list[Refusal] = []
        try:
            self.resting(path)
            held = hold(path, reserve_bytes=self.config.capture.reserve_bytes)
        except Refused as fault:
            refused.append(Refusal(fault.reason or fault.code, fault.message))
        else:
            try:
                before = held.size
                refused += self._now(session_id, held, level)
                if not apply or not refused:
                    refused += self._weigh(session_id, held, level, weighed, more)
                if apply and not refused:
                    generation = self._apply(session_id, held, level, weighed)
            except Refused as fault:
                refused.append(Refusal(fault.reason or fault.code, fault.message))
            finally:
                if weighed.scratch is not None:
                    weighed.scratch.close()
                held.close()
        applied = apply and not refused
        value = {
            "session_id": session_id,
            "path": path,
            "level": level,
            "applied": applied,
            "before_bytes": before,
            "after_bytes": weighed.after if weighed.plan is not None else before,
            "rules": [
                {"rule": one.rule, "reason": rules.RULES.get(one.rule, ""), "records": one.records, "bytes": one.bytes}
                for one in weighed.counts
            ],
            "est_tokens_before": weighed.tokens_before,
            "est_tokens_after": weighed.tokens_after,
            "generation": generation,
            "refused": [{"code": one.code, "message": one.message} for one in refused],
            "invariants": [{"id": one.id, "ok": one.ok, "message": one.message} for one in weighed.results],
            "windows": dict(weighed.plan.windows) if weighed.plan is not None else {},
            "notes": list(weighed.plan.notes) if weighed.plan is not None else [],
            "seconds": round(time.monotonic() - begun, 3),
        }
        return value, refused[0] if refused else None

    def _now(self, session_id: str, held: Held, level: Level) -> list[Refusal]:
        """Why it may not be touched now, or not at all."""
        found = [one for one in (self._owned(session_id, held, level), self._rewritten(held.path)) if one is not None]
        if held.size < self.config.prune.min_bytes:
            refusal = due.worth_it(held.size, 0, self.config.prune)
            found += [refusal] if refusal is not None else []
        return found

    def _owned(self, session_id: str, held: Held, level: Level) -> Refusal | None:
        return due.may_touch(
            owners.live(self.config.places.claude, session_id),
            quiet_for(held.path),
            unanswered(held),
            level,
            self.config.prune,
        )

    def _rewritten(self, path: str) -> Refusal | None:
        """Somebody else made it shorter: before it is pruned, what is left is to be looked at and captured."""
        for loss in self.ledger.losses():
            if loss.path == path and loss.kind == "shrunk" and not loss.accepted:
                return Refusal(
                    "rewritten",
                    f"it became shorter, not by us, and {loss.in_vault + loss.nowhere:,} records left it; fabled diff "
                    f"{loss.session_id} shows them, fabled restore or fabled capture {loss.session_id} settles it",
                )
        return None

    def limits(self) -> Limits:
        return Limits(self.config.prune.tool_result_chars, self.config.prune.lower_usage)

    def _weigh(
        self,
        session_id: str,
        held: Held,
        level: Level,
        weighed: Weighed,
        more: Callable[[int, int], Refusal | None],
    ) -> list[Refusal]:
        """Works out the new content in a scratch file and proves it there (I1 to I17)."""
        limits = self.limits()
        stored = self.ledger.windows(session_id)
        ours = Markers(self.map, self.vault, session_id)
        plan = rules.plan(rules.survey(held.lines()), level, stored, limits, ours)
        weighed.plan = plan
        weighed.scratch = self.scratch()
        outcome = rules.carry_out(held.lines(), plan, limits, ours, None, weighed.scratch.write)
        if level != "gentle" and limits.lower_usage:
            before, after = sent.tokens(sent.view(held.lines())), sent.tokens(sent.view(weighed.scratch.lines()))
            ratio = after / before if before else 1.0
            if ratio <= WORTH_LOWERING:
                weighed.scratch.close()
                weighed.scratch = self.scratch()
                weighed.lower = ratio
                outcome = rules.carry_out(held.lines(), plan, limits, ours, ratio, weighed.scratch.write)
        weighed.changes, weighed.counts = outcome.changes, outcome.rules
        weighed.after = outcome.after_bytes + held.size - held.length  # an unfinished last line is carried over
        refusal = due.worth_it(held.size, weighed.after, self.config.prune) or more(held.size, weighed.after)
        if refusal is not None and (refusal.code == "nothing" or not outcome.changes):
            return [Refusal("nothing", "there is nothing in it that this level removes")]
        weighed.results = self.results(
            held.lines, weighed.scratch.lines, plan, weighed.changes, limits, ours, weighed.hear
        )
        broken = [result for result in weighed.results if not result.ok]
        if broken:
            said = "; ".join(f"{result.id}: {result.message}" for result in broken[:3])
            return [Refusal("invariant", f"the result would break what a prune must keep ({said}); please report it")]
        return [refusal] if refusal is not None else []

    def results(
        self,
        before: Lines,
        after: Lines,
        plan: Plan,
        changes: Sequence[Change],
        limits: Limits,
        ours: Markers,
        hear: Callable[[sent.View, sent.View], None] | None = None,
    ) -> Sequence[proof.Result]:
        """The invariants between a transcript and what a plan made of it."""

        def again() -> Sequence[Change]:
            second = rules.plan(rules.survey(after()), plan.level, plan.windows, limits, ours)
            if not second.changes:
                return ()
            return rules.carry_out(after(), second, limits, ours, None, lambda data: None).changes

        return proof.prove(before, after, plan, changes, proof.Proven(vaulted=ours, again=again, sent=hear))

    def scratch(self) -> Scratch:
        """A scratch file where our own data lies. Raises StorageFault."""
        try:
            return Scratch(self.config.places.data)
        except OSError as fault:
            raise StorageFault(
                f"no scratch file can be made in {self.config.places.data}: {fault.strerror or fault}",
                "free space, or make it writable",
            ) from None

    def _apply(self, session_id: str, held: Held, level: Level, weighed: Weighed) -> str:
        """From a proven result to the replaced transcript. Raises Refused where a step forbids it."""
        assert weighed.plan is not None and weighed.scratch is not None
        self._cap(session_id, held)
        self.step("K1")
        kept = self.capturer.hold(held.path, held.length)
        self.step("K4")
        missing = misses(self.map, self.vault, kept, weighed.changes, held.read)
        if missing:
            raise refused("gate", f"the Vault does not prove to hold every byte ({'; '.join(missing)})")
        stored = self.ledger.windows(session_id)
        for name, uuid in weighed.plan.windows.items():
            # Before the replacement: a window that moved without a prune does no harm, one that was lost does (I16).
            self.ledger.set_window(session_id, name, uuid)
        report = {
            "rules": [[one.rule, one.records, one.bytes] for one in weighed.counts],
            "stored": stored,
            "limits": [self.config.prune.tool_result_chars, self.config.prune.lower_usage],
            "lower": weighed.lower,
            "tokens": [weighed.tokens_before, weighed.tokens_after],
            "changes": len(weighed.changes),
        }
        self.replace(session_id, held, "prune", level, kept, weighed.scratch, report)
        return os.path.basename(kept.path).split(".", 1)[0]

    def _cap(self, session_id: str, held: Held) -> None:
        """Generations that cannot be retired must not pile up (I21). Raises Refused."""
        mine = [
            one
            for one in self.ledger.kept(session_id)
            if one.part == "" and one.retired_at is None and one.origin == held.path
        ]
        most = self.config.prune.max_generations
        if len(mine) >= most or (
            len(mine) > 2 and sum(one.packed for one in mine) > SESSION_FACTOR * max(held.size, 1)
        ):
            raise refused(
                "generations",
                f"{len(mine)} generations of it are kept already, and none is proven to be part of another; fabled "
                f"generations {session_id} lists them (prune.max_generations is {most})",
            )

    def replace(
        self,
        session_id: str,
        held: Held,
        what: str,
        level: str,
        kept: Kept | None,
        scratch: Scratch,
        report: dict[str, Any],
    ) -> int:
        """Journal, temporary file, replacement; the drain goes on by itself. Returns the journal's row.

        Raises Refused or StorageFault with the transcript as it was.
        """
        entry = self.ledger.begin(
            {
                "session_id": session_id,
                "path": held.path,
                "what": what,
                "level": level,
                "at": int(time.time()),
                "state": "begun",
                "generation": kept.path if kept is not None else None,
                "base_length": held.length,
                "base_sha": held.sha256(),
                "report": json.dumps({**report, "made": scratch.length, "made_sha": scratch.sha256().hex()}),
            }
        )
        try:
            temp = write_temp(held, lambda put: each(put, scratch.chunks()), step=self.step)
            if (temp.length, temp.sha256) != (scratch.length, scratch.sha256()):
                temp.discard()
                raise refused("unfaithful", "what was written is not what was proven; the disk may be failing")
            drain = swap(
                held,
                temp,
                self.ledger,
                entry,
                still_allowed=lambda: self._still(session_id, held, "gentle" if what != "prune" else level),
                drain_seconds=self.config.prune.drain_seconds,
                step=self.step,
            )
        except (FabledError, OSError):
            if self.ledger.entry(entry).state == "begun":
                self.ledger.set(entry, state="given_up")
            raise
        self.drains.append((held.path, drain))
        self.step("K12")
        self._index(held.path)
        return entry

    def _index(self, path: str) -> None:
        """Brings the Map up to date with a file that was replaced. If that fails now, the next pass does it: what was
        done to the file is done, and every record is found in the generation."""
        with suppress(StorageFault):
            self.indexer.update([path], count=False)

    def _still(self, session_id: str, held: Held, level: str) -> None:
        refusal = self._owned(session_id, held, level)  # type: ignore[arg-type]
        if refusal is not None:
            raise refused(refusal.code, refusal.message)

    # Drains

    def resting(self, path: str) -> None:
        """Raises Refused while the last replacement of a transcript is not over."""
        if any(one == path for one, _ in self.drains):
            raise refused("draining", "its last replacement is just ending; try again in some seconds")

    def visit(self, now: float) -> list[str]:
        """Goes on with the drains; what is to be told of those that ended."""
        told = []
        for path, drain in list(self.drains):
            if drain.visit(now):
                self.drains.remove((path, drain))
                told += [drain.note] if drain.note else []
                self._index(path)
        return told

    def finish(self) -> list[str]:
        """Waits until every drain is over, for a process that ends; what is to be told."""
        told = []
        for path, drain in self.drains:
            if not drain.finish():
                told.append(drain.trouble or f"a program still writes to the old state of {path}; it is watched again")
            told += [drain.note] if drain.note else []
            self._index(path)
        self.drains = []
        return told

    def calm(self, seconds: float) -> None:
        """Waits a while for drains that an earlier process left, before anything else is done."""
        end = time.monotonic() + seconds
        while self.drains and time.monotonic() < end:
            self.visit(time.monotonic())
            time.sleep(0.05)

    def leave(self) -> None:
        """Lets go of drains that are not over; the next start goes on with them."""
        for _, drain in self.drains:
            drain.leave()
        self.drains = []


def refused(reason: str, message: str) -> Refused:
    return Refused(message, "", reason)


def each(put: Callable[[bytes], object], chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        put(chunk)


def session_of(path: str) -> str:
    """The session a transcript is named for; its records may name others (an older client went on with those)."""
    return os.path.basename(path).removesuffix(".jsonl")


def quiet_for(path: str) -> float:
    """Seconds since the last append. A time in the future says nothing; then the inode's own change time counts."""
    status = os.stat(path)
    now = time.time()
    age = now - status.st_mtime
    return age if age >= -1 else now - status.st_ctime


def unanswered(held: Held) -> bool:
    """Whether the last thing in the file is a tool call of the main chain that still waits for its result."""
    start, length = held.size, TAIL_BYTES
    data = b""
    while start and b"\n" not in data[:-1]:  # one line may be longer than that
        start = max(0, held.size - length)
        data = held.read(start, held.size - start)
        length *= 4
    waiting: set[str] = set()
    message_id: object = None
    for line in data.split(b"\n")[1 if start else 0 :]:
        try:
            record = strict_loads(line)
        except ValueError:
            continue
        if type(record) is not dict or record.get("isSidechain") or record.get("type") not in ("user", "assistant"):
            continue
        message = record["message"] if isinstance(record.get("message"), dict) else {}
        content = message.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        if record["type"] == "assistant":
            # One reply stands on several lines; another one shows that the calls before it are settled.
            if message.get("id") != message_id or message_id is None:
                waiting.clear()
                message_id = message.get("id")
            waiting.update(str(block.get("id")) for block in blocks if block.get("type") == "tool_use")
        else:
            answered = {str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
            if not answered and not record.get("isMeta"):
                waiting.clear()
            waiting -= answered
    return bool(waiting)
