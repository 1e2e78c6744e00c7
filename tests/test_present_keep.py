"""What a person reads about captures, generations, prunes, restores and diffs, at any width."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fabled import present
from fabled.present.columns import cells
from fabled.present.terminal import Style

NOW = 1_794_494_460.0  # 2026-11-12 14:41 UTC
PLAIN = Style(color=False, width=100, utf8=True, now=NOW, home="/home/ana")
SESSION = "6513270e-0000-4000-8000-000000000002"
EVIL = "\x1b]0;evil\x07\u202e"


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


def kept(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "session_id": SESSION, "project": "/home/ana/src/indexer", "part": "", "generation": f"v{number}-{kind}",
        "number": number, "kind": kind, "path": f"/vault/v{number}", "logical_bytes": 38_400_000, "bytes": 11_300_000,
        "sha256": "ab", "at": NOW - 60, "reason": "asked for", "retired": False, **more,
    }  # fmt: skip


PLAN = {
    "session_id": SESSION, "level": "standard", "applied": False, "before_bytes": 38_400_000, "after_bytes": 15_000_000,
    "rules": [
        {"rule": "S1", "reason": "older images", "records": 31, "bytes": 17_900_000},
        {"rule": "S2", "reason": "the middle of long older tool results", "records": 118, "bytes": 4_600_000},
        {"rule": "G1", "reason": "progress records, which the model never sees", "records": 2940, "bytes": 900_000},
    ],
    "est_tokens_before": 412_000, "est_tokens_after": 200_000, "generation": None, "refused": [],
    "invariants": [{"id": f"I{n}", "ok": True, "message": ""} for n in range(1, 18)], "windows": {}, "notes": [],
    "seconds": 2.14,
}  # fmt: skip
GENERATIONS = {
    "session_id": SESSION,
    "generations": [
        kept(0, "raw", at=1_793_610_720, logical_bytes=61_000_000, records=14_870, full=14_870, only=2_201),
        kept(1, "pruned", records=11_642, full=9_780, only=0, reason="before a prune"),
        kept(2, "raw", retired=True),
        kept(0, "raw", part="subagents/agent-a1", bytes=1_000, logical_bytes=2_000),
    ],
    "live": [
        {
            "session_id": SESSION, "path": "/x", "bytes": 15_000_000, "at": NOW, "records": 8_702, "full": 5_400,
            "only": 3,
        },
    ],
}  # fmt: skip
BACK = {
    "session_id": SESSION, "what": "restore", "applied": False, "path": "/home/ana/.claude/projects/x/6513.jsonl",
    "source": "v3", "before_bytes": 15_000_000, "after_bytes": 38_418_200, "lines_restored": 11_642, "lines_kept": 12,
    "side_files": [], "refused": [], "generation": None, "est_tokens_before": 200_000, "est_tokens_after": 412_000,
}  # fmt: skip
DIFF = {
    "session_id": SESSION, "a": "v3-raw", "b": "live", "before_bytes": 38_400_000, "after_bytes": 15_000_000,
    "removed": {"records": 2940, "bytes": 900_000, "tokens": 0},
    "reduced": {"records": 149, "bytes": 22_500_000, "tokens": 212_000},
    "added": {"records": 0, "bytes": 0, "tokens": 0},
    "threads": [
        {
            "thread": "7c41e0aa-0000-4000-8000-000000000001", "title": "fix lost events after sleep",
            "last_ts": 1_794_400_000_000, "removed": {"records": 0, "bytes": 0, "tokens": 0},
            "reduced": {"records": 31, "bytes": 17_900_000, "tokens": 4_500},
            "added": {"records": 0, "bytes": 0, "tokens": 0},
            "blocks": [
                {"id": "9f02ab3c-0000-4000-8000-0000000051d7#message.content.0.content.1", "what": "image",
                 "bytes": 17_200_000, "tokens": 1_500, "reason": "older images"},
            ],
            "blocks_total": 31,
        },
        {
            "thread": None, "title": "records that belong to no thread", "last_ts": None,
            "removed": {"records": 2940, "bytes": 900_000, "tokens": 0},
            "reduced": {"records": 0, "bytes": 0, "tokens": 0}, "added": {"records": 0, "bytes": 0, "tokens": 0},
            "blocks": [], "blocks_total": 0,
        },
    ],
}  # fmt: skip


def test_a_plan_says_what_each_rule_takes_and_how_to_do_it() -> None:
    assert present.text("prune", PLAN, PLAIN) == (
        "Plan for 6513270e  (standard, 38.4 MB)\n"
        "\n"
        "  rule                                          records    saved  of file\n"
        "  older images                                       31  17.9 MB   46.6 %\n"
        "  the middle of long older tool results             118   4.6 MB   12.0 %\n"
        "  progress records, which the model never sees    2,940   900 kB    2.3 %\n"
        "  ───────────────────────────────────────────────────────────────────────\n"
        "  after                                                    15 MB  -60.9 %\n"
        "  context: ~412.0k tok → ~200.0k tok on resume\n"
        "\n"
        "  ✓ proven: 17 invariants hold for the result\n"
        "  ✓ every byte goes into the Vault first, and is read back there\n"
        "\n"
        "Nothing was changed.  Do it:  fabled prune 6513270e --level standard --apply\n"
    )


def test_a_prune_that_was_done_says_how_to_undo_it() -> None:
    text = present.text("prune", {**PLAN, "applied": True, "generation": "v3-raw"}, PLAIN)
    assert "38.4 MB → 15 MB  (-60.9 %)   2.1 s\n" in text
    assert "Kept as v3-raw.   Undo:  fabled undo 6513270e --apply\n" in text and "Nothing was changed" not in text


def test_a_refusal_gives_every_reason_and_that_nothing_changed() -> None:
    refused = [
        {"code": "busy", "message": "a client is at work in it (pid 9182)"},
        {"code": "small", "message": "tiny."},
    ]
    text = present.text("prune", {**PLAN, "rules": [], "invariants": [], "refused": refused}, PLAIN)
    assert text == "Refused: a client is at work in it (pid 9182).\nRefused: tiny.\nNothing was changed.\n"
    planned = present.text("prune", {**PLAN, "refused": refused}, PLAIN)
    assert planned.startswith("Plan for") and planned.endswith(text) and "Do it" not in planned


def test_a_broken_invariant_is_named() -> None:
    broken = [{"id": "I6", "ok": False, "message": "a call lost its result"}, {"id": "I1", "ok": True, "message": ""}]
    text = present.text(
        "prune", {**PLAN, "invariants": broken, "refused": [{"code": "invariant", "message": "x"}]}, PLAIN
    )
    assert "✗ I6: a call lost its result" in text and "proven" not in text


def test_the_states_of_a_session_stand_in_columns() -> None:
    assert present.text("generations", GENERATIONS, PLAIN) == (
        "   gen        written          size   packed  records  full  note\n"
        "   v0-raw     02 Nov 09:12    61 MB  11.3 MB   14,870  100%  only copy of 2,201 records, asked for\n"
        "   v1-pruned  14:40         38.4 MB  11.3 MB   11,642   84%  before a prune\n"
        "▸  live       14:41           15 MB        —    8,702   62%  only copy of 3 records\n"
        "1 generation of 1 file beside it, 2 kB (1 kB packed)\n"
        "1 older generation removed: newer ones begin with all their bytes\n"
    )


def test_all_sessions_are_one_line_each() -> None:
    value = {"session_id": None, "generations": GENERATIONS["generations"], "live": []}
    text = present.text("generations", value, PLAIN)
    assert "6513270e" in text and "v1-pruned" in text and "~/src/indexer" in text
    assert "3 generations of 1 session" in text and "fabled generations 6513270e" in text
    assert "The Vault is empty" in present.text("generations", {"session_id": None, "generations": []}, PLAIN)


def test_a_capture_tells_what_is_kept_and_what_failed() -> None:
    one = {
        "session_id": SESSION, "generations": [kept(0, "raw"), kept(0, "raw", part="subagents/agent-a1")],
        "unchanged": 1, "retired": ["/x"], "failed": [{"path": "/home/ana/x.jsonl", "reason": "no space"}],
    }  # fmt: skip
    value = {
        "sessions": [one],
        "captured": 2,
        "unchanged": 1,
        "bytes": 22_600_000,
        "logical_bytes": 76_800_000,
        "seconds": 0.61,
    }
    assert present.text("capture", value, PLAIN) == (
        "6513270e  v0-raw and 1 file beside it  76.8 MB  (22.6 MB packed)\n"
        "2 files kept, 76.8 MB (22.6 MB packed) in 0.6 s; 1 unchanged.\n"
        "1 older generation removed: newer ones begin with all their bytes\n"
        "not kept: ~/x.jsonl: no space\n"
    )
    nothing = present.text("capture", {"sessions": [], "captured": 0, "unchanged": 3, "seconds": 0.0}, PLAIN)
    assert nothing == "Nothing to keep: 3 files unchanged since the last time in 0.0 s.\n"


def test_a_dry_restore_names_the_command_that_was_asked_for() -> None:
    asked = {"session": "651327@v3", "full": False, "to": None}
    text = present.text("restore", {**BACK, "asked": asked}, PLAIN)
    assert text == (
        "Would put back v3 of 6513270e into ~/.claude/projects/x/6513.jsonl\n"
        "  15 MB → 38.4 MB, 11,642 lines put back, 12 lines written since stay\n"
        "  context: ~200.0k tok → ~412.0k tok on resume\n"
        "Nothing was changed.  Do it:  fabled restore 651327@v3 --apply\n"
    )
    asked = {"session": "651327", "full": True, "to": "my notes.jsonl"}
    full = present.text("restore", {**BACK, "source": "full", "asked": asked}, PLAIN)
    assert "everything that was ever kept of" in full
    assert full.endswith("Do it:  fabled restore 651327 --full --to 'my notes.jsonl' --apply\n")


def test_an_undo_that_is_refused_says_why() -> None:
    refused = [{"code": "nothing", "message": "no prune of it is there to be undone"}]
    value = {**BACK, "what": "undo", "before_bytes": 0, "after_bytes": 0, "refused": refused}
    assert present.text("undo", value, PLAIN) == (
        "Refused: no prune of it is there to be undone.\nNothing was changed.\n"
    )
    done = present.text("undo", {**BACK, "what": "undo", "applied": True, "generation": "v4-pruned"}, PLAIN)
    assert done.startswith("Put back v3 of ") and "kept as v4-pruned" in done and "Nothing was" not in done


def test_a_diff_names_blocks_that_open() -> None:
    """Ids are shortened to what `block` still takes, never cut to the width."""
    text = present.text("diff", DIFF, replace(PLAIN, width=60))
    assert "6513270e  v3-raw → live   38.4 MB → 15 MB  (-60.9 %)" in text
    assert "fix lost events after sleep" in text and "records that belong to no thread" in text
    assert text.count("9f02ab3c#message.content.0.content.1") == 2
    assert "and 30 smaller ones (--limit 0 shows all)" in text
    same = present.text("diff", {**DIFF, "removed": {}, "reduced": {}, "threads": []}, PLAIN)
    assert same.endswith("No record differs.\n")


def test_a_sound_prune_is_said_so_and_a_broken_one_counted() -> None:
    checks = [{"id": "I14", "ok": True, "tested": 200, "failed": 0, "message": "every marker resolves"}]
    assert present.text("prune_check", {"checks": checks}, PLAIN).endswith("The last prune is sound.\n")
    bad = [*checks, {"id": "I18", "ok": False, "tested": 1, "failed": 1, "message": "mtime differs"}]
    text = present.text("prune_check", {"checks": bad}, PLAIN)
    assert "✗ I18" in text and text.endswith("1 check failed.\n")


VALUES: list[tuple[str, dict[str, Any]]] = [
    ("prune", PLAN), ("generations", GENERATIONS), ("generations", {**GENERATIONS, "session_id": None}),
    ("restore", BACK), ("undo", BACK), ("diff", DIFF),
    ("capture", {"sessions": [{"session_id": SESSION, "generations": [kept(0, "raw")]}], "captured": 1}),
]  # fmt: skip


@pytest.mark.parametrize("method, value", VALUES)
@pytest.mark.parametrize("width", [20, 40, 71, 80, 200])
def test_tables_fit_the_terminal(method: str, value: dict[str, Any], width: int) -> None:
    """Rows of tables are no wider than the terminal; sentences, commands and ids may be, they wrap."""
    lines = present.text(method, value, replace(PLAIN, width=width)).splitlines()
    wide = [line for line in lines if cells(line) >= max(width, 48)]
    assert [
        line for line in wide if line.startswith(("   v", "▸  live", "   gen", "  rule", "  older", "session "))
    ] == []


def poisoned(value: Any) -> Any:
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, dict):
        return {key: poisoned(one) for key, one in value.items()}
    return [poisoned(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("method, value", VALUES)
@pytest.mark.parametrize("form", ["text", "plain"])
def test_nothing_in_a_value_steers_the_terminal(method: str, value: dict[str, Any], form: str) -> None:
    text = present.text(method, poisoned(value), replace(PLAIN, form=form))
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert present.text(method, value, replace(PLAIN, utf8=False)).isascii()


@pytest.mark.parametrize("method", ["capture", "generations", "prune", "prune_check", "restore", "undo", "diff"])
def test_an_empty_value_is_no_fault(method: str) -> None:
    """A daemon of another version may leave out what this one would tell."""
    assert present.text(method, {}, PLAIN)


def test_plain_lists_generations_as_rows() -> None:
    rows = present.text("generations", GENERATIONS, replace(PLAIN, form="plain")).splitlines()
    assert len(rows) == 4
    assert rows[0].split("\t")[:3] == [SESSION, "", "v0-raw"] and rows[2].split("\t")[7] == "yes"
