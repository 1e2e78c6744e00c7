"""Answers search, thread and block.

Rows come from `store.queries`, bytes from `store.reading`, words from `transcript.render`; printing is left to others.
"""

from __future__ import annotations

from .block import block, block_bytes
from .common import Reader
from .search import search
from .thread import thread

__all__ = ["Reader", "block", "block_bytes", "search", "thread"]
