"""Ranks threads: what each record, its thread, its neighbours and its session say for it.

Looking rows up is left to `store.queries`; what the words mean, to `transcript.query`; showing, to `search`.

The order. For each word of the query the records that hold it are fetched once, with the score BM25 gives them for
that word alone. From these rows everything else is derived, so that nothing but the records themselves is indexed:

1. a record's own score is the sum over the words; what tools were told or gave back counts less than what was said;
2. its session's score is BM25 over sessions: in how many of its records the word stands, against how long it is.
   It is added SESSION_WEIGHT times, less in a session so long that it is about many things (case E06);
3. the best RERANKED records gain what their thread's first prompt says of words they lack, what pairs of words that
   stand near each other say, a part of what the records before and after them score, and something for agreeing with
   a date that the query names;
4. a thread's score is that of its best record.

Words so common that fetching them takes noticeable time are ranked by the index itself, by their records alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from ..store.queries import Queries
from ..store.rows import Hit, Where
from ..transcript import dates as d
from ..transcript import query as q
from ..transcript import text as t

ROW_BUDGET = 40_000
"""Rows fetched for one query: about 2 µs each, so that the commonest words stay within 80 ms."""
SESSION_WEIGHT = 2.0
SESSION_K1, SESSION_B = 1.2, 0.75
LONG_SESSION = 200
"""Turns from which on a session says less and less for each of its records."""
NEAR_WEIGHT, NEAR_WORDS, NEAR_PAIRS, NEAR_RECORDS = 0.2, 6, 24, 5_000
"""Pairs of neighbouring words are looked for within so many words, if neither is in more than so many records."""
NEIGHBOUR_WEIGHT = 0.1
TITLE_WEIGHT = 1.0
DATE_WEIGHT = 1.5
RERANKED = 400
SPARE = 60
"""Threads ranked beyond those asked for: the literal spelling may still move some up."""
KIND_WEIGHT = tuple(0.7 if kind in (t.CALL, t.RESULT) else 1.0 for kind in range(16))

Key = tuple[int, int]
"""A result: thread, or the number of a record without one below zero; and what tells a subagent's part from it."""


@dataclass(slots=True)
class Ranking:
    """The threads that answer, the best first, and where their scores come from."""

    hits: list[Hit]
    total: int
    words: list[tuple[q.Token, dict[int, float]]] = field(default_factory=list)
    """each word with the records that hold it and what it says for them"""
    gains: dict[str, dict[int, float]] = field(default_factory=dict)
    """name of a part → record → what it adds"""
    sessions: dict[int, float] = field(default_factory=dict)
    places: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)
    """the best records, whatever their threads"""
    whole: bool = True
    """False where the index alone ranked because the words are very common"""

    def explain(self, hit: Hit) -> dict[str, Any]:
        """Which part gave which score to a result."""
        record = hit.record
        said = {token.text: _short(found[record]) for token, found in self.words if record in found}
        parts: dict[str, Any] = {"words": said}
        if not self.whole:
            parts["index"] = _short(sum(gain.get(record, 0.0) for gain in (self.gains.get("index", {}),)))
        for name in ("title", "near", "neighbours", "dates", "spelling"):
            gained = self.gains.get(name, {}).get(record)
            if gained:
                parts[name] = _short(gained)
        place = self.places.get(record)
        if place is not None and self.sessions.get(place[2]):
            parts["session"] = _short(self.sessions[place[2]])
        return parts


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def rank(queries: Queries, query: q.Query, where: Where, wanted: int) -> Ranking:
    """The threads that answer `query` within `where`; `wanted`: how many of them matter."""
    expression = q.match_expression(query)
    if expression is None or where.nothing:
        return Ranking([], 0)
    sizes = {token: queries.count(q.unit(token)) for token in query.positive}
    ranking = Ranking([], 0)
    if sum(sizes.values()) <= ROW_BUDGET:
        scores = _by_words(queries, query, where, ranking)
    else:
        scores = _by_index(queries, query, expression, where, max(wanted, RERANKED), sizes, ranking)
    if not scores:
        return ranking
    places, sessions = ranking.places, ranking.sessions
    total = {record: score + sessions.get(places[record][2], 0.0) for record, score in scores.items()}
    best = nlargest(max(RERANKED, 2 * wanted), total, key=total.__getitem__)
    for name, gains in _gains(queries, query, where, ranking, scores, best[:RERANKED], sizes):
        ranking.gains[name] = gains
        for record, gain in gains.items():
            total[record] += gain
    ranking.records = sorted(best, key=total.__getitem__, reverse=True)
    leading: dict[Key, int] = {}
    for record, score in total.items():
        key = places[record][:2]
        other = leading.get(key)
        if other is None or (score, -record) > (total[other], -other):
            leading[key] = record
    first = nlargest(wanted + SPARE, leading.values(), key=lambda record: (total[record], places[record][3], -record))
    ranking.hits = [
        Hit(record, max(places[record][0], 0), places[record][1], -total[record], places[record][3]) for record in first
    ]
    ranking.total = max(ranking.total, len(leading))
    return ranking


def _by_words(queries: Queries, query: q.Query, where: Where, ranking: Ranking) -> dict[int, float]:
    """The scores of all records that answer, from the rows of each word."""
    allowed = banned = None
    if query.required:
        allowed = queries.holders(q.match_expression(q.Query("", required=query.required)))
    if query.excluded:
        banned = queries.holders(q.any_expression(query.excluded))
    scores: dict[int, float] = {}
    tallies: list[Counter[int]] = []
    places, weight = ranking.places, KIND_WEIGHT
    for token in query.positive:
        found: dict[int, float] = {}
        sessions: list[int] = []
        for record, thread, side, session, ts, kind, score in queries.postings(q.unit(token), where):
            if (allowed is not None and record not in allowed) or (banned is not None and record in banned):
                continue
            found[record] = worth = score * weight[kind]
            if record in scores:
                scores[record] += worth
            else:
                scores[record] = worth
                places[record] = (thread, side, session, ts)
            sessions.append(session)
        ranking.words.append((token, found))
        tallies.append(Counter(sessions))
    ranking.sessions = _sessions(queries, tallies, where)
    return scores


def _by_index(
    queries: Queries,
    query: q.Query,
    expression: str,
    where: Where,
    limit: int,
    sizes: dict[q.Token, int],
    ranking: Ranking,
) -> dict[int, float]:
    """The scores of the best record of each of the best threads, by the index; the rarer words tell of sessions."""
    ranking.whole = False
    hits, ranking.total = queries.hits(expression, where, limit, False)
    homes = queries.sessions_of(hit.record for hit in hits)
    scores: dict[int, float] = {}
    for hit in hits:
        scores[hit.record] = -hit.score
        ranking.places[hit.record] = (hit.thread or -hit.record, hit.side, homes.get(hit.record, 0), hit.ts)
    ranking.gains["index"] = dict(scores)
    left = ROW_BUDGET
    tallies: list[Counter[int]] = []
    for token in sorted(query.positive, key=sizes.__getitem__):
        left -= sizes[token]
        if left < 0:
            break
        rows = queries.postings(q.unit(token), where)
        ranking.words.append((token, {row[0]: row[6] * KIND_WEIGHT[row[5]] for row in rows}))
        tallies.append(Counter(row[3] for row in rows))
    ranking.sessions = _sessions(queries, tallies, where)
    return scores


def _sessions(queries: Queries, tallies: Iterable[Counter[int]], where: Where) -> dict[int, float]:
    """What the words say for each session, its weight and its length taken into account."""
    tallies = [tally for tally in tallies if tally]
    lengths = queries.session_lengths({session for tally in tallies for session in tally})
    if not lengths:
        return {}
    average = max(1.0, sum(lengths.values()) / len(lengths))
    many = len(where.sessions) if where.sessions is not None else queries.session_count()
    scale = {
        session: SESSION_K1 * (1 - SESSION_B + SESSION_B * max(1, length) / average)
        for session, length in lengths.items()
    }
    found: dict[int, float] = {}
    for tally in tallies:
        rarity = math.log(1 + (max(many - len(tally), 0) + 0.5) / (len(tally) + 0.5)) * (SESSION_K1 + 1)
        for session, times in tally.items():
            if session in scale:
                found[session] = found.get(session, 0.0) + rarity * times / (times + scale[session])
    for session in found:
        length = lengths[session]
        found[session] *= SESSION_WEIGHT * (min(1.0, math.sqrt(LONG_SESSION / length)) if length else 1.0)
    return found


def _gains(
    queries: Queries,
    query: q.Query,
    where: Where,
    ranking: Ranking,
    scores: dict[int, float],
    best: list[int],
    sizes: dict[q.Token, int],
) -> Iterable[tuple[str, dict[int, float]]]:
    """(name, record → gain) of each further part, for the best records."""
    chosen = set(best)
    yield "title", _titles(queries, ranking, best, [found for _, found in ranking.words])
    yield "near", _near(queries, query, chosen, sizes)
    neighbours: dict[int, float] = {}
    for record, before in queries.before(best):
        for one, other in ((record, before), (before, record)):
            if one in chosen and other in scores:
                neighbours[one] = neighbours.get(one, 0.0) + NEIGHBOUR_WEIGHT * scores[other]
    yield "neighbours", neighbours
    mentioned = d.mentions(query.text)
    if mentioned:
        many = len(where.sessions) if where.sessions is not None else queries.session_count()
        agreed = {record: d.agreement(mentioned, ranking.places[record][3]) for record in best}
        yield "dates", {record: DATE_WEIGHT * math.log(2 + many) * share for record, share in agreed.items() if share}


def _titles(queries: Queries, ranking: Ranking, best: list[int], words: list[dict[int, float]]) -> dict[int, float]:
    """What the prompt of a record's thread says of the words that the record lacks or says less of."""
    places = ranking.places
    heads = queries.title_records({places[record][0] for record in best})
    said = {head: [(found, found[head]) for found in words if head in found] for head in heads.values()}
    gains: dict[int, float] = {}
    for record in best:
        head = heads.get(places[record][0])
        if head is not None and head != record:
            gain = sum(max(0.0, worth - found.get(record, 0.0)) for found, worth in said[head])
            if gain:
                gains[record] = TITLE_WEIGHT * gain
    return gains


def _near(queries: Queries, query: q.Query, chosen: set[int], sizes: dict[q.Token, int]) -> dict[int, float]:
    """What neighbouring words of the query say that stand near each other in a record."""
    gains: dict[int, float] = {}
    pairs = zip(query.words, query.words[1:], strict=False)
    rare = [(one, other) for one, other in pairs if 0 < min(sizes[one], sizes[other]) <= NEAR_RECORDS]
    for one, other in rare[:NEAR_PAIRS]:
        if sizes[one] and sizes[other]:
            for record, score in queries.scores(q.near(one, other, NEAR_WORDS)):
                if record in chosen:
                    gains[record] = gains.get(record, 0.0) + NEAR_WEIGHT * score
    return gains
