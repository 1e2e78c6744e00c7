"""Draws the pictures of README from what the program prints: `python docs/picture.py` in the private environment.

Everything shown is run for real, on an invented history in a temporary home.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fabled.cli import history
from fabled.cli.history import DAY, _Session

WIDTH = 96
HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("fabled")


def main() -> None:
    """Draws both."""
    env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "LINES": "60"}
    shown = subprocess.run([PROGRAM, "demo"], env=env, capture_output=True, text=True, check=True).stdout
    draw("terminal.svg", "fabled demo", shown)
    with tempfile.TemporaryDirectory(prefix="fabled-picture-") as folder, running(Path(folder)) as (run, session):
        commands = (("status",), ("prune", session, "--level", "standard"), ("doctor",))
        draw("looking.svg", "fabled", "\n\n".join(run(*words) for words in commands))


@contextmanager
def running(home: Path) -> Iterator[tuple[Callable[..., str], str]]:
    """A daemon over the invented history and one long session: (a way to run a command, the session's id)."""
    session = long_session(time.time())
    for name, data in {**history.files(time.time()), **session.files()}.items():
        path = home / "claude" / "projects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - 7_000,) * 2)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
    env = {
        **kept,
        "PATH": f"{PROGRAM.parent}:{kept.get('PATH', '')}",
        "HOME": str(home),
        "FABLED_HOME": str(home / "fabled"),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "XDG_RUNTIME_DIR": str(home),
        "FORCE_COLOR": "1",
        "COLUMNS": str(WIDTH),
    }

    def run(*words: str) -> str:
        done = subprocess.run([PROGRAM, *words], env=env, capture_output=True, text=True, check=False)
        shown = (done.stdout + done.stderr).replace(str(home), "~")
        return f"\x1b[1m$ fabled {' '.join(words)}\x1b[0m\n{shown.strip(chr(10))}"

    daemon = subprocess.Popen([PROGRAM, "daemon"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            asked = subprocess.run([PROGRAM, "status", "--json"], env=env, capture_output=True, text=True, check=False)
            known = json.loads(asked.stdout or "{}")
            if known.get("records") and not known.get("queue"):
                break
            time.sleep(0.2)
        run("search", "tide table")  # so that there is a question to count
        yield run, session.id[:8]
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


def long_session(now: float) -> _Session:
    """Two days of work on one thing, with the output that such work leaves."""
    session = _Session("lantern-index", "/home/robin/src/lantern", now - 2 * DAY)
    for number in range(260):
        session.prompt(f"Step {number}: go on with the gallery index.", 300)
        listing = "".join(f"photos/{number:03d}/{one:04d}.jpg  {one * 977 % 4000 + 800} kB\n" for one in range(160))
        session.call("Bash", {"command": f"ls -s photos/{number:03d}"}, listing)
        session.say(f"Part {number} of the gallery is indexed; its thumbnails are written lazily.")
    return session


def draw(name: str, title: str, shown: str) -> None:
    """Exports a terminal's text as a picture. The font is whatever the reader's system has: nothing is fetched."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.strip("\n")), soft_wrap=False)
    picture = console.export_svg(title=title)
    while (start := picture.find("@font-face")) >= 0:
        picture = picture[:start] + picture[picture.index("}", start) + 1 :]
    (HERE / name).write_text(picture.replace("Fira Code", "ui-monospace"))


if __name__ == "__main__":
    main()
