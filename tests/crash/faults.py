"""Kills a child process before or after any of its system calls and commits, or lets one of them fail.

A call counts where it is made through `os`; a commit where the Ledger writes (others hand `Calls.commit` to what they
watch). Programs that stand for a client use `RAW`, which is never counted and never dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from fabled.errors import StorageFault
from fabled.store.ledger import Ledger

EVERY = 1 if os.environ.get("FABLED_CRASH") else 3
"""The default form dies at every third moment, the long form at each."""
NAMES = tuple(
    name
    for name in "open write pwrite fsync fdatasync replace rename link unlink rmdir mkdir utime truncate ftruncate "
    "chmod fchmod chown fchown setxattr removexattr copy_file_range sendfile".split()
    if hasattr(os, name)
)
READS = ("pread", "stat", "lstat", "fstat")
"""Calls that can fail too; where one could be killed before them, one can be killed before the next of the others."""


@dataclass(frozen=True)
class Raw:
    """The calls as they are, for programs that are not ours."""

    open: Any = os.open
    write: Any = os.write
    close: Any = os.close

    def append(self, path: str | os.PathLike[str], data: bytes) -> None:
        """What the client does: open, one write, close."""
        fd = self.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.write(fd, data)
        self.close(fd)


RAW = Raw()


@dataclass
class Calls:
    """Every call in order, as (name, path or paths), and what happens at them."""

    before: Callable[[int, str], None] = lambda number, name: None
    after: Callable[[int, str], None] = lambda number, name: None
    instead: Callable[[int, str, tuple[Any, ...]], None] = lambda number, name, arguments: None
    """may raise in the place of the call, or make a part of it"""
    names: tuple[str, ...] = NAMES
    seen: list[tuple[str, str]] = field(default_factory=list)
    _paths: dict[int, str] = field(default_factory=dict)

    def make(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
        where = ":".join(self._paths.get(one, str(one)) for one in arguments if isinstance(one, int | str))
        self.seen.append((name, where))
        number = len(self.seen)
        self.before(number, name)
        self.instead(number, name, arguments)
        result = real(*arguments, **more)
        if name == "open":
            self._paths[result] = str(arguments[0])
        self.after(number, name)
        return result

    def commit(self, name: str) -> None:
        """For a `before_commit` of another database."""
        self.make(f"commit {name}", lambda: None, (), {})

    @contextlib.contextmanager
    def watch(self) -> Iterator[Calls]:
        with contextlib.ExitStack() as stack:
            for name in self.names:
                stack.enter_context(mock.patch.object(os, name, self._wrap(name, getattr(os, name))))
            real = Ledger._write

            def write(ledger: Ledger, name: str, sql: str, values: tuple[Any, ...]) -> None:
                self.make(f"commit {name}", lambda: real(ledger, name, sql, values), (), {})

            stack.enter_context(mock.patch.object(Ledger, "_write", write))
            yield self

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if isinstance(arguments[0], str) and arguments[0].startswith("/proc/"):
                return real(*arguments, **more)  # the kernel's word, not the disk's
            return self.make(name, real, arguments, more)

        return call


def killed(moment: int, scenario: Callable[[], object], *, torn: bool = False) -> str | None:
    """Runs a scenario in a child that dies at a moment; its name, None if the child came to its end before.

    Moments are counted from 1: before the first call, after it, before the second and so on. `torn`: the moment is the
    number of a write, of which a half is made.
    """
    parent, child = os.pipe()
    pid = os.fork()
    if pid == 0:
        left = moment

        def die(words: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                RAW.write(child, words.encode())
                os._exit(9)

        def half(number: int, name: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if name == "write":
                left -= 1
                if left == 0:
                    RAW.write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                    RAW.write(child, f"{number}: within {name}".encode())
                    os._exit(9)

        status = 70
        try:
            calls = (
                Calls(instead=half)
                if torn
                else Calls(lambda n, name: die(f"{n}: before {name}"), lambda n, name: die(f"{n}: after {name}"))
            )
            with calls.watch():
                scenario()
            status = 0
        except BaseException:
            RAW.write(child, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(status)
    os.close(child)
    with open(parent, "rb") as pipe:
        words = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9), words
    return words if status == 9 else None


def failing(number: int, code: int, *, for_good: bool = False) -> Calls:
    """Lets one call fail, or it and all that follow; then reading stays possible, and what frees space."""

    def fail(at: int, name: str, arguments: tuple[Any, ...]) -> None:
        if at < number or (at > number and not for_good):
            return
        if for_good and (name in ("unlink", *READS) or (name == "open" and not arguments[1] & os.O_CREAT)):
            return
        if name.startswith("commit"):
            raise StorageFault(f"the Ledger could not be written: {os.strerror(code)}")
        if name == "write" and code == errno.ENOSPC and len(arguments[1]) > 1 and at % 2:
            RAW.write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])  # as much as there was room for
        raise OSError(code, os.strerror(code))

    return Calls(instead=fail, names=NAMES if for_good else NAMES + READS)
