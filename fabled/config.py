"""Turns the configuration file, the environment and the platform's folders into one frozen `Config`.

Every problem is reported at once with its file and line; creating folders and reading transcripts is left to others.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import platformdirs
from msgspec import Meta

from fabled.errors import BadConfig, BadRequest

# The kernel keeps 104 bytes (macOS) or 108 (Linux) for a socket's path, its NUL included. One limit for every
# system, so that a home carried to another machine gives the same answer.
SOCKET_PATH_BYTES = 103

# What platformdirs reads from the process's own environment.
_PLATFORM_NAMES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything lies: fabled's own files, and the client's folder (`claude`)."""

    home: str | None
    config_file: str
    data: str
    state: str
    runtime: str
    map_db: str
    ledger_db: str
    vault: str
    socket: str
    lock: str
    log_file: str
    claude: str


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, checked, with `~` expanded."""

    places: Places
    roots: tuple[str, ...]
    vaults: tuple[str, ...]
    exclude: tuple[str, ...]
    quiet_seconds: float
    max_wait_seconds: float
    sweep_seconds: float
    degraded_sweep_seconds: float
    heartbeat_seconds: float
    log_level: str
    capture: Capture
    prune: Prune
    recall: Recall
    cards: Cards


# ── the settings ────────────────────────────────────────────────────────────────────────────────────────────────


class Watch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[watch]`: how soon a change of a transcript is looked at."""

    quiet_seconds: Annotated[float, Meta(ge=0.01, le=60)] = 0.3
    max_wait_seconds: Annotated[float, Meta(ge=0.01, le=300)] = 2.0
    sweep_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 600
    degraded_sweep_seconds: Annotated[float, Meta(ge=1, le=3_600)] = 30
    heartbeat_seconds: Annotated[float, Meta(ge=1, le=3_600)] = 60


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`: what the daemon writes down."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Capture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[capture]`: when a session's bytes go into the Vault."""

    quiet_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 14_400
    reserve_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] = 1_000_000_000


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[prune]`: which live transcripts are made smaller, and when."""

    level: Literal["auto", "off", "gentle", "standard"] = "auto"
    min_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] = 1_000_000
    min_gain_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] = 262_144
    min_gain: Annotated[float, Meta(ge=0, le=1)] = 0.1
    grown_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] = 524_288
    quiet_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 30
    idle_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 3_600
    pause_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 600
    standard_min_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] = 4_000_000
    standard_min_gain: Annotated[float, Meta(ge=0, le=1)] = 0.3
    drain_seconds: Annotated[float, Meta(ge=1, le=60)] = 2
    tool_result_chars: Annotated[int, Meta(ge=512, le=1_000_000)] = 2_048
    lower_usage: bool = True
    max_generations: Annotated[int, Meta(ge=2, le=1_000)] = 10


class Recall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[recall]`: what Claude Code's hooks are given by themselves."""

    on_start: bool = True
    on_prompt: bool = False


class Cards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[cards]`: which model `fabled cards run` asks for cards, and how much of it."""

    provider: Literal["off", "claude", "anthropic", "openai"] = "off"
    model: str = ""
    url: str = ""
    key_env: str = ""
    command: str = "claude"
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=3_600)] = 120
    requests_per_day: Annotated[int, Meta(ge=0, le=100_000)] = 100
    tokens_per_day: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 500_000
    input_tokens: Annotated[int, Meta(ge=500, le=200_000)] = 6_000
    quiet_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 3_600
    min_turns: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    retry_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 5


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration file as a whole. `roots` None: the client's usual folders."""

    roots: list[str] | None = None
    vaults: list[str] = []
    exclude: list[str] = []
    watch: Watch = Watch()
    log: Log = Log()
    capture: Capture = Capture()
    prune: Prune = Prune()
    recall: Recall = Recall()
    cards: Cards = Cards()


TABLES: dict[str, type[msgspec.Struct]] = {
    "watch": Watch,
    "log": Log,
    "capture": Capture,
    "prune": Prune,
    "recall": Recall,
    "cards": Cards,
}


def setting_names() -> tuple[str, ...]:
    """Every setting as `key` or `table.key`, in the order of the example file."""
    top = [field.name for field in msgspec.structs.fields(Settings) if field.name not in TABLES]
    below = [f"{table}.{f.name}" for table, kind in TABLES.items() for f in msgspec.structs.fields(kind)]
    return (*top, *below)


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────


def places(env: Mapping[str, str]) -> Places:
    """The places that hold in `env`, by the rules of the command line's contract."""
    home = os.path.abspath(env["FABLED_HOME"]) if env.get("FABLED_HOME") else None
    if home is not None:
        config, data, state, runtime = home, *(os.path.join(home, name) for name in ("data", "state", "run"))
    else:
        config, data, state = _platform_folders(env)
        runtime = _runtime_folder(env, state)
    return Places(
        home=home,
        config_file=os.path.join(config, "config.toml"),
        data=data,
        state=state,
        runtime=runtime,
        map_db=os.path.join(data, "map.db"),
        ledger_db=os.path.join(data, "ledger.db"),
        vault=os.path.join(data, "vault"),
        socket=_socket_path(runtime, data),
        lock=os.path.join(state, "fabled.lock"),
        log_file=os.path.join(state, "fabled.log"),
        claude=_claude_folder(env),
    )


def cleanup_days(places: Places) -> int:
    """After how many days the client deletes transcripts: `cleanupPeriodDays` of its settings, else 30."""
    try:
        with open(os.path.join(places.claude, "settings.json"), "rb", opener=_at_once) as file:
            days = msgspec.json.decode(file.read(1 << 20), type=dict).get("cleanupPeriodDays")
    except (OSError, msgspec.MsgspecError):
        return 30
    return int(days) if isinstance(days, int | float) and 0 < days < 10**6 else 30


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for whoever would write into a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _platform_folders(env: Mapping[str, str]) -> tuple[str, str, str]:
    """platformdirs looks at the process's environment only: another `env` would be ignored without a word."""
    other = [name for name in _PLATFORM_NAMES if env.get(name) != os.environ.get(name)]
    if other:
        raise ValueError(f"{', '.join(other)} differ from this process's environment; give FABLED_HOME")
    dirs = platformdirs.PlatformDirs("fabled", appauthor=False)
    return dirs.user_config_dir, dirs.user_data_dir, dirs.user_state_dir


def _runtime_folder(env: Mapping[str, str], state: str) -> str:
    """Not platformdirs': its choice hangs on modes and owners of parents, which the fast path cannot look up.

    A login shell has XDG_RUNTIME_DIR and a cron job has not, so the usual value is tried before the state folder.
    """
    given = env.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(given):
        return os.path.join(given, "fabled")
    usual = f"/run/user/{os.getuid()}"
    if sys.platform != "darwin" and os.path.isdir(usual):
        return os.path.join(usual, "fabled")
    return os.path.join(state, "run")


def _socket_path(runtime: str, data: str) -> str:
    path = os.path.join(runtime, "fabled.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    return f"/tmp/fabled-{os.getuid()}/{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}.sock"


def _claude_folder(env: Mapping[str, str]) -> str:
    given = env.get("CLAUDE_CONFIG_DIR")
    return os.path.abspath(_expand(given, env)) if given else _expand("~/.claude", env)


def _default_roots(env: Mapping[str, str]) -> tuple[str, ...]:
    usual = os.path.join(_claude_folder(env), "projects")
    other = _expand("~/.config/claude/projects", env)
    if env.get("CLAUDE_CONFIG_DIR") or not os.path.isdir(other):
        return (usual,)
    return (usual, other)


def _expand(path: str, env: Mapping[str, str]) -> str:
    if path == "~" or path.startswith("~/"):
        home = env.get("HOME", "")
        return (home if os.path.isabs(home) else os.path.expanduser("~")).rstrip("/") + path[1:] or "/"
    return path


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────


def load(env: Mapping[str, str], text: bytes | None = None) -> Config:
    """The configuration that holds in `env`; raises BadConfig with every problem found. `text`: what the file is to
    hold, tried before it is written."""
    where = places(env)
    source = _Source.read(where.config_file) if text is None else _Source.of(where.config_file, text)
    problems = list(source.problems)
    values, found = _check(source)
    problems += found
    overrides, found = _overrides(env)
    problems += found
    values |= overrides
    problems += _together(values, source)
    roots, found = _folders("roots", values.get("roots"), env, source)
    problems += found
    vaults, found = _folders("vaults", values.get("vaults"), env, source)
    problems += found
    exclude, found = _excluded(values.get("exclude") or (), env, source)
    problems += found
    if problems:
        raise BadConfig(tuple(problems))
    watch = _table(Watch, "watch", values)
    return Config(
        places=where,
        roots=_default_roots(env) if roots is None else roots,
        vaults=vaults or (),
        exclude=exclude,
        quiet_seconds=watch.quiet_seconds,
        max_wait_seconds=watch.max_wait_seconds,
        sweep_seconds=watch.sweep_seconds,
        degraded_sweep_seconds=watch.degraded_sweep_seconds,
        heartbeat_seconds=watch.heartbeat_seconds,
        log_level=values.get("log.level", Log().level),
        capture=_table(Capture, "capture", values),
        prune=_table(Prune, "prune", values),
        recall=_table(Recall, "recall", values),
        cards=_table(Cards, "cards", values),
    )


_T = TypeVar("_T", bound=msgspec.Struct)


def _table(kind: type[_T], table: str, values: Mapping[str, Any]) -> _T:
    names = [field.name for field in msgspec.structs.fields(kind)]
    return kind(**{name: values[f"{table}.{name}"] for name in names if f"{table}.{name}" in values})


@dataclass(frozen=True, slots=True)
class _Source:
    """The configuration file: its text, what it says, and where a key stands in it."""

    path: str
    lines: tuple[str, ...] = ()
    document: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()
    _found: dict[tuple[str, ...], int] = field(default_factory=dict)
    """the line that brings a key in; filled when the first is asked for"""

    @classmethod
    def read(cls, path: str) -> _Source:
        """A missing file is an empty one; any other trouble is a problem to report."""
        try:
            with open(path, "rb", opener=_at_once) as file:
                return cls.of(path, file.read())
        except (FileNotFoundError, NotADirectoryError):
            return cls(path)
        except OSError as error:
            return cls(path, problems=(f"{path}: cannot be read: {error.strerror}.",))

    @classmethod
    def of(cls, path: str, data: bytes) -> _Source:
        """What the file says if it holds `data`."""
        if data.startswith(b"\xef\xbb\xbf"):
            said = "begins with a byte order mark. Save the file as UTF-8 without one."
            return cls(path, problems=(f"{path}:1: {said}",))
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            return cls(path, problems=(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.",))
        lines = tuple(text.replace("\r\n", "\n").split("\n"))
        try:
            return cls(path, lines, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"\(at line (\d+), column \d+\)", str(error))
            line = int(at[1]) if at else len(lines)
            said = re.sub(r"\s*\(at .*\)$", "", str(error))
            return cls(path, problems=(f"{path}:{line}: not valid TOML: {said}.",))
        except (RecursionError, ValueError) as error:  # the parser's own limits, which name no line
            said = "lists or tables nested too deeply" if isinstance(error, RecursionError) else "a number too long"
            return cls(path, problems=(f"{path}: cannot be taken in: {said}.",))

    def at(self, *keys: str) -> str:
        """`file:line` of a key, or the file alone where that cannot be told."""
        if not self._found:
            self._found[()] = 0
            for keys_, line in _statements(self.lines):
                for depth in (1, 2):
                    self._found.setdefault(keys_[:depth], line)
        place = self._found.get(keys)
        return f"{self.path}:{place}" if place else self.path


_PARSES = 2_000
"""A statement over more lines that could each be its last is not looked for any further."""


def _statements(lines: Sequence[str]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Each key that sound TOML sets, down to two levels, with the line its statement begins at.

    The parser itself is asked where a statement ends (lines that parse by themselves are whole), so no second reading
    of TOML's grammar is needed.
    """
    header: tuple[str, ...] = ()
    begin = tries = 0
    for number, line in enumerate(lines):
        if number > begin and not any(end in line for end in ("]", "}", '"""', "'''")):
            continue  # inside a statement that goes over several lines
        try:
            said: Any = tomllib.loads("\n".join(lines[begin : number + 1]))
        except tomllib.TOMLDecodeError:
            tries += 1
            if tries > _PARSES:
                return
            continue
        is_header = lines[begin].lstrip().startswith("[")
        if is_header:
            header = ()
        for key, value in said.items():
            inner = list(value) if isinstance(value, dict) else []
            if is_header:
                header = (key, *inner)
            for keys in ((key,), *((key, one) for one in inner)):
                yield (keys if is_header else (*header, *keys)), begin + 1
        begin, tries = number + 1, 0


_NEAR = 50
"""So many misspelt names get a suggestion; finding one costs a millisecond."""


def _check(source: _Source) -> tuple[dict[str, Any], list[str]]:
    """The file's settings by dotted name, each converted on its own so that one fault does not hide the next."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in (source.document or {}).items():
        if key not in TABLES:
            problems += _take(values, Settings, key, key, value, source.at(key), near=len(problems) < _NEAR)
        elif not isinstance(value, dict):
            problems.append(f"{source.at(key)}: {key} is a table. Write [{key}] and its settings below it.")
        else:
            for name, inner in value.items():
                at = source.at(key, name)
                problems += _take(values, TABLES[key], name, f"{key}.{name}", inner, at, near=len(problems) < _NEAR)
    return values, problems


def _take(
    values: dict[str, Any],
    kind: type[msgspec.Struct],
    name: str,
    dotted: str,
    value: object,
    at: str,
    *,
    strict: bool = True,
    near: bool = True,
) -> Iterator[str]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if name not in fields:
        yield f"{at}: no setting {dotted}.{_suggestion(dotted) if near else ''}"
        return
    try:
        taken = msgspec.convert(value, fields[name], strict=strict)
    except msgspec.ValidationError as error:
        choices = get_args(fields[name]) if get_origin(fields[name]) is Literal else ()
        said = f"expected one of {', '.join(choices)}" if choices else _worded(str(error))
        yield f"{at}: {dotted}: {said}."
        return
    if isinstance(taken, float) and not math.isfinite(taken):
        yield f"{at}: {dotted}: expected a finite number."
        return
    values[dotted] = taken


_WORDS = {
    "array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number", "object": "a table",
    "str": "text", "datetime": "a date", "date": "a date", "null": "nothing",
}  # fmt: skip


def _worded(said: str) -> str:
    """msgspec's words without the names of types: "expected a number >= 0.01, got text"."""
    plain = re.sub(r"`(\w+)(?: \| null)?", lambda kind: f"`{_WORDS.get(kind[1], kind[1])}", said).replace("`", "")
    plain = re.sub(r" - at \$\[(\d+)\]", lambda place: f" in entry {int(place[1]) + 1}", plain)
    return plain[:1].lower() + plain[1:]


def _suggestion(dotted: str) -> str:
    """A misspelt name, or the right name in the wrong table."""
    known = setting_names()
    if dotted in known:
        table, _, key = dotted.partition(".")
        return f" Take the quotation marks off, or write {key} below [{table}]."
    bare: dict[str, list[str]] = {}
    for name in known:
        bare.setdefault(name.rpartition(".")[2], []).append(name)
    close = difflib.get_close_matches(dotted, [*known, *TABLES], 1, 0.75)
    if not close:
        found = difflib.get_close_matches(dotted.rpartition(".")[2], list(bare), 1, 0.8)
        close = [" or ".join(bare[key]) for key in found]
    return f" Did you mean {close[0]}?" if close else " fabled.toml.example lists them all."


_LISTS = ("roots", "vaults", "exclude")


def _overrides(env: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """FABLED_<TABLE>_<KEY>, and FABLED_ROOTS, _VAULTS and _EXCLUDE as lists joined by the path separator."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for variable in sorted(env):
        words = variable.removeprefix("FABLED_").lower()
        if words == variable.lower():
            continue
        table, _, key = words.partition("_")
        if words in _LISTS:
            values[words] = [part for part in env[variable].split(os.pathsep) if part]
        elif table in TABLES and key:
            problems += _take(values, TABLES[table], key, f"{table}.{key}", env[variable], variable, strict=False)
    return values, problems


def _together(values: Mapping[str, Any], source: _Source) -> Iterator[str]:
    """Settings that are sound alone but not with each other."""
    quiet = values.get("watch.quiet_seconds", Watch().quiet_seconds)
    longest = values.get("watch.max_wait_seconds", Watch().max_wait_seconds)
    if quiet > longest:
        key = "max_wait_seconds" if "watch.max_wait_seconds" in values else "quiet_seconds"
        yield (
            f"{source.at('watch', key)}: watch.max_wait_seconds ({longest:g}) is shorter than "
            f"watch.quiet_seconds ({quiet:g}). A change waits for quiet, but never longer than the maximum."
        )


def _folders(
    name: str, given: Sequence[str] | None, env: Mapping[str, str], source: _Source
) -> tuple[tuple[str, ...] | None, list[str]]:
    """Folders as absolute paths, each once. A relative one would mean another place for daemon and client."""
    if given is None:
        return None, []
    folders = [_expand(folder, env) for folder in given]
    wrong = [folder for folder in folders if not os.path.isabs(folder)]
    unsound = [folder for folder in folders if "\0" in folder]
    at = f"FABLED_{name.upper()}" if env.get(f"FABLED_{name.upper()}") else source.at(name)
    problems = [f"{at}: {name}: {folder!r} is not absolute. Begin it with / or ~/." for folder in wrong]
    problems += [f"{at}: {name}: {folder!r} holds a NUL, which no path can." for folder in unsound]
    if not folders and name == "roots":
        problems.append(f"{at}: roots is empty. Leave it out to use the client's usual folders.")
    return tuple(dict.fromkeys(os.path.normpath(folder) for folder in folders)), problems


def _excluded(given: Sequence[str], env: Mapping[str, str], source: _Source) -> tuple[tuple[str, ...], list[str]]:
    """Projects by path, or by the name of their folder; `~/` is the home."""
    names = [_expand(name, env) for name in given]
    wrong = [name for name in names if not name.strip() or "\0" in name or ("/" in name and not os.path.isabs(name))]
    at = "FABLED_EXCLUDE" if env.get("FABLED_EXCLUDE") else source.at("exclude")
    problems = [f"{at}: exclude: {name!r} is neither an absolute path nor a folder's name." for name in wrong]
    return tuple(dict.fromkeys(os.path.normpath(name) if "/" in name else name for name in names)), problems


# ── one by one ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it holds: its value, what it would be without anybody's doing, and who says so."""

    name: str
    value: Any
    default: Any
    origin: str
    """`file:line`, the name of an environment variable, or `default`"""


def in_force(env: Mapping[str, str]) -> tuple[Setting, ...]:
    """Every setting, in the order of the example file; raises BadConfig as `load` does."""
    load(env)
    source = _Source.read(places(env).config_file)
    said, _ = _check(source)
    given, _ = _overrides(env)
    found = []
    for name in setting_names():
        default = default_of(name, env)
        if name in given:
            found.append(Setting(name, given[name], default, variable_of(name)))
        elif name in said:
            found.append(Setting(name, said[name], default, source.at(*name.split("."))))
        else:
            found.append(Setting(name, default, default, "default"))
    return tuple(found)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return "FABLED_" + name.replace(".", "_").upper()


def default_of(name: str, env: Mapping[str, str]) -> Any:
    """What a setting is where nobody says anything."""
    if name == "roots":
        return list(_default_roots(env))
    table, _, key = name.rpartition(".")
    return getattr(TABLES[table]() if table else Settings(), key)


def kind_of(name: str) -> Any:
    """The type a setting's value has; raises BadRequest for a name that is none, with the one that may be meant."""
    if name in TABLES:
        below = ", ".join(one for one in setting_names() if one.startswith(f"{name}."))
        raise BadRequest(f"{name} is a table of settings: {below}", f"fabled config get {below.partition(',')[0]}")
    if name not in setting_names():
        raise BadRequest(f"no setting {name}.{_suggestion(name)}", "fabled config shows those there are")
    table, _, key = name.rpartition(".")
    return {field.name: field.type for field in msgspec.structs.fields(TABLES[table] if table else Settings)}[key]
