"""Decides whether a live transcript may be touched now, and whether it is worth it.

Pure: facts in, a decision with its reason in words out. Finding the facts and acting on them is left to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import Prune
from ..store.ledger import Attempt, Entry
from ..store.owners import Owner
from ..transcript.rules import Level

FRUITLESS_SECONDS = 600
MOST_SECONDS = 86_400
GROWN_AGAIN = 1.2
"""A fruitless attempt is forgotten when the transcript has grown by a fifth."""
DEFERRED_SECONDS = 60
FUTURE_SECONDS = 60
UNANSWERED_QUIETS = 20
"""A call without its result belongs to nobody any more after so many quiet times, if no client says otherwise."""
_PASSING = frozenset("active busy open shared space no_space storage locked draining changed vanished".split())
"""Refusals that are not the transcript's fault."""
WORTH = 0.2
"""By itself, what did not grow much is pruned only if this share of it can be saved."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was done: a stable code, and the fact with the next step in words."""

    code: str
    message: str


def may_touch(
    owners: Sequence[Owner], quiet_for: float, unanswered: bool, level: Level, settings: Prune
) -> Refusal | None:
    """The ownership rule (PRUNING, section 4.0). `quiet_for`: seconds since the last append; `unanswered`: the last
    tool call has no result yet."""
    if len(owners) > 1:
        pids = ", ".join(str(owner.pid) for owner in owners)
        return Refusal("shared", f"more than one client has this session open (pids {pids}); try again when they ended")
    if quiet_for < settings.quiet_seconds:
        return Refusal(
            "active", f"it was written {max(quiet_for, 0):.0f} s ago; try again when it has been quiet for "
            f"{settings.quiet_seconds:g} s",
        )  # fmt: skip
    if owners:
        owner = owners[0]
        # It says idle, busy, or waiting (for a permission); one that says nothing is judged by what it last wrote.
        if owner.status not in ("idle", None) or (owner.status is None and unanswered):
            return Refusal("busy", f"a client is at work in it (pid {owner.pid}); try again when it waits for you")
        if level != "gentle" and quiet_for < settings.idle_seconds:
            return Refusal(
                "open", f"a client has it open (pid {owner.pid}); beyond gentle it must have been idle for "
                f"{settings.idle_seconds / 60:.0f} min: end that client, or prune gently",
            )  # fmt: skip
    elif unanswered and quiet_for < UNANSWERED_QUIETS * settings.quiet_seconds:
        return Refusal("busy", "its last tool call has no result yet; try again in some minutes")
    return None


def worth_it(before: int, after: int, settings: Prune) -> Refusal | None:
    """The floors: what is too small, or gains too little, is left alone (I15)."""
    if before < settings.min_bytes:
        return Refusal("small", f"it has {before:,} bytes; below {settings.min_bytes:,} nothing is pruned")
    saved = before - after
    if saved <= 0:
        return Refusal("nothing", "there is nothing in it that this level removes")
    if saved < settings.min_gain_bytes or saved < settings.min_gain * before:
        return Refusal(
            "no_gain", f"it would save {saved:,} bytes ({saved / before:.0%}); below {settings.min_gain_bytes:,} bytes "
            f"or {settings.min_gain:.0%} that is not worth a rewrite",
        )  # fmt: skip
    return None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live transcript as Map and Ledger know it."""

    session_id: str
    path: str
    size: int
    mtime: float
    """seconds since 1970"""
    last: Entry | None
    """the newest finished row of the journal for it"""
    attempt: Attempt | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to try now, at which level, and why (not)."""

    session_id: str
    level: Level | None
    reason: str


def due(one: Candidate, allowed: Level, settings: Prune, now: float) -> Verdict:
    """Whether a session is to be tried by itself now (PRUNING, section 7)."""

    def no(reason: str) -> Verdict:
        return Verdict(one.session_id, None, reason)

    if one.size < settings.min_bytes:
        return no("too small")
    quiet = now - one.mtime
    if quiet < settings.quiet_seconds:
        return no("in use")
    attempt = one.attempt
    if attempt is not None and attempt.at > now + FUTURE_SECONDS:
        attempt = None  # the clock was set back since
    if attempt is not None and now < attempt.not_before and one.size < GROWN_AGAIN * attempt.size:
        return no(attempt.message or attempt.outcome)
    grown = one.size - ((one.last.new_length or 0) if one.last is not None else 0)
    if one.last is not None:
        if -FUTURE_SECONDS < now - one.last.at < settings.pause_seconds:
            return no("pruned a moment ago")
        if grown < settings.grown_bytes and grown < WORTH * one.size:
            return no("pruned; not grown much since")
    level: Level = "gentle"
    if allowed == "standard" and one.size >= settings.standard_min_bytes:
        level = "standard"
    return Verdict(one.session_id, level, "grown" if one.last is not None else "never pruned")


def enough(level: Level, before: int, after: int, grown: int, settings: Prune) -> Refusal | None:
    """What an unasked prune must gain beyond the floors."""
    gain = (before - after) / before if before else 0.0
    if level == "standard" and gain < settings.standard_min_gain:
        return Refusal("no_gain", f"standard would save {gain:.0%}, less than {settings.standard_min_gain:.0%}")
    if level == "gentle" and grown < settings.grown_bytes and gain < WORTH:
        return Refusal("no_gain", f"gentle would save {gain:.0%}, and it has not grown much")
    return None


def tried(one: Candidate, level: Level, refused: Refusal | None, size: int, now: float, settings: Prune) -> Attempt:
    """What to remember of an attempt: when the next one is due. Waiting doubles while nothing comes of it (I22)."""
    before = one.attempt
    if refused is None:
        return Attempt(one.session_id, int(now), size, level, "pruned", "", 0, int(now + settings.pause_seconds))
    if refused.code in _PASSING:
        # Soon again, without counting.
        fruitless = before.fruitless if before is not None else 0
        return Attempt(
            one.session_id, int(now), size, level, refused.code, refused.message, fruitless,
            int(now + DEFERRED_SECONDS),
        )  # fmt: skip
    fruitless = 1
    if before is not None and size < GROWN_AGAIN * before.size:
        fruitless = before.fruitless + 1
    wait = min(FRUITLESS_SECONDS * 2 ** min(fruitless - 1, 20), MOST_SECONDS)
    return Attempt(one.session_id, int(now), size, level, refused.code, refused.message, fruitless, int(now + wait))
