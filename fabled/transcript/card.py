"""A thread's card: what it was about, in a few lines. Made by rule from what was said; checked where a model made it.

Reading the records is left to `retrieval`, asking a model to `cards`. A card's text is data, whoever wrote it: on one
line, of bounded length, without control or invisible characters, frame tags or credentials (`render.tame`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .render import boundary, flat, tame
from .text import strip_recalled

TYPES = ("decision", "workflow", "insight", "concept")
TITLE, LINE, SUMMARY, TOPIC, PATH = 100, 240, 700, 60, 200
"""Characters of a title, of a decision or an outcome, of a summary, a topic, a file's path."""
TOPICS, DECISIONS, FILES = 8, 6, 12
_HOSTILE_FACTOR = 8
"""A text so many times longer than its limit was not meant as what it is given for."""


class BadCard(ValueError):
    """What was given is no card, in words."""


@dataclass(frozen=True, slots=True)
class Card:
    """`type`: decision, workflow, insight or concept. `source`: extracted, or the provider's name."""

    title: str
    type: str
    topics: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    outcome: str = ""
    summary: str = ""
    source: str = "extracted"
    model: str | None = None

    def value(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: list(given) if isinstance(given, tuple) else given for name, given in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Material:
    """What a card is made of: a thread's main turns as texts, and what its tools did.

    `last`: what the thread ends with, `prompt`, `reply`, `work` or `interrupted`.
    """

    prompts: Sequence[str]
    replies: Sequence[str]
    edited: Sequence[str] = ()
    read: Sequence[str] = ()
    commands: Sequence[str] = ()
    topics: Sequence[str] = ()
    tools: int = 0
    last: str = "reply"
    last_tool: str | None = None
    names: Sequence[str] = field(default=())
    """titles the session was given, the best first"""
    title: str = ""
    """what the thread is called in lists; a card says more only where that tells nothing"""


# Checking

_FRAME = re.compile(
    r"<\s*/?\s*(?:historical_context|consulted_arcs|system-reminder|command-|local-command-|task-notification|"
    r"user-prompt-submit-hook|function_calls|antml:)|\bhistorical_context\s*[\"'>]",
    re.IGNORECASE,
)
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def checked(given: Mapping[str, Any], source: str, model: str | None) -> Card:
    """The card that a model's answer holds. Raises BadCard where it is malformed, or tries to be more than a card."""
    kind = given.get("type")
    if kind not in TYPES:
        raise BadCard(f"type is none of {', '.join(TYPES)}")
    title = _checked(given, "title", TITLE)
    if not title:
        raise BadCard("it has no title")
    card = Card(
        title,
        kind,
        _list(given, "topics", TOPIC, TOPICS),
        _list(given, "decisions", LINE, DECISIONS),
        _list(given, "files", PATH, FILES),
        _checked(given, "outcome", LINE),
        _checked(given, "summary", SUMMARY),
        source,
        safe(model, TOPIC) if model else None,
    )
    if not card.summary:
        raise BadCard("it has no summary")
    return card


def _checked(given: Mapping[str, Any], name: str, limit: int) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadCard(f"{name} is no text")
    if len(value) > _HOSTILE_FACTOR * limit:
        raise BadCard(f"{name} has {len(value):,} characters, where {limit} are meant")
    if _FRAME.search(value):
        raise BadCard(f"{name} holds a tag that frames what is said to a model")
    if _UNSEEN.search(value):
        raise BadCard(f"{name} holds control, direction or tag characters")
    return safe(value, limit)


def _list(given: Mapping[str, Any], name: str, limit: int, most: int) -> tuple[str, ...]:
    value = given.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadCard(f"{name} is no list")
    if len(value) > _HOSTILE_FACTOR * most:
        raise BadCard(f"{name} has {len(value):,} entries, where {most} are meant")
    texts = (_checked({name: one}, name, limit) for one in value[:most])
    return tuple(dict.fromkeys(text for text in texts if text))


def safe(text: str, limit: int) -> str:
    """A text as a card may hold it: one line, of at most `limit` characters, cut between words."""
    text = flat(tame(text))
    if len(text) <= limit:
        return text
    cut = boundary(text, limit - 1)
    blank = text.rfind(" ", limit * 2 // 3, cut)
    return text[: blank if blank > 0 else cut].rstrip(" ,;:–-") + "…"


# By rule

_GONE = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|command-message|command-contents|local-command-[a-z]+|"
    r"task-notification|bash-std[a-z]+)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_NAMED = re.compile(r"<command-name>\s*([^<]{1,80}?)\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_TAG = re.compile(r"</?[a-z][\w-]*(?:\s[^<>]{0,300})?/?>")
_FENCE = re.compile(r"^\s*(```|~~~).*?(?:^\s*\1[^\S\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"\[(?:Image|Pasted text|image)[^\]]{0,200}\]")
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+|\d{1,3}[.)]\s+|\|)+")
_EMPHASIS = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`")
_LINK = re.compile(r"\[([^\]\n]{1,200})\]\([^)\s]{1,500}\)")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]{0,2}\s+|(?<=[。！？])|\n+")
_CONTINUED = re.compile(
    r"this session is being continued from a previous conversation|Caveat: The messages below", re.I
)
_PLAN = re.compile(r"^(?:implement|execute|carry out) the following plan\b[^\S\n]*:?", re.I)
_HEADING = re.compile(r"^\s*#{1,4}\s+(.+)$", re.MULTILINE)
_EMPTY = re.compile(
    r"(?:hi|hello|hey|ok(?:ay)?|yes|yep|yeah|no|nope|sure|great|good|nice|perfect|cool|thanks?(?: you)?|please|right|"
    r"continue|go on|go ahead|proceed|do it|try again|next|keep going|resume|stop|done|why|what|how|and|lgtm|"
    r"sounds good|looks good|y|n|[123])\b",
    re.I,
)
_POLITE = re.compile(
    r"\A(?:(?:ok(?:ay)?|now|so|well|great|thanks?|alright|hi|hello|hey|and|then|also|next)\b[\s,.!:-]*)*"
    r"(?:(?:please|kindly)\s+|(?:can|could|would|will) (?:you|we|u)(?: please)?\s+(?=[a-z])|"
    r"(?:i|we)(?:'d| would) (?:like|love|want) (?:you )?to\s+|i (?:want|need) (?:you )?to\s+|"
    r"(?:let's|lets|let us)\s+|help me(?: to)?\s+)*",
    re.I,
)
_STRONG = re.compile(
    r"\b(?:decided?\b|decision\b|(?:we|i)(?:'ll| will| should| shall)? go(?:ing)? with\b|"
    r"(?:let's|lets) (?:use|go with|keep|drop|stick|not)\b|went with\b|chose\b|chosen\b|opted\b|settled on\b|agreed\b|"
    r"we(?:'re| are) (?:keeping|dropping|using)\b|entschieden|décidé|decidi\w+)|決定|採用|决定|采用",
    re.I,
)
_WEAK = re.compile(
    r"\b(?:instead of|rather than|trade-?off|so that we don't|to avoid|not worth|deliberately|on purpose)\b", re.I
)
_DOUBT = re.compile(r"\b(?:if|whether|should (?:we|i)|could|might|may|would you|let me|do you|want me)\b|\?$", re.I)
_QUESTION = re.compile(
    r"^(?:why|how|what|where|when|which|who|is|are|does|do|did|can|could|should|explain|tell me)\b|\?\s*$|[？]|"
    r"\b(?:explain|understand|what is|how does|why does|why is|why did)\b",
    re.I,
)
_FILLER = re.compile(
    r"^(?:let me|now(?: let me| i)?\b|i'll|i will|i'm going to|perfect|great|good|excellent|okay|ok|sure|you're right|"
    r"absolutely|here(?:'s| is| are)|looking at)\b",
    re.I,
)
_HOUSEKEEPING = frozenset(("/clear", "/compact", "/context", "/cost", "/exit", "/model", "/resume", "/status"))
_LONGEST_READ = 20_000


def plain(text: str) -> str:
    """What a person or a model said, without what the client put around it, code, and marks of formatting."""
    text = text[:_LONGEST_READ]
    if "historical_context" in text.lower():
        text = strip_recalled(text)[0]
    if "<command-name>" in text:
        named, given = _NAMED.search(text), _ARGUMENTS.search(text)
        if named is not None:
            return f"{named[1]} {given[1] if given else ''}".strip()
    text = _FENCE.sub("\n", _TAG.sub(" ", _GONE.sub(" ", text)) if "<" in text else text)
    text = _LINK.sub(r"\1", _IMAGE.sub(" ", text))
    lines = (_MARKS.sub("", line).strip() for line in text.splitlines())
    return "\n".join(_EMPHASIS.sub("", line) for line in lines if line and set(line) - set("-=|_* :"))


def sentences(text: str) -> list[str]:
    """The sentences of a plain text."""
    return [one for piece in _SENTENCE.split(text) if (one := " ".join(piece.split()))]


def trivial(text: str) -> bool:
    """Whether a prompt says nothing of what it is about (`continue`, `yes please`)."""
    words = text.split()
    return not words or (len(words) <= 4 and _EMPTY.match(text.strip()) is not None)


def headline(text: str) -> str:
    """A prompt as a title, without politeness and framing; empty where it tells nothing."""
    if _CONTINUED.search(text[:400]):
        return ""
    found = _PLAN.match(text.lstrip())
    heading = _HEADING.search(text) if found else None
    if found and heading is None:
        rest = text.lstrip()[found.end() :].lstrip(" :\n#")
        heading = re.match(r"(.{4,160}?)(?:\s+#{1,4}\s|\n|$)", rest)
    if heading is not None:
        return safe(re.sub(r"^plan\s*[:–-]\s*", "", plain(heading[1]), flags=re.I), TITLE)
    for sentence in sentences(plain(text)):
        bare = _POLITE.sub("", sentence, count=1).strip().rstrip(" :,;") or sentence
        if trivial(bare) or (len(bare) < 4 and bare.isascii()):
            continue
        return safe(bare[:1].upper() + bare[1:] if not bare[:1].isupper() and bare[:1].isalpha() else bare, TITLE)
    return ""


def extract(of: Material) -> Card:
    """The card that a thread's own words make; the same for the same material."""
    prompts = [text for text in of.prompts if text.strip()]
    replies = [plain(text) for text in of.replies]
    outcome = _outcome(of, replies)
    titles = [found for text in prompts[:3] if (found := headline(text))]
    title = next((found for found in titles if found not in _HOUSEKEEPING), "")
    if not (trivial(of.title) or of.title in _HOUSEKEEPING or _CONTINUED.search(of.title)):
        title = of.title
    if not title:
        asked = titles[0] if titles else safe(plain(prompts[0]), 40) if prompts else ""
        told = _telling(replies[0]) if replies else ""
        about = told or ", ".join(of.topics[:4]) or (of.names[0] if of.names else "")
        title = safe(f"{asked}: {about}" if asked and about else asked or about, TITLE) or "Untitled"
    decisions = _decisions([plain(text) for text in prompts], replies)
    files = tuple(dict.fromkeys(safe(path, PATH) for path in (*of.edited, *of.read)))[:FILES]
    return Card(
        title,
        _type(of, prompts, decisions),
        tuple(safe(topic, TOPIC) for topic in of.topics[:TOPICS]),
        tuple(text for text, _ in decisions),
        files,
        outcome,
        _summary(of, prompts, outcome),
    )


def _outcome(of: Material, replies: Sequence[str]) -> str:
    """How the thread ends."""
    if of.last == "interrupted":
        return "Interrupted."
    if of.last == "prompt":
        return "No answer was written."
    if of.last == "work":
        return f"Ended in the middle of work{f' ({safe(of.last_tool, 40)})' if of.last_tool else ''}."
    if not replies:
        return ""
    said = sentences(replies[-1])
    if not said:
        return ""
    if said[-1].endswith(("?", "？")):
        return safe(f"Asks: {said[-1]}", LINE)
    return safe(_telling(replies[-1]) or said[-1], LINE)


def _telling(text: str) -> str:
    """The first sentence of a reply that says something."""
    said = sentences(text)
    whole = [one for one in said if "|" not in one and not one.endswith((":", "："))]
    return next((one for one in whole if len(one.split()) >= 4 and not _FILLER.match(one)), (whole or said or [""])[0])


def _decisions(prompts: Iterable[str], replies: Iterable[str]) -> list[tuple[str, bool]]:
    """(sentence, whether it says so in words) of what was decided; the clear ones first, each in its order."""
    strong: dict[str, bool] = {}
    weak: dict[str, bool] = {}
    for mine, text in [*((True, text) for text in prompts), *((False, text) for text in replies)]:
        for sentence in sentences(text):
            if (
                not 12 <= len(sentence) <= LINE + 60
                or _DOUBT.search(sentence)
                or (not mine and _FILLER.match(sentence))
            ):
                continue
            if _STRONG.search(sentence):
                strong.setdefault(safe(sentence, LINE), True)
            elif not mine and _WEAK.search(sentence):
                weak.setdefault(safe(sentence, LINE), False)
    found = [*strong.items(), *((text, clear) for text, clear in weak.items() if text not in strong)]
    return found[:DECISIONS]


def _type(of: Material, prompts: Sequence[str], decisions: Sequence[tuple[str, bool]]) -> str:
    question = bool(prompts) and _QUESTION.search(plain(prompts[0])[:400]) is not None
    if of.edited or len(of.commands) > 3:
        return "workflow"
    if any(clear for _, clear in decisions):
        return "decision"
    if question:
        return "insight" if of.tools else "concept"
    return "workflow" if of.tools else "concept"


def _summary(of: Material, prompts: Sequence[str], outcome: str) -> str:
    """What was asked, what was done, how it ended."""
    parts = []
    first = next((text for text in prompts if not trivial(plain(text))), prompts[0] if prompts else "")
    if first and not _CONTINUED.search(first[:400]):
        parts.append(safe(" ".join(sentences(plain(first))[:2]), 280))
    if of.edited:
        names = [safe(path.rpartition("/")[2], 60) for path in of.edited]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"Edited {', '.join(names[:3])}{more}.")
    if of.commands:
        parts.append(f"Ran {', '.join(safe(command, 40) for command in of.commands[:4])}.")
    if outcome and outcome not in parts:
        parts.append(outcome)
    return safe(" ".join(part if part[-1:] in ".!?…。！？" else part + "." for part in parts if part), SUMMARY)
