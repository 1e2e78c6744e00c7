"""How often questions come and how long answers take: the last minutes of them, for `status` and `top`.

What a question is, is `desk`'s to say.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable

KEPT = 500
MINUTE = 60.0
WINDOW = 600.0


class Pace:
    """Any OS thread may note an answer. The last ones lie in one piece of memory: small objects that live for a while,
    each made at another time, would keep the memory of all that was freed around them from being given back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._at = array("d", [0.0]) * KEPT
        self._took = array("d", [0.0]) * KEPT
        self.answered = 0

    def note(self, seconds: float) -> None:
        """A question was answered in so many seconds."""
        with self._lock:
            place = self.answered % KEPT
            self._at[place], self._took[place] = self._clock(), seconds
            self.answered += 1

    def figures(self) -> dict[str, float | int | None]:
        """In all, in the last minute, and how slow the slow ones of the last ten minutes were."""
        now = self._clock()
        with self._lock:
            known = min(self.answered, KEPT)
            recent = [one for one in zip(self._at[:known], self._took[:known], strict=True) if now - one[0] <= WINDOW]
        times = sorted(took for _, took in recent)
        p95 = times[min(len(times) - 1, int(0.95 * len(times)))] if times else None
        return {
            "answered": self.answered,
            "per_minute": sum(now - at <= MINUTE for at, _ in recent),
            "p50_ms": round(1000 * times[len(times) // 2], 2) if times else None,
            "p95_ms": round(1000 * p95, 2) if p95 is not None else None,
        }
