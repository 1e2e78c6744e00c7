"""The file that Claude Code's hooks, status line and MCP entry name: the `fabled` command by a bare interpreter.

It is run as `python -I -S`. A hook starts in the surroundings of the person's own work, and what they set there for
other programs (PYTHONPATH, PYTHONHOME, a sitecustomize) is not meant for it; and looking through the installed
packages, of which nothing here is one, is a third of a cold start.
"""

import sys

if __name__ == "__main__":
    # Behind the standard library, so that no other package stands in for a part of that.
    sys.path.append(__file__.removesuffix("/fabled/client/door.py"))
    from fabled.client.main import main

    sys.exit(main())
