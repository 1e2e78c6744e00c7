"""A figure beside its target, all of them as one table, and the machine they were taken on.

Measuring is left to `figures`.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is held to."""

    figure: str
    unit: str
    limit: float | None = None
    at_least: bool = False
    text: str = ""
    """in place of the bare limit"""

    def met(self, value: float) -> bool:
        if self.limit is None:
            return True
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        if self.text or self.limit is None:
            return self.text or "–"
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure as measured. `value` None: it could not be measured, and `note` says why."""

    target: Target
    on: str
    """what it was measured on"""
    value: float | None
    baseline: str = "–"
    note: str = ""
    samples: tuple[float, ...] = field(default=())

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "failed"
        if self.target.limit is None:
            return "–"
        return "ok" if self.target.met(self.value) else "short"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def number(value: float) -> str:
    """Three digits that matter."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3 if size >= 0.01 else 4
    return f"{value:,.{digits}f}"


def table(figures: list[Figure]) -> str:
    """All figures, one a line, notes below the table."""
    head = ("figure", "on", "measured", "target", "", "baseline")
    rows = [
        (
            figure.target.figure,
            figure.on,
            "–" if figure.value is None else f"{number(figure.value)} {figure.target.unit}".rstrip(),
            str(figure.target),
            figure.verdict,
            figure.baseline,
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, tuple("─" * width for width in widths), *rows):
        cells = [
            cell.rjust(width) if at == 2 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    notes = [f"{figure.target.figure}, {figure.on}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    model = ""
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        pass
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }
