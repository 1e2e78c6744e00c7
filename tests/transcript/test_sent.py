"""What the client would send of a transcript, as the real client was seen to send it (tests/test_real_client.py)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from fabled.transcript.said import IMAGE_CHARS, digest
from fabled.transcript.sent import tokens, view
from tests.build import Transcript, line

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def told(lines: list[bytes] | Transcript) -> list[str]:
    """The texts, calls and results that would be sent, in short."""
    raw = lines.data.splitlines(keepends=True) if isinstance(lines, Transcript) else lines
    texts: dict[bytes, str] = {}
    for one in raw:
        for text in _strings(one):
            texts[digest(text)] = text
    short = {"tool_use": "call", "tool_result": "result"}
    return [
        texts[block.digest]
        if block.kind == "text"
        else f"{short.get(block.kind, block.kind)} {block.tool_id or ''}".strip()
        for block in view(raw)
    ]


def _strings(raw: bytes) -> list[str]:
    found: list[str] = []
    rest = raw.decode("utf-8", "replace").lstrip("\ufeff \t")
    while rest.startswith("{"):
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(rest)
        except ValueError:
            break
        rest = rest[end:].lstrip()
        waiting: list[Any] = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                waiting.extend(one.values())
            elif isinstance(one, list):
                waiting.extend(one)
            elif isinstance(one, str):
                found.append(one)
    return found


def talk(turns: int = 2, **more: Any) -> Transcript:
    """Prompts u1, u2… answered by a1, a2…, ten seconds apart."""
    t = Transcript(**more)
    for number in range(1, turns + 1):
        t.user(f"u{number}")
        t.assistant(f"a{number}")
    return t


def uuid(t: Transcript, text: str) -> str:
    """The uuid of the record that says this."""
    return next(r["uuid"] for r in t.records if text in _strings(line(r)))


def late(t: Transcript, seconds: float, after: str) -> dict[str, str]:
    """A timestamp so many seconds after that of a record."""
    moment = next(r["timestamp"] for r in t.records if r.get("uuid") == after)
    later = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return {"timestamp": later.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


# The leaf


def test_the_last_record_in_file_order_is_the_leaf() -> None:
    """Not the latest by its timestamp; the other branch is left out."""
    t = talk()
    t.user("b1", parent=uuid(t, "a1"))
    t.assistant("b2", timestamp="2020-01-01T00:00:00.000Z")
    assert told(t) == ["u1", "a1", "b1", "b2"]


@pytest.mark.parametrize("kind", ["attachment", "system"])
def test_a_leaf_need_not_be_said_by_anyone(kind: str) -> None:
    """A system record or attachment at the end on an older branch chooses that branch."""
    t = talk()
    t.add(kind, parent=uuid(t, "a1"), subtype="turn_duration", attachment={"type": "prompt_snapshot"})
    assert told(t) == ["u1", "a1"]


def test_progress_and_sidechains_are_no_leaf() -> None:
    """They stand last and change nothing."""
    t = talk()
    t.add("progress", parent=uuid(t, "a1"), data={})
    t.add("user", parent=uuid(t, "a1"), isSidechain=True, message={"role": "user", "content": "side"})
    assert told(t) == ["u1", "a1", "u2", "a2"]


def test_a_leaf_has_no_newer_record_below_it() -> None:
    """A parent that stands after its child in the file is not the end."""
    t = talk()
    u1, a1, u2, a2 = t.data.splitlines(keepends=True)
    assert told([u1, a1, a2, u2]) == ["u1", "a1", "u2", "a2"]


def choose(t: Transcript, leaf: str | None) -> None:
    t.put({"type": "last-prompt", "lastPrompt": "x", **({"leafUuid": leaf} if leaf is not None else {})})


def test_last_prompt_chooses_another_branch() -> None:
    """Wherever it stands in the file; the newest one that names a leaf counts."""
    for before in (True, False):
        t = talk()
        a2 = uuid(t, "a2")
        if before:
            choose(t, a2)
        t.user("b1", parent=uuid(t, "a1"))
        t.assistant("b2")
        if not before:
            choose(t, a2)
        choose(t, None)
        assert told(t) == ["u1", "a1", "u2", "a2"]
        choose(t, t.last)
        assert told(t) == ["u1", "a1", "b1", "b2"]


@pytest.mark.parametrize("leaf", ["a1", None, "00000000-0000-0000-0000-000000000000"])
def test_last_prompt_does_not_cut_a_branch(leaf: str | None) -> None:
    """An ancestor of the leaf or an unknown record chooses nothing."""
    t = talk()
    a2 = uuid(t, "a2")
    t.user("b1", parent=uuid(t, "a1"))
    if leaf is not None:
        choose(t, a2)
    choose(t, uuid(t, leaf) if leaf == "a1" else leaf)
    assert told(t) == ["u1", "a1", "b1"]


def test_last_prompt_may_name_a_record_in_mid_branch() -> None:
    """On another branch it counts as it is."""
    t = talk()
    t.user("b1", parent=uuid(t, "a1"))
    choose(t, uuid(t, "u2"))
    assert told(t) == ["u1", "a1", "u2"]


# The chain


def test_a_null_parent_ends_the_chain() -> None:
    """Everything above it is lost."""
    t = talk()
    t.user("u3", parent=None)
    assert told(t) == ["u3"]


@pytest.mark.parametrize(("seconds", "bridged"), [(0, True), (4.9, True), (5.0, True), (5.1, False), (-1, False)])
def test_an_unknown_parent_is_bridged_for_five_seconds(seconds: float, bridged: bool) -> None:
    """By the timestamp of the newest record that is not younger."""
    t = talk()
    t.user("u3", parent="gone", **late(t, seconds, t.last or ""))
    assert told(t) == (["u1", "a1", "u2", "a2"] if bridged else []) + ["u3"]


def test_a_bridge_leads_to_the_newest_record_wherever_it_stands() -> None:
    """Not to the one before in the file; sidechains and progress bear none."""
    t = talk()
    a2 = t.last or ""
    t.user("newest", parent=uuid(t, "a1"), **late(t, 2, a2))
    t.user("older", parent=uuid(t, "u1"), **late(t, 1, a2))
    t.add("progress", **late(t, 3, a2))
    t.add("user", isSidechain=True, parent=None, message={"content": "side"}, **late(t, 3, a2))
    t.user("u3", parent="gone", **late(t, 3, a2))
    assert told(t) == ["u1", "a1", "newest", "u3"]


def test_progress_is_passed_by_if_it_came_first() -> None:
    """A child of progress hangs on the parent of that, but the client reads the file once."""
    t = talk()
    above = t.last
    t.add("progress", data={})
    t.add("progress", data={})
    t.user("u3")
    assert told(t) == ["u1", "a1", "u2", "a2", "u3"]
    late_one = talk()
    late_one.user("u3", parent="progress")
    late_one.put({"type": "progress", "uuid": "progress", "parentUuid": above, "timestamp": "2020-01-01T00:00:00Z"})
    assert told(late_one) == ["u3"]


def test_a_record_of_unknown_type_is_no_link() -> None:
    """Its children hang on nothing."""
    t = talk()
    t.add("newfangled")
    t.user("u3")
    assert told(t) == ["u3"]


def test_a_later_record_of_the_same_uuid_takes_the_place() -> None:
    """Text and parent are those of the later one."""
    t = talk()
    t.put(dict(t.records[0], message={"role": "user", "content": "later"}))
    t.user("u3", parent=uuid(t, "a2"))
    assert told(t) == ["later", "a1", "u2", "a2", "u3"]


def test_a_file_doubled_with_itself_is_the_same() -> None:
    """Copies of every line."""
    t = talk()
    lines = t.data.splitlines(keepends=True)
    assert told(lines + lines) == told(lines)


def test_cycles_end() -> None:
    """A parent that is its own descendant ends the walk."""
    t = talk()
    t.records[0]["parentUuid"] = t.last
    assert told([line(record) + b"\n" for record in t.records]) == ["u1", "a1", "u2", "a2"]
    t.user("u3", uuid="self", parent="self")
    assert told([line(record) + b"\n" for record in t.records]) == ["u3"]


def test_odd_lines() -> None:
    """The first object of a line counts; one behind a mark of order or blanks is read, one behind NUL is not."""
    t = talk()
    u1, a1, u2, a2 = t.data.splitlines()
    assert told([u1, a1, u2 + a2]) == ["u1", "a1", "u2"]
    assert told([u1, a1, u2 + b" xyz", a2]) == ["u1", "a1", "u2", "a2"]
    assert told([b"\xef\xbb\xbf" + u1, a1, b"  " + u2 + b" \r\n", a2]) == ["u1", "a1", "u2", "a2"]
    assert told([u1, a1, b"\0" + u2, a2]) == ["a2"]
    assert told([u1, a1, u2[:-9], a2]) == ["a2"]
    assert told([u1, a1, b"[" + u2 + b"]", b"3", b"", a2]) == ["a2"]


# Compaction


def kept(t: Transcript, names: list[str] | None, segment: tuple[str, str] | None = None) -> None:
    """Compacts, keeping records by reference."""
    t.compact("summary")
    boundary, summary = t.records[-2:]
    meta: dict[str, Any] = {"trigger": "manual"}
    if names is not None:
        meta["preservedMessages"] = {"anchorUuid": summary["uuid"], "uuids": names}
    if segment is not None:
        meta["preservedSegment"] = {"headUuid": segment[0], "anchorUuid": summary["uuid"], "tailUuid": segment[1]}
    boundary["compactMetadata"] = meta


def sent(t: Transcript) -> list[str]:
    return told([line(record) + b"\n" for record in t.records])


def test_the_last_compaction_starts_the_request() -> None:
    """Whatever its parent says."""
    t = talk()
    t.compact("summary")
    t.records[-2]["parentUuid"] = uuid(t, "a2")
    t.user("u3")
    assert sent(t) == ["summary", "u3"]


@pytest.mark.parametrize("by", ["uuids", "segment"])
def test_what_a_compaction_keeps_follows_its_summary(by: str) -> None:
    """By their uuids, or by the first and last of them; what was above them may be gone."""
    t = talk(3)
    names = [uuid(t, "u3"), uuid(t, "a3")]
    kept(t, names if by == "uuids" else None, None if by == "uuids" else (names[0], names[1]))
    t.user("u4")
    assert sent(t) == ["summary", "u3", "a3", "u4"]
    del t.records[:4]
    assert sent(t) == ["summary", "u3", "a3", "u4"]


def test_kept_records_are_sent_only_if_all_are_there() -> None:
    """One missing, and none is sent; the order is that of the list."""
    t = talk(3)
    kept(t, [uuid(t, "a3"), uuid(t, "u1")])
    t.user("u4")
    assert sent(t) == ["summary", "a3", "u1", "u4"]
    del t.records[0]
    assert sent(t) == ["summary", "u4"]


def test_a_compaction_that_keeps_records_forgets_the_others() -> None:
    """A branch off an old record hangs on the last kept one, and last-prompt cannot name an old one."""
    t = talk(3)
    kept(t, [uuid(t, "u3"), uuid(t, "a3")])
    t.user("b1", parent=uuid(t, "a1"))
    choose(t, uuid(t, "a2"))
    assert sent(t) == ["summary", "u3", "a3", "b1"]


def test_a_branch_off_the_time_before_a_plain_compaction_revives_it() -> None:
    """Nothing is kept by reference, so nothing is forgotten."""
    t = talk(2)
    t.compact("summary")
    t.user("b1", parent=uuid(t, "a1"))
    assert sent(t) == ["u1", "a1", "b1"]


def test_a_later_plain_compaction_makes_an_earlier_one_forget() -> None:
    """Where any names what it keeps, what stands before the last one is gone."""
    t = talk(2)
    kept(t, [uuid(t, "a2")])
    t.user("u3")
    old = t.last
    t.compact("second")
    t.user("b1", parent=old)
    assert sent(t) == ["b1"]


def test_progress_between_kept_records_is_passed_by() -> None:
    """A segment leads through it."""
    t = talk(1)
    t.user("u2")
    t.add("progress", data={})
    t.assistant("a2")
    kept(t, None, (uuid(t, "u2"), uuid(t, "a2")))
    t.user("u3")
    assert sent(t) == ["summary", "u2", "a2", "u3"]


# Calls and results


def parallel() -> tuple[Transcript, list[dict[str, Any]]]:
    t = talk(1)
    t.user("u2")
    return t, [t.call("Bash", {"command": str(n)}, call=f"c{n}", message="m") for n in (1, 2, 3)]


@pytest.mark.parametrize("on", [0, 1, 2])
def test_parallel_calls_are_put_back(on: int) -> None:
    """Whichever result the answer hangs on, all calls come first and all results follow in file order."""
    t, calls = parallel()
    results = [t.result(calls[n], f"r{n}") for n in (1, 0, 2)]
    t.assistant("a2", parent=results[on]["uuid"])
    assert told(t)[3:] == ["call c1", "call c2", "call c3", "result c2", "result c1", "result c3", "a2"]


@pytest.mark.parametrize("parent", [None, "gone"])
def test_a_result_is_found_by_its_call(parent: str | None) -> None:
    """Wherever it hangs."""
    t, calls = parallel()
    for n in (0, 1):
        t.result(calls[n], f"r{n}", parent=parent)
    t.result(calls[2], "r2")
    t.assistant("a2")
    assert told(t)[3:] == ["call c1", "call c2", "call c3", "result c1", "result c2", "result c3", "a2"]


def test_other_records_of_a_message_are_put_back() -> None:
    """A text and thinking of the same message off the chain; a prompt there is not."""
    t = talk(1)
    call = t.call("Bash", {}, call="c1", message="m")
    result = t.result(call, "r")
    t.assistant("aside", message="m", parent=call["uuid"])
    t.user("lost", parent=call["uuid"])
    t.user("u2", parent=result["uuid"])
    assert told(t)[2:] == ["aside", "call c1", "result c1", "u2"]


def test_calls_and_results_without_the_other_are_left_out() -> None:
    """With the text of the record that holds the call; what stands beside a lost result stays."""
    t = talk(1)
    t._say([{"type": "text", "text": "look"}, {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}])
    t.user([{"type": "tool_result", "tool_use_id": "c9", "content": "r9"}, {"type": "text", "text": "beside"}])
    t.assistant("a2")
    assert told(t) == ["u1", "a1", "beside", "a2"]


def test_a_call_at_the_end_is_sent() -> None:
    """The client answers it as interrupted."""
    t = talk(1)
    t.call("Bash", {}, call="c1")
    t.add("system", subtype="turn_duration")
    assert told(t) == ["u1", "a1", "call c1"]


def test_a_second_result_or_call_of_the_same_id_is_left_out() -> None:
    """The first one counts."""
    t = talk(1)
    first = t.call("Bash", {}, call="c1")
    t.result(first, "r1")
    t.result(first, "r2", parent=t.last)
    t.call("Bash", {"again": 1}, call="c1")
    t.assistant("a2")
    assert told(t) == ["u1", "a1", "call c1", "result c1", "a2"]


# Blocks


def test_what_is_sent_of_other_records() -> None:
    """Meta prompts and local commands are said, other system records are not."""
    t = talk(1)
    t.user("meta", isMeta=True)
    t.add("system", subtype="local_command", content="<local-command-stdout>x</local-command-stdout>")
    for subtype in ("turn_duration", "stop_hook_summary", "informational", "api_error", "microcompact_boundary"):
        t.add("system", subtype=subtype, content="not said")
    t.user("u2")
    assert told(t) == ["u1", "a1", "meta", "<local-command-stdout>x</local-command-stdout>", "u2"]


def test_attachments_count_as_what_they_hold() -> None:
    """The system prompt and what a hook only printed are not sent."""
    t = talk(1)
    t.add("attachment", attachment={"type": "prompt_snapshot", "systemPrompt": ["be"]})
    t.add("attachment", attachment={"type": "hook_success", "content": "", "stdout": "printed"})
    t.add("attachment", attachment={"type": "hook_success", "content": "said", "stdout": "printed"})
    t.add("attachment", attachment={"type": "queued_command", "prompt": "hurry"})
    t.user("u2")
    assert told(t)[2:-1] == ["attachment/hook_success", "attachment/queued_command"]


def test_blank_replies_and_lone_thinking_are_left_out() -> None:
    """An empty prompt is sent all the same."""
    t = talk(1)
    t.user("")
    t._say([{"type": "text", "text": "\n"}, {"type": "text", "text": "a2"}])
    t.user("u3")
    t._say([THOUGHT])
    t.user("u4")
    t._say([THOUGHT], message="m")
    t.assistant("a4", message="m")
    assert told(t) == ["u1", "a1", "", "a2", "u3", "u4", "thinking", "a4"]


def test_the_clients_own_words_about_a_failed_request_are_not_sent() -> None:
    """Nor do they hide what a model said."""
    t = talk(1)
    t.assistant("API Error", isApiErrorMessage=True)
    assert told(t) == ["u1", "a1", "API Error"]
    t.records[-1]["message"]["model"] = "<synthetic>"
    assert sent(t) == ["u1", "a1"]


def test_tokens_are_a_quarter_of_the_characters() -> None:
    """An image counts a fixed amount, whatever its bytes."""
    t = Transcript()
    t.user("x" * 400)
    assert tokens(view(t.data.splitlines())) == 100
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 999_999}}
    t.user([image, {"type": "text", "text": "x" * 400}])
    assert tokens(view(t.data.splitlines())) == 200 + IMAGE_CHARS // 4


def test_an_empty_transcript_sends_nothing() -> None:
    """Nor does one of sidechains only."""
    assert view([]) == ()
    t = Transcript(sidechain=True)
    t.user("u1")
    assert view(t.data.splitlines()) == ()
