"""Sets structlog up once for the daemon: where lines go, in which form, and what may never be in them.

What is worth a line, and when, is left to the daemon.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

# structlog's console module imports rich wherever it is installed: 4 MB in a daemon that draws nothing.
_absent = "rich" not in sys.modules and sys.modules.update(rich=None) is None  # type: ignore[call-overload]

import structlog  # noqa: E402
from structlog.typing import EventDict, Processor, WrappedLogger  # noqa: E402

if _absent:
    del sys.modules["rich"]

if TYPE_CHECKING:
    from fabled.config import Config

FILE_BYTES = 10_000_000
FILES = 5
VALUE_BYTES = 200

# Long by nature and known to hold no text of a transcript: a path, and a traceback without its locals.
WHOLE_KEYS = frozenset({"path", "exception"})

# Both libraries tell of every job and every event at INFO.
_CHATTY = ("apscheduler", "watchdog")

_PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}

Write = Callable[[str], None]
"""Takes one whole line, without its end."""


def setup(config: Config, foreground: bool, *, json_lines: bool = False) -> None:
    """Route structlog and the standard library's records to one place; may be called again after a reload.

    `foreground` with a terminal on stderr shows lines to the person there; `json_lines` writes them to stdout. Under
    systemd they go to the journal, and in every other case to the rotating file of the configuration.
    """
    level = getattr(logging, config.log_level.upper())
    if foreground and not json_lines and level == logging.INFO and sys.stderr.isatty() and not journal_reads_stderr():
        level = logging.WARNING  # a person who watches is told in words what matters; `debug` shows it all
    write, renderers = _destination(config.places.log_file, foreground, json_lines)
    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(
            # Locals would carry the text of transcripts into the log.
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=30)
        ),
        _drop_long_values,
    ]
    structlog.configure(
        processors=[*chain, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(write),
        # A cached logger would keep the old level and file after a reload.
        cache_logger_on_first_use=False,
    )
    _route_standard_records(write, chain, renderers, level)


def _destination(log_file: str, foreground: bool, json_lines: bool) -> tuple[Write, list[Processor]]:
    as_json = structlog.processors.JSONRenderer(serializer=dumps)
    if json_lines:
        return _to_stdout, [as_json]
    if journal_reads_stderr():
        return _to_stderr, [_priority_first(as_json)]
    if foreground and sys.stderr.isatty():
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return _to_stderr, [_flat_exception, _harmless, structlog.dev.ConsoleRenderer(colors=colour)]
    return RotatingFile(log_file).write, [as_json]


def _harmless(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Names of files may hold what a terminal would do instead of show."""
    return {key: _shown(value) for key, value in event.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in value)
    return [_shown(one) for one in value] if isinstance(value, list | tuple) else value


def _to_stdout(line: str) -> None:
    """In one write, as `print` makes two: lines of several OS threads would run into each other."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _to_stderr(line: str) -> None:
    """Looks stderr up each time: a progress bar puts its own there while it runs."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def journal_reads_stderr() -> bool:
    """JOURNAL_STREAM is inherited by everything started from a unit, so it must name this very stderr."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _route_standard_records(write: Write, chain: list[Processor], renderers: list[Processor], level: int) -> None:
    handler = _Handler(write)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=chain,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
    logging.captureWarnings(True)


class _Lines:
    """What structlog calls with the rendered line, whatever the level."""

    def __init__(self, write: Write) -> None:
        self.msg = write
        self.log = self.debug = self.info = self.warning = self.warn = self.msg
        self.error = self.critical = self.exception = self.fatal = self.failure = self.err = self.msg


class _Handler(logging.Handler):
    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write_line = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write_line(self.format(record))
        except Exception:  # logging's own rule: a record that cannot be rendered must not stop its caller
            self.handleError(record)


class RotatingFile:
    """A private log file that starts anew at `limit` bytes and keeps `keep` files in all; any thread may write."""

    def __init__(self, path: str, *, limit: int = FILE_BYTES, keep: int = FILES) -> None:
        self._path, self._limit, self._keep = path, limit, keep
        self._lock = threading.Lock()
        self._fd, self._size = self._open()

    def _open(self) -> tuple[int, int]:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)
        return fd, os.fstat(fd).st_size

    def write(self, line: str) -> None:
        """One line in one write. A full disk loses the line, the whole of it, or the next one would go on where it was
        cut: work must not stop for want of a log."""
        data = line.encode(errors="backslashreplace") + b"\n"
        with self._lock:
            try:
                if self._size and self._size + len(data) > self._limit:
                    self._rotate()
                written = os.write(self._fd, data)
                if written < len(data):
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                else:
                    self._size += written
            except OSError:
                pass  # said above; there is no second place to tell it

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        old = self._fd
        self._fd, self._size = self._open()
        os.close(old)


# ── processors ──────────────────────────────────────────────────────────────────────────────────────────────────


def _drop_long_values(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Ids, sizes, durations and rule names are short; what is long may be text of a transcript."""
    for key, value in event.items():
        if key not in WHOLE_KEYS and not key.startswith("_"):
            event[key] = _short(value)
    _shorten_messages(event.get("exception"))
    return event


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    size = len(text.encode(errors="surrogatepass"))
    return value if size <= VALUE_BYTES else f"({size} bytes left out)"


def _shorten_messages(exception: Any) -> None:
    """A traceback keeps every frame; the words of the exception itself may quote what it stumbled over."""
    for one in exception if isinstance(exception, list) else ():
        one["exc_value"] = _short(one.get("exc_value", ""))
        one["exc_notes"] = [_short(note) for note in one.get("exc_notes", ())]
        for inner in one.get("exceptions", ()):
            _shorten_messages(inner)


def _flat_exception(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """The console shows a traceback as the lines people know."""
    exception = event.get("exception")
    if isinstance(exception, list):
        event["exception"] = "\n".join(line for one in exception for line in _traceback_lines(one))
    return event


def _traceback_lines(one: Mapping[str, Any]) -> list[str]:
    frames = [f'  File "{f["filename"]}", line {f["lineno"]}, in {f["name"]}' for f in one.get("frames", ())]
    return ["Traceback (most recent call last):", *frames, f"{one.get('exc_type')}: {one.get('exc_value')}"]


def _priority_first(render: Processor) -> Processor:
    """The journal takes a line's level from a leading `<N>`."""

    def prefixed(logger: WrappedLogger, name: str, event: EventDict) -> str:
        level = event.get("level", "info")
        return f"<{_PRIORITIES.get(level, 6)}>{render(logger, name, event)!s}"

    return prefixed


def dumps(event: MutableMapping[str, Any], **_: Any) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"), default=str)
