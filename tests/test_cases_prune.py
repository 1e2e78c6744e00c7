"""The cases of the users' bug reports on pruning, through every real part, alone and within a large transcript.

What each case is about is tested by its kind in tests/transcript/test_rules.py; here nothing may be lost, whatever
it is.
Skipped where the shared inputs do not lie beside the project.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import make_uuid
from tests.keeping import Keeping
from tests.test_pruner import LEVELS, working_day

CASES = (Path(__file__).resolve().parents[2] / "shared" / "cases" / "prune").resolve()
INPUTS = sorted(CASES.glob("*/input.jsonl")) if CASES.is_dir() else []
pytestmark = pytest.mark.skipif(not INPUTS, reason="the shared cases are not beside this project")
SESSION = make_uuid("case")


@pytest.fixture(scope="module")
def filler() -> bytes:
    """Over a megabyte of an ordinary session."""
    return working_day(20, SESSION, 26_000).data


def settled(home: Keeping, data: bytes, level: str) -> None:
    """Pruned at a level: the invariants hold, every record opens, nothing changes twice, and it comes back whole."""
    path = home.write(SESSION, data)
    records = home.records(path)
    home.index()
    value = home.prune(SESSION, level)
    assert [one for one in value["invariants"] if not one["ok"]] == []
    assert {one["code"] for one in value["refused"]} <= {"nothing"}
    assert home.lost(records) == []
    after = path.read_bytes()
    if value["applied"]:
        assert len(after) < len(data)
        assert home.prune(SESSION, level)["refused"][0]["code"] in ("nothing", "small")
        assert path.read_bytes() == after
        assert all(one["ok"] for one in home.do("prune_check", SESSION)["checks"])
        assert home.do("restore", SESSION, apply=True)["applied"]
    assert path.read_bytes() == data
    assert home.faults() == []


@pytest.mark.parametrize("case", INPUTS, ids=lambda path: path.parent.name)
def test_alone(case: Path, tmp_path: Path) -> None:
    for level in LEVELS:
        home = Keeping(tmp_path / level)
        settled(home, case.read_bytes(), level)
        home.close()


@pytest.mark.parametrize("case", INPUTS, ids=lambda path: path.parent.name)
def test_far_back_in_a_large_transcript(case: Path, filler: bytes, tmp_path: Path) -> None:
    """Outside of every window, where the rules may take all they can."""
    data = case.read_bytes()
    if not data.endswith(b"\n"):
        data += b"\n"
    home = Keeping(tmp_path, FABLED_PRUNE_MIN_BYTES="1000000")
    settled(home, data + filler, "aggressive")
    home.close()


@pytest.mark.parametrize("case", INPUTS, ids=lambda path: path.parent.name)
def test_at_the_end_of_a_large_transcript(case: Path, filler: bytes, tmp_path: Path) -> None:
    home = Keeping(tmp_path, FABLED_PRUNE_MIN_BYTES="1000000")
    settled(home, filler + case.read_bytes(), "standard")
    home.close()
