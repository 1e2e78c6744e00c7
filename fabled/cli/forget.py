"""`forget`: the one command that removes what is nowhere else, so it tells first and asks.

What is removed, and in which order, is decided where the Vault is.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from fabled.cli import ask, edge, options
from fabled.cli.vault import _done as done
from fabled.cli.vault import _put as put
from fabled.errors import Refused
from fabled.present.terminal import short


@click.command()
@click.argument("session", required=False)
@options.project("All of this project, now and later: path or folder name.")
@click.option("--yes", is_flag=True, help="Do not ask. Without a terminal nothing is done otherwise.")
@click.option("--list", "listed", is_flag=True, help="What was forgotten, and stays out.")
@click.option("--let-in", metavar="NAME", help="Take a name off that list; what is live is indexed again.")
@options.output
def forget(
    session: str | None, project: str | None, yes: bool, listed: bool, let_in: str | None, as_json: bool, utc: bool
) -> int:
    """Remove a session or a project from Map, Vault and Ledger for good, and keep it out.

    \b
      fabled forget 6513270e                what that would remove; then it asks
      fabled forget --project ~/src/diary   every session of it, and every one to come
      fabled forget --list
      fabled forget --let-in 6513270e

    What lies nowhere else is told before. Live transcripts are the client's and stay. Exit status 4: not done.
    To keep a project out without removing what the Vault has: fabled config set exclude PATH.
    """
    if sum((session is not None, project is not None, listed, let_in is not None)) != 1:
        raise click.UsageError("Name one of SESSION, --project, --list or --let-in.")
    if listed:
        return ask.show("forgotten", {}, form=options.form(as_json), utc=utc)
    if let_in is not None:
        name = os.path.abspath(os.path.expanduser(let_in)) if "/" in let_in else let_in
        put("forget", done("forget", {"let_in": name}), as_json, utc)
        return 0
    params: dict[str, Any] = {"session": session} if session is not None else {"project": project}
    value = done("forget", params)
    if not yes:
        put("forget", value, as_json, utc)
        if as_json or not sys.stdin.isatty():
            raise Refused("nothing was forgotten: it was not confirmed", "add --yes, once you have read what would go")
        name = str(value["project"]) if value.get("project") else short(str(value["sessions"][0]["session_id"]))
        if edge.typed(f"Type {name} to forget it").strip() != name:
            raise Refused("nothing was forgotten: another name was typed", "")
    # Exactly what was shown: a prefix may mean another session by now.
    exact = {"session": value["sessions"][0]["session_id"]} if session is not None else params
    value = done("forget", {**exact, "apply": True})
    put("forget", value, as_json, utc)
    return 1 if value.get("failed") else 0
