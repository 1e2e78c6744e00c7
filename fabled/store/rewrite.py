"""Replaces a small file of the user's, or a folder of ours, as a whole: old or new at any moment, never half.

What stands in it is the caller's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping

from ..errors import Refused, StorageFault
from .files import open_regular, stamp


def read(path: str) -> bytes | None:
    """What stands in a file, None where there is none."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise StorageFault(f"{path} cannot be read: {fault.strerror or fault}", "see that you may read it") from None


def replace(path: str, data: bytes, was: bytes | None) -> None:
    """Puts `data` into the file at `path`, whose content was `was` when it was decided so; None: it was not there.

    A symlink stays one, the mode stays; a file that changed meanwhile is left alone (Refused).
    """
    path = os.path.realpath(path)
    before = stamp(path)
    if read(path) != was:
        raise Refused(f"{path} changed meanwhile; nothing was written", "try again")
    temp = f"{path}.fabled-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        mode = stat.S_IMODE(os.stat(path).st_mode) if before is not None else 0o600
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if stamp(path) != before:
                raise Refused(f"{path} changed meanwhile; nothing was written", "try again")
            os.replace(temp, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temp)
            raise
        _sync(os.path.dirname(path))
    except OSError as fault:
        raise StorageFault(f"{path} could not be written: {fault.strerror or fault}", "see that you may") from None


def remove(path: str) -> None:
    """Takes a file away, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def fill(folder: str, files: Mapping[str, bytes]) -> None:
    """Makes `folder` hold exactly these files; a folder of that name goes when the new one is whole."""
    new, old = f"{folder}.new", f"{folder}.old"
    try:
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        for name, data in files.items():
            place = os.path.join(new, name)
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
        if os.path.isdir(folder):
            os.rename(folder, old)
        os.rename(new, folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as fault:
        raise StorageFault(f"{folder} could not be written: {fault.strerror or fault}", "make room there") from None


def clear(folder: str) -> None:
    """Takes a folder of ours away."""
    shutil.rmtree(folder, ignore_errors=True)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
