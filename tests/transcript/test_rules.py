"""What each rule of pruning takes, and what none of them ever touches."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fabled.errors import Refused
from fabled.transcript import rules, splice, stub
from fabled.transcript.rules import Limits
from tests.build import Transcript, line, make_uuid
from tests.pruning import LONG, blocks, check, check_again, image, loads, no, old, prune, snapshot, split, talk, yes

# ── gentle ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_progress_goes_and_its_children_name_the_nearest_kept_ancestor() -> None:
    """G1 takes a run of progress records out of the chain and closes it."""
    t = Transcript()
    first = t.user("build it")
    for _ in range(3):
        t.add("progress", data={"type": "hook_progress"})
    reply = t.assistant("built")
    done = prune(old(t))
    check(done)
    assert done.text(reply["uuid"])["parentUuid"] == first["uuid"]
    assert [change.rules for change in done.outcome.changes if change.drop] == [("G1",)] * 3


def test_progress_above_everything_stays_without_its_data() -> None:
    """A record that has a parent never becomes a root: the topmost progress record stays, empty."""
    t = Transcript()
    top = t.add("progress", data={"type": "hook_progress", "output": "x" * 100})
    t.add("progress", data={"type": "hook_progress"})
    prompt = t.user("hello")
    done = prune(old(t))
    check(done)
    assert done.text(top["uuid"])["data"] == {}
    assert done.text(prompt["uuid"])["parentUuid"] == top["uuid"]


def test_progress_under_a_parent_that_was_never_written_stays() -> None:
    """A gap stays as it is and where it is: its record neither becomes a root nor moves."""
    t = Transcript()
    t.user("one")
    step = t.add("progress", parent=make_uuid("never written"), data={"x": 1})
    reply = t.assistant("two")
    done = prune(old(t))
    check(done)
    assert done.text(step["uuid"])["parentUuid"] == make_uuid("never written")
    assert done.text(reply["uuid"])["parentUuid"] == step["uuid"]


def test_the_last_record_stays_even_if_it_is_progress() -> None:
    """A running client goes on from the last record it wrote."""
    t = Transcript()
    talk(t, 3)
    t.add("progress", data={"type": "hook_progress", "output": "x" * 500})
    done = prune(split(t.data))
    check(done)
    assert done.after == done.before


def test_a_child_that_names_its_parent_oddly_keeps_it() -> None:
    """Where the parentUuid cannot be edited by itself, or only in more bytes, the parent stays, empty."""
    t = Transcript()
    top = t.add("system", uuid="request_" + "9" * 60, subtype="local_command", content="x")
    step = t.add("progress", data={"type": "hook_progress"})
    t.user("below an ancestor with a long name")
    other = t.add("progress", data={"type": "hook_progress"})
    doubled = t.user("below one, with the key twice")
    t.lines[-1] = t.lines[-1].replace(b'{"parentUuid"', b'{"parentUuid":null,"parentUuid"')
    done = prune(old(t))
    check_again(done)
    assert done.text(step["uuid"])["data"] == {}
    assert done.text(step["uuid"])["parentUuid"] == top["uuid"]
    assert done.text(other["uuid"])["data"] == {}
    assert t.lines[-1 - 80] + b"\n" in done.after
    assert doubled["parentUuid"] == other["uuid"]


def test_sidecars_go_whole_or_not_at_all() -> None:
    """G2 takes a big toolUseResult outside the UI window, but none that leads to a subagent or a background task."""
    t = Transcript()
    t.user("go")
    results = {}
    for name, sidecar in (
        ("big", {"stdout": "y" * 600}),
        ("small", {"stdout": "y"}),
        ("agent", {"agentId": "a1", "content": "y" * 600}),
        ("nested", {"task": {"task_id": "b"}, "content": "y" * 600}),
        ("list", [{"type": "text", "text": "y" * 600}]),
        ("words", "Error: " + "y" * 600),
    ):
        call = t.call("Bash", {"command": name})
        results[name] = t.result(call, "fine", toolUseResult=sidecar)
    done = prune(old(t))
    check(done)
    left = [name for name, record in results.items() if "toolUseResult" in done.text(record["uuid"])]
    assert left == ["small", "agent", "nested"]
    recent = Transcript()
    recent.user("go")
    recent.result(recent.call("Bash", {}), "fine", toolUseResult={"stdout": "y" * 600})
    assert prune(split(recent.data)).plan.changes == ()


def test_a_snapshot_goes_only_for_a_later_one_that_holds_it() -> None:
    """G3 compares by message and by every entry; other kinds of file history are left alone."""
    t = Transcript()
    message = t.user("edit")["uuid"]
    one, two = {"version": 1}, {"version": 2}
    t.put(snapshot(message, {"a": one}))
    t.put(snapshot(message, {"a": one, "b": one}, 1))
    t.put(snapshot(message, {"a": two}, 2))
    t.put(snapshot("another", {"a": one}, 3))
    t.put({"type": "file-history-delta", "messageId": message, "snapshot": {"messageId": message}})
    done = prune(split(t.data))
    check(done)
    assert [(change.line, change.rules) for change in done.outcome.changes] == [(1, ("G3",))]


def test_snapshots_by_the_thousand_cost_no_more_than_their_number() -> None:
    """A flood of updates leaves one per message, also where no one holds the one before."""
    t = Transcript()
    message = t.user("edit")["uuid"]
    for number in range(3000):
        t.put(snapshot(message, {}, number))
    for number in range(3000):
        t.put(snapshot("other", {str(number): 1}, number))
    done = prune(split(t.data))
    assert len(done.after) == 1 + 1 + 3000
    check_again(done)


def test_a_repeated_line_goes_and_another_text_under_the_uuid_stays() -> None:
    """G4 takes byte-identical copies only; the last record of the chain is none of them."""
    t = Transcript()
    t.user("one")
    t.assistant("two")
    t.raw(t.lines[-1])
    other = t.assistant("three")
    t.put({**other, "timestamp": "2026-01-01T00:00:00.000Z"})
    lines = old(t)
    done = prune([*lines, lines[-1]])
    check(done)
    assert [(change.line, change.rules) for change in done.outcome.changes] == [(2, ("G4",))]


def test_system_prompt_copies_go_outside_the_window() -> None:
    """G5 takes attachment/prompt_snapshot, and no other attachment."""
    t = Transcript()
    first = t.user("one")
    t.add("attachment", attachment={"type": "prompt_snapshot", "body": "z" * 5000})
    listing = t.add("attachment", attachment={"type": "skill_listing", "content": "z"})
    done = prune(old(t))
    check(done)
    assert done.text(listing["uuid"])["parentUuid"] == first["uuid"]
    assert [change.rules for change in done.outcome.changes] == [("G5",), ("G5",)]


# ── standard ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_images_become_text_that_names_the_block() -> None:
    """S1 puts the marker, the media type and the size in the image's place, also where it is the only block."""
    t = Transcript()
    prompt = t.user([image()])
    result = t.result(t.call("Read", {}), [image(), {"type": "text", "text": "a picture"}])
    done = prune(old(t), "standard")
    check(done)
    (block,) = blocks(done.text(prompt["uuid"]))
    assert block["type"] == "text"
    found = re.fullmatch(r"(\[fabled block .*\]) image/png, 3072 bytes", block["text"])
    assert found
    raw = line(prompt)
    start, end = splice.find(raw, ("message", "content", 0)) or (0, 0)
    assert found[1] == stub.marker(prompt["uuid"], ("message", "content", 0), raw[start:end])
    inner = blocks(done.text(result["uuid"]))[0]["content"]
    assert f"{result['uuid']}#message.content.0.content.0 " in inner[0]["text"]
    assert inner[1] == {"type": "text", "text": "a picture"}


def test_a_long_result_keeps_its_ends() -> None:
    """S2 keeps the first and the last quarter of the limit at a line's edge, the marker between."""
    t = Transcript()
    one = t.result(t.call("Bash", {}), LONG)
    two = t.result(t.call("Bash", {}), [{"type": "text", "text": "é😀" * 3000}])
    done = prune(old(t), "standard")
    check(done)
    head, mark, tail = re.split(r"\n(\[fabled block [^\]]*\])\n", blocks(done.text(one["uuid"]))[0]["content"])
    assert LONG.startswith(head + "\n")
    assert LONG.endswith("\n" + tail)
    assert 256 <= len(head) <= 512
    assert 256 <= len(tail) <= 512
    raw = line(one)
    path = ("message", "content", 0, "content")
    start, end = splice.find(raw, path) or (0, 0)
    assert mark == stub.marker(one["uuid"], path, raw[start:end])
    text = blocks(done.text(two["uuid"]))[0]["content"][0]["text"]
    assert text.startswith("é😀" * 256 + "\n[fabled block")


def test_results_that_matter_whole_stay_whole() -> None:
    """Errors, answers of the user, and what a microcompaction has dealt with are not cut."""
    t = Transcript()
    error = t.result(t.call("Bash", {}), LONG)
    error["message"]["content"][0]["is_error"] = True
    t.lines[-1] = line(error)
    t.result(t.call("AskUserQuestion", {}), LONG)
    t.result(t.call("Bash", {}, call="toolu_cleared"), LONG)
    t.add("system", subtype="microcompact_boundary", microcompactMetadata={"compactedToolIds": ["toolu_cleared"]})
    assert prune(old(t), "standard").plan.changes == ()


def test_a_marker_of_ours_is_kept_when_the_text_is_cut_again() -> None:
    """A stronger level shortens the ends; the marker goes on naming the block as it was at first."""
    t = Transcript()
    record = t.result(t.call("Bash", {}), LONG)
    first = prune(old(t), "standard")
    mark = stub.MARKER.search(blocks(first.text(record["uuid"]))[0]["content"])
    assert mark
    second = prune(first.after, "aggressive", dict(first.plan.windows))
    check(second)
    check_again(second)
    text = blocks(second.text(record["uuid"]))[0]["content"]
    assert mark[0] in text
    assert len(text) < 512
    assert text.count("[fabled block") == 1


def test_a_quoted_marker_is_plain_text() -> None:
    """A marker that the Vault does not know, or that names another place, is cut like any other words."""
    t = Transcript()
    quote = f"see [fabled block {make_uuid('else')}#message.content 9B sha256:0123456789ab]\n"
    record = t.result(t.call("Bash", {}), "x" * 600 + quote + LONG)
    lines = old(t)
    forged = f"[fabled block {record['uuid']}#message.content.0.content 9B sha256:0123456789ab]"
    lines[1] = lines[1].replace(quote[:-1].encode(), forged.encode())
    for vaulted in (yes, no):
        done = prune(split(t.data), "standard", vaulted=vaulted)
        text = blocks(done.text(record["uuid"]))[0]["content"]
        assert quote[:-1] not in text
    text = blocks(prune(lines, "standard", vaulted=no).text(record["uuid"]))[0]["content"]
    assert forged not in text
    assert text.count("[fabled block") == 1


def compacted(preserved: bool = True) -> tuple[Transcript, dict[str, Any]]:
    """A compaction that keeps the last exchange by reference."""
    t = Transcript()
    t.put({"type": "custom-title", "customTitle": "x", "sessionId": t.session})
    talk(t, 30, "old")
    t.call("Bash", {"command": "old"})
    t.result(t.records[-1], LONG)
    head = t.assistant("kept by reference")
    tail = t.assistant("and this")
    names = [head["uuid"], tail["uuid"]]
    meta: dict[str, Any] = {"trigger": "auto", "preTokens": 9}
    boundary = t.compact("the summary of what was before")
    place = len(t.lines) - 2
    record = t.records[place]
    if preserved:
        meta["preservedSegment"] = {"headUuid": names[0], "anchorUuid": boundary["uuid"], "tailUuid": names[1]}
        meta["preservedMessages"] = {"anchorUuid": boundary["uuid"], "uuids": names, "allUuids": names}
    record["compactMetadata"] = meta
    t.lines[place] = line(record)
    if preserved:
        t.last = tail["uuid"]
    return t, head


def test_what_a_compaction_replaced_goes() -> None:
    """S3 keeps what the boundary preserves, in order, and the head goes on naming its parent."""
    t, head = compacted()
    talk(t, 2)
    done = prune(split(t.data), "standard")
    check(done)
    check_again(done)
    assert [(loads(raw) or {}).get("type") for raw in done.after[:5]] == [
        "custom-title",
        "assistant",
        "assistant",
        "system",
        "user",
    ]
    assert done.text(head["uuid"]) == head


def test_a_message_with_parts_on_both_sides_of_a_compaction_stays_whole() -> None:
    """The client puts the parts of one message together, and finds them by its id alone."""
    t, part = compacted(preserved=False)
    t.assistant("the other part", message=part["message"]["id"])
    talk(t, 2)
    done = prune(split(t.data), "standard")
    check(done)
    assert done.text(part["uuid"])["message"] == part["message"]


def test_a_rewind_to_before_a_compaction_keeps_its_chain() -> None:
    """Behind the boundary a record hangs on one before it: all its ancestors stay."""
    t, _ = compacted(preserved=False)
    t.user("back to the start", parent=t.records[6]["uuid"])
    talk(t, 2)
    done = prune(split(t.data), "standard")
    check(done)
    assert [done.text(record["uuid"]) is not None for record in t.records[1:9]] == [True] * 6 + [False] * 2


def test_a_call_answered_behind_a_compaction_stays() -> None:
    """Call and result share one fate; the call hangs on the topmost of its ancestors then."""
    t = Transcript()
    talk(t, 30, "old")
    call = t.call("Bash", {})
    t.compact("the summary")
    t.result(call, "late", parent=t.last)
    talk(t, 2)
    done = prune(split(t.data), "standard")
    check(done)
    assert done.text(call["uuid"]) == {**call, "parentUuid": t.records[0]["uuid"]}


def test_recalled_passages_are_cited() -> None:
    """S4 replaces complete spans in texts, results and hook outputs, and leaves the unclosed and the merely named."""
    t = Transcript()
    span = '<historical_context source="fabled" arcs="ab12,cd34">long ago <historical_context arcs="ef56">x' + "y" * 99
    span += "</historical_context></historical_context>"
    cite = '<consulted_arcs refs="ab12,cd34,ef56"/>'
    said = t.assistant(f"before {span} after")
    only = t.user(span)
    result = t.result(t.call("recall", {}), [{"type": "text", "text": span}])
    hook = t.add(
        "attachment",
        attachment={
            "type": "hook_additional_context",
            "content": [span],
            "stdout": json.dumps({"hookSpecificOutput": {"additionalContext": span}}),
        },
        rendered=[{"content": f"hook: {span}"}],
    )
    left = t.user('about <historical_context> and </historical_context>, and <historical_context arcs="a">never closed')
    done = prune(old(t), "standard")
    check(done)
    check_again(done)
    assert blocks(done.text(said["uuid"]))[0]["text"] == f"before {cite} after"
    assert done.text(only["uuid"])["message"]["content"] == cite
    assert blocks(done.text(result["uuid"]))[0]["content"][0]["text"] == cite
    body = done.text(hook["uuid"])
    assert body["attachment"]["content"] == [cite]
    assert json.loads(body["attachment"]["stdout"]) == {"hookSpecificOutput": {"additionalContext": cite}}
    assert body["rendered"][0]["content"] == f"hook: {cite}"
    assert done.text(left["uuid"]) == left


def test_a_recall_inside_a_long_result_is_cited_before_the_cut() -> None:
    """One edit does both, and there is nothing left for the next run."""
    t = Transcript()
    span = '<historical_context arcs="ab">' + "z" * 300 + "</historical_context>\n"
    record = t.result(t.call("recall", {}), span + LONG + span)
    done = prune(old(t), "standard")
    check(done)
    check_again(done)
    text = blocks(done.text(record["uuid"]))[0]["content"]
    assert text.count('<consulted_arcs refs="ab"/>') == 2
    assert done.plan.changes[0].rules == ("S2", "S4")


# ── aggressive ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_thinking_goes_in_whole_blocks() -> None:
    """A1 takes a record of nothing but thinking out of the chain, a block out of a mixed one, and never edits one."""
    t = Transcript()
    prompt = t.user("why")
    thought = t.thinking("because " * 50)
    reply = t.assistant("so")
    mixed = t._say([{"type": "redacted_thinking", "data": "q"}, {"type": "text", "text": "said"}])
    blank = t._say([{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": " "}])
    lines = old(t)
    recent = t.thinking("just now")
    lines = split(t.data)
    done = prune(lines, "aggressive")
    check(done)
    assert done.text(thought["uuid"]) is None
    assert done.text(reply["uuid"])["parentUuid"] == prompt["uuid"]
    assert blocks(done.text(mixed["uuid"])) == [{"type": "text", "text": "said"}]
    assert done.text(blank["uuid"]) == blank
    assert done.text(recent["uuid"]) == recent
    assert prune(lines, "standard").plan.changes == ()


def test_usage_is_lowered_only_for_a_much_smaller_request() -> None:
    """U1 scales the input figures of the newest reply's last record, and nothing else of it."""
    t = Transcript()
    t.result(t.call("Bash", {}), LONG)
    old(t)
    usage = {
        "input_tokens": 1000,
        "cache_read_input_tokens": 500_000,
        "output_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 10},
        "iterations": [{"input_tokens": 9, "output_tokens": 3}],
    }
    said = t.assistant("the end", message="msg_last")
    said["message"]["usage"] = usage
    t.lines[-1] = line(said)
    t.user("thanks")
    lines = split(t.data)
    for lower in (None, 0.81):
        assert prune(lines, "standard", lower=lower).text(said["uuid"]) == said
    done = prune(lines, "standard", lower=0.5)
    check(done)
    check_again(done)
    now = done.text(said["uuid"])["message"]["usage"]
    assert now == {
        "input_tokens": 500,
        "cache_read_input_tokens": 250_000,
        "output_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 5},
        "iterations": [{"input_tokens": 4, "output_tokens": 3}],
    }
    assert list(now) == list(usage)
    assert done.outcome.changes[-1].rules == ("U1",)
    assert prune(lines, "standard", limits=Limits(lower_usage=False), lower=0.5).text(said["uuid"]) == said
    assert prune(lines, "gentle", lower=0.5).text(said["uuid"]) == said


# ── what no rule touches ────────────────────────────────────────────────────────────────────────────────────────


def test_lines_that_are_not_one_record_pass_as_they_are_and_hold_what_they_name() -> None:
    """Glued, torn, NUL-padded and marked lines stay byte for byte; the progress record one of them hangs on, too."""
    t = Transcript()
    t.user("one")
    step = t.add("progress", data={"x": 1})
    glued = [t.user("two"), t.assistant("three")]
    del t.lines[-2:]
    t.raw(line(glued[0]) + line(glued[1]))
    result = t.result(t.call("Bash", {}), LONG, toolUseResult={"stdout": LONG})
    whole = t.lines.pop()
    for odd in (b"\0" * 40 + whole, b"\xef\xbb\xbf" + whole, whole[:-40], b"", b"[]", b"\xff\xfe", b'"x"'):
        t.raw(odd)
    lines = old(t)
    done = prune(lines, "aggressive")
    check(done)
    assert all(raw in done.after for raw in lines[2:11])
    assert done.text(step["uuid"]) == step
    assert result["uuid"] not in {change.uuid for change in done.outcome.changes}


def test_a_last_line_without_its_line_feed_is_left_alone() -> None:
    """Somebody may still be writing it."""
    t = Transcript()
    t.add("progress", parent=None, data={"x": 1})
    t.user("one")
    lines = split(t.data)
    lines[-1] = lines[-1][:-1]
    assert prune(lines).after == lines


def test_carriage_returns_stay() -> None:
    """An edited line ends as it ended."""
    t = Transcript()
    t.user("one")
    t.result(t.call("Bash", {}), LONG, toolUseResult={"stdout": LONG})
    lines = [raw[:-1] + b"\r\n" for raw in old(t)]
    done = prune(lines, "standard")
    check(done)
    assert len(done.outcome.changes) == 1
    assert all(raw.endswith(b"\r\n") for raw in done.after)


def test_another_transcript_than_the_surveyed_one_is_refused() -> None:
    """A plan is carried out on the very lines it was made for."""
    t = Transcript()
    t.user("one")
    t.add("progress", data={"x": 1})
    lines = old(t)
    plan = rules.plan(rules.survey(lines), "gentle", {}, Limits(), yes)
    for wrong in ([b"{}\n", *lines], lines[:1]):
        with pytest.raises(Refused):
            rules.carry_out(wrong, plan, Limits(), yes, None, lambda raw: None)


def test_windows_only_move_forward() -> None:
    """A stored window that begins later counts; one whose record is gone does not; a compaction moves all."""
    t = Transcript()
    talk(t, 50)
    lines = split(t.data)
    names = dict(prune(lines).plan.windows)
    uuids = [record["uuid"] for record in t.records]
    assert {name: uuids.index(uuid) for name, uuid in names.items()} == {"ui": 80, "standard": 40, "aggressive": 70}
    later = {**names, "ui": uuids[90]}
    assert prune(lines, "gentle", later).plan.windows == later
    assert prune(lines, "gentle", {**names, "ui": make_uuid("gone")}).plan.windows == names
    t.compact("all of it")
    boundary = t.records[-2]["uuid"]
    assert set(prune(split(t.data), "gentle", names).plan.windows.values()) == {boundary}


def test_rules_have_their_reasons() -> None:
    """Every rule that can act is told of in words."""
    assert set(rules.RULES) == {"G1", "G2", "G3", "G4", "G5", "S1", "S2", "S3", "S4", "A1", "A2", "U1"}
