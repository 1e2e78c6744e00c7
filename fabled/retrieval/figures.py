"""Adds up one's own history, by project, by day, by session: the values of `stats` and `report`.

Sums come from `store.figures`, what was kept and pruned from the Ledger; drawing is left to `present`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from ..errors import BadRequest, FabledError
from ..store.figures import Figures
from ..store.kept import reading
from ..store.ledger import Entry, Kept
from .common import Params, Reader, find_thread, iso, number_of, text_of, thread_id
from .scope import moment_of, scope_of
from .titles import session_titles, title_of, titles

SPARK_DAYS = 30
BUSIEST, LARGEST, MOST_RECALLED = 15, 12, 10
_GROUPS = ("project", "day")


class _Sums:
    """Everything, once, within the time and the project asked for."""

    def __init__(self, reader: Reader, params: Params) -> None:
        now = time.time()
        self.since, self.until = (moment_of(params, name, now) for name in ("since", "until"))
        self.figures = Figures(reader.queries)
        self.scope = scope_of(reader, params, within=False)
        wanted = self.scope.sessions
        self.sessions = {row["id"]: row for row in reader.queries.session_list(wanted, None, None)}
        self.only = None if wanted is None else tuple(self.sessions)
        self.numbers = {row["session_id"]: number for number, row in self.sessions.items()}
        self.written = [one for one in self.figures.written(self.since, self.until) if one.session in self.sessions]
        self.begun = [one for one in self.figures.threads(self.since, self.until) if one[0] in self.sessions]
        self.recalls = [one for one in self.figures.recalled(self.since, self.until) if one[0] in self.sessions]
        with reading(reader.ledger) as ledger:
            self.kept = [one for one in ledger.kept() if self._mine(one.session_id, one.at)]
            self.prunes = [
                one for one in ledger.every_entry()
                if one.what == "prune" and one.state in ("replaced", "done") and self._mine(one.session_id, one.at)
            ]  # fmt: skip

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
    rows = _projects(sums) if by == "project" else _days(sums)[::-1]
    return {
        "by": by,
        "since": iso(sums.since),
        "until": iso(sums.until),
        "total": len(rows),
        "rows": rows[:limit],
        "totals": _totals(sums),
        "activity": _spark(Counter(_per_day((one.day, one.records) for one in sums.written))),
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
    called = session_titles(reader, most)
    busiest = sums.figures.busiest(sums.since, sums.until, sums.only, BUSIEST)
    names = titles(reader, busiest)
    return {
        "made_at": iso(round(time.time() * 1000)),
        "since": iso(sums.since),
        "project": text_of(params, "project"),
        "totals": _totals(sums),
        "days": _days(sums),
        "projects": _projects(sums),
        "sessions": [
            {
                "session_id": sums.sessions[number]["session_id"],
                "title": called[number],
                "project": sums.project(number),
                "live_bytes": sums.sessions[number]["bytes"],
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
        "prune": {
            "prunes": len(sums.prunes),
            "saved_bytes": sum(map(_gain, sums.prunes)),
            "levels": dict(Counter(one.level for one in sums.prunes)),
            "sessions": len({one.session_id for one in sums.prunes}),
        },
        "recall": _recall(reader, sums),
        **sums.scope.missing,
    }


# ── by project, by day ──────────────────────────────────────────────────────────────────────────────────────────


def _projects(sums: _Sums) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    active: dict[str, Counter[str]] = defaultdict(Counter)
    names = ("sessions", "live_bytes", "vault_bytes", "saved_bytes", "threads", "records", "written_bytes",
             "est_tokens", "recalled")  # fmt: skip

    def row(number: int) -> dict[str, Any]:
        name = sums.project(number)
        return found.setdefault(name, {"project": name, **dict.fromkeys(names, 0)})

    bounded = sums.since is not None or sums.until is not None
    seen = {one.session for one in sums.written}
    for number, session in sums.sessions.items():
        if not bounded or number in seen:
            row(number)["sessions"] += 1
            row(number)["live_bytes"] += session["bytes"]
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
            row(sums.numbers[prune.session_id])["saved_bytes"] += _gain(prune)
    rows = [{**value, "activity": _spark(active[name])} for name, value in found.items()]
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
        row(_day(prune.at))["saved_bytes"] += _gain(prune)
    return [found[day] for day in sorted(found)]


def _totals(sums: _Sums) -> dict[str, Any]:
    standing = _standing(sums.kept)
    return {
        "sessions": len(sums.sessions),
        "projects": len({sums.project(number) for number in sums.sessions}),
        "threads": sum(one[2] for one in sums.begun),
        "records": sum(one.records for one in sums.written),
        "est_tokens": sum(one[3] for one in sums.begun),
        "live_bytes": sum(row["bytes"] for row in sums.sessions.values()),
        "written_bytes": sum(one.bytes for one in sums.written),
        "vault_bytes": sum(one.packed for one in standing),
        "vault_logical_bytes": sum(one.logical for one in standing),
        "generations": len(standing),
        "saved_bytes": sum(map(_gain, sums.prunes)),
        "prunes": len(sums.prunes),
        "recalled": len(sums.recalls),
    }


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _recall(reader: Reader, sums: _Sums) -> dict[str, Any]:
    """What earlier threads were handed back to the model, as transcripts show it."""
    often = Counter(ref for _, _, ref in sums.recalls)
    shown = []
    for ref, times in often.most_common(MOST_RECALLED):
        try:
            found = find_thread(reader, ref)
        except FabledError:  # forgotten, or of another machine
            shown.append({"thread": ref, "title": "", "times": times})
            continue
        shown.append({"thread": thread_id(found), "title": title_of(reader, found), "times": times})
    return {
        "recalls": len(sums.recalls),
        "sessions": len({one[0] for one in sums.recalls}),
        "threads": len(often),
        "most": shown,
    }


def _saved(sums: _Sums) -> dict[str, dict[str, int]]:
    """session → day → bytes that prunes took out."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in sums.prunes:
        found[one.session_id][_day(one.at)] += _gain(one)
    return found


def _most(saved: dict[str, dict[str, int]], limit: int, sums: _Sums) -> list[int]:
    known = [name for name in saved if name in sums.numbers]
    known.sort(key=lambda name: (-sum(saved[name].values()), name))
    return [sums.numbers[name] for name in known[: limit // 2]]


def _standing(kept: Iterable[Kept]) -> list[Kept]:
    return [one for one in kept if one.retired_at is None]


def _gain(prune: Entry) -> int:
    return prune.base_length - (prune.new_length or 0)


def _per_day(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for day, number in pairs:
        found[day] += number
    return found


def _spark(days: Counter[str] | dict[str, int]) -> list[int]:
    """The last days up to today, one figure each."""
    today = date.fromisoformat(_day(round(time.time())))
    return [days.get((today - timedelta(back)).isoformat(), 0) for back in range(SPARK_DAYS - 1, -1, -1)]


def _day(at: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
