"""What was asked for that nothing here is called, and what is called nearly so.

It is looked up only where an answer would be empty without a reason; the words are `present`'s.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from typing import Any

from ..store import naming
from ..store.queries import Queries
from ..store.termlist import term_numbers
from ..transcript import query as q
from ..transcript import render
from .common import SHORTEST_ID, Reader, other_kind

SHOWN, LIKENESS = 4, 0.65
VALUE_CHARS = 200

Unknown = dict[str, Any]


def project(queries: Queries, name: str) -> Unknown:
    """A project that is not known."""
    return _told("project", name, near(name, naming.projects(queries)))


def file(queries: Queries, name: str) -> Unknown:
    """A file that no tool call names."""
    return _told("file", name, near(name, naming.files(queries)))


def file_like(queries: Queries, name: str) -> list[Unknown]:
    """The same where some file is called nearly so; that there is none is the answer itself."""
    found = file(queries, name)
    return [found] if found["near"] else []


def in_filters(reader: Reader, filters: q.Filters, roles: Collection[str]) -> list[Unknown]:
    """The values of a search's filters, projects apart, that nothing is called."""
    queries = reader.queries
    found = []
    for name in filters.session:
        if not queries.session_ids(name):
            short = f"a shortened id has at least {SHORTEST_ID} characters" if len(name) < SHORTEST_ID else ""
            other = other_kind(reader, name, "session")
            found.append(_told("session", name, why=f"that is {other[0]}" if other else short))
    found += [
        _told("role", name, near(name, roles), f"there are {', '.join(roles)}")
        for name in filters.role
        if name.lower() not in roles
    ]
    found += [
        _told("tool", name, near(name, naming.tools(queries))) for name in filters.tool if not queries.tool_names(name)
    ]
    found += [file(queries, name) for name in filters.file if not queries.file_names(name)]
    found += [
        _told("term", name, near(name, naming.terms(queries, name[:2])))
        for name in filters.term
        if not term_numbers(queries, [name]) and not _said(queries, name)
    ]
    return found


def no_times(query: q.Query) -> list[Unknown]:
    """What a query gives as a time and is none."""
    return [_told(name, value, why="no time") for name, value in query.untimed]


def _said(queries: Queries, term: str) -> bool:
    """Whether the words of a term stand in any text: what is no term yet is looked for there."""
    expression = q.any_expression(q.parse(f'"{term}"').required)
    return expression is not None and queries.count(expression) > 0


def _told(filter_: str, value: str, near_: Iterable[str] = (), why: str = "") -> Unknown:
    return {
        "filter": filter_,
        "value": _shown(value),
        "near": [_shown(one) for one in near_],
        **({"why": why} if why else {}),
    }


def _shown(text: str) -> str:
    return render.clip(render.flat(render.tame(text)), VALUE_CHARS)


def near(value: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that look like `value`, the likest first; of paths the last part is what one misspells."""
    wanted = _last(value)
    if not wanted:
        return []
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    scored = []
    for name in names:
        last = _last(name)
        matcher.set_seq1(last)
        likeness = 1.0 if last == wanted else 0.0
        if len(wanted) >= 3 and (wanted in last or (len(last) >= 3 and last in wanted)):
            likeness = max(likeness, 0.9)
        if not likeness and matcher.real_quick_ratio() >= LIKENESS and matcher.quick_ratio() >= LIKENESS:
            likeness = matcher.ratio()
        if likeness >= LIKENESS:
            scored.append((-likeness, len(name), name))
    return [name for _, _, name in sorted(scored)[:SHOWN]]


def _last(name: str) -> str:
    return os.path.basename(name.replace("\\", "/").rstrip("/")).strip("*").casefold()
