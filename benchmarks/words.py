"""Invented text that behaves like the text of transcripts: prose, code, logs, and the names that run through them.

What records are made of it is left to `corpus`.

What matters for an index is kept close to the real thing: few words make up most of a text (Zipf's law), each
project has names of its own in camelCase, snake_case and paths, the same file is read again and again, and a steady
trickle of numbers and hexadecimal ids occurs once and never again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from random import Random

COMMON = (
    "the to of and a in is it that for on with as this be are not we i you can if so do or by from but at will have "
    "was when there which all what then they just an also should now would need use after no up into out only more "
    "one about some any like make my does before other same first because how let here where than still its our why"
).split()

TRADE = (
    "file error test function line code value class data path return type name key call string module list config "
    "user server request response table column query index cache thread process queue worker socket client token "
    "field object method import version branch commit merge build deploy docker schema migration database session "
    "event handler callback timeout retry lock buffer stream parser render layout component button style theme page "
    "route login password header payload json yaml directory folder script shell command output input argument flag "
    "option default parameter variable loop condition exception trace stack memory leak profile benchmark latency "
    "fixture mock assert coverage lint format encoding unicode byte offset length cursor record row join filter sort "
    "batch chunk upload download archive compress encrypt hash digest signature license package dependency release "
    "changelog issue review refactor rename remove add update fix check verify run start stop install open close read "
    "write load save send receive parse validate compare replace insert delete create reset missing broken empty null"
).split()

_ONSETS = "b br c ch cl d dr f fl g gr h j k kl l m n p pl qu r s sh sk st t th tr v w z".split()
_CORES = "a e i o u ai ea io ou".split()
_CODAS = ["", "", "", "l", "m", "n", "r", "s", "t", "x", "nd", "rk", "st"]
_ENDINGS = ("py", "py", "ts", "ts", "tsx", "go", "rs", "md", "json", "sql", "sh", "yaml")
_KINDS = ("str", "int", "bool", "bytes", "dict[str, Any]", "list[str]", "None", "Path")
_LEVELS = ("INFO", "INFO", "DEBUG", "WARN", "ERROR")
_FOREIGN = (
    "Übergröße prüfen, danach läuft der Lauf wieder grün.",
    "déjà vu : le fichier n’est pas à jour",
    "索引がまだ更新されていません。もう一度確認してください。",
    "这个测试在本地通过，但是在服务器上失败了。",
    "✅ all good → next step 🚀",
)

LEXICON_WORDS = 16_000
PROJECT_WORDS = 3_000
PROJECT_NAMES = 2_500
PROJECT_PATHS = 160


def _word(random: Random) -> str:
    """An invented word of one to three syllables."""
    syllables = random.choices((1, 2, 3), (2, 5, 3))[0]
    parts = [random.choice(_ONSETS) + random.choice(_CORES) for _ in range(syllables)]
    return "".join(parts) + random.choice(_CODAS)


def _words(random: Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[_word(random)] = None
    return list(found)


@cache
def lexicon(seed: int) -> tuple[str, ...]:
    """The words that all projects share."""
    return tuple(_words(Random(f"lexicon {seed}"), LEXICON_WORDS))


@cache
def project(seed: int, number: int) -> Words:
    """The language of a project."""
    return Words(seed, number)


def _stream(draw: Callable[[Random, int], list[str]], random: Random) -> Iterator[str]:
    """One after the other, drawn in bulk, which is far cheaper."""
    while True:
        yield from draw(random, 200)


class Words:
    """The language of one project."""

    def __init__(self, seed: int, number: int) -> None:
        random = Random(f"project {seed} {number}")
        own = _words(random, PROJECT_WORDS)
        stems = TRADE + own[:300]
        self.name = f"{random.choice(own)}-{random.choice(own)}"
        self.names = [self._identifier(random, stems) for _ in range(PROJECT_NAMES)]
        folders = ["src", "tests", "docs", *(f"src/{random.choice(own)}" for _ in range(14))]
        self.paths = [
            f"{random.choice(folders)}/{random.choice(own)}.{random.choice(_ENDINGS)}" for _ in range(PROJECT_PATHS)
        ]
        # Words of the trade come early, those of the project among those that everybody uses.
        rest = [*lexicon(seed), *own, *self.names, *self.paths]
        random.shuffle(rest)
        self._vocabulary = [*COMMON, *(random.sample(TRADE, len(TRADE))), *rest]
        self._weights = list(accumulate(1 / (rank + 3.0) for rank in range(len(self._vocabulary))))
        self._name_weights = list(accumulate(1 / (rank + 8.0) for rank in range(len(self.names))))

    @staticmethod
    def _identifier(random: Random, stems: list[str]) -> str:
        parts = random.choices(stems, k=random.choice((2, 2, 3, 3, 4)))
        style = random.random()
        if style < 0.42:
            return "_".join(parts)
        if style < 0.86:
            joined = "".join(part.capitalize() for part in parts)
            return joined if style < 0.6 else joined[0].lower() + joined[1:]
        return ".".join(parts[:2])

    def words(self, random: Random, count: int) -> list[str]:
        return random.choices(self._vocabulary, cum_weights=self._weights, k=count)

    def some_names(self, random: Random, count: int) -> list[str]:
        return random.choices(self.names, cum_weights=self._name_weights, k=count)

    def prose(self, random: Random, chars: int) -> str:
        """About so many characters of sentences and lists."""
        words = self.words(random, max(2, chars // 6))
        out = []
        at = 0
        while at < len(words):
            end = at + random.randrange(5, 22)
            sentence = " ".join(words[at:end])
            mark = random.random()
            if mark < 0.06:
                out.append(f"\n- `{sentence}`\n")
            elif mark < 0.08:
                out.append(f"\n\n## {sentence[:1].upper()}{sentence[1:60]}\n\n")
            else:
                out.append(f"{sentence[:1].upper()}{sentence[1:]}. ")
            at = end
        if random.random() < 0.02:
            out.append(random.choice(_FOREIGN))
        return "".join(out).strip()

    def code(self, random: Random, chars: int) -> list[str]:
        """The lines of a source file of about that size."""
        count = max(4, chars // 36)
        names = _stream(self.some_names, random)
        words = _stream(self.words, random)
        kinds = random.choices(range(9), (10, 22, 18, 12, 8, 6, 8, 10, 6), k=count)
        lines = []
        for kind in kinds:
            if kind == 0:
                lines.append("")
            elif kind == 1:
                lines.append(f"        {next(words)} = self.{next(names)}({next(words)}, {random.randrange(1000)})")
            elif kind == 2:
                lines.append(f"        if {next(words)}.{next(names)} and len({next(words)}) > {random.randrange(99)}:")
            elif kind == 3:
                lines.append(f"            return {next(names)}")
            elif kind == 4:
                lines.append(
                    f"    def {next(names)}(self, {next(words)}: {random.choice(_KINDS)}) -> {random.choice(_KINDS)}:"
                )
            elif kind == 5:
                lines.append(f"from .{next(words)} import {next(names)}, {next(names)}")
            elif kind == 6:
                lines.append("    # " + " ".join(next(words) for _ in range(8)))
            elif kind == 7:
                pair = f'"{next(words)}": "{next(names)}", "{next(words)}": {random.random():.3f}'
                lines.append(f'    "{next(words)}": {{{pair}}},')
            else:
                lines.append('    """' + " ".join(next(words) for _ in range(11)) + '."""')
        return lines

    def log(self, random: Random, chars: int) -> str:
        """What a command printed: log lines, test results, search hits, diffs, listings."""
        out: list[str] = []
        size = 0
        style = random.randrange(5)
        while size < chars:
            kind = style if random.random() < 0.8 else random.randrange(5)
            if kind == 0:
                line = (
                    f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}T{random.randrange(24):02}:"
                    f"{random.randrange(60):02}:{random.randrange(60):02}.{random.randrange(1000):03}Z "
                    f"{random.choice(_LEVELS)} {' '.join(self.words(random, 7))} id={random.getrandbits(32):08x}"
                )
            elif kind == 1:
                line = (
                    f"{random.choice(self.paths)}::test_{'_'.join(self.words(random, 3))} "
                    f"{'PASSED' if random.random() < 0.93 else 'FAILED'} [{random.randrange(101):3}%]"
                )
            elif kind == 2:
                name, other = self.some_names(random, 2)
                where = f"{random.choice(self.paths)}:{random.randrange(1, 900)}"
                line = f"{where}:    {name}({other}, {random.randrange(64)})"
            elif kind == 3:
                name = self.some_names(random, 1)[0]
                said = f"{' '.join(self.words(random, 3))} = {name}  # {random.getrandbits(28):07x}"
                line = f"{random.choice('+- ')}    {said}"
            else:
                when = f"Mar {random.randrange(1, 29):>2} 10:{random.randrange(60):02}"
                line = f"-rw-r--r-- 1 dev dev {random.randrange(200_000):>8} {when} {random.choice(self.paths)}"
            out.append(line)
            size += len(line) + 1
        return "\n".join(out)[: chars + 40]
