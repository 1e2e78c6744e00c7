"""The page about one's own history: figures, growth and savings, projects, sessions, threads, recall.

What was added up is decided where the Map is read; drawing is `charts`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabled.present import charts, page
from fabled.present.page import Column, text
from fabled.present.terminal import Style, count, moment, path, plural, short, size, tokens

Value = Mapping[str, Any]

PROJECTS = 25
"""Projects shown by name; of the others the sum."""
_TITLE = "Your history with Claude Code"


def report(value: Value, style: Style) -> str:
    """The whole page."""
    body = [*_head(value, style), "<main>", _facts(value)]
    body += _growth(value)
    body += _projects(value, style)
    body += _sessions(value, style)
    body += _threads(value, style)
    body += _pruning(value, style)
    body += _recall(value, style)
    zone = f" Days are those of {text(value['time_zone'])}." if value.get("time_zone") else ""
    body.append(
        '</main>\n<footer><p class="soft">Made by <code>fabled report</code> from your own transcripts, on your own '
        f"machine; nothing on this page comes from the network.{zone} MB are 1,000,000 bytes, tokens are estimates.</p>"
        "</footer>"
    )
    return page.html(_TITLE, body)


def _span(value: Value) -> charts.Span | None:
    """From the first day on which anything happened to the last."""
    days = [row["day"] for row in value.get("days") or []]
    return charts.Span.of(days[0], days[-1]) if days else None


def _head(value: Value, style: Style) -> list[str]:
    scope = f"Project {path(str(value['project']), style)}" if value.get("project") else "All projects"
    span = _span(value)
    if span is not None:
        first, last = span.label(span.first), span.label(span.last)
        if span.unit != "day":
            by_day = charts.Span(span.first, span.last, "day")
            first, last = by_day.label(span.first), by_day.label(span.last)
        scope += f", {first} to {last}" if first != last else f", {first}"
    asked = [f"{name} {_moment(value[name], style)}" for name in ("since", "until") if value.get(name)]
    if asked:
        scope += f" (asked for: {' '.join(asked)})"
    made = f"{scope}. Made {_moment(value.get('made_at'), style)}."
    return [f'<header><h1>{_TITLE}</h1>\n<p class="soft">{text(made)}</p></header>']


def _moment(value: Any, style: Style) -> str:
    """A point in time as it stands on a page for long: whole, and to the minute."""
    return moment(value, style).rpartition(":")[0].replace("T", " ").removeprefix("0") + (" UTC" if style.utc else "")


def _facts(value: Value) -> str:
    totals: Value = value.get("totals") or {}
    packed = totals.get("vault_logical_bytes", 0) / totals["vault_bytes"] if totals.get("vault_bytes") else 0
    facts = [
        (count(totals.get("sessions", 0)), f"sessions in {plural(totals.get('projects', 0), 'project')}"),
        (count(totals.get("threads", 0)), "threads"),
        (count(totals.get("records", 0)), f"records, {size(totals.get('written_bytes', 0))} written"),
        (_tokens(totals.get("est_tokens", 0)), "tokens in threads, about"),
        (size(totals.get("live_bytes", 0)), "in live transcripts"),
        (size(totals.get("vault_bytes", 0)), f"in the Vault, {packed:.1f}× packed" if packed else "in the Vault"),
        (size(totals.get("saved_bytes", 0)), f"saved by {plural(totals.get('prunes', 0), 'prune')}"),
        (count(totals.get("recalled", 0)), "recalls of earlier threads"),
    ]
    return '<ul class="facts">' + "".join(f"<li><b>{text(a)}</b>{text(b)}</li>" for a, b in facts) + "</ul>"


def _tokens(number: float) -> str:
    return tokens(number).removesuffix(" tok")


def _growth(value: Value) -> list[str]:
    days, span = value.get("days") or [], _span(value)
    if span is None:
        return ["<h2>Growth and savings</h2>", '<p class="soft">There is nothing yet. As soon as Claude Code has '
                "written a transcript, its growth shows here.</p>"]  # fmt: skip

    def of(name: str, colour: str, key: str) -> charts.Series:
        return charts.Series(name, colour, {row["day"]: row[key] for row in days if row[key]})

    written, saved = of("written", "one", "written_bytes"), of("saved by prunes", "two", "saved_bytes")
    less = charts.Series("less what prunes took out", "two", saved.days) if saved.days else None
    kept = of("kept", "four", "kept_bytes")
    return [
        "<h2>Growth and savings</h2>",
        # Of a single day it would say nothing.
        *([charts.growth("Written in all", span, charts.Series("written", "one", written.days), less, size)]
          if span.first != span.last else []),
        charts.bars("Bytes written and saved" if saved.days else "Bytes written", span, written, size,
                    saved if saved.days else None),
        charts.bars("Threads begun", span, of("threads", "three", "threads"), count, whole=True),
        *([charts.bars("Added to the Vault, packed", span, kept, size)] if kept.days else []),
    ]  # fmt: skip


def _projects(value: Value, style: Style) -> list[str]:
    rows: Sequence[Value] = value.get("projects") or []
    if not rows:
        return []
    most = max(row["written_bytes"] for row in rows)
    figures: list[tuple[str, str, Callable[[float], str]]] = [
        ("Sessions", "sessions", count), ("Threads", "threads", count), ("Tokens", "est_tokens", _tokens),
        ("Live", "live_bytes", size), ("Vault", "vault_bytes", size), ("Saved", "saved_bytes", size),
        ("Recalls", "recalled", count),
    ]  # fmt: skip

    def cells(row: Value, name: str) -> list[str]:
        written = row["written_bytes"]
        return [name, charts.share([("one", written)], most, size(written)),
                *(text(form(row[key])) for _, key, form in figures)]  # fmt: skip

    shown = [cells(row, _project(row["project"], style)) for row in rows[:PROJECTS]]
    others = rows[PROJECTS:]
    rest: list[str] = []
    if others:
        total = {key: sum(row[key] for row in others) for key in ("written_bytes", *(key for _, key, _ in figures))}
        rest = cells(total, f"{count(len(others))} more")
        # Of many the sum is no bar: it would make every other one small.
        rest[1] = charts.share([], most, size(total["written_bytes"]))
    columns = [Column("Project", "t"), Column("Written", "w"), *(Column(head, "n") for head, _, _ in figures)]
    return ["<h2>Projects</h2>", page.table("Projects", columns, shown, rest)]


def _project(name: object, style: Style) -> str:
    # A long path is broken between its folders.
    return f"<bdi>{text(path(str(name), style) or '(none)').replace('/', '/<wbr>')}</bdi>"


def _title(row: Value, style: Style) -> str:
    where = _project(row["project"], style) if row.get("project") else ""
    below = f'<br><span class="soft">{where}</span>' if where else ""
    return f"<bdi>{text(row['title'] or '(no title)')}</bdi>{below}"


def _code(name: object) -> str:
    return f"<code>{text(short(str(name)))}</code>"


def _sessions(value: Value, style: Style) -> list[str]:
    rows = value.get("sessions") or []
    days = sorted({day for row in rows for day, _ in (*row["days"], *row["saved_days"])})
    if not days:
        return []
    span = charts.Span.of(days[0], days[-1])
    by_day = charts.Span(span.first, span.last, "day")
    lines = []
    for row in rows:
        said = f"{short(row['session_id'])} by day: {size(row['written_bytes'])} written"
        if row["saved_bytes"]:
            said += f", {size(row['saved_bytes'])} saved"
        picture = charts.small(said, row["days"], row["saved_days"], by_day, size)
        figures = (text(size(row[key])) for key in ("written_bytes", "saved_bytes", "live_bytes"))
        lines.append([_code(row["session_id"]), _title(row, style), picture, *figures])
    columns = [Column("Session", "c"), Column("Title", "t"), Column("By day", "w"), Column("Written", "n"),
               Column("Saved", "n"), Column("Live", "n")]  # fmt: skip
    when = " to ".join(dict.fromkeys(by_day.label(one) for one in (span.first, span.last)))
    return ["<h2>Sessions that grew most</h2>",
            f'<p class="soft">Day by day, {text(when)}: above the line what was written, below it what prunes saved, '
            "each session to its own scale.</p>",
            page.table("Sessions that grew most", columns, lines)]  # fmt: skip


def _threads(value: Value, style: Style) -> list[str]:
    rows = value.get("threads") or []
    if not rows:
        return []
    most = max(row["est_tokens"] for row in rows)
    lines = [
        [_code(row["thread"]), _title(row, style), charts.share([("three", row["est_tokens"])], most,
         _tokens(row["est_tokens"])), text(count(row["turns"])), text(_date(row["first_ts"], style))]
        for row in rows
    ]  # fmt: skip
    columns = [Column("Thread", "c"), Column("Title", "t"), Column("Tokens", "w"), Column("Turns", "n"),
               Column("Day", "n")]  # fmt: skip
    return ["<h2>Busiest threads</h2>", page.table("Busiest threads", columns, lines)]


def _date(value: Any, style: Style) -> str:
    return _moment(value, style).removesuffix(" UTC").rpartition(" ")[0]


def _pruning(value: Value, style: Style) -> list[str]:
    prune = value.get("prune") or {}
    if not prune.get("prunes"):
        return [
            "<h2>What pruning saved</h2>",
            '<p class="soft">No prune took anything out: live transcripts are as the client wrote them.</p>',
        ]
    levels = ", ".join(f"{count(number)} {text(level)}" for level, number in sorted(prune["levels"].items()))
    said = (
        f"{plural(prune['prunes'], 'prune')} of {plural(prune['sessions'], 'session')} ({levels}) took "
        f"{size(prune['saved_bytes'])} out of live transcripts"
    )
    if prune.get("saved_tokens"):
        said += f", and made what a resume sends smaller by {text(tokens(prune['saved_tokens']))}ens in all"
    saved = [row for row in value.get("sessions") or [] if row["saved_bytes"]]
    saved.sort(key=lambda row: -row["saved_bytes"])
    most = max((row["live_bytes"] + row["saved_bytes"] for row in saved), default=0)
    lines = [
        [_code(row["session_id"]), _title(row, style),
         charts.share([("one", row["live_bytes"]), ("two", row["saved_bytes"])], most,
                      size(row["live_bytes"] + row["saved_bytes"])),
         text(size(row["live_bytes"])), text(size(row["saved_bytes"]))]
        for row in saved[:12]
    ]  # fmt: skip
    parts = ["<h2>What pruning saved</h2>", f"<p>{said}. Every byte of it is in the Vault.</p>"]
    rules = prune.get("rules") or []
    if rules:
        largest = rules[0]["bytes"]
        went = [[text(rule["reason"]), charts.share([("two", rule["bytes"])], largest, size(rule["bytes"]))]
                for rule in rules]  # fmt: skip
        parts.append(page.table("What went, by rule", [Column("What went", "t"), Column("Saved", "w")], went))
    if lines:
        keys = f"{page.key('one')}live, {page.key('two')}saved"
        parts.append(f'<p class="soft over">By session: {keys}.</p>')
        parts.append(page.table("Live and saved, by session", [
            Column("Session", "c"), Column("Title", "t"), Column("Live and saved", "w"), Column("Live", "n"),
            Column("Saved", "n"),
        ], lines))  # fmt: skip
    return parts


def _recall(value: Value, style: Style) -> list[str]:
    recall, span = value.get("recall") or {}, _span(value)
    if not recall.get("recalls") or span is None:
        return ["<h2>What recall used</h2>", '<p class="soft">Nothing was handed back to Claude yet.</p>']
    days = {row["day"]: row["recalled"] for row in value.get("days") or [] if row["recalled"]}
    said = (
        f"{plural(recall['recalls'], 'recall')} in {plural(recall['sessions'], 'session')} used "
        f"{plural(recall['threads'], 'earlier thread')}"
    )
    if recall.get("unknown"):
        few = recall["unknown"] < recall["threads"]
        said += f", {count(recall['unknown'])} of them not known here" if few else ", none of them known here"
    rows = [row for row in recall.get("most") or [] if row.get("known", True)]
    most = max((row["times"] for row in rows), default=0)
    lines = [
        [_code(row["thread"]), _title(row, style), charts.share([("four", row["times"])], most, count(row["times"]))]
        for row in rows
    ]
    columns = [Column("Thread", "c"), Column("Title", "t"), Column("Sessions that used it", "w")]
    return [
        "<h2>What recall used</h2>", f"<p>{said}.</p>",
        charts.bars("Recalls", span, charts.Series("recalls", "four", days), count, whole=True),
        *([page.table("Threads recalled most", columns, lines)] if lines else []),
    ]  # fmt: skip
