"""Writes the man page from the commands themselves, so that it says what they say.

`python -m fabled.cli.manual > docs/fabled.1` renews the one that is shipped; a test holds the two together.
"""

from __future__ import annotations

import re
import sys

import click

from fabled import __version__
from fabled.cli.group import SECTIONS, fabled

STATUSES = (
    ("0", "done"),
    ("1", "nothing found, the work failed, or a daemon that does not answer in time"),
    ("2", "wrong usage"),
    ("3", "the daemon is not running, or refuses to start and has changed nothing"),
    ("4", "refused by a safety rule, nothing changed"),
    ("5", "stale: the bytes are not where the Map says and no other copy reads"),
    ("78", "bad configuration; every problem is listed with its line"),
    ("130", "interrupted"),
)
FILES = (
    ("~/.config/fabled/config.toml", "settings; fabled config lists them, fabled config edit explains each"),
    ("~/.local/share/fabled/map.db", "the Map: what is where; derived, may be deleted"),
    ("~/.local/share/fabled/ledger.db", "the Ledger: what no transcript can give back"),
    ("~/.local/share/fabled/vault/", "the Vault: immutable copies, zstd; zstdcat reads them"),
    ("~/.local/state/fabled/fabled.log", "the daemon's log, without text of transcripts"),
)
VARIABLES = (
    ("FABLED_HOME", "a folder for everything of fabled instead of the usual places"),
    ("FABLED_TABLE_KEY", "any setting for one run, as FABLED_LOG_LEVEL=debug"),
    ("CLAUDE_CONFIG_DIR", "the client's folder; transcripts are looked for in its projects/"),
    ("FABLED_PAGER, PAGER", "shows long output on a terminal; cat or nothing at all turns that off"),
    ("NO_COLOR", "no colours"),
    ("VISUAL, EDITOR", "what fabled config edit opens"),
)


def page() -> str:
    """The whole page, in the man macros."""
    lines = [
        f'.TH FABLED 1 "" "fabled {__version__}" "User Commands"',
        ".SH NAME",
        r"fabled \- searchable, lossless memory of your Claude Code sessions",
        ".SH SYNOPSIS",
        r".B fabled",
        r"[\fIcommand\fR] [\fIoptions\fR]",
        ".SH DESCRIPTION",
        "A small background process that keeps every record of Claude Code's transcripts, finds any of them in",
        "milliseconds by thread, and keeps live transcripts small without losing a byte. No network, no model.",
        ".PP",
        r"Every command has \fB\-\-json\fR and \fB\-\-help\fR. Ids may be cut to any unique prefix of six characters.",
    ]
    for section, names in SECTIONS.items():
        lines.append(f".SH {_text(section.upper())}")
        for name in names:
            lines += _command(name)
    lines += [".SH EXIT STATUS", *_pairs(STATUSES), ".SH ENVIRONMENT", *_pairs(VARIABLES), ".SH FILES", *_pairs(FILES)]
    lines += ["On macOS they lie in Apple's places. \\fBfabled config paths\\fR prints those that hold.",
              ".SH SEE ALSO", r"\fBclaude\fR(1), \fBzstdcat\fR(1)"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _command(name: str) -> list[str]:
    context = click.Context(fabled, info_name="fabled")
    command = fabled.get_command(context, name)
    assert command is not None
    lines = _one(f"fabled {name}", command, context)
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            lines += _one(f"fabled {name} {below}", inner, context)
    return lines


def _one(asked: str, command: click.Command, parent: click.Context) -> list[str]:
    context = click.Context(command, parent=parent, info_name=asked.rpartition(" ")[2])
    usage = " ".join(command.collect_usage_pieces(context)).removeprefix("[OPTIONS]").strip()
    lines = [".SS " + _text(f"{asked} {usage}".rstrip())]
    for part in _paragraphs(command.help or ""):
        lines += part
    options = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    for record in options:
        if record is not None:
            lines += [".TP", rf"\fB{_text(record[0])}\fR", _text(" ".join(record[1].split()))]
    return lines


def _paragraphs(help: str) -> list[list[str]]:
    """Words as they flow, examples as they stand."""
    found = []
    for part in re.split(r"\n\s*\n", help.strip("\n")):
        rows = [line for line in part.split("\n") if line.strip()]
        if rows and rows[0].strip() == "\b":
            found.append([".PP", ".nf", *(_text(row.rstrip()) for row in rows[1:]), ".fi"])
        elif rows:
            found.append([".PP", _text(" ".join(row.strip() for row in rows))])
    return found


def _pairs(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [line for name, said in rows for line in (".TP", rf"\fB{_text(name)}\fR", _text(said))]


_SIGNS = {"…": "...", "→": "->", "–": "-", "—": "-"}


def _text(said: str) -> str:
    """What roff would take for its own, escaped."""
    for sign, plain in _SIGNS.items():
        said = said.replace(sign, plain)
    said = (
        said.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha").replace("`", r"\(ga")
    )
    said = said.replace("'", r"\(aq")
    return rf"\&{said}" if said[:1] in (".",) else said


if __name__ == "__main__":
    sys.stdout.write(page())
