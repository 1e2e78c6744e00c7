"""Which project a session belongs to, by the folder the client named for it."""

from __future__ import annotations

import re

_DASH = re.compile("[^A-Za-z0-9]")
_DRIVE = re.compile("^[a-z]:")


def encode_folder(cwd: str) -> str:
    """The name the client gives a project's folder: every UTF-16 unit that is no ASCII letter or digit becomes `-`."""
    return _DASH.sub(lambda m: "-" * (len(m[0].encode("utf-16-le", "surrogatepass")) // 2), cwd)


def project_of(cwd: str, folder: str) -> str | None:
    """The project a cwd names, if it is the one the folder was named for (RULES 7); drive letters in upper case."""
    encoded = encode_folder(cwd)
    if encoded == folder or (
        _DRIVE.match(cwd.lower()) and encoded.lower()[:1] == folder.lower()[:1] and encoded[1:] == folder[1:]
    ):
        return cwd[0].upper() + cwd[1:] if _DRIVE.match(cwd.lower()) else cwd
    return None
