"""Says what the lines of one file become: records with their copies, text, links and threads, or spans without record.

Slices and commits are left to `scan`, tables to `store`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..store.batch import AGENTS, MEMBERSHIP, SAID_KINDS, TITLE_RANK, FileRow, Twin, is_turn, short_key, title_of
from ..store.schema import CALL, ORPHAN, TASK
from ..store.vault import Place, Source
from ..transcript import text as t
from ..transcript.record import DIGEST_BYTES, HUGE_LINE, Line, digest, loads, segments, strict_loads, uuid_text
from .projects import project_of

if TYPE_CHECKING:
    from .scan import Scan

ROW_WEIGHT = 400
TAIL_CHECK = 4_096
"""Bytes before the old end that are compared before growth counts as an append."""


def recalled(data: bytes) -> bool:
    """Whether the bytes of a record hold the name of the sentinel tag."""
    return b"historical_context" in data


class FileScan:
    """The state of reading one file: what its lines become."""

    def __init__(
        self,
        scan: Scan,
        place: Place,
        row: FileRow,
        source: Source,
        old: dict[bytes, int],
        twins: dict[bytes, Twin],
        known: FileRow | None,
        whole: bool,
        homeless: bool = False,
    ) -> None:
        self.scan = scan
        self.map = scan.map
        self.place = place
        self.row = row
        self.source = source
        self.old = old
        """checksum → record of the lines this file held before"""
        self.twins = twins
        """checksum → what is known of a line that another state of this transcript holds"""
        self.homeless = homeless
        """none of the lines that are known names a project"""
        self.elsewhere: str | None = None
        """the last working folder that this file's folder was not named for"""
        self.unlike: set[int] = set()
        """records whose best copy this file has changed: `twins` is behind"""
        self.met: set[int] = set()
        """sessions of the lines found in `twins`"""
        self.orders: dict[int, tuple[int, str]] = {row.id: row.order}
        self.replaced = known if whole else None
        self.whole = whole
        self.bytes = 0
        self.keys: dict[bytes, tuple[str | None, int, int]] = {}
        """uuid → (thread key, kind, flags) of the records of this file"""
        self.tools: dict[str, int] = {}
        self.current = row.current
        self.root: tuple[bytes, str | None, bytes | None] | None = None
        self.agent_key: str | None = None
        self.resume = (row.resume_offset, row.resume_line)
        self.again = {} if whole else self.map.from_offset(row.id, row.resume_offset)
        self.drop: int | None = None if whole else row.resume_offset
        self.orphans: set[int] = set()
        """parents this file named that were not known then"""
        self.orphaned: dict[int, bool] = {}
        """session → whether the Map has records of it with an unknown parent"""
        self.session_of: dict[str, int] = {}
        self.joined: str | None = None
        """the thread this subagent has joined already"""
        self.marks: dict[int, set[int | str | bytes]] = {}
        """session → marks of its stored subagents"""
        self.hand: tuple[int, bytes, int] | None = None
        """(session, uuid, number) of the record that is being worked out"""
        self.beside = [] if whole else self.map.sessions_of(row.id)
        """sessions the file held before: one may wait for a parent that comes now"""
        if self.replaced is not None:
            for number in self.map.sessions_of(self.replaced.id):
                scan.batch.file_sessions.add((number, row.id))
                scan.batch.mark(number, MEMBERSHIP)
            row.session = self.replaced.session

    # Where the file stands

    def checkpoint(self, complete: bool, stamp: tuple[int, int, int, int] | None) -> None:
        """Adds to the batch how far the file is stored."""
        row, source = self.row, self.source
        try:
            start = max(0, self.resume[0] - TAIL_CHECK)
            row.tail = digest(source.read(start, self.resume[0] - start))
            row.resume_offset, row.resume_line = self.resume
        except OSError:
            if complete:
                raise  # else the older resume point stands
        if stamp is None:
            stamp = (source.stamp.dev, source.stamp.ino, source.stamp.size, -1)
        row.current = self.current
        root, self.root = self.root, None
        drop, self.drop = self.drop, None
        gaps = self.scan.batch.gaps
        state = (row.resume_offset, row.resume_line, row.tail, row.has_prompts, row.guessed, row.current)

        def update() -> None:
            if drop is not None:
                self.map.replace_gaps(row.id, drop, [gap for gap in gaps if gap[0] == row.id])
            row.resume_offset, row.resume_line, row.tail, row.has_prompts, row.guessed, row.current = state
            self.map.save_file(row, stamp=stamp, complete=complete, root=root)

        self.scan.updates.append(update)

    def commit(self) -> None:
        """Commits what is gathered, this file's part included, up to its last whole line."""
        scan = self.scan
        hand = self.hand
        self.checkpoint(complete=False, stamp=None)
        scan.flush()
        if hand is not None:  # the record being worked out has its number already and goes with the next batch
            session, uuid, record = hand
            scan.batch.first_id = record
            if session not in scan.fresh:
                scan.pending[(session, uuid)] = (record, self.row.id)

    # One line

    def line(self, line: Line) -> None:
        self.bytes += line.length + 1
        data = line.data
        if data:
            if (
                (self.old or self.twins)
                and not line.cuts
                and (self.row.project is not None or self.homeless)
                and (self.row.agent is None or self.agent_key is not None)
                and self._recognised(digest(data), line.offset, len(data), line.number)
            ):
                if line.complete:
                    self.resume = (line.offset + line.length + 1, line.number + 1)
                return
            try:
                whole = strict_loads(data) if data[:1] == b"{" and data[-1:] == b"}" and not line.cuts else None
            except ValueError:
                whole = None
            if whole is not None:  # nearly every line
                self._record(whole, line.offset, len(data), line.number, digest(data), recalled(data))
                if line.complete:
                    self.resume = (line.offset + line.length + 1, line.number + 1)
                return
            for kind, first, last, obj in segments(data, line.complete):
                if kind == "separator":
                    continue
                if not line.cuts:
                    offset, length = line.offset + first, last - first
                else:
                    offset = line.place(first)
                    length = (line.place(last) if last < len(data) else line.offset + line.length) - offset
                if obj is None:
                    self.scan.batch.gaps.append(
                        (self.row.id, offset, length, line.number, 1 if kind == "unparsed" else 2)
                    )
                    self.scan.batch.weight += 50
                    continue
                piece = data if length == len(data) else data[first:last]
                if line.cuts and length <= HUGE_LINE:  # not huge itself: as it reads when it stands alone
                    piece = self.source.read(offset, length)
                    obj = loads(piece)
                check = digest(piece) if length == len(piece) else self.source.sha256(offset, length)[:DIGEST_BYTES]
                self._record(obj, offset, length, line.number, check, recalled(piece))
        if line.complete:
            self.resume = (line.offset + line.length + 1, line.number + 1)

    def _recognised(self, check: bytes, offset: int, length: int, number: int) -> bool:
        """Whether a line's bytes are known from elsewhere; its copy is then noted without parsing it."""
        record = self.old.get(check)
        if record is not None:
            self._same(record, offset, length, number, check)
            return True
        twin = self.twins.get(check)
        if twin is None or twin[0] in self.unlike:
            return False
        self._twin(twin, offset, length, number, check)
        return True

    def _same(self, record: int, offset: int, length: int, number: int, check: bytes) -> None:
        """A record whose bytes the old row of this file already held."""
        assert self.replaced is not None
        batch = self.scan.batch
        batch.copies.append((self.row.id, offset, length, number, check, record))
        batch.moved.append((self.row.id, offset, length, record, self.replaced.id))
        self.scan.pointed.add(record)
        batch.weight += 100

    def _twin(self, twin: Twin, offset: int, length: int, number: int, check: bytes) -> None:
        """A record whose best copy has these very bytes, in another state of this transcript."""
        record, session, file, at = twin
        batch = self.scan.batch
        if session not in self.met:
            self.met.add(session)
            self._session(self.map.session_name(session))
        batch.copies.append((self.row.id, offset, length, number, check, record))
        batch.weight += 100
        order = self.orders.get(file)
        if order is None:
            best = self.map.file(file)
            order = self.orders[file] = best.order if best is not None else (1 << 62, "")
        if (*self.row.order, offset) < (*order, at):
            batch.pointers.append((self.row.id, offset, length, record, self.row.agent))
            self.scan.pointed.add(record)
            self.twins[check] = (record, session, self.row.id, offset)

    def _record(self, obj: dict[str, Any], offset: int, length: int, number: int, check: bytes, recalled: bool) -> None:
        map_, row = self.map, self.row
        facts = t.facts(obj, recalled)
        name = facts.session or self.place.session or os.path.basename(self.place.path).removesuffix(".jsonl")
        session = self.session_of.get(name)
        if session is None:
            session = self._session(name)
        if row.project is None and facts.cwd is not None and facts.cwd != self.elsewhere:
            row.project = project_of(facts.cwd, self.place.folder)
            self.elsewhere = facts.cwd
        uuid = facts.uuid or check[:8]
        if self.again:
            again = self.again.get(offset)
            if again is not None and again[0] == check:
                self._remember(facts, uuid, again[1])
                return
        tool = None
        if facts.tool is not None:
            tool = map_.name(facts.tool)
            for call in facts.calls:
                self.tools[call] = tool
        elif facts.answers is not None:
            tool = self.tools.get(facts.answers)
            if tool is None and not self._untouched(session):
                tool = map_.tool_of(session, facts.answers)
        record = self._new(session, uuid, offset, length, check, number, facts, tool)
        if record is None:
            return
        self.hand = (session, uuid, record)
        key, belongs = self._thread(facts, uuid, session, record)
        self.hand = None
        thread = map_.thread(session, key) if belongs else None
        flags = (
            (t.SIDECHAIN if facts.sidechain else 0)
            | (t.FORKED if facts.forked_from else 0)
            | (t.STARTS if facts.starts else 0)
        )
        batch = self.scan.batch
        batch.records.append(
            (
                record, session, uuid, map_.name(facts.type), facts.kind, facts.ts, thread, facts.parent,
                map_.name(facts.prompt) if facts.prompt is not None else None, row.agent, tool, flags, 0,
                row.id, offset, length, facts.tokens,
            )
        )  # fmt: skip
        batch.copies.append((row.id, offset, length, number, check, record))
        map_.extras(batch, record, session, facts)
        batch.weight += ROW_WEIGHT + len(facts.text) + len(facts.thinking)
        if facts.forked_from is not None and row.agent is None:
            batch.forks.setdefault(session, facts.forked_from)
        if thread is not None:
            self._count(thread, facts, record)
        if not self._untouched(session) and self._launches(session, uuid, facts):
            batch.mark(session, AGENTS)

    def _launches(self, session: int, uuid: bytes, facts: t.Facts) -> bool:
        """Whether a subagent that is stored already may belong to this record."""
        marks = self.marks.get(session)
        if marks is None:
            marks = self.marks[session] = self.map.launch_marks(session)
        if not marks:
            return False
        return (
            uuid in marks
            or (facts.spawned is not None and t.key64(facts.spawned) in marks)
            or (facts.prompt is not None and facts.prompt in marks)
            or any(t.key64(call) in marks for call in facts.calls)
        )

    def _count(self, thread: int, facts: t.Facts, record: int) -> None:
        sums = self.scan.batch.threads.get(thread)
        if sums is None:
            sums = self.scan.batch.threads[thread] = [0, 0, 0, facts.ts, facts.ts, 99, None, None]
        aside = self.row.agent is not None or facts.sidechain
        if not aside:
            sums[0] += is_turn(facts)
            sums[1] += facts.kind in SAID_KINDS
            sums[2] += facts.tokens
        ts = facts.ts
        if ts is not None:
            if sums[3] is None or ts < sums[3]:
                sums[3] = ts
            if sums[4] is None or ts > sums[4]:
                sums[4] = ts
        if sums[5] > 1 or not sums[7]:
            rank = TITLE_RANK.get(facts.kind, 99) + (10 if aside else 0)
            if rank < sums[5] or (rank == sums[5] < 99 and not sums[7]):
                title = title_of(facts)
                if title or rank < sums[5]:
                    sums[5], sums[6], sums[7] = rank, record, title

    def _session(self, name: str) -> int:
        number, new = self.map.session(name)
        self.session_of[name] = number
        scan, row = self.scan, self.row
        scan.batch.file_sessions.add((number, row.id))
        if new and self.whole:
            scan.fresh[number] = {}
        if row.session is None:
            row.session = number
        if row.agent is not None:
            if self.whole or self.map.root_of(row.id) is None:
                scan.batch.mark(number, AGENTS)
                scan.batch.mark(row.session, AGENTS)
        elif self.whole and not new and (self._gathered_main(number) or self.map.holds_main(number, row.id)):
            scan.batch.mark(number, MEMBERSHIP)
        elif self.whole and not new:
            scan.batch.mark(number, AGENTS)
        return number

    def _gathered_main(self, session: int) -> bool:
        return any(s == session and f != self.row.id for s, f in self.scan.batch.file_sessions)

    # Which record

    def _new(
        self,
        session: int,
        uuid: bytes,
        offset: int,
        length: int,
        check: bytes,
        number: int,
        facts: t.Facts,
        tool: int | None,
    ) -> int | None:
        """The number for a new record, or None where the Map holds it already and the copy has been noted."""
        scan, map_ = self.scan, self.map
        fresh = scan.fresh.get(session)
        have = fresh.get(uuid) if fresh is not None else scan.pending.get((session, uuid))
        if have is None:
            found = None if fresh is not None else map_.find(session, uuid)
            if found is not None and found.id in scan.pointed:
                self.commit()  # a further copy is compared with the one that is now best
                found = map_.find(session, uuid)
            if found is None:
                record: int = map_.next_record
                map_.next_record += 1
                if fresh is not None:
                    fresh[uuid] = (record, self.row.id)
                else:
                    scan.pending[(session, uuid)] = (record, self.row.id)
                return record
        elif len(uuid) == 8 and have[1] == self.row.id:
            scan.batch.copies.append(
                (self.row.id, offset, length, number, check, have[0])
            )  # written again, word for word
            scan.batch.weight += 100
            if uuid in self.keys and facts.type in ("user", "assistant"):
                key, _, flags = self.keys[uuid]
                self.current = key if key is not None and not flags & t.SIDECHAIN else self.current
            return None
        else:
            self.commit()
            found = map_.find(session, uuid)
            assert found is not None
        batch = scan.batch
        batch.copies.append((self.row.id, offset, length, number, check, found.id))
        batch.file_sessions.add((session, self.row.id))
        batch.weight += 100
        best = map_.file(found.file)
        better = best is None or (-length, *self.row.order, offset) < (-found.length, *best.order, found.offset)
        moved = self.replaced is not None and found.file == self.replaced.id
        if better:
            self.unlike.add(found.id)
        if found.digest == check:
            if better or moved:
                batch.pointers.append((self.row.id, offset, length, found.id, self.row.agent))
                scan.pointed.add(found.id)
                if best is None or best.agent != self.row.agent:  # it was a subagent's, or becomes one's
                    batch.mark(session, MEMBERSHIP | AGENTS)
        elif better:
            map_.describe(batch, found.id, session, facts, (self.row.id, offset, length, self.row.agent, tool))
            batch.rewritten.append(found.id)
            batch.mark(session, MEMBERSHIP | AGENTS)
        if batch.rewritten:
            self.commit()  # its links and text are replaced, and what comes next may look for them
        self._remember(facts, uuid, found.id)
        return None

    def _remember(self, facts: t.Facts, uuid: bytes, record: int) -> None:
        """Goes past a copy of a record that is stored already as if that had just been resolved."""
        row = self.row
        if row.agent is not None:
            if self.agent_key is None:
                self._agent_root(facts, uuid)
            return
        key, kind, flags, spoken, prompted = self.map.standing(record)
        if facts.uuid is None and not spoken:
            return
        self.keys[facts.alias or uuid] = (key, kind, flags & (t.SIDECHAIN | t.STARTS))
        if prompted:
            row.has_prompts = True
        if key is not None and spoken and not flags & t.SIDECHAIN:
            self.current = key

    # Which thread

    def _thread(self, f: t.Facts, uuid: bytes, session: int, record: int) -> tuple[str | None, bool]:
        """(thread key, whether the record belongs in a thread at all): `threads.resolve`, one record at a time.

        Where what comes later could change an answer, the session is marked to be resolved as a whole.
        """
        row = self.row
        if row.agent is not None:
            if self.agent_key is None:
                self._agent_root(f, uuid)
            joined = self.joined if session == row.session else None
            return joined or self.agent_key, joined is not None or f.uuid is not None
        spoken = f.type == "user" or f.type == "assistant"
        aside = f.kind in (t.QUEUED, t.NOTICE)
        waiting = self._waiting(f.alias or uuid, session)
        if f.uuid is None and not spoken:
            for number in waiting:
                self.scan.batch.mark(number, MEMBERSHIP)
            return (self.current, True) if aside else (None, False)
        untouched = self._untouched(session)
        parent = None
        if f.parent is not None:
            parent = self.keys.get(f.parent)
            if parent is None and not untouched and f.parent != uuid:
                if (session, f.parent) in self.scan.pending or len(f.parent) == 8:
                    self.commit()
                parent = self.map.parent(f.parent, session, row.id)
            if parent is None:
                self.orphans.add(short_key(f.parent))
                if f.parent == uuid:
                    waiting.append(session)  # its own parent
        if f.prompt is not None:
            key: str | None = f.prompt
            if not row.has_prompts:
                row.has_prompts = True
                if row.guessed:
                    waiting.append(session)
        elif f.starts and not f.sidechain:
            chained = f.kind == t.COMMAND and parent is not None and parent[1] == t.COMMAND and parent[2] & t.STARTS
            key = parent[0] if chained and parent is not None else uuid_text(uuid)
        elif parent is not None:
            key = parent[0]
        else:
            key = self._top(f, uuid, session, spoken)
        batch = self.scan.batch  # only now: finding out may have committed the one before, without this record
        for number in waiting:
            batch.mark(number, MEMBERSHIP)
        if f.parent is not None and parent is None:
            batch.links.append((session, ORPHAN, short_key(f.parent), record))
        self.keys[f.alias or uuid] = (key, f.kind, (t.SIDECHAIN if f.sidechain else 0) | (t.STARTS if f.starts else 0))
        if key is not None and spoken and not f.sidechain:
            self.current = key
        return key, key is not None or spoken or aside

    def _waiting(self, name: bytes, session: int) -> list[int]:
        """The sessions with a record that names one as its parent which was not known until now."""
        key = short_key(name)
        found = [session] if self.orphans and key in self.orphans else []
        if not self._untouched(session):
            for number in {session, *self.beside}:
                known = self.orphaned.get(number)
                if known is None:  # this file's own newer ones are in `orphans`
                    known = self.orphaned[number] = self.map.has_links(number, ORPHAN)
                if known and self.map.linked(number, ORPHAN, key):
                    found.append(number)
        return found

    def _untouched(self, session: int) -> bool:
        """Whether the session began in this update with this file: nothing of it lies elsewhere."""
        return self.whole and self.row.agent is None and session in self.scan.fresh

    def _top(self, f: t.Facts, uuid: bytes, session: int, spoken: bool) -> str | None:
        """The thread of a record without a known parent (RULES 14)."""
        call = None
        if f.sidechain:
            if f.parent is None and f.kind == t.PROMPT:
                call = self._call(session, TASK, t.key64(f.text))
        elif f.answers is not None:
            call = self._call(session, CALL, t.key64(f.answers))
        if call is not None:
            return call
        alone = uuid_text(uuid) if f.sidechain and f.parent is None else None  # a subagent nobody launched
        if self.row.has_prompts:
            return alone
        self.row.guessed = True
        if self.current is None and spoken:
            return alone or uuid_text(uuid)
        return self.current

    def _call(self, session: int, kind: int, key: int) -> str | None:
        """The thread of the record a link names, stored or just gathered."""
        if any(link[0] == session and link[1] == kind and link[2] == key for link in self.scan.batch.links):
            self.commit()
        for record in self.map.linked(session, kind, key):
            found = self.map.key_of_record(record)
            if found is not None:
                return found
        return None

    def _agent_root(self, f: t.Facts, uuid: bytes) -> None:
        """What the first record of a subagent's file says of the whole file."""
        row = self.map.root_of(self.row.id)
        if row is not None:
            self.agent_key = row[1] or uuid_text(row[0])
            if not self.whole and self.row.agent is not None and self.row.session is not None:
                self.joined = self.map.key_of_agent(self.row.agent, self.row.session)
        elif f.uuid is not None:
            self.root = (uuid, f.prompt, f.source if f.parent is None and f.sidechain else None)
            self.agent_key = f.prompt or uuid_text(uuid)
