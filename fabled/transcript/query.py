"""Turns what a person typed into words, phrases and filters, and these into a full-text expression.

Running the expression, and looking for the literal spelling in texts, is left to `store.queries` and `retrieval`.

Everything is literal: the text never reaches FTS5 but as double-quoted runs of letters and digits, so no
spelling can be an operator, a column or an error. The one table of meanings is CONTRACT's query language.

A sentence is not a search expression: where somebody pastes running text, the quotation marks in it are the text's own
(the words that they enclose rank like all others), and a long run of Chinese or Japanese means its words, not itself
as a whole. Signs keep their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from .segment import WIDE, WIDE_OR_NOT, normal, pairs

MAX_TOKENS = 64
"""Distinct words looked at; what a pasted page says beyond them cannot change its best answers much."""
MAX_PARTS = 64
"""Neighbouring parts of one token or phrase that must follow each other; a longer one is cut to these."""
PROSE_WORDS, PROSE_STOP_WORDS = 10, 3
"""From so many words outside quotation marks on, so many of them stop words, a query is running text."""
LONGEST_WIDE = 7
"""Letters of a Chinese or Japanese run that are one word; a longer run is looked for by its pairs."""

# The index's own segmentation (unicode61): letters and digits, private use, and the combining marks that may
# continue a token. Wherever Python and SQLite know different Unicode versions the run is only cut finer by
# SQLite, inside the quotes, which is again a phrase of the same pieces.
_RUN = re.compile("(?:[^\\W_]|[\ue000-\uf8ff])(?:[^\\W_]|[\u0300-\u036f]|[\ue000-\uf8ff])*")
_WORDS = re.compile(r"(?:[^\W_]|\s)*")
_BLANKS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NAMES = "file|tool|role|project|since|until|session|term"
# A quoted stretch, perhaps signed or the value of a filter; else everything up to the next blank.
# A quote left open runs to the end.
_ITEM = re.compile(rf'([+-]?)(?:({_NAMES}):)?"([^"]*)(?:"|\Z)|(\S+)')
# `session::new` and `file://` are text: a value does not begin with what ends a name or a scheme.
_FILTER = re.compile(rf"({_NAMES}):((?![:/]{{2}}|:)\S+)")
_LOWER_UPPER = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_POSSESSIVE = re.compile(r"\W*([^\W\d_]{2,})['’]s\W*")
_KATAKANA = re.compile("[\u30a1-\u30ff]+")
_RELATIVE = re.compile(r"([0-9]{1,7})([smhdwy])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_LATEST = 2**52
"""Seconds; keeps every time, however absurd, within what SQLite stores in milliseconds."""

STOP_WORDS = frozenset(
    """
    a about above across after afterwards again against all almost alone along already also although always am
    among an and another any anyhow anyone anything anyway are around as at be became because been before
    behind being below beside besides between beyond both but by can cannot could did do does doing done down
    during each either else enough even ever every everyone everything few for from further had has have having he
    hence her here hers herself him himself his how however i if in indeed into is it its itself just least less
    many may me might mine more most much must my myself neither never nevertheless no nobody nor not nothing of
    off often on once one only onto or other others otherwise ought our ours ourselves out over own per perhaps
    quite rather same shall she should since so some somehow someone something still such than that the their theirs
    them themselves then there therefore these they this those though through thus to together too toward under
    until up upon us very was we well were what whatever when where whether which while who whom whose why will
    with within without would yet you your yours yourself
    """.split()
)
_CONTRACTED = frozenset(
    "ain aren couldn d didn doesn don hadn hasn haven isn ll m mustn needn re s shan shouldn t ve wasn weren won "
    "wouldn".split()
)


@dataclass(frozen=True, slots=True)
class Token:
    """One thing to look for: `parts` follow each other; `split` is the same with camelCase taken apart."""

    text: str
    parts: tuple[str, ...]
    split: tuple[str, ...] = ()

    @property
    def literal(self) -> str:
        """The spelling to prefer among phrase matches, or "" where letters and digits say it all."""
        text = self.text.strip().rstrip(".,;:!?")
        return "" if _WORDS.fullmatch(text.replace("'", "").replace("’", "")) else text.casefold()

    @property
    def stop(self) -> bool:
        """Is this a word that says nothing of the subject (`the`, `don't`)?"""
        if len(self.parts) == 1:
            return self.key[0] in STOP_WORDS
        if "'" not in self.text and "’" not in self.text:
            return False
        return all(part in STOP_WORDS or part in _CONTRACTED for part in self.key)

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two tokens the same. (FTS5 folds case by its own tables, so `parts` keep theirs.)"""
        return tuple(part.lower() for part in self.parts)


@dataclass(frozen=True, slots=True)
class Filters:
    """What restricts the answer before anything is ranked; several values of one name mean any of them."""

    file: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    term: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    def __bool__(self) -> bool:
        return self != _NO_FILTERS


_NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `words` rank with OR, `required` must occur (phrases too), `excluded` must not."""

    text: str
    words: tuple[Token, ...] = ()
    required: tuple[Token, ...] = ()
    excluded: tuple[Token, ...] = ()
    filters: Filters = _NO_FILTERS
    prose: bool = False
    """running text: its quotation marks are its own"""
    untimed: tuple[tuple[str, str], ...] = ()
    """(`since` or `until`, its value) where that is no time, and was taken for text"""

    @property
    def positive(self) -> tuple[Token, ...]:
        """All that a result is ranked, and its snippet marked, by."""
        return self.required + self.words

    @property
    def literals(self) -> tuple[str, ...]:
        """The literal spellings that rank first, case folded."""
        return tuple(dict.fromkeys(token.literal for token in self.positive if token.literal))


def segment(text: str) -> list[str]:
    """The runs of letters and digits of `text`, as the index cuts them."""
    runs: list[str] = _RUN.findall(normal(text))
    if text.isascii() or WIDE.search(text) is None:
        return runs
    found: list[str] = []
    for run in runs:
        for piece in WIDE_OR_NOT.findall(run):
            found += pairs(piece) if WIDE.match(piece) else _RUN.findall(piece)
    return found


def split_camel(word: str) -> list[str]:
    """`getUserName` as `get User Name`; a word without an inner capital stays one."""
    return _LOWER_UPPER.sub(" ", word).split(" ")


def _token(text: str, *, exact: bool = False) -> Token | None:
    """`text` as a token, or None where it has nothing that the index knows; `exact` leaves camelCase whole."""
    runs = segment(text)[:MAX_PARTS]
    if not runs:
        return None
    parts = tuple(runs)
    if exact or text.islower():
        return Token(text, parts)
    split = tuple(piece for run in runs for piece in split_camel(run))[:MAX_PARTS]
    return Token(text, parts, split if split != parts else ())


def _words(text: str) -> list[Token]:
    """What a stretch without blanks asks for: one token, or the pairs of a long run of wide letters."""
    if not text.isascii():
        run = WIDE.fullmatch(normal(text).strip("。、！？，．"))
        if run and len(run[0]) > LONGEST_WIDE and not _KATAKANA.fullmatch(run[0]):
            return [Token(pair, (pair,)) for pair in pairs(run[0])]
    owner = _POSSESSIVE.fullmatch(text)  # a question about Ana's keys is answered where Ana speaks of them
    token = _token(owner[1] if owner else text)
    return [] if token is None else [token]


class _Gathered:
    """The lists that `parse` fills: each thing to look for once, in the order typed, up to MAX_TOKENS."""

    def __init__(self) -> None:
        self.words: dict[tuple[str, ...], Token] = {}
        self.required: dict[tuple[str, ...], Token] = {}
        self.excluded: dict[tuple[str, ...], Token] = {}

    def add(self, where: dict[tuple[str, ...], Token], token: Token | None) -> None:
        """Puts `token` into one of the lists, unless it says nothing or there are enough."""
        if token is None or len(self.words) + len(self.required) + len(self.excluded) >= MAX_TOKENS:
            return
        where.setdefault(token.key, token)


def parse(text: str) -> Query:
    """What `text` asks for. Every text has a meaning; the meaning may be that there is nothing to find."""
    gathered = _Gathered()
    named: dict[str, list[str]] = {}
    untimed: list[tuple[str, str]] = []
    items = _ITEM.findall(_BLANKS.sub(" ", text))
    prose = _is_prose([bare for _, _, _, bare in items if bare])
    for sign, name, quoted, bare in items:
        if not bare:
            if name and not sign and _accept(name, quoted, named):
                continue
            if prose and not sign:
                for word in quoted.split():
                    for token in _words(word):
                        gathered.add(gathered.words, token)
                continue
            into = gathered.excluded if sign == "-" else gathered.required
            gathered.add(into, _token(f"{name}:{quoted}" if name else quoted, exact=True))
            continue
        found = _FILTER.fullmatch(bare)
        if found and _accept(found[1], found[2].strip('"'), named):
            continue
        if found and found[1] in ("since", "until"):
            untimed.append((found[1], found[2]))
        # A doubled sign is how options of programs are spelt, so `--verbose` is a word.
        if bare[0] == "+" and bare[1:2] not in ("+", ""):
            gathered.add(gathered.required, _token(bare[1:]))
        elif bare[0] == "-" and bare[1:2] not in ("-", ""):
            gathered.add(gathered.excluded, _token(bare[1:]))
        else:
            for token in _words(bare):
                gathered.add(gathered.words, token)
    words = list(gathered.words.values())
    required = tuple(gathered.required.values())
    excluded = tuple(gathered.excluded.values())
    if not words and not required:
        words, excluded = list(excluded), ()
    telling = [token for token in words if not token.stop]
    if telling or required:
        words = telling
    return Query(text, tuple(words), required, excluded, _filters(named), prose, tuple(untimed[:MAX_TOKENS]))


def _is_prose(bare: list[str]) -> bool:
    """Whether what stands outside quotation marks reads like a sentence rather than like words to look for."""
    return len(bare) >= PROSE_WORDS and sum(word.lower() in STOP_WORDS for word in bare) >= PROSE_STOP_WORDS


def _accept(name: str, value: str, named: dict[str, list[str]]) -> bool:
    """Notes a filter; False where the value makes it text again (empty, or no time)."""
    if not value.strip() or (name in ("since", "until") and moment(value, 0.0) is None):
        return False
    named.setdefault(name, []).append(value.strip())
    return True


def _filters(named: dict[str, list[str]]) -> Filters:
    values = {name: tuple(dict.fromkeys(found))[:MAX_TOKENS] for name, found in named.items()}
    return Filters(
        file=values.get("file", ()),
        tool=values.get("tool", ()),
        role=values.get("role", ()),
        project=values.get("project", ()),
        session=values.get("session", ()),
        term=values.get("term", ()),
        since=values["since"][-1] if "since" in values else None,
        until=values["until"][-1] if "until" in values else None,
    )


def moment(value: str, now: float, *, end: bool = False) -> float | None:
    """The time that `value` names, in seconds since 1970, or None if it names none.

    `90m`, `3h`, `2d`, `6w` count back from `now`; an ISO date or time without a zone is local. A date alone
    is its first instant, or with `end` its last, so that `until:2026-03-02` takes in that day.
    """
    value = value.strip()
    relative = _RELATIVE.fullmatch(value.lower())
    if relative:
        return now - int(relative[1]) * _UNITS[relative[2]]
    try:
        found = datetime.fromisoformat(value)
        if end and len(value) <= 10 and found.time() == datetime.min.time():
            found += timedelta(days=1, milliseconds=-1)
        seconds = found.timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return max(-float(_LATEST), min(float(_LATEST), seconds))


def _quoted(parts: Sequence[str]) -> str:
    """A phrase. A single wide letter, last in it, begins the pairs that it may stand in."""
    last = parts[-1]
    return '"' + " ".join(parts) + ('" *' if len(last) == 1 and WIDE.match(last) else '"')


def unit(token: Token) -> str:
    """The token as FTS5 reads it: its parts next to each other, or those of its camelCase reading."""
    if not token.split:
        return _quoted(token.parts)
    return f"({_quoted(token.parts)} OR {_quoted(token.split)})"


def near(one: Token, other: Token, distance: int) -> str:
    """An expression for two tokens at most so many words apart."""
    return f"NEAR({_quoted(one.parts)} {_quoted(other.parts)}, {distance})"


def match_expression(query: Query) -> str | None:
    """The FTS5 expression of `query`, or None where there is nothing to look for.

    Words beside required ones only rank. FTS5 knows no optional operand, so the first required one stands
    again among the words: that disjunction is then always true, and the words in it still count for BM25.
    """
    if not query.positive:
        return None
    any_of = [unit(token) for token in query.words]
    every = [unit(token) for token in query.required]
    if every and any_of:
        any_of.append(every[0])
    if any_of:
        every.append("(" + " OR ".join(any_of) + ")")
    expression = " AND ".join(every)
    if query.excluded:
        expression = f"({expression}) NOT ({' OR '.join(unit(token) for token in query.excluded)})"
    return expression


def any_expression(tokens: Iterable[Token]) -> str | None:
    """An expression that finds any of `tokens`."""
    return " OR ".join(unit(token) for token in tokens) or None


def phrases(tokens: Iterable[Token]) -> list[str]:
    """Each reading of `tokens` as plain words that follow each other: what a snippet is marked by."""
    return [" ".join(parts) for token in tokens for parts in (token.parts, token.split) if parts]


# Patterns for the names of files and tools


def glob(pattern: str) -> Callable[[str], bool]:
    """A test for `*`, `?` and `[…]` (which holds no star).

    Each stretch between stars is looked for once, so that no pattern costs more than its length times the text's;
    what `fnmatch` and SQLite's GLOB cost grows with every star.
    """
    stretches = [_CLASS.findall(part) for part in pattern[:MAX_PATTERN].split("*")]
    first, *middle = (re.compile("".join(map(_one_character, stretch)), re.DOTALL) for stretch in stretches)
    size = len(stretches[-1])
    if not middle:
        return lambda text: len(text) == size and first.match(text) is not None
    last = middle.pop()

    def fits(text: str) -> bool:
        found = first.match(text)
        for part in middle:
            found = found and part.search(text, found.end())
        return found is not None and len(text) - size >= found.end() and last.match(text, len(text) - size) is not None

    return fits


MAX_PATTERN = 4_096
_CLASS = re.compile(r"\[[!^]?\]?[^\]]*\]|.", re.DOTALL)


def _one_character(piece: str) -> str:
    """The regular expression of `?`, of a class or of a letter."""
    if len(piece) == 1:
        return "." if piece == "?" else re.escape(piece)
    none_of = "^" if piece[1] in "!^" else ""
    inside = re.sub(r"\w-\w|\W", lambda m: m[0] if len(m[0]) > 1 else "\\" + m[0], piece[1 + len(none_of) : -1])
    try:
        re.compile(f"[{none_of}{inside}]")
    except re.error:  # a range that runs backwards has no members
        return "." if none_of else r"[^\w\W]"
    return f"[{none_of}{inside}]"
