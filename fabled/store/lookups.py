"""What the writer needs to know of the Map before it writes.

What users ask is answered by `queries`, on connections of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..transcript import text as t
from . import schema as s
from .batch import FileRow, Known, Twin, short_key
from .database import Database


class Lookups(Database):
    """Reads on the writing connection: they see what is not committed yet."""

    # Files

    _FILE = (
        "SELECT id,path,rank,agent,session,folder,project,dev,ino,size,mtime_ns,resume_offset,resume_line,tail,"
        "complete,"
        "replaces,has_prompts,guessed,current,meta_stamp FROM files"
    )

    @staticmethod
    def _file(row: Sequence[Any]) -> FileRow:
        return FileRow(
            row[0], row[1], row[2], row[3], row[4], row[5], row[6], (row[7], row[8], row[9], row[10]), row[11], row[12],
            row[13],
            bool(row[14]), row[15], bool(row[16]), bool(row[17]), row[18], row[19],
        )  # fmt: skip

    def files(self) -> Iterator[FileRow]:
        """All rows of files that are not on their way out."""
        for row in self.db.execute(self._FILE + " WHERE id NOT IN (SELECT file FROM doomed) ORDER BY id"):
            yield self._file(row)

    def files_at(self, path: str) -> Iterator[FileRow]:
        """The rows of one file: one, or another beside it."""
        sql = self._FILE + " WHERE path=? AND id NOT IN (SELECT file FROM doomed) ORDER BY id"
        yield from map(self._file, self.db.execute(sql, (path,)))

    def files_below(self, prefix: str) -> Iterator[FileRow]:
        """The rows of files in a folder, which ends with `/`, and its folders."""
        sql = self._FILE + " WHERE path>? AND path<? AND id NOT IN (SELECT file FROM doomed) ORDER BY id"
        yield from map(self._file, self.db.execute(sql, (prefix, prefix[:-1] + "0")))

    def file(self, number: int) -> FileRow | None:
        row = self.db.execute(self._FILE + " WHERE id=?", (number,)).fetchone()
        return self._file(row) if row else None

    # Capturing

    def live_files(self, session_id: str) -> list[tuple[str, str, bool]]:
        """(path, project folder, whether it is a subagent's) of the live files that hold records of a session, or are
        named for it."""
        rows = self.db.execute(
            "SELECT DISTINCT path,coalesce(folder,''),agent IS NOT NULL FROM files WHERE generation IS NULL AND "
            "(id IN (SELECT a.file FROM sessions s JOIN file_sessions a ON a.session=s.id WHERE s.session_id=?1) OR "
            "substr(path,-length(?1)-7)='/'||?1||'.jsonl') AND id NOT IN (SELECT file FROM doomed) ORDER BY path",
            (session_id,),
        )
        return [(str(path), str(folder), bool(agent)) for path, folder, agent in rows]

    def paths_of(self, session_id: str) -> list[str]:
        """Every file that holds records of a session, or lies below its name."""
        rows = self.db.execute(
            "SELECT DISTINCT path FROM files WHERE id IN (SELECT a.file FROM sessions s JOIN file_sessions a ON "
            "a.session=s.id WHERE s.session_id=?1) OR instr(path,'/'||?1||'/')>0 ORDER BY path",
            (session_id,),
        )
        return [path for (path,) in rows]

    def generations_of(self, session_id: str) -> list[str]:
        """The generations below a session's name."""
        rows = self.db.execute(
            "SELECT path FROM files WHERE generation IS NOT NULL AND instr(path,'/'||?1||'/')>0 ORDER BY path",
            (session_id,),
        )
        return [path for (path,) in rows]

    def sessions_in(self, path: str) -> list[str]:
        """The sessions whose records a file holds."""
        rows = self.db.execute(
            "SELECT DISTINCT s.session_id FROM files f JOIN file_sessions a ON a.file=f.id JOIN sessions s ON "
            "s.id=a.session WHERE f.path=? ORDER BY 1",
            (path,),
        )
        return [name for (name,) in rows]

    def only_kept(self, session_id: str) -> tuple[int, int]:
        """(records of a session, how many of them no live transcript holds in full)."""
        row = self.db.execute(
            "SELECT count(*), coalesce(sum(NOT EXISTS (SELECT 1 FROM copies c JOIN files f ON f.id=c.file WHERE "
            "c.record=r.id AND f.generation IS NULL AND c.length>=r.length)),0) FROM sessions s JOIN records r "
            "ON r.session=s.id WHERE s.session_id=?",
            (session_id,),
        ).fetchone()
        return row[0], row[1]

    def live_stamps(self) -> list[tuple[str, bool, str | None, tuple[int, int, int, int]]]:
        """(path, whether it is a subagent's, session of its records, stamp) of all live files stored whole."""
        rows = self.db.execute(
            "SELECT f.path,f.agent IS NOT NULL,s.session_id,f.dev,f.ino,f.size,f.mtime_ns FROM files f LEFT JOIN "
            "sessions s ON s.id=f.session WHERE f.generation IS NULL AND f.complete AND f.size>0 AND f.id NOT IN "
            "(SELECT file FROM doomed)"
        )
        return [(path, bool(agent), name, (a, b, c, d)) for path, agent, name, a, b, c, d in rows]

    def stored_whole(self, path: str) -> bool:
        """Whether all of a file is stored."""
        rows = self.db.execute("SELECT 1 FROM files WHERE path=? AND complete AND replaces IS NULL", (path,))
        return rows.fetchone() is not None

    def shorter_than_kept(self, path: str) -> bool:
        """Whether a generation holds a record of a live file at greater length."""
        rows = self.db.execute(
            "SELECT 1 FROM files l JOIN copies c ON c.file=l.id JOIN copies g ON g.record=c.record JOIN files f ON "
            "f.id=g.file WHERE l.path=? AND f.generation IS NOT NULL AND g.length>c.length LIMIT 1",
            (path,),
        )
        return rows.fetchone() is not None

    # Looking up what is known

    def find(self, session: int, uuid: bytes) -> Known | None:
        row = self.db.execute(
            "SELECT r.id,r.file,r.offset,r.length,c.digest FROM records r "
            "LEFT JOIN copies c ON c.file=r.file AND c.offset=r.offset WHERE r.uuid=? AND r.session=?",
            (uuid, session),
        ).fetchone()
        return Known(*row) if row else None

    def parent(self, uuid: bytes, session: int, file: int) -> tuple[str | None, int, int] | None:
        """(thread key, kind, flags) of a record, in its own session or else in the same file; None if unknown."""
        chosen = (
            "r.uuid=?1"
            if len(uuid) == 16
            else "r.id IN (SELECT record FROM links WHERE session=?2 AND kind=?4 AND key=?5)"
        )
        row = self.db.execute(
            f"SELECT t.prompt,r.kind,r.flags FROM records r LEFT JOIN threads t ON t.id=r.thread WHERE {chosen} AND "
            f"r.agent IS NULL "
            "AND (r.session=?2 OR EXISTS (SELECT 1 FROM copies c WHERE c.record=r.id AND c.file=?3)) ORDER BY "
            "r.session<>?2, r.id LIMIT 1",
            (uuid, session, file, *((s.ALIAS, short_key(uuid)) if len(uuid) != 16 else ())),
        ).fetchone()
        return (row[0], row[1], row[2]) if row else None

    def linked(self, session: int, kind: int, key: int) -> list[int]:
        """The records a link names, as their files have them: numbers depend on the order of indexing."""
        rows = self.db.execute(
            "SELECT l.record FROM links l JOIN records r ON r.id=l.record JOIN files f ON f.id=r.file "
            "WHERE l.session=? AND l.kind=? AND l.key=? ORDER BY f.rank,f.path,r.offset",
            (session, kind, key),
        )
        return [record for (record,) in rows]

    def has_links(self, session: int, kind: int) -> bool:
        row = self.db.execute("SELECT 1 FROM links WHERE session=? AND kind=? LIMIT 1", (session, kind)).fetchone()
        return row is not None

    def tool_of(self, session: int, call: str | None) -> int | None:
        """The tool of the call a result answers."""
        if call is not None:
            for record in self.linked(session, s.CALL, t.key64(call)):
                row = self.db.execute("SELECT tool FROM records WHERE id=?", (record,)).fetchone()
                if row:
                    return int(row[0]) if row[0] is not None else None
        return None

    def key_of_record(self, record: int) -> str | None:
        row = self.db.execute(
            "SELECT t.prompt FROM records r JOIN threads t ON t.id=r.thread WHERE r.id=?", (record,)
        ).fetchone()
        return row[0] if row else None

    def standing(self, record: int) -> tuple[str | None, int, int, bool, bool]:
        """(thread key, kind, flags, whether it is of type user or assistant, whether it has a promptId) of a record."""
        row = self.db.execute(
            "SELECT t.prompt,r.kind,r.flags,n.text IN ('user','assistant'),r.prompt IS NOT NULL FROM records r "
            "JOIN names n ON n.id=r.type LEFT JOIN threads t ON t.id=r.thread WHERE r.id=?",
            (record,),
        ).fetchone()
        return row[0], row[1], row[2], bool(row[3]), bool(row[4])

    def digests(self, file: int) -> dict[bytes, int]:
        """digest → record of a file's copies."""
        return dict(self.db.execute("SELECT digest,record FROM copies WHERE file=? ORDER BY offset DESC", (file,)))

    def number_of(self, session_id: str) -> int | None:
        """The number of a session, stored or just given."""
        found = self._sessions.get(session_id)
        if found is None:
            row = self.db.execute("SELECT id FROM sessions WHERE session_id=?", (session_id,)).fetchone()
            found = row[0] if row else None
        return found

    def states_of(self, session: int, name: str, agent: int | None) -> list[int]:
        """The files stored whole that are states of one transcript, by their paths: the live one, then the newest.

        `name`: the session its folder or its own name tells.
        """
        rows = self.db.execute(
            "SELECT f.id FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=?1 AND f.agent IS ?3 AND "
            "f.complete AND f.replaces IS NULL AND f.id NOT IN (SELECT file FROM doomed) AND "
            "CASE WHEN f.agent IS NOT NULL THEN instr(f.path,'/'||?2||'/subagents/')>0 "
            "WHEN f.generation IS NULL THEN substr(f.path,-length(?2)-7)='/'||?2||'.jsonl' "
            "ELSE instr(f.path,'/'||?2||'/v')>0 END ORDER BY f.rank DESC, f.path",
            (session, name, agent),
        )
        return [file for (file,) in rows]

    def twins(self, file: int, agent: int | None) -> Iterator[tuple[bytes, Twin]]:
        """The records of a file whose best copy has the bytes it has there, by checksum."""
        for check, *twin in self.db.execute(
            "SELECT c.digest,r.id,r.session,r.file,r.offset FROM copies c JOIN records r ON r.id=c.record "
            "JOIN copies b ON b.file=r.file AND b.offset=r.offset WHERE c.file=? AND b.digest=c.digest AND "
            "r.agent IS ?",
            (file, agent),
        ):
            yield check, (twin[0], twin[1], twin[2], twin[3])

    def samples(self, file: int, offsets: Iterable[int], below: int) -> list[tuple[int, int, bytes]]:
        """(offset, length, digest) of copies near the given offsets, all before `below`."""
        found = {}
        for offset in offsets:
            row = self.db.execute(
                "SELECT offset,length,digest FROM copies WHERE file=? AND offset>=? AND offset<? AND length<8192 "
                "ORDER BY offset LIMIT 1",
                (file, offset, below),
            ).fetchone()
            if row:
                found[row[0]] = row
        return list(found.values())

    def prefix(self, file: int, below: int) -> tuple[list[tuple[int, int, bytes]], bool]:
        """All copies of a (small) prefix, and whether it holds anything else."""
        rows = self.db.execute(
            "SELECT offset,length,digest FROM copies WHERE file=? AND offset<?", (file, below)
        ).fetchall()
        gap = self.db.execute("SELECT 1 FROM gaps WHERE file=? AND offset<? LIMIT 1", (file, below)).fetchone()
        return rows, gap is not None

    def from_offset(self, file: int, offset: int) -> dict[int, tuple[bytes, int, int]]:
        """offset → (digest, record, length) of the copies at or behind an offset."""
        rows = self.db.execute(
            "SELECT offset,digest,record,length FROM copies WHERE file=? AND offset>=?", (file, offset)
        )
        return {o: (d, r, n) for o, d, r, n in rows}

    def launch_marks(self, session: int) -> set[int | str | bytes]:
        """By what the launch of a stored subagent of the session would be known: the hash of its name, of the call its
        description names, its promptId, the uuid its root names."""
        rows = self.db.execute(
            "SELECT n.text,f.meta_call,f.root_prompt,f.root_source FROM file_sessions a JOIN files f ON f.id=a.file "
            "JOIN names n ON n.id=f.agent WHERE a.session=?",
            (session,),
        )
        marks: set[int | str | bytes] = set()
        for name, *others in rows:
            marks.add(t.key64(name))
            marks.update(mark for mark in others if mark is not None)
        return marks

    def key_of_agent(self, agent: int, session: int) -> str | None:
        """The thread a subagent has joined."""
        row = self.db.execute(
            "SELECT t.prompt FROM records r JOIN threads t ON t.id=r.thread WHERE r.agent=? AND r.session=? LIMIT 1",
            (agent, session),
        ).fetchone()
        return row[0] if row else None

    def sessions_of(self, file: int) -> list[int]:
        return [x for (x,) in self.db.execute("SELECT session FROM file_sessions WHERE file=?", (file,))]

    def only_in(self, file: int) -> int:
        """How many records have no copy outside a file that is to be forgotten."""
        return int(
            self._one(
                "SELECT count(DISTINCT c.record) FROM copies c WHERE c.file=?1 AND NOT EXISTS (SELECT 1 FROM copies o "
                "WHERE o.record=c.record AND o.file<>?1 AND o.file NOT IN (SELECT file FROM doomed))",
                file,
            )
        )

    def losing(self, file: int) -> list[tuple[str, bool]]:
        """The sessions in a file that is to be forgotten, and whether another file holds something of each."""
        rows = self.db.execute(
            "SELECT s.session_id, EXISTS (SELECT 1 FROM file_sessions o WHERE o.session=s.id AND o.file<>?1 AND "
            "o.file NOT IN (SELECT file FROM doomed)) FROM file_sessions a JOIN sessions s ON s.id=a.session "
            "WHERE a.file=?1 ORDER BY s.session_id",
            (file,),
        )
        return [(name, bool(elsewhere)) for name, elsewhere in rows]

    def files_of(self, session: int, live: bool) -> list[int]:
        """The main files that hold records of a session: its live transcripts, or its generations."""
        return [
            x
            for (x,) in self.db.execute(
                "SELECT f.id FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.agent IS NULL "
                "AND (f.generation IS NULL)=?",
                (session, live),
            )
        ]

    def live_transcripts(self, least: int = 0) -> list[str]:
        """Paths of live main transcripts that had at least so many bytes when last read, the largest first."""
        rows = self.db.execute(
            "SELECT path FROM files WHERE generation IS NULL AND agent IS NULL AND replaces IS NULL AND "
            "coalesce(size,0)>=? AND id NOT IN (SELECT file FROM doomed) ORDER BY size DESC, path",
            (least,),
        )
        return [path for (path,) in rows]

    def kept_spans(self, uuid: bytes, session_id: str) -> list[tuple[str, int, int, bytes]]:
        """(path, offset, length, digest) of a record's copies in the generations of one transcript, the longest
        first."""
        rows = self.db.execute(
            "SELECT f.path,c.offset,c.length,c.digest FROM records r JOIN copies c ON c.record=r.id JOIN files f ON "
            "f.id=c.file WHERE r.uuid=? AND f.generation IS NOT NULL AND f.agent IS NULL AND "
            "instr(f.path,'/'||?||'/v')>0 ORDER BY c.length DESC, f.rank",
            (uuid, session_id),
        )
        return [(path, offset, length, check) for path, offset, length, check in rows]

    def largest_generation(self, session: int) -> int | None:
        """Logical bytes of the session's largest generation."""
        row = self.db.execute(
            "SELECT max(f.resume_offset) FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND "
            "f.generation IS NOT NULL "
            "AND f.agent IS NULL AND f.complete",
            (session,),
        ).fetchone()
        return row[0] if row else None

    def only_in_generations(self, session: int, live: int) -> int:
        """Records of a session that its generations hold and its live transcript does not."""
        return int(
            self._one(
                "SELECT count(DISTINCT c.record) FROM file_sessions a JOIN files f ON f.id=a.file JOIN copies c ON "
                "c.file=f.id "
                "JOIN records r ON r.id=c.record WHERE a.session=? AND f.generation IS NOT NULL AND f.agent IS NULL "
                "AND length(r.uuid)=16 "
                "AND NOT EXISTS (SELECT 1 FROM copies l WHERE l.record=c.record AND l.file=?)",
                session,
                live,
            )
        )

    def root_of(self, file: int) -> tuple[bytes, str | None] | None:
        """(uuid, promptId) of the first record of a subagent's file, once stored."""
        row = self.db.execute(
            "SELECT root_uuid,root_prompt FROM files WHERE id=? AND root_uuid IS NOT NULL", (file,)
        ).fetchone()
        return (row[0], row[1]) if row else None

    def holds_main(self, session: int, but: int) -> bool:
        """Whether a main file other than `but` already holds records of the session."""
        return (
            self.db.execute(
                "SELECT 1 FROM file_sessions a JOIN files f ON f.id=a.file WHERE a.session=? AND f.agent IS NULL AND "
                "f.id<>? LIMIT 1",
                (session, but),
            ).fetchone()
            is not None
        )
