"""fabled: a lossless, searchable memory of Claude Code sessions."""

__version__ = "0.1.0"
