"""Keeps the bytes of live sessions in the Vault: what of a session is to be kept, what is kept already, what may go.

Writing a generation is left to `store.generations`; when a session is captured, to the daemon and the command line.
"""

from .start import Adopted, adopt
from .units import Unit
from .verb import Capturer

__all__ = ["Adopted", "Capturer", "Unit", "adopt"]
