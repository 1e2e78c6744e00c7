"""Finds threads by their words: ranks records, folds them into threads, shows where the words stand.

Parsing the query is left to `transcript.query`, ranking rows to `store.queries`.

The order is `rank`'s. Where a token has punctuation the texts of the best candidates are looked at, as the index knows
only its parts: the literal spelling comes first. Snippets are made for shown results
only, from the record that ranked: read again, proved, masked, and only then marked and cut, so that no query can bring
out a masked word. A snippet has at most `render.SNIPPET_CHARS` characters.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from ..errors import BadRequest, FabledError
from ..store.reading import Reading
from ..store.rows import Copy, Hit, Record, Thread, Where
from ..store.termlist import term_numbers
from ..transcript import query as q
from ..transcript import render
from ..transcript import text as t
from ..transcript.record import uuid_text
from ..transcript.segment import WIDE, normal
from . import unknown
from .common import Params, Reader, ambiguous, is_side, iso, number_of, text_of, thread_id
from .pattern import Pattern, find
from .rank import Ranking, rank
from .scope import Scope, scope_of
from .terms import facets
from .titles import titles

KINDS = {
    "prompt": (t.PROMPT,),
    "reply": (t.REPLY,),
    "thinking": (t.THINKING,),
    "tool": (t.CALL, t.RESULT),
    "queued": (t.QUEUED,),
    "summary": (t.SUMMARY,),
    "command": (t.COMMAND,),
    "notice": (t.NOTICE,),
}
ROLES = {
    "user": (t.PROMPT, t.QUEUED, t.COMMAND),
    "assistant": (t.REPLY, t.THINKING, t.CALL),
    "tool": (t.CALL, t.RESULT),
    "system": (t.SUMMARY, t.NOTICE),
}
DEFAULT_LIMIT, LARGEST_LIMIT, LARGEST_OFFSET = 10, 1_000, 100_000
CANDIDATES = 60
"""Records whose texts are looked at for a literal spelling."""
EXACT_SECONDS = 3.0
"""How long texts are read to find an exact spelling; the records that hold its words come best first."""
REGEX_SECONDS, LONGEST_REGEX = 5.0, 3_600
LITERAL_BYTES = 1 << 20
"""Longer records are not read only to order them."""
LITERAL_BONUS = 0.25
EXACT_STEP = 200
NEAREST_WORDS, NEAREST_SHOWN, NEAREST_LIKENESS = 4, 4, 0.72
_RESULT_CHARS = 3 * t.RESULT_HEAD


def search(reader: Reader, params: Params, now: float | None = None) -> dict[str, Any]:
    """Answers one search. Every query text has an answer, if an empty one."""
    started = time.perf_counter()
    text = text_of(params, "query") or ""
    limit = number_of(params, "limit", DEFAULT_LIMIT, 1, LARGEST_LIMIT)
    offset = number_of(params, "offset", 0, 0, LARGEST_OFFSET)
    by_time = _choice(params, "sort", ("rank", "time"), "rank") == "time"
    if params.get("regex"):
        return _by_pattern(reader, params, text, limit, time.time() if now is None else now, started)
    query = q.parse(text)
    exact = bool(params.get("exact"))
    if exact:
        query = _as_one_phrase(query, text)
    filters = _with_options(query.filters, params)
    expression = q.match_expression(query)
    scope = scope_of(reader, params, filters.project, not filters.session)
    hits: list[Hit] = []
    total = 0
    more: dict[str, Any] = {}
    ranking: Ranking | None = None
    with Reading(reader.vault) as reading:
        said = _Said(reader, reading)
        where: Where | None = None
        if expression is not None or _lists_without_words(query, params):
            where = _where(reader, filters, params, scope, time.time() if now is None else now)
            with reader.queries.snapshot():
                if exact and expression is not None:
                    hits, looked_at, of = _spelt(reader, said, query, expression, where, by_time)
                    total = len(hits)
                    more["searched"] = {"records": looked_at, "of": of, "complete": looked_at == of}
                elif expression is None or by_time:
                    hits, total = reader.queries.hits(expression, where, offset + limit, by_time)
                else:
                    ranking = rank(reader.queries, query, where, offset + limit)
                    hits, total = ranking.hits, ranking.total
                    if query.literals and not query.prose:
                        hits = _literal_first(said, query, ranking, offset + limit)
        shown = hits[offset : offset + limit]
        explain = bool(params.get("explain"))
        results = _results(reader, said, shown, lambda text: _found_in(reader, text, query), numbered=explain)
        if explain:
            _explain(results, shown, ranking)
            more["parsed"] = _parsed(query)
        nearest = _nearest(reader, said, query, where) if where is not None and not total else []
        if nearest:
            more["nearest"] = nearest
        more |= _missing(reader, query, filters, scope, total)
        more["facets"] = {"terms": facets(reader, (hit.thread for hit in hits))}
        if reading.stale:
            more["stale"] = sorted(reading.stale)
    return _answer(text, started, total, offset, scope, results, more)


def _answer(
    text: str,
    started: float,
    total: int,
    offset: int,
    scope: Scope,
    results: list[dict[str, Any]],
    more: dict[str, Any],
) -> dict[str, Any]:
    return {
        "query": text,
        "took_ms": round((time.perf_counter() - started) * 1000, 3),
        "total": total,
        "offset": offset,
        "scope": scope.told,
        "results": results,
        **more,
    }


def _by_pattern(reader: Reader, params: Params, text: str, limit: int, now: float, started: float) -> dict[str, Any]:
    """Answers a search by regular expression: the text is the pattern, filters are options only."""
    if params.get("exact"):
        raise BadRequest("a query is either exact or a regular expression", "leave one of the two out")
    pattern = Pattern(text)
    after = number_of(params, "after", 0, 0, 10**9)
    seconds = number_of(params, "seconds", int(REGEX_SECONDS), 1, LONGEST_REGEX)
    filters = _with_options(q.Filters(), params)
    scope = scope_of(reader, params, filters.project, not filters.session)
    where = _where(reader, filters, params, scope, now)
    with Reading(reader.vault) as reading:
        said = _Said(reader, reading)
        found = find(reader.queries, reading, pattern, where, limit, after, seconds)
        results = _results(reader, said, found.hits[:limit], pattern.marks)
        searched = {
            "threads": found.threads,
            "of": found.of,
            "records": found.records,
            "timed_out": found.timed_out,
            "complete": found.complete,
        }
        stale = {"stale": sorted(reading.stale)} if reading.stale else {}
    missing = _missing(reader, None, filters, scope, len(results))
    return _answer(text, started, len(results), 0, scope, results, {"searched": searched, **missing, **stale})


def _missing(reader: Reader, query: q.Query | None, filters: q.Filters, scope: Scope, total: int) -> dict[str, Any]:
    """What was asked for that nothing is called; all of it only where nothing was found."""
    found = [*scope.unknown, *(unknown.no_times(query) if query is not None else ())]
    if not total:
        found += unknown.in_filters(reader, filters, ROLES)
    return {"unknown": found} if found else {}


# What is asked for


def _choice(params: Params, name: str, known: tuple[str, ...], default: str) -> str:
    value = text_of(params, name) or default
    if value not in known:
        raise BadRequest(f"{name} must be one of {', '.join(known)}")
    return value


def _as_one_phrase(query: q.Query, text: str) -> q.Query:
    """The words of a query, filters apart, next to each other and spelt as typed."""
    words = [token.text for token in sorted(query.positive + query.excluded, key=lambda token: text.find(token.text))]
    phrase = q.parse('"' + " ".join(words).replace('"', " ") + '"')
    return replace(phrase, text=query.text, filters=query.filters)


def _with_options(filters: q.Filters, params: Params) -> q.Filters:
    """Filters of the query and options of the command are the same thing; an option goes before."""
    given: dict[str, Any] = {}
    for name in ("file", "tool", "role", "project", "session", "term"):
        value = text_of(params, name)
        if value is not None:
            given[name] = (value,)
    for name in ("since", "until"):
        value = text_of(params, name)
        if value is not None:
            if q.moment(value, 0.0) is None:
                raise BadRequest(f"{name}: {value} is no time", "an ISO date or time, or 90m, 3h, 2d, 6w")
            given[name] = value
    if "role" in given and given["role"][0] not in ROLES:
        raise BadRequest(f"role must be one of {', '.join(ROLES)}")
    return replace(filters, **given)


def _lists_without_words(query: q.Query, params: Params) -> bool:
    """Without any words the newest threads that pass the filters are an answer, if there are filters at all."""
    return bool(query.filters) or any(
        params.get(name) for name in ("file", "tool", "role", "session", "term", "since", "until", "kind")
    )


def _where(reader: Reader, filters: q.Filters, params: Params, scope: Scope, now: float) -> Where:
    queries = reader.queries
    sessions = scope.sessions
    if filters.session:
        named = tuple(
            number for name in filters.session for number in _sessions(reader, name, bool(params.get("session")))
        )
        sessions = named if sessions is None else tuple(set(sessions) & set(named))
    kinds: set[int] | None = None
    if filters.role:
        kinds = {kind for role in filters.role for kind in ROLES.get(role.lower(), ())}
    kind = text_of(params, "kind")
    if kind is not None:
        if kind not in KINDS:
            raise BadRequest(f"kind must be one of {', '.join(KINDS)}")
        kinds = set(KINDS[kind]) if kinds is None else kinds & set(KINDS[kind])
    since, until = (
        None if value is None else q.moment(value, now, end=end)
        for value, end in ((filters.since, False), (filters.until, True))
    )
    terms = [token for text in filters.term for token in q.parse(f'"{text}"').required]
    return Where(
        sessions=sessions,
        own=bool(filters.session),
        kinds=None if kinds is None else tuple(sorted(kinds)),
        tools=tuple(n for name in filters.tool for n in queries.tool_names(name)) if filters.tool else None,
        files=tuple(n for name in filters.file for n in queries.file_names(name)) if filters.file else None,
        since=None if since is None else round(since * 1000),
        until=None if until is None else round(until * 1000),
        term=q.any_expression(terms),
        terms=term_numbers(queries, filters.term) if filters.term else None,
        subagents=_subagents(params),
    )


def _sessions(reader: Reader, prefix: str, strict: bool) -> list[int]:
    found = reader.queries.session_ids(prefix)
    if strict and len(found) > 1:
        raise ambiguous("session", prefix, [name for _, name in found])
    return [number for number, _ in found]


def _subagents(params: Params) -> bool | None:
    """True: apart, False: not at all, None: folded into their thread."""
    if params.get("no_subagents") or params.get("subagents") is False:
        return False
    return True if params.get("include_subagents") or params.get("subagents") else None


# Spelling


class _Said:
    """What records say, each read once for an answer however often it is looked at."""

    def __init__(self, reader: Reader, reading: Reading) -> None:
        self._reader = reader
        self._reading = reading
        self._texts: dict[int, str | None] = {}
        self._copies: dict[int, list[Copy]] = {}

    def prepare(self, records: Iterable[int]) -> None:
        """Looks up where several records lie at once."""
        self._copies.update(self._reader.queries.copies_of(n for n in records if n not in self._copies))

    def forget(self) -> None:
        """Lets go of what was read: a long look through many records must not keep them all."""
        self._texts.clear()
        self._copies.clear()

    def of(self, record: int, longest: int | None = None) -> str | None:
        """The text of a record; None where no copy of it reads now, or where it has more bytes than `longest`."""
        if record not in self._texts:
            if record not in self._copies:
                self.prepare([record])
            copies = self._copies[record]
            if longest is not None and copies and copies[0].length > longest:
                return None
            try:
                self._texts[record] = render.turn(self._reading.object(copies), t.OTHER).text
            except FabledError:
                self._texts[record] = None
        return self._texts[record]


def _key(hit: Hit) -> tuple[int, int]:
    """What makes two hits one result."""
    return hit.thread or -hit.record, hit.side


def _literal_first(said: _Said, query: q.Query, ranking: Ranking, wanted: int) -> list[Hit]:
    """Puts threads first in which a record spells a punctuated token as it was typed.

    With one token that decides; among several it lifts the score, lest `what's` outrank the words that matter.
    """
    literals = query.literals
    alone = len(query.positive) == 1
    own = {_key(hit): hit for hit in ranking.hits}
    counted: dict[tuple[int, int], tuple[int, Hit]] = {}
    for record in ranking.records[:CANDIDATES]:
        key = ranking.places[record][:2]
        text = (said.of(record, LITERAL_BYTES) or "").casefold()
        count = sum(literal in text for literal in literals)
        if count and key in own and count > counted.get(key, (0,))[0]:
            counted[key] = (count, replace(own[key], record=record))
            if alone and len(counted) >= wanted:
                break
    if not counted:
        return ranking.hits
    for key, (_, hit) in counted.items():
        own[key] = hit
    if alone:
        order = sorted(own, key=lambda key: (-counted[key][0] if key in counted else 0, own[key].score, -own[key].ts))
        return [own[key] for key in order]
    gains = ranking.gains["spelling"] = {
        hit.record: -hit.score * LITERAL_BONUS * count / len(literals) for count, hit in counted.values()
    }
    for key, (_, hit) in counted.items():
        own[key] = replace(hit, score=hit.score - gains[hit.record])
    return sorted(own.values(), key=lambda hit: (hit.score, -hit.ts))


def _spelt(
    reader: Reader, said: _Said, query: q.Query, expression: str, where: Where, by_time: bool
) -> tuple[list[Hit], int, int]:
    """The best record of each thread whose text has the phrase letter by letter; how many records with its words were
    looked at, and how many there are."""
    phrase = normal(query.positive[0].text.strip())
    found: dict[tuple[int, int], Hit] = {}
    records = reader.queries.best_records(expression, where)
    deadline = time.monotonic() + EXACT_SECONDS
    looked_at = 0
    for at, hit in enumerate(records):
        if at % EXACT_STEP == 0:
            said.forget()
            said.prepare(one.record for one in records[at : at + EXACT_STEP])
        if time.monotonic() > deadline:
            break
        looked_at += 1
        if _key(hit) not in found and phrase in normal(said.of(hit.record) or ""):
            found[_key(hit)] = hit
    hits = list(found.values())
    return (sorted(hits, key=lambda hit: -hit.ts) if by_time else hits), looked_at, len(records)


# Why


def _explain(results: list[dict[str, Any]], hits: Sequence[Hit], ranking: Ranking | None) -> None:
    """Adds to each result which part gave which score."""
    known = {hit.record: hit for hit in hits}
    for row in results:
        hit = known.get(row.pop("record"))
        if hit is not None and ranking is not None:
            row["explain"] = ranking.explain(hit)


def _parsed(query: q.Query) -> dict[str, Any]:
    """What a query was understood as."""
    lists = {"words": query.words, "required": query.required, "excluded": query.excluded}
    return {name: [token.text for token in tokens] for name, tokens in lists.items()} | {"prose": query.prose}


# Words that do occur


def _nearest(reader: Reader, said: _Said, query: q.Query, where: Where) -> list[dict[str, Any]]:
    """Where nothing was found: words of the index that look like those asked for, spelt as some record spells them."""
    if where.nothing or len(query.positive) > NEAREST_WORDS:
        return []
    marker = reader.queries.marker
    found: dict[str, tuple[float, int]] = {}
    for token in query.positive:
        stem = marker.stem(token.parts[0]) if len(token.parts) == 1 else None
        if stem is None or not stem.isalpha() or not 4 <= len(stem) <= 30:
            continue
        matcher = SequenceMatcher(b=stem, autojunk=False)
        for near, count in reader.queries.near(stem):
            matcher.set_seq1(near)
            if matcher.quick_ratio() >= NEAREST_LIKENESS and matcher.ratio() >= NEAREST_LIKENESS:
                found[near] = (matcher.ratio(), count)
    offered: list[dict[str, Any]] = []
    for stem in sorted(found, key=lambda near: (-found[near][0], -found[near][1], near)):
        record = reader.queries.holding(stem, where)
        text = said.of(record, LITERAL_BYTES) if record is not None else None
        word = marker.spelt(render.tame(text[: t.TEXT_LIMIT]), stem) if text else None
        if word is not None:
            offered.append({"term": word.lower(), "count": found[stem][1]})
        if len(offered) == NEAREST_SHOWN:
            break
    return offered


# Results


Marks = Callable[[str], list[tuple[int, int]]]
"""Where in a text what was looked for stands."""


def _results(
    reader: Reader, said: _Said, hits: Sequence[Hit], marks: Marks, numbered: bool = False
) -> list[dict[str, Any]]:
    """The hits as they are shown; one that went away since it was ranked is left out. `numbered`: with the record."""
    queries = reader.queries
    records = queries.records(hit.record for hit in hits)
    threads = queries.threads(hit.thread for hit in hits)
    others = queries.also_in(records)
    names = titles(reader, threads.values())
    live = queries.live({record.session for record in records.values()} | {one.session for one in threads.values()})
    said.prepare(records)
    shown = []
    for hit in hits:
        record = records.get(hit.record)
        if record is None:
            continue
        thread = threads.get(hit.thread)
        snippet, highlights = _snippet(said, record, marks)
        owner = thread or record
        shown.append(
            {
                "thread": thread_id(thread) if thread else f"unattached@{record.session_id}",
                "prompt_id": thread.prompt if thread else None,
                "session_id": owner.session_id,
                "project": owner.project,
                "title": names[thread.id] if thread else "",
                "score": float(f"{-hit.score:.6g}") + 0.0,
                "first_ts": iso(thread.first_ts if thread else record.ts),
                "last_ts": iso(thread.last_ts if thread else record.ts),
                "turns": thread.turns if thread else 1,
                "est_tokens": thread.tokens if thread else 0,
                "uuid": uuid_text(record.uuid),
                "role": render.role(record.kind, record.type),
                "kind": render.KIND_NAMES.get(record.kind, "other"),
                "tool": render.flat(record.tool)[:80] if record.tool else None,
                "ts": iso(record.ts),
                "snippet": snippet,
                "highlights": highlights,
                "subagent": is_side(record.flags, record.agent),
                "also_in": others[record.id],
                "resume": resume(owner, live),
                **({"record": record.id} if numbered else {}),
            }
        )
    return shown


def resume(what: Thread | Record, live: Container[int]) -> str | None:
    """The line that takes the session up again; None where its live transcript is gone."""
    if what.session not in live:
        return None
    line = f"claude --resume {shlex.quote(what.session_id)}"
    project = what.project or ""
    return f"cd {shlex.quote(project)} && {line}" if os.path.isabs(project) else line


def _snippet(said: _Said, record: Record, marks: Marks) -> tuple[str, list[list[int]]]:
    """The part of a record that shows the words found; nothing where no copy of it reads now."""
    text = said.of(record.id)
    if text is None:
        return "", []
    size = _RESULT_CHARS if record.kind == t.RESULT else t.TEXT_LIMIT
    shown = render.flat(render.tame(text[:size]))
    return render.snippet(shown, marks(shown))


def _found_in(reader: Reader, shown: str, query: q.Query) -> list[tuple[int, int]]:
    """Where the words of a query stand in a text."""
    phrases = q.phrases(query.positive)
    marks = reader.queries.marker.marks(shown, phrases) if phrases else []
    return marks or _inside_words(shown, query)


def _inside_words(shown: str, query: q.Query) -> list[tuple[int, int]]:
    """Where words stand within longer ones: `user` and `user_name` found `getUserName` by its parts."""
    folded = shown.lower()
    if len(folded) != len(shown):
        return []
    marks: list[tuple[int, int]] = []
    for token in query.positive:
        word = "".join(token.key)
        if len(word) > 1 or WIDE.match(word):
            at = folded.find(word)
            while at >= 0 and len(marks) < 50:
                marks.append((at, at + len(word)))
                at = folded.find(word, at + 1)
    return sorted(marks)
