"""Keeps threads: which records they hold, which are a fork's copies, which subagents joined them, what they count.

The rules are `transcript.threads`; here they are fed from the Map and their answers stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..transcript import text as t
from ..transcript import threads as th
from ..transcript.record import uuid_text
from . import schema as s
from .batch import AGENTS, COUNTED, MEMBERSHIP, TITLE_RANK, Reread, short_key, title_of
from .map import Map


class Memberships:
    """Works on the writer's connection; each call is one transaction."""

    def __init__(self, map_: Map, reread: Reread) -> None:
        self.map = map_
        self.db: Any = map_.db
        self._reread = reread

    def settle(self, session: int, what: int) -> list[int]:
        """Works out the memberships of a session anew, with all sessions that share records with it.

        Returns the files whose state changed with that.
        """
        if what & MEMBERSHIP:
            group = self._group(session)
            loaded = [self._load(number) for number in group]
            resolution = th.resolve(loaded)
            with self.map.transaction("memberships"):
                self._apply(loaded, resolution)
                for number in group:
                    self._attach(number)
                    self.map.set_project(number)
                    self._drop_empty(number)
                    self.db.execute("DELETE FROM dirty WHERE session=?", (number,))
            return list(resolution.states)
        elif what & AGENTS:
            with self.map.transaction("subagents"):
                self._attach(session)
                self.db.execute("DELETE FROM dirty WHERE session=?", (session,))
        return []

    def _drop_empty(self, session: int) -> None:
        """Forgets a session that no file holds any more."""
        if self.db.execute("SELECT 1 FROM file_sessions WHERE session=? LIMIT 1", (session,)).fetchone() is None:
            self.db.execute("INSERT OR IGNORE INTO terms_due SELECT id FROM threads WHERE session=?", (session,))
            for sql in (
                "threads WHERE session=?1",
                "links WHERE session=?1",
                "shares WHERE ?1 IN (a,b)",
                "sessions WHERE id=?1",
            ):
                self.db.execute(f"DELETE FROM {sql}", (session,))
            self.map._sessions.clear()
            self.map._threads.clear()

    def _group(self, session: int) -> list[int]:
        """The sessions whose memberships depend on each other: they share records, or a file holds both."""
        found, waiting = {session}, [session]
        while waiting:
            for (other,) in self.db.execute(
                "SELECT b FROM shares WHERE a=?1 UNION SELECT o.session FROM file_sessions a JOIN files f ON "
                "f.id=a.file AND f.agent IS NULL JOIN file_sessions o ON o.file=a.file WHERE a.session=?1",
                (waiting.pop(),),
            ):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return sorted(found)

    def _load(self, session: int) -> th.Session:
        row = self.db.execute("SELECT session_id FROM sessions WHERE id=?", (session,)).fetchone()
        result = th.Session(session, row[0] if row else "")
        spoken = {self.map.name("user"), self.map.name("assistant")}
        files = self.db.execute(
            "SELECT f.id FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.id NOT IN (SELECT "
            "file FROM doomed) "
            "ORDER BY f.rank,f.path,f.id",
            (session,),
        ).fetchall()
        nodes: dict[int, th.Node] = {}
        for (file,) in files:
            held = [x for (x,) in self.db.execute("SELECT record FROM copies WHERE file=? ORDER BY offset", (file,))]
            if not nodes.keys() >= set(held):  # generations mostly hold the records of one another
                nodes.update(
                    (i, th.Node(i, se, u, p, pr, k, fl, ty in spoken, ag is not None))
                    for i, se, u, p, pr, k, fl, ty, ag in self.db.execute(
                        "SELECT r.id,r.session,r.uuid,r.parent,n.text,r.kind,r.flags,r.type,r.agent FROM copies c "
                        "JOIN records r ON r.id=c.record LEFT JOIN names n ON n.id=r.prompt WHERE c.file=?",
                        (file,),
                    )
                    if i not in nodes
                )
            result.files.append((file, [nodes[record] for record in held]))
        result.forks.update(
            self.db.execute(
                "SELECT l.record,n.text FROM links l JOIN names n ON n.id=l.key WHERE l.session=? AND l.kind=?",
                (session, s.FORK),
            )
        )
        for kind, key, record in self.db.execute(
            "SELECT l.kind,l.key,l.record FROM links l JOIN records r ON r.id=l.record JOIN files f ON f.id=r.file "
            "WHERE l.session=? ORDER BY f.rank DESC,f.path DESC,r.offset DESC",  # the first in file order stays
            (session,),
        ):
            if kind == s.CALL:
                result.calls[key] = record
            elif kind == s.ANSWER:
                result.answers[record] = key
            elif kind == s.TASK:
                result.tasks[key] = record
            elif kind == s.SIDE:
                result.sides[record] = key
            elif kind == s.ALIAS:
                result.aliases[record] = key.to_bytes(8, "big", signed=True)
        return result

    def _apply(self, loaded: Sequence[th.Session], resolution: th.Resolution) -> None:
        db = self.db
        touched: set[int] = set()
        canonical: dict[int, tuple[str, int]] = {}
        names = {session.id: session.name for session in loaded}
        session_of = {node.id: node.session for session in loaded for _, nodes in session.files for node in nodes}
        where: dict[int, int] = {}
        orphans: list[tuple[int, int, int, int]] = []
        for session in loaded:
            touched.update(x for (x,) in db.execute("SELECT id FROM threads WHERE session=?", (session.id,)))
            known = {node.uuid for _, nodes in session.files for node in nodes}
            known.update(session.aliases.values())
            rows = []
            for _, nodes in session.files:
                for node in nodes:
                    if node.session != session.id or node.id in where or node.in_agent:
                        continue
                    key = resolution.keys.get(node.id)
                    attached = key is not None or node.spoken or node.kind in (t.QUEUED, t.NOTICE)
                    thread = self.map.thread(session.id, key) if attached else None
                    where[node.id] = thread or 0
                    original = resolution.copies.get(node.id)
                    rows.append((thread, 0 if original is None else 1, node.id))
                    if (len(node.uuid) == 16 or node.spoken) and node.parent is not None and node.parent not in known:
                        orphans.append((session.id, s.ORPHAN, short_key(node.parent), node.id))
            db.executemany(
                "UPDATE records SET thread=?1, hidden=(hidden&~1)|?2 WHERE id=?3 AND (thread IS NOT ?1 OR "
                "hidden&1<>?2)",
                rows,
            )
            db.execute("DELETE FROM links WHERE session=? AND kind=?", (session.id, s.ORPHAN))
            self._follow(session)
            db.execute(
                "UPDATE records SET hidden=hidden&~2 WHERE hidden&2 AND id IN (SELECT record FROM links WHERE "
                "session=? AND kind IN (?,?))",
                (session.id, s.SAID_COMMAND, s.SAID_QUEUE),
            )
            db.execute(
                "UPDATE records SET hidden=hidden|2 WHERE id IN (SELECT q.record FROM links q JOIN links p ON "
                "p.session=q.session "
                "AND p.key=q.key AND p.kind BETWEEN ? AND q.kind-1 WHERE q.session=? AND q.kind IN (?,?))",
                (s.SAID_PROMPT, session.id, s.SAID_COMMAND, s.SAID_QUEUE),
            )
            touched.update(x for x in where.values() if x)
        db.executemany("INSERT OR IGNORE INTO links VALUES(?,?,?,?)", orphans)
        for copy, original in resolution.copies.items():
            mine, theirs = where.get(copy), where.get(original)
            if mine and theirs and mine != theirs:
                choice = (
                    names.get(session_of[original], ""),
                    theirs,
                )  # by name: numbers depend on the order of indexing
                canonical[mine] = min(choice, canonical.get(mine, choice))
        for session in loaded:
            db.execute("UPDATE threads SET canonical=NULL WHERE session=? AND canonical IS NOT NULL", (session.id,))
            for file, state in resolution.states.items():
                if file in {number for number, _ in session.files}:
                    db.execute(
                        "UPDATE files SET has_prompts=?,guessed=?,current=? WHERE id=? AND agent IS NULL",
                        (state.has_prompts, state.guessed, state.current, file),
                    )
        self.map.write_new()
        db.executemany("UPDATE threads SET canonical=? WHERE id=?", ((c, m) for m, (_, c) in canonical.items()))
        self._aggregate(touched)

    def _follow(self, session: th.Session) -> None:
        """What a session's records take from others: a result the tool of its call, the session its origin."""
        tool_of = dict(
            self.db.execute(
                "SELECT r.id,r.tool FROM links l JOIN records r ON r.id=l.record WHERE l.session=? AND l.kind=?",
                (session.id, s.CALL),
            )
        )
        tools = [(tool_of.get(session.calls.get(call, 0)), record) for record, call in session.answers.items()]
        self.db.executemany(
            "UPDATE records SET tool=?1 WHERE id=?2 AND tool IS NOT ?1",
            ((tool, record) for tool, record in tools if record not in tool_of),
        )
        sources = (
            session.forks.get(node.id)
            for _, nodes in session.files
            for node in nodes
            if node.session == session.id and not node.in_agent
        )
        first = next((source for source in sources if source is not None), None)
        self.db.execute("UPDATE sessions SET forked_from=?1 WHERE id=?2 AND forked_from IS NOT ?1", (first, session.id))

    def _attach(self, session: int) -> None:
        """Joins the session's subagents to the threads that launched them (FORMAT 4.3)."""
        db = self.db
        rows = db.execute(
            "SELECT f.agent,n.text,f.meta_call,f.root_prompt,f.root_source,f.root_uuid FROM files f JOIN names n ON "
            "n.id=f.agent "
            "WHERE f.session=? AND f.id NOT IN (SELECT file FROM doomed) ORDER BY f.rank,f.path",
            (session,),
        ).fetchall()
        if not rows:
            return
        agents: dict[int, th.Agent] = {}
        agent_of: dict[int, int | None] = {}
        thread_of: dict[int, str | None] = {}
        merged: dict[int, list[Any]] = {}
        for agent, name, *facts in rows:
            have = merged.setdefault(agent, [name, None, None, None, None])
            for at, value in enumerate(facts, 1):
                if have[at] is None:
                    have[at] = value
        # Of launchers in the same file and thread the first says it all: a long task is named by hundreds of records.
        spawned: dict[int, list[int]] = {}
        seen: set[tuple[int, int | None, int | None]] = set()
        for key, record, inside, number, thread_key in db.execute(
            "SELECT l.key,l.record,r.agent,r.thread,t.prompt FROM links l JOIN records r ON r.id=l.record "
            "JOIN files f ON f.id=r.file LEFT JOIN threads t ON t.id=r.thread WHERE l.session=? AND l.kind=? "
            "ORDER BY f.rank,f.path,r.offset",
            (session, s.SPAWN),
        ):
            if (key, inside, number) not in seen:
                seen.add((key, inside, number))
                spawned.setdefault(key, []).append(record)
                agent_of[record], thread_of[record] = inside, thread_key
        for agent, (name, call, prompt, source, root) in merged.items():
            launchers: list[int] = []
            if call is not None:
                launchers += self.map.linked(session, s.CALL, call)
            launchers += spawned.get(t.key64(name), ())
            if prompt is not None:
                row = db.execute(
                    "SELECT min(r.id) FROM threads h JOIN records r ON r.thread=h.id WHERE h.session=? AND "
                    "h.prompt=? AND r.agent IS NULL",
                    (session, prompt),
                ).fetchone()
                launchers += [x for x in row if x is not None]
            if source is not None:
                launchers += [
                    x for (x,) in db.execute("SELECT id FROM records WHERE uuid=? AND session=?", (source, session))
                ]
            agents[agent] = th.Agent(agent, prompt or (uuid_text(root) if root else f"agent-{name}"), tuple(launchers))
            for record in launchers:
                if record in agent_of:
                    continue
                row = db.execute(
                    "SELECT r.agent,t.prompt FROM records r LEFT JOIN threads t ON t.id=r.thread WHERE r.id=?",
                    (record,),
                ).fetchone()
                agent_of[record], thread_of[record] = row if row else (None, None)
        touched: set[int] = set()
        for agent, key in th.attach(agents.values(), agent_of, thread_of).items():
            thread = self.map.thread(session, key)
            before = [
                x
                for (x,) in db.execute(
                    "SELECT DISTINCT thread FROM records WHERE agent=? AND session=?", (agent, session)
                )
            ]
            if before == [thread]:
                continue
            db.execute(
                "UPDATE records SET thread=? WHERE agent=? AND session=? AND thread IS NOT ?",
                (thread, agent, session, thread),
            )
            touched.add(thread)
            touched.update(x for x in before if x is not None)
        self._aggregate(touched)

    def _aggregate(self, threads: Iterable[int]) -> None:
        """Counts threads anew from their records; empty ones go."""
        db = self.db
        self.map.write_new()
        threads = sorted(threads)
        db.executemany("INSERT OR IGNORE INTO terms_due VALUES(?)", ((thread,) for thread in threads))
        for thread in threads:
            now, *counts = db.execute(
                f"SELECT count(*), min(ts), max(ts), {COUNTED} FROM records WHERE thread=?", (thread,)
            ).fetchone()
            if not now:
                db.execute("DELETE FROM threads WHERE id=?", (thread,))
                db.execute("UPDATE threads SET canonical=NULL WHERE canonical=?", (thread,))
                self.map._threads.clear()
                continue
            db.execute(
                "UPDATE threads SET first_ts=?1,last_ts=?2,turns=?3,said=?4,tokens=?5 WHERE id=?6 AND "
                "(first_ts,last_ts,turns,said,tokens) IS NOT (?1,?2,?3,?4,?5)",
                (*counts, thread),
            )
            self._retitle(thread)

    def _retitle(self, thread: int) -> None:
        """A thread is named by its first prompt, or the next best kind of record it has that says anything."""
        db = self.db
        have = db.execute("SELECT title_record,title_rank,title FROM threads WHERE id=?", (thread,)).fetchone()
        named: tuple[str | None, int | None, int] | None = None
        for record, rank, path, offset, length, digest in self._naming(thread):
            if have == (record, rank, have[2]) and have[2]:
                return
            facts = self._reread(path, offset, length, digest)
            if facts is None:
                return  # it goes on being called as it was
            title = title_of(facts)
            if title or named is None:
                named = title, record, rank
            if title:
                break
        db.execute(
            "UPDATE threads SET title=?,title_record=?,title_rank=? WHERE id=?", (*(named or (None, None, 99)), thread)
        )

    def _naming(self, thread: int) -> Iterator[tuple[int, int, str, int, int, bytes]]:
        """(record, rank, span, digest) of those that may name a thread: of its best kind, in order."""
        ranks = " ".join(f"WHEN {kind} THEN {rank}" for kind, rank in TITLE_RANK.items())
        sql = (
            f"SELECT r.id, CASE r.kind {ranks} ELSE 99 END + 10*(r.agent IS NOT NULL OR r.flags&{t.SIDECHAIN}<>0) AS "
            f"k, f.path, r.offset, r.length, c.digest "
            "FROM records r JOIN files f ON f.id=r.file JOIN copies c ON c.file=r.file AND c.offset=r.offset "
            "WHERE r.thread=? ORDER BY k, f.rank, f.path, r.offset LIMIT ?"
        )
        first = self.db.execute(sql, (thread, 1)).fetchone()
        if first is None or first[1] >= 99:
            return
        yield first
        # Mostly the first says something, and the others are never asked for.
        yield from (row for row in self.db.execute(sql, (thread, -1)).fetchall()[1:] if row[1] == first[1])
