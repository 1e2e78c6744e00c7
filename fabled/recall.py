"""Chooses what of earlier sessions a model is given, and hands it over framed.

Finding and rendering are `retrieval`'s, the frame itself is `transcript.frame`'s, when to recall the caller's.

A recall is either *asked for* (a tool call, a command: tool output is in it, marked as such) or *automatic* (a hook:
only what the person and the assistant said, never tool output, of the same project only, and rather nothing than
something doubtful).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any

from .errors import BadRequest, FabledError
from .retrieval import Reader, search, thread
from .retrieval.common import Params, find_record, iso, number_of, text_of, thread_id
from .retrieval.titles import titles
from .store.reading import Reading
from .store.rows import Thread
from .transcript import frame as f
from .transcript import render
from .transcript.query import STOP_WORDS
from .transcript.record import uuid_text
from .transcript.tokens import factor

START_TOKENS, PROMPT_TOKENS, RECOVERY_TOKENS = 600, 800, 900
"""What each automatic recall may cost."""
ASKED_TOKENS = 2_400
MOST_TOKENS = 20_000
RECENT_THREADS, RECENT_LOOKED_AT, RECENT_OF_A_SESSION = 5, 24, 2
RECOVERY_THREADS = 60
SEARCH_HITS, MOST_HITS = 8, 25
TITLE_CHARS = 140
LEARNED_FROM = 120
"""Records looked at to learn what a token is."""
SMALL_TOKENS = 60
"""A thread with fewer tokens ("yes", "go on") is listed only where there is nothing else."""

PROMPT_WORDS, PROMPT_CHARS, PROMPT_QUERY = 24, 4_000, 12
"""Of a long prompt so many words count, the rarest, and of those that are rare so many are looked for."""
SURE_WORDS, SURE_SHARE, RARE_SHARE, RARE_WORDS = 5, 0.6, 0.02, 2
"""A prompt brings up a thread by itself where one of its records holds this many of the prompt's words, this share of
them by weight (rare words weigh more), and so many that stand in no more than this share of all records."""

MORE = (
    "More of it: the tools search, thread and block of the MCP server fabled, or in a shell: "
    'fabled search "words", fabled thread ID, fabled block ID.'
)
PAGE_CHARS = 8_600

_WORD = re.compile(r"[^\W_](?:[\w./-]*[^\W_])?")
_MARKER = re.compile(r"\n?\[truncated — fabled block ([^\]\s]{1,200})\]\s*\Z")
_SAID = ("prompt", "reply", "queued")


def recall(reader: Reader, params: Params) -> dict[str, Any]:
    """One recall: `text` is what a model is to be given, "" if that is nothing."""
    what = text_of(params, "what") or ""
    made = _WHAT.get(what)
    if made is None:
        raise BadRequest(f"recall has nothing called {what[:80]!r}", f"known are {', '.join(_WHAT)}")
    if reader.token_factor is None:
        reader.token_factor = _learned(reader)
    return _value(made(reader, params))


def _learned(reader: Reader) -> float:
    """What a token of this person's texts is, from some records; a few milliseconds, once for a connection."""
    found = []
    with Reading(reader.vault) as reading:
        for copies in reader.queries.copies_of(reader.queries.latest_said(LEARNED_FROM)).values():
            if copies and copies[0].length < 1 << 16:
                with contextlib.suppress(FabledError):
                    found.append(reading.object(copies))
    return factor(found)


def framed_value(text: str, value: Mapping[str, Any], closing: str = "") -> dict[str, Any]:
    """Another answer, in words, as a recall; it cites every thread that the answer names."""
    passages = [f.Passage(arc, "") for arc in _threads_in(value)]
    made = _fit_text(text, passages, closing)
    return _value(made)


def _value(made: f.Framed) -> dict[str, Any]:
    return {
        "text": made.text,
        "arcs": list(made.arcs),
        "est_tokens": made.tokens,
        "chars": f.utf16(made.text),
        "left_out": made.left_out,
    }


def _nonce() -> str:
    return secrets.token_hex(4)


def _framed(
    reader: Reader,
    passages: Sequence[f.Passage],
    tokens: int,
    *,
    chars: int = f.MOST_CHARS,
    opening: str = "",
    closing: str = "",
) -> f.Framed:
    """The frame, with tokens as this person's texts have them."""
    own = reader.token_factor or 1.0
    return f.frame(passages, _nonce(), tokens=tokens, chars=chars, opening=opening, closing=closing, factor=own)


# Automatic


def _session_start(reader: Reader, params: Params) -> f.Framed:
    """What a session is told as it begins: after a compaction its own lost threads, else the project's last ones."""
    source = text_of(params, "source") or "startup"
    session = text_of(params, "session")
    if source == "compact":
        return _recovery(reader, params, session) if session else f.Framed("")
    project = _project(reader, text_of(params, "cwd"))
    if project is None:
        return f.Framed("")  # an unknown project: nothing of another one belongs here
    rows = _rows(reader, reader.queries.latest_threads(project[1], RECENT_LOOKED_AT))
    others = [row for row in rows if row["session_id"] != session]
    if source == "resume":
        # What it says itself is in its context already; only what happened elsewhere meanwhile is news.
        last = max((row["last_ts"] or "" for row in _rows(reader, _own(reader, session, 1))), default="")
        others = [row for row in others if last and (row["last_ts"] or "") > last]
    passages = [
        f.Passage(row["thread"], _listed(row), _last_reply(reader, row) if number == 0 else ())
        for number, row in enumerate(_chosen(others))
    ]
    opening = f"The last threads of {f.line(project[0], 200)}:"
    return _framed(reader, passages, _budget(params, START_TOKENS), opening=opening, closing=MORE)


def _project(reader: Reader, cwd: str | None) -> tuple[str, tuple[int, ...]] | None:
    """The project a folder lies in, with its sessions. What was done in the home folder is not about all below it."""
    if cwd is None or not os.path.isabs(cwd):
        return None
    for top in dict.fromkeys((os.path.normpath(cwd), os.path.realpath(cwd))):
        folders = [top]
        while (above := os.path.dirname(folders[-1])) not in (folders[-1], "/", os.path.expanduser("~")):
            folders.append(above)
        found = reader.queries.project_around(folders)
        if found is not None:
            return found
    return None


def _own(reader: Reader, session: str | None, limit: int) -> list[Thread]:
    """The latest threads of a session."""
    exact = [number for number, name in reader.queries.session_ids(session or "") if name == session]
    return reader.queries.latest_threads(exact, limit, copies=True)


def _rows(reader: Reader, threads: Sequence[Thread]) -> list[dict[str, Any]]:
    """Threads as search lists them."""
    names = titles(reader, threads)
    return [
        {
            "thread": thread_id(one),
            "session_id": one.session_id,
            "project": one.project,
            "title": names[one.id],
            "last_ts": iso(one.last_ts),
            "turns": one.turns,
            "est_tokens": one.tokens,
        }
        for one in threads
    ]


def _chosen(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The latest threads that say something, not all of one session."""
    by_session: dict[str, int] = {}
    chosen: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: row["est_tokens"] < SMALL_TOKENS):  # stable: the latest first in each half
        if by_session.get(row["session_id"], 0) < RECENT_OF_A_SESSION:
            by_session[row["session_id"]] = by_session.get(row["session_id"], 0) + 1
            chosen.append(row)
    chosen = chosen[:RECENT_THREADS]
    return sorted(chosen, key=lambda row: row["last_ts"] or "", reverse=True)


def _recovery(reader: Reader, params: Params, session: str) -> f.Framed:
    """The threads of a session that a compaction put behind its summary, each one command away."""
    passages = [
        f.Passage(row["thread"], _listed(row)) for row in _rows(reader, _own(reader, session, RECOVERY_THREADS))
    ]
    opening = "This session was compacted. Its threads before that are kept word for word; the latest first:"
    return _framed(reader, passages, _budget(params, RECOVERY_TOKENS), opening=opening, closing=MORE)


def _prompt(reader: Reader, params: Params) -> f.Framed:
    """What a prompt brings up: the one or two threads that it is surely about, mostly nothing."""
    said = (text_of(params, "query") or "")[:PROMPT_CHARS]
    project = _project(reader, text_of(params, "cwd"))
    if project is None or said.lstrip()[:1] in ("/", "!", "#", "<"):
        return f.Framed("")
    weights = _weights(reader, said)
    # Rare words decide, and to look for common ones takes long.
    rare = [word for word, _, is_rare in weights.values() if is_rare]
    if len(weights) < SURE_WORDS or len(rare) < RARE_WORDS:
        return f.Framed("")
    query = " ".join(sorted(rare, key=len, reverse=True)[:PROMPT_QUERY])
    found = search(reader, {"query": query, "project": project[0], "limit": 4})
    session = text_of(params, "session")
    known = reader.queries.cited_in(session) if session else set()
    passages = []
    for row in found["results"]:
        if row["session_id"] == session or row["thread"] in known or session in row["also_in"]:
            continue
        # What does not read now, because its file is being rewritten, is not worth a word.
        with contextlib.suppress(FabledError):
            if _sure(reader, row["uuid"], row["session_id"], weights):
                quotes = _said(reader, row["thread"], row["uuid"], 600)
                passages.append(f.Passage(row["thread"], _listed(row), quotes))
        if len(passages) == 2:
            break
    opening = "Earlier threads of this project that may bear on the prompt:"
    return _framed(reader, passages, _budget(params, PROMPT_TOKENS), opening=opening, closing=MORE)


_Weights = dict[str, tuple[str, float, bool]]
"""stem → (the word, its weight, whether it is rare)"""


def _weights(reader: Reader, said: str) -> _Weights:
    marker = reader.queries.marker
    words: dict[str, str] = {}
    for match in _WORD.finditer(said):
        word = match[0]
        if word.lower() in STOP_WORDS or len(word) < 3 or len(word) > 60:
            continue
        stem = marker.stem(word)
        if stem is not None:
            words.setdefault(stem, word)
        if len(words) >= 4 * PROMPT_WORDS:
            break
    many, counts = reader.queries.frequencies(words)
    weighed = {
        stem: (word, log(1 + (many + 1) / (counts.get(stem, 0) + 1)), counts.get(stem, 0) <= max(3, RARE_SHARE * many))
        for stem, word in words.items()
    }
    best = sorted(weighed, key=lambda stem: -weighed[stem][1])[:PROMPT_WORDS]
    return {stem: weighed[stem] for stem in words if stem in best}


def _sure(reader: Reader, uuid: str, session: str, weights: _Weights) -> bool:
    record, _ = find_record(reader, f"{uuid}@{session}")
    with Reading(reader.vault) as reading:
        text = render.turn(reading.object(reader.queries.copies(record.id)), record.kind).text[:65_536]
    stems = reader.queries.marker.stems(render.whole_characters(text))
    held = [weights[stem] for stem in weights if stem in stems]
    share = sum(weight for _, weight, _ in held) / (sum(weight for _, weight, _ in weights.values()) or 1.0)
    return len(held) >= SURE_WORDS and share >= SURE_SHARE and sum(rare for _, _, rare in held) >= RARE_WORDS


def _last_reply(reader: Reader, row: Mapping[str, Any]) -> list[f.Quote]:
    """How a thread ended, in the assistant's words."""
    turns: list[f.Quote] = []
    with contextlib.suppress(FabledError):
        turns = [turn for turn in _said(reader, row["thread"], None, 260) if turn.label.startswith("assistant")]
    return [f.Quote(f"it ended, {turns[-1].label}", *_short(turns[-1]))] if turns else []


def _short(quote: f.Quote) -> tuple[str, str, bool, bool]:
    part = render.cut(quote.text, 110)
    return part, quote.block, False, quote.cut or len(part) < len(quote.text)


def _said(reader: Reader, id_: str, around: str | None, tokens: int) -> list[f.Quote]:
    """What person and assistant said in a thread."""
    value = thread(reader, {"id": id_, "budget": tokens, **({"around": around} if around else {})})
    return [_quote(turn) for turn in value["turns"] if turn["kind"] in _SAID]


# Asked for


def _search(reader: Reader, params: Params) -> f.Framed:
    limit = number_of(params, "limit", SEARCH_HITS, 1, MOST_HITS)
    names = ("query", "project", "cwd", "all", "session", "role", "tool", "file", "since", "until", "sort", "offset")
    asked = {name: params[name] for name in names if params.get(name) is not None}
    found = search(reader, {**asked, "limit": limit})
    if found["scope"]["by"] == "all" and not (params.get("all") or params.get("session")) and params.get("cwd"):
        # Other projects are none of this one's business unless they are asked for.
        return f.Framed("This folder's project has no earlier sessions. With all: true, every project is searched.")
    passages = [
        f.Passage(row["thread"], _listed(row, project=not found["scope"]["project"]), _snippet(row))
        for row in found["results"]
    ]
    project = found["scope"]["project"]
    where = f"in {f.line(project, 200)} (all: true searches every project)" if project else "in all projects"
    if not passages:
        near = ", ".join(one["term"] for one in found.get("nearest", ()))
        said = [f"Nothing found {where}."]
        said += [f"Words that do occur: {f.line(near, 200)}."] if near else []
        return f.Framed(" ".join([*said, *map(_unknown, found.get("unknown", ()))]))
    start = number_of(params, "offset", 0, 0, 100_000)
    opening = f"{found['total']} threads found {where}; shown from {start + 1}, best first."
    closing = "Read one: thread with its id. More hits: offset. Narrow: file, tool, role, since, until, project."
    tokens = _budget(params, ASKED_TOKENS)
    return _framed(reader, passages, tokens, chars=f.LONGEST_CHARS, opening=opening, closing=closing)


def _unknown(one: Mapping[str, Any]) -> str:
    """A value that nothing is called; names come from transcripts."""
    near = f" (near: {f.line(', '.join(one['near']), 400)})" if one["near"] else ""
    return f"No {one['filter']} {f.line(one['value'], 100)} is known{near}."


def _snippet(row: Mapping[str, Any]) -> list[f.Quote]:
    label = _label(row["role"], row["tool"], row["ts"])
    return [f.Quote(label, row["snippet"], row["uuid"], row["role"] == "tool", True)] if row["snippet"] else []


def _thread(reader: Reader, params: Params) -> f.Framed:
    budget = _budget(params, ASKED_TOKENS)
    wanted = {name: params[name] for name in ("id", "around", "branches", "subagents") if params.get(name)}
    value = thread(reader, {**wanted, "budget": budget})
    automatic = bool(params.get("automatic"))
    quotes = [_quote(turn) for turn in value["turns"] if not automatic or turn["kind"] in _SAID]
    heading = (
        f'{f.short(value["thread"])} {_day(value["first_ts"])} "{value["title"]}" ({value["project"] or ""}, '
        f"{value['total_turns']} turns, ~{value['total_tokens']} tokens)"
    )
    closing = (
        "Parts left out or cut: block with the id shown there, or thread again with around set to it."
        if value["omitted"] or any(turn["truncated"] for turn in value["turns"])
        else ""
    )
    chars = f.MOST_CHARS if automatic else f.LONGEST_CHARS
    return _framed(reader, [f.Passage(value["thread"], heading, quotes)], budget + 200, chars=chars, closing=closing)


def _block(reader: Reader, params: Params) -> f.Framed:
    """One record's words, whole and unmasked, in pages."""
    given = text_of(params, "id") or ""
    record, _ = find_record(reader, given)
    with Reading(reader.vault) as reading:
        said = render.turn(reading.object(reader.queries.copies(record.id)), record.kind)
    pages = list(_pages(f.neutral(said.text, masked=False)))
    page = number_of(params, "page", 1, 1, max(1, len(pages)))
    owner = reader.queries.thread(record.thread) if record.thread is not None else None
    arc = thread_id(owner) if owner is not None else ""
    tool = said.role == "tool"
    of = f", page {page} of {len(pages)}" if len(pages) > 1 else ""
    heading = f"{uuid_text(record.uuid)}{of}, of thread {f.short(arc) or 'none'}, session {record.session_id}"
    words = pages[page - 1] if pages else "(no words)"
    quote = f.Quote(_label(said.role, record.tool, iso(record.ts)), words, "", tool)
    closing = f"The rest: block with page {page + 1}." if page < len(pages) else ""
    return f.frame(
        [f.Passage(arc, heading, [quote])], _nonce(), tokens=10**6, chars=f.LONGEST_CHARS, closing=closing, masked=False
    )


def _pages(text: str) -> Iterator[str]:
    """A text in parts that fit a frame once they are quoted, cut at ends of lines where there are any near."""
    held: list[str] = []
    size = 0
    for line in text.split("\n"):
        at = 0
        while True:
            # A piece of n characters has at most 2n of the client's.
            stop = render.boundary(line, min(len(line), at + PAGE_CHARS // 2 - 4))
            stop = stop if stop > at else min(len(line), at + PAGE_CHARS // 2 - 4)
            piece = line[at:stop]
            if held and size + f.utf16(piece) + 3 > PAGE_CHARS:
                yield "\n".join(held)
                held, size = [], 0
            held.append(piece)
            size += f.utf16(piece) + 3
            at = stop
            if at >= len(line):
                break
    if held:
        yield "\n".join(held)


def _fit_text(text: str, passages: Sequence[f.Passage], closing: str) -> f.Framed:
    cites = [one for one in passages if one.arc and f.is_arc(one.arc)][:40]
    body = f.Passage("", "Answer:", [f.Quote("fabled", text)])
    return f.frame([*cites, body], _nonce(), tokens=10**6, chars=f.LONGEST_CHARS, closing=closing)


def _threads_in(value: object) -> list[str]:
    """The thread ids that an answer names, wherever they stand."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if isinstance(item.get("thread"), str):
                found[item["thread"]] = None
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list | tuple):
            waiting.extend(reversed(item))
    return list(found)


_WHAT = {
    "session-start": _session_start,
    "prompt": _prompt,
    "search": _search,
    "thread": _thread,
    "block": _block,
}


# Words of our own


def _budget(params: Params, default: int) -> int:
    return number_of(params, "budget", default, 100, MOST_TOKENS)


def _listed(row: Mapping[str, Any], project: bool = False) -> str:
    """A thread on one line."""
    where = f", {os.path.basename(row['project'].rstrip('/')) or row['project']}" if project and row["project"] else ""
    name = render.clip(row["title"] or "(no title)", TITLE_CHARS)
    return (
        f'- {f.short(row["thread"])} {_day(row["last_ts"])} "{name}"'
        f" ({row['turns']} turns, ~{row['est_tokens']} tokens{where})"
    )


def _quote(turn: Mapping[str, Any]) -> f.Quote:
    text, block = turn["text"], turn["block"]
    if turn["kind"] == "omitted":
        return f.Quote(f"({turn['count']} turns left out here, from {block})", "")
    found = _MARKER.search(text)
    if found is not None and turn["truncated"]:
        text, block = text[: found.start()], found[1]
    label = _label(turn["role"], turn["tool"], turn["ts"])
    if turn["label"] != "main":
        label += f", {turn['label']}"
    return f.Quote(label, text, block, turn["role"] == "tool", bool(turn["truncated"]))


def _label(role: str, tool: str | None, ts: str | None) -> str:
    return " ".join(part for part in (role, tool, (ts or "")[:16].replace("T", " ")) if part)


def _day(ts: str | None) -> str:
    return (ts or "undated")[:10]
