"""How much memory the process uses, and keeping that small over months.

When to give memory back is left to those who know that work is done.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from typing import Any

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 128 << 10


def rss_bytes() -> int:
    """Memory of this process that is in use now (at its peak, where the system does not say)."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def one_arena() -> None:
    """Have all OS threads allocate from one heap. glibc gives them up to eight a core, each with its own holes:
    10 MB here, for a concurrency that the interpreter's lock does not allow anyway. And have what is large (a frame of
    a generation, a reply) stay outside of that heap, as at first: glibc takes it in once such a piece was freed, and
    what lies between such pieces keeps their holes from being given back."""
    mallopt = _libc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def collect_seldom() -> None:
    """Look for cycles among objects only after many were made: rows on their way to the Map have none."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def give_back() -> None:
    """Return freed memory to the system, which the C library does not do by itself (after a first index: a third).

    Until it has looked for cycles everywhere, the interpreter holds thousands of freed tuples for the next ones, strewn
    over all of its memory. What `collect_seldom` has set apart is not looked at.
    """
    gc.collect()
    trim = _libc("malloc_trim")
    if trim is not None:
        trim(0)


def _libc(name: str) -> Any:
    """A function of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
