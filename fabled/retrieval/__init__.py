"""Answers search, thread and block, and says what states a session has and what lies between two of them.

Rows come from `store.queries`, bytes from `store.reading`, words from `transcript.render`; printing is left to others.
"""

from __future__ import annotations

from .block import block, block_bytes
from .changes import file
from .common import Reader
from .diff import diff
from .export import exported, threads_like
from .figures import report, stats
from .recent import overview, recent
from .search import search
from .states import forgotten, generations, resolved
from .thread import thread

__all__ = [
    "Reader", "block", "block_bytes", "diff", "exported", "file", "forgotten", "generations", "overview", "recent",
    "report", "resolved", "search", "stats", "thread", "threads_like",
]  # fmt: skip
