"""Transcripts of every shape stay sound when they are pruned, and a second prune finds nothing."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabled.transcript import proof
from tests.build import Transcript, line, make_uuid
from tests.pruning import (
    LEVELS,
    LONG,
    SHARED,
    blocks,
    check_again,
    check_all,
    image,
    loads,
    prune,
    snapshot,
    split,
    talk,
    yes,
)

# ── any transcript ──────────────────────────────────────────────────────────────────────────────────────────────

SPAN = '<historical_context arcs="ab12">' + "w" * 200 + "</historical_context>"


def step(t: Transcript, choose: random.Random) -> None:
    """One more line, of any kind, hung on any record."""
    known = [record["uuid"] for record in t.records if record.get("uuid")]
    if known and choose.random() < 0.08:
        t.last = choose.choice([*known[-12:], make_uuid("never"), known[0]])
    side = {"isSidechain": True} if choose.random() < 0.05 else {}
    kind = choose.randrange(24)
    if kind < 3:
        t.user(choose.choice(["go on", LONG, [image()], [{"type": "text", "text": SPAN}], SPAN]), **side)
    elif kind < 6:
        t.assistant(choose.choice(["fine", "ok " + SPAN, ""]), **side)
    elif kind < 8:
        t.thinking("hm " * 40, **side)
    elif kind < 12:
        calls = [t.call("Bash", {"n": n}, message=f"msg_{t.count}") for n in range(choose.choice([1, 1, 1, 3]))]
        for call in calls:
            if choose.random() < 0.9:
                body = choose.choice(["ok", LONG, [image(), {"type": "text", "text": LONG}], SPAN + LONG])
                t.result(call, body, toolUseResult=choose.choice([{"stdout": LONG}, {"agentId": "a"}, "e" * 600]))
    elif kind < 16:
        t.add("progress", data=choose.choice([{}, {"type": "hook_progress", "out": "x" * 300}]), **side)
    elif kind == 16:
        t.add("attachment", attachment={"type": choose.choice(["prompt_snapshot", "file"]), "x": "s" * 900})
    elif kind == 17:
        t.put(snapshot(choose.choice([*known[-3:], "m"]), {choose.choice("ab"): choose.choice([1, 2])}, t.count))
    elif kind == 18 and t.lines:
        t.raw(choose.choice(t.lines[-4:]))
    elif kind == 19 and len(t.lines) > 1:
        t.raw(
            choose.choice(
                [t.lines[-1] + t.lines[-2], t.lines[-1][: choose.randrange(len(t.lines[-1]) + 1)], b"", b"\0"]
            )
        )
    elif kind == 20:
        t.put({"type": "last-prompt", "lastPrompt": "x", "leafUuid": choose.choice([*known[-8:], make_uuid("none")])})
    elif kind == 21:
        t.add(choose.choice(["system", "brand-new"]), subtype="turn_duration")
    elif kind == 22 and known and choose.random() < 0.5:
        _compact(t, choose, known)
    elif kind == 23 and known:
        t.put({**choose.choice([record for record in t.records if record.get("uuid")]), "version": "2.1.201"})


def _compact(t: Transcript, choose: random.Random, known: list[str]) -> None:
    """A compaction that preserves the end of the chain, or says so and names what is not there."""
    parents = {record["uuid"]: record.get("parentUuid") for record in t.records if record.get("uuid")}
    chain = [t.last] if t.last in parents else [known[-1]]
    while len(chain) < choose.randrange(1, 5) and parents.get(chain[-1]) in parents:
        chain.append(parents[chain[-1]])
    names = [str(name) for name in reversed(chain)]
    summary = t.compact("the summary")
    record = t.records[-2]
    if choose.random() < 0.7:
        if choose.random() < 0.1:
            names.insert(0, make_uuid("lost"))
        record["compactMetadata"] = {
            "preservedSegment": {"headUuid": names[0], "anchorUuid": summary["uuid"], "tailUuid": names[-1]},
            "preservedMessages": {"anchorUuid": summary["uuid"], "uuids": names, "allUuids": names},
        }
        t.lines[-2] = line(record)
        t.last = names[-1]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 160), st.integers(0, 40))
def test_no_transcript_loses_what_it_must_keep(seed: int, steps: int, turns: int) -> None:
    """Trees, gaps, compactions, parallel calls, subagents, glued and torn lines: every level leaves them sound."""
    choose = random.Random(seed)
    t = Transcript(salt=str(seed))
    for _ in range(steps):
        step(t, choose)
    talk(t, turns)
    check_all(split(t.data))


# ── the shared evidence ─────────────────────────────────────────────────────────────────────────────────────────

CASES = sorted(path.parent.name for path in (SHARED / "cases" / "prune").glob("*/input.jsonl"))
MUTANTS = int(os.environ.get("FABLED_FUZZ", "60"))
FILES = sorted(str(path.relative_to(SHARED)) for path in (SHARED / "transcripts").rglob("*.jsonl"))


def padding(parent: str | None, megabytes: float = 1.0) -> list[bytes]:
    """A long talk that goes on from a record."""
    t = Transcript(session=make_uuid("padding"))
    t.last = parent
    size = 0
    while size < megabytes * 1_000_000 or t.count < 200:
        t.user(f"question {t.count}")
        t.result(t.call("Bash", {"command": "make"}), LONG, toolUseResult={"stdout": LONG})
        t.assistant(f"answer {t.count}")
        size += sum(map(len, t.lines[-4:]))
    return split(t.data)


@pytest.mark.skipif(not CASES, reason="the shared cases are not beside this project")
@pytest.mark.parametrize("name", CASES)
def test_the_cases_hold_alone_and_inside_a_long_transcript(name: str) -> None:
    """Each case by itself, with a megabyte behind it, and with one before it."""
    data = (SHARED / "cases" / "prune" / name / "input.jsonl").read_bytes()
    lines = split(data if data.endswith(b"\n") else data + b"\n")
    check_all(lines)
    main = [obj for raw in lines if (obj := loads(raw)) and obj.get("uuid") and not obj.get("isSidechain")]
    check_all([*lines, *padding(main[-1]["uuid"])])
    long = padding(None)
    check_all([*long, *lines])


@pytest.mark.skipif(not FILES, reason="the shared transcripts are not beside this project")
def test_the_shared_transcripts_are_pruned_once() -> None:
    """Every transcript at every level: nothing it must keep is lost, and a second run finds nothing."""
    for name in FILES:
        data = (SHARED / name).read_bytes()
        lines = split(data if data.endswith(b"\n") else data + b"\n")
        check_all(lines)


@pytest.mark.skipif(not FILES, reason="the shared transcripts are not beside this project")
def test_shared_transcripts_with_faults_are_pruned_soundly() -> None:
    """Lines gone, doubled, swapped or torn; records hung elsewhere, of another type, with another's uuid or blocks."""
    files = [name for name in FILES if (SHARED / name).stat().st_size < 100_000]
    for seed in range(MUTANTS):
        choose = random.Random(seed)
        lines = split((SHARED / choose.choice(files)).read_bytes().rstrip(b"\n") + b"\n")
        for _ in range(choose.randint(1, 6)):
            mutate(lines, choose)
        for level in LEVELS:
            done = prune(lines, level)
            refused = proof.prove(
                lambda lines=lines: lines,  # type: ignore[misc]
                lambda done=done: done.after,  # type: ignore[misc]
                done.plan,
                done.outcome.changes,
                proof.Proven(vaulted=yes),
            )
            assert [(one.id, one.message) for one in refused if not one.ok] == [], f"mutant {seed}, {level}"
            check_again(done)


def mutate(lines: list[bytes], choose: random.Random) -> None:
    """One fault in a transcript."""
    here, there = choose.randrange(len(lines)), choose.randrange(len(lines))
    kind = choose.randrange(9)
    one, other = loads(lines[here]), loads(lines[there])
    if kind == 0 and len(lines) > 9:
        del lines[here : here + choose.choice([1, 1, 5])]
    elif kind == 1:
        lines.insert(there, lines[here])
    elif kind == 2:
        lines[here], lines[there] = lines[there], lines[here]
    elif kind == 3:
        lines[here] = lines[here][: choose.randrange(len(lines[here]))] + b"\n"
    elif one and other:
        if kind == 4:
            one["parentUuid"] = choose.choice([other.get("uuid"), None])
        elif kind == 5:
            one["isSidechain"] = not one.get("isSidechain")
        elif kind == 6 and other.get("uuid"):
            one["uuid"] = other["uuid"]
        elif kind == 7:
            one["type"] = other.get("type")
        elif type(one.get("message")) is dict:
            one["message"]["content"] = choose.choice([blocks(one)[1:], blocks(one) + blocks(other), ""])
        lines[here] = line(one) + b"\n"


@pytest.mark.skipif(not CASES, reason="the shared cases are not beside this project")
def test_the_cases_lose_what_they_may() -> None:
    """What each rule takes from the cases that are about it."""
    wanted = {"01-progress-in-chain": ("gentle", "G1"), "71-snapshot-flood": ("gentle", "G3")}
    wanted |= {"27-preserved-segment-before-boundary": ("standard", "S3")}
    wanted |= {"17-thinking-only-record": ("aggressive", "A1"), "47-cut-in-emoji": ("standard", "S2")}
    for name, (level, rule) in wanted.items():
        lines = split((SHARED / "cases" / "prune" / name / "input.jsonl").read_bytes())
        main = [obj for raw in lines if (obj := loads(raw)) and obj.get("uuid") and not obj.get("isSidechain")]
        done = prune([*lines, *padding(main[-1]["uuid"], 0.0)], level)  # type: ignore[arg-type]
        own = {obj["uuid"] for obj in main} | {None}
        counts = Counter(r for change in done.outcome.changes if change.uuid in own for r in change.rules)
        assert counts[rule] > 0, name
