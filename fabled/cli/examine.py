"""The checks of `doctor`: each looks at one thing and says that it is well, or what to do.

They only look. What the Map and the Vault must fulfil is `check`'s; here it is about the set-up around them. What
stands outside of fabled is `outside`'s.

A check is a function of `Seen` that gives findings; to add one, write it and name it in CHECKS.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import fabled
from fabled.cli import journal, outside, plugin
from fabled.cli.findings import Finding, Seen
from fabled.config import Places, cleanup_days
from fabled.errors import BadConfig, FabledError
from fabled.present.terminal import count, duration, plural, short, size

RECENT_SECONDS = 86_400
BIG_WAL_BYTES = 64 << 20
SPARE_BYTES = 2_000_000_000
SHOWN, NAMED = 20, 3


def examine(seen: Seen) -> list[Finding]:
    """Every finding of every check, in the order a person mends things."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(seen)
        except OSError as fault:
            name = check.__name__.strip("_").replace("_", " ")
            said = f"could not be looked at: {fault.strerror or fault}"
            found.append(Finding(name, "warning", said, "fabled logs --level warning"))
    return found


def _config(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        more = f"{plural(len(seen.problems), 'problem')} in the configuration"
        yield Finding("config", "failure", more, "fabled config edit", seen.problems)
        return
    file = seen.config.places.config_file
    yield Finding("config", "ok", f"{file} is sound" if os.path.exists(file) else "every setting has its default")


def _daemon(seen: Seen) -> Iterator[Finding]:
    again = outside.restart(seen)
    if seen.silent:
        yield Finding("daemon", "failure", f"it does not answer: {seen.silent}", again)
    elif seen.status is None:
        yield Finding("daemon", "failure", "it is not running", outside.start(seen))
    elif seen.status.get("version") != fabled.__version__:
        said = f"{seen.status.get('version')} runs, the client is {fabled.__version__}"
        yield Finding("daemon", "warning", said, again)
    else:
        up = duration(seen.status.get("uptime_s") or 0)
        yield Finding("daemon", "ok", f"{fabled.__version__} running for {up}, protocol {seen.status.get('protocol')}")


def _socket(seen: Seen) -> Iterator[Finding]:
    if seen.config is None or seen.status is None:
        return
    path = seen.config.places.socket
    mine, folder = os.lstat(path), os.lstat(os.path.dirname(path))
    modes = f"{stat.S_IMODE(mine.st_mode):04o} in {stat.S_IMODE(folder.st_mode):04o}"
    ours = mine.st_uid == folder.st_uid == os.getuid()
    if ours and not (stat.S_IMODE(mine.st_mode) | stat.S_IMODE(folder.st_mode)) & 0o077:
        yield Finding("socket", "ok", f"{path}  {modes}, owner you")
    else:
        yield Finding("socket", "failure", f"others may reach {path} ({modes})", f"chmod 700 {os.path.dirname(path)}")


def _private(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    where = seen.config.places
    wide = [path for path in (where.data, where.state, where.vault, where.map_db, where.ledger_db, where.log_file)
            if os.path.exists(path) and os.stat(path).st_mode & 0o077]  # fmt: skip
    if wide:
        yield Finding("private", "failure", f"others may read {wide[0]}", f"chmod go-rwx {wide[0]}", tuple(wide[1:]))
    elif os.path.exists(where.data):
        yield Finding("private", "ok", "only you can read Map, Ledger, Vault and log")


def _writable(seen: Seen) -> Iterator[Finding]:
    """Even reading an index that nobody has open writes beside it."""
    if seen.config is None:
        return
    where = seen.config.places
    for folder in dict.fromkeys((where.data, where.state, os.path.dirname(where.config_file))):
        there = folder
        while not os.path.lexists(there) and there != os.path.dirname(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there):
            yield Finding(
                "places", "failure", f"{there} is no folder, so {folder} cannot be made", f"mv {there} {there}.aside"
            )
        elif not os.access(there, os.W_OK | os.X_OK):
            fix = f"chmod u+wx {there}" if os.stat(there).st_uid == os.getuid() else "export FABLED_HOME=FOLDER"
            yield Finding("places", "failure", f"{there} cannot be written", fix)


def _database(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    from fabled.store.soundness import look

    where = seen.config.places
    if not os.path.exists(where.map_db):
        yield Finding("database", "warning", "there is no Map yet", "fabled index")
        return
    try:
        told = look(where.map_db, where.ledger_db)
    except FabledError as fault:
        yield Finding("database", "failure", fault.message, fault.hint)
        return
    if told.faults:
        yield Finding(
            "database", "failure", told.faults[0], "fabled check; fabled index builds the Map anew", told.faults
        )
        return
    wal = os.path.getsize(where.map_db + "-wal") if os.path.exists(where.map_db + "-wal") else 0
    said = f"SQLite {told.sqlite}, schema {told.schema}, quick check ok, WAL {size(wal)}"
    if wal > BIG_WAL_BYTES:
        yield Finding("database", "warning", said, f"end what has {where.map_db} open")
    else:
        yield Finding("database", "ok", said)


def _roots(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    missing = [root for root in seen.config.roots if not os.path.isdir(root)]
    closed = [root for root in seen.config.roots if os.path.isdir(root) and not os.access(root, os.R_OK | os.X_OK)]
    for root in closed:
        yield Finding("transcripts", "failure", f"{root} cannot be read", f"chmod u+rx {root}")
    if missing and len(missing) == len(seen.config.roots):
        fix = "start Claude Code once, or: fabled config set roots FOLDER"
        said = "is no folder" if os.path.exists(missing[0]) else "does not exist"
        yield Finding("transcripts", "warning", f"{missing[0]} {said}", fix, tuple(missing[1:]))
    elif not closed:
        yield Finding("transcripts", "ok", ", ".join(root for root in seen.config.roots if root not in missing))


def _watching(seen: Seen) -> Iterator[Finding]:
    if seen.status is None:
        return
    watcher = seen.status.get("watcher") or {}
    warned = {one.get("code"): one for one in seen.status.get("warnings") or []}
    if watcher.get("mode") == "events":
        allowed = _number("/proc/sys/fs/inotify/max_user_watches")
        more = f", {count(allowed)} directories allowed" if allowed else ""
        lost = seen.status.get("overflow") or 0
        yield Finding(
            "watching", "ok", f"by events{more}" + (f", {plural(lost, 'overflow')} made good" if lost else "")
        )
    else:
        said = f"{watcher.get('mode')}: {watcher.get('reason') or 'no reason told'}"
        yield Finding("watching", "warning", said, str((warned.get("watcher") or {}).get("hint") or "fabled logs"))


def _retention(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    places = seen.config.places
    days = cleanup_days(places)
    near = (seen.status or {}).get("near_cleanup") or 0
    file = os.path.join(places.claude, "settings.json")
    said = f"Claude Code deletes transcripts after {days} days ({_who_says(places)})"
    if near:
        more = f"{said}; {plural(near, 'session')} near that lie in no Vault yet"
        yield Finding("retention", "warning", more, f"fabled capture, or raise cleanupPeriodDays in {file}")
    elif seen.status is None:
        yield Finding("retention", "warning", said, f"{outside.start(seen)}: it keeps them before that")
    else:
        yield Finding("retention", "ok", f"{said}; each is kept before that")


def _who_says(places: Places) -> str:
    """Whether the person has set how long the client keeps transcripts."""
    try:
        given = plugin.settings(plugin.Spot.of(places)).get("cleanupPeriodDays")
    except FabledError:
        given = None
    if given is None:
        return "cleanupPeriodDays is not set"
    usable = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
    return "cleanupPeriodDays" if usable else "its cleanupPeriodDays is no number of days"


def _disk(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    folder = seen.config.places.data
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    reserve = seen.config.capture.reserve_bytes
    growth = _growth(seen)
    said = f"{size(free)} free" + (f"; the Vault grows about {size(growth)} a day" if growth else "")
    if free <= reserve:
        fix = f"free space where {folder} lies, or: fabled config set capture.reserve_bytes 200MB"
        yield Finding("disk", "failure", f"{said}: less than the reserve of {size(reserve)}, so nothing is kept", fix)
    elif free - reserve < SPARE_BYTES or (growth and (free - reserve) / growth < 30):
        yield Finding("disk", "warning", said, f"free space where {folder} lies")
    else:
        yield Finding("disk", "ok", said)


def _growth(seen: Seen) -> float:
    """Bytes a day that the Vault grew by, over the last weeks."""
    from fabled.store.kept import reading

    assert seen.config is not None
    with contextlib.suppress(FabledError), reading(seen.config.places.ledger_db) as ledger:
        recent = [one for one in ledger.kept() if one.retired_at is None and seen.now - one.at < 28 * RECENT_SECONDS]
        if recent:
            return sum(one.packed for one in recent) / max(1.0, (seen.now - min(o.at for o in recent)) / RECENT_SECONDS)
    return 0.0


def _warnings(seen: Seen) -> Iterator[Finding]:
    """What the daemon itself worries about, and no check above has said."""
    said = {"watcher", "cleanup", "root_missing", "wal", "prune_stopped"}
    for one in (seen.status or {}).get("warnings") or []:
        if one.get("code") not in said:
            yield Finding(str(one.get("code")), "warning", str(one.get("message")), str(one.get("hint") or ""))


def _log(seen: Seen) -> Iterator[Finding]:
    if seen.config is None or not os.path.exists(seen.config.places.log_file):
        return
    source = journal.Source(seen.config.places.log_file, seen.env)
    bad = list(journal.wanted(source.lines(), "error", seen.now - RECENT_SECONDS))
    if not bad:
        yield Finding("log", "ok", "no error within a day")
        return
    last = bad[-1].fields
    said = (
        f"{plural(len(bad), 'error')} within a day, the last: {last.get('event')} {last.get('reason') or ''}".rstrip()
    )
    yield Finding("log", "warning", said, "fabled logs --since 1d --level error")


def _pruning(seen: Seen) -> Iterator[Finding]:
    """Why each large session was pruned or was not."""
    if seen.status is None:
        return
    prune = seen.status.get("prune") or {}
    rows = prune.get("sessions") or ()
    said = str(prune.get("summary") or "only when asked")
    if prune.get("level") == "off" and rows and prune.get("why"):
        said = f"{said}: {prune['why']}"
    details = tuple(_verdicts(rows, said, seen.now))
    if prune.get("disabled"):
        yield Finding("pruning", "failure", said, "fabled prune SESSION --check", details)
    else:
        yield Finding("pruning", "ok", said, "", details)


def _verdicts(rows: Sequence[Mapping[str, Any]], summary: str, now: float) -> Iterator[str]:
    """One line for each session; those to which the same happened share one, and what the summary says is not said
    again."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        last = row.get("last_prune")
        said = f"{row.get('verdict')}" + (f"; last pruned {duration(now - last, 1)} ago" if last else "")
        alike.setdefault(said, []).append(row)
    for number, (said, group) in enumerate(alike.items()):
        if number == SHOWN:
            left = sum(len(one) for one in list(alike.values())[SHOWN:])
            yield f"and {plural(left, 'session')} more: fabled status --json"
            return
        names = ", ".join(short(str(row["session_id"])) for row in group[:NAMED])
        more = f" and {len(group) - NAMED} more" if len(group) > NAMED else ""
        large = size(sum(row.get("bytes") or 0 for row in group))
        words = "not pruned" if said in summary else said
        yield (
            f"{plural(len(group), 'session')}, {large}, {words}: {names}{more}"
            if len(group) > 1
            else f"{names}  {large}  {words}"
        )


def _number(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


CHECKS: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    outside.program, _config, _daemon, _socket, _writable, _private, _database, _roots, _watching, _retention, _disk,
    outside.claude, outside.service, _log, _warnings, _pruning,
)  # fmt: skip


def gather(env: Mapping[str, str], status: Callable[[], Mapping[str, Any] | None]) -> Seen:
    """What there is to look at. `status` gives the daemon's, None where none runs, and raises where it hangs."""
    from fabled import config

    settings, silent = None, ""
    problems: tuple[str, ...] = ()
    told: Mapping[str, Any] | None = None
    try:
        settings = config.load(env)
    except BadConfig as fault:
        problems = fault.problems
    try:
        told = status()
    except FabledError as fault:
        silent = fault.message
    return Seen(settings, problems, told, silent, env, time.time())
