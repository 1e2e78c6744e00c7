"""The documents say what the code does: commands, options, settings, statuses, warnings, files and targets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fabled import config, errors
from fabled.cli.group import fabled

ROOT = Path(__file__).parent.parent
NAMES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/PROTOCOL.md",
         "docs/TROUBLESHOOTING.md", "service/README.md"]  # fmt: skip


def text(name: str) -> str:
    return (ROOT / name).read_text()


def code(name: str) -> list[str]:
    """What stands in code: spans between backquotes, and indented or fenced lines, without their comments."""
    whole = text(name)
    spans = re.findall(r"`([^`\n]+)`", whole)
    lines = re.findall(r"^ {4,}(.*)$", whole, re.MULTILINE)
    return [*spans, *(re.sub(r"\s+#.*|\s{3,}.*", "", line) for line in lines)]


def calls(name: str) -> list[list[str]]:
    """Each call of fabled as words, with what stands for a value in capitals."""
    found = []
    for piece in code(name):
        for call in re.findall(r"(?:^|[=\s/])fabled ((?:[a-z-]|--).*)", piece):
            try:
                words = shlex.split(re.sub(r"\s[|>].*", "", call))
            except ValueError:
                continue
            if words and re.fullmatch(r"[a-z-]+", words[0]):
                found.append(words)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_option_named_exists(name: str) -> None:
    wrong = []
    for words in calls(name):
        command: click.Command = fabled
        context = click.Context(fabled)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            below = command.get_command(context, words[0])
            if below is None:
                wrong.append(f"fabled {' '.join(words)}: no command {words[0]}")
                break
            command, words = below, words[1:]
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        known |= {"--help", "-h", "--", "--version", "-V"}
        options = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
        wrong += [f"{command.name}: no option {o}" for o in options if o.startswith("--") and o not in known]
    assert wrong == []


def test_calls_are_really_found() -> None:
    """A pattern that finds nothing would make the test above agree with anything."""
    assert len(calls("README.md")) > 20 and len(calls("docs/TROUBLESHOOTING.md")) > 10


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_named_exists(name: str) -> None:
    tables = "|".join(config.TABLES)
    named = {word for piece in code(name) for word in re.findall(rf"^(?:{tables})\.[a-z_]+$", piece)}
    assert named - set(config.setting_names()) - {"capture.py", "config.py"} == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_target_and_file_named_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = {word for piece in code(name) for word in re.findall(r"^make ([a-z-]+)", piece)}
    assert named - targets == set()
    folder = (ROOT / name).parent
    links = {link for link in re.findall(r"\]\(([^)#]+)\)", text(name)) if "://" not in link}
    assert {link for link in links if not (folder / link).exists()} == set()
    files = {piece for piece in code(name) if re.fullmatch(r"(?:fabled|tests|docs)/[\w/.-]+\.\w+", piece)}
    assert {path for path in files if not (ROOT / path).exists()} == set()


def rows(name: str, heading: str) -> list[list[str]]:
    """The table below a heading, without its head."""
    section = re.split(r"^## ", text(name), flags=re.MULTILINE)
    (found,) = (part for part in section if part.startswith(heading))
    lines = [line for line in found.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    """Every status a fault can end with is told, and what the help says is what the page says."""
    told = {int(row[0]) for row in rows("docs/TROUBLESHOOTING.md", "Exit statuses")}
    faults = {kind.exit for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert told == faults | {0, 130}
    help_text = fabled.get_help(click.Context(fabled, info_name="fabled"))
    assert {int(number) for number in re.findall(r"(\d+)\s+[a-z]", help_text.partition("Exit status:")[2])} == told


def test_every_warning_is_explained() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "fabled" / "daemon").glob("*.py"))
    codes = set(re.findall(r'Concern\(\s*"(\w+)"', sources))
    told = [row[0].strip("`") for row in rows("docs/TROUBLESHOOTING.md", "Warnings of")]
    assert told == sorted(codes)


def test_the_hardening_is_what_the_unit_has() -> None:
    """Line by line, and none of what would only pretend to protect."""
    unit = text("service/fabled.service").splitlines()
    begin = next(number for number, line in enumerate(unit) if line.startswith("UMask"))
    hardening = unit[begin : unit.index("", begin)]
    assert [row[0].strip("`") for row in rows("SECURITY.md", "The systemd unit")] == hardening
    paragraph = text("SECURITY.md").partition(" are left out on purpose")[0].rpartition("\n\n")[2]
    left_out = re.findall(r"`(\w+)`", paragraph)
    assert left_out and not [line for line in unit for name in left_out if line.startswith(f"{name}=")]


def test_the_numbers_of_the_service_are_the_codes() -> None:
    """Five in five minutes for systemd, five in two for the daemon's own count."""
    from fabled import logs
    from fabled.daemon import starts

    page = text("docs/TROUBLESHOOTING.md").replace("\n", " ")
    unit = text("service/fabled.service")
    assert "five failures in five minutes" in page
    assert "StartLimitBurst=5\n" in unit and "StartLimitIntervalSec=300\n" in unit
    assert "five failures within two minutes" in page and (starts.LIMIT, starts.WINDOW_SECONDS) == (5, 120)
    assert f"values over {logs.VALUE_BYTES} bytes" in text("SECURITY.md")
