"""Where a card job runs a client, so that what the client writes about it is known for what it is.

The client keeps a session under the name of the folder it runs in; the indexer passes by every folder that is named for
card jobs (`store.vault.CARD_JOBS`), whoever's home it lies in.
"""

from __future__ import annotations

import os
import tempfile

from ..store.vault import CARD_JOBS

MARKER = "FABLED_CARD_JOB"
"""Set in the environment of what a card job starts: our own hooks keep silent there."""
_LONGEST = 150
"""Beyond some length the client shortens a folder's name, and its end would be gone."""


def folder(state: str) -> str:
    """The folder in which a client is started."""
    path = os.path.join(os.path.realpath(state), CARD_JOBS.lstrip("-"))
    if len(path) <= _LONGEST:
        return path
    return os.path.join(os.path.realpath(tempfile.gettempdir()), f"fabled-{os.getuid()}", CARD_JOBS.lstrip("-"))
