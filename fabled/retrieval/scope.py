"""Where the lists look: the project asked for, else the one the working folder lies in, else everywhere.

What a query says of its scope is `search`'s.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import BadRequest
from ..transcript import query as q
from .common import Params, Reader, text_of
from .search import _spellings, _upwards


@dataclass(frozen=True, slots=True)
class Where:
    """`by`: what decided it; `sessions` None: no restriction."""

    by: str
    project: str | None = None
    sessions: tuple[int, ...] | None = None


def scope_of(reader: Reader, params: Params) -> Where:
    """The scope that `project`, `all` and `cwd` mean, as for search."""
    cwd, project = text_of(params, "cwd"), text_of(params, "project")
    if project is not None:
        for spelling in _spellings(project, cwd):
            sessions = reader.queries.sessions_of_project(spelling)
            if sessions:
                return Where("project", project, sessions)
        return Where("project", project, ())
    if params.get("all") or cwd is None:
        return Where("all")
    around = reader.queries.project_around(_upwards(cwd))
    return Where("all") if around is None else Where("cwd", *around)


def moment_of(params: Params, name: str) -> int | None:
    """A time as people write it, in milliseconds since 1970."""
    value = text_of(params, name)
    if value is None:
        return None
    found = q.moment(value, time.time(), end=name == "until")
    if found is None:
        raise BadRequest(f"{name}: {value} is no time", "an ISO date or time, or 90m, 3h, 2d, 6w")
    return round(found * 1000)
