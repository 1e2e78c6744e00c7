"""Adds up one's own history, by project, by day, by session: the values of `stats` and `report`.

Sums come from `store.figures`, what was kept and pruned from the Ledger; drawing is left to `present`.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from ..errors import BadRequest, FabledError
from ..store.figures import Figures
from ..store.kept import reading
from ..store.ledger import Kept
from ..store.rows import Thread
from ..transcript.rules import RULES
from .citations import clean
from .common import Params, Reader, find_thread, iso, number_of, text_of, thread_id
from .savings import savings
from .scope import moment_of, scope_of
from .titles import session_titles, titles

SPARK_DAYS = 30
BUSIEST, LARGEST, MOST_RECALLED = 15, 12, 10
LOOKED_UP = 2_000
"""Threads named by recalls that are looked up, to tell two spellings of one."""
_GROUPS = ("project", "day")


class _Sums:
    """Everything, once, within the time and the project asked for."""

    def __init__(self, reader: Reader, params: Params) -> None:
        now = time.time()
        self.since, self.until = (moment_of(params, name, now) for name in ("since", "until"))
        self.bounded = self.since is not None or self.until is not None
        self.figures = Figures(reader.queries)
        self.scope = scope_of(reader, params, within=False)
        wanted = self.scope.sessions
        self.sessions = {row["id"]: row for row in reader.queries.session_list(wanted, None, None)}
        self.only = None if wanted is None else tuple(self.sessions)
        self.numbers = {row["session_id"]: number for number, row in self.sessions.items()}
        self.live = {number: size for number, size in self.figures.live().items() if number in self.sessions}
        self.written = [one for one in self.figures.written(self.since, self.until) if one.session in self.sessions]
        self.begun = [one for one in self.figures.threads(self.since, self.until) if one[0] in self.sessions]
        self.recalls = [one for one in self.figures.recalled(self.since, self.until) if one[0] in self.sessions]
        with reading(reader.ledger) as ledger:
            self.kept = [one for one in ledger.kept() if self._mine(one.session_id, one.at)]
            self.prunes = [one for one in savings(ledger.every_entry()) if self._mine(one.session_id, one.at)]
        # Within a time asked for, a session is one that did something then.
        self.active = {one.session for one in self.written} if self.bounded else set(self.sessions)

    def _mine(self, session_id: str, at: int) -> bool:
        inside = (self.since is None or at * 1000 >= self.since) and (self.until is None or at * 1000 <= self.until)
        return inside and (self.only is None or session_id in self.numbers)

    def project(self, number: int) -> str:
        row = self.sessions[number]
        return str(row["project"] or row["folder"] or "")


def stats(reader: Reader, params: Params) -> dict[str, Any]:
    """Sums by project (what is largest first) or by day (the latest first)."""
    by = text_of(params, "by") or "project"
    if by not in _GROUPS:
        raise BadRequest(f"stats are by {' or by '.join(_GROUPS)}, not by {by[:40]}", "fabled stats --by day")
    limit = number_of(params, "limit", 10**6, 1, 10**6)
    sums = _Sums(reader, params)
    last = _last_day(sums)
    rows = _projects(sums, last) if by == "project" else _days(sums)[::-1]
    return {
        "by": by,
        "since": iso(sums.since),
        "until": iso(sums.until),
        "total": len(rows),
        "rows": rows[:limit],
        "totals": _totals(sums),
        "activity": _spark(_per_day((one.day, one.records) for one in sums.written), last),
        "activity_until": last,
        **sums.scope.missing,
    }


def report(reader: Reader, params: Params) -> dict[str, Any]:
    """Everything a page about one's own history shows."""
    sums = _Sums(reader, params)
    saved = _saved(sums)
    by_session: dict[int, dict[str, int]] = defaultdict(dict)
    for one in sums.written:
        by_session[one.session][one.day] = one.bytes
    grown = sorted(by_session, key=lambda number: (-sum(by_session[number].values()), number))
    most = sorted({*grown[:LARGEST], *_most(saved, LARGEST, sums)}, key=lambda n: (-sum(by_session[n].values()), n))
    busiest = sums.figures.busiest(sums.since, sums.until, sums.only, BUSIEST)
    called, names = session_titles(reader, most), titles(reader, busiest)
    return {
        "made_at": iso(round(time.time() * 1000)),
        "since": iso(sums.since),
        "until": iso(sums.until),
        "time_zone": time.strftime("%Z"),
        "project": text_of(params, "project"),
        "totals": _totals(sums),
        "days": _days(sums),
        "projects": _projects(sums, _last_day(sums)),
        "sessions": [
            {
                "session_id": sums.sessions[number]["session_id"],
                "title": called[number],
                "project": sums.project(number),
                "live_bytes": sums.live.get(number, 0),
                "written_bytes": sum(by_session[number].values()),
                "saved_bytes": sum(saved.get(sums.sessions[number]["session_id"], {}).values()),
                "days": sorted(by_session[number].items()),
                "saved_days": sorted(saved.get(sums.sessions[number]["session_id"], {}).items()),
            }
            for number in most
        ],
        "threads": [
            {
                "thread": thread_id(one),
                "title": names[one.id],
                "project": one.project or "",
                "turns": one.turns,
                "est_tokens": one.tokens,
                "first_ts": iso(one.first_ts),
            }
            for one in busiest
        ],
        "prune": _prunes(sums),
        "recall": _recall(reader, sums),
        **sums.scope.missing,
    }


# ── by project, by day ──────────────────────────────────────────────────────────────────────────────────────────


def _projects(sums: _Sums, last: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    active: dict[str, Counter[str]] = defaultdict(Counter)
    names = ("sessions", "live_bytes", "vault_bytes", "saved_bytes", "threads", "records", "written_bytes",
             "est_tokens", "recalled")  # fmt: skip

    def row(number: int) -> dict[str, Any]:
        name = sums.project(number)
        return found.setdefault(name, {"project": name, **dict.fromkeys(names, 0)})

    for number in sums.active:
        row(number)["sessions"] += 1
        row(number)["live_bytes"] += sums.live.get(number, 0)
    for one in sums.written:
        row(one.session)["records"] += one.records
        row(one.session)["written_bytes"] += one.bytes
        active[sums.project(one.session)][one.day] += one.records
    for number, _, threads, tokens in sums.begun:
        row(number)["threads"] += threads
        row(number)["est_tokens"] += tokens
    for number, _, _ in sums.recalls:
        row(number)["recalled"] += 1
    for kept in _standing(sums.kept):
        if kept.session_id in sums.numbers:
            row(sums.numbers[kept.session_id])["vault_bytes"] += kept.packed
    for prune in sums.prunes:
        if prune.session_id in sums.numbers:
            row(sums.numbers[prune.session_id])["saved_bytes"] += prune.bytes
    rows = [{**value, "activity": _spark(active[name], last)} for name, value in found.items()]
    return sorted(rows, key=lambda one: (-one["written_bytes"], one["project"]))


def _days(sums: _Sums) -> list[dict[str, Any]]:
    """One row for each day on which anything happened, the oldest first."""
    names = ("sessions", "threads", "records", "written_bytes", "est_tokens", "saved_bytes", "kept_bytes", "recalled")
    found: dict[str, dict[str, Any]] = {}

    def row(day: str) -> dict[str, Any]:
        return found.setdefault(day, {"day": day, **dict.fromkeys(names, 0)})

    for one in sums.written:
        row(one.day)["sessions"] += 1
        row(one.day)["records"] += one.records
        row(one.day)["written_bytes"] += one.bytes
    for _, day, threads, tokens in sums.begun:
        row(day)["threads"] += threads
        row(day)["est_tokens"] += tokens
    for _, day, _ in sums.recalls:
        row(day)["recalled"] += 1
    for kept in sums.kept:
        row(_day(kept.at))["kept_bytes"] += kept.packed
    for prune in sums.prunes:
        row(_day(prune.at))["saved_bytes"] += prune.bytes
    return [found[day] for day in sorted(found)]


def _totals(sums: _Sums) -> dict[str, Any]:
    standing = _standing(sums.kept)
    return {
        "sessions": len(sums.active),
        "projects": len({sums.project(number) for number in sums.active}),
        "threads": sum(one[2] for one in sums.begun),
        "records": sum(one.records for one in sums.written),
        "est_tokens": sum(one[3] for one in sums.begun),
        "live_bytes": sum(sums.live.get(number, 0) for number in sums.active),
        "written_bytes": sum(one.bytes for one in sums.written),
        "vault_bytes": sum(one.packed for one in standing),
        "vault_logical_bytes": sum(one.logical for one in standing),
        "generations": len(standing),
        "saved_bytes": sum(one.bytes for one in sums.prunes),
        "prunes": len(sums.prunes),
        "recalled": len(sums.recalls),
    }


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _prunes(sums: _Sums) -> dict[str, Any]:
    """What prunes took out, by level and by rule."""
    rules: Counter[str] = Counter()
    for one in sums.prunes:
        rules.update(one.rules)
    return {
        "prunes": len(sums.prunes),
        "saved_bytes": sum(one.bytes for one in sums.prunes),
        "saved_tokens": sum(one.tokens for one in sums.prunes),
        "levels": dict(Counter(one.level for one in sums.prunes)),
        "sessions": len({one.session_id for one in sums.prunes}),
        "rules": [
            {"rule": rule, "reason": RULES.get(rule, rule), "bytes": size} for rule, size in rules.most_common() if size
        ],
    }


def _recall(reader: Reader, sums: _Sums) -> dict[str, Any]:
    """What earlier threads were handed back to the model, as transcripts show it."""
    spelt = Counter(ref for _, _, ref in sums.recalls)
    known: dict[str, Thread] = {}
    for ref, _ in spelt.most_common(LOOKED_UP):
        with contextlib.suppress(FabledError):  # forgotten, or of another machine
            known[ref] = find_thread(reader, ref)
    often: Counter[str] = Counter()
    threads: dict[str, Thread] = {}
    for ref, times in spelt.items():
        name = thread_id(known[ref]) if ref in known else clean(ref)
        often[name] += times
        if ref in known:
            threads[name] = known[ref]
    # What is known here comes first: the others are no more than a number.
    most = sorted(often, key=lambda name: (name not in threads, -often[name], name))[:MOST_RECALLED]
    names = titles(reader, threads.values())
    return {
        "recalls": len(sums.recalls),
        "sessions": len({one[0] for one in sums.recalls}),
        "threads": len(often),
        "unknown": len(often) - len(threads),
        "most": [
            {
                "thread": name,
                "title": names[threads[name].id] if name in threads else "",
                "project": threads[name].project or "" if name in threads else "",
                "times": often[name],
                "known": name in threads,
            }
            for name in most
        ],
    }


def _saved(sums: _Sums) -> dict[str, dict[str, int]]:
    """session → day → bytes that prunes took out."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in sums.prunes:
        found[one.session_id][_day(one.at)] += one.bytes
    return found


def _most(saved: dict[str, dict[str, int]], limit: int, sums: _Sums) -> list[int]:
    known = [name for name in saved if name in sums.numbers]
    known.sort(key=lambda name: (-sum(saved[name].values()), name))
    return [sums.numbers[name] for name in known[: limit // 2]]


def _standing(kept: Iterable[Kept]) -> list[Kept]:
    return [one for one in kept if one.retired_at is None]


def _per_day(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for day, number in pairs:
        found[day] += number
    return found


def _last_day(sums: _Sums) -> str:
    """The day that small pictures of the last days end with: today, or where the time asked for ends."""
    now = round(time.time())
    return _day(min(now, sums.until // 1000) if sums.until is not None else now)


def _spark(days: Counter[str], last: str) -> list[int]:
    """The days up to the last, one figure each."""
    end = date.fromisoformat(last)
    return [days.get((end - timedelta(back)).isoformat(), 0) for back in range(SPARK_DAYS - 1, -1, -1)]


def _day(at: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
