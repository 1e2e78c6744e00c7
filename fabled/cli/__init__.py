"""The command line: one function per command, loaded when it is called.

What a command finds out is left to the daemon and the verbs; errors become text and exit codes in `edge`.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process and return its exit status."""
    from fabled.cli import edge, group

    return edge.run(group.fabled, sys.argv[1:])
