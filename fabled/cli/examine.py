"""The checks of `doctor`: each looks at one thing and says that it is well, or what to do.

They only look. What the Map and the Vault must fulfil is `check`'s; here it is about the set-up around them.

A check is a function of `Seen` that gives findings; to add one, write it and name it in CHECKS.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import fabled
from fabled.cli import journal
from fabled.config import Config, cleanup_days
from fabled.present.terminal import count, duration, plural, short, size

RECENT_SECONDS = 86_400
BIG_WAL_BYTES = 64 << 20
SPARE_BYTES = 2_000_000_000
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: `fix` is a command or a step where there is something to mend."""

    id: str
    state: Literal["ok", "warning", "failure"]
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the checks look at, gathered once."""

    config: Config | None
    problems: tuple[str, ...]
    """of the configuration, where it is faulty"""
    status: Mapping[str, Any] | None
    """the daemon's; None where it gave none"""
    silent: str
    """why a daemon that is there gave none"""
    env: Mapping[str, str]
    now: float


def examine(seen: Seen) -> list[Finding]:
    """Every finding of every check, in the order a person mends things."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(seen)
        except OSError as fault:
            name = check.__name__.strip("_").replace("_", " ")
            found.append(Finding(name, "warning", f"could not be looked at: {fault.strerror or fault}"))
    return found


def _config(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        more = f"{plural(len(seen.problems), 'problem')} in the configuration"
        yield Finding("config", "failure", more, "fabled config edit", seen.problems)
        return
    file = seen.config.places.config_file
    yield Finding("config", "ok", f"{file} is sound" if os.path.exists(file) else "every setting has its default")


def _daemon(seen: Seen) -> Iterator[Finding]:
    if seen.silent:
        yield Finding("daemon", "failure", f"it does not answer: {seen.silent}", "fabled logs; stop it and start it")
    elif seen.status is None:
        unit = "fabled service start" if _unit(seen) else "fabled daemon, or fabled service install"
        yield Finding("daemon", "failure", "it is not running", unit)
    elif seen.status.get("version") != fabled.__version__:
        said = f"{seen.status.get('version')} runs, the client is {fabled.__version__}"
        yield Finding("daemon", "warning", said, "restart the daemon")
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


def _database(seen: Seen) -> Iterator[Finding]:
    if seen.config is None:
        return
    from fabled.errors import FabledError
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
        yield Finding("transcripts", "warning", f"{missing[0]} does not exist", fix, tuple(missing[1:]))
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
    said = f"Claude Code deletes transcripts after {days} days"
    if near:
        more = f"{said}; {plural(near, 'session')} near that lie in no Vault yet"
        yield Finding("retention", "warning", more, f"fabled capture, or raise cleanupPeriodDays in {file}")
    elif seen.status is None:
        yield Finding("retention", "warning", said, "let the daemon run: it keeps them before that")
    else:
        yield Finding("retention", "ok", f"{said}; each is kept before that")


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
    from fabled.errors import FabledError
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
    details = tuple(_verdicts(rows[:SHOWN], seen.now))
    more = len(rows) - SHOWN
    details += (f"and {plural(more, 'session')} more: fabled status --json",) if more > 0 else ()
    said = str(prune.get("summary") or "only when asked")
    if prune.get("disabled"):
        yield Finding("pruning", "failure", said, "fabled prune SESSION --check", details)
    elif prune.get("level") == "off" and rows:
        why = f"{said}: {prune.get('why')}" if prune.get("why") else said
        yield Finding("pruning", "ok", why, "", details)
    else:
        yield Finding("pruning", "ok", said, "", details)


def _verdicts(rows: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    """Each verdict once, behind the sessions that it is about."""
    about: dict[str, list[str]] = {}
    for row in rows:
        verdict = str(row.get("verdict"))
        if row.get("last_prune"):
            verdict += f"; last pruned {duration(now - row['last_prune'], 1)} ago"
        about.setdefault(verdict, []).append(f"{short(str(row['session_id']))} ({size(row.get('bytes') or 0)})")
    for verdict, sessions in about.items():
        yield f"{', '.join(sessions)}: {verdict}"


def _service(seen: Seen) -> Iterator[Finding]:
    """Whether it comes back after a login, and stays after a logout."""
    if sys.platform == "darwin":
        agent = os.path.expanduser("~/Library/LaunchAgents/io.fabled.daemon.plist")
        if os.path.exists(agent):
            yield Finding("service", "ok", agent)
        else:
            yield Finding("service", "warning", "fabled does not start by itself", "fabled service install")
        return
    unit = _unit(seen)
    if not unit:
        yield Finding("service", "warning", "fabled does not start by itself at login", "fabled service install")
        return
    yield Finding("service", "ok", unit)
    user = _user()
    if os.path.isdir("/var/lib/systemd") and not os.path.exists(f"/var/lib/systemd/linger/{user}"):
        yield Finding("linger", "warning", "user services stop at logout", f"loginctl enable-linger {user}")


def _unit(seen: Seen) -> str:
    home = seen.env.get("XDG_CONFIG_HOME") or os.path.join(seen.env.get("HOME") or "/", ".config")
    path = os.path.join(home, "systemd", "user", journal.UNIT)
    return path if os.path.exists(path) else ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _program(seen: Seen) -> Iterator[Finding]:
    found = shutil.which("fabled", path=seen.env.get("PATH"))
    version = ".".join(map(str, sys.version_info[:3]))
    if found is None:
        fix = "install it with pipx or uv, or add its folder to PATH"
        yield Finding("program", "warning", "fabled is not on the PATH; hooks and services need it there", fix)
    else:
        yield Finding("program", "ok", f"{found}, Python {version}")


def _number(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


CHECKS: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    _program, _config, _daemon, _socket, _private, _database, _roots, _watching, _retention, _disk, _service, _log,
    _warnings, _pruning,
)  # fmt: skip


def gather(env: Mapping[str, str], status: Callable[[], Mapping[str, Any] | None]) -> Seen:
    """What there is to look at. `status` gives the daemon's, None where none runs, and raises where it hangs."""
    from fabled import config
    from fabled.errors import BadConfig, FabledError

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
