"""Text for people: what stands where, at any width, and nothing in it that could steer a terminal."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled import present
from fabled.present import columns, stats, terminal
from fabled.present.terminal import Style

NOW = 1_794_494_460.0  # 2026-11-12 14:41 UTC
PLAIN = Style(color=False, width=80, utf8=True, now=NOW, home="/home/ana")


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Local time is UTC in these tests, wherever they run."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def hit(**fields: Any) -> dict[str, Any]:
    return {
        "thread": "7c41e0aa-0000-4000-8000-000000000001",
        "session_id": "6513270e-0000-4000-8000-000000000002",
        "project": "/home/ana/src/indexer",
        "title": "fix lost events after sleep",
        "score": 9.2,
        "last_ts": "2026-11-11T14:31:00.000Z",
        "turns": 14,
        "est_tokens": 5140,
        "snippet": "one writer thread drains the queue",
        "highlights": [[4, 17]],
        "also_in": [],
        **fields,
    }


def search(*results: dict[str, Any], **fields: Any) -> dict[str, Any]:
    scope = {"project": "/home/ana/src/indexer"}
    return {"query": "writer", "took_ms": 41.2, "total": 18, "results": list(results), "scope": scope, **fields}


def turn(role: str, kind: str, text: str, ts: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": role, "kind": kind, "text": text, "ts": ts, "label": "main", **fields}


THREAD = {
    "thread": "7c41e0aa-0000-4000-8000-000000000001",
    "session_id": "6513270e-0000-4000-8000-000000000002",
    "project": "/home/ana/src/indexer",
    "title": "fix lost events",
    "est_tokens": 5140,
    "omitted": 5,
    "total_turns": 9,
    "total_tokens": 12_140,
    "subagent_turns": 6,
    "previous": "b20f9a01-0000-4000-8000-000000000003",
    "turns": [
        turn("user", "prompt", "Why?\nIt sleeps.", "2026-11-12T13:02:00.000Z"),
        turn("assistant", "tool", "Bash\ncommand: ls", "2026-11-12T13:03:00.000Z", tool="Bash"),
        turn("tool", "tool", "", None, label="sidechain", truncated=True, block="u3"),
        turn("assistant", "omitted", "[truncated — fabled block u4] 5 turns left out", None, truncated=True),
        turn("assistant", "reply", "Because.", "2026-11-12T13:31:00.000Z", label="branch"),
    ],
}


def test_search_shows_rank_id_date_title_score_and_size() -> None:
    """The sketch of the design at 100 columns, and less of it where there is less room."""
    small = hit(thread="b20f9a01-x", title="", score=4.6, turns=1, est_tokens=230, snippet="x", highlights=[])
    value = search(hit(), small)
    assert present.text("search", value, replace(PLAIN, width=100)) == (
        "2 of 18 threads, 41 ms                  project ~/src/indexer  (--all for every project)\n"
        "\n"
        " 1  7c41e0aa  11 Nov  fix lost events after sleep   9.2  ██████████  14 turns  ~5.1k tok\n"
        "    one writer thread drains the queue\n"
        " 2  b20f9a01  11 Nov  (no title)                    4.6  █████        1 turn    ~230 tok\n"
        "    x\n"
        "\n"
        "Open one:  fabled thread 7c41e0aa\n"
        "Narrow:    --file '*.py'  --tool Bash  --role user  --project NAME\n"
    )
    assert " 1  7c41e0aa  11 Nov  fix lost events after sleep  14 turns\n" in present.text(
        "search", value, replace(PLAIN, width=62)
    )


def test_results_of_several_projects_say_which_and_forks_name_their_sessions() -> None:
    value = search(
        hit(project="/home/ana/src/indexer"),
        hit(project="/home/ana/src/webshop", also_in=[f"{n}aaaaaaa-b" for n in range(6)]),
        scope={"project": None},
    )
    text = present.text("search", value, PLAIN)
    assert "indexer: fix lost" in text and "webshop: fix lost" in text and "all projects" in text
    assert "also in 0aaaaaaa, 1aaaaaaa, 2aaaaaaa, 3aaaaaaa and 2 more" in text


def test_found_words_are_marked_in_colour_only() -> None:
    assert "one \x1b[33m\x1b[1mwriter thread\x1b[0m\x1b[0m drains" in present.text(
        "search", search(hit()), replace(PLAIN, color=True)
    )
    assert "\x1b" not in present.text("search", search(hit()), PLAIN)


def test_nothing_found_names_the_scope_and_words_that_do_occur() -> None:
    value = search(nearest=[{"term": "debouncer", "count": 12}, ["debounced", 4]], total=0, query="debounse")
    assert present.text("search", value, PLAIN) == (
        "Nothing found for debounse.\n"
        "Looked in project ~/src/indexer  (--all for every project).\n"
        'Words that do occur:  "debouncer" 12, "debounced" 4\n'
    )


def test_a_thread_reads_from_prompt_to_reply() -> None:
    assert present.text("thread", THREAD, replace(PLAIN, width=100)) == (
        "thread 7c41e0aa   session 6513270e   ~/src/indexer   12 Nov 2026 13:02-13:31\n"
        "9 turns, 12,140 tok (showing 5,140)\n"
        "fix lost events\n"
        "\n"
        "── user  13:02\n"
        "Why?\n"
        "It sleeps.\n"
        "── tool Bash  13:03\n"
        "command: ls\n"
        "── result  (sidechain)\n"
        "[truncated — fabled block u3]\n"
        "[truncated — fabled block u4] 5 turns left out\n"
        "── assistant  13:31  (branch)\n"
        "Because.\n"
        "\n"
        "4 turns shown, 5 left out to fit the budget.   All of it:  --budget 0\n"
        "(subagent: 6 turns   --subagents)\n"
        "Before it:  fabled thread b20f9a01\n"
    )


def test_status_is_six_lines_when_all_is_well() -> None:
    value = {
        "version": "0.3.0", "pid": 4127, "uptime_s": 273_600, "rss_bytes": 41_000_000, "sessions": 412, "projects": 37,
        "records": 190_233, "threads": 6041, "queue": 0, "last_change": "2026-11-12T14:40:56Z", "unparsed": 0,
        "vault": {"generations": 96, "bytes": 2_860_000_000, "logical_bytes": 9_724_000_000},
        "watcher": {"mode": "events"},
    }  # fmt: skip
    assert present.text("status", value, PLAIN) == (
        "● fabled 0.3.0   running 3 d 4 h   pid 4127   41 MB\n"
        "  sessions   412 in 37 projects     records 190,233     threads 6,041\n"
        "  vault      2.86 GB in 96 generations (3.4x packed)\n"
        "  index      up to date, last change 4 s ago     queue 0\n"
        "  watching   events\n"
    )
    assert present.text("status", value, replace(PLAIN, form="oneline")) == "ok 412 sessions, queue 0\n"
    first = {**value, "indexing": {"first": True, "under_way": True, "files_done": 34, "files": 120}}
    first["progress"] = {"files_done": 34, "files": 120, "bytes_done": 10**6, "bytes": 10**7}
    assert "\n  index      first index under way: 34 of 120 files, 1 MB of 10 MB" in present.text(
        "status", first, PLAIN
    )
    assert present.text("status", first, replace(PLAIN, form="oneline")) == (
        "first index under way: 34 of 120 files, 412 sessions, queue 0\n"
    )
    assert present.text("search", {"query": "x", "indexing": first["indexing"]}, PLAIN) == (
        "Nothing found for x.\nFirst index under way: 34 of 120 files; results are of what is read so far.\n"
    )
    odd = {**value, "unparsed": 3, "warnings": [{"message": "9 sessions exist only live", "hint": "fabled capture"}]}
    assert present.text("status", odd, PLAIN).endswith(
        "  oddities   3 unparsed spans\n  warnings   9 sessions exist only live\n             Next: fabled capture\n"
    )


def test_lists_have_a_form_for_other_programs() -> None:
    """Columns parted by tabs; whatever a value holds, a row stays a line and a column a column."""
    value = search(hit(title="a\tb\nc\x1b[2J"))
    assert present.text("search", value, replace(PLAIN, form="plain")) == (
        "7c41e0aa-0000-4000-8000-000000000001\t2026-11-11T14:31:00.000Z\t/home/ana/src/indexer\t9.2\t14\t5140\t\t"
        "a b c^[[2J\tone writer thread drains the queue\n"
    )


def test_ascii_has_no_sign_beyond_it() -> None:
    text = present.text("search", search(hit(title="Größe", snippet="日本 …")), replace(PLAIN, utf8=False, width=100))
    assert text.isascii()
    assert "Gr\\xf6\\xdfe" in text and "##########" in text


# ── hostile text ────────────────────────────────────────────────────────────────────────────────────────────────

NASTY = st.text(
    st.one_of(
        st.sampled_from("\x00\x07\x1b\x7f\x9b\r\n\t\u202e\u2066\u200b\ufeff\ud800\U000e0041日é a"),
        st.characters(min_codepoint=0x20, max_codepoint=0x2FF),
    ),
    max_size=60,
)


def steers(text: str) -> list[str]:
    return [c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\ud800")]


@settings(deadline=None)
@given(NASTY, st.integers(20, 200))
def test_no_text_of_a_transcript_reaches_the_terminal_as_a_command(nasty: str, width: int) -> None:
    """In every place where a transcript's text may stand, at every width."""
    style = replace(PLAIN, width=width)
    marks = [[0, 3], [5, 9]]
    row = hit(title=nasty, snippet=nasty, project="/" + nasty, highlights=marks, thread=nasty, also_in=[nasty])
    said = turn("user", "prompt", nasty.replace("\t", ""), nasty, label=nasty, truncated=True, block=nasty)
    copy = {"path": nasty, "line": 1, "offset": 0, "length": 1, "sha256": "0", "best": True}
    values: list[tuple[str, dict[str, Any]]] = [
        ("search", search(row, hit(project="/b"))),
        ("search", search(query=nasty, total=0, nearest=[nasty])),
        ("thread", {"thread": nasty, "session_id": nasty, "title": nasty, "project": nasty, "turns": [said]}),
        ("sessions", {"sessions": [{"session_id": nasty, "title": nasty, "project": nasty}]}),
        ("projects", {"projects": [{"project": nasty}]}),
        ("index", {"failed": [{"path": nasty, "reason": nasty}], "notes": [nasty], "waiting": [nasty]}),
        ("status", {"warnings": [{"message": nasty, "hint": nasty}], "watcher": {"reason": nasty}}),
        ("check", {"checks": [{"id": "x", "ok": False, "message": nasty}]}),
        ("block", {"uuid": nasty, "session_id": nasty, "type": nasty, "copies": [copy]}),
    ]
    shown = [present.text(method, value, style) for method, value in values]
    shown.append(present.text("search", search(row), replace(style, form="plain")).replace("\t", ""))
    assert [steers(text) for text in shown] == [[]] * len(shown)


@settings(deadline=None)
@given(NASTY, st.integers(60, 200))
def test_a_result_never_wraps(nasty: str, width: int) -> None:
    """A line longer than the terminal would tear the columns apart."""
    value = search(hit(title=nasty * 3, snippet=nasty * 9), scope={"project": None})
    lines = present.text("search", value, replace(PLAIN, width=width)).splitlines()
    assert [line for line in lines if columns.cells(line) > max(width, 66)] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b]0;evil\x07", "^[]0;evil^G"),
        ("\x7f\x9b", "^?<009B>"),
        ("a\u202eb", "a<202E>b"),
        ("\U000e0041", "<E0041>"),
        ("tab\tline\n", "tab\tline\n"),
        ("👩\u200d👩", "👩\u200d👩"),
        ("\udc80", "\ufffd"),
    ],
)
def test_controls_are_shown_by_name(text: str, shown: str) -> None:
    assert present.visible(text) == shown


# ── amounts, times, widths ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (48_211, "48.2 kB"), (999_600, "1 MB"), (38_400_000, "38.4 MB"),
     (410_000_000, "410 MB"), (1_240_000_000, "1.24 GB"), (2_000_000_000_000_000, "2000 TB")],
)  # fmt: skip
def test_sizes(amount: int, words: str) -> None:
    assert terminal.size(amount) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (273_600, "3 d 4 h"), (86400, "1 d"), (-5, "0 s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert terminal.duration(seconds) == words


@pytest.mark.parametrize(
    ("when", "short", "exact"),
    [
        ("2026-11-12T09:05:00.000Z", "09:05", "2026-11-12"),
        ("2026-03-02T09:05:00Z", "02 Mar", "2026-03-02"),
        (1_700_000_000_123, "Nov 2023", "2023-11-14"),
        (None, "—", "—"),
        ("nonsense", "—", "—"),
        (True, "—", "—"),
    ],
)
def test_days(when: Any, short: str, exact: str) -> None:
    """Short for people, exact with --utc; a time that is none is a dash."""
    assert terminal.day(when, PLAIN) == short
    assert terminal.day(when, replace(PLAIN, utc=True)) == exact


def test_moments_are_exact_to_the_millisecond() -> None:
    assert terminal.moment("2026-11-12T14:03:11.204Z", PLAIN) == "12 Nov 2026 14:03:11.204"
    assert terminal.moment("2026-11-12T14:03:11.204Z", replace(PLAIN, utc=True)) == "2026-11-12T14:03:11.204Z"


def test_wide_characters_take_two_columns_and_are_cut_whole() -> None:
    assert columns.cells("日本e\u0301") == 5
    assert columns.fit("日本語", 6) == "日本語"
    assert columns.fit("日本語", 5) == "日本…"
    assert columns.fit("日本語", 4) == "日…"
    assert columns.pad("日", 4) == "日  "


# Bars


@pytest.mark.parametrize(("width", "shown"), [(60, 3), (70, 5), (80, 6), (200, 6)])
def test_rows_of_stats_have_bars_on_every_terminal(width: int, shown: int) -> None:
    """As long as their part of the largest, to an eighth; what is nothing in every row gives way first."""
    each = {
        "sessions": 1,
        "threads": 2,
        "vault_bytes": 10,
        "saved_bytes": 10,
        "recalled": 0,
        "activity": [0] * 29 + [1],
    }
    written = (8_000, 4_000, 1_000, 1, 0)
    rows = [{**each, "project": f"/home/ana/src/project-{number}", "written_bytes": number} for number in written]
    lines = stats.stats({"by": "project", "rows": rows, "total": 9}, Style(width=width))
    assert len(lines[0].split()) == 1 + shown and all(columns.cells(line) <= width for line in lines)
    bars = [re.search("[█▉▊▋▌▍▎▏]*", line[len(lines[0]) + 2 :])[0] for line in lines[1:6]]  # type: ignore[index]
    lengths = [8 * bar.count("█") + sum("▏▎▍▌▋▊▉".find(sign) + 1 for sign in bar) for bar in bars]
    assert lengths == [lengths[0], lengths[0] // 2, lengths[0] // 8, 1, 0] and lengths[0] >= 64
    assert "4 more" in lines[6]
