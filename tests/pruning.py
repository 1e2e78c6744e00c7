"""Prunes a transcript in memory and checks what must hold after any prune, whatever went in."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from fabled.transcript import rules, sent, stub
from fabled.transcript.rules import Change, Level, Limits, Outcome, Plan
from tests.build import Transcript

SHARED = (Path(__file__).resolve().parents[2] / "shared").resolve()
LEVELS: tuple[Level, ...] = get_args(Level)
LONG = "".join(f"row {number} of build output\n" for number in range(400))
PICTURE = base64.b64encode(bytes(range(256)) * 12).decode()


def yes(*_: object) -> bool:
    return True


def no(*_: object) -> bool:
    return False


def split(data: bytes) -> list[bytes]:
    """Lines with their line feeds."""
    return data.splitlines(keepends=True) if b"\r" not in data else [x + b"\n" for x in data.split(b"\n")[:-1]]


@dataclass
class Pruned:
    """One prune, before and after."""

    before: list[bytes]
    plan: Plan
    outcome: Outcome
    after: list[bytes]

    @property
    def changed(self) -> dict[int, Change]:
        return {change.line: change for change in self.outcome.changes}

    def kept(self) -> list[tuple[int, bytes, bytes]]:
        """(line, before, after) of each line that stays."""
        out = iter(self.after)
        changed = self.changed
        return [
            (number, raw, next(out))
            for number, raw in enumerate(self.before)
            if number not in changed or not changed[number].drop
        ]

    def text(self, uuid: str) -> Any:
        """A record as it stands afterwards."""
        return next((obj for raw in self.after if (obj := loads(raw)) and obj.get("uuid") == uuid), None)


def prune(
    lines: Sequence[bytes],
    level: Level = "gentle",
    stored: dict[str, str] | None = None,
    limits: Limits | None = None,
    vaulted: stub.Vaulted = yes,
    lower: float | None = None,
) -> Pruned:
    limits = limits or Limits()
    before = list(lines)
    plan = rules.plan(rules.survey(before), level, stored or {}, limits, vaulted)
    after: list[bytes] = []
    outcome = rules.carry_out(before, plan, limits, vaulted, lower, after.append)
    return Pruned(before, plan, outcome, after)


def loads(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def blocks(obj: dict[str, Any] | None) -> list[dict[str, Any]]:
    message = (obj or {}).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def unpaired(lines: Sequence[bytes]) -> set[str]:
    calls: set[str] = set()
    results: set[str] = set()
    for raw in lines:
        for block in blocks(loads(raw)):
            if block.get("type") == "tool_use":
                calls.add(str(block.get("id")))
            elif block.get("type") == "tool_result":
                results.add(str(block.get("tool_use_id")))
    return calls ^ results


def empties(lines: Sequence[bytes]) -> int:
    count = 0
    for raw in lines:
        obj = loads(raw) or {}
        message = obj.get("message")
        content = message.get("content") if isinstance(message, dict) else 0
        count += content in ("", []) or any(
            block.get("content") in ("", []) or (block.get("type") == "text" and not str(block.get("text")).strip())
            for block in blocks(obj)
        )
    return count


def check(done: Pruned) -> None:
    """What must hold after any prune, whatever went in."""
    before, plan = done.before, done.plan
    kept = done.kept()
    assert len(kept) == len(done.after)
    assert sum(map(len, done.after)) == done.outcome.after_bytes
    assert sum(one.bytes for one in done.outcome.rules) == sum(map(len, before)) - done.outcome.after_bytes
    objs = [loads(raw) for raw in before]
    where: dict[str, int] = {}
    for number, obj in enumerate(objs):
        if obj and isinstance(obj.get("uuid"), str):
            where.setdefault(obj["uuid"], number)
    alive = {loads(new)["uuid"] for _, _, new in kept if (loads(new) or {}).get("uuid")}  # type: ignore[index]
    boundary = max((n for n, o in enumerate(objs) if o and o.get("subtype") == "compact_boundary"), default=-1)
    for number, old, new in kept:
        change = done.changed.get(number)
        if change is None:
            assert new == old
            continue
        assert (change.offset, change.length) == (sum(map(len, before[:number])), len(old))
        assert len(new) <= len(old)
        assert new != old
        assert new.endswith(b"\r\n") == old.endswith(b"\r\n")
        was, now = loads(old), loads(new)
        assert was is not None
        assert now is not None
        assert [key for key in was if key in now] == list(now)
        assert set(was) - set(now) <= {"toolUseResult"}
        for key in set(was) & set(now) - {"parentUuid", "message", "data", "attachment", "rendered", "content"}:
            assert now[key] == was[key]
        if was.get("parentUuid") != now.get("parentUuid"):
            up, seen = was["parentUuid"], set()
            while up in where and up not in alive and up not in seen:
                seen.add(up)
                up = objs[where[up]]["parentUuid"]  # type: ignore[index]
            assert now["parentUuid"] == up
            assert up in alive
        thoughts = [one for one in blocks(now) if "thinking" in str(one.get("type"))]
        assert all(one in blocks(was) for one in thoughts)
        said = [one for one in blocks(was) if one.get("type") in ("text", "tool_use") and "<historical" not in str(one)]
        assert [one for one in blocks(now) if one in said] == said
    for number, _, new in kept:
        now, was = loads(new), objs[number]
        if now and was and isinstance(was.get("parentUuid"), str) and was["parentUuid"] in where:
            lost = now["parentUuid"] not in alive
            assert not lost or number < boundary, "a record was left without its parent"
    assert unpaired(done.after) <= unpaired(before)
    assert empties(done.after) <= empties(before)
    last = max((n for n, o in enumerate(objs) if o and isinstance(o.get("uuid"), str)), default=None)
    if last is not None:
        assert before[last] in done.after
    old_view, new_view = sent.view(before), sent.view(done.after)
    if plan.level == "gentle":
        assert new_view == old_view
    else:
        shape = [(one.role, "text" if one.kind == "image" else one.kind, one.tool_id) for one in old_view]
        new_shape = [(one.role, "text" if one.kind == "image" else one.kind, one.tool_id) for one in new_view]
        if plan.level == "aggressive":
            shape = [one for one in shape if "thinking" not in one[1]]
            new_shape = [one for one in new_shape if "thinking" not in one[1]]
        assert new_shape == shape


def check_again(done: Pruned) -> None:
    """A second run with the windows of the first changes nothing."""
    again = prune(done.after, done.plan.level, dict(done.plan.windows))
    assert again.plan.changes == ()
    assert again.after == done.after
    assert again.plan.windows == done.plan.windows


def check_all(lines: Sequence[bytes]) -> None:
    """Each level by itself, and one after the other."""
    for level in LEVELS:
        done = prune(lines, level)
        check(done)
        check_again(done)
    stored: dict[str, str] = {}
    for level in LEVELS:
        done = prune(lines, level, stored)
        check(done)
        check_again(done)
        lines, stored = done.after, dict(done.plan.windows)


def talk(t: Transcript, turns: int, words: str = "and then") -> None:
    """Prompts and replies, enough to push what was before out of every window."""
    for number in range(turns):
        t.user(f"{words} {number}")
        t.assistant(f"{words} {number}, done")


def old(t: Transcript) -> list[bytes]:
    """The transcript with everything so far outside of all windows."""
    talk(t, 40)
    return split(t.data)


def snapshot(message: str, files: dict[str, Any], number: int = 0) -> dict[str, Any]:
    return {
        "type": "file-history-snapshot",
        "messageId": message,
        "snapshot": {"messageId": message, "trackedFileBackups": files, "timestamp": f"t{number}"},
        "isSnapshotUpdate": number > 0,
    }


def image(data: str = PICTURE) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
