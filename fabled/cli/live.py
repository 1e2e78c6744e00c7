"""`top` and `status --watch`: views that follow a running daemon until the person leaves.

What they show is `present`'s; on a terminal they repaint in place, elsewhere each view follows the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from fabled.cli import ask, edge, options
from fabled.client import absent, connect
from fabled.errors import NotRunning
from fabled.present import Style

SECONDS = 1.0
SHOWN, EVENTS, PACE = 12, 5, 40
WINDOW = 600.0
"""Seconds over which growth is told."""


@click.command()
@click.option("--once", is_flag=True, help="One view, then end.")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=SECONDS, show_default=True, metavar="SECONDS")
@options.output
def top(once: bool, interval: float, as_json: bool, utc: bool) -> int:
    """What goes on, live: sessions that grow, work that waits, questions and how long they take.

    \b
      fabled top
      fabled top --once
      fabled top --json | jq .status.queue     one object a view

    On a terminal p pauses it, q or Ctrl-C ends it.
    """
    from fabled.present import top as view

    following = Following()

    def paint(style: Style) -> list[str]:
        return view.top(following.value(), style)

    try:
        if as_json:
            return _as_json(following, interval, once)
        following.status()  # who does not run is told of before the screen is taken
        return _live(paint, following.events(interval), once, utc)
    except connect.Down:
        return absent.not_running("json" if as_json else "text")


def watch(utc: bool) -> int:
    """`status --watch`."""
    from fabled.present import top as view

    following = Following()

    def paint(style: Style) -> list[str]:
        return view.watched(following.status(), style)

    try:
        following.status()
        return _live(paint, following.events(SECONDS), False, utc)
    except connect.Down:
        return absent.not_running("text")


class Following:
    """What is known of a daemon from asking it and from listening to it."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._appended: dict[str, deque[tuple[float, int]]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._pace: deque[float] = deque([0.0] * PACE, maxlen=PACE)
        self._bytes = 0.0

    def status(self) -> dict[str, Any]:
        return ask.fetch_running("status", {}, 5.0)

    def events(self, seconds: float) -> Iterator[bool]:
        """True each `seconds`, when a view is due, and False between, for whoever listens to keys; takes events in
        meanwhile. Ends with the daemon."""
        request = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{}}\n'
        turn: float | None = None  # the first is due once the daemon has promised to tell: nothing is missed then
        for line in connect.stream(connect.socket_path(os.environ), request, min(seconds, 0.2)):
            self._take(line)
            due = turn is None or time.monotonic() - turn >= seconds
            if due:
                turn = time.monotonic()
                self._pace.append(self._bytes)
                self._bytes = 0.0
            yield due

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            params = json.loads(line).get("params") if line else None
            if params:
                now = time.time()
                self._events.append({**params, "at": now})
                for grown in params.get("grown") or ():
                    if grown.get("session_id"):
                        self._note(grown, now)

    def value(self) -> dict[str, Any]:
        """All that the view shows, as of now. Only the status is asked for: whoever looks must not be what is seen."""
        now = time.time()
        status = self.status()
        for name, row in self._rows.items():
            row["growth_per_hour"] = self._growth(name, now)
        rows = sorted(self._rows.values(), key=lambda row: -row["at"])
        return {
            "status": {key: given for key, given in status.items() if key != "v"},
            "sessions": rows[:SHOWN],
            "events": list(self._events)[::-1],
            "pace": list(self._pace),
        }

    def _note(self, grown: Mapping[str, Any], now: float) -> None:
        """What was appended to a session, its subagents' files among its own."""
        name, added = str(grown["session_id"]), int(grown.get("added") or 0)
        mine = self._rows.setdefault(name, {"session_id": name, "bytes": 0})
        mine.update(project=grown.get("project"), at=now, added=added)
        if not grown.get("subagent"):
            mine["bytes"] = int(grown.get("bytes") or 0)
        self._appended.setdefault(name, deque(maxlen=10_000)).append((now, added))
        self._bytes += max(0, added)

    def _growth(self, name: str, now: float) -> int:
        """Bytes an hour, as the last minutes were."""
        appended = self._appended[name]
        while appended and appended[0][0] < now - WINDOW:
            appended.popleft()
        if not appended:
            return 0
        return max(0, round(3600 * sum(added for _, added in appended) / max(60.0, now - appended[0][0])))


def _as_json(following: Following, interval: float, once: bool) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        for due in following.events(interval):
            if due:
                edge.put_json(following.value())
                if once:
                    return 0
    return 0


def _live(paint: Callable[[Style], list[str]], turns: Iterator[bool], once: bool, utc: bool) -> int:
    """Paints at each turn. Only a terminal that can move its cursor is painted over."""
    from fabled.present.terminal import finish

    able = edge.on_terminal() and os.environ.get("TERM", "dumb") not in ("dumb", "")
    if once or not able:
        with contextlib.suppress(KeyboardInterrupt):
            for due in turns:
                if not due:
                    continue
                style = edge.style("text", utc)
                edge.put_text(finish([*paint(style), *([] if once else [""])], style))
                if once:
                    return 0
        return 0
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        paused = False
        for due in turns:
            keys = pressed()
            if "q" in keys:
                return 0
            paused ^= keys.count("p") % 2 == 1
            if "p" in keys or (due and not paused):
                style = edge.style("text", utc)
                below = style.dim("  paused; p goes on, q ends it" if paused else "  p pauses, q ends it")
                lines = finish([*paint(style), "", below], style).splitlines()
                rows = max(2, console.size.height - 1)
                shown = "\n".join([*lines[: rows - 1], lines[-1]] if len(lines) > rows else lines)
                live.update(Text.from_ansi(shown, no_wrap=True), refresh=True)
        raise NotRunning("the daemon has ended", "fabled status")
    return 0


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Keys as they are pressed, without waiting for any; the terminal is as it was afterwards."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield lambda: ""
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)

        def pressed() -> str:
            ready, _, _ = select.select([fd], [], [], 0)
            return os.read(fd, 64).decode("utf-8", "replace") if ready else ""

        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
