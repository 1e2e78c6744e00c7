"""Changes single settings in the configuration file and leaves every other byte of it, comments above all, as it is.

Whether the result is sound is `fabled.config`'s to say, before anything is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from fabled import config as settings
from fabled.cli.edge import text_of
from fabled.errors import BadRequest, StorageFault

# As amounts are printed: powers of 1000.
_SIZES = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "mb": 10**6, "m": 10**6, "gb": 10**9, "g": 10**9, "tb": 10**12}
_TIMES = {"": 1, "ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_YES, _NO = frozenset(("true", "on", "yes", "1")), frozenset(("false", "off", "no", "0"))


def value_of(name: str, words: Sequence[str]) -> Any:
    """What a person's words mean as a value of a setting: `30MB`, `4h`, `on`, several words for a list.

    Only what cannot be a value of that type at all is refused here. Raises BadRequest.
    """
    kind = settings.kind_of(name)
    for word in words:
        text_of(word)
    base = get_args(kind)[0] if get_origin(kind) is not list and get_args(kind) else kind
    if get_origin(base) is list:
        return _listed(words)
    if base in (int, float):
        words = ["".join(words)]  # `30 MB`
    if len(words) != 1:
        raise BadRequest(f"{name} takes one value", f"fabled config get {name}")
    word = words[0].strip()
    if base is bool:
        if word.lower() in _YES | _NO:
            return word.lower() in _YES
        raise BadRequest(f"{name} is true or false, not {word!r}", f"fabled config set {name} true")
    if base in (int, float):
        return _amount(name, word, base is int)
    return word


def _listed(words: Sequence[str]) -> list[str]:
    if len(words) == 1 and words[0].strip().startswith("["):
        try:
            return [str(one) for one in tomlkit.parse(f"it = {words[0]}")["it"].unwrap()]
        except (TOMLKitError, AttributeError, TypeError, RecursionError):
            raise BadRequest(f"{words[0]} is no list", 'one word for each entry, or ["a", "b"]') from None
    return [word for word in words if word]


def _amount(name: str, word: str, whole: bool) -> int | float:
    units = _SIZES if name.endswith("_bytes") else _TIMES if name.endswith("_seconds") else {"": 1}
    match = _AMOUNT.fullmatch(word)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        example = "30MB" if units is _SIZES else "4h" if units is _TIMES else "10"
        raise BadRequest(f"{name}: {word!r} is no amount", f"write it as {example}, or as a plain number")
    number = round(float(match[1]) * factor, 6)
    return int(number) if whole or number == int(number) else number


def changed(text: str, name: str, value: Any) -> str:
    """The file's text with one setting as given; None takes it out. Raises BadRequest where it is no TOML."""
    ends = "\r\n" if "\r\n" in text else "\n"
    return _changed(text.replace("\r\n", "\n"), name, value).replace("\n", ends)


def _changed(text: str, name: str, value: Any) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as fault:
        raise BadRequest(f"the configuration file is not valid TOML: {fault}", "fabled config edit") from None
    table, _, key = name.rpartition(".")
    place: Any = document
    if table:
        if table not in document:
            if value is None:
                return text
            if text.strip():
                document.add(tomlkit.nl())
            document.add(table, tomlkit.table())
        place = document[table]
        if not isinstance(place, Table):
            raise BadRequest(f"{table} is no table of its own in the file", "fabled config edit")
    if value is None:
        place.pop(key, None)
    elif key in place or table:
        place[key] = value
    else:
        # Behind the last table's header it would belong to that table.
        head = tomlkit.dumps(tomlkit.document().add(key, value))
        return head + ("\n" if text.strip() else "") + text if _has_tables(document) else text + head
    return tomlkit.dumps(document)


def _has_tables(document: Any) -> bool:
    return any(isinstance(value, Table) for value in document.values())


_WAIT_SECONDS = 10.0


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """While this process reads the file, changes it and writes it, no other one of ours does: the slower would take
    the quicker one's change away. Raises StorageFault.

    What is locked is the file's folder: the file itself is another one after each change.
    """
    folder = os.path.dirname(os.path.realpath(path))
    fd = -1
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        end = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StorageFault(
                        f"another program keeps {folder} locked; nothing was changed", "try again"
                    ) from None
                time.sleep(0.02)
            except OSError:
                break  # a file system without locks: then as before
        yield
    except OSError as fault:
        raise StorageFault(f"{path} could not be written: {fault.strerror or fault}", "look at its rights") from None
    finally:
        if fd >= 0:
            os.close(fd)


def write(path: str, text: str) -> None:
    """The file as a whole, old or new at any moment, for its owner only. Raises StorageFault."""
    path = os.path.realpath(path)  # a link into a folder of dotfiles stays one
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, temp = tempfile.mkstemp(prefix=".config-", dir=folder)
        try:
            with open(fd, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if os.path.exists(path):
                os.chmod(temp, os.stat(path).st_mode & 0o777)
            os.replace(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
    except OSError as fault:
        raise StorageFault(f"{path} could not be written: {fault.strerror or fault}", "look at its rights") from None
