"""Writes generations as they may lie in a Vault: zstd frames with a seek table, without one, or a single frame."""

from __future__ import annotations

import struct

try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from backports import zstd

FRAME = 4_096


def frames(data: bytes, size: int = FRAME) -> list[tuple[bytes, int]]:
    """(packed frame, its plain length), cut without regard to lines."""
    return [(zstd.compress(data[at : at + size]), len(data[at : at + size])) for at in range(0, len(data), size)]


def seekable(data: bytes, size: int = FRAME, checksums: bool = False) -> bytes:
    """The seekable format: frames, then a table of them in a skippable frame that old readers pass over."""
    parts = frames(data, size)
    rows = b"".join(
        struct.pack("<II", len(packed), plain) + (b"\x01\x02\x03\x04" if checksums else b"") for packed, plain in parts
    )
    table = rows + struct.pack("<IBI", len(parts), 0x80 if checksums else 0, 0x8F92EAB1)
    return b"".join(packed for packed, _ in parts) + struct.pack("<II", 0x184D2A5E, len(table)) + table


def several(data: bytes, size: int = FRAME) -> bytes:
    """Frames one behind the other, with nothing to find them by; a skippable frame of other content between."""
    note = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    return note.join(packed for packed, _ in frames(data, size))


def single(data: bytes) -> bytes:
    """What `zstd FILE` makes."""
    return bytes(zstd.compress(data))
