"""Writes `prune.level` into the configuration file and keeps all else that stands there, comments included.

What the levels mean, and whether to ask, is left to the commands.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any

from ..errors import Refused
from .manager import put

_TABLE = re.compile(r"\s*\[\s*prune\s*\]\s*(#.*)?")
_ANY_TABLE = re.compile(r"\s*\[")
_LEVEL = re.compile(r"(\s*level\s*=\s*)(\"[^\"]*\"|'[^']*')(.*)", re.DOTALL)


def set_level(config_file: str, level: str) -> bool:
    """Whether the file changed. Raises Refused where it is written in a way this does not understand."""
    try:
        with open(config_file, encoding="utf-8", newline="") as file:
            text = file.read()
        mode = os.stat(config_file).st_mode & 0o777
    except FileNotFoundError:
        text, mode = "", 0o600
    except (OSError, UnicodeDecodeError) as fault:
        raise Refused(f"{config_file} cannot be read: {fault}", "fabled config check") from None
    new = with_level(text, level)
    wanted = tomllib.loads(text)
    wanted["prune"] = {**wanted.get("prune", {}), "level": level}
    if _parsed(new) != wanted:  # dotted keys, inline tables and the like: not guessed at
        hint = f'write  level = "{level}"  below [prune] in it by hand'
        raise Refused(f"{config_file} is written in a way that cannot be edited without harm", hint)
    return put(os.path.realpath(config_file), new.encode(), mode)


def with_level(text: str, level: str) -> str:
    """The text with the setting in its table: changed where it stands, else as the table's first line."""
    lines = text.splitlines(keepends=True)
    table = next((at for at, line in enumerate(lines) if _TABLE.fullmatch(line.rstrip("\r\n"))), None)
    if table is None:
        end = "" if not text or text.endswith("\n") else "\n"
        return f'{text}{end}{chr(10) if text else ""}[prune]\nlevel = "{level}"\n'
    for at in range(table + 1, len(lines)):
        if _ANY_TABLE.match(lines[at]):
            break
        if found := _LEVEL.fullmatch(lines[at]):
            lines[at] = f'{found[1]}"{level}"{found[3]}'
            return "".join(lines)
    if not lines[table].endswith("\n"):
        lines[table] += "\n"
    lines.insert(table + 1, f'level = "{level}"\n')
    return "".join(lines)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
