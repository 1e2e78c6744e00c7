"""`demo`: runs the real commands on an invented history in a temporary home, and shows what they say.

The history is written by `history`; nothing of the person's own is read or changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from fabled.cli import edge, history, options
from fabled.present.terminal import short

QUESTION = "why did we drop the retry queue"


@click.command()
@options.as_json
def demo(as_json: bool) -> int:
    """See it work on a small invented history, in a temporary home.

    \b
      fabled demo
    """
    style = edge.style()
    with tempfile.TemporaryDirectory(prefix="fabled-demo-") as home:
        _write(Path(home) / "claude" / "projects")
        if not as_json:
            edge.say("Three invented projects of one developer, some forty records, in a temporary home.")
        steps = []
        for arguments in (["index"], ["search", QUESTION], ["thread", "", "--subagents"]):
            if arguments[0] == "thread":
                arguments[1] = _best_thread(home)
            step = _run(home, arguments)
            steps.append({"command": step.args[3:], "exit": step.returncode, "output": step.stdout.decode()})
            if not as_json:
                shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
                edge.say("", style.bold(f"$ fabled {shown}"))
                edge.put(step.stdout)
                if step.returncode != 0:
                    edge.put(step.stderr)
    if as_json:
        edge.put_json({"steps": steps})
    else:
        edge.say("", "That home is gone again. On your own transcripts:  fabled daemon  (or make run)")
    return 0 if all(step["exit"] == 0 for step in steps) else 1


def _write(projects: Path) -> None:
    for name, data in history.files(time.time()).items():
        path = projects / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _environment(home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FABLED_")}
    colour = {"FORCE_COLOR": "1"} if edge.style().color else {}
    return {
        **kept,
        **colour,
        "FABLED_HOME": f"{home}/fabled",
        "CLAUDE_CONFIG_DIR": f"{home}/claude",
        "COLUMNS": str(edge.style().width),
    }


def _run(home: str, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    """One command, as a process of its own: what is shown is what it really prints."""
    command = [sys.executable, "-m", "fabled", *arguments]
    return subprocess.run(command, env=_environment(home), cwd=home, capture_output=True, check=False)


def _best_thread(home: str) -> str:
    found = _run(home, ["search", "--json", "--limit", "1", QUESTION])
    return short(str(json.loads(found.stdout)["results"][0]["thread"]))
