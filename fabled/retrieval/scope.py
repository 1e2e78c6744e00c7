"""Where answers look: the project asked for, else the one the working folder lies in, else everywhere.

The one place that knows how projects are spelt; other filters are `search`'s.
"""

from __future__ import annotations

import ntpath
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequest
from ..store.queries import Queries
from ..transcript import query as q
from . import unknown
from .common import Params, Reader, text_of


@dataclass(frozen=True, slots=True)
class Scope:
    """`by`: what decided it: `query`, `project`, `cwd` or `all`; `sessions` None: no restriction."""

    by: str
    project: str | None = None
    sessions: tuple[int, ...] | None = None
    unknown: tuple[unknown.Unknown, ...] = ()
    """the projects that were asked for and are none"""

    @property
    def told(self) -> dict[str, Any]:
        """What an answer says of it."""
        known = {"known": False} if self.sessions == () and self.project is not None else {}
        return {"by": self.by, "project": self.project, **known}

    @property
    def missing(self) -> dict[str, Any]:
        """The key of an answer that tells what is not known; none where all is."""
        return {"unknown": list(self.unknown)} if self.unknown else {}


def scope_of(reader: Reader, params: Params, named: Sequence[str] = (), within: bool = True) -> Scope:
    """The scope that `project`, `all` and `cwd` mean. `named`: projects that the query names; `within`: whether the
    working folder counts."""
    cwd, option = text_of(params, "cwd"), text_of(params, "project")
    names = (option,) if option is not None else tuple(named)
    if names:
        ids: dict[int, None] = {}
        odd = []
        for name in names:
            sessions = sessions_of(reader.queries, name, cwd)
            ids.update(dict.fromkeys(sessions))
            if not sessions:
                odd.append(unknown.project(reader.queries, name))
        return Scope("query" if option is None else "project", ", ".join(names), tuple(ids), tuple(odd))
    if params.get("all") or cwd is None or not within:
        return Scope("all")
    around = reader.queries.project_around(_upwards(cwd))
    return Scope("all") if around is None else Scope("cwd", *around)


def sessions_of(queries: Queries, name: str, cwd: str | None = None) -> tuple[int, ...]:
    """The sessions of the project that is called so; () where none is."""
    for spelling in _spellings(name, cwd):
        sessions = queries.sessions_of_project(spelling)
        if sessions:
            return sessions
    return ()


def moment_of(params: Params, name: str, now: float | None = None) -> int | None:
    """A time as people write it, in milliseconds since 1970."""
    value = text_of(params, name)
    if value is None:
        return None
    found = q.moment(value, time.time() if now is None else now, end=name == "until")
    if found is None:
        raise BadRequest(f"{name}: {value} is no time", "an ISO date or time, or 90m, 3h, 2d, 6w")
    return round(found * 1000)


def _spellings(name: str, cwd: str | None) -> Iterator[str]:
    """A project's name as typed, then as the path it may stand for."""
    yield name
    if len(name) > 1 and name[-1] in "/\\":
        yield name.rstrip("/\\")
    if name[:1].isalpha() and name[1:2] == ":":
        yield name[0].upper() + ntpath.normpath(name)[1:]
    elif name.startswith("~"):
        yield os.path.normpath(os.path.expanduser(name))
    elif os.path.isabs(name):
        yield os.path.normpath(name)
        yield os.path.realpath(name)
    elif cwd is not None and (name in (".", "..") or "/" in name):
        yield os.path.normpath(os.path.join(cwd, name))


def _upwards(cwd: str) -> Iterator[str]:
    """A folder and those it lies in, innermost first; then the same with symlinks resolved."""
    tops = [os.path.normpath(cwd)]
    real = os.path.realpath(cwd)
    if real != tops[0]:
        tops.append(real)
    for top in tops:
        at = top
        while True:
            yield at
            above = os.path.dirname(at)
            if above == at:
                break
            at = above
