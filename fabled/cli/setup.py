"""`config`: which settings and places hold.

Reading and checking them is `fabled.config`'s.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from fabled.cli import edge, options
from fabled.present.terminal import path


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Settings and places."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@config.command()
@options.as_json
def paths(as_json: bool) -> int:
    """Where everything of fabled lies, and where it looks for transcripts.

    \b
      fabled config paths
      FABLED_HOME=/elsewhere fabled config paths --json
    """
    from fabled import config as settings

    found = settings.load(os.environ)
    value = {**asdict(found.places), "roots": list(found.roots), "vaults": list(found.vaults)}
    if as_json:
        edge.put_json(value)
        return 0
    style = edge.style()
    lines = []
    for name, place in value.items():
        for number, one in enumerate(place if isinstance(place, list) else [place]):
            if one is not None:
                lines.append(f"{name if number == 0 else '':<12} {path(one, style)}")
    edge.put_text("\n".join(lines) + "\n")
    return 0


@config.command()
@options.as_json
def check(as_json: bool) -> int:
    """Whether the configuration is sound; else every problem with its line, and exit status 78.

    \b
      fabled config check
    """
    from fabled import config as settings

    file = settings.load(os.environ).places.config_file
    there = os.path.exists(file)
    if as_json:
        edge.put_json({"ok": True, "config_file": file, "exists": there})
    else:
        said = "is sound" if there else "does not exist: every setting has its default"
        edge.put_text(f"{path(file, edge.style())} {said}.\n")
    return 0
