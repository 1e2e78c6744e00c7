"""The systemd user unit and its sandbox drop-in as text, with everything quoted as systemd reads it.

Putting them in place is left to `systemd`.
"""

from __future__ import annotations

import os
import re

from .facts import Facts, template

_PLAIN = re.compile(r"[\w/.,:=+@-]+", re.ASCII)


def unit(facts: Facts) -> str:
    """The text of fabled.service."""
    program, *arguments = facts.command
    if any(c in program for c in "'\"\\"):
        # systemd refuses these in a program's name, however quoted, but not in a word that follows it.
        program, arguments = "/bin/sh", ["-c", 'exec "$0" "$@"', program, *arguments]
    # The program itself is taken as it is; in what follows it `$` would name a variable.
    command = " ".join([quoted(program), *(quoted(one).replace("$", "$$") for one in arguments)])
    pairs = (("FABLED_SERVICE", "systemd"), ("PYTHONUTF8", "1"), *facts.environment)
    environment = "\n".join(f"Environment={quoted(f'{name}={value}')}" for name, value in pairs)
    filled = {"version": facts.version, "command": command, "environment": environment}
    return _fill(template("fabled.service"), filled)


def sandbox(facts: Facts, runtime_folder: str | None) -> str:
    """The text of the drop-in. `runtime_folder`: XDG_RUNTIME_DIR as the manager has it."""
    private, runtime = properties(facts, runtime_folder)
    return _fill(
        template("sandbox.conf"),
        {
            "version": facts.version,
            "private_tmp": private["PrivateTmp"],
            "runtime": "\n".join(f"{name}={value}" for name, value in runtime),
            "writable": f"ReadWritePaths={private['ReadWritePaths']}",
        },
    )


def properties(facts: Facts, runtime_folder: str | None) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The sandbox as (settings to try out, how the folder of the socket comes to be)."""
    # The manager makes its runtime folder at each login; a folder of ours in it must be made with the service.
    if runtime_folder and facts.runtime == os.path.join(runtime_folder, "fabled"):
        runtime = [("RuntimeDirectory", "fabled"), ("RuntimeDirectoryMode", "0700")]
        folders = facts.writable
    else:
        runtime, folders = [], (*facts.writable, facts.runtime)
    tried = {
        "PrivateUsers": "yes",
        "ProtectSystem": "strict",
        # A socket that had to move to /tmp, and what is written below it, must stay in sight of the client.
        "PrivateTmp": "no" if any((folder + "/").startswith(("/tmp/", "/var/tmp/")) for folder in folders) else "yes",
        # `-`: a folder that does not exist yet is no reason not to start.
        "ReadWritePaths": " ".join(quoted("-" + folder) for folder in folders),
    }
    return tried, runtime


def quoted(text: str) -> str:
    """One word of a setting, whatever is in it: blanks, quotes, backslashes, and `%`, which starts a specifier."""
    text = text.replace("%", "%%")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fill(text: str, words: dict[str, str]) -> str:
    """Each `@word@` replaced, in one pass: what is filled in is not looked at again."""
    filled = re.sub(r"@([a-z_]+)@", lambda found: words.get(found[1], found[0]), text)
    return re.sub(r"\n\n+$", "\n", filled)
