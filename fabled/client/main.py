"""The entry point: answers `status` without importing anything heavy, and hands every other command to `cli`.

Parsing options, and every wording but "not running", is left to `cli` and the daemon.
"""

from __future__ import annotations

import os
import sys

DEADLINE_SECONDS = 2.0

# The command lines a shell prompt or a hook runs at every keystroke. With anything else the click commands can do
# the same, slower.
_FAST = {("status",): "text", ("status", "--json"): "json", ("status", "--oneline"): "oneline"}

_DOORS = ("hook", "statusline", "mcp")


def main() -> int:
    """Run the command line of this process and return its exit status."""
    from fabled.client import streams

    streams.mend()
    try:
        if len(sys.argv) > 1 and sys.argv[1] in _DOORS:
            done = _door(sys.argv[1], sys.argv[2:])
            if done is not None:
                return done
        form = _FAST.get(tuple(sys.argv[1:]))
        # JSON that a person looks at takes the way on which nothing in it steers the terminal.
        if form is not None and not (form == "json" and os.isatty(1)):
            done = status(form)
            if done is not None:
                return done
        from fabled.cli import main as every_command

        return every_command()
    except KeyboardInterrupt:
        return 130
    except FileNotFoundError:
        if not streams.in_no_folder():
            raise
        streams.tell(f"fabled: {streams.NO_FOLDER}. Next: {streams.ANOTHER_FOLDER}")
        return 1


def _door(name: str, rest: list[str]) -> int | None:
    """What Claude Code itself calls; None for anything a person typed (`--help`)."""
    if any(word.startswith("-") for word in rest) or len(rest) != (name == "hook"):
        return None
    if name == "mcp":
        from fabled.client import mcp

        return mcp.serve()
    try:
        from fabled.client import hook

        return hook.run(rest[0]) if name == "hook" else hook.statusline()
    except Exception:
        return 0  # a fault of ours must not stop the person's work, and there is nobody to tell


def status(form: str) -> int | None:
    """Print the daemon's status; None where the daemon sent an error, which `cli` knows how to word."""
    from fabled.client import connect, streams

    wishes = connect.wishes(os.environ, form)
    request = f'{{"jsonrpc":"2.0","id":1,"method":"status","params":{{"as":{wishes}}}}}\n'.encode()
    try:
        reply = connect.ask(connect.socket_path(os.environ), request, DEADLINE_SECONDS)
    except connect.Down:
        from fabled.client import absent

        return absent.not_running(form)
    except connect.Silent as trouble:
        from fabled.client import absent

        return absent.not_answering(form, str(trouble))
    if reply.refused:
        return None
    why = streams.put(reply.body)
    if why:
        streams.tell(f"fabled: the output could not be written: {why}. Next: free space, or print elsewhere")
        return 1
    return reply.exit


if __name__ == "__main__":
    sys.exit(main())
