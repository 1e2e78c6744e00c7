"""The place of the daemon's socket: whose it is, whether somebody listens there, and who is at the other end.

What is said over it is left to `server`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys

from fabled.errors import AlreadyRunning, ForeignSocket
from fabled.store.files import private_folder


def claim(path: str, *, shared_folder: bool) -> None:
    """Make sure that a socket can be bound at `path`; the caller holds the instance lock.

    Only a refused connection proves that nobody listens at a socket found there. Anything else is left alone:
    AlreadyRunning where somebody does listen, ForeignSocket where the thing is not ours. `shared_folder`: the
    folder stands where everybody may write, so it must be ours alone and no symlink.
    """
    folder = os.path.dirname(path)
    if shared_folder:
        _claim_folder(folder)
    else:
        private_folder(folder)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a file that is no socket"
        raise ForeignSocket(f"{path} is {kind}; it was left alone", "move it away, then start the daemon again")
    if status.st_uid != os.geteuid():
        raise ForeignSocket(
            f"{path} belongs to another user; it was left alone", "set FABLED_HOME to a folder of your own"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass  # full, slow or forbidden: whatever it is, somebody is there
    raise AlreadyRunning(
        f"already running or busy: a process listens at {path}", "fabled status shows it; stop it before a new start"
    )


def _claim_folder(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ForeignSocket(
            f"{folder} is not a folder of this user; no socket was put there",
            "remove it, or set FABLED_HOME or XDG_RUNTIME_DIR to a shorter path",
        )
    if status.st_mode & 0o077:
        os.chmod(folder, 0o700)


def bind(path: str) -> socket.socket:
    """A listening socket at a claimed path, for its owner only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Some systems look at a socket's mode only when it is made.
    before = os.umask(0o077)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end, by the kernel's word."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(uid)
    # struct xucred of macOS and the BSDs: version, uid, groups; level 0 and option 1 are SOL_LOCAL, LOCAL_PEERCRED.
    _, uid = struct.unpack_from("2I", connection.getsockopt(0, 1, 128))
    return int(uid)
