"""A fabled home of one's own: real folders, a real Map, an indexer over them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from fabled import check
from fabled.indexer import Indexer, IndexReport
from fabled.store.ledger import Ledger
from fabled.store.map import Map
from fabled.store.vault import Vault


@dataclass
class Home:
    """One root, one Vault, one Map."""

    path: Path

    def __post_init__(self) -> None:
        self.root = self.path / "projects"
        self.vault_folder = self.path / "vault"
        self.map_db = self.path / "map.db"
        self.path.chmod(0o700)
        self.root.mkdir(parents=True, exist_ok=True)
        self.vault_folder.mkdir(exist_ok=True, mode=0o700)
        self.open()

    def open(self) -> None:
        self.map = Map(str(self.map_db))
        self.ledger = Ledger(str(self.path / "ledger.db"))
        self.vault = Vault(str(self.vault_folder), [str(self.root)])
        self.indexer = Indexer(self.map, self.vault, self.ledger)

    def close(self) -> None:
        self.map.close()
        self.ledger.close()

    def reopen(self) -> None:
        """What a restart of the daemon does."""
        self.close()
        self.open()

    def write(self, relative: str, data: bytes) -> Path:
        """Puts a file in place as a tool would: a new inode."""
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(path.name + ".tmp")
        temp.write_bytes(data)
        os.replace(temp, path)
        return path

    def append(self, relative: str, data: bytes) -> None:
        with open(self.root / relative, "ab") as file:
            file.write(data)

    def overwrite(self, relative: str, data: bytes) -> None:
        """Rewrites a file in place: the same inode."""
        with open(self.root / relative, "r+b") as file:
            file.write(data)
            file.truncate()

    def faults(self) -> list[check.CheckResult]:
        """What `fabled check --deep` finds, once what a test put into the Vault by hand is closed to others."""
        for path in (self.vault_folder, *self.vault_folder.rglob("*")):
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(path.stat().st_mode & 0o700)
        return [
            result
            for result in check.run(str(self.map_db), self.vault, str(self.path / "ledger.db"), deep=True)
            if not result.ok
        ]

    def index(self, *paths: str) -> IndexReport:
        return self.indexer.update([str(self.root / p) for p in paths] if paths else None)


def dump(path: Path | str) -> dict[str, Any]:
    """What a Map says, free of the numbers it happens to use: equal for equal files, whatever came in which order."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        name = "(SELECT session_id FROM sessions WHERE id={0}.session)||'/'||hex({0}.uuid)"
        record, thread = (
            name.format("r"),
            "(SELECT session_id FROM sessions WHERE id=t.session)||'/'||coalesce(t.prompt,'-')",
        )

        def rows(sql: str) -> list[Any]:
            return sorted(db.execute(sql).fetchall(), key=repr)

        texts: dict[str, list[Any]] = {}
        db.execute("CREATE VIRTUAL TABLE temp.seen USING fts5vocab('main','fts','instance')")
        ids = dict(db.execute(f"SELECT r.id,{record} FROM records r"))
        for term, doc, col, offset in db.execute("SELECT term,doc,col,offset FROM temp.seen"):
            texts.setdefault(ids.get(doc, f"ghost {doc}"), []).append((col, offset, term))
        return {
            "files": rows(
                "SELECT path,folder,project,generation,rank,size,resume_offset,resume_line,complete,has_prompts,"
                "guessed,current,(SELECT session_id FROM sessions s WHERE s.id=files.session) FROM files"
            ),
            "copies": rows(
                f"SELECT f.path,c.offset,c.length,c.line,hex(c.digest),{record} FROM copies c JOIN files f ON "
                f"f.id=c.file JOIN records r ON r.id=c.record"
            ),
            "gaps": rows("SELECT f.path,g.offset,g.length,g.line,g.kind FROM gaps g JOIN files f ON f.id=g.file"),
            "records": rows(
                f"SELECT {record},n.text,r.kind,r.ts,hex(r.parent),p.text,a.text,o.text,r.flags,r.hidden,f.path,"
                f"r.offset,r.length,r.tokens,{thread} "
                "FROM records r JOIN names n ON n.id=r.type LEFT JOIN names p ON p.id=r.prompt LEFT JOIN names a ON "
                "a.id=r.agent "
                "LEFT JOIN names o ON o.id=r.tool JOIN files f ON f.id=r.file LEFT JOIN threads t ON t.id=r.thread"
            ),
            "threads": rows(
                f"SELECT {thread},t.first_ts,t.last_ts,t.turns,t.tokens,t.title,(SELECT {record} FROM records r "
                f"WHERE r.id=t.title_record),t.title_rank,"
                f"(SELECT {thread.replace('t.', 'c.')} FROM threads c WHERE c.id=t.canonical) FROM threads t"
            ),
            "sessions": rows(
                "SELECT s.session_id,s.project,s.folder,s.forked_from FROM sessions s WHERE EXISTS "
                "(SELECT 1 FROM records r WHERE r.session=s.id)"
            ),
            "titles": rows(
                f"SELECT {record},s.session_id,hex(t.leaf),t.kind,t.text FROM titles t JOIN records r ON "
                f"r.id=t.record LEFT JOIN sessions s ON s.id=t.session"
            ),
            "citations": rows(f"SELECT {record},c.ref FROM citations c JOIN records r ON r.id=c.record"),
            "touches": rows(
                f"SELECT n.text,{record} FROM touches t JOIN names n ON n.id=t.path JOIN records r ON r.id=t.record"
            ),
            "terms": {
                at: sorted(
                    db.execute(
                        "SELECT e.kind,n.text,e.count FROM terms e JOIN names n ON n.id=e.term WHERE e.thread=?",
                        (number,),
                    ).fetchall()
                )
                for number, at in db.execute(
                    f"SELECT t.id,{thread} FROM threads t WHERE t.id NOT IN (SELECT thread FROM terms_due)"
                ).fetchall()
            },
            "texts": {key: sorted(value) for key, value in texts.items()},
            "open": rows("SELECT * FROM dirty") + rows("SELECT * FROM doomed"),
        }
    finally:
        db.close()


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two dumps differ, for a readable failure."""
    found = []
    for key in one:
        if one[key] == other[key]:
            continue
        if key == "terms":  # derived when nothing else waits: those that are must be right
            found += [f"terms: {at}" for at in one[key].keys() & other[key].keys() if one[key][at] != other[key][at]][
                :6
            ]
            continue
        if isinstance(one[key], list):
            found += [f"{key}: only first {row}" for row in one[key] if row not in other[key]][:6]
            found += [f"{key}: only second {row}" for row in other[key] if row not in one[key]][:6]
        else:
            found += [
                f"{key}: {k}" for k in one[key].keys() | other[key].keys() if one[key].get(k) != other[key].get(k)
            ][:6]
    return found


def rebuilt(home: Home, folder: Path) -> dict[str, Any]:
    """The dump of a Map built anew from the same files."""
    other = Map(str(folder / "rebuilt.db"))
    ledger = Ledger(str(folder / "rebuilt-ledger.db"))
    try:
        indexer = Indexer(other, home.vault, ledger)
        indexer.update(None)
        indexer.derive_terms()
    finally:
        other.close()
        ledger.close()
    return dump(folder / "rebuilt.db")
