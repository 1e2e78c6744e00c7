"""Every view at any width: nothing wider than the terminal, nothing that steers it, and commands that can be copied.

The values are what a real Map answers about plain and about hostile transcripts; what only a daemon or a prune tells is
written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled import present
from fabled.answers import Reader, answer
from fabled.present import columns, journal, service, settings, top
from fabled.present.terminal import Style, Verbatim, finish, visible
from fabled.store.queries import Queries
from tests.build import START, Transcript, make_uuid
from tests.home import Home
from tests.test_present_keep import BACK, DIFF, GENERATIONS, PLAN, SESSION, kept

EVIL = "evil\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u2066 \x9b2J \x7f \u2028\U000e0041 \x1b[2J"
DEEP = "/home/ana/" + "/".join(f"a-long-folder-name-{n}" for n in range(8))
WIDE = "日本語プロジェクト🎉 とても長いタイトルで端末の幅を超えます" * 2
NOW = START + 9_000.0
VIEWS: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": "heron", "all": True, "explain": True}),
    ("search", {"query": "heron", "project": DEEP}),
    ("search", {"query": "nothing-of-it"}),
    ("sessions", {}), ("projects", {}), ("overview", {}), ("recent", {"all": True}), ("terms", {}), ("cards", {}),
    ("stats", {}), ("stats", {"by": "day"}), ("file", {"path": "app.py"}),
]  # fmt: skip
CHECKS = [
    {"id": "best pointers", "ok": True, "tested": 16_860, "message": "every record is read from its best copy"},
    {"id": "copies", "ok": False, "tested": 1, "failed": 1, "message": f"no copy of 9f02ab3c in {DEEP}/x.jsonl {EVIL}"},
]
STATUS = {
    "version": "0.3.0", "uptime_s": 273_000, "pid": 4127, "rss_bytes": 41_000_000, "cpu_percent": 0.1, "sessions": 1,
    "projects": 37, "records": 190_233, "threads": 6_041, "live_bytes": 1_240_000_000, "queue": 2,
    "vault": {"generations": 96, "bytes": 2_860_000_000, "logical_bytes": 9_700_000_000},
    "watcher": {"mode": "polling", "reason": f"{DEEP} is on a network file system {EVIL}"}, "phase": "idle",
    "prune": {"summary": "automatic above 1 MB; next look in 3 min; 2 sessions eligible (-58 MB)"}, "unparsed": 1,
    "pending_bytes": 1, "vanished": 3, "jobs": [{"id": "sweep", "next_at": NOW + 60}],
    "warnings": [{"code": "x", "message": f"not read: {DEEP}/{EVIL}.jsonl", "hint": "fabled spans FILE shows them"}],
}  # fmt: skip
WRITTEN: list[tuple[str, dict[str, Any]]] = [
    ("status", STATUS),
    ("index", {"files": 1, "files_changed": 1, "records": 1, "threads": 1, "no_uuid": 1, "unparsed": 1,
               "failed": [{"path": f"{DEEP}/{EVIL}", "reason": "permission denied"}], "waiting": [DEEP]}),
    ("check", {"checks": CHECKS}),
    ("prune_check", {"checks": CHECKS}),
    ("doctor", {"checks": [{"id": "unreadable", "state": "failure", "message": f"{DEEP} cannot be read {EVIL}",
                            "fix": f"chmod u+rx {DEEP}", "details": [f"{DEEP}: {EVIL}"]}]}),
    ("prune", PLAN),
    ("prune", {**PLAN, "applied": True, "generation": "v3-raw"}),
    ("prune", {**PLAN, "rules": [], "refused": [{"code": "x", "message": f"{DEEP} is open elsewhere {EVIL}"}]}),
    ("generations", {**GENERATIONS, "generations": [kept(0, "raw", reason=EVIL, only=1, records=1, full=1)]}),
    ("generations", {"generations": [kept(0, "raw", project=DEEP), kept(1, "raw", project=EVIL, session_id="other")]}),
    ("restore", {**BACK, "path": f"{DEEP}/x.jsonl", "asked": {"session": "6513270e@v3", "to": f"{DEEP}/a b.jsonl"}}),
    ("diff", DIFF),
    ("capture", {"sessions": [{"session_id": SESSION, "generations": [kept(0, "raw"), kept(0, "raw", part="x")],
                               "failed": [{"path": f"{DEEP}/{EVIL}", "reason": "no space"}]}], "captured": 1}),
    ("forget", {"project": DEEP, "sessions": [{"session_id": SESSION, "records": 1, "only_here": 1}]}),
    ("forgotten", {"forgotten": [{"name": f"{DEEP}/{EVIL}", "kind": "project", "at": NOW, "done": True}]}),
]  # fmt: skip


def talk(name: str, cwd: str, words: str, title: str = "") -> Transcript:
    made = Transcript(make_uuid(name), cwd=cwd)
    for prompt in (f"why does the heron {words}", f"and then {words}?"):
        made.user(prompt)
        call = made.call("Bash", {"command": f"grep -rn {words} ."})
        made.result(call, f"found {words}")
        edit = made.call("Edit", {"file_path": f"{cwd}/src/app.py", "old_string": "a", "new_string": f"b {words}"})
        made.result(edit, "The file has been updated")
        made.assistant(f"The heron {words}. Shall I go on?")
    if title:
        made.title(title)
    return made


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What there is to be shown: every view of a Map of six sessions, and those that are written out."""
    home = Home(tmp_path_factory.mktemp("views"))
    talks = [
        talk("plain", "/home/ana/src/indexer", "loses events after sleep"), talk("deep", DEEP, "stands in the reeds"),
        talk("wide", f"/home/ana/{WIDE}", WIDE, WIDE), talk("evil", f"/home/ana/{EVIL}", EVIL, EVIL),
        talk("long", "/home/ana/x", "x" * 300, "y" * 300), talk("one", "/home/ana/one", "is one"),
    ]  # fmt: skip
    for one in talks:
        home.write(f"{re.sub('[^a-zA-Z0-9]', '-', one.cwd)}/{one.session}.jsonl", one.data)
    home.write("odd\x1b[31m\u202efolder🎉/" + make_uuid("odd") + ".jsonl", talk("odd", "/elsewhere", "is odd").data)
    home.index()
    home.indexer.derive_terms()
    queries = Queries(str(home.map_db))
    reader = Reader(queries, home.vault)
    views = [(method, answer(reader, method, params)) for method, params in VIEWS]
    for one in talks:
        id_ = one.records[0]["promptId"]
        views += [("thread", answer(reader, "thread", {"id": id_, "budget": 8000}))]
        views += [("card", answer(reader, "card", {"id": id_})), ("terms", answer(reader, "terms", {"thread": id_}))]
        views += [("block", answer(reader, "block", {"id": one.records[0]["uuid"]}))]
    queries.close()
    home.close()
    yield views + WRITTEN


def shown(views: list[tuple[str, dict[str, Any]]], style: Style) -> Iterator[tuple[str, str]]:
    for method, value in views:
        yield method, present.text(method, value, style)
    yield "top", finish(top.top({"status": STATUS, "sessions": [], "events": [], "pace": [1.0] * 40}, style), style)
    row = {"name": "watch.degraded_sweep_seconds", "value": 30, "origin": "default"}
    path = {"name": "exclude", "value": [DEEP, EVIL], "origin": f"{DEEP}/config.toml:4"}
    listed = settings.listed({"settings": [row, path], "exists": False, "config_file": f"{DEEP}/config.toml"}, style)
    yield "config", finish(listed, style)
    unit = {"state": "failed", "installed": True, "manager": "systemd", "path": f"{DEEP}/u", "says": EVIL}
    yield "service", service.status({**unit, "why": "fabled logs --since 1h", "exit_status": 3}, style)
    fields = {"timestamp": NOW, "level": "warning", "event": "file.failed", "path": f"{DEEP}/{EVIL}", "files": 3}
    yield "logs", finish(journal.log_line(fields, style), style)


COMMAND = re.compile(r"fabled (?:thread|prune|restore|undo|block|recent|search|generations|spans|doctor) [^\n(]*\S")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_view_fits_its_terminal_and_does_not_steer_it(
    answers: list[tuple[str, dict[str, Any]]], width: int
) -> None:
    """No line is wider but a command to be copied; no control of a text, a name or a path arrives; in ASCII, too."""
    for color, utf8 in ((False, True), (True, True), (False, False)):
        style = Style(color=color, width=width, utf8=utf8, now=NOW, home="/home/ana")
        for method, text in shown(answers, style):
            plain = columns.bare(text) if color else text
            assert visible(plain) == plain and (utf8 or text.isascii()), method
            own = {line for turn in _turns(answers) for line in visible(turn).split("\n")}
            wide = [line for line in plain.split("\n") if columns.cells(line) > width and line not in own]
            wide = wide if utf8 or method != "thread" else []
            assert [line for line in wide if not re.match(r" *(cd |claude |fabled |[0-9a-f]{8}#)", line)] == [], method


def _turns(views: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """What tools were given and said stands as it is, whatever its width."""
    for method, value in views:
        if method == "thread":
            for turn in value["turns"]:
                if turn["kind"] == "tool":
                    yield turn["text"].removeprefix(f"{turn.get('tool')}\n")


@pytest.mark.parametrize("width", [60, 80])
def test_commands_are_whole_at_any_width(answers: list[tuple[str, dict[str, Any]]], width: int) -> None:
    """Each command that a wide terminal is told stands on one line of a narrow one; `cd` may stand on its own."""
    wide = Style(width=1000, now=NOW, home="/home/ana")
    narrow = Style(width=width, now=NOW, home="/home/ana")
    told = 0
    for (method, there), (_, here) in zip(shown(answers, wide), shown(answers, narrow), strict=True):
        commands = {found.split("  ")[0].rstrip(".") for found in COMMAND.findall(there)}
        resumed = {command for line in there.split("\n") if (command := line.strip()).startswith("cd ")}
        missing = [one for one in commands if not any(one in line for line in here.split("\n"))]
        missing += [one for one in resumed if one not in re.sub(r"&&\n +", "&& ", here)]
        assert missing == [], method
        told += len(commands | resumed)
    assert told > 15


# ── where a line is broken ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("  name      one two", ["  name      one two"]),
        ("  name      one two three     four five six", ["  name      one two three", "            four five six"]),
        ("Nothing was done.  Do it:  fabled undo 65 --full", ["Nothing was done.", "  Do it:  fabled undo 65 --full"]),
        ("some words and then fabled search --since 3d", ["some words and then", "  fabled search --since 3d"]),
        ("x" * 70, ["x" * 40, "  " + "x" * 30]),
        ("  at        /home/ana/this/folder/and/that", ["  at        /home/ana/this/folder/and/", "            that"]),
        ("日本語" * 10, ["日本語" * 6 + "日本", "  語" + "日本語" * 3]),
    ],
)  # fmt: skip
def test_lines_break_at_gaps_then_at_words_and_never_in_a_command(line: str, lines: list[str]) -> None:
    assert columns.fold(line, 40) == lines


@given(
    st.lists(st.sampled_from(["a", "fabled undo x1 and", "/a/long/path/to/somewhere", "日本語", "  gap", "e\u0301"])),
    st.integers(20, 90), st.one_of(st.none(), st.integers(0, 20)),
)  # fmt: skip
def test_breaking_a_line_loses_nothing(words: list[str], width: int, hang: int | None) -> None:
    """What is printed is what was said, each line within the width, and each in its colours to its end."""
    line = " ".join(words)
    style = Style(color=True, width=width)
    broken = columns.fold(style.warn(line), width, hang)
    assert "".join("".join(map(columns.bare, broken)).split()) == "".join(line.split())
    assert all(columns.cells(one) <= width for one in broken)
    assert all(one.count("\x1b[33m") == one.count("\x1b[0m") for one in broken)


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("/home/ana/src/t/misc-332-fork/work", 22, "/…/misc-332-fork/work"),
        ("~/src/indexer/src/watch.py", 20, "~/…/src/watch.py"),
        ("/home/ana/日本語プロジェクト", 22, "/…/日本語プロジェクト"),
        ("6513270e-0000-4000-8000-000000000002", 13, "6513…00000002"),
        ("/x", 2, "/x"),
    ],
)
def test_names_lose_their_middle(name: str, width: int, short: str) -> None:
    """The end of a path tells most; the shortened one still says that it is one."""
    assert columns.middle(name, width) == short and columns.cells(short) <= width


def test_only_our_own_colours_pass_the_last_door() -> None:
    """Also where a view has forgotten to look at a value; and what somebody wrote is not broken."""
    style = Style(color=True, width=20)
    assert finish([style.bad("red") + "\x1b]0;x\x07\x1b[2J"], style) == "\x1b[31mred\x1b[0m^[]0;x^G^[[2J\n"
    assert "\x1b" not in finish(["\x1b[31mred"], Style())
    assert finish([Verbatim("x" * 30)], style) == "x" * 30 + "\n"
    assert finish(["x" * 30], Style(width=20, folds=False)) == "x" * 30 + "\n"


def test_in_ascii_columns_stay_in_place() -> None:
    """Our signs are longer there: what they take is taken from the gap behind them, or from what was cut anyhow."""
    lines = [
        "✓ program      here",
        "  a title that is c…  4 turns",
        "  a title that fits   4 turns",
        "  日本        4 turns",
    ]
    assert finish(lines, Style(utf8=False)).splitlines() == [
        "ok program     here", "  a title that is...  4 turns", "  a title that fits   4 turns",
        "  \\u65e5\\u672c 4 turns",
    ]  # fmt: skip
