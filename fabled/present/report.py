"""The page about one's own history: figures, growth and savings, projects, sessions, threads, recall.

What was added up is decided where the Map is read; drawing is `charts`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present import charts, page
from fabled.present.page import text
from fabled.present.terminal import Style, count, day, moment, path, plural, short, size, tokens

Value = Mapping[str, Any]


def report(value: Value, style: Style) -> str:
    """The whole page."""
    totals = value.get("totals") or {}
    body = [_head(value, style), _facts(totals)]
    body += _growth(value)
    body += _projects(value, style)
    body += _sessions(value, style)
    body += _threads(value, style)
    body += _pruning(value)
    body += _recall(value)
    body.append(
        '<p class="soft">Made by <code>fabled report</code> from your own transcripts, on your own machine. '
        "Nothing on this page comes from the network.</p>"
    )
    return page.html("Your history with Claude Code", body)


def _head(value: Value, style: Style) -> str:
    scope = f"project {path(str(value['project']), style)}" if value.get("project") else "all projects"
    since = f", since {day(value['since'], style)}" if value.get("since") else ""
    return (
        f'<h1>Your history with Claude Code</h1>\n<p class="soft">{text(scope)}{text(since)}; '
        f"made {text(moment(value.get('made_at'), style)[:17])}</p>"
    )


def _facts(totals: Value) -> str:
    packed = totals.get("vault_logical_bytes", 0) / totals["vault_bytes"] if totals.get("vault_bytes") else 0
    facts = [
        (count(totals.get("sessions", 0)), f"sessions in {plural(totals.get('projects', 0), 'project')}"),
        (count(totals.get("threads", 0)), "threads"),
        (count(totals.get("records", 0)), "records"),
        (tokens(totals.get("est_tokens", 0)).removesuffix(" tok"), "tokens, about"),
        (size(totals.get("live_bytes", 0)), "live transcripts"),
        (size(totals.get("vault_bytes", 0)), f"in the Vault, {packed:.1f}× packed" if packed else "in the Vault"),
        (size(totals.get("saved_bytes", 0)), f"saved by {plural(totals.get('prunes', 0), 'prune')}"),
        (count(totals.get("recalled", 0)), "recalls"),
    ]
    return '<ul class="facts">' + "".join(f"<li><b>{text(a)}</b>{text(b)}</li>" for a, b in facts) + "</ul>"


def _growth(value: Value) -> list[str]:
    days = value.get("days") or []

    def of(key: str) -> dict[str, float]:
        return {row["day"]: row[key] for row in days}

    return [
        "<h2>Growth and savings</h2>",
        charts.by_day("Bytes a day", [
            charts.Series("written", "one", of("written_bytes")),
            charts.Series("saved by prunes", "two", of("saved_bytes")),
            charts.Series("kept in the Vault", "four", of("kept_bytes")),
        ], size),
        charts.by_day("Threads a day", [charts.Series("threads begun", "three", of("threads"))], count),
    ]  # fmt: skip


def _projects(value: Value, style: Style) -> list[str]:
    rows = value.get("projects") or []
    chart = charts.shares(
        "Bytes written, by project",
        [(path(str(row["project"]), style) or "(none)", [("one", row["written_bytes"])]) for row in rows[:15]],
        size,
    )
    table = page.table(
        [("Project", False), ("Sessions", True), ("Threads", True), ("Tokens", True), ("Live", True), ("Vault", True),
         ("Saved", True), ("Recalls", True)],
        [[text(path(str(row["project"]), style) or "(none)"), count(row["sessions"]), count(row["threads"]),
          text(tokens(row["est_tokens"]).removesuffix(" tok")), size(row["live_bytes"]), size(row["vault_bytes"]),
          size(row["saved_bytes"]), count(row["recalled"])] for row in rows[:40]],
    )  # fmt: skip
    return ["<h2>Projects</h2>", chart, table]


def _sessions(value: Value, style: Style) -> list[str]:
    rows = value.get("sessions") or []
    days = sorted({day for row in rows for day, _ in (*row["days"], *row["saved_days"])})
    if not days:
        return []
    lines = []
    for row in rows:
        name = text(row["title"] or "(no title)")
        where = text(path(str(row["project"]), style))
        picture = charts.small(
            f"{short(row['session_id'])} by day", row["days"], row["saved_days"], days[0], days[-1], size
        )
        lines.append([
            f'<code>{text(short(row["session_id"]))}</code>', f'{name}<br><span class="soft">{where}</span>', picture,
            size(row["written_bytes"]), size(row["saved_bytes"]), size(row["live_bytes"]),
        ])  # fmt: skip
    heads = [("Session", False), ("Title", False), (f"{days[0]} to {days[-1]}", False), ("Written", True),
             ("Saved", True), ("Live", True)]  # fmt: skip
    return ["<h2>Sessions that grew most</h2>", '<p class="soft">Above the line what was written, below it what prunes '
            "saved, day by day.</p>", page.table(heads, lines)]  # fmt: skip


def _threads(value: Value, style: Style) -> list[str]:
    rows = value.get("threads") or []
    if not rows:
        return []
    chart = charts.shares(
        "Tokens, by thread",
        [(f"{row['title'] or '(no title)'}", [("three", row["est_tokens"])]) for row in rows[:10]],
        tokens,
    )
    table = page.table(
        [("Thread", False), ("Title", False), ("Project", False), ("Day", False), ("Turns", True), ("Tokens", True)],
        [[f'<code>{text(short(row["thread"]))}</code>', text(row["title"]), text(path(row["project"], style)),
          text(day(row["first_ts"], style)), count(row["turns"]),
          text(tokens(row["est_tokens"]).removesuffix(" tok"))] for row in rows],
    )  # fmt: skip
    return ["<h2>Busiest threads</h2>", chart, table]


def _pruning(value: Value) -> list[str]:
    prune = value.get("prune") or {}
    if not prune.get("prunes"):
        return [
            "<h2>Pruning</h2>",
            '<p class="soft">No prune yet: every live transcript is as the client wrote it.</p>',
        ]
    levels = ", ".join(f"{count(number)} {text(level)}" for level, number in sorted(prune["levels"].items()))
    saved = [row for row in value.get("sessions") or [] if row["saved_bytes"]]
    chart = charts.shares(
        "Live, and saved by prunes",
        [(row["title"] or short(row["session_id"]), [("one", row["live_bytes"]), ("two", row["saved_bytes"])])
         for row in sorted(saved, key=lambda row: -row["saved_bytes"])[:12]],
        size,
    )  # fmt: skip
    said = (
        f"{plural(prune['prunes'], 'prune')} of {plural(prune['sessions'], 'session')} ({levels}) took "
        f"{size(prune['saved_bytes'])} out of live transcripts. Every byte of it is in the Vault."
    )
    return ["<h2>Pruning</h2>", f"<p>{said}</p>", chart]


def _recall(value: Value) -> list[str]:
    recall = value.get("recall") or {}
    if not recall.get("recalls"):
        return ["<h2>Recall</h2>", '<p class="soft">Nothing was handed back to Claude yet.</p>']
    days = {row["day"]: row["recalled"] for row in value.get("days") or []}
    said = (
        f"{plural(recall['recalls'], 'recall')} in {plural(recall['sessions'], 'session')} used "
        f"{plural(recall['threads'], 'earlier thread')}."
    )
    rows = [
        [f"<code>{text(short(row['thread']))}</code>", text(row["title"] or "(not known here)"), count(row["times"])]
        for row in recall.get("most") or []
    ]
    return [
        "<h2>Recall</h2>", f"<p>{said}</p>",
        charts.by_day("Recalls a day", [charts.Series("recalls", "four", days)], count),
        page.table([("Thread", False), ("Title", False), ("Sessions", True)], rows),
    ]  # fmt: skip
