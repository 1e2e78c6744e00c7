"""The versions of the client that sessions come from, and in what their transcripts differ.

Writing them is left to `session`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Era:
    """What a range of client versions writes."""

    share: float
    """of all sessions"""
    versions: tuple[str, ...]
    original_file: float
    """share of edits whose result repeats the whole file as it was"""
    signature: int
    """mean characters of a thinking block's signature"""
    prompt_ids: bool = False
    progress: bool = False
    attachments: bool = False
    titles: bool = False
    agent_folder: bool = True


ERAS = (
    Era(0.05, ("1.0.86", "1.0.98", "1.0.113"), 0.25, 300, agent_folder=False),
    Era(0.09, ("2.0.61", "2.0.69", "2.0.76"), 0.6, 500, agent_folder=False),
    Era(0.26, ("2.1.31", "2.1.36", "2.1.42", "2.1.47"), 1.0, 700, progress=True),
    Era(0.30, ("2.1.50", "2.1.56", "2.1.63"), 1.0, 700, progress=True),
    Era(0.10, ("2.1.114", "2.1.126", "2.1.131"), 0.8, 1500, prompt_ids=True, attachments=True),
    Era(0.20, ("2.1.205", "2.1.214", "2.1.219"), 0.3, 2600, prompt_ids=True, attachments=True, titles=True),
)
MOST_BYTES = 3
"""The era that most of the bytes of a long-lived history come from."""
