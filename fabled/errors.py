"""The faults a user can meet, one class per fact, each with its code in replies and its exit status.

Turning them into text is left to the edge (`cli`, `daemon.server`).
"""

from __future__ import annotations

from collections.abc import Mapping


class FabledError(Exception):
    """Base of all foreseeable faults.

    `code` names the fault in replies, `exit` is the process status of CONTRACT, `hint` the next step.
    """

    code = "failed"
    exit = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(FabledError):
    """Nothing in the Map answers to what was asked for. `indexing` tells how far the Map is, where it is not whole."""

    code = "not_found"
    indexing: Mapping[str, object] | None = None


class Ambiguous(FabledError):
    """A shortened id fits several; `candidates` lists them."""

    code = "ambiguous"
    exit = 2

    def __init__(self, message: str, candidates: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint)
        self.candidates = candidates


class BadRequest(FabledError):
    """The caller's words do not form a request."""

    code = "usage"
    exit = 2


class Busy(FabledError):
    """What was asked for would take too much from others now."""

    code = "busy"


class NotAnswering(FabledError):
    """A daemon holds the socket but does not answer in time."""

    code = "not_answering"


class NotRunning(FabledError):
    """No daemon listens on the socket."""

    code = "not_running"
    exit = 3


class NoIndex(FabledError):
    """There is no Map to read yet."""

    code = "no_index"
    exit = 3


class AlreadyRunning(FabledError):
    """Another process holds the instance lock."""

    code = "already_running"
    exit = 3


class NewerSchema(FabledError):
    """The Map or Ledger was written by a newer version; this one leaves it alone."""

    code = "newer_schema"
    exit = 3


class ForeignSocket(FabledError):
    """Something that is not ours lies where the socket belongs."""

    code = "foreign_socket"
    exit = 3


class Refused(FabledError):
    """A safety rule forbids the step; nothing was changed. `reason` names the rule, where there are several."""

    code = "refused"
    exit = 4

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


class Unreadable(FabledError):
    """The bytes exist by the Map, but their file cannot be reached now."""

    code = "unreadable"
    exit = 5


class StaleIndexError(FabledError):
    """The bytes at every known span of a record are not that record's any more."""

    code = "stale"
    exit = 5


class StorageFault(FabledError):
    """SQLite or the disk refused a write; nothing half-done was kept."""

    code = "storage"


class OutputFault(FabledError):
    """What was to be printed could not be."""

    code = "output"


class BadConfig(FabledError):
    """The configuration has faults; all of them are in `problems`."""

    code = "bad_config"
    exit = 78

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems), "correct the lines named, then try again")
        self.problems = problems
