"""Which folders lie below and above others, by name and on disk.

Watching them is left to the observer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence


def real_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths without symlinks, each once."""
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def below(path: str, folder: str) -> bool:
    """Whether a path lies in a folder, at any depth, by its name."""
    return path.startswith(folder.rstrip("/") + "/")


def two_above(path: str) -> list[str]:
    """The two folders that tell of a path's coming, going and renaming: its nearest existing one and that one's."""
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return list(dict.fromkeys((folder, os.path.dirname(folder))))


def folders(top: str) -> Iterator[tuple[str, list[str]]]:
    """Every folder of a tree with the names of the symlinks to folders in it, which are not followed."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        links: list[str] = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_symlink() and entry.is_dir():
                        links.append(entry.name)
        except OSError:
            pass  # gone or closed to us: there is nothing to watch in it, and the indexer reports it
        yield path, links
