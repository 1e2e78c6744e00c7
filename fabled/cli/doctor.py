"""`doctor`: is everything set up well, and a report to send that holds no text of a transcript.

The checks are `examine`'s.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

import fabled
from fabled.cli import ask, edge, examine, journal, options
from fabled.cli import output as out
from fabled.cli.findings import Seen
from fabled.client import connect
from fabled.indexer.projects import encode_folder
from fabled.transcript.mask import mask

LOG_LINES = 2_000


@click.command()
@click.option(
    "--bundle", is_flag=True, help="Write a report to send: findings, status, settings, log; no transcript text."
)
@click.option("-o", "--output", metavar="FILE", help="Where the report goes.")
@options.output
def doctor(bundle: bool, output: str | None, as_json: bool, utc: bool) -> int:
    """Look at everything around fabled and say how to mend what is not well.

    \b
      fabled doctor
      fabled doctor --bundle       a report to send, without any text of a transcript

    Exit status 1 where something fails; warnings alone are 0.
    """
    from fabled import present

    seen = examine.gather(os.environ, _status)
    findings = examine.examine(seen)
    value: dict[str, Any] = {"checks": [{**asdict(one), "ok": one.state != "failure"} for one in findings]}
    if bundle or output is not None:
        value["bundle"] = _bundle(output, value, seen)
    if as_json:
        edge.put_json(value)
    else:
        edge.put_text(present.text("doctor", value, edge.style(utc=utc)))
    return 1 if any(one.state == "failure" for one in findings) else 0


def _status() -> Mapping[str, Any] | None:
    try:
        return ask.fetch_running("status", {}, 5.0)
    except connect.Down:
        return None


def _bundle(output: str | None, value: Mapping[str, Any], seen: Seen) -> str:
    """One archive of small readable files. The home's path becomes `~`: it holds a name."""
    name = f"fabled-report-{time.strftime('%Y%m%d-%H%M%S')}"
    made = io.BytesIO()
    system = {
        "fabled": fabled.__version__,
        "python": sys.version,
        "system": platform.platform(),
        "encoding": sys.stdout.encoding if sys.stdout else None,
        "environment": {key: given for key, given in sorted(seen.env.items()) if _telling(key)},
    }
    files = {"doctor.json": _json(value), "status.json": _json(seen.status), "system.json": _json(system)}
    if seen.config is not None:
        files["paths.json"] = _json({**asdict(seen.config.places), "roots": list(seen.config.roots)})
        files["config.toml"] = mask(_read(seen.config.places.config_file))
        source = journal.Source(seen.config.places.log_file, seen.env)
        files["log.jsonl"] = "".join(_line(one) for one in list(source.lines())[-LOG_LINES:])
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for file, text in files.items():
            data = _homeless(text).encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
    # A configuration with faults is what a report may be about.
    return out.write(output or f"{name}.tar.gz", [made.getvalue()], lenient=True)[0]


def _homeless(text: str) -> str:
    """With `~` for the home, also as the client writes it in the names of folders, and where it really lies."""
    home = os.path.expanduser("~").rstrip("/")
    for one in dict.fromkeys((home, os.path.realpath(home).rstrip("/"))):
        if one:
            text = re.sub(rf"(?<![\w.-]){re.escape(encode_folder(one))}", "~", text.replace(one, "~"))
    return text


# What the interpreter itself writes when it dies.
_DUMP = re.compile(r'Fatal Python error|(Current thread|Thread) 0x|Stack \(most|\s*File "[^"]*", line \d+ in \S+$')


def _line(entry: journal.Entry) -> str:
    """A line of the log; what an exception quotes is left out, its frames stay. Of a line that is not the daemon's
    nobody knows what it quotes."""
    fields = dict(entry.fields)
    if not entry.ours and not _DUMP.match(str(fields["event"])):
        fields["event"] = f"(not a line of fabled's: {len(str(fields['event']))} characters left out)"
    if fields.get("exception"):
        fields["exception"] = _unsaid(fields["exception"])
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _unsaid(exception: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the words of an exception, and of those that it groups."""
    return [
        {**one, "exc_value": "", "exc_notes": [], **({"exceptions": inner} if inner else {})}
        for one in exception
        for inner in (_unsaid(one.get("exceptions") or []),)
    ]


def _telling(name: str) -> bool:
    return name.startswith(("FABLED_", "LC_", "XDG_")) or name in (
        "LANG",
        "TERM",
        "NO_COLOR",
        "CLAUDE_CONFIG_DIR",
        "TZ",
    )


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
