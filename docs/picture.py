"""Draws `docs/terminal.svg` from what the program prints: `python docs/picture.py` in the private environment."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 96


def main() -> None:
    """Runs the demo with colours and exports what it prints."""
    env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "LINES": "60"}
    program = Path(sys.executable).with_name("fabled")
    shown = subprocess.run([program, "demo"], env=env, capture_output=True, text=True, check=True).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.strip("\n")), soft_wrap=False)
    picture = console.export_svg(title="fabled demo")
    # The font is whatever the reader's system has: nothing is fetched from elsewhere.
    while (start := picture.find("@font-face")) >= 0:
        picture = picture[:start] + picture[picture.index("}", start) + 1 :]
    Path(__file__).with_name("terminal.svg").write_text(picture.replace("Fira Code", "ui-monospace"))


if __name__ == "__main__":
    main()
