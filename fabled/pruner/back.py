"""Puts a live transcript back: undoes the last prune, or restores a generation, or all that is kept of a session.

How lines are put together is `compose`'s to say; replacing the file is the pruner's, with the same safety as a prune.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

from ..errors import BadRequest, NotFound, Refused
from ..store import generations, owners
from ..store.files import Scratch
from ..store.ledger import Entry, Kept
from ..store.replace import Held, create, hold
from ..transcript import sent
from . import compose, due
from .compose import State
from .due import Refusal
from .verb import Pruner, each, in_one_line, quiet_for, refused, unanswered

_VERSION = re.compile(r"v?(\d{1,9})(-raw|-pruned)?")


@in_one_line()
def undo(pruner: Pruner, session_id: str, apply: bool = False) -> dict[str, Any]:
    """Takes back the last prune of a session; what was appended since stays. Without `apply` it only says so.

    Raises NotFound, StorageFault; a rule that forbids it is in the value's `refused`.
    """
    path = pruner.live(session_id)
    found: list[Refusal] = []
    value: dict[str, Any] = _value(session_id, "undo", path)
    entry = _to_undo(pruner, session_id, path)
    if entry is None:
        found.append(Refusal("nothing", "no prune of it is there to be undone"))
        return _told(value, found)
    try:
        pruner.resting(path)
        held = hold(path, reserve_bytes=pruner.config.capture.reserve_bytes)
    except Refused as fault:
        return _told(value, [Refusal(fault.reason or fault.code, fault.message)])
    scratch = pruner.scratch()
    try:
        found += _allowed(pruner, session_id, held)
        assert entry.generation is not None
        made, check = entry.made
        if held.length < made or _sum(held, made) != check:
            raise refused(
                "changed", f"the transcript is not what the prune left of it; fabled restore {session_id} puts back "
                "all that is kept",
            )  # fmt: skip
        value["source"] = _name(entry.generation)
        with ExitStack() as stack:
            source = stack.enter_context(pruner.source(pruner.capturer.standing(entry.generation)))
            if source.sha256(0, entry.base_length) != entry.base_sha:
                raise refused("generation", f"{entry.generation} does not hold what it held; nothing was changed")
            each(scratch.write, _chunks(source.read, 0, entry.base_length))
            each(scratch.write, _chunks(held.read, made, held.length))
        _measure(value, held, scratch)
        value["lines_kept"] = sum(data.count(b"\n") for data in _chunks(held.read, made, held.length))
        if apply and not found:
            pruner.replace(session_id, held, "undo", entry.level, None, scratch, {"undoes": entry.id})
            value["applied"] = True
    except Refused as fault:
        found.append(Refusal(fault.reason or fault.code, fault.message))
    finally:
        scratch.close()
        held.close()
    return _told(value, found)


def _to_undo(pruner: Pruner, session_id: str, path: str) -> Entry | None:
    """The newest prune that is not undone yet. The transcript may have moved to another project folder since."""
    journal = [one for one in pruner.ledger.journal(session_id) if one.path == path or not os.path.lexists(one.path)]
    undone = {
        json.loads(one.report or "{}").get("undoes")
        for one in journal
        if one.what == "undo" and one.state in ("linked", "replaced", "done")
    }
    for one in reversed(journal):
        if one.what == "prune" and one.state in ("replaced", "done") and one.id not in undone:
            return one
    return None


@in_one_line()
def restore(
    pruner: Pruner,
    session_id: str,
    generation: str | None = None,
    full: bool = False,
    to: str | None = None,
    apply: bool = False,
) -> dict[str, Any]:
    """Puts back a generation, or (`full`, and where none is named) everything that is kept of a session.

    Lines that only the live transcript has stay, behind what is put back. `to`: into that new file instead of the live
    transcript. Missing subagents and tool results come back, too. Raises NotFound, BadRequest, StorageFault.
    """
    all_kept = pruner.ledger.kept(session_id)
    kept = [one for one in all_kept if one.retired_at is None]
    main = [one for one in (kept if generation is None else all_kept) if one.part == ""]
    try:
        path = pruner.live(session_id)
    except NotFound:
        path = _home_of(pruner, _ordered(main), session_id) if main else ""
    # A session may lie in several project folders, or have moved: what was kept where it lives now comes before the
    # rest, and another transcript of that name, which is still there, is none of its states.
    folder = os.path.basename(os.path.dirname(path))
    here = [one for one in main if one.folder == folder]
    gone = [one for one in main if one.folder != folder and not os.path.lexists(one.origin)]
    chosen = _chosen(here, gone, session_id, generation)
    full = full or generation is None
    kept = [one for one in kept if one.folder == folder or not here]
    if to is not None:
        return _to_file(pruner, session_id, path, chosen, full, to, apply)
    value = _value(session_id, "restore", path)
    value["source"] = "full" if full else f"v{chosen[-1].number}"
    missing = [one for one in _latest(kept) if not os.path.lexists(one.origin)]
    value["side_files"] = [one.origin for one in missing]
    if not os.path.lexists(path):
        return _made_anew(pruner, session_id, path, chosen, missing, value, apply)
    found: list[Refusal] = []
    try:
        pruner.resting(path)
        held = hold(path, reserve_bytes=pruner.config.capture.reserve_bytes)
    except Refused as fault:
        return _told(value, [Refusal(fault.reason or fault.code, fault.message)])
    scratch = pruner.scratch()
    try:
        found += _allowed(pruner, session_id, held)
        with ExitStack() as stack:
            states = _states(pruner, chosen, stack)
            states.append(State(held.read, held.length))
            tail = held.read(held.length, held.size - held.length)
            _compose(states, full, scratch, value, tail)
        _measure(value, held, scratch)
        if scratch.sha256() == held.sha256() and scratch.length == held.length:
            if not missing:
                found.append(Refusal("nothing", "the live transcript already holds all of it"))
        elif apply and not found:
            now = pruner.capturer.hold(path, held.length)
            pruner.replace(session_id, held, "restore", value["source"], now, scratch, {})
            pruner.ledger.accept(path)
            value["applied"] = True
            value["generation"] = _name(now.path)
        if apply and not found:
            _side_files(pruner, missing)
            value["applied"] = True
    except Refused as fault:
        found.append(Refusal(fault.reason or fault.code, fault.message))
    finally:
        scratch.close()
        held.close()
    return _told(value, found)


def _chosen(here: Sequence[Kept], gone: Sequence[Kept], session_id: str, generation: str | None) -> list[Kept]:
    """The generations asked for, the oldest first: one, or all. `gone`: from folders it does not live in any more."""
    main = [*_ordered(gone), *_ordered(here)]
    if not main:
        raise NotFound(f"the Vault holds no generation of session {session_id}", f"fabled capture {session_id}")
    if generation is None:
        return main
    match = _VERSION.fullmatch(generation)
    if match is None:
        raise BadRequest(f"{generation[:40]!r} names no generation", f"fabled generations {session_id} lists them")
    found = [one for one in main if one.number == int(match[1]) and (not match[2] or match[2] == f"-{one.kind}")]
    if not found:
        have = ", ".join(f"v{one.number}" for one in main)
        raise NotFound(f"session {session_id} has no generation v{int(match[1])}", f"there are {have}")
    return found[-1:]


def _ordered(main: Sequence[Kept]) -> list[Kept]:
    return sorted(main, key=lambda one: (one.at, one.number))


def _home_of(pruner: Pruner, main: Sequence[Kept], session_id: str) -> str:
    """Where the transcript of a session that is gone stood."""
    newest = main[-1]
    base = pruner.vault.base_of(newest.origin) if newest.origin else None
    if base is not None and base in pruner.vault.roots:
        return newest.origin
    return os.path.join(pruner.vault.roots[0], newest.folder, f"{session_id}.jsonl")


def _latest(kept: Sequence[Kept]) -> list[Kept]:
    """The newest generation of each file beside the transcript."""
    found = {(one.folder, one.part): one for one in kept if one.part}
    return [one for one in found.values() if one.origin]


def _states(pruner: Pruner, chosen: Sequence[Kept], stack: ExitStack) -> list[State]:
    states = []
    for one in chosen:
        source = stack.enter_context(pruner.source(pruner.capturer.standing(one.path)))
        states.append(State(source.read, one.logical))
    return states


def _compose(states: Sequence[State], full: bool, scratch: Scratch, value: dict[str, Any], tail: bytes = b"") -> None:
    picks = compose.union(states, longest=full)
    live = len(states) - 1
    value["lines_restored"] = sum(pick.state != live for pick in picks)
    value["lines_kept"] = sum(pick.state == live for pick in picks)
    compose.write(states, picks, scratch.write, end=tail)


def _made_anew(
    pruner: Pruner,
    session_id: str,
    path: str,
    chosen: Sequence[Kept],
    missing: Sequence[Kept],
    value: dict[str, Any],
    apply: bool,
) -> dict[str, Any]:
    """The live transcript is gone: made again, at the time of now, or the client's clean-up would take it at once."""
    scratch = pruner.scratch()
    try:
        with ExitStack() as stack:
            states = _states(pruner, chosen, stack)
            picks = compose.union(states, longest=len(chosen) > 1)
            compose.write(states, picks, scratch.write)
        value["lines_restored"] = len(picks)
        value["after_bytes"] = scratch.length
        value["est_tokens_after"] = sent.tokens(sent.view(scratch.lines()))
        if apply:
            entry = pruner.ledger.begin(
                {
                    "session_id": session_id, "path": path, "what": "restore", "level": value["source"],
                    "at": int(time.time()), "state": "begun", "generation": chosen[-1].path, "base_length": 0,
                    "base_sha": b"", "report": "{}",
                }
            )  # fmt: skip
            try:
                create(path, scratch.chunks(), pruner.ledger, entry, pruner.step)
            except BaseException:
                if pruner.ledger.entry(entry).state == "begun":
                    pruner.ledger.set(entry, state="given_up")
                raise
            _side_files(pruner, missing)
            pruner.indexer.update([path], count=False)
            value["applied"] = True
    except Refused as fault:
        return _told(value, [Refusal(fault.reason or fault.code, fault.message)])
    finally:
        scratch.close()
    return _told(value, [])


def _side_files(pruner: Pruner, missing: Sequence[Kept]) -> None:
    """Files beside the transcript that are gone, each made anew; one that came back meanwhile is left alone."""
    for one in missing:
        with pruner.source(one.path) as source:
            _put(one.origin, _chunks(source.read, 0, source.size))
        described = generations.meta_of(one.path)
        if one.origin.endswith(".jsonl") and (meta := generations.read_meta(described)) is not None:
            _put(one.origin.removesuffix(".jsonl") + ".meta.json", [meta])
    if missing:
        pruner.indexer.update([one.origin for one in missing if one.origin.endswith(".jsonl")], count=False)


def _put(path: str, chunks: Iterable[bytes]) -> bool:
    """A file that is not there; False if it is."""
    try:
        create(path, chunks, None, None)
    except Refused as fault:
        if fault.reason != "exists":
            raise
        return False
    return True


def _to_file(
    pruner: Pruner, session_id: str, path: str, chosen: Sequence[Kept], full: bool, to: str, apply: bool
) -> dict[str, Any]:
    """Into a file of the caller's own: a generation as it is, or the union with the live transcript."""
    to = os.path.abspath(to)
    if pruner.vault.base_of(os.path.realpath(to)) is not None:
        raise BadRequest(f"{to} lies among the transcripts or in the Vault", "name a file outside of them")
    if not os.path.isdir(os.path.dirname(to)):
        raise BadRequest(f"there is no folder {os.path.dirname(to)}", "make it, or name another")
    value = _value(session_id, "restore", to)
    value["source"] = "full" if full else f"v{chosen[-1].number}"
    if os.path.lexists(to):
        return _told(value, [Refusal("exists", f"{to} is there already; it was left as it is")])
    scratch = pruner.scratch()
    try:
        with ExitStack() as stack:
            states = _states(pruner, chosen, stack)
            if full and os.path.exists(path):
                live = stack.enter_context(pruner.source(path))
                states.append(State(live.read, live.size))
            picks = compose.union(states, longest=full)
            compose.write(states, picks, scratch.write)
        value["lines_restored"] = len(picks)
        value["after_bytes"] = scratch.length
        if apply:
            if not _put(to, scratch.chunks()):
                return _told(value, [Refusal("exists", f"{to} is there already; it was left as it is")])
            value["applied"] = True
    finally:
        scratch.close()
    return _told(value, [])


def _allowed(pruner: Pruner, session_id: str, held: Held) -> list[Refusal]:
    refusal = due.may_touch(
        owners.live(pruner.config.places.claude, session_id),
        quiet_for(held.path),
        unanswered(held),
        "gentle",
        pruner.config.prune,
    )
    return [refusal] if refusal is not None else []


def _measure(value: dict[str, Any], held: Held, scratch: Scratch) -> None:
    tail = held.size - held.length
    value["before_bytes"] = held.size
    value["after_bytes"] = scratch.length + tail
    value["est_tokens_before"] = sent.tokens(sent.view(held.lines()))
    value["est_tokens_after"] = sent.tokens(sent.view(scratch.lines()))


def _chunks(read: Callable[[int, int], bytes], start: int, end: int) -> Iterator[bytes]:
    while start < end and (data := read(start, min(1 << 20, end - start))):
        yield data
        start += len(data)


def _sum(held: Held, length: int) -> bytes:
    check = sha256()
    for data in _chunks(held.read, 0, length):
        check.update(data)
    return check.digest()


def _name(path: str) -> str:
    return os.path.basename(path).split(".", 1)[0]


def _value(session_id: str, what: str, path: str) -> dict[str, Any]:
    return {
        "session_id": session_id, "what": what, "applied": False, "path": path, "source": None, "before_bytes": 0,
        "after_bytes": 0, "lines_restored": 0, "lines_kept": 0, "side_files": [], "refused": [], "generation": None,
        "est_tokens_before": 0, "est_tokens_after": 0,
    }  # fmt: skip


def _told(value: dict[str, Any], found: Sequence[Refusal]) -> dict[str, Any]:
    value["refused"] = [{"code": one.code, "message": one.message} for one in found]
    return value
