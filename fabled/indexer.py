"""Brings the Map up to date with the Vault: some paths, or everything.

Start-up, events and the sweep all call `Indexer.update`. When it is called is left to the daemon; the tables, to
`store.map`.

What happens to one file. Its stamp is compared with the stored one (equal: nothing to do). If it grew and its prefix
proves unchanged, only the tail is read. Otherwise it is read whole into a new row beside the old one: known bytes are
recognised by their checksum and not parsed again, and only when all of it is stored does the old row go. Additions
therefore come before removals, and a kill between two commits leaves nothing half forgotten.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .store.files import Stamp
from .store.ledger import Ledger
from .store.map import AGENTS, MEMBERSHIP, TITLE_RANK, TURN_KINDS, Batch, FileRow, Map, short_key, title_of
from .store.schema import CALL, ORPHAN, TASK
from .store.vault import LIVE_RANK, Listing, Place, Source, Vault
from .transcript import text as t
from .transcript.record import DIGEST_BYTES, Line, digest, lines, loads, segments, strict_loads, uuid_text

SLICE_WEIGHT = 6_000_000
"""Characters of text and rows of overhead gathered before a commit: bounds memory and a transaction to well under 2 s."""
ROW_WEIGHT = 400
SLICE_SECONDS = 0.8
TAIL_CHECK = 4_096
"""Bytes before the old end that are compared before growth counts as an append."""
SMALL_PREFIX = 48 << 10
"""A prefix up to this size is compared as a whole."""
SAMPLES = 6
YOUNG_NS = 20_000_000
"""A file changed within this time of being read may change again under the same mtime (kernel ticks are up to 10 ms)."""
BULK_BYTES = 24 << 20

_DASH = re.compile("[^A-Za-z0-9]")
_DRIVE = re.compile("^[a-z]:")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an update is."""

    files_done: int
    files: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What one update did, and the totals of the Map after it."""

    files: int
    files_changed: int
    bytes_read: int
    records: int
    no_uuid: int
    unparsed: int
    pending_bytes: int
    threads: int
    seconds: float
    cpu_seconds: float
    scans: int = 0
    whole_scans: int = 0
    vanished: int = 0
    """records that no copy holds any more"""
    failed: tuple[tuple[str, str], ...] = ()
    waiting: tuple[str, ...] = ()
    """roots that do not exist"""
    notes: tuple[str, ...] = ()
    stopped: bool = False
    folders: int = 0


@dataclass(slots=True)
class _Totals:
    changed: int = 0
    bytes: int = 0
    scans: int = 0
    whole: int = 0
    vanished: int = 0


class Indexer:
    """Owned by the writer; holds what it knows of files between updates."""

    def __init__(self, map_: Map, vault: Vault, ledger: Ledger) -> None:
        self.map = map_
        self.vault = vault
        self.ledger = ledger
        self._files: dict[str, FileRow] = {}
        self._failed: dict[str, tuple[Stamp, str]] = {}
        self._counts: dict[str, int] | None = None
        self._random = random.Random()
        self._load_files()

    def _load_files(self) -> None:
        self._files = {}
        self._unfinished: dict[str, FileRow] = {}
        for row in self.map.files():
            if row.replaces is not None or (row.path in self._files and not row.complete):
                self._unfinished[row.path] = row
            else:
                self._files[row.path] = row

    # The one way in

    def update(
        self,
        paths: Iterable[str] | None,
        *,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> IndexReport:
        """Brings the Map up to date with `paths` (files, folders, or paths that vanished), or with everything (None).

        Raises StorageFault where the Map cannot be written; what was committed before stays, and the next update goes on.
        """
        began, cpu = time.monotonic(), time.process_time()
        totals = _Totals()
        failed: list[tuple[str, str]] = []
        stopped = False
        try:
            listing, gone = self._changes(paths)
            failed += listing.failed
            todo = []
            for path, (place, stamp) in listing.found.items():
                known = self._files.get(path)
                if known is not None and known.complete and known.stamp == (stamp.dev, stamp.ino, stamp.size, stamp.mtime_ns):
                    self._failed.pop(path, None)
                    if known.agent is not None and place.meta is not None:
                        self._meta(known, place)
                    continue
                before = self._failed.get(path)
                if before is not None and before[0] == stamp:
                    failed.append((path, before[1]))
                    continue
                todo.append((place, stamp))
            total = sum(stamp.size for _, stamp in todo)
            bulk = total > BULK_BYTES
            if bulk:
                self.map.bulk(True)
            todo.sort(key=lambda item: (item[0].rank, item[0].path))  # generations first; subagents behind their session
            scan = _Scan(self, totals)
            if True:
                done = 0
                for number, (place, stamp) in enumerate(todo):
                    if stop is not None and stop():
                        stopped = True
                        break
                    if progress is not None:
                        progress(Progress(number, len(todo), done, total))
                    try:
                        finished = scan.file(place, stop, (lambda n, d=done, i=number: progress(Progress(i, len(todo), d + n, total))) if progress else None)
                        stopped = stopped or not finished
                    except (OSError, ValueError, RecursionError) as fault:  # an odd file must not stop the others (RULES 4)
                        reason = (fault.strerror if isinstance(fault, OSError) else None) or f"{type(fault).__name__}: {fault}"
                        self._failed[place.path] = (stamp, reason)
                        failed.append((place.path, reason))
                    done += stamp.size
                    if stopped:
                        break
                scan.flush()
                if progress is not None:
                    progress(Progress(len(todo), len(todo), total, total))
                if gone and not stopped:
                    self.map.doom(gone)
                self._settle(totals)
                for place, _ in todo:
                    self._shrinkage(place.path)
            if bulk:
                self.map.bulk(False)
        except BaseException:
            self._load_files()
            self._counts = None
            raise
        if totals.scans or totals.vanished or gone or self._counts is None:
            self._counts = self.map.counts()
        counts = self._counts
        return IndexReport(
            counts["files"], totals.changed, totals.bytes, counts["records"], counts["no_uuid"], counts["unparsed"],
            counts["pending_bytes"], counts["threads"], time.monotonic() - began, time.process_time() - cpu,
            totals.scans, totals.whole, totals.vanished, tuple(failed), tuple(listing.missing), self._notes(listing), stopped,
            listing.folders,
        )  # fmt: skip

    def _notes(self, listing: Listing) -> tuple[str, ...]:
        return tuple(
            f"{root} is suddenly empty; nothing was forgotten on that word"
            for root in listing.empty
            if any(path.startswith(root + "/") for path in self._files)
        )

    # What changed

    def _changes(self, paths: Iterable[str] | None) -> tuple[Listing, list[int]]:
        """What there is at the paths, and the rows of files that are proven to be gone."""
        if paths is None:
            listing = self.vault.listing()
            return listing, self._gone(listing, self._files.values())
        listing = Listing()
        missing: list[FileRow] = []
        for path in paths:
            path = os.path.normpath(path)
            if path.endswith(".meta.json"):
                path = path[: -len(".meta.json")] + ".jsonl"
            if os.path.isdir(path):
                below = self.vault.below(os.path.realpath(path))
                listing.found.update(below.found)
                listing.failed += below.failed
                listing.folders += below.folders
                prefix = os.path.realpath(path) + "/"
                missing += [row for row in self._files.values() if row.path.startswith(prefix) and row.path not in below.found]
                continue
            place = self.vault.place(path)
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                real = place.path if place is not None else os.path.realpath(path)
                prefix = real + "/"
                missing += [row for row in self._files.values() if row.path == real or row.path.startswith(prefix)]
                continue
            except OSError as fault:
                listing.failed.append((path, fault.strerror or str(fault)))
                continue
            if place is not None:
                listing.found[place.path] = (place, Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        if missing:
            bases: dict[str, str] = {}
            for row in missing:
                base = self.vault.base_of(row.path)
                if base is not None and base not in bases:
                    try:
                        with os.scandir(base) as entries:
                            bases[base] = "some" if next(entries, None) is not None else "empty"
                    except OSError:
                        bases[base] = "missing"
            listing.missing += [base for base, state in bases.items() if state == "missing"]
            listing.empty += [base for base, state in bases.items() if state == "empty"]
        return listing, self._gone(listing, missing)

    def _gone(self, listing: Listing, rows: Iterable[FileRow]) -> list[int]:
        """The files that are proven to be gone.

        Never on the word of a listing alone (DESIGN, invariant 4): the root must be there and hold something, no
        folder on the way may have failed, and the path itself must be known not to exist.
        """
        silent = (*listing.missing, *listing.empty, *(path for path, _ in listing.failed))
        gone = []
        for row in list(rows):
            if row.path in listing.found:
                continue
            base = self.vault.base_of(row.path)
            if base is None:
                gone.append(row)  # its root left the configuration: a rebuild would not know it
                continue
            if any(row.path == at or row.path.startswith(at.rstrip("/") + "/") for at in silent) or not os.path.isdir(base):
                continue
            try:
                os.lstat(row.path)
            except (FileNotFoundError, NotADirectoryError):
                gone.append(row)
            except OSError:
                continue
        for row in gone:
            self._files.pop(row.path, None)
            self._failed.pop(row.path, None)
        return [row.id for row in gone]

    def _meta(self, row: FileRow, place: Place) -> None:
        """Reads a subagent's description again where it changed."""
        assert place.meta is not None
        try:
            status = os.stat(place.meta)
            stamp: int | None = status.st_mtime_ns ^ status.st_size
        except OSError:
            stamp = None
        if stamp == row.meta_stamp:
            return
        call = None
        if stamp is not None:
            try:
                with open(place.meta, "rb") as file:
                    value = loads(file.read(1 << 20))
                call = value.get("toolUseId") if isinstance(value, dict) else None
            except (OSError, ValueError):
                call = None
        self.map.save_meta(row.id, stamp, t.key64(call) if isinstance(call, str) else None)
        row.meta_stamp = stamp

    # After the scans

    def reread(self, path: str, offset: int, length: int) -> t.Facts | None:
        """What a span says, None where it cannot be read now."""
        try:
            source = self.vault.open(path)
        except OSError:
            return None
        try:
            for line in lines(source.read, offset, 1, offset + length):
                for _, _, _, obj in segments(line.data, False):
                    if obj is not None:
                        return t.facts(obj, _recalled(line.data))
                return None
        except (OSError, ValueError):
            return None
        finally:
            source.close()
        return None

    def _settle(self, totals: _Totals) -> None:
        for file in self.map.doomed():
            row = self.map.file(file)
            sessions = self._losing(row) if row is not None else []
            _, gone = self.map.forget(file, self.reread)
            totals.vanished += gone
            if row is not None:
                self._note_loss(row, sessions, gone)
        while waiting := self.map.dirty():
            session, what = waiting[0]
            for number in self.map.settle(session, what, self.reread):
                changed = self.map.file(number)
                if changed is not None and changed.path in self._files and self._files[changed.path].id == number:
                    self._files[changed.path] = changed

    def _losing(self, row: FileRow) -> list[tuple[int, str]]:
        return [
            (number, name)
            for number, name in self.map.db.execute(
                "SELECT s.id,s.session_id FROM file_sessions a JOIN sessions s ON s.id=a.session WHERE a.file=?", (row.id,)
            )
        ]

    def _note_loss(self, row: FileRow, sessions: list[tuple[int, str]], gone: int) -> None:
        """Shows in `status` what left the live transcripts (RULES 12)."""
        if row.rank != LIVE_RANK:
            return
        now = self._files.get(row.path)
        if now is not None:
            if gone and now.stamp[2] * 2 < row.stamp[2] and sessions:
                self.ledger.note("shrunk", sessions[0][1], row.path, 0, gone, row.stamp[2])
            return
        if not gone:
            return
        for number, name in sessions:
            if self.map.db.execute("SELECT 1 FROM file_sessions WHERE session=? LIMIT 1", (number,)).fetchone() is None:
                self.ledger.note("vanished", name, row.path, 0, gone)

    def _shrinkage(self, path: str) -> None:
        """Compares a live transcript with its session's generations: records only they still hold were lost from it."""
        row = self._files.get(path)
        if row is None or not row.complete or row.agent is not None or row.session is None:
            return
        if row.rank == LIVE_RANK:
            lives = [row]
        else:
            lives = [live for number in self.map.files_of(row.session, live=True) if (live := self._by_id(number)) is not None]
        for live in lives:
            largest = self.map.largest_generation(row.session)
            if largest is not None and live.resume_offset * 2 < largest:
                only = self.map.only_in_generations(row.session, live.id)
                if only:
                    self.ledger.note("shrunk", self.map.session_name(row.session), live.path, only, 0)
            elif live.resume_offset * 2 >= (largest or 0):
                self.ledger.made_good(live.path, live.stamp[2])

    def _by_id(self, number: int) -> FileRow | None:
        row = self.map.file(number)
        return self._files.get(row.path) if row is not None else None

    # Care

    def repair(self) -> bool:
        """Checks the full text and builds it anew from the Vault where it is damaged; True if it was (case C03)."""
        if self.map.fts_damaged() is None:
            return False
        self.map.start_fts()
        for row in sorted(self._files.values(), key=lambda r: r.id):
            try:
                source = self.vault.open(row.path)
            except OSError:
                continue
            try:
                rows: list[tuple[int, str, str, str]] = []
                for record, offset, length in list(self.map.records_of(row.id)):
                    facts = _facts_at(source, offset, length)
                    if facts is not None and (facts.text or facts.thinking):
                        rows.append((record, facts.text, facts.thinking, facts.parts))
                    if len(rows) >= 2_000:
                        self.map.add_texts(rows)
                        rows = []
                self.map.add_texts(rows)
            finally:
                source.close()
        return True

    def idle(self) -> None:
        """What can be done when nothing waits."""
        self.map.checkpoint()


def _facts_at(source: Source, offset: int, length: int) -> t.Facts | None:
    for line in lines(source.read, offset, 1, offset + length):
        for _, _, _, obj in segments(line.data, False):
            if obj is not None:
                return t.facts(obj, _recalled(line.data))
        break
    return None


def _recalled(data: bytes) -> bool:
    return b"historical_context" in data


def encode_folder(cwd: str) -> str:
    """The name the client gives a project's folder: every UTF-16 unit that is no ASCII letter or digit becomes `-`."""
    return _DASH.sub(lambda m: "-" * (len(m[0].encode("utf-16-le", "surrogatepass")) // 2), cwd)


def project_of(cwd: str, folder: str) -> str | None:
    """The project a cwd names, if it is the one the folder was named for (RULES 7); drive letters in upper case."""
    encoded = encode_folder(cwd)
    if encoded == folder or (_DRIVE.match(cwd.lower()) and encoded.lower()[:1] == folder.lower()[:1] and encoded[1:] == folder[1:]):
        return cwd[0].upper() + cwd[1:] if _DRIVE.match(cwd.lower()) else cwd
    return None


class _Scan:
    """Reads files into batches. One per update."""

    def __init__(self, indexer: Indexer, totals: _Totals) -> None:
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
        self.narrow(self.map.known_session(place.session) if place.agent is not None and place.session is not None else None)
        source = self.ix.vault.open(place.path)
        try:
            known = self.ix._files.get(place.path)
            unfinished = self.ix._unfinished.pop(place.path, None)
            row = self._grown(known, source, place) if known is not None else None
            whole = row is None
            old: dict[bytes, int] = {}
            if row is None:
                if known is not None or unfinished is not None:
                    self.flush()
                if unfinished is not None:
                    self.map.doom([unfinished.id])
                row = self.map.new_file(self.batch, place, known)
                if known is not None and row.agent is None:
                    old = self.map.digests(known.id)
            self.totals.scans += 1
            self.totals.changed += 1
            self.totals.whole += whole and known is not None
            finished = self._read(_FileScan(self, place, row, source, old, known, whole), stop, tell, began_ns)
            self.ix._files[place.path] = row
            if whole and known is not None:
                self.flush()
            if row.agent is not None and place.meta is not None and finished and os.path.exists(place.meta):
                self.flush()
                self.ix._meta(row, place)
            return finished
        finally:
            source.close()

    def _grown(self, row: FileRow, source: Source, place: Place) -> FileRow | None:
        """The row to go on with if the file only grew, None if it must be read whole."""
        now = source.stamp
        if (row.stamp[0], row.stamp[1]) != (now.dev, now.ino) or source.size < row.resume_offset or row.rank != place.rank:
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
        self, state: _FileScan, stop: Callable[[], bool] | None, tell: Callable[[int], None] | None, began_ns: int
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
        young = stamp.mtime_ns > began_ns - YOUNG_NS
        state.checkpoint(complete=True, stamp=(stamp.dev, stamp.ino, stamp.size, -1 if young else stamp.mtime_ns))
        return True


class _FileScan:
    """The state of reading one file: what its lines become."""

    def __init__(
        self, scan: _Scan, place: Place, row: FileRow, source: Source, old: dict[bytes, int], known: FileRow | None, whole: bool
    ) -> None:
        self.scan = scan
        self.map = scan.map
        self.place = place
        self.row = row
        self.source = source
        self.old = old
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
        self.session_of: dict[str, int] = {}
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
        self.checkpoint(complete=False, stamp=None)
        self.scan.flush()

    # One line

    def line(self, line: Line) -> None:
        self.bytes += line.length + 1
        data = line.data
        if data:
            if self.old and not line.cuts and self.row.project is not None:
                check = digest(data)
                record = self.old.get(check)
                if record is not None:
                    self._same(record, line.offset, len(data), line.number, check)
                    if line.complete:
                        self.resume = (line.offset + line.length + 1, line.number + 1)
                    return
            try:
                whole = strict_loads(data) if data[:1] == b"{" and data[-1:] == b"}" and not line.cuts else None
            except ValueError:
                whole = None
            if whole is not None:  # nearly every line
                self._record(whole, line.offset, len(data), line.number, digest(data), _recalled(data))
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
                    self.scan.batch.gaps.append((self.row.id, offset, length, line.number, 1 if kind == "unparsed" else 2))
                    self.scan.batch.weight += 50
                    continue
                piece = data if length == len(data) else data[first:last]
                check = digest(piece) if not line.cuts else self.source.sha256(offset, length)[:DIGEST_BYTES]
                self._record(obj, offset, length, line.number, check, _recalled(piece))
        if line.complete:
            self.resume = (line.offset + line.length + 1, line.number + 1)

    def _same(self, record: int, offset: int, length: int, number: int, check: bytes) -> None:
        """A record whose bytes the old row of this file already held."""
        assert self.replaced is not None
        batch = self.scan.batch
        batch.copies.append((self.row.id, offset, length, number, check, record))
        batch.moved.append((self.row.id, offset, length, record, self.replaced.id))
        batch.weight += 100

    def _record(self, obj: dict[str, Any], offset: int, length: int, number: int, check: bytes, recalled: bool) -> None:
        map_, row = self.map, self.row
        facts = t.facts(obj, recalled)
        name = facts.session or self.place.session or os.path.basename(self.place.path).removesuffix(".jsonl")
        session = self.session_of.get(name)
        if session is None:
            session = self._session(name)
        if row.project is None and facts.cwd is not None:
            row.project = project_of(facts.cwd, self.place.folder)
        uuid = facts.uuid or check[:8]
        if self.again:
            again = self.again.get(offset)
            if again is not None and again[0] == check:
                self._remember(facts, uuid, map_.key_of_record(again[1]))
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
        key, belongs = self._thread(facts, uuid, session, record)
        thread = map_.thread(session, key) if belongs else None
        flags = (t.SIDECHAIN if facts.sidechain else 0) | (t.FORKED if facts.forked_from else 0) | (t.STARTS if facts.starts else 0)
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
        if facts.forked_from is not None:
            batch.forks.setdefault(session, facts.forked_from)
        if thread is not None:
            self._count(thread, facts, record)
        if not self.whole and (facts.spawned is not None or facts.calls or facts.starts) and map_.has_agents(session):
            batch.mark(session, AGENTS)  # a subagent already there may belong to this record
        elif facts.spawned is not None and row.agent is None and self.whole and map_.has_agents(session):
            batch.mark(session, AGENTS)

    def _count(self, thread: int, facts: t.Facts, record: int) -> None:
        sums = self.scan.batch.threads.get(thread)
        if sums is None:
            sums = self.scan.batch.threads[thread] = [0, 0, facts.ts, facts.ts, 99, None, None]
        aside = self.row.agent is not None or facts.sidechain
        if not aside:
            sums[0] += facts.kind in TURN_KINDS
            sums[1] += facts.tokens
        ts = facts.ts
        if ts is not None:
            if sums[2] is None or ts < sums[2]:
                sums[2] = ts
            if sums[3] is None or ts > sums[3]:
                sums[3] = ts
        if sums[4] > 1:
            rank = TITLE_RANK.get(facts.kind, 99) + (10 if aside else 0)
            if rank < sums[4]:
                sums[4], sums[5], sums[6] = rank, record, title_of(facts)

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
            scan.batch.mark(number, AGENTS)
        elif self.whole and not new and (self._gathered_main(number) or self.map.holds_main(number, row.id)):
            scan.batch.mark(number, MEMBERSHIP)
        elif self.whole and not new:
            scan.batch.mark(number, AGENTS)
        return number

    def _gathered_main(self, session: int) -> bool:
        return any(s == session and f != self.row.id for s, f in self.scan.batch.file_sessions)

    # Which record

    def _new(self, session: int, uuid: bytes, offset: int, length: int, check: bytes, number: int, facts: t.Facts, tool: int | None) -> int | None:
        """The number for a new record, or None where the Map holds it already and the copy has been noted."""
        scan, map_ = self.scan, self.map
        fresh = scan.fresh.get(session)
        have = fresh.get(uuid) if fresh is not None else scan.pending.get((session, uuid))
        if have is None:
            found = None if fresh is not None else map_.find(session, uuid)
            if found is None:
                record = map_.next_record
                map_.next_record += 1
                if fresh is not None:
                    fresh[uuid] = (record, self.row.id)
                else:
                    scan.pending[(session, uuid)] = (record, self.row.id)
                return record
        elif len(uuid) == 8 and have[1] == self.row.id:
            scan.batch.copies.append((self.row.id, offset, length, number, check, have[0]))  # written again, word for word
            scan.batch.weight += 100
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
        if found.digest == check:
            if better or moved:
                batch.pointers.append((self.row.id, offset, length, found.id, self.row.agent))
        elif better:
            map_.describe(batch, found.id, session, facts, (self.row.id, offset, length, self.row.agent, tool))
            batch.rewritten.append(found.id)
            batch.mark(session, MEMBERSHIP | AGENTS)
        if batch.pointers or batch.rewritten:
            self.commit()  # a further copy in the same batch must be compared with this one
        self._remember(facts, uuid, map_.key_of_record(found.id))
        return None

    def _remember(self, facts: t.Facts, uuid: bytes, key: str | None) -> None:
        """Goes past a record that is stored already as if it had just been resolved."""
        row = self.row
        if row.agent is not None:
            if self.agent_key is None:
                self._agent_root(facts, uuid)
        elif facts.uuid is not None or facts.type in ("user", "assistant"):
            self.keys[facts.alias or uuid] = (key, facts.kind, (t.SIDECHAIN if facts.sidechain else 0) | (t.STARTS if facts.starts else 0))
            if facts.prompt is not None:
                row.has_prompts = True
            if key is not None and not facts.sidechain and facts.type in ("user", "assistant"):
                self.current = key

    # Which thread

    def _thread(self, f: t.Facts, uuid: bytes, session: int, record: int) -> tuple[str | None, bool]:
        """(thread key, whether the record belongs in a thread at all): `threads.resolve`, one record at a time.

        Where what comes later could change an answer, the session is marked to be resolved as a whole.
        """
        row, batch = self.row, self.scan.batch
        if row.agent is not None:
            if self.agent_key is None:
                self._agent_root(f, uuid)
            return self.agent_key, f.uuid is not None
        spoken = f.type == "user" or f.type == "assistant"
        if f.uuid is None and not spoken:
            return (self.current, True) if f.kind == t.QUEUED else (None, False)
        untouched = self._untouched(session)
        parent = None
        if f.parent is not None:
            parent = self.keys.get(f.parent)
            if parent is None and not untouched and f.parent != uuid:
                if (session, f.parent) in self.scan.pending or len(f.parent) == 8:
                    self.commit()
                    batch = self.scan.batch
                parent = self.map.parent(f.parent, session, row.id)
            if parent is None:
                batch.links.append((session, ORPHAN, short_key(f.parent), record))
                self.orphans.add(short_key(f.parent))
        name = f.alias or uuid
        if (self.orphans and short_key(name) in self.orphans) or (not untouched and self.map.linked(session, ORPHAN, short_key(name))):
            batch.mark(session, MEMBERSHIP)
        if f.prompt is not None:
            key: str | None = f.prompt
            if not row.has_prompts:
                row.has_prompts = True
                if row.guessed:
                    batch.mark(session, MEMBERSHIP)
        elif f.starts and not f.sidechain:
            chained = f.kind == t.COMMAND and parent is not None and parent[1] == t.COMMAND and parent[2] & t.STARTS
            key = parent[0] if chained and parent is not None else uuid_text(uuid)
        elif parent is not None:
            key = parent[0]
        else:
            key = self._top(f, uuid, session, spoken)
        self.keys[name] = (key, f.kind, (t.SIDECHAIN if f.sidechain else 0) | (t.STARTS if f.starts else 0))
        if key is not None and spoken and not f.sidechain:
            self.current = key
        return key, key is not None or spoken

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
        elif f.uuid is not None:
            self.root = (uuid, f.prompt, f.source if f.parent is None and f.sidechain else None)
            self.agent_key = f.prompt or uuid_text(uuid)


__all__ = ["IndexReport", "Indexer", "Progress", "encode_folder", "project_of"]
