"""Shows how far an index run is: a bar on a terminal, a line now and then everywhere else.

Counting is left to the indexer.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from fabled.present.terminal import duration, size

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from fabled.indexer import Progress

LINE_SECONDS = 10.0

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
        if self._terminal:
            self._draw(progress)
        else:
            self._tell(progress)

    def _draw(self, progress: Progress) -> None:
        if self._rich is None:
            if progress.bytes < BAR_BYTES:
                return
            self._rich = _bar()
            self._rich.add_task(self._what, total=progress.bytes, files="")
            self._rich.start()
        files = f"{progress.files_done:,}/{progress.files:,} files"
        task = self._rich.task_ids[0]
        self._rich.update(task, total=progress.bytes, completed=progress.bytes_done, files=files)

    def _tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        rate = progress.bytes_done / (now - self._began)
        left = f", {duration((progress.bytes - progress.bytes_done) / rate)} left" if rate > 0 else ""
        print(
            f"{self._what}: {size(progress.bytes_done)} of {size(progress.bytes)}, "
            f"{progress.files_done} of {progress.files} files, {size(rate)}/s{left}",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        if self._rich is not None:
            self._rich.stop()
            self._rich = None

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[files]}"),
        console=Console(stderr=True),
        transient=True,
    )
