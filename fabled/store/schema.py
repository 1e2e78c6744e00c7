"""The tables of Map and Ledger and their versions.

A Map of another version is rebuilt, a Ledger of an older one migrated, a newer one of either refused.
"""

from __future__ import annotations

MAP_VERSION = 6
LEDGER_VERSION = 4
APPLICATION_ID = 0x66626C64  # "fbld": tells our databases from anything else at their place

MAP = """
CREATE TABLE names(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE sessions(
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, project TEXT, folder TEXT, forked_from TEXT);
CREATE TABLE files(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, folder TEXT, project TEXT, session INTEGER, agent INTEGER,
    generation TEXT, rank INTEGER NOT NULL,
    dev INTEGER, ino INTEGER, size INTEGER, mtime_ns INTEGER,
    resume_offset INTEGER NOT NULL DEFAULT 0, resume_line INTEGER NOT NULL DEFAULT 1, tail BLOB,
    complete INTEGER NOT NULL DEFAULT 0, replaces INTEGER,
    has_prompts INTEGER NOT NULL DEFAULT 0, guessed INTEGER NOT NULL DEFAULT 0, current TEXT,
    meta_stamp INTEGER, meta_call INTEGER, root_uuid BLOB, root_prompt TEXT, root_source BLOB);
CREATE INDEX files_path ON files(path);
CREATE TABLE file_sessions(session INTEGER, file INTEGER, PRIMARY KEY(session, file)) WITHOUT ROWID;
CREATE INDEX file_sessions_file ON file_sessions(file);
CREATE TABLE copies(
    file INTEGER, offset INTEGER, length INTEGER NOT NULL, line INTEGER NOT NULL, digest BLOB NOT NULL,
    record INTEGER NOT NULL, PRIMARY KEY(file, offset)) WITHOUT ROWID;
CREATE INDEX copies_record ON copies(record);
CREATE TABLE gaps(
    file INTEGER, offset INTEGER, length INTEGER NOT NULL, line INTEGER NOT NULL, kind INTEGER NOT NULL,
    PRIMARY KEY(file, offset)) WITHOUT ROWID;
CREATE TABLE records(
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, uuid BLOB NOT NULL, type INTEGER NOT NULL, kind INTEGER NOT NULL,
    ts INTEGER, thread INTEGER, parent BLOB, prompt INTEGER, agent INTEGER, tool INTEGER,
    flags INTEGER NOT NULL DEFAULT 0, hidden INTEGER NOT NULL DEFAULT 0,
    file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, tokens INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX records_uuid ON records(uuid, session);
CREATE INDEX records_thread ON records(thread) WHERE thread IS NOT NULL;
CREATE INDEX records_agent ON records(agent, session) WHERE agent IS NOT NULL;
CREATE INDEX records_summary ON records(session) WHERE kind=7;
CREATE TABLE links(
    session INTEGER, kind INTEGER, key INTEGER, record INTEGER, PRIMARY KEY(session, kind, key, record)) WITHOUT ROWID;
CREATE TABLE shares(a INTEGER, b INTEGER, PRIMARY KEY(a, b)) WITHOUT ROWID;
CREATE TABLE touches(record INTEGER, path INTEGER, PRIMARY KEY(record, path)) WITHOUT ROWID;
CREATE INDEX touches_path ON touches(path);
CREATE TABLE threads(
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, prompt TEXT, first_ts INTEGER, last_ts INTEGER,
    turns INTEGER NOT NULL DEFAULT 0, said INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
    title TEXT, title_record INTEGER, title_rank INTEGER NOT NULL DEFAULT 99, canonical INTEGER);
CREATE UNIQUE INDEX threads_key ON threads(session, prompt);
CREATE INDEX threads_prompt ON threads(prompt);
CREATE INDEX threads_said ON threads(session, said);
CREATE INDEX threads_recent ON threads(session, last_ts) WHERE prompt IS NOT NULL AND said>0;
CREATE INDEX threads_last ON threads(last_ts) WHERE prompt IS NOT NULL AND said>0;
CREATE TABLE titles(record INTEGER PRIMARY KEY, session INTEGER, leaf BLOB, kind INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX titles_session ON titles(session);
CREATE INDEX titles_leaf ON titles(leaf) WHERE leaf IS NOT NULL;
CREATE TABLE citations(record INTEGER, ref TEXT, PRIMARY KEY(record, ref)) WITHOUT ROWID;
CREATE INDEX citations_ref ON citations(ref);
CREATE TABLE terms(
    thread INTEGER, kind INTEGER, term INTEGER, count INTEGER NOT NULL, PRIMARY KEY(thread, kind, term)) WITHOUT ROWID;
CREATE INDEX terms_term ON terms(term, kind, thread, count);
CREATE TABLE terms_of(thread INTEGER PRIMARY KEY, mark INTEGER NOT NULL);
CREATE TABLE terms_due(thread INTEGER PRIMARY KEY);
CREATE TABLE dirty(session INTEGER PRIMARY KEY, what INTEGER NOT NULL);
CREATE TABLE doomed(file INTEGER PRIMARY KEY);
CREATE TABLE owed(file INTEGER PRIMARY KEY);
CREATE TABLE whole(at INTEGER NOT NULL);
CREATE VIRTUAL TABLE fts USING fts5(
    text, thinking, parts, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
"""
"""The derived tables.

`files.mtime_ns` is -1 while a stamp is too young to prove anything, `complete` 0 until the whole file is stored,
`replaces` the row whose content this one supersedes, `guessed` 1 when file order decided a membership.
`dirty` (bit 1 memberships, bit 2 subagents), `doomed` (files to forget) and `owed` (files whose texts a new full text
still lacks) are work promised in the transaction that made it necessary, so that a kill between two commits loses
none of it. So is `terms_due`: threads whose terms no longer stand for their records; that work waits until nothing else
does. `whole` has a row once everything there was had been read for the first time. `threads.turns` is how many records
of a thread a reader is shown, `said` how many of them say or do something: a thread without any of those is not worth
listing, and they are its length to the ranking. `terms_of.mark` tells the records that a thread's terms were taken
from, `terms.term` is the number of a name.
"""

CALL, ANSWER, SPAWN, TASK, SAID_PROMPT, SAID_COMMAND, SAID_QUEUE, ORPHAN, SIDE, NOTIFIED, ALIAS, FORK = range(1, 13)
"""Kinds of `links`: tool_use id of a call; tool_use id a result answers; agent id a record names; text of a Task's
prompt; typed text of a prompt, of a queued command, of a queue operation; parent uuid that is not in the Map; text of
an inline sidechain's root; ids a task notification names; odd uuid of a record; session a
forked copy names. `key` is a 64-bit hash (`transcript.text.key64`), for the last the number of a name."""

OWN_THREAD = "(t.canonical IS NULL OR EXISTS (SELECT 1 FROM records o WHERE o.thread=t.id AND o.hidden&1=0))"
"""SQL, for threads t: not merely a fork's copy of a thread that another session began."""

LEDGER = (
    """
CREATE TABLE losses(
    kind TEXT NOT NULL, session_id TEXT NOT NULL, path TEXT NOT NULL, at INTEGER NOT NULL,
    in_vault INTEGER NOT NULL, nowhere INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY(kind, session_id, path)) WITHOUT ROWID;
""",
    """
ALTER TABLE losses ADD COLUMN accepted_at INTEGER;
CREATE TABLE generations(
    path TEXT PRIMARY KEY, folder TEXT NOT NULL, session_id TEXT NOT NULL, part TEXT NOT NULL,
    number INTEGER NOT NULL, kind TEXT NOT NULL, origin TEXT NOT NULL,
    logical INTEGER NOT NULL, packed INTEGER NOT NULL, sha256 BLOB NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL,
    dev INTEGER, ino INTEGER, size INTEGER, mtime_ns INTEGER, retired_at INTEGER, holder TEXT) WITHOUT ROWID;
CREATE INDEX generations_session ON generations(session_id, folder, part, number);
CREATE TABLE prunes(
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, path TEXT NOT NULL, what TEXT NOT NULL, level TEXT NOT NULL,
    at INTEGER NOT NULL, state TEXT NOT NULL, generation TEXT, base_length INTEGER NOT NULL, base_sha BLOB NOT NULL,
    new_length INTEGER, new_sha BLOB, temp TEXT, hidden TEXT, dev INTEGER, old_ino INTEGER, new_ino INTEGER,
    copied INTEGER, drain_from INTEGER, drain_to INTEGER, drain_at INTEGER, report TEXT);
CREATE INDEX prunes_session ON prunes(session_id);
CREATE TABLE windows(session_id TEXT NOT NULL, name TEXT NOT NULL, uuid TEXT NOT NULL,
    PRIMARY KEY(session_id, name)) WITHOUT ROWID;
CREATE TABLE attempts(
    session_id TEXT PRIMARY KEY, at INTEGER NOT NULL, size INTEGER NOT NULL, level TEXT NOT NULL, outcome TEXT NOT NULL,
    message TEXT NOT NULL, fruitless INTEGER NOT NULL, not_before INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE checks(
    session_id TEXT PRIMARY KEY, at INTEGER NOT NULL, ok INTEGER NOT NULL, message TEXT NOT NULL) WITHOUT ROWID;
""",
    """
CREATE TABLE cards(
    session_id TEXT NOT NULL, prompt TEXT NOT NULL, at INTEGER NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
    turns INTEGER NOT NULL, last_ts INTEGER, card TEXT NOT NULL, PRIMARY KEY(session_id, prompt)) WITHOUT ROWID;
CREATE TABLE card_tries(
    session_id TEXT NOT NULL, prompt TEXT NOT NULL, at INTEGER NOT NULL, turns INTEGER NOT NULL,
    fruitless INTEGER NOT NULL, not_before INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY(session_id, prompt)) WITHOUT ROWID;
CREATE TABLE card_spending(day TEXT PRIMARY KEY, requests INTEGER NOT NULL, tokens INTEGER NOT NULL) WITHOUT ROWID;
""",
    """
CREATE TABLE forgotten(
    kind TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL,
    PRIMARY KEY(kind, name)) WITHOUT ROWID;
""",
)
"""One script for each version: an older Ledger is brought forward by those it lacks, after a backup.

`generations.part`: "" for the transcript itself, else the file's place below the session's folder without `.jsonl`;
dev to mtime_ns: the stamp its origin had. `prunes`: the journal; `base_*` is what was rewritten, a prefix of the
generation's bytes, `new_*` what it became, `copied` how far the old file had been carried over when the new one took
its name, `drain_*` an append that was begun (from where to where of the old file, and the new file's size before).
`cards`: what a model made of a thread that had so many turns then, as JSON; `card_tries` a request that was begun and
not answered well; `card_spending` what was asked of models on each day (local), counted before it is asked.
`forgotten`: what a person had removed and what stays out since: kind session, project or file; state begun while its
generations are being removed, then done; `detail` as JSON how much it was.
"""
