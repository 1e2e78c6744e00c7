"""Cuts text into words the same way for the index and for queries, where the index's own tokenizer does not suffice.

Stems, case and diacritics are left to that tokenizer (unicode61 with porter); looking words up, to `store`.

Chinese, Japanese and Korean write words without blanks, or with endings grown onto them: unicode61 sees one long token.
Runs of such letters are therefore written as overlapping pairs, so that a word of two letters is found wherever it
stands and a longer one as a phrase of its pairs.
"""

from __future__ import annotations

import re
import unicodedata

_LETTERS = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
)
"""Han, Hiragana, Katakana and Hangul, as far as unicode61 takes them for letters."""
WIDE = re.compile(f"[{_LETTERS}]+")
_NARROW = bytes(range(0xE3))
"""Bytes of letters below U+3000 and of the rest of any letter: what begins one that `WIDE` could find is not among
them, and they are looked through faster than a pattern can."""
WIDE_OR_NOT = re.compile(f"[{_LETTERS}]+|[^{_LETTERS}]+")


def normal(text: str) -> str:
    """The text in NFC: composed letters, so that both ways of writing one are the same."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def pairs(run: str) -> list[str]:
    """The overlapping pairs of a run of wide letters; a letter alone stays one."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def indexed(text: str) -> str:
    """A text as the full text takes it in."""
    if text.isascii():
        return text
    text = normal(text)
    if not text.encode("utf-8", "replace").translate(None, _NARROW):
        return text
    return WIDE.sub(lambda run: f" {' '.join(pairs(run[0]))} ", text)
