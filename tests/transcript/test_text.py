"""Searched is what was said in a record: not copies of it, not pictures, not what was recalled into it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fabled.transcript import text as t
from fabled.transcript.record import loads, uuid_bytes
from tests.build import Transcript, make_uuid

ARC, OTHER = make_uuid("arc"), make_uuid("other arc")
OPEN = f'<historical_context source="fabled" arcs="{ARC},{OTHER}" nonce="5d1c0e77">'
CLOSE = "</historical_context>"


def facts(record: dict[str, Any] | bytes) -> t.Facts:
    """What is known of a record once it has gone through a file."""
    data = (
        record if isinstance(record, bytes) else json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )
    return t.facts(loads(data), b"historical_context" in data)


def talk() -> Transcript:
    return Transcript(session=make_uuid("text"))


def said(content: Any, **more: Any) -> t.Facts:
    """A prompt with some content."""
    return facts(talk().user(content, **more))


def attachment(**body: Any) -> dict[str, Any]:
    return talk().add("attachment", attachment=body)


def words(f: t.Facts) -> str:
    """Everything of a record that a search may find."""
    return f"{f.text}\n{f.thinking}\n{f.parts}"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAANSUhEUg"}}
DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJ"}}


# What kind of record it is, and what of it is searched


def call(tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return talk().call(tool, arguments, **more)


def result(content: Any, **more: Any) -> dict[str, Any]:
    story = talk()
    story.user("go")
    return story.result(story.call("Bash", {"command": "ls"}), content, **more)


KINDS: dict[str, tuple[dict[str, Any], int, str]] = {
    "a prompt": (talk().user("why is the porch light on"), t.PROMPT, "why is the porch light on"),
    "a prompt in blocks": (
        talk().user([{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}]),
        t.PROMPT,
        "one\ntwo",
    ),
    "a reply": (talk().assistant("because of the sensor"), t.REPLY, "because of the sensor"),
    "a reply of another model": (
        talk().add("assistant", message={"role": "assistant", "model": "<synthetic>", "content": "limit"}),
        t.REPLY,
        "limit",
    ),
    "a call": (
        call("Bash", {"command": "make all", "timeout": 5, "description": "build"}),
        t.CALL,
        "Bash\nmake all\nbuild",
    ),
    "a call with a deep input": (
        call("Edit", {"a": {"b": [{"c": "deep"}, "er"]}, "d": "flat"}),
        t.CALL,
        "Edit\ndeep\ner\nflat",
    ),
    "a call without input": (call("Noop", {}), t.CALL, "Noop\n"),
    "a result": (result("total 0"), t.RESULT, "total 0"),
    "a result in blocks": (
        result([{"type": "text", "text": "seen"}, IMAGE, {"type": "text", "text": "twice"}]),
        t.RESULT,
        "seen\ntwice",
    ),
    "a result and a word": (
        talk().add(
            "user",
            message={
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"}, {"type": "text", "text": "w"}],
            },
        ),
        t.RESULT,
        "r\nw",
    ),
    "a steering message": (talk().queue("also look at the hinge"), t.QUEUED, "also look at the hinge"),
    "a queued command": (
        attachment(type="queued_command", prompt="check the latch", commandMode="prompt"),
        t.QUEUED,
        "check the latch",
    ),
    "a queued command in blocks": (
        attachment(type="queued_command", prompt=[{"type": "text", "text": "latch"}, IMAGE]),
        t.QUEUED,
        "latch",
    ),
    "a queued notification": (
        talk().queue("<task-notification><task-id>b1</task-id></task-notification>"),
        t.NOTICE,
        "<task-notification><task-id>b1</task-id></task-notification>",
    ),
    "a compaction's summary": (talk().compact("so far: hinges"), t.SUMMARY, "so far: hinges"),
    "an away summary": (
        talk().add("system", subtype="away_summary", content="you were away: hinges"),
        t.SUMMARY,
        "you were away: hinges",
    ),
    "a local command": (
        talk().add("system", subtype="local_command", content="<command-name>/cost</command-name>"),
        t.COMMAND,
        "<command-name>/cost</command-name>",
    ),
    "a slash command": (
        talk().user("<command-name>/model</command-name>\n<command-args>opus</command-args>"),
        t.COMMAND,
        "<command-name>/model</command-name>\n<command-args>opus</command-args>",
    ),
    "a shell line": (talk().user("<bash-input>ls -la</bash-input>"), t.COMMAND, "<bash-input>ls -la</bash-input>"),
    "a caveat": (talk().user("Caveat: The messages below were generated", isMeta=True), t.COMMAND, ""),
    "a caveat in its tag": (
        talk().user("<local-command-caveat>Caveat: The messages below</local-command-caveat>"),
        t.COMMAND,
        "",
    ),
    "a caveat somebody typed": (talk().user("Caveat: mind the step"), t.PROMPT, "Caveat: mind the step"),
    "what a skill put in": (
        talk().user([{"type": "text", "text": "Base directory"}], isMeta=True),
        t.NOTICE,
        "Base directory",
    ),
    "an opened file": (
        talk().user("<ide_opened_file>a.py</ide_opened_file>"),
        t.NOTICE,
        "<ide_opened_file>a.py</ide_opened_file>",
    ),
    "an opened file and words": (
        talk().user("<ide_opened_file>a.py</ide_opened_file>\nwhy"),
        t.PROMPT,
        "<ide_opened_file>a.py</ide_opened_file>\nwhy",
    ),
    "an opened file and a block": (
        talk().user([{"type": "text", "text": "<ide_selection>x</ide_selection>"}, {"type": "text", "text": "why"}]),
        t.PROMPT,
        "<ide_selection>x</ide_selection>\nwhy",
    ),
    "an interrupt": (
        talk().user([{"type": "text", "text": "[Request interrupted by user]"}]),
        t.NOTICE,
        "[Request interrupted by user]",
    ),
    "a notification": (
        talk().user("<task-notification>\n<task-id>b7</task-id>\ndone"),
        t.NOTICE,
        "<task-notification>\n<task-id>b7</task-id>\ndone",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_record_is_known_by_what_it_says(name: str) -> None:
    """A record's kind and its searched text follow from its content, not from its type alone."""
    record, kind, text = KINDS[name]
    found = facts(record)
    assert (found.kind, found.text) == (kind, text)


def test_thinking_is_searched_apart_from_what_was_said() -> None:
    """Thoughts go into their own column; an empty one with only a signature says nothing."""
    found = facts(talk().thinking("perhaps the fuse"))
    assert (found.kind, found.text, found.thinking) == (t.THINKING, "", "perhaps the fuse")
    assert (facts(talk().thinking("")).kind, words(facts(talk().thinking("")))) == (t.OTHER, "\n\n")


SILENT: dict[str, dict[str, Any]] = {
    "a result's copy": result(
        "kept", toolUseResult={"stdout": "lapwing", "file": {"content": "lapwing"}, "originalFile": "lapwing"}
    ),
    "an MCP result's copy": result("kept", toolUseResult=[{"type": "text", "text": "lapwing"}]),
    "an error's copy": result("kept", toolUseResult="Error: lapwing"),
    "a last prompt": {"type": "last-prompt", "lastPrompt": "lapwing", "sessionId": make_uuid("text")},
    "a title": {"type": "ai-title", "aiTitle": "lapwing", "sessionId": make_uuid("text")},
    "a title given": {"type": "custom-title", "customTitle": "lapwing", "sessionId": make_uuid("text")},
    "a summary line": {"type": "summary", "summary": "lapwing", "leafUuid": make_uuid("leaf")},
    "a mode": {"type": "mode", "mode": "lapwing"},
    "a link": {"type": "pr-link", "prUrl": "https://example.org/lapwing", "prNumber": 7},
    "a snapshot": {"type": "file-history-snapshot", "snapshot": {"trackedFileBackups": {"lapwing": {}}}},
    "a type never seen": {"type": "quantum-note", "note": "lapwing", "uuid": make_uuid("q")},
    "a hook's progress": talk().add("progress", data={"type": "hook_progress", "command": "lapwing"}),
    "a shell's progress": talk().add(
        "progress", data={"type": "bash_progress", "output": "lapwing", "fullOutput": "lapwing"}
    ),
    "a skill listing": attachment(type="skill_listing", content="lapwing"),
    "a file": attachment(type="file", filename="lapwing", content={"file": {"content": "lapwing"}}),
    "a hook's context": attachment(type="hook_additional_context", content=["lapwing"], hookEvent="SessionStart"),
    "a hook's output": attachment(type="hook_success", content="lapwing", stdout="lapwing", stderr="lapwing"),
    "a stop hook": talk().add("system", subtype="stop_hook_summary", hookInfos=[{"command": "lapwing"}]),
    "a boundary": talk().add("system", subtype="compact_boundary", content="lapwing"),
    "a taken queue entry": {"type": "queue-operation", "operation": "remove", "content": "lapwing"},
    "a request's copy": {"type": "api-request-blob", "messages": [{"role": "user", "content": "lapwing"}]},
    "a signature": talk().add(
        "assistant",
        message={"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "lapwing"}]},
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_bookkeeping_and_copies_are_not_searched(name: str) -> None:
    """What repeats other text, or was said by nobody, is no hit of its own."""
    assert "lapwing" not in words(facts(SILENT[name]))


def test_a_result_is_searched_by_its_head_only() -> None:
    """Of a long tool result the first characters are searched, of a tool's input the first two thousand."""
    assert facts(result("x" * 600)).text == "x" * t.RESULT_HEAD
    assert len(facts(call("Write", {"content": "y" * 5_000})).text) == len("Write\n") + t.INPUT_HEAD
    assert len(said("z" * 200_000).text) == t.TEXT_LIMIT


def test_a_subagents_step_copied_into_the_session_is_searched() -> None:
    """A progress record may hold the only copy of a subagent's work; the task's prompt in it is left out."""
    nested = {
        "type": "assistant",
        "uuid": make_uuid("n"),
        "message": {"role": "assistant", "content": [{"type": "text", "text": "found the leak"}]},
    }
    step = {
        "type": "agent_progress",
        "prompt": "find the leak",
        "agentId": "a1b2c3d",
        "message": nested,
        "normalizedMessages": [],
    }
    found = facts(talk().add("progress", data=step, parentToolUseID="toolu_1"))
    assert (found.kind, found.text, found.sidechain, found.spawned) == (t.REPLY, "found the leak", True, "a1b2c3d")
    asked = {**step, "message": {"type": "user", "message": {"role": "user", "content": "find the leak"}}}
    assert words(facts(talk().add("progress", data=asked))) == "\n\n"


@pytest.mark.parametrize(
    ("subtype", "name", "number"),
    [("custom-title", "customTitle", 1), ("ai-title", "aiTitle", 2), ("summary", "summary", 3)],
)
def test_titles_are_kept_apart(subtype: str, name: str, number: int) -> None:
    """A title belongs to its session, or to the one that owns the leaf it names."""
    leaf = make_uuid("leaf")
    assert facts({"type": subtype, name: "  Porch lights ", "leafUuid": leaf}).title == (
        number,
        "Porch lights",
        uuid_bytes(leaf),
    )
    assert facts({"type": subtype, name: 7}).title is None
    assert facts({"type": subtype, name: "  "}).title is None


# Shapes


SHAPES: list[tuple[Any, str]] = [
    ("plain", "plain"),
    ([{"type": "text", "text": "list"}], "list"),
    ({"type": "text", "text": "object"}, "object"),
    (None, ""),
    ([], ""),
    ({}, ""),
    (7, ""),
    (True, ""),
    (["bare", 7, None, ["nested list"], True], "bare"),
    ([{"type": "text"}], ""),
    ([{"type": "text", "text": 7}], ""),
    ([{"text": "no type"}], "no type"),
    ([{"type": ["text"], "text": "odd type"}], "odd type"),
    ([{"type": "tool_result", "tool_use_id": "x"}], ""),
    ([{"type": "tool_result", "tool_use_id": 7, "content": None}], ""),
    (
        [{"type": "tool_result", "tool_use_id": "x", "content": {"type": "text", "text": "object result"}}],
        "object result",
    ),
    ([{"type": "tool_result", "content": ["bare", 1, {"type": "text", "text": "and block"}]}], "bare\nand block"),
    ([{"type": "tool_result", "content": [IMAGE, DOCUMENT, {"type": "text", "text": "caption"}]}], "caption"),
    ([IMAGE, DOCUMENT], ""),
    ([{"type": "tool_use", "name": 7, "id": None, "input": "raw"}], "raw"),
    ([{"type": "tool_use"}], ""),
    ([{"type": "thinking", "thinking": None}], ""),
    ([[{"type": "text", "text": "list in list"}]], ""),
]


@pytest.mark.parametrize(("content", "text"), SHAPES)
def test_content_of_any_shape_is_read(content: Any, text: str) -> None:
    """Strings, lists, single objects, nulls and nonsense give their text and no exception (case A14)."""
    assert said(content).text == text
    assert facts(talk().add("assistant", message={"role": "assistant", "content": content})).text == text


@pytest.mark.parametrize(
    "message",
    [
        "message as text",
        None,
        7,
        [],
        [{"type": "text", "text": "in a list"}],
        {},
        {"role": "user"},
        {"content": "no role"},
    ],
)
@pytest.mark.parametrize("kind", ["user", "assistant", "progress", "attachment", "system", "note", None, 7, ["user"]])
def test_a_message_of_any_shape_is_read(kind: Any, message: Any) -> None:
    """A record whose message, type or data is something else is still a record."""
    f = facts(
        {
            "type": kind,
            "message": message,
            "uuid": 7,
            "parentUuid": ["x"],
            "timestamp": 12,
            "attachment": message,
            "data": message,
            "content": message,
        }
    )
    assert f.uuid is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "text", "tool_use", "tool_result", OPEN, CLOSE, "iVBORw0K"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                (
                    "type uuid parentUuid message content text input name id data attachment prompt operation subtype "
                    "toolUseResult thinking agentId"
                ).split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=14,
)


@given(
    st.dictionaries(
        st.sampled_from(
            (
                "type uuid sessionId parentUuid timestamp message attachment data content isMeta forkedFrom promptId "
                "cwd agentId"
            ).split()
        ),
        json_values,
    ),
    st.sampled_from("user assistant progress attachment system queue-operation summary x".split()),
)
@settings(max_examples=100, deadline=None)
@example(
    {
        "message": {
            "content": [
                {
                    "type": "tool_use",
                    "name": "\ud800",
                    "id": "\ud800",
                    "input": {"file_path": "\ud800", "prompt": "\udfff"},
                }
            ]
        },
        "agentId": "\ud83d",
        "promptId": "\ud83d",
        "sessionId": "\ud83d",
        "cwd": "\ud83d",
        "forkedFrom": {"sessionId": "\ud83d"},
    },
    "assistant",
)
@example(
    {
        "toolUseResult": {"agentId": "\ud83d"},
        "promptId": "\ud83d",
        "forkedFrom": {"sessionId": "\ud83d"},
        "message": {"content": [{"type": "tool_result", "tool_use_id": "\ud83d"}]},
    },
    "user",
)
@example({"customTitle": "\ud83d"}, "custom-title")
def test_whatever_a_record_holds_can_be_stored(record: dict[str, Any], kind: str) -> None:
    """Every text taken from a record, of any shape, is valid Unicode, and nothing of it raises."""
    f = facts({**record, "type": kind})
    for text in (
        f.session,
        f.type,
        f.prompt,
        f.agent,
        f.cwd,
        f.forked_from,
        f.tool,
        f.text,
        f.thinking,
        f.parts,
        *f.files,
        *f.citations,
        *(f.title or ())[1:2],
    ):
        if text is not None:
            text.encode()


def test_a_picture_is_never_searched() -> None:
    """Base64 lies in six places of a transcript, and none of them is text."""
    record = result(
        [IMAGE, {"type": "text", "text": "a cat"}],
        toolUseResult={"type": "image", "file": {"base64": "iVBORw0KGgoAAAANSUhEUg"}},
    )
    for found in (
        facts(record),
        said([IMAGE, DOCUMENT]),
        facts(call("Show", {"image": IMAGE["source"]})),
        said({"type": "image", "source": IMAGE["source"]}),
    ):
        assert "iVBORw0K" not in words(found)
        assert "JVBERi0x" not in words(found)


# What a record links to


def test_links_are_read_from_where_clients_put_them() -> None:
    """A record tells its call, what it answers, whom it launched, what it touched and whose copy it is."""
    story = talk()
    story.user("go")
    task = story.call("Task", {"prompt": "count the birds", "description": "d"}, call="toolu_t")
    back = story.result(task, "done", toolUseResult={"agentId": "a1b2c3d", "status": "completed"})
    edit = story.call("Edit", {"file_path": "/x/app.py", "path": "/x"}, call="toolu_e")
    assert (facts(task).tool, list(facts(task).calls), list(facts(task).task_prompts)) == (
        "Task",
        ["toolu_t"],
        ["count the birds"],
    )
    assert (facts(back).answers, facts(back).spawned, facts(back).source) == ("toolu_t", "a1b2c3d", None)
    assert list(facts(edit).files) == ["/x/app.py", "/x"]
    fork = facts(story.add("user", message={"content": "x"}, forkedFrom={"sessionId": "s1", "messageUuid": "m"}))
    assert fork.forked_from == "s1"
    done = facts(
        story.user("<task-notification><task-id>b1</task-id><tool-use-id>toolu_t</tool-use-id></task-notification>")
    )
    assert list(done.notified) == ["b1", "toolu_t"]


def test_only_the_root_of_a_sidechain_names_the_record_it_came_from() -> None:
    """sourceToolAssistantUUID is on every tool result; it links a subagent only on a sidechain's first record."""
    source = make_uuid("call")
    side = Transcript(session=make_uuid("text"), sidechain=True)
    assert facts(side.user("go", sourceToolAssistantUUID=source)).source == uuid_bytes(source)
    assert facts(side.user("on", sourceToolAssistantUUID=source)).source is None
    assert facts(talk().user("go", sourceToolAssistantUUID=source)).source is None


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("2026-03-02T09:00:01.137Z", 1772442001137),
        ("2026-03-02T09:00:01Z", 1772442001000),
        ("2026-03-02T10:00:01.137+01:00", 1772442001137),
        (None, None),
        ("", None),
        ("yesterday", None),
        (1772442001137, None),
        ("2026-13-02T09:00:01.137Z", None),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_times_are_read_or_left_out(written: Any, ms: int | None) -> None:
    """A timestamp is milliseconds since 1970, an odd one none."""
    assert t.milliseconds(written) == ms


def test_names_are_found_by_their_parts() -> None:
    """The parts of camelCase words are searched beside the words, once each."""
    assert said("getUserName calls HTTPServer and getUserName, not plain").parts.split("\n") == [
        "get User Name",
        "HTTP Server",
    ]
    assert said("no humps here, NOR_HERE").parts == ""


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("word " * 100, 100, 250), ("外" * 100, 60, 200), ("é" * 400, 80, 400), ("", 0, 0), ("🙏" * 100, 50, 400)],
)
def test_tokens_are_estimated_within_a_factor_of_two(text: str, low: int, high: int) -> None:
    """Four ASCII letters or one CJK character are about one token."""
    assert low <= t.estimate(text) <= high


# Recalled passages


STRIPPED: dict[str, tuple[str, str, list[str]]] = {
    "a passage": (f"before {OPEN}quoted{CLOSE} behind", "before  behind", [ARC, OTHER]),
    "two passages": (f"a {OPEN}q{CLOSE} b {OPEN}q{CLOSE} c", "a  b  c", [ARC, OTHER]),
    "one inside another": (
        f"a {OPEN}q <historical_context arcs='{ARC}'>inner{CLOSE} outer{CLOSE} b",
        "a  b",
        [ARC, OTHER],
    ),
    "three deep": (f"a {OPEN}1 {OPEN}2 {OPEN}3{CLOSE} 2{CLOSE} 1{CLOSE} b", "a  b", [ARC, OTHER]),
    "never closed": (f"a {OPEN}q and all the rest", "a ", [ARC, OTHER]),
    "an inner one never closed": (f"a {OPEN}q {OPEN}inner{CLOSE} tail", "a ", [ARC, OTHER]),
    "cut within its tag": (f"a {OPEN[:60]}", "a ", []),
    "a closing tag with nothing open": (f"talk {CLOSE} goes on", f"talk {CLOSE} goes on", []),
    "a stray closing tag in a passage": (f"a {OPEN}q {CLOSE} more of it {CLOSE} b", "a  b", [ARC, OTHER]),
    "the tag without attributes": (
        "the tag <historical_context> is talk </historical_context>.",
        "the tag <historical_context> is talk </historical_context>.",
        [],
    ),
    "the bare tag, then a passage": (
        f"<historical_context> and {OPEN}q{CLOSE} b",
        "<historical_context> and  b",
        [ARC, OTHER],
    ),
    "a name that only begins alike": ('<historical_contexts arcs="x">kept', '<historical_contexts arcs="x">kept', []),
    "escaped for JSON": (
        json.dumps({"additionalContext": f"{OPEN}quoted\n{CLOSE} behind"}),
        '{"additionalContext": " behind"}',
        [ARC, OTHER],
    ),
    "escaped twice": (json.dumps(json.dumps(f"{OPEN}quoted{CLOSE} behind")), '"\\" behind\\""', [ARC, OTHER]),
    "escaped for HTML": ('a &lt;historical_context arcs="x"&gt; q &lt;/historical_context&gt; b', "a  b", []),
    "escaped for HTML, never closed": (
        'a &lt;historical_context arcs="x"&gt; kept',
        'a &lt;historical_context arcs="x"&gt; kept',
        [],
    ),
    "escaped for HTML, without attributes": (
        "&lt;historical_context&gt; kept &lt;/historical_context&gt;",
        "&lt;historical_context&gt; kept &lt;/historical_context&gt;",
        [],
    ),
    "over several lines": (
        f"a\n<historical_context\n  source='x'\n  arcs='{ARC} {OTHER}'\n>\nq\n</historical_context >\nb",
        "a\n\nb",
        [ARC, OTHER],
    ),
    "without arcs": ('a <historical_context source="fabled">q</historical_context> b', "a  b", []),
    "in a reminder": (
        f"<system-reminder>{OPEN}q{CLOSE}</system-reminder> go on",
        "<system-reminder></system-reminder> go on",
        [ARC, OTHER],
    ),
    "in other letters": (f'a <HISTORICAL_CONTEXT ARCS="{ARC}">q</Historical_Context> b', "a  b", [ARC]),
    "shortened ids": (
        'a <historical_context arcs="7c41e0,b20f9a">q</historical_context> b',
        "a  b",
        ["7c41e0", "b20f9a"],
    ),
}


@pytest.mark.parametrize("name", STRIPPED)
def test_a_recalled_passage_is_taken_out(name: str) -> None:
    """What stands around a recalled passage stays; what the passage cites is noted."""
    text, left, cited = STRIPPED[name]
    assert t.strip_recalled(text) == (left, tuple(cited))


quiet = st.text(alphabet=st.sampled_from("abc <>/=\"'\\\n&é外historical_context"), max_size=30)
marker = "QUOTEDQUOTED"


@given(
    quiet, quiet, quiet, st.integers(0, 3), st.booleans(), st.sampled_from(["plain", "json", "json twice", "tag cut"])
)
@settings(max_examples=300, deadline=None)
def test_nothing_of_a_passage_stays(before: str, inside: str, behind: str, depth: int, closed: bool, how: str) -> None:
    """However a passage is nested, escaped or left open, none of its words remains, and what stood before it does."""
    assume("<historical_context" not in (before + behind + inside).lower() and "</" not in inside + behind)
    passage = OPEN * (depth + 1) + inside + marker + (CLOSE * (depth + 1) if closed else "")
    if how == "tag cut":
        passage = OPEN[:-8] + marker
    text = before + passage + behind
    if how.startswith("json"):
        text = json.dumps(text, ensure_ascii=False)
    if how == "json twice":
        text = json.dumps(text, ensure_ascii=False)
    left, refs = t.strip_recalled(text)
    assert marker not in left
    assert how != "plain" or left.startswith(before)
    assert how != "plain" or not closed or left == before + behind
    assert how == "tag cut" or set(refs) >= {ARC, OTHER}


@given(
    st.lists(
        st.sampled_from([OPEN, CLOSE, "<historical_context>", "x", "<", ">", OPEN[:30], '\\"', "\n"]), max_size=40
    ).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_stripping_is_done_at_once(text: str) -> None:
    """Stripping what has been stripped changes nothing, and only leaves pieces of what was there."""
    left, _ = t.strip_recalled(text)
    assert t.strip_recalled(left)[1] == () or "<" in text
    assert len(left) <= len(text)


CARRIERS: dict[str, dict[str, Any]] = {
    "a tool result": result(f"{OPEN}lapwing{CLOSE} own words"),
    "a tool result in blocks": result(
        [{"type": "text", "text": f"own words {OPEN} lapwing"}, {"type": "text", "text": f"lapwing {CLOSE}"}]
    ),
    "a tool result never closed": result(f"own words {OPEN} lapwing " + "lapwing " * 100),
    "a prompt": talk().user(f"{OPEN}lapwing{CLOSE} own words"),
    "a prompt's second block": talk().user(
        [{"type": "text", "text": f"own words {OPEN}"}, {"type": "text", "text": "lapwing"}]
    ),
    "a reply": talk().assistant(f"own words {OPEN}lapwing{CLOSE}"),
    "a call's input": call("Bash", {"command": f"echo own words '{OPEN}lapwing{CLOSE}'"}),
    "a queued text": talk().queue(f"own words {OPEN}lapwing"),
    "a summary": talk().compact(f"own words {OPEN}lapwing{CLOSE}"),
    "a local command": talk().add("system", subtype="local_command", content=f"own words {OPEN}lapwing{CLOSE}"),
}


@pytest.mark.parametrize("name", CARRIERS)
def test_no_carrier_brings_a_recalled_passage_into_search(name: str) -> None:
    """Wherever a passage comes back, its words are not searched, the words around it are, and it is cited."""
    found = facts(CARRIERS[name])
    assert "lapwing" not in words(found)
    assert "own words" in words(found)
    assert list(found.citations) == [ARC, OTHER]


def test_a_thought_may_quote_too() -> None:
    """A passage in thinking is stripped from it."""
    found = facts(talk().thinking(f"own words {OPEN}lapwing{CLOSE}"))
    assert found.thinking == "own words "
    assert list(found.citations) == [ARC, OTHER]


@pytest.mark.parametrize(
    "record",
    [
        attachment(type="hook_additional_context", content=[f"{OPEN}lapwing{CLOSE}"], hookEvent="UserPromptSubmit"),
        attachment(type="hook_additional_context", content=["x"], rendered=f"{OPEN}lapwing"),
        attachment(
            type="hook_success",
            stdout=json.dumps({"hookSpecificOutput": {"additionalContext": f"{OPEN}lapwing{CLOSE}"}}),
            content="",
        ),
        result("x", toolUseResult=[{"type": "text", "text": f"{OPEN}lapwing{CLOSE}"}]),
        {
            "type": "api-request-blob",
            "body": json.dumps({"messages": [{"content": f"{OPEN}lapwing{CLOSE}"}]}),
            "sessionId": "s",
        },
    ],
)
def test_what_is_not_searched_still_cites(record: dict[str, Any]) -> None:
    """Hook context, raw hook output and copies of requests tell what was recalled, though they are no hits."""
    found = facts(record)
    assert list(found.citations) == [ARC, OTHER]
    assert "lapwing" not in words(found)


def test_a_title_made_from_recalled_text_is_not_kept() -> None:
    """A passage that found its way into a title is taken out of it."""
    assert facts({"type": "summary", "summary": f"Hinges {OPEN}lapwing{CLOSE}", "leafUuid": make_uuid("l")}).title == (
        3,
        "Hinges",
        uuid_bytes(make_uuid("l")),
    )
    assert facts({"type": "ai-title", "aiTitle": f"{OPEN}lapwing"}).title is None


def test_stripping_a_long_text_is_linear() -> None:
    """Thousands of opening tags cost no more than their number."""
    text = (OPEN + "x") * 4_000 + CLOSE * 3_999
    assert t.strip_recalled("a" + text) == ("a", (ARC, OTHER))
    assert t.strip_recalled("<historical_context " * 20_000)[0] == ""
    assert t.strip_recalled("&lt;historical_context a" * 20_000)[1] == ()
    assert t.strip_recalled("</historical_context" * 20_000)[0] == "</historical_context" * 20_000
