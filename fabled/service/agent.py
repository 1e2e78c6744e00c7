"""The launchd agent as the bytes of its plist.

Putting it in place is left to `launchd`.
"""

from __future__ import annotations

import plistlib

from .facts import Facts, template

LABEL = "io.fabled.daemon"


def plist(facts: Facts) -> bytes:
    """The agent's file. launchd expands neither `~` nor `$`, so every path is whole; values need no quoting."""
    value = plistlib.loads(template(f"{LABEL}.plist").encode())
    value["ProgramArguments"] = [*facts.command, "daemon"]
    value["EnvironmentVariables"] = {"FABLED_SERVICE": "launchd", "PYTHONUTF8": "1", **dict(facts.environment)}
    value["StandardOutPath"] = value["StandardErrorPath"] = facts.log
    return plistlib.dumps(value, sort_keys=False)
