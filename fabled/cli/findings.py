"""What the doctor's checks are given, and what they give.

The checks are `examine`'s and `outside`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fabled.config import Config


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: `fix` is a command or a step where there is something to mend."""

    id: str
    state: Literal["ok", "warning", "failure"]
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the checks look at, gathered once."""

    config: Config | None
    problems: tuple[str, ...]
    """of the configuration, where it is faulty"""
    status: Mapping[str, Any] | None
    """the daemon's; None where it gave none"""
    silent: str
    """why a daemon that is there gave none"""
    env: Mapping[str, str]
    now: float
