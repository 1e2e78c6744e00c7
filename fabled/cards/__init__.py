"""Cards made by a model: what it is asked, how it is asked, and keeping what it answers.

`book` is the writer's part, and all of it that the daemon uses. Asking (`run`, `providers`) is a process of its own:
the daemon starts no process and opens no network. What a card is stands in `transcript.card`.
"""

from .book import METHODS, perform

__all__ = ["METHODS", "perform"]
