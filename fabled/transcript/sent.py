"""Says what the client would send of a transcript when the session is resumed: the model view (PRUNING, I11).

Which of it may go is left to `rules`, whether it went rightly to `proof`. Checked against the real client.

How the client reads a transcript. A later record with the same uuid takes the place of an earlier one. A progress
record is no link of the chain: whoever names one as parent hangs on its parent, if the progress record came first. If
the last compaction keeps messages by reference, they are put behind its summary, whatever hung on the summary hangs on
the last of them, all else from before the compaction is forgotten and its children hang on the last one too; if one of
them is missing, nothing of this happens. The leaf is the last record of the main chain, or the newest below it;
`last-prompt` may name another, which counts unless it is an ancestor. From the leaf the chain goes up by parent; where
a parent is unknown it goes on with the main-chain record that is up to five seconds older by its timestamp. It ends at
the newest compaction. Records of the same API message off the chain (parallel calls) and all results of its calls are
put back. Calls without result and results without call are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from .said import THOUGHTS, Block, Chosen, Said, digest, first_object, heard

CALL = "tool_use"
BRIDGED_SECONDS = 5.0

View = tuple[Block, ...]
"""What would be sent, in order."""


def view(lines: Iterable[bytes]) -> View:
    """What the client would send of a transcript."""
    return assemble(heard(first_object(line)) for line in lines)


def tokens(seen: View) -> int:
    """How many tokens that is, estimated at four characters each."""
    return sum(block.chars for block in seen) // 4


@dataclass(slots=True)
class _Loaded:
    """A transcript as the client holds it in memory."""

    records: dict[str, Said] = field(default_factory=dict)
    """in the order of their first line"""
    last_line: dict[str, int] = field(default_factory=dict)
    chosen: str | None = None


def assemble(heard_of: Iterable[Said | Chosen | None]) -> View:
    """What would be sent, given what each line says."""
    loaded = _load(heard_of)
    leaf = _leaf(loaded, frozenset(relink(loaded.records)))
    if leaf is None:
        return ()
    chain = _chain(loaded.records, leaf)
    return tuple(_emit(loaded.records, chain))


def _load(heard_of: Iterable[Said | Chosen | None]) -> _Loaded:
    loaded = _Loaded()
    through: dict[object, object] = {}  # progress record → the parent that counts in its place
    for number, said in enumerate(heard_of):
        if said is None:
            continue
        if type(said) is Chosen:
            loaded.chosen = said.leaf
            continue
        assert type(said) is Said
        parent = through.get(said.parent, said.parent) if type(said.parent) is str else said.parent
        if said.type == "progress":
            through[said.uuid] = parent
            continue
        if parent is not said.parent:
            said = replace(said, parent=parent)
        loaded.records[said.uuid] = said
        loaded.last_line[said.uuid] = number
    return loaded


def relink(records: dict[str, Said]) -> tuple[str, ...]:
    """Puts what the last compaction keeps behind its summary, and forgets what it has replaced; says what it keeps."""
    naming = last = None
    for said in records.values():
        if said.boundary:
            last = said
            if said.kept is not None or said.segment is not None:
                naming = said
    if naming is None or last is None:
        return ()
    kept: tuple[str, ...] = ()
    if naming is last:
        found = _kept(records, naming)
        if found is None:
            return ()
        kept = found
    inside = set(kept)
    gone: set[str] = set()
    for uuid in records:
        if uuid == last.uuid:
            break
        if uuid not in inside:
            gone.add(uuid)
    for uuid in gone:
        del records[uuid]
    if not kept:
        return ()
    for before, uuid in zip((naming.anchor, *kept[:-1]), kept, strict=True):
        records[uuid] = replace(records[uuid], parent=before)
    for uuid, said in records.items():
        if uuid not in inside and (said.parent in gone or (said.parent == naming.anchor and said.parent is not None)):
            records[uuid] = replace(said, parent=kept[-1])
    return kept


def _kept(records: dict[str, Said], boundary: Said) -> tuple[str, ...] | None:
    """What a compaction keeps, None where a part of it is missing."""
    if boundary.kept is not None:
        return boundary.kept if all(uuid in records for uuid in boundary.kept) else None
    assert boundary.segment is not None
    head, at = boundary.segment
    path: dict[str, None] = {}
    while at in records and at not in path:
        path[at] = None
        if at == head:
            return tuple(reversed(path))
        up = records[at].parent
        if type(up) is not str:
            return None
        at = up
    return None


def _leaf(loaded: _Loaded, moved: frozenset[str]) -> Said | None:
    records = loaded.records
    main = [uuid for uuid, said in records.items() if not said.sidechain]
    if not main:
        return None
    line = loaded.last_line
    newest: dict[object, str] = {}  # parent → its newest main-chain child
    for uuid in main:
        parent = records[uuid].parent
        if parent not in newest or line[newest[parent]] < line[uuid]:
            newest[parent] = uuid
    at = max(main, key=line.__getitem__)
    seen = {at}
    while (below := newest.get(at)) is not None and below not in seen:
        if below not in moved and _older(records[below], records[at]):
            break
        at = below
        seen.add(at)
    chosen = records.get(loaded.chosen) if loaded.chosen is not None else None
    if chosen is not None and all(said is not chosen for said in _up(records, records[at])):
        return None if chosen.sidechain else chosen
    return records[at]


def _older(said: Said, than: Said) -> bool:
    first, second = _moment(said.at), _moment(than.at)
    return first is not None and second is not None and first < second


def _up(records: dict[str, Said], leaf: Said) -> Iterator[Said]:
    """A record and its ancestors, as far as they are known by name."""
    seen: set[str] = set()
    at: Said | None = leaf
    while at is not None and at.uuid not in seen:
        seen.add(at.uuid)
        yield at
        at = records.get(at.parent) if type(at.parent) is str else None


def _chain(records: dict[str, Said], leaf: Said) -> list[Said]:
    """The records from the root (or the newest compaction) down to the leaf."""
    bridges: list[tuple[float, Said]] | None = None
    path = {leaf.uuid: leaf}
    at = leaf
    while at.parent is not None:
        up = records.get(at.parent) if type(at.parent) is str else None
        if up is None:
            if bridges is None:
                bridges = _by_time(records)
            up = _bridge(bridges, at, path)
        if up is None or up.uuid in path:
            break
        path[up.uuid] = up
        at = up
    chain: list[Said] = []
    for said in path.values():
        chain.append(said)
        if said.boundary:
            break
    chain.reverse()
    return chain


def _by_time(records: dict[str, Said]) -> list[tuple[float, Said]]:
    found = []
    for said in records.values():
        if not said.sidechain and (moment := _moment(said.at)) is not None:
            found.append((moment, said))
    return sorted(found, key=lambda pair: pair[0])


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _bridge(by_time: Sequence[tuple[float, Said]], below: Said, path: dict[str, Said]) -> Said | None:
    """The newest main-chain record up to five seconds older, the first in the file where several are."""
    moment = _moment(below.at)
    if moment is None:
        return None
    best: tuple[float, Said] | None = None
    low, high = 0, len(by_time)
    while low < high:
        middle = (low + high) // 2
        if by_time[middle][0] <= moment:
            low = middle + 1
        else:
            high = middle
    for at in range(low - 1, -1, -1):
        when, said = by_time[at]
        if moment - when > BRIDGED_SECONDS or (best is not None and when < best[0]):
            break
        if said.uuid not in path:
            best = (when, said)
    return best[1] if best is not None else None


def _emit(records: dict[str, Said], chain: Sequence[Said]) -> Iterator[Block]:
    """The blocks of a chain, with parallel calls and results put back and unpaired ones left out."""
    on_chain = {said.uuid for said in chain}
    names = {said.message for said in chain if said.message is not None}
    parts: dict[str, list[Said]] = {}
    for said in chain:
        if said.message is not None:
            parts.setdefault(said.message, []).append(said)
    for said in records.values():
        if said.message in names and said.uuid not in on_chain:
            parts[said.message or ""].append(said)
    answers = _answers(records, on_chain, parts)
    order = {block.tool_id: number for number, block in enumerate(answers.values())}
    last = max((n for n, said in enumerate(chain) if said.type in ("user", "assistant")), default=-1)
    asked: set[str] = set()
    told: set[str] = set()
    for number, said in enumerate(chain):
        if said.type != "assistant":
            told_blocks = [block for block in said.blocks if block.kind != "tool_result"]
            yield from (block for block in told_blocks if block.digest != _EMPTY or len(said.blocks) == 1)
            continue
        if said.message in told:
            continue
        if said.message is not None:
            told.add(said.message)
        group = parts[said.message] if said.message is not None else [said]
        open_end = number == last or all(one in group for one in chain[number:] if one.type in ("user", "assistant"))
        said_blocks = [block for one in group for block in _spoken(one, answers, asked, open_end)]
        if all(block.kind in THOUGHTS for block in said_blocks):
            continue
        yield from (block for block in said_blocks if block.kind != CALL)
        calls = [block for block in said_blocks if block.kind == CALL]
        yield from calls
        results = [answers[call.tool_id] for call in calls if call.tool_id in answers]
        yield from sorted(results, key=lambda block: order[block.tool_id])


def _answers(records: dict[str, Said], on_chain: set[str], parts: dict[str, list[Said]]) -> dict[str, Block]:
    """tool id → its first result in file order: on the chain, or put back for a message of it."""
    asked: dict[str, set[str]] = {}  # tool id → the records of the message that asks for it
    for group in parts.values():
        names = {said.uuid for said in group}
        for said in group:
            asked.update((block.tool_id, names) for block in said.blocks if block.kind == CALL and block.tool_id)
    found: dict[str, Block] = {}
    for said in records.values():
        if said.type != "user":
            continue
        for block in said.blocks:
            if block.kind != "tool_result" or block.tool_id is None or block.tool_id in found:
                continue
            names = asked.get(block.tool_id, set())
            if said.uuid in on_chain or (names and (not said.sidechain or said.parent in names)):
                found[block.tool_id] = block
    return found


def _spoken(said: Said, answers: dict[str, Block], asked: set[str], open_end: bool) -> list[Block]:
    """What is sent of an assistant record: nothing where it holds calls and none of them was answered."""
    calls = [block.tool_id for block in said.blocks if block.kind == CALL]
    if calls and not open_end and not any(call in answers for call in calls):
        return []
    found = []
    for block in said.blocks:
        if block.kind == CALL and block.tool_id is not None:
            if block.tool_id in asked:
                continue
            asked.add(block.tool_id)
        if block.kind == "text" and block.chars == 0:
            continue
        found.append(block)
    return found


_EMPTY = digest("")
