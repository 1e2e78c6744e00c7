"""The verb that makes live transcripts smaller with proof that no byte is lost, and puts them back."""

from __future__ import annotations

from ..capture import Capturer
from ..config import Config
from ..indexer import Indexer
from .automatic import Automatic, Outlook, automatic_level
from .requests import METHODS, perform
from .verb import Pruner

__all__ = ["METHODS", "Automatic", "Outlook", "Pruner", "automatic_level", "opened", "perform"]


def opened(config: Config, indexer: Indexer) -> Pruner:
    """A pruner, with a capturer of its own, over what the writer has open."""
    capturer = Capturer(
        indexer.map, indexer.vault, indexer.ledger, indexer, config.places.vault, config.capture.reserve_bytes
    )
    return Pruner(indexer.map, indexer.vault, indexer.ledger, indexer, capturer, config)
