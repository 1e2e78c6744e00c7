"""Shows how far a long piece of work is: a bar on a terminal, a line now and then everywhere else.

Counting is left to those who work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from fabled.client import streams
from fabled.present.terminal import count, duration, size

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from fabled.indexer import Progress

LINE_SECONDS = 10.0
POLL_SECONDS = 0.25

# Less than this is done before a bar could be read; drawing one would only flicker.
BAR_BYTES = 4_000_000


class Bar(AbstractContextManager["Bar"]):
    """Called with each Progress; draws on stderr, and leaves nothing behind when it ends."""

    def __init__(self, what: str = "indexing") -> None:
        self._what = what
        self._terminal = sys.stderr.isatty()
        self._rich: RichProgress | None = None
        self._began = self._told = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """How far an index run is, in bytes."""
        files = f"{count(progress.files_done)}/{count(progress.files)} files"
        if self._terminal and (self._rich is not None or progress.bytes >= BAR_BYTES):
            self._draw(progress.bytes_done, progress.bytes, files, in_bytes=True)
        elif not self._terminal:
            self._tell(progress.bytes_done, progress.bytes, size, f", {files}")

    def records(self, done: int, total: int) -> None:
        """How far a check is, in records."""
        if self._terminal:
            self._draw(done, total, "records", in_bytes=False)
        else:
            self._tell(done, total, count, " records")

    def _draw(self, done: int, total: int, note: str, *, in_bytes: bool) -> None:
        if self._rich is None:
            self._rich = _rich_bar(in_bytes)
            self._rich.add_task(self._what, total=total, note=note)
            self._rich.start()
        self._rich.update(self._rich.task_ids[0], total=total, completed=done, note=note)

    def _tell(self, done: int, total: int, words: Callable[[float], str], note: str) -> None:
        now = time.monotonic()
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        rate = done / (now - self._began)
        left = f", {duration((total - done) / rate)} left" if rate > 0 else ""
        streams.tell(f"{self._what}: {words(done)} of {words(total)}{note}{left}")

    def close(self) -> None:
        if self._rich is not None:
            self._rich.stop()
            self._rich = None

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Watching(AbstractContextManager["Watching"]):
    """Asks another process how far it is, while this one waits for its answer.

    `ask` gives a Progress as replies carry it, or None; it runs on an OS thread of its own, and whatever it fails
    at is no reason to disturb the work that is waited for.
    """

    def __init__(self, ask: Callable[[], Mapping[str, Any] | None]) -> None:
        self._ask = ask
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="progress", daemon=True)

    def _watch(self) -> None:
        from fabled.errors import FabledError
        from fabled.indexer import Progress

        with Bar() as bar:
            while not self._done.wait(POLL_SECONDS):
                try:
                    progress = self._ask()
                except FabledError:
                    return
                if progress:
                    bar(Progress(**progress))

    def __enter__(self) -> Watching:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._watcher.join(POLL_SECONDS * 8)


NARROW = 76


def _rich_bar(in_bytes: bool) -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    from fabled.client import connect

    def one_line() -> Column:
        return Column(no_wrap=True)

    console = Console(stderr=True)
    if not connect.utf8(os.environ):
        console = Console(file=cast(IO[str], _Ascii(sys.stderr)))
    amounts: list[ProgressColumn] = [
        DownloadColumn(table_column=one_line()) if in_bytes else MofNCompleteColumn(table_column=one_line())
    ]
    if in_bytes and console.width >= NARROW:
        amounts.append(TransferSpeedColumn(table_column=one_line()))
    return Progress(
        TextColumn("{task.description}", table_column=one_line()),
        BarColumn(None if console.width < 100 else 40),
        *amounts,
        TimeRemainingColumn(table_column=one_line()),
        TextColumn("{task.fields[note]}", table_column=one_line()),
        console=console,
        transient=True,
    )


class _Ascii:
    """A stream whose terminal shows no more than ASCII, whatever Python has made of its encoding."""

    encoding = "ascii"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
