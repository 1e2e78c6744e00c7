"""Derives a conversation's discovery terms: what was done, to what, what it is about, and what it links to.

Which records belong to the conversation, and storing what comes out, is left to others. The same records give the same
terms, in whatever order they come: nothing here knows of other conversations. How telling a word is among all of them
is worked out when it is asked for (`weight`), from how many hold it.

An *operative* is a command that was run (`git rebase`, `pytest`, `/review`) or a tool beyond the client's own; a
*target* a file that a tool named, or an identifier or file that was written about; a *concept* a word that occurs
often; a *wikilink* what stands in `[[…]]`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .mask import mask
from .text import CALL, COMMAND, PROMPT, QUEUED, REPLY, SUMMARY, strip_recalled
from .words import COMMON

OPERATIVE, TARGET, CONCEPT, WIKILINK = 1, 2, 3, 4
KINDS = {"operative": OPERATIVE, "target": TARGET, "concept": CONCEPT, "wikilink": WIKILINK}
NAMES = {number: name for name, number in KINDS.items()}
MOST = {OPERATIVE: 24, TARGET: 40, CONCEPT: 40, WIKILINK: 24}
"""Terms kept of one conversation, by kind."""
LONGEST = 120
"""Characters of a term."""
READ_KINDS = (PROMPT, REPLY, CALL, QUEUED, SUMMARY, COMMAND)
"""The records that terms are taken from: neither what tools put out nor thoughts."""
ASKED = 3
"""What a person wrote counts so many times in choosing terms."""
NAMED = 3
"""So does a file that a tool was given."""
_COMMAND_CHARS = 4_000
_TEXT_CHARS = 65_536
_MOST_KNOWN = 20_000

_REMINDER = re.compile(r"<(system-reminder|ide_opened_file|ide_selection)>.*?</\1>", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.DOTALL | re.MULTILINE)
_SLASH = re.compile(r"<command-name>\s*(/?[\w:.-]{1,60})")
_TAGS = re.compile(r"</?[a-z][\w-]*[^<>]{0,200}>")
_LINKED = re.compile(r"\[\[(?![\s\"'$!-])([^\[\]\n|#]{1,80})(?:[|#][^\[\]\n]{0,80})?\]\]")
_TOKEN = re.compile(r"[^\W\d_](?:[\w.:/'’-]*\w)?|_\w+|[./~][\w./-]*/[\w./-]*\w")
_IDEOGRAPHS = re.compile("[\u4e00-\u9fff]{2,8}|[\u30a1-\u30fa\u30fc]{3,}|[\uac00-\ud7a3]{2,}")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_TICKET = re.compile(r"[A-Z][A-Z0-9]{1,9}-\d{1,7}")
_NAME_PART = re.compile(r"[^\W\d]\w*")
_LINE_NUMBER = re.compile(r":\d[\d:,-]*$")
_FILE = re.compile(r"(?:[\w@.~-]*/)*[\w@.-]*\.[A-Za-z][A-Za-z0-9]{0,7}")
_SUFFIXES = frozenset(
    """
    py pyi js jsx ts tsx mjs cjs rs go java kt kts scala rb php c h cc cpp cxx hpp cs fs swift m mm sh bash zsh fish ps1
    sql md rst txt adoc json jsonl yaml yml toml ini cfg conf env lock xml html htm css scss sass less vue svelte proto
    graphql tf hcl gradle csv tsv ipynb lua pl pm r jl ex exs erl hs clj ml dart zig nim s asm mk cmake log service db
    """.split()
)
_RANDOM = re.compile(r"(?=.*\d)[0-9a-fA-F]{7,}|[\w-]*\d[\w-]*\d[\w-]*\d[\w-]*\d[\w-]*")
_WORD = re.compile(r"[^\W\d_]+")
_HARMLESS = re.compile(r"[^\W\d]+(?:[-. ][^\W\d]+)*")

_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
_PROGRAM = re.compile(r"[A-Za-z][\w.+-]{0,40}")
_PREFIXES = frozenset(("sudo", "time", "nohup", "env", "exec", "command", "xargs", "nice", "timeout", "stdbuf"))
_DULL = frozenset(
    """
    cd echo ls cat head tail true false for do done if then else fi while until case esac export set unset source sleep
    printf test wc pwd exit return read local function in which type sed awk grep rg find sort uniq cut tr tee touch
    mkdir rm cp mv chmod chown xargs date kill break continue shift eval trap wait jobs let alias
    """.split()
)
_WITH_VERB = frozenset(
    """
    git gh npm npx pnpm yarn bun cargo rustup go docker podman kubectl helm terraform pip pip3 uv poetry conda make
    gmake just brew apt apt-get dnf systemctl journalctl aws gcloud az rails bundle mix dotnet gradle mvn composer php
    flutter deno node tmux claude ansible alembic django-admin heroku fly vercel supabase
    """.split()
)
_PYTHONS = re.compile(r"python(?:3(?:\.\d+)?)?")
_OWN_TOOLS = frozenset(
    """
    Bash BashOutput KillShell KillBash Read Write Edit MultiEdit NotebookEdit NotebookRead Glob Grep LS TodoWrite
    TodoRead Task Agent WebFetch WebSearch ExitPlanMode EnterPlanMode AskUserQuestion Skill SlashCommand TaskOutput
    TaskCreate TaskUpdate TaskList TaskGet TaskStop ToolSearch ListMcpResourcesTool ReadMcpResourceTool
    """.split()
)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a conversation, and how often it occurs there."""

    kind: int
    text: str
    count: int


def weight(count: int, holding: int, threads: int) -> float:
    """TF-IDF: how telling a term is that occurs `count` times in a conversation, and in `holding` of `threads`."""
    return (1.0 + math.log(max(1, count))) * math.log(1.0 + max(1, threads) / max(1, holding))


Known = dict[str, tuple[tuple[int, str], ...]]
"""What each token is, for those who look through many conversations: tokens repeat."""


class Tally:
    """What the records of one conversation hold. `asked`: how much of each token a person wrote."""

    def __init__(self, known: Known | None = None) -> None:
        self._known: Known = {} if known is None else known
        self._said: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._wide: Counter[str] = Counter()
        self._links: Counter[str] = Counter()
        self._operatives: Counter[str] = Counter()
        self._files: Counter[str] = Counter()

    def add(self, obj: Any, kind: int) -> None:
        """Counts one parsed record of a kind as the Map knows it."""
        if type(obj) is not dict:
            return
        message = obj.get("message")
        content: Any = message.get("content") if type(message) is dict else message
        if content is None:
            attached = obj.get("attachment")
            content = attached.get("prompt") if type(attached) is dict else obj.get("content")
        cwd = obj.get("cwd")
        asked = kind in (PROMPT, QUEUED) and obj.get("isSidechain") is not True
        for block in content if type(content) is list else [content]:
            if type(block) is str:
                self._text(block, asked)
            elif type(block) is dict and block.get("type") == "tool_use":
                self._call(block.get("name"), block.get("input"), cwd if type(cwd) is str else "")
            elif type(block) is dict and type(block.get("text")) is str and block.get("type") != "tool_result":
                self._text(block["text"], asked)

    def _text(self, text: str, asked: bool) -> None:
        text = mask(text[:_TEXT_CHARS])  # as a whole: once its words are apart, nothing tells a credential
        if "<" in text:
            if "historical_context" in text.lower():
                text = strip_recalled(text)[0]
            self._operatives.update(name.lower() for name in _SLASH.findall(text))
            text = _TAGS.sub(" ", _REMINDER.sub(" ", text))
        if "```" in text or "~~~" in text:
            text = _FENCE.sub(" ", text)
        if "[[" in text:
            self._links.update(" ".join(found.split()) for found in _LINKED.findall(text))
        tokens = _TOKEN.findall(text)
        self._said.update(tokens)
        if asked:
            self._asked.update(tokens)
        if not text.isascii() and _WIDE.search(text):
            self._wide.update(_IDEOGRAPHS.findall(text))

    def _call(self, name: Any, arguments: Any, cwd: str) -> None:
        if type(name) is str and name and name not in _OWN_TOOLS:
            self._operatives[name] += 1
        if type(arguments) is not dict:
            return
        for key in ("file_path", "notebook_path"):
            path = arguments.get(key)
            if type(path) is str and path:
                self._files[relative(path, cwd)] += 1
        command = arguments.get("command")
        if type(command) is str and name in ("Bash", "PowerShell", "Shell"):
            self._operatives.update(commands(mask(command)))
        for key in ("skill", "subagent_type"):
            if type(arguments.get(key)) is str:
                self._operatives[f"{key.partition('_')[0]}:{arguments[key]}"] += 1

    def _classified(self, token: str) -> tuple[tuple[int, str], ...]:
        known = self._known
        found = known.get(token)
        if found is None:
            if len(known) > _MOST_KNOWN:
                known.clear()
            found = known[token] = tuple(_classify(token))
        return found

    def terms(self) -> list[Term]:
        """The terms, by kind and then by the text."""
        weights: dict[int, Counter[str]] = {kind: Counter() for kind in NAMES}
        counts: dict[int, Counter[str]] = {kind: Counter() for kind in NAMES}
        for token, count in self._said.items():
            more = (ASKED - 1) * self._asked.get(token, 0)
            for kind, term in self._classified(token):
                counts[kind][term] += count
                weights[kind][term] += count + more
        for source, kind, factor in (
            (self._operatives, OPERATIVE, 1), (self._files, TARGET, NAMED), (self._wide, CONCEPT, 1),
            (self._links, WIKILINK, 1),
        ):  # fmt: skip
            for term, count in source.items():
                counts[kind][term] += count
                weights[kind][term] += factor * count
        _join_plurals(counts[CONCEPT], weights[CONCEPT])
        found: list[Term] = []
        for kind, most in MOST.items():
            ranked = sorted(weights[kind].items(), key=lambda item: (-item[1], item[0]))
            kept = [term for term, _ in ranked[: 2 * most] if _fit(term)][:most]
            found += (Term(kind, term, counts[kind][term]) for term in sorted(kept))
        return found


def derived(records: Iterable[tuple[Any, int]]) -> list[Term]:
    """The terms of a conversation's records, given as (parsed, kind)."""
    tally = Tally()
    for obj, kind in records:
        tally.add(obj, kind)
    return tally.terms()


def relative(path: str, cwd: str) -> str:
    """A path as people of its project call it."""
    path, cwd = path.replace("\\", "/"), cwd.replace("\\", "/").rstrip("/")
    return path[len(cwd) + 1 :] if cwd and path.startswith(cwd + "/") else path


def commands(text: str) -> list[str]:
    """The programs a shell command runs, with their verb where they have one; neither builtins nor mere plumbing."""
    found = []
    for part in _SEPARATOR.split(_QUOTED.sub(" '' ", text[:_COMMAND_CHARS].partition("<<")[0])):
        words = part.replace("(", " ").replace("$", " ").split()
        while words and (words[0] in _PREFIXES or _ASSIGNMENT.fullmatch(words[0])):
            words = words[1:]
        if not words:
            continue
        program = words[0].strip("\"'").rpartition("/")[2]
        if program in _DULL or not _PROGRAM.fullmatch(program):
            continue
        if _PYTHONS.fullmatch(program):
            module = words[2] if len(words) > 2 and words[1] == "-m" else ""
            program = module if _PROGRAM.fullmatch(module) else "python"
            words = words[2:]
        verb = next((word for word in words[1:6] if word[:1] != "-"), "")
        if program in _WITH_VERB and re.fullmatch(r"[a-z][\w:.-]{0,30}", verb):
            program = f"{program} {verb}"
        found.append(program)
    return found


def _classify(token: str) -> list[tuple[int, str]]:
    if len(token) > LONGEST or (not token.isascii() and _WIDE.search(token)):
        return []
    if _RANDOM.fullmatch(token):
        return []
    bare = _LINE_NUMBER.sub("", token) if ":" in token else token
    if "." in bare and _FILE.fullmatch(bare) and bare.rpartition(".")[2].lower() in _SUFFIXES:
        return [(TARGET, bare.removeprefix("./"))]
    if "//" in bare or bare.startswith(("http:", "https:", "www.")):
        return []
    if bare.count("/") > 1 and bare[0] in "/~.":
        return [(TARGET, bare)] if not _RANDOM.fullmatch(bare.rpartition("/")[2]) else []
    if _TICKET.fullmatch(bare):
        return [(TARGET, bare)]
    if _is_name(bare):
        return [(TARGET, bare)]
    if "-" in bare and all(len(part) > 1 and part.isalpha() for part in bare.split("-")):
        word = bare.lower()
        return [(CONCEPT, word)] if not set(word.split("-")) <= COMMON else []
    found = []
    for word in _WORD.findall(bare.replace("'s", "").replace("’s", "")):
        word = word.lower()
        if 3 <= len(word) <= 40 and word not in COMMON:
            found.append((CONCEPT, word))
    return found


def _is_name(token: str) -> bool:
    """Is it spelt as names in programs are: snake_case, camelCase, parts joined by dots or colons?"""
    parts = re.split(r"\.|::", token)
    if not all(_NAME_PART.fullmatch(part) for part in parts):
        return False
    if len(parts) > 1:
        return any("_" in part or _CAMEL.search(part) for part in parts) or "::" in token
    inner = token.strip("_")
    return "_" in inner or (token[0] == "_" and len(inner) > 2) or _CAMEL.search(token) is not None


def _join_plurals(counts: Counter[str], weights: Counter[str]) -> None:
    """Counts a plural with its singular where both occur."""
    for word in [word for word in counts if word[-1:] == "s" and word[:-1] in counts]:
        one = word[:-1]
        counts[one] += counts.pop(word)
        weights[one] += weights.pop(word)


def _fit(term: str) -> bool:
    """Whether a term may be shown: printable, of some length, and no credential, which is long or has digits."""
    if not 1 < len(term) <= LONGEST or not term.isprintable():
        return False
    return (len(term) < 24 and _HARMLESS.fullmatch(term) is not None) or mask(term) == term
