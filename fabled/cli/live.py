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

    q or Ctrl-C ends it.
    """
    from fabled.present import top as view

    following = Following()

    def paint(style: Style) -> list[str]:
        return view.top(following.value(), style)

    try:
        if as_json:
            return _as_json(following, interval, once)
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
        return _live(paint, following.events(SECONDS), False, utc)
    except connect.Down:
        return absent.not_running("text")


class Following:
    """What is known of a daemon from asking it and from listening to it."""

    def __init__(self) -> None:
        self._sizes: dict[str, list[tuple[float, int]]] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._pace: deque[float] = deque([0.0] * PACE, maxlen=PACE)
        self._bytes = 0.0
        self._listed = 0.0

    def status(self) -> dict[str, Any]:
        return ask.fetch_running("status", {}, 5.0)

    def events(self, seconds: float) -> Iterator[None]:
        """Gives a turn each `seconds`; takes events in meanwhile. Ends with the daemon."""
        request = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{}}\n'
        turn = time.monotonic()
        yield
        for line in connect.stream(connect.socket_path(os.environ), request, min(seconds, 0.2)):
            self._take(line)
            if time.monotonic() - turn >= seconds:
                turn = time.monotonic()
                self._pace.append(self._bytes)
                self._bytes = 0.0
                yield

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            params = json.loads(line).get("params") if line else None
            if params:
                self._events.append({**params, "at": time.time()})
                self._bytes += params.get("bytes") or 0

    def value(self) -> dict[str, Any]:
        """All that the view shows, as of now."""
        now = time.time()
        status = self.status()
        fetched = ask.fetch_running("sessions", {"limit": 50}, 10.0)
        for row in fetched.get("sessions") or []:
            self._note(row, now)
        rows = [row for row in self._rows.values() if row.get("at")]
        rows.sort(key=lambda row: -row["at"])
        return {
            "status": {key: given for key, given in status.items() if key != "v"},
            "sessions": rows[:SHOWN],
            "events": list(self._events)[::-1],
            "pace": list(self._pace),
        }

    def _note(self, row: Mapping[str, Any], now: float) -> None:
        name, size = str(row["session_id"]), int(row.get("bytes") or 0)
        seen = self._sizes.setdefault(name, [])
        before = seen[-1][1] if seen else size
        mine = self._rows.setdefault(name, {"at": None, "added": 0})
        mine.update(session_id=name, project=row.get("project"), bytes=size)
        if size != before:
            mine.update(at=now, added=size - before)
        if not seen or size != before:
            seen.append((now, size))
        first_at, first = seen[0]
        mine["growth_per_hour"] = max(0, round(3600 * (size - first) / max(60.0, now - first_at)))


def _as_json(following: Following, interval: float, once: bool) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        for _ in following.events(interval):
            edge.put_json(following.value())
            if once:
                return 0
    return 0


def _live(paint: Callable[[Style], list[str]], turns: Iterator[None], once: bool, utc: bool) -> int:
    """Paints at each turn. Only a terminal that can move its cursor is painted over."""
    from fabled.present.terminal import finish

    able = edge.on_terminal() and os.environ.get("TERM", "dumb") not in ("dumb", "")
    if once or not able:
        with contextlib.suppress(KeyboardInterrupt):
            for _ in turns:
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
        for _ in turns:
            style = edge.style("text", utc)
            lines = paint(style)
            rows = console.size.height
            shown = finish(lines[: max(1, rows - 1)], style)
            live.update(Text.from_ansi(shown.rstrip("\n"), no_wrap=True), refresh=True)
            if "q" in pressed():
                return 0
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
