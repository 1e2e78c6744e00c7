"""The lists of folders among the settings, as people type them: made whole, and looked at before they count.

What the values mean is `fabled.config`'s, writing them `rewrite`'s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from fabled.cli import ask, edge
from fabled.errors import BadRequest, FabledError
from fabled.present.terminal import path, plural

LISTS = ("roots", "vaults", "exclude")
SHOWN = 4


def checked(key: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the values as the file is to hold them, what the person should know of them). Raises BadRequest."""
    if not words:
        raise BadRequest(f"{key}: there is nothing to set", f"fabled config unset {key} takes it out of the file")
    if key == "exclude":
        return _projects(words)
    values, notes = [], []
    for word in words:
        whole = word if word[:1] in "/~" else os.path.abspath(word)
        place = os.path.expanduser(whole)
        parts = [part for part in word.replace(",", os.pathsep).split(os.pathsep) if part]
        if len(parts) > 1 and not os.path.exists(place) and all(part[:1] in "/~" for part in parts):
            raise BadRequest(f"{key}: several folders are several words", f"fabled config set {key} {' '.join(parts)}")
        if os.path.exists(place) and not os.path.isdir(place):
            raise BadRequest(f"{key}: {word} is a file", "name the folder that holds it")
        shown = path(place, edge.style())
        if not os.path.exists(place):
            notes.append(f"{shown} does not exist yet; it is waited for.")
        elif key == "roots" and os.path.isdir(os.path.join(place, "projects")):
            notes.append(f"Transcripts of Claude Code lie in {shown}/projects; {shown} is looked through as a whole.")
        values.append(whole)
    return values, notes


def _projects(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A project is one folder: one above several of them, or above the home, is meant otherwise than it would work."""
    values, notes = [], []
    known = _known()
    for word in words:
        relative = word in (".", "..") or ("/" in word and word[0] not in "/~")
        whole = os.path.abspath(word) if relative else word
        place = os.path.normpath(os.path.expanduser(whole))
        shown = path(place, edge.style()) if "/" in whole or "~" in whole else whole
        below = [one for one in known or () if one.startswith(place.rstrip("/") + "/")] if "/" in place else []
        home = os.path.expanduser("~").rstrip("/")
        above = f"{home}/".startswith(place.rstrip("/") + "/") and place != home
        if (above or below) and place not in (known or ()):
            some = ", ".join(path(one, edge.style()) for one in below[:SHOWN])
            there = f"; below it there {'is' if len(below) == 1 else 'are'} {plural(len(below), 'project')} ({some}"
            there += ", …)" if len(below) > SHOWN else ")"
            raise BadRequest(
                f"exclude keeps out single projects, each by its own folder, and {shown} is none"
                f"{there if below else ''}; nothing was changed",
                "fabled projects lists them",
            )
        if below or place == home:
            notes.append(f"Only sessions begun in {shown} itself stay out; projects below it stay in.")
        elif known is not None and not _is_known(place if "/" in place else whole, known):
            notes.append(f"No project {shown} is known so far; sessions begun there will stay out.")
        values.append(whole)
    return values, notes


def _is_known(name: str, known: Sequence[str]) -> bool:
    return any(name in (one, one.rpartition("/")[2]) for one in known)


def _known() -> list[str] | None:
    """Every project and its folder's name; None where that cannot be told."""
    try:
        rows = ask.fetch("projects", {}, quiet=True)["projects"]
    except FabledError:
        return None
    return [str(name) for row in rows for name in (row["project"], *row["folders"]) if name]
