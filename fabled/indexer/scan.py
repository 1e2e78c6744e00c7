"""Reads files in slices: decides whether a file only grew, and commits what is gathered.

What the lines become is left to `file`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..store.batch import Batch, FileRow, Twin
from ..store.vault import Place, Source
from ..transcript.record import DIGEST_BYTES, digest, lines
from .file import TAIL_CHECK, FileScan
from .report import GROWN, Grown, Totals

if TYPE_CHECKING:
    from .update import Indexer

SLICE_WEIGHT = 6_000_000
"""Characters of text and rows of overhead gathered before a commit: bounds memory, and a transaction to under 2 s."""
SLICE_SECONDS = 0.8
SMALL_PREFIX = 48 << 10
"""A prefix up to this size is compared as a whole."""
SAMPLES = 6
TWIN_BYTES = 16 << 10
"""From this size on it pays to look for the file's lines in the other states of its transcript."""
YOUNG_NS = 20_000_000
"""A file changed so shortly before being read may change again under the same mtime (kernel ticks: up to 10 ms)."""


class Scan:
    """Reads files into batches. One per update."""

    def __init__(self, indexer: Indexer, totals: Totals) -> None:
        self.ix = indexer
        self.map = indexer.map
        self.totals = totals
        self.fresh: dict[int, dict[bytes, tuple[int, int]]] = {}
        """sessions begun in this update, all of whose records came from the file being read and its subagents:
        uuid → (record, file). Nothing need be looked up in the Map for them, which is what makes a first index fast."""
        self._begin()

    def _begin(self) -> None:
        self.batch = Batch(first_id=self.map.next_record)
        self.pending: dict[tuple[int, bytes], tuple[int, int]] = {}
        """records of the batch that `fresh` does not know: (session, uuid) → (record, file)"""
        self.pointed: set[int] = set()
        """stored records whose best pointer this batch changes"""
        self.updates: list[Callable[[], None]] = []
        self.started = time.monotonic()

    def flush(self) -> None:
        """Commits what is gathered."""
        batch, updates = self.batch, self.updates
        if updates or batch.files:

            def finish() -> None:
                for update in updates:
                    update()

            self.map.store(batch, finish)
        self._begin()

    def narrow(self, keep: int | None) -> None:
        """Keeps only the fresh records of the session whose subagents come next."""
        for number in [n for n in self.fresh if n != keep]:
            for uuid, place in self.fresh.pop(number).items():
                if place[0] >= self.batch.first_id:
                    self.pending[(number, uuid)] = place

    # One file

    def file(self, place: Place, stop: Callable[[], bool] | None, tell: Callable[[int], None] | None) -> bool:
        """Indexes one file; False if `stop` asked for an end at a slice boundary. Raises OSError."""
        began_ns = time.time_ns()
        self.narrow(
            self.map.known_session(place.session) if place.agent is not None and place.session is not None else None
        )
        source = self.ix.vault.open(place.path)
        try:
            known = self.ix.files.get(place.path)
            unfinished = self.ix.files.take_unfinished(place.path)
            row = self._grown(known, source, place) if known is not None else None
            whole = row is None
            old: dict[bytes, int] = {}
            twins: dict[bytes, Twin] = {}
            homeless = False
            if row is None:
                if known is not None or unfinished is not None:
                    self.flush()
                elif place.session is not None and source.size >= TWIN_BYTES:
                    twins, homeless = self._twins(place)
                if unfinished is not None:
                    self.map.doom([unfinished.id])
                row = self.map.new_file(self.batch, place, known)
                if known is not None and row.agent is None:
                    old = self.map.digests(known.id)
                    homeless = _homeless(known, place)
            before = known.stamp[2] if known is not None else 0
            self.totals.scans += 1
            self.totals.changed += 1
            self.totals.whole += whole and known is not None
            try:
                finished = self._read(
                    FileScan(self, place, row, source, old, twins, known, whole, homeless), stop, tell, began_ns
                )
            except (OSError, ValueError, RecursionError):
                self._keep(row, known, whole, False)
                raise
            self._keep(row, known, whole, finished)
            if place.generation is None and len(self.totals.grown) < GROWN:
                session = place.session or (row.session and self.map.session_name(row.session)) or None
                project = row.project or place.folder
                self.totals.grown.append(Grown(place.path, session, place.agent, project, before, source.size))
            if whole and known is not None:
                self.flush()
            if row.agent is not None and place.meta is not None and finished:
                self._describe(row, place.meta)
            return finished
        finally:
            source.close()

    def _twins(self, place: Place) -> tuple[dict[bytes, Twin], bool]:
        """The records of a transcript's other states, by checksum: a generation holds the live file's bytes, and the
        live file a generation's. Of the live one and the newest generation, which have most in common with any.
        And whether none of them names a project."""
        session, agent = place.session, place.agent
        number = self.map.number_of(session) if session is not None else None
        if session is None or number is None:
            return {}, False
        if agent is None:
            self.flush()  # another state may have been read just now; a new subagent's seldom has
        name = self.map.name(agent) if agent is not None else None
        twins: dict[bytes, Twin] = {}
        homeless = True
        for file in self.map.states_of(number, session, name)[:2]:
            twins.update(self.map.twins(file, name))
            row = self.map.file(file)
            homeless = homeless and row is not None and _homeless(row, place)
        if twins:
            self.flush()
        return twins, homeless

    def _keep(self, row: FileRow, known: FileRow | None, whole: bool, finished: bool) -> None:
        """Notes which row stands for the file: one that is to replace another does so only once it is finished."""
        if whole and known is not None and not finished:
            self.ix.files.note_unfinished(row)
        else:
            self.ix.files.note(row)

    def _describe(self, row: FileRow, meta: str) -> None:
        """Has the description of a subagent stored with the batch that holds its records."""
        said = self.ix.description(row, meta)
        if said is not None:
            self.updates.append(lambda: self.map.set_meta(row.id, *said))
            row.meta_stamp = said[0]

    def _grown(self, row: FileRow, source: Source, place: Place) -> FileRow | None:
        """The row to go on with if the file only grew, None if it must be read whole."""
        now = source.stamp
        if (
            (row.stamp[0], row.stamp[1]) != (now.dev, now.ino)
            or source.size < row.resume_offset
            or row.rank != place.rank
        ):
            return None
        if row.complete and now.size < row.stamp[2]:
            return None
        if row.complete and now.size == row.stamp[2] and row.stamp[3] != -1:
            return None  # same size, another time: rewritten in place
        # The last line without its newline is read again, but what was found there must still be there.
        for offset, (check, _, length) in self.map.from_offset(row.id, row.resume_offset).items():
            if source.sha256(offset, length)[:DIGEST_BYTES] != check:
                return None
        start = max(0, row.resume_offset - TAIL_CHECK)
        window = source.read(start, row.resume_offset - start)
        self.totals.bytes += len(window)
        if digest(window) != row.tail:
            return None
        if row.resume_offset <= SMALL_PREFIX:
            copies, other = self.map.prefix(row.id, row.resume_offset)
            if other:
                return None
            data = source.read(0, row.resume_offset)
            self.totals.bytes += len(data)
            return row if all(digest(data[o : o + n]) == d for o, n, d in copies) else None
        spots = [self.ix._random.randrange(row.resume_offset) for _ in range(SAMPLES)]
        for offset, length, check in self.map.samples(row.id, spots, row.resume_offset):
            data = source.read(offset, length)
            self.totals.bytes += len(data)
            if digest(data) != check:
                return None
        return row

    def _read(
        self, state: FileScan, stop: Callable[[], bool] | None, tell: Callable[[int], None] | None, began_ns: int
    ) -> bool:  # fmt: skip
        row, source = state.row, state.source
        try:
            for line in lines(source.read, row.resume_offset, row.resume_line, source.size):
                state.line(line)
                weight = self.batch.weight
                if weight > SLICE_WEIGHT or (weight > 400_000 and time.monotonic() - self.started > SLICE_SECONDS):
                    state.commit()
                    if tell is not None:
                        tell(row.resume_offset)
                    if stop is not None and stop():
                        return False
        except (OSError, ValueError, RecursionError):
            state.checkpoint(complete=False, stamp=None)  # what was read stands; the next update goes on from there
            raise
        self.totals.bytes += state.bytes
        stamp = source.stamp
        young = began_ns - YOUNG_NS < stamp.mtime_ns <= time.time_ns() + YOUNG_NS  # one far ahead was set, not ticked
        state.checkpoint(complete=True, stamp=(stamp.dev, stamp.ino, stamp.size, -1 if young else stamp.mtime_ns))
        return True


def _homeless(row: FileRow, place: Place) -> bool:
    """Whether a file was read whole without a record that names the project of its folder, which is this one's too."""
    return row.complete and row.project is None and row.folder == place.folder
