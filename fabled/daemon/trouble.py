"""Tells what kind of trouble of SQLite or the disk a fault is.

What is done about it is left to those who met it.
"""

from __future__ import annotations

import errno
from typing import Literal

from fabled.errors import StorageFault

# SQLite's own faults by the name its library gives them: that library is imported in `store` only. They stand behind
# a StorageFault as what it came from.
_TROUBLES: dict[str, Literal["locked", "full", "failing", "damaged"]] = {
    "BusyError": "locked",
    "LockedError": "locked",
    "FullError": "full",
    "CorruptError": "damaged",
    "NotADBError": "damaged",
    "IOError": "failing",
    "ReadOnlyError": "failing",
    "CantOpenError": "failing",
    "NomemError": "failing",
    "PermissionsError": "failing",
}


def of_sqlite(fault: BaseException | None) -> str | None:
    """The name of SQLite's fault at the bottom of this one."""
    while fault is not None:
        if type(fault).__module__.split(".")[0] == "apsw":
            return type(fault).__name__
        fault = fault.__cause__ or fault.__context__
    return None


def storage_trouble(fault: BaseException) -> Literal["locked", "full", "failing", "damaged"] | None:
    """What kind of trouble of SQLite or the disk a fault is, if it is one that may pass or can be mended."""
    name = of_sqlite(fault)
    if name is not None:
        return _TROUBLES.get(name)
    if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return "full"
    return "failing" if isinstance(fault, StorageFault) else None
