"""Brings the Map up to date with the Vault: some paths, or everything.

`update` decides what is to be read, `scan` reads files in slices, `file` says what the lines of one become.
"""

from .projects import encode_folder, project_of
from .report import IndexReport, Progress
from .update import Indexer

__all__ = ["IndexReport", "Indexer", "Progress", "encode_folder", "project_of"]
