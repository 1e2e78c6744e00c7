"""Documents on their way out: to a file, whole or not at all and for its owner only, or to stdout.

A file that `-o` names may be anything, so what is not ours to write is refused: transcripts, the Vault and all else of
fabled's, and the client's own files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from fabled.cli import edge
from fabled.errors import BadConfig, BadRequest, OutputFault, Refused

_IN_MEMORY = 8 << 20


def to_stdout(output: str | None) -> bool:
    """Whether `-o` means stdout."""
    return output is None or output == "-"


def write(output: str, chunks: Iterable[bytes], lenient: bool = False) -> tuple[str, int]:
    """(path, bytes) of the file that now holds the chunks. Raises Refused, BadRequest, OutputFault."""
    path = place(output, lenient)
    try:
        status = os.stat(path)
    except OSError:
        status = None
    try:
        if status is not None and not stat.S_ISREG(status.st_mode):
            return path, _into(path, status, chunks)
        return path, _replace(path, chunks)
    except OSError as fault:
        raise OutputFault(f"{path} could not be written: {fault.strerror or fault}", "give another with -o") from None


def place(output: str, lenient: bool = False) -> str:
    """The path that is to be written, links followed. Raises Refused where nothing may be written, BadRequest, and
    BadConfig where it cannot be known what is to be spared (`lenient`: the usual places are)."""
    path = os.path.abspath(os.path.expanduser(output))
    if not output or output.endswith("/") or os.path.isdir(path):
        raise BadRequest(f"{output or path} is a folder", "name a file with -o")
    real = os.path.realpath(path)
    for one in (real, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))):
        owner = _owner(os.path.dirname(one), lenient)
        if owner:
            raise Refused(f"{one} lies among {owner}; nothing was written", "name a file elsewhere with -o")
    return real


def _spared(lenient: bool) -> Iterator[tuple[str, Iterable[str]]]:
    """(whose, folders) of all that no document may be written into."""
    from fabled import config

    places = config.places(os.environ)
    yield "Claude Code's own files", (places.claude,)
    yield "fabled's own files", (places.data, places.state, places.runtime, os.path.dirname(places.config_file))
    try:
        settings = config.load(os.environ)
    except BadConfig:
        if not lenient:
            raise
        return
    yield "the transcripts", settings.roots
    yield "what is kept of transcripts", (places.vault, *settings.vaults)


def _owner(folder: str, lenient: bool) -> str:
    """Whose a folder is, if it or one above it is not for documents; told by inode, however it is spelt."""
    protected: dict[tuple[int, int], str] = {}
    for owner, folders in _spared(lenient):
        for one in folders:
            with contextlib.suppress(OSError):
                status = os.stat(one)
                protected[status.st_dev, status.st_ino] = owner
    while True:
        with contextlib.suppress(OSError):
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in protected:
                return protected[status.st_dev, status.st_ino]
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _replace(path: str, chunks: Iterable[bytes]) -> int:
    """A new file in the place of what was there; on any fault that stays as it was."""
    fd, temp = tempfile.mkstemp(prefix=".fabled-export-", dir=os.path.dirname(path))
    try:
        with open(fd, "wb") as file:
            length = _copy(chunks, file)
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise
    return length


def _into(path: str, status: os.stat_result, chunks: Iterable[bytes]) -> int:
    """Into a pipe or a terminal that has a name; it is not replaced by a file."""
    if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)):
        raise OSError(22, "it is no file")
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb") as file:
        return _copy(chunks, file)


def _copy(chunks: Iterable[bytes], file: BinaryIO) -> int:
    length = 0
    for data in chunks:
        file.write(data)
        length += len(data)
    return length


def put(chunks: Iterable[bytes]) -> None:
    """To stdout, once all of it could be had; a terminal gets its control characters shown."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        for data in chunks:
            spool.write(data)
        spool.seek(0)
        if edge.on_terminal():
            edge.document(spool.read())
            return
        while data := spool.read(1 << 20):
            edge.put(data)
