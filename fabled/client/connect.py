"""Finds the daemon's socket and fetches answers from it, with nothing imported that a cold start would feel.

The places are `fabled.config`'s, worked out again with plain `os` (a test holds the two equal); what an answer says
is left to the daemon, which sends it ready to print.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from errno import EAGAIN, ECONNREFUSED, ENOENT, ENOTDIR

TYPE_CHECKING = False  # `typing` itself costs more than everything here
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOCKET_PATH_BYTES = 103


class Down(Exception):
    """Nobody listens at the socket."""


class Silent(Exception):
    """Somebody holds the socket but gives no (whole) answer in time."""


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────


def data_folder(env: Mapping[str, str]) -> str:
    return _folder(env, "data", "XDG_DATA_HOME", "~/.local/share")


def state_folder(env: Mapping[str, str]) -> str:
    return _folder(env, "state", "XDG_STATE_HOME", "~/.local/state")


def _folder(env: Mapping[str, str], name: str, variable: str, usual: str) -> str:
    if env.get("FABLED_HOME"):
        return os.path.join(os.path.abspath(env["FABLED_HOME"]), name)
    given = env.get(variable, "")
    if os.path.isabs(given):
        return os.path.join(given, "fabled")
    if sys.platform == "darwin":
        usual = "~/Library/Application Support"
    return os.path.join(_home(env) + usual[1:], "fabled")


def _home(env: Mapping[str, str]) -> str:
    home = env.get("HOME")
    if home is not None and os.path.isabs(home):
        # As `expanduser` has it: a home of "/" must not give "//.local".
        return home.rstrip("/")
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")


def socket_path(env: Mapping[str, str]) -> str:
    if env.get("FABLED_HOME"):
        runtime = os.path.join(os.path.abspath(env["FABLED_HOME"]), "run")
    elif os.path.isabs(env.get("XDG_RUNTIME_DIR", "")):
        runtime = os.path.join(env["XDG_RUNTIME_DIR"], "fabled")
    elif sys.platform != "darwin" and os.path.isdir(f"/run/user/{os.getuid()}"):
        runtime = f"/run/user/{os.getuid()}/fabled"
    else:
        runtime = os.path.join(state_folder(env), "run")
    path = os.path.join(runtime, "fabled.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    from hashlib import sha256

    return f"/tmp/fabled-{os.getuid()}/{sha256(os.fsencode(data_folder(env))).hexdigest()[:16]}.sock"


# ── what the daemon must know of the reader's terminal ──────────────────────────────────────────────────────────


def colour(env: Mapping[str, str], fd: int = 1) -> bool:
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.isatty(fd) and env.get("TERM", "") not in ("dumb", "")


def width(env: Mapping[str, str], fd: int = 1) -> int:
    given = env.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def folds(env: Mapping[str, str], fd: int = 1) -> bool:
    """Whether lines are to be broken: on a terminal, or for somebody who says how wide it is."""
    return bool(env.get("COLUMNS")) or os.isatty(fd)


def utf8(env: Mapping[str, str]) -> bool:
    """By the locale's name. LC_CTYPE=C.UTF-8 beside LANG=C is Python's own doing, not the person's."""
    kind = env.get("LC_CTYPE", "")
    if kind == "C.UTF-8" and env.get("LANG") in ("C", "POSIX"):
        kind = ""
    locale = env.get("LC_ALL") or kind or env.get("LANG") or ""
    # No locale at all is a container or a service; its output is read on a terminal of today.
    return not locale or "utf" in locale.lower()


def wishes(env: Mapping[str, str], form: str, utc: bool = False) -> str:
    """The `as` of a request: the JSON that tells how the answer is to look."""
    flags = [str(flag).lower() for flag in (colour(env), folds(env), utf8(env), utc)]
    return (
        f'{{"form":"{form}","color":{flags[0]},"width":{width(env)},"folds":{flags[1]},"utf8":{flags[2]},'
        f'"utc":{flags[3]}}}'
    )


# ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Reply:
    """A reply's first line, and the bytes to print that follow it (none after an error)."""

    __slots__ = ("body", "exit", "head")

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        self.exit = _number(head, b'"exit":')

    @property
    def refused(self) -> bool:
        """Whether the daemon sent an error instead of an answer."""
        return self.exit is None


def ask(path: str, request: bytes, seconds: float | None) -> Reply:
    """Send one request line and take in the whole reply. `seconds` bounds the wait for its first line, and again
    each pause after that; None waits as long as the daemon lives.

    The body is taken in whole before anything is printed: a reader that pages slowly must not hold the daemon up.
    """
    end = None if seconds is None else time.monotonic() + seconds
    line = _connect(path, end, seconds)
    try:
        line.sendall(request)
        got = b""
        while (stop := got.find(b"\n")) < 0:
            line.settimeout(_left(end, seconds))
            got += _more(line)
        head, parts = got[:stop], [got[stop + 1 :]]
        missing = (_number(head, b'"bytes":') or 0) - len(parts[0])
        line.settimeout(seconds)
        while missing > 0:
            parts.append(_more(line))
            missing -= len(parts[-1])
        return Reply(head, b"".join(parts))
    except TimeoutError:
        raise Silent(_too_late(seconds)) from None
    except OSError as error:
        raise Silent(f"the connection broke: {error.strerror}") from None
    finally:
        line.close()


def tell(path: str, request: bytes) -> None:
    """Send one line that is not answered. A daemon that is busy finds it when it comes to it."""
    line = _connect(path, time.monotonic() + 0.2, 0.2)
    try:
        line.sendall(request)
    except OSError as error:
        raise Silent(f"the connection broke: {error.strerror}") from None
    finally:
        line.close()


def stream(path: str, request: bytes, seconds: float) -> Iterator[bytes]:
    """Send one request line and give each line that comes back, b"" whenever `seconds` pass without one.

    Ends when the daemon does.
    """
    line = _connect(path, time.monotonic() + seconds, seconds)
    try:
        line.sendall(request)
        line.settimeout(seconds)
        got = b""
        while True:
            try:
                data = line.recv(1 << 18)
            except TimeoutError:
                yield b""
                continue
            except OSError as error:
                raise Silent(f"the connection broke: {error.strerror}") from None
            if not data:
                return
            *whole, got = (got + data).split(b"\n")
            yield from whole
    finally:
        line.close()


def _connect(path: str, end: float | None, seconds: float | None) -> _socket.socket:
    if path.startswith("/tmp/fabled-") and not _private(os.path.dirname(path)):
        raise Silent(f"{os.path.dirname(path)} is not a private folder of this user")
    while True:
        line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            line.settimeout(_left(end, seconds))
            line.connect(path)
            return line
        except TimeoutError:
            line.close()
            raise Silent(_too_late(seconds)) from None
        except OSError as error:
            line.close()
            if error.errno in (ENOENT, ECONNREFUSED, ENOTDIR):
                raise Down(path) from None
            if error.errno != EAGAIN:
                raise Silent(f"{path} cannot be reached: {error.strerror}") from None
            # More callers than the daemon has taken up yet: the queue is full for a moment.
            time.sleep(min(0.01, _left(end, seconds) or 0.01))


def _private(folder: str) -> bool:
    """The short folder stands where everybody may write: it must be ours, and nobody else may enter it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return True  # not there: connecting says so
    return status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000


def _left(end: float | None, seconds: float | None) -> float | None:
    if end is None:
        return None
    left = end - time.monotonic()
    if left <= 0:
        raise Silent(_too_late(seconds))
    return left


def _too_late(seconds: float | None) -> str:
    return f"no answer within {seconds:g} s"


def _more(line: _socket.socket) -> bytes:
    data = line.recv(1 << 18)
    if not data:
        raise Silent("the connection ended in the middle of an answer")
    return data


def _number(head: bytes, key: bytes) -> int | None:
    """The number behind `key` in a success line, whose numbers are all there is; None in an error line."""
    if b'"error":' in head:
        return None
    at = head.find(key)
    if at < 0:
        return None
    digits = head[at + len(key) :].lstrip()
    stop = 0
    while digits[stop : stop + 1].isdigit():
        stop += 1
    return int(digits[:stop]) if stop else None
