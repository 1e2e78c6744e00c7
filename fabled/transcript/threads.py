"""Resolves which thread each record of a group of sessions belongs to, and which records are copies of a fork.

Subagents that lie in files of their own join a thread as a whole: `attach`. Storing the answer is left to `store`.

How a membership is found, for a main-chain record:
 1. it carries a promptId: that thread. A copy in a forked session takes what its original has (a fork of client
    2.1.332 gives all copies one new promptId, CLIENT 2);
 2. it starts a thread by itself (a prompt, a compaction's summary, a task notification, local commands): its uuid;
 3. its parent's thread, however far up, whichever file holds the parent;
 4. no parent known: the thread of the call its result answers; else, in a file without any promptId, the thread of
    the record before it, or a thread of its own; in a file with promptIds it stays unattached (RULES 14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .record import uuid_text
from .text import COMMAND, FORKED, NOTICE, QUEUED, SIDECHAIN, STARTS


@dataclass(slots=True)
class Node:
    """What membership needs to know of one record."""

    id: int
    session: int
    uuid: bytes
    parent: bytes | None
    prompt: str | None
    kind: int
    flags: int
    spoken: bool
    """of type user or assistant"""
    in_agent: bool
    """lies in a subagent's own file"""


@dataclass(slots=True)
class Session:
    """One session's records in file order, file by file (generations first, the live transcript last)."""

    id: int
    name: str
    forks: dict[int, str] = field(default_factory=dict)
    """record → the session its `forkedFrom` names"""
    files: list[tuple[int, list[Node]]] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    """hash of a tool_use id → record of the call"""
    answers: dict[int, int] = field(default_factory=dict)
    """record of a result → hash of the tool_use id it answers"""
    tasks: dict[int, int] = field(default_factory=dict)
    """hash of a Task's prompt → record of the call"""
    aliases: dict[int, bytes] = field(default_factory=dict)
    """record → what its children call it, where its uuid has no uuid form"""
    sides: dict[int, int] = field(default_factory=dict)
    """root of an inline sidechain → hash of its text"""


@dataclass(slots=True)
class FileState:
    """What tail-only indexing needs to go on where a file ended."""

    has_prompts: bool = False
    guessed: bool = False
    current: str | None = None


@dataclass(slots=True)
class Resolution:
    """record id → thread key (None: unattached); copies → the record they are copies of."""

    keys: dict[int, str | None] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    states: dict[int, FileState] = field(default_factory=dict)


def originals(sessions: Sequence[Session], nodes: Mapping[tuple[int, bytes], Node]) -> dict[int, int]:
    """For every record that several sessions hold: copy → original.

    The original lies in the session `forkedFrom` names, else where the shared records carry the most different
    promptIds, ties by the smaller session id (DESIGN); never decided by indexing order.
    """
    holders: dict[bytes, list[Node]] = {}
    for node in nodes.values():
        if len(node.uuid) == 16:
            holders.setdefault(node.uuid, []).append(node)
    shared = {uuid: found for uuid, found in holders.items() if len(found) > 1}
    if not shared:
        return {}
    by_id = {session.id: session for session in sessions}
    by_name = {session.name: session.id for session in sessions}
    prompts: dict[int, set[str]] = {session.id: set() for session in sessions}
    for found in shared.values():
        for node in found:
            if node.prompt is not None and node.session in prompts:
                prompts[node.session].add(node.prompt)

    def rank(node: Node) -> tuple[int, str]:
        return -len(prompts.get(node.session, ())), by_id[node.session].name if node.session in by_id else ""

    copies: dict[int, int] = {}
    for found in shared.values():
        here = {node.session for node in found}
        firsts = []
        for node in found:
            source = by_id[node.session].forks.get(node.id) if node.session in by_id else None
            if not (node.flags & FORKED and source is not None and by_name.get(source) in here - {node.session}):
                firsts.append(node)
        original = min(firsts or found, key=rank)
        for node in found:
            if node is not original:
                copies[node.id] = original.id
    return copies


def resolve(sessions: Sequence[Session]) -> Resolution:
    """Memberships of all records of a group of sessions that share records. Linear, iterative, cycle-safe."""
    result = Resolution()
    nodes: dict[tuple[int, bytes], Node] = {}
    beside: dict[int, dict[bytes, Node]] = {}  # record → the records of the first file that holds it
    by_id: dict[int, Node] = {}
    names = {session.id: session.name for session in sessions}
    for session in sorted(sessions, key=lambda s: s.name):
        for _, listed in session.files:
            inside: dict[bytes, Node] = {}
            for node in listed:
                alias = session.aliases.get(node.id, node.uuid)
                inside.setdefault(alias, node)
                nodes.setdefault((node.session, alias), node)
                beside.setdefault(node.id, inside)
                by_id.setdefault(node.id, node)
    own = {key: node for key, node in nodes.items() if node.session in names}
    result.copies = originals(sessions, own)

    top: dict[int, int] = {}  # record → the record its membership comes from
    key_of: dict[int, str | None] = {}

    def up(node: Node) -> Node | None:
        """The record whose thread this one shares without a reason of its own."""
        original = result.copies.get(node.id)
        if original is not None:
            return by_id[original]
        if node.in_agent or node.prompt is not None:
            return None
        parent = None
        if node.parent is not None:
            parent = nodes.get((node.session, node.parent)) or beside[node.id].get(node.parent)
            if parent is not None and parent.in_agent:
                parent = None
        if node.flags & STARTS and not node.flags & SIDECHAIN:
            chained = node.kind == COMMAND and parent is not None and parent.kind == COMMAND
            return parent if chained and parent is not None and parent.flags & STARTS else None
        return parent

    for node in by_id.values():
        path: list[Node] = []
        on_path: set[int] = set()
        at: Node | None = node
        end = node.id
        while at is not None:
            if at.id in top:
                end = top[at.id]
                break
            if at.id in on_path:  # a cycle: any member, but not by numbers, which depend on the order of indexing
                round_ = path[[n.id for n in path].index(at.id) :]
                end = min(round_, key=lambda n: (names.get(n.session, ""), n.uuid)).id
                break
            path.append(at)
            on_path.add(at.id)
            end = at.id
            at = up(at)
        for passed in path:
            top[passed.id] = end

    for node in by_id.values():
        if top[node.id] == node.id and not node.in_agent and result.copies.get(node.id) is None:
            if node.prompt is not None:
                key_of[node.id] = node.prompt
            elif node.flags & STARTS and not node.flags & SIDECHAIN:
                key_of[node.id] = uuid_text(node.uuid)

    by_number = {session.id: session for session in sessions}
    for session in sorted(sessions, key=lambda s: s.name):
        for file, listed in session.files:
            if file in result.states:
                continue  # a file of several sessions, told with the first of them
            state = result.states[file] = FileState()
            state.has_prompts = any(node.prompt is not None and not node.in_agent for node in listed)
            for node in listed:
                owner = by_number.get(node.session)
                if node.in_agent:
                    continue
                if len(node.uuid) != 16 and not node.spoken:
                    if owner is not None and node.kind in (QUEUED, NOTICE) and node.id not in result.keys:
                        result.keys[node.id] = state.current
                    continue
                root = top[node.id]
                if root == node.id and root not in key_of and owner is not None:
                    key_of[root] = _top_key(node, owner, state, top, key_of)
                key = key_of.get(root)
                if node.spoken and not node.flags & SIDECHAIN and key is not None:
                    state.current = key
    for node in by_id.values():
        if node.session in names and not node.in_agent and (len(node.uuid) == 16 or node.spoken):
            result.keys[node.id] = key_of.get(top[node.id])
    return result


def _top_key(
    node: Node, session: Session, state: FileState, top: Mapping[int, int], key_of: Mapping[int, str | None]
) -> str | None:
    """The thread of a record that has no known parent and no reason of its own."""
    if node.flags & SIDECHAIN:
        call = session.tasks.get(session.sides.get(node.id, 0)) if node.id in session.sides else None
    else:
        answered = session.answers.get(node.id)
        call = session.calls.get(answered) if answered is not None else None
    if call is not None and call in top:
        key = key_of.get(top[call])
        if key is not None:
            return key
    alone = (
        uuid_text(node.uuid) if node.flags & SIDECHAIN and node.parent is None else None
    )  # a subagent nobody launched
    if state.has_prompts:
        return alone
    state.guessed = True
    if state.current is None and node.spoken:
        return alone or uuid_text(node.uuid)
    return state.current


@dataclass(frozen=True, slots=True)
class Agent:
    """A subagent: its own thread key, and the records that may have launched it, best evidence first."""

    name: int
    own_key: str
    launchers: tuple[int, ...]


def attach(
    agents: Iterable[Agent], agent_of: Mapping[int, int | None], thread_of: Mapping[int, str | None]
) -> dict[int, str]:
    """Thread key of each subagent: that of the record that launched it, through other subagents where nested.

    `agent_of` and `thread_of` tell of each launcher which subagent's file it lies in and its thread.
    """
    known = {agent.name: agent for agent in agents}
    found: dict[int, str] = {}
    for agent in known.values():
        at, passed = agent, {agent.name}
        while True:
            step = None
            for record in at.launchers:
                inside = agent_of.get(record)
                if inside is None:
                    key = thread_of.get(record)
                    if key is not None:
                        found[agent.name] = key
                        break
                elif inside in known and inside not in passed:
                    step = known[inside]
                    break
            if agent.name in found:
                break
            if step is None:
                found[agent.name] = at.own_key
                break
            passed.add(step.name)
            at = step
    return found
