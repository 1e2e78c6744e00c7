"""What a tool call does to a file, read out of the call and its result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript import edits
from fabled.transcript.naming import plain
from tests.build import Transcript


def made(tool: str, arguments: dict[str, Any], result: Any = None) -> tuple[edits.Edit, edits.Patch]:
    """The one change of a call, and its diff."""
    (found,) = edits.edits(Transcript().call(tool, arguments))
    return found, edits.patch(found, result)


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "lines", "summary"),
    [
        ("Edit", {"file_path": "/g", "old_string": "a\nb\nc", "new_string": "a\nB\nc"}, "edit",
         ("@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"), "B"),
        ("Edit", {"file_path": "/g", "old_string": "a", "new_string": "b", "replace_all": True}, "edit",
         ("@@ -1 +1 @@", "-a", "+b"), "everywhere: b"),
        ("Write", {"file_path": "/g", "content": "one\ntwo\n"}, "write",
         ("@@ -0,0 +1,2 @@", "+one", "+two"), "whole file, 2 lines"),
        ("MultiEdit", {"file_path": "/g", "edits": [{"old_string": "a", "new_string": "b"},
                                                    {"old_string": "x", "new_string": ""}]}, "edit",
         ("@@ -1 +1 @@", "-a", "+b", "@@ -1 +0,0 @@", "-x"), "2 places: b"),
        ("NotebookEdit", {"notebook_path": "/g", "cell_id": "c4", "new_source": "x = 1"}, "notebook",
         ("@@ -0,0 +1 @@", "+x = 1"), "cell c4: x = 1"),
        ("NotebookEdit", {"notebook_path": "/g", "cell_id": "c4", "edit_mode": "delete", "new_source": ""}, "notebook",
         (), "cell c4 delete"),
        ("str_replace_based_edit_tool", {"command": "insert", "path": "/g", "insert_line": 3, "insert_text": "n"},
         "insert", ("@@ -0,0 +1 @@", "+n"), "line 3: n"),
        ("mcp__files__edit_file", {"path": "/g", "edits": [{"oldText": "a", "newText": "b"}]}, "edit",
         ("@@ -1 +1 @@", "-a", "+b"), "b"),
    ],
)  # fmt: skip
def test_each_tool_s_change(
    tool: str, arguments: dict[str, Any], kind: str, lines: tuple[str, ...], summary: str
) -> None:
    """Tools name the same things differently; the diff and the line of words are alike."""
    edit, patch = made(tool, arguments)
    assert (edit.kind, edit.path, patch.lines, edits.summary(edit, patch)) == (kind, "/g", lines, summary)
    assert patch.added == sum(line.startswith("+") for line in lines)
    assert patch.removed == sum(line.startswith("-") for line in lines)
    assert not patch.placed and edits.may_change(tool)


def test_the_result_knows_the_lines() -> None:
    """A patch in the result has the file's own line numbers; an original lets a whole file be compared."""
    hunk = {"oldStart": 40, "oldLines": 1, "newStart": 40, "newLines": 1, "lines": ["-a", "+b"]}
    call = {"file_path": "/g", "old_string": "a", "new_string": "b"}
    _, patch = made("Edit", call, {"toolUseResult": {"structuredPatch": [hunk]}})
    assert (patch.lines, patch.placed) == (("@@ -40,1 +40,1 @@", "-a", "+b"), True)
    whole = {"file_path": "/g", "content": "a\nc\n"}
    _, patch = made("Write", whole, {"toolUseResult": {"structuredPatch": [], "originalFile": "a\nb\n"}})
    assert (patch.lines, patch.placed) == (("@@ -1,2 +1,2 @@", " a", "-b", "+c"), True)
    _, patch = made("Edit", call, {"toolUseResult": {"structuredPatch": [{"lines": "odd"}]}})
    assert (patch.lines, patch.placed) == (("@@ -1 +1 @@", "-a", "+b"), False)


def test_who_only_reads_changes_nothing() -> None:
    """Readers and shells name files, too."""
    for tool in ("Read", "Grep", "Glob", "LS", "Bash", "mcp__x__get_file", None):
        assert not edits.may_change(tool)
    assert edits.edits(Transcript().call("Read", {"file_path": "/g"})) == []
    assert edits.edits(Transcript().call("Edit", {"old_string": "a", "new_string": "b"})) == []
    view = {"command": "view", "path": "/g"}
    assert edits.edits(Transcript().call("str_replace_based_edit_tool", view)) == []


def test_a_subagent_s_step_in_a_progress_record_is_read_too() -> None:
    """Clients from 2.1.12 to 2.1.50 may have no other copy of it."""
    inner = Transcript().call("Edit", {"file_path": "/g", "old_string": "a", "new_string": "b"})
    record = {"type": "progress", "data": {"type": "agent_progress", "message": inner}}
    assert [edit.path for edit in edits.edits(record)] == ["/g"]


def test_how_a_call_went() -> None:
    """Well, badly with its words, or not known where the record answers another."""
    talk = Transcript()
    call = talk.call("Edit", {"file_path": "/g"}, call="c1")
    result = talk.result(call, "<tool_use_error>not found</tool_use_error>")
    assert edits.outcome(result, "c1") == (True, "")
    result["message"]["content"][0]["is_error"] = True
    assert edits.outcome(result, "c1") == (False, "not found")
    assert edits.outcome(result, "c2") == (None, "")


def test_two_texts_with_nothing_in_common_cost_no_comparison() -> None:
    """Tens of thousands of lines are told as all gone and all come."""
    old, new = "\n".join(f"a{n}" for n in range(9_000)), "\n".join(f"b{n}" for n in range(9_000))
    _, patch = made("Edit", {"file_path": "/g", "old_string": f"same\n{old}", "new_string": f"same\n{new}"})
    assert (patch.added, patch.removed, patch.lines[0]) == (9_000, 9_000, "@@ -2,9000 +2,9000 @@")


texts = st.text(alphabet="ab\n é\r", max_size=40)


@given(texts, texts)
def test_a_diff_leads_from_the_old_text_to_the_new(old: str, new: str) -> None:
    """Putting the hunks' new lines in the place of their old ones gives the new text, line by line."""
    patch = edits.patch(edits.Edit(None, "Edit", "/g", "edit", (edits.Piece(old, new),)))
    a, b = (text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else [] for text in (old, new))
    assert patch.removed - patch.added == len(a) - len(b)
    came: list[str] = []
    at = 0
    for line in patch.lines:
        if line.startswith("@@"):
            first, _, size = line.split()[1][1:].partition(",")
            start = int(first) - (size != "0")
            came += a[at:start]
            at = start
        elif line[0] in " -":
            assert a[at] == line[1:]
            at += 1
            came += [line[1:]] if line[0] == " " else []
        else:
            came.append(line[1:])
    assert came + a[at:] == b


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "file_path",
                "path",
                "old_string",
                "new_string",
                "edits",
                "content",
                "command",
                "new_source",
                "cell_id",
                "insert_line",
            ]
        ),
        st.text(max_size=5) | st.integers() | st.none() | st.lists(st.text(max_size=3)),
        max_size=6,
    )
)
def test_any_input_is_read(arguments: dict[str, Any]) -> None:
    """Odd arguments never raise."""
    for edit in edits.edits(Transcript().call("Edit", arguments)):
        assert isinstance(edits.summary(edit, edits.patch(edit, {"toolUseResult": arguments})), str)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("mend the gate", "mend the gate"),
        ("<command-message>r</command-message> <command-name>/review</command-name> <command-args>12</command-args>",
         "/review 12"),
        ("<command-message>gsd:quick</command-message>", "/gsd:quick"),
        ("<task-notification> <task-id>b1</task-id> <summary>Build is done</summary>", "task: Build is done"),
        ("<task-notification> <task-id>b1</task-id>", "task b1"),
        ("<ide_opened_file>The user opened x.</ide_opened_file> mend it", "mend it"),
        ("<ide_selection>x = 1</ide_selection><system-reminder>be brief</system-reminder>\nmend it", "mend it"),
        ("<system-reminder>The user named it gate</system-reminder>", "The user named it gate"),
        ("<bash-input>make</bash-input>", "! make"),
        ("<bash-stdout>built</bash-stdout><bash-stderr></bash-stderr>", "built"),
        ("\n<command-message>o is running…</command-message>\n<command-name>/o</command-name>\n<command-args>look at\n"
         "<b> @x</command-args>", "/o look at\n<b> @x"),
        ("Implement the following plan:\n\n# Plan: Mend the gate\n\n## Context\nIt creaks.", "Mend the gate"),
        ("implement the following plan: # Gate ## Context It creaks.", "Gate"),
        ("Implement the following plan: mend it", "Implement the following plan: mend it"),
        ("why is <command-name> in titles", "why is <command-name> in titles"),
        ("a <b> c", "a <b> c"),
    ],
)  # fmt: skip
def test_a_title_is_what_was_said(text: str, title: str) -> None:
    """The client's tags around it go; a text without them stays as it is."""
    assert plain(text) == title
