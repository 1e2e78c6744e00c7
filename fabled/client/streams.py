"""The three streams a process is born with, made safe where whoever started it closed one, or where one takes nothing.

What is said is left to those who say it.
"""

from __future__ import annotations

import os
import sys

NO_FOLDER, ANOTHER_FOLDER = "the folder you are in does not exist any more", "cd to one that does"


def in_no_folder() -> bool:
    """Whether the working folder was deleted under us."""
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def mend() -> None:
    """No file opened later may get the number of a closed stream: what is told to a person would be written into it.

    A closed stdout stays None in `sys`, so that whoever prints an answer notices.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115


def tell(text: str) -> None:
    """A word to the person, beside the data. Where it cannot be written there is nobody to tell, and no other harm."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Python would complain once more when it flushes at exit


def put(data: bytes) -> str:
    """All of `data` to stdout; "" or why that could not be. A reader that left early (`| head`) is no fault of ours."""
    if sys.stdout is None:
        return "it is closed"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""
