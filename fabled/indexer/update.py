"""Decides what is to be read or forgotten, and has it done: the one way in for start-up, events and the sweep.

When it is called is left to the daemon.

What happens to one file. Its stamp is compared with the stored one (equal: nothing to do). If it grew and its prefix
proves unchanged, only the tail is read. Otherwise it is read whole into a new row beside the old one: known bytes are
recognised by their checksum and not parsed again, and only when all of it is stored does the old row go. Additions
therefore come before removals, and a kill between two commits leaves nothing half forgotten.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterable, Sequence

from ..store.batch import FileRow, text_row
from ..store.care import Care
from ..store.database import trouble
from ..store.files import Stamp
from ..store.ledger import Ledger
from ..store.map import Map
from ..store.memberships import Memberships
from ..store.vault import LIVE_RANK, Listing, Place, Source, Vault
from ..transcript import text as t
from ..transcript.record import DIGEST_BYTES, lines, loads, segments
from .file import recalled
from .omitted import Omitted
from .report import IndexReport, Progress, Totals
from .scan import Scan
from .standing import Standing

BULK_BYTES = 24 << 20
"""From this much to read on, the full text is loaded in bulk and merged at the end."""


class Indexer:
    """Owned by the writer; holds what it knows of files between updates."""

    def __init__(self, map_: Map, vault: Vault, ledger: Ledger, exclude: Sequence[str] = ()) -> None:
        """`exclude`: projects that stay out of the Map."""
        self.map = map_
        self.vault = vault
        self.ledger = ledger
        self._exclude = tuple(exclude)
        self.omit_anew()
        self.files = Standing(map_)
        self._failed: dict[str, tuple[Stamp, str]] = {}
        self._random = random.Random()
        self._care = Care(map_)
        self._memberships = Memberships(map_, self.reread)
        self._care.finish_bulk()
        self.files.all()

    def omit_anew(self) -> None:
        """What stays out is another; what the Map has of it goes with the next update that looks there."""
        self._omitted = Omitted(self.vault, self._exclude, self.ledger.forgotten())

    def merge_texts(self) -> None:
        """Leaves nothing of forgotten texts in the full text: without a merge their words stay, merely marked."""
        self._care.bulk(True)
        self._care.bulk(False)

    # The one way in

    def update(
        self,
        paths: Iterable[str] | None,
        *,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        count: bool = True,
    ) -> IndexReport:
        """Brings the Map up to date with `paths` (files, folders, or paths that vanished), or with everything (None).

        `stop` is asked between slices. `count=False` leaves the Map's totals in the report at 0: they cost time that
        grows with history. Raises StorageFault where the Map cannot be written; what was committed before stays, and
        the next update goes on from there.
        """
        began, cpu = time.monotonic(), time.process_time()
        totals = Totals()
        try:
            listing, gone = self._changes(paths)
            totals.failed += listing.failed
            todo = self._todo(listing, totals)
            bulk = sum(self._new_bytes(place, stamp) for place, stamp in todo) > BULK_BYTES
            if bulk:
                self._care.bulk(True)
            self._read(todo, totals, progress, stop)
            if gone and not totals.stopped:
                self.map.doom(gone)
            elif gone:
                self.files.forget()  # they stay known, for the next update to see them gone
            self._settle(totals)
            self._write_texts()
            for place, _ in todo:
                self._shrinkage(place.path)
            # This load, or one that a fault or the pieces of a long pass cut short; a stop leaves it for later.
            if self._care.loading and not totals.stopped and (bulk or paths is None):
                self._care.bulk(False)
            if paths is None and not totals.stopped and not self.map.is_whole():
                self.map.mark_whole(int(time.time()))
            counts = self._care.counts() if count else {}
        except BaseException:
            self._start_over()
            raise
        return IndexReport(
            **counts,
            files_changed=totals.changed,
            bytes_read=totals.bytes,
            seconds=time.monotonic() - began,
            cpu_seconds=time.process_time() - cpu,
            scans=totals.scans,
            whole_scans=totals.whole,
            vanished=totals.vanished,
            failed=tuple(totals.failed),
            waiting=tuple(listing.missing),
            notes=self._notes(listing),
            stopped=totals.stopped,
            folders=listing.folders,
            grown=tuple(totals.grown),
        )

    def _new_bytes(self, place: Place, stamp: Stamp) -> int:
        """What there is to read of a file if it only grew."""
        known = self.files.get(place.path)
        return stamp.size if known is None or stamp.size < known.resume_offset else stamp.size - known.resume_offset

    def _todo(self, listing: Listing, totals: Totals) -> list[tuple[Place, Stamp]]:
        """The files whose stamp is not the stored one; generations first, subagents behind their session."""
        todo = []
        for path, (place, stamp) in listing.found.items():
            known = self.files.get(path)
            if (
                known is not None
                and known.complete
                and known.stamp == (stamp.dev, stamp.ino, stamp.size, stamp.mtime_ns)
            ):
                if known.agent is not None and place.meta is not None:
                    self._meta(known, place)
                continue
            before = self._failed.get(path)
            if before is not None and before[0] == stamp:
                totals.failed.append((path, before[1]))  # tried again when the file changes
                continue
            todo.append((place, stamp))
        todo.sort(key=lambda item: (item[0].rank, item[0].path))
        return todo

    def _read(
        self,
        todo: list[tuple[Place, Stamp]],
        totals: Totals,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        told = len(totals.failed)
        try:
            self._read_gathered(todo, totals, progress, stop)
        except Exception as fault:
            if trouble(fault):
                raise
            # Something in one of the files could not be stored, and what was gathered with it is gone: each by itself.
            del totals.failed[told:]
            for place, stamp in todo:
                self._start_over()
                known = self.files.get(place.path)
                if known is not None and known.complete and known.stamp[:3] == (stamp.dev, stamp.ino, stamp.size):
                    continue
                try:
                    self._read_gathered([(place, stamp)], totals, None, stop)
                except Exception as own:
                    if trouble(own):
                        raise
                    self._failed[place.path] = (stamp, f"{type(own).__name__}: {own}")
                    totals.failed.append((place.path, self._failed[place.path][1]))
                if totals.stopped:
                    break
            self._start_over()

    def _start_over(self) -> None:
        """Back to what is stored: nothing that was only gathered may be taken for known, or be stored later."""
        self.map.forget_numbers()
        self.files.forget()

    def _read_gathered(
        self,
        todo: list[tuple[Place, Stamp]],
        totals: Totals,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        """Reads files, small ones gathered into one commit."""
        total = sum(stamp.size for _, stamp in todo)
        done = 0
        scan = Scan(self, totals)
        for number, (place, stamp) in enumerate(todo):
            if stop is not None and stop():
                totals.stopped = True
                break

            def tell(within: int, number: int = number, done: int = done) -> None:
                if progress is not None:
                    progress(Progress(number, len(todo), done + within, total))

            tell(0)
            try:
                totals.stopped = not scan.file(place, stop, tell)
                self._failed.pop(place.path, None)
            except (OSError, ValueError, RecursionError) as fault:  # an odd file must not stop the others (RULES 4)
                reason = (fault.strerror if isinstance(fault, OSError) else None) or f"{type(fault).__name__}: {fault}"
                # That it was not there for a moment, or rights, or descriptors, passes without a trace in the stamp.
                if not isinstance(fault, OSError) or fault.errno == errno.EIO:
                    self._failed[place.path] = (stamp, reason)
                totals.failed.append((place.path, reason))
            done += stamp.size
            if totals.stopped:
                break
        scan.flush()
        if progress is not None and not totals.stopped:
            progress(Progress(len(todo), len(todo), total, total))

    def _notes(self, listing: Listing) -> tuple[str, ...]:
        return tuple(
            f"{root} is suddenly empty; nothing was forgotten on that word"
            for root in listing.empty
            if self.files.below(root)
        )

    # What changed

    def _changes(self, paths: Iterable[str] | None) -> tuple[Listing, list[int]]:
        """What there is at the paths, and the rows of files that are proven to be gone."""
        if paths is None:
            listing = self.vault.listing()
            self._omit(listing)
            return listing, self._gone(listing, self.files.all(), whole=True)
        listing = Listing()
        missing: list[FileRow] = []
        for path in paths:
            path = os.path.normpath(path)
            if path.endswith(".meta.json"):
                path = path[: -len(".meta.json")] + ".jsonl"
            if os.path.isdir(path):
                below = self.vault.below(path)
                listing.found.update(below.found)
                listing.failed += below.failed
                listing.empty += below.empty
                listing.dangling += below.dangling
                listing.folders += below.folders
                known = self.files.below(os.path.realpath(path))
                missing += [row for row in known if row.path not in below.found]
                continue
            place = self.vault.place(path)
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                real = place.path if place is not None else os.path.realpath(path)
                row = self.files.get(real)
                missing += [*([row] if row is not None else ()), *self.files.below(real)]
                continue
            except OSError as fault:
                listing.failed.append((path, fault.strerror or str(fault)))
                continue
            if place is not None:
                listing.found[place.path] = (
                    place,
                    Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),
                )
        self._omit(listing)
        if self._omitted:
            missing += [row for path in listing.omitted if (row := self.files.get(path)) is not None]
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
        return listing, self._gone(listing, missing, whole=False)

    def _omit(self, listing: Listing) -> None:
        """Takes out of a listing what is to stay out of the Map."""
        if self._omitted:
            out = [path for path, (place, _) in listing.found.items() if self._omitted.place(place)]
            for path in out:
                del listing.found[path]
            listing.omitted.update(out)

    def _gone(self, listing: Listing, rows: Iterable[FileRow], whole: bool) -> list[int]:
        """The files that are proven to be gone.

        Never on the word of a listing alone (DESIGN, invariant 4): the root must be there and hold something, no
        folder on the way may have failed, and the path itself must be known not to exist.
        """
        rows = list(rows)
        bare = [at for at in listing.empty if any(row.path.startswith(at + "/") for row in rows)]
        silent = (*listing.missing, *bare, *(path for path, _ in listing.failed))
        gone = []
        for row in rows:
            if row.path in listing.found:
                continue
            if row.path in listing.omitted or (self._omitted and self._omitted.row(row)):
                gone.append(row)
                continue
            base = self.vault.base_of(row.path)
            if base is None:
                # A link brought it in, or a root that left the configuration: a rebuild would not know it any more.
                # The link may only lead nowhere for now, so everything else must have been seen.
                if whole and not silent and not listing.dangling:
                    gone.append(row)
                continue
            if any(row.path == at or row.path.startswith(at.rstrip("/") + "/") for at in silent) or not os.path.isdir(
                base
            ):
                continue
            try:
                if not stat.S_ISREG(os.lstat(row.path).st_mode):
                    gone.append(row)  # something else took its name
            except (FileNotFoundError, NotADirectoryError):
                gone.append(row)
            except OSError:
                continue
        for row in gone:
            self.files.drop(row.path)
            self._failed.pop(row.path, None)
        return [row.id for row in gone]

    def description(self, row: FileRow, meta: str) -> tuple[int | None, int | None] | None:
        """(stamp, key of the launching call) of a subagent's description; None where it did not change."""
        try:
            status = os.stat(meta)
            stamp: int | None = status.st_mtime_ns ^ status.st_size
        except OSError:
            stamp = None
        if stamp == row.meta_stamp:
            return None
        call = None
        if stamp is not None:
            try:
                with open(meta, "rb") as file:
                    value = loads(file.read(1 << 20))
                call = value.get("toolUseId") if isinstance(value, dict) else None
            except (OSError, ValueError):
                call = None
        return stamp, t.key64(call) if isinstance(call, str) else None

    def _meta(self, row: FileRow, place: Place) -> None:
        """Reads a subagent's description again where it changed."""
        assert place.meta is not None
        said = self.description(row, place.meta)
        if said is not None:
            self.map.save_meta(row.id, *said)
            row.meta_stamp = said[0]

    # After the scans

    def reread(self, path: str, offset: int, length: int, check: bytes) -> t.Facts | None:
        """What a span says; None where it cannot be read now, or holds other bytes than were indexed there."""
        try:
            source = self.vault.open(path)
        except OSError:
            return None
        try:
            return _facts_at(source, offset, length, check)
        except (OSError, ValueError):
            return None
        finally:
            source.close()

    def _settle(self, totals: Totals) -> None:
        for file in self.map.doomed():
            row = self.map.file(file)
            if row is not None and row.rank == LIVE_RANK and not (self._omitted and self._omitted.row(row)):
                self._note_loss(row)  # before it is forgotten: a kill between the two must not hide a loss
            _, gone = self.map.forget(file, self.reread)
            totals.vanished += gone
        while waiting := self.map.dirty():
            session, what = waiting[0]
            for number in self._memberships.settle(session, what):
                changed = self.map.file(number)
                now = self.files.get(changed.path) if changed is not None else None
                if changed is not None and now is not None and now.id == number:
                    self.files.note(changed)

    def _note_loss(self, row: FileRow) -> None:
        """Shows in `status` what left the live transcripts and is nowhere else (RULES 12)."""
        gone = self.map.only_in(row.id)
        if not gone:
            return
        now = self.files.get(row.path)
        for name, elsewhere in self.map.losing(row.id):
            if now is None and not elsewhere:
                self.ledger.note("vanished", name, row.path, 0, gone)
            elif now is not None and now.stamp[2] * 2 < row.stamp[2]:
                self.ledger.note("shrunk", name, row.path, 0, gone, row.stamp[2])
                return

    def _shrinkage(self, path: str) -> None:
        """Compares a live transcript with its session's generations: records only they still hold were lost from it."""
        row = self.files.get(path)
        if row is None or not row.complete or row.agent is not None or row.session is None:
            return
        if row.rank == LIVE_RANK:
            lives = [row]
        else:
            lives = [
                live
                for number in self.map.files_of(row.session, live=True)
                if (live := self._by_id(number)) is not None
            ]
        for live in lives:
            if row is not live and not self._current(live):
                continue  # it may have grown to more than the generation since; its own scan will tell
            if self.ledger.ours(live.path, live.stamp[1], live.stamp[2]):
                continue  # a prune made it so, and left nothing out that no generation holds
            largest = self.map.largest_generation(row.session)
            if largest is not None and live.resume_offset * 2 < largest:
                only = self.map.only_in_generations(row.session, live.id)
                if only:
                    self.ledger.note("shrunk", self.map.session_name(row.session), live.path, only, 0)
            elif live.resume_offset * 2 >= (largest or 0):
                self.ledger.made_good(live.path, live.stamp[2])

    def _current(self, row: FileRow) -> bool:
        """Whether a file has the size it had when it was read."""
        try:
            return os.stat(row.path).st_size == row.stamp[2]
        except OSError:
            return False

    def _by_id(self, number: int) -> FileRow | None:
        row = self.map.file(number)
        return self.files.get(row.path) if row is not None else None

    # Care

    def repair(self) -> bool:
        """Checks the full text and builds it anew from the Vault where it is damaged; True if it was (case C03)."""
        if self._care.fts_damaged() is None:
            return False
        self._care.start_fts()
        self._write_texts()
        return True

    def _write_texts(self) -> None:
        """Writes the texts that a new full text still lacks; those of a file that cannot be read stay owed."""
        for file in self._care.texts_owed():
            row = self.map.file(file)
            if row is None:
                continue
            try:
                source = self.vault.open(row.path)
            except OSError:
                continue
            try:
                rows: list[tuple[int, str, str, str]] = []
                whole = True
                for record, offset, length, check in self._care.records_without_text(file):
                    facts = _facts_at(source, offset, length, check)
                    if facts is None:
                        whole = False  # changed since it was indexed: after its next scan
                    elif facts.text or facts.thinking:
                        rows.append(text_row(record, facts))
                    if len(rows) >= 2_000:
                        self._care.add_texts(rows)
                        rows = []
                self._care.add_texts(rows)
                if whole:
                    self._care.texts_written(file)
            except OSError:
                continue
            finally:
                source.close()

    def derive_terms(self, stop: Callable[[], bool] = lambda: False, before_ts: int | None = None) -> tuple[int, int]:
        """Derives the terms of threads that lack them: (threads done, threads left)."""
        from . import terms  # its patterns take a while to be compiled, and most runs derive none

        return terms.derive(self.map, self.vault, stop, before_ts)

    def terms_due(self) -> int:
        """How many threads lack their terms."""
        from . import terms

        return terms.due(self.map)

    def idle(self) -> None:
        """What can be done when nothing waits: write both stores back, and let go of what is only held to be faster."""
        self._care.checkpoint()
        self.map.forget_known()
        self.ledger.rest()
        self.vault.forget()
        t.forget_words()
        self.files.forget()


def _facts_at(source: Source, offset: int, length: int, check: bytes) -> t.Facts | None:
    """What the record at a span says, if its bytes are the ones that were indexed."""
    if source.sha256(offset, length)[:DIGEST_BYTES] != check:
        return None
    for line in lines(source.read, offset, 1, offset + length):
        for _, _, _, obj in segments(line.data, False):
            if obj is not None:
                return t.facts(obj, recalled(line.data))
        break
    return None
