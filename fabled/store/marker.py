"""Finds words in a text as the index would, with the index's own tokenizer, without asking the index.

Which words are looked for is the caller's; showing them is left to `transcript.render`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import apsw

from ..transcript.segment import WIDE, WIDE_OR_NOT, pairs

TOKENIZER = "porter unicode61 remove_diacritics 2"
"""As `store.schema` has it for `fts`; a test holds the two equal."""


class Marker:
    """Finds words and phrases in a text as the index would: with its own tokenizer, stems and all."""

    def __init__(self) -> None:
        self._db = apsw.Connection(":memory:")
        name, *options = TOKENIZER.split()
        self._tokens = self._db.fts5_tokenizer(name, options)

    def close(self) -> None:
        self._db.close()

    def _stems(self, text: bytes, reason: int) -> list[tuple[int, int, str]]:
        """(start, end, stem) of the words of a text, runs of wide letters cut into pairs as in the index."""
        if text.isascii():
            return self._plain(text, reason)
        found: list[tuple[int, int, str]] = []
        at = 0
        for piece in WIDE_OR_NOT.findall(text.decode()):
            data = piece.encode()
            if WIDE.match(piece):
                sizes = [len(letter.encode()) for letter in piece]
                start = at
                for pair, size, following in zip(pairs(piece), sizes, [*sizes[1:], 0], strict=False):
                    found.append((start, start + size + following, pair))
                    start += size
            else:
                found += [(at + start, at + end, stem) for start, end, stem in self._plain(data, reason)]
            at += len(data)
        return found

    def _plain(self, text: bytes, reason: int) -> list[tuple[int, int, str]]:
        return cast("list[tuple[int, int, str]]", self._tokens(text, reason, None, include_colocated=False))

    def stem(self, word: str) -> str | None:
        """How the index writes the first word of a text."""
        found = self._stems(word.encode(), apsw.FTS5_TOKENIZE_QUERY)
        return found[0][2] if found else None

    def stems(self, text: str) -> set[str]:
        """How the index writes the words of a text."""
        return {stem for _, _, stem in self._stems(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT)}

    def spelt(self, text: str, stem: str) -> str | None:
        """The first word of `text` that has this stem, as it stands there."""
        data = text.encode()
        for start, end, found in self._stems(data, apsw.FTS5_TOKENIZE_DOCUMENT):
            if found == stem:
                return data[start:end].decode()
        return None

    def marks(self, text: str, phrases: Iterable[str]) -> list[tuple[int, int]]:
        """(start, end), in characters, of each place in `text` where one of `phrases` stands; none overlap."""
        data = text.encode()
        words = self._stems(data, apsw.FTS5_TOKENIZE_DOCUMENT)
        wanted: dict[str, list[list[str]]] = {}
        for phrase in phrases:
            stems = [stem for _, _, stem in self._stems(phrase.encode(), apsw.FTS5_TOKENIZE_QUERY)]
            if stems:
                wanted.setdefault(stems[0], []).append(stems)
        found: list[tuple[int, int]] = []
        for index in [index for index, word in enumerate(words) if word[2] in wanted]:
            start, _, stem = words[index]
            for stems in wanted[stem]:
                run = words[index : index + len(stems)]
                if len(stems) > 1 and [word for _, _, word in run] != stems:
                    continue
                if found and start < found[-1][1]:
                    found[-1] = (found[-1][0], max(run[-1][1], found[-1][1]))
                else:
                    found.append((start, run[-1][1]))
        return found if len(data) == len(text) else _in_characters(data, found)


def _in_characters(data: bytes, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Byte offsets, ascending, as offsets in characters."""
    found = []
    at = count = 0
    for start, end in spans:
        count += len(data[at:start].decode())
        first = count
        count += len(data[start:end].decode())
        found.append((first, count))
        at = end
    return found
