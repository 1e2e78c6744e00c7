"""What stands in the place of a block that only the Vault still holds in full: the marker and the text around it.

Whether a block may be replaced is left to `rules`, where the block itself lies to `store`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256

Vaulted = Callable[[str, str, int, str], bool]
"""`vaulted(uuid, path, bytes, sha12)`: whether the Vault holds that block, so that its marker is ours."""

MARKER = re.compile(r"\[fabled block (\S{1,200})#([A-Za-z0-9_.]{1,200}) (\d{1,15})B sha256:([0-9a-f]{12})\]")
"""A marker, or a quotation of one: uuid, path, bytes, digest. Only the Vault tells them apart."""

_TAG = re.compile(r"<historical_context\s[^<>]{0,100000}>|</\s*historical_context\s*>", re.IGNORECASE)
_ARCS = re.compile(r"""\barcs\s*=\s*(\\{0,6})(["'])([^"'\\<>]{0,20000})\\{0,6}\2""", re.IGNORECASE)


def dotted(path: tuple[str | int, ...]) -> str:
    """A path as a marker spells it."""
    return ".".join(map(str, path))


def marker(uuid: str, path: tuple[str | int, ...], block: bytes) -> str:
    """Names a block by its record, its path there, and the length and digest of its bytes in the line."""
    return f"[fabled block {uuid}#{dotted(path)} {len(block)}B sha256:{sha256(block).hexdigest()[:12]}]"


def own_marker(text: str, uuid: str, path: tuple[str | int, ...], vaulted: Vaulted) -> re.Match[str] | None:
    """The marker that an earlier prune left in this very text; a quoted one names another place or no block at all."""
    if "[fabled block " not in text:
        return None
    place = dotted(path)
    for found in MARKER.finditer(text):
        if found[1] == uuid and found[2] == place and vaulted(uuid, place, int(found[3]), found[4]):
            return found
    return None


def shortened(text: str, limit: int, mark: str) -> str:
    """The first and the last quarter of the limit, cut at a line's edge where one is near, the marker between."""
    at = text.find(mark)
    head, tail = (text[:at], text[at + len(mark) :]) if at >= 0 else (text, text)
    return f"{_head(head, limit // 4)}\n{mark}\n{_tail(tail, limit // 4)}"


def _head(text: str, size: int) -> str:
    if len(text) <= size:
        return text.removesuffix("\n")
    edge = text.rfind("\n", size // 2, size + 1)
    return text[: edge if edge >= 0 else size]


def _tail(text: str, size: int) -> str:
    if len(text) <= size:
        return text.removeprefix("\n")
    edge = text.find("\n", len(text) - size - 1, len(text) - size // 2)
    return text[edge + 1 if edge >= 0 else len(text) - size :]


def consulted(text: str) -> str:
    """The text with each complete recalled span replaced by a reference to what it cites.

    Only a balanced span whose opening tag names arcs: one without end, or talk about the tag, stays as it is. The
    quotes are those of the tag, since a recall may stand escaped inside other JSON.
    """
    kept: list[str] = []
    at = start = depth = 0
    for tag in _TAG.finditer(text):
        if tag[0][1] != "/":
            if depth == 0:
                start = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                cited = list(_ARCS.finditer(text, start, tag.end()))
                if not cited or ">" in text[start : cited[0].start()]:
                    continue
                quote = cited[0][1] + cited[0][2]
                refs = dict.fromkeys(ref for one in cited for ref in re.split(r"[,\s]+", one[3]) if ref)
                kept += (text[at:start], f"<consulted_arcs refs={quote}{','.join(refs)}{quote}/>")
                at = tag.end()
    return "".join((*kept, text[at:])) if kept else text
