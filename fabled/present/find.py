"""Search results, threads and records as a person reads them.

Which records these are, and how much of each, is decided before; nothing here looks anything up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabled.present import recent
from fabled.present.columns import cells, fit, middle, pad, title_width, whole, widest
from fabled.present.terminal import (
    Style,
    Verbatim,
    clock,
    count,
    day,
    moment,
    one_line,
    path,
    plural,
    plurals,
    short,
    stretch,
    tokens,
    visible,
)

Value = Mapping[str, Any]


def search(value: Value, style: Style) -> list[str]:
    results = value.get("results") or []
    if not results:
        return _nothing(value, style)
    shown = (
        f"{plural(len(results), 'thread')}"
        if len(results) == value.get("total")
        else f"{len(results)} of {plural(value.get('total', len(results)), 'thread')}"
    )
    turns = plurals([row.get("turns") or 0 for row in results], "turn")
    rows = [
        _Row.of(row, (value.get("offset") or 0) + number, said, style)
        for number, (row, said) in enumerate(zip(results, turns, strict=True), 1)
    ]
    if not _project(value):
        rows = [row.with_project() for row in rows]
    columns = _Columns.of(rows, style)
    head = f"{shown}, {value.get('took_ms', 0):.0f} ms"
    scope = _scope(value, style)
    gap = max(min(columns.all, style.width, 100) - cells(head) - cells(scope), 4)
    fits = cells(head) + gap + cells(scope) <= style.width
    lines = [style.dim(line) for line in ([head + " " * gap + scope] if fits else [head, scope])]
    lines.append("")
    for row in rows:
        lines += _hit(row, columns, style)
    return [*lines, "", *_looked_at(value, style), *_next(short(results[0]["thread"]), style)]


def _looked_at(value: Value, style: Style) -> list[str]:
    """How far a search that reads texts came, where it did not come to the end."""
    searched = value.get("searched") or {}
    lines = []
    if searched and not searched.get("complete"):
        what = "threads" if "threads" in searched else "records"
        seen = f"{count(searched.get(what, 0))} of {count(searched.get('of', 0))} {what}"
        lines.append(f"Looked at {seen}, then there was enough, or the time was over.")
    if searched.get("timed_out"):
        lines.append(f"The pattern took too long on {plural(searched['timed_out'], 'record')}; these were passed over.")
    return [style.dim(line) for line in lines]


def _why(explained: Value) -> str:
    """Which part gave which score, on one line."""
    words = "  ".join(f"{one_line(str(word))} {score:g}" for word, score in (explained.get("words") or {}).items())
    parts = "  ".join(f"{name} {score:g}" for name, score in explained.items() if name != "words")
    return f"words: {words}" + (f"   and  {parts}" if parts else "")


def _next(id_: str, style: Style) -> list[str]:
    first = f"Open one:  fabled thread {id_}"
    second = "--file '*.py'  --tool Bash  --role user  --project NAME"
    if len(first) + 17 + len(second) <= style.width:
        return [style.dim(f"{first}        narrow:  {second}")]
    return [style.dim(first), style.dim(f"Narrow:    {second}")]


def _project(value: Value) -> str:
    """The one project that was looked in, if it was one."""
    return str((value.get("scope") or {}).get("project") or "")


def _scope(value: Value, style: Style) -> str:
    project = _project(value)
    if not project:
        return "all projects"
    return f"project {middle(path(project, style), max(12, style.width - 36))}  (--all for every project)"


def _nothing(value: Value, style: Style) -> list[str]:
    query = one_line(str(value.get("query") or ""))
    lines = [f"Nothing found for {query}." if query else "Nothing found: the query is empty."]
    if _project(value) and (value.get("scope") or {}).get("known") is not False:
        lines.append(f"Looked in {_scope(value, style)}.")
    lines += _looked_at(value, style)
    near = value.get("nearest") or value.get("suggestions") or []
    if near:
        words = [f"{_word(item)}" for item in near]
        lines.append(f"Words that do occur:  {', '.join(words)}")
    return lines


def _word(item: Any) -> str:
    """A near word and how often it occurs, in either form replies use."""
    if isinstance(item, Mapping):
        return f'"{one_line(str(item.get("term")))}" {count(item.get("count", 0))}'
    if isinstance(item, list | tuple) and len(item) == 2:
        return f'"{one_line(str(item[0]))}" {count(item[1])}'
    return f'"{one_line(str(item))}"'


@dataclass(frozen=True, slots=True)
class _Row:
    """A result with its columns in words."""

    value: Value
    number: str
    id: str
    when: str
    title: str
    score: float
    turns: str
    tokens: str

    @classmethod
    def of(cls, value: Value, number: int, turns: str, style: Style) -> _Row:
        return cls(
            value=value,
            number=f"{number:>2}",
            id=short(str(value["thread"])),
            when=day(value.get("last_ts"), style),
            title=one_line(str(value.get("title") or "")) or "(no title)",
            score=float(value.get("score") or 0),
            turns=turns,
            tokens=f"{tokens(value.get('est_tokens', 0)):>9}",
        )

    def with_project(self) -> _Row:
        name = str(self.value.get("project") or "").rstrip("/").rpartition("/")[2]
        return replace(self, title=f"{one_line(name)}: {self.title}") if name else self

    def right(self, best: float, style: Style) -> str:
        """What stands right of the title, as far as the terminal has room for it."""
        if style.width < 70:
            return self.turns
        if style.width < 96:
            return f"{self.turns}  {self.tokens}"
        bar = "█" * max(1, round(10 * self.score / best)) if self.score > 0 else ""
        return f"{self.score:4.1f}  {bar:<10}  {self.turns}  {self.tokens}"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths that all results share; the title takes what is left, as far as it needs."""

    id: int
    when: int
    title: int
    all: int
    best: float

    @classmethod
    def of(cls, rows: Sequence[_Row], style: Style) -> _Columns:
        ids, whens = widest(row.id for row in rows), widest(row.when for row in rows)
        best = max(1e-9, *(row.score for row in rows))
        others = widest(row.number for row in rows) + ids + whens + widest(row.right(best, style) for row in rows) + 8
        title = title_width([row.title for row in rows], style.width - 1 - others)
        return cls(ids, whens, title, others + title, best)


def _hit(row: _Row, columns: _Columns, style: Style) -> list[str]:
    """One result: a line that says what and how well, and the words that were found."""
    lines = [
        f"{row.number}  {style.id(pad(row.id, columns.id))}  {row.when:<{columns.when}}  "
        f"{style.bold(pad(row.title, columns.title))}  {style.dim(row.right(columns.best, style))}"
    ]
    snippet = _highlighted(row.value, max(12, style.width - 5), style)
    if snippet:
        lines.append(f"    {snippet}")
    also = [short(str(one)) for one in row.value.get("also_in") or []]
    if also:
        more = f" and {len(also) - 4} more" if len(also) > 4 else ""
        lines.append(style.dim(f"    also in {', '.join(also[:4])}{more}"))
    if row.value.get("explain"):
        lines.append(style.dim(f"    {_why(row.value['explain'])}"))
    if row.value.get("resume"):
        lines += [style.dim(line) for line in recent.resume(str(row.value["resume"]), "    ", style)]
    return lines


def _highlighted(row: Value, width: int, style: Style) -> str:
    """The snippet on one line, its found words in bold. The marks count characters of the text as sent."""
    text = str(row.get("snippet") or "")
    marks = [mark for mark in row.get("highlights") or [] if isinstance(mark, list | tuple) and len(mark) == 2]
    parts, at, used = [], 0, 0
    if marks and cells(_spaced(text[: marks[0][1]])) > width:
        # What was found must be seen: it begins a little before it.
        at = max(0, marks[0][0] - width // 3)
        parts, used = ["…"], 1
    for start, end in [*marks, (len(text), len(text))]:
        for piece, marked in ((text[at:start], False), (text[start:end], True)):
            shown = _spaced(piece)
            kept = fit(shown, width - used) if used + cells(shown) > width else shown
            used += cells(kept)
            parts.append(style.warn(style.bold(kept)) if marked and style.color else kept)
            if kept != shown:
                return "".join(parts)
        at = end
    return "".join(parts).strip()


def _spaced(piece: str) -> str:
    """On one line, with the blanks at its ends kept: they part it from its neighbours."""
    middle = one_line(piece)
    lead = " " if piece[:1].isspace() else ""
    tail = " " if piece[-1:].isspace() and middle else ""
    return lead + middle + tail


def thread(value: Value, style: Style) -> list[str]:
    turns = value.get("turns") or []
    lines = style.fold("   ".join(fact for fact in _facts(value, turns, style) if fact), 0)
    if value.get("title"):
        lines.append(style.bold(fit(one_line(str(value["title"])), style.width - 1)))
    lines.append("")
    for turn in turns:
        lines += _turn(turn, style)
    return lines + _aside(value, style)


def _facts(value: Value, turns: Sequence[Value], style: Style) -> list[str]:
    first, last = (turns[0].get("ts"), turns[-1].get("ts")) if turns else (None, None)
    shown = value.get("est_tokens") or 0
    amount = f"{plural(value.get('total_turns', len(turns)), 'turn')}, {count(value.get('total_tokens', shown))} tok"
    if value.get("omitted"):
        amount += f" (showing {count(shown)})"
    return [
        f"thread {style.id(short(str(value['thread'])))}",
        f"session {short(str(value.get('session_id') or ''))}",
        middle(path(str(value.get("project") or ""), style), style.width),
        stretch(value.get("first_ts") or first, value.get("last_ts") or last, style),
        amount,
    ]


def _aside(value: Value, style: Style) -> list[str]:
    """What is not shown, and how to see it."""
    lines = []
    omitted = value.get("omitted") or 0
    if omitted:
        shown = sum(turn.get("kind") != "omitted" for turn in value.get("turns") or [])
        first = next((turn.get("block") for turn in value.get("turns") or [] if turn.get("kind") == "omitted"), None)
        marker = f" {whole(f'[truncated — {_opens(str(first))}]')}" if first else ""
        lines.append(
            f"{plural(shown, 'turn')} shown, {count(omitted)} left out to fit the budget{marker}."
            "   All of it:  --budget 0"
        )
    for key, what, option in (
        ("branch_turns", "abandoned branch", "--branches"),
        ("subagent_turns", "subagent", "--subagents"),
    ):
        if value.get(key):
            lines.append(f"({what}: {plural(value[key], 'turn')}   {option})")
    for key, what in (("started_by", "Started by"), ("previous", "Before it")):
        if value.get(key):
            lines.append(f"{what}:  fabled thread {short(str(value[key]))}")
    lines += recent.citations(value, style)
    return ["", *(style.dim(line) for line in lines)] if lines else []


def _turn(turn: Value, style: Style) -> list[str]:
    """One turn under a line that says whose words it holds."""
    kind, role = str(turn.get("kind") or ""), str(turn.get("role") or "")
    # Its own marks name records in full; the beginning of an id opens them as well, and fits the line.
    text = _MARK.sub(lambda found: found[0].replace(found[1], _opens(found[2])), str(turn.get("text") or ""))
    text = visible(text).rstrip("\n")
    if kind == "omitted":
        return [style.dim(text)]
    tool = one_line(str(turn.get("tool") or ""))
    who = role
    if kind == "tool" and role == "tool":
        who = "result"
    elif kind == "tool":
        # The call's text begins with the tool's name, which this line says already.
        who, text = f"tool {tool}".rstrip(), text.removeprefix(f"{tool}\n") if tool else text
    elif kind in ("thinking", "summary", "command", "notice"):
        who = kind
    elif kind == "queued":
        who = "user, while it worked"
    label = one_line(str(turn.get("label") or "main"))
    head = f"── {who}  {clock(turn.get('ts'), style)}".rstrip() + (f"  ({label})" if label != "main" else "")
    lines = [style.good(head) if role == "user" else style.bold(head) if kind == "reply" else style.dim(head)]
    if text:
        lines += map(Verbatim, text.split("\n")) if kind == "tool" else _prose(text, style)
    if turn.get("truncated") and turn.get("block") and "fabled block" not in text:
        lines.append(style.dim(f"[truncated — {_opens(str(turn['block']))}]"))
    return lines


_MARK = re.compile(r"\[truncated — (fabled block ([0-9A-Za-z-]{8,80}))\]")


def _opens(block: str) -> str:
    return f"fabled block {short(block)}"


def _prose(text: str, style: Style) -> Iterator[str]:
    """What somebody said, broken between words; code, tables and quoted output in it stay as they are."""
    fenced = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith(("```", "~~~"))
        if fenced or fence or line.startswith(("    ", "|")) or "\t" in line:
            yield Verbatim(line)
        else:
            mark = re.match(r" *(?:[-*+>] +|\d+[.)] +)?", line)
            yield from map(Verbatim, style.fold(line, len(mark[0]) if mark else 0))
        fenced ^= fence


def block(value: Value, style: Style) -> list[str]:
    """Where the copies of one record lie: what `block --info` says."""
    copies = value.get("copies") or []
    best = next((copy for copy in copies if copy.get("best")), copies[0] if copies else None)
    lines = [
        f"{'uuid':<10}{style.id(one_line(str(value.get('uuid') or value.get('id'))))}"
        f"   type {one_line(str(value.get('type') or '—'))}   {moment(value.get('ts'), style)}",
        f"{'session':<10}{one_line(str(value.get('session_id') or '—'))}",
    ]
    if best:
        where = best.get("generation") or "live"
        lines.append(
            f"{'best copy':<10}{one_line(str(where))} line {count(best['line'])}   bytes {count(best['offset'])} + "
            f"{count(best['length'])}   sha256 {one_line(str(best['sha256']))[:16]}…   "
            f"{'immutable' if best.get('generation') else 'live'}"
        )
        lines.append(f"{'':<10}{path(str(best['path']), style)}")
    part = value.get("part")
    if part:
        lines.append(
            f"{'value':<10}{one_line(str(part['path']))}   {plural(part['length'], 'byte')} at "
            f"{count(part['offset'])} of the record   sha256 {one_line(str(part['sha256']))[:16]}…"
        )
    for number, copy in enumerate(copies):
        reduced = ", reduced" if copy.get("fidelity") == "reduced" else ""
        mark = "  best" if copy is best else ""
        lines.append(
            f"{'copies' if number == 0 else '':<10}{one_line(str(copy.get('generation') or 'live'))} "
            f"({plural(copy['length'], 'byte')}{reduced})  line {count(copy['line'])}{mark}  "
            f"{one_line(str(copy.get('id') or copy.get('content_id') or ''))}".rstrip()
        )
    return [part for line in lines for part in style.fold(line, 10)]
