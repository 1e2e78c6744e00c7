"""How often questions come and how long answers take: the last minutes of them, for `status` and `top`.

What a question is, is `desk`'s to say.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

KEPT = 500
MINUTE = 60.0
WINDOW = 600.0


class Pace:
    """Any OS thread may note an answer: a deque's appends are one step each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._took: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self.answered = 0

    def note(self, seconds: float) -> None:
        """A question was answered in so many seconds."""
        self.answered += 1
        self._took.append((self._clock(), seconds))

    def figures(self) -> dict[str, float | int | None]:
        """In all, in the last minute, and how slow the slow ones of the last ten minutes were."""
        now = self._clock()
        recent = [(at, took) for at, took in list(self._took) if now - at <= WINDOW]
        times = sorted(took for _, took in recent)
        p95 = times[min(len(times) - 1, int(0.95 * len(times)))] if times else None
        return {
            "answered": self.answered,
            "per_minute": sum(now - at <= MINUTE for at, _ in recent),
            "p50_ms": round(1000 * times[len(times) // 2], 2) if times else None,
            "p95_ms": round(1000 * p95, 2) if p95 is not None else None,
        }
