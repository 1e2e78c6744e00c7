"""The command line: one function per command, loaded when it is called.

What a command finds out is left to the daemon and the verbs; errors become text and exit codes in `edge`.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line of this process and return its exit status."""
    from fabled.cli import edge, group

    if "_FABLED_COMPLETE" in os.environ:
        from fabled.cli import shell  # noqa: F401 (says how names are quoted, before the shell is looked up)

    return edge.run(group.fabled, sys.argv[1:])
