"""Small histories, each with the thread every record of it belongs to: rules of membership, told as transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.build import Transcript, make_uuid

Record = dict[str, Any]
FOLDER = "-home-ana-app"
STORIES: dict[str, Callable[[], Story]] = {}


@dataclass
class Story:
    """Files in the order a client wrote them, and who belongs where: (session, uuid) → thread key, None: unattached."""

    files: dict[str, Transcript] = field(default_factory=dict)
    threads: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def main(self, name: str, new_style: bool = True, **more: Any) -> Transcript:
        """A session's transcript."""
        talk = Transcript(session=make_uuid(name), new_style=new_style, **more)
        self.files[f"{FOLDER}/{talk.session}.jsonl"] = talk
        return talk

    def agent(self, talk: Transcript, name: str, place: str = "subagents/", beside: bool = False) -> Transcript:
        """A subagent's transcript, in the session's folder or (2.0.x) beside the session."""
        side = Transcript(session=talk.session, new_style=talk.new_style, sidechain=True, agent=name, salt=name)
        self.files[
            f"{FOLDER}/agent-{name}.jsonl" if beside else f"{FOLDER}/{talk.session}/{place}agent-{name}.jsonl"
        ] = side
        return side

    def belong(self, key: str | None, *records: Record, session: str | None = None) -> None:
        """These records are in that thread; None: in none."""
        for record in records:
            self.threads[(session or record["sessionId"], record["uuid"])] = key

    @property
    def data(self) -> dict[str, bytes]:
        return {path: talk.data for path, talk in self.files.items()}


def story(tell: Callable[[], Story]) -> Callable[[], Story]:
    assert tell.__doc__
    STORIES[tell.__name__] = tell
    return tell


def key(record: Record) -> str:
    """The thread a prompt starts."""
    return str(record.get("promptId") or record["uuid"])


def turn(talk: Transcript, text: str = "work") -> list[Record]:
    """A prompt and the usual work for it: thought, call, result, reply."""
    first = talk.user(text)
    thought = talk.thinking("hm", message=f"m{talk.count}")
    call = talk.call("Bash", {"command": "ls"})
    result = talk.result(call, "total 0")
    return [first, thought, call, result, talk.assistant("done")]


def copy_of(
    source: Transcript,
    story: Story,
    name: str,
    count: int | None = None,
    prompt: str | None = None,
    named: bool = False,
) -> Transcript:
    """A fork: the source's first records under another session id; `prompt` overwrites every promptId."""
    fork = story.main(name, source.new_style, salt=name)
    for record in source.records[:count]:
        copied = {**record, "sessionId": fork.session}
        if prompt is not None and "promptId" in copied:
            copied["promptId"] = prompt
        if named:
            copied["forkedFrom"] = {"sessionId": source.session, "messageUuid": record["uuid"]}
        fork.put(copied)
    fork.last, fork.count = fork.records[-1]["uuid"], 100
    return fork


def same(story: Story, records: Iterable[Record], session: str) -> None:
    """Copies belong, in their session, where the originals do in theirs."""
    for record in records:
        story.threads[(session, record["uuid"])] = story.threads[(record["sessionId"], record["uuid"])]


@story
def prompts_with_ids() -> Story:
    """From 2.1.79 on prompts and results carry a promptId; replies take it from their parents."""
    s = Story()
    talk = s.main("ids")
    for text in ("one", "two", "three"):
        records = turn(talk, text)
        s.belong(key(records[0]), *records)
    return s


@story
def prompts_without_ids() -> Story:
    """Before, a thread is its nearest ancestor prompt and is called by that prompt's uuid."""
    s = Story()
    talk = s.main("old", new_style=False)
    for text in ("one", "two"):
        records = turn(talk, text)
        s.belong(records[0]["uuid"], *records)
    return s


@story
def links_of_other_types() -> Story:
    """Progress, system, attachment and unknown records are links of the chain."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"links {style}", style)
        first = talk.user("go")
        links = [
            talk.add("progress", data={"type": "hook_progress"}),
            talk.add("system", subtype="stop_hook_summary"),
            talk.add("attachment", attachment={"type": "task_reminder", "content": []}),
            talk.add("quantum-note", note="x"),
            talk.add("user", isMeta=True, message={"role": "user", "content": "a skill's text"}),
        ]
        s.belong(key(first), first, *links, talk.assistant("reply"))
    return s


@story
def parallel_calls() -> Story:
    """Of two calls made at once each result hangs on its own, and what follows on the result written last."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"parallel {style}", style)
        first = talk.user("go")
        one = talk.call("Bash", {"command": "a"}, message="m")
        two = talk.call("Bash", {"command": "b"}, message="m")
        three = talk.call("Bash", {"command": "c"}, message="m")
        results = [talk.result(call, "x") for call in (two, one, three)]
        s.belong(key(first), first, one, two, three, *results, talk.assistant("all done"))
    return s


@story
def a_result_whose_parent_was_never_written() -> Story:
    """Such a result joins the call it answers, whatever was said in between."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"answers {style}", style)
        first = talk.user("go")
        call = talk.call("Bash", {"command": "sleep"})
        second = talk.user("meanwhile")
        talk.prompt = None
        late = talk.result(call, "woke", parent=make_uuid("never written"))
        s.belong(key(first), first, call, late)
        s.belong(key(second), second)
    return s


@story
def an_unknown_parent_in_an_old_file() -> Story:
    """Without any promptId in the file, a record without known parent joins the prompt before it."""
    s = Story()
    talk = s.main("dangling old", new_style=False)
    before = talk.assistant("said before any prompt")
    one = turn(talk, "one")
    lost = talk.assistant("no parent known", parent=make_uuid("never written"))
    child = talk.assistant("its child")
    rootless = talk.assistant("no parent at all", parent=None)
    two = talk.user("two", parent=make_uuid("another never written"))
    s.belong(before["uuid"], before)
    s.belong(one[0]["uuid"], *one, lost, child, rootless)
    s.belong(two["uuid"], two)
    return s


@story
def an_unknown_parent_in_a_file_with_ids() -> Story:
    """Where the file has promptIds, a record without known parent stays unattached, and so does what hangs on it."""
    s = Story()
    talk = s.main("dangling new")
    early = talk.assistant("before any prompt", parent=make_uuid("never"))
    one = turn(talk, "one")
    lost = talk.assistant("no parent known", parent=make_uuid("never"))
    child = talk.assistant("its child")
    two = talk.user("two")
    s.belong(None, early, lost, child)
    s.belong(key(one[0]), *one)
    s.belong(key(two), two)
    return s


@story
def ids_that_come_late() -> Story:
    """A file goes on under a newer client and has promptIds: what had no known parent is set free again."""
    s = Story()
    talk = s.main("upgraded", new_style=False)
    one = turn(talk, "one")
    lost = talk.assistant("no parent known", parent=make_uuid("never"))
    talk.new_style = True
    two = turn(talk, "two")
    s.belong(one[0]["uuid"], *one)
    s.belong(None, lost)
    s.belong(key(two[0]), *two)
    return s


@story
def a_prompt_without_id_among_others() -> Story:
    """A prompt that lacks its promptId starts a thread of its own all the same."""
    s = Story()
    talk = s.main("missing id")
    one = turn(talk, "one")
    talk.new_style, talk.prompt = False, None
    bare = talk.user("bare")
    reply = talk.assistant("answer")
    s.belong(key(one[0]), *one)
    s.belong(bare["uuid"], bare, reply)
    return s


@story
def a_compaction() -> Story:
    """The summary starts a thread; the boundary belongs to none; old records stay where they are."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"compact {style}", style)
        one = turn(talk, "one")
        summary = talk.compact("so far")
        more = [talk.assistant("going on"), talk.assistant("and on")]
        two = turn(talk, "two")
        s.belong(key(one[0]), *one)
        s.belong(key(summary), summary, *more)
        s.belong(key(two[0]), *two)
    return s


@story
def a_compaction_with_a_kept_segment() -> Story:
    """Records kept by reference stay in their thread, and the first new prompt may hang on the last of them."""
    s = Story()
    talk = s.main("kept segment")
    one = turn(talk, "one")
    summary = talk.compact("so far")
    two = talk.user("two", parent=one[-1]["uuid"])
    reply = talk.assistant("yes")
    goes_on = talk.assistant("kept chain", parent=one[-1]["uuid"])
    s.belong(key(one[0]), *one, goes_on)
    s.belong(key(summary), summary)
    s.belong(key(two), two, reply)
    return s


@story
def a_summary_without_boundary() -> Story:
    """In 1.0.29 a compaction wrote its summary with a null parent and no boundary."""
    s = Story()
    talk = s.main("summary only", new_style=False)
    one = turn(talk, "one")
    summary = talk.add("user", parent=None, isCompactSummary=True, message={"role": "user", "content": "so far"})
    reply = talk.assistant("on")
    s.belong(one[0]["uuid"], *one)
    s.belong(summary["uuid"], summary, reply)
    return s


@story
def a_task_notification() -> Story:
    """A background task's answer starts a thread, with the promptId the client gave it or without any."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"notified {style}", style)
        one = turn(talk, "start it in the background")
        note = talk.user("<task-notification><task-id>b1</task-id>done</task-notification>")
        reply = talk.assistant("it is done")
        s.belong(key(one[0]), *one)
        s.belong(key(note), note, reply)
    return s


@story
def local_commands() -> Story:
    """Caveat, command and output are one thread of their own; the prompt behind them is another."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"commands {style}", style)
        one = turn(talk, "one")
        talk.new_style, talk.prompt = False, None
        caveat = talk.user("Caveat: the messages below were generated", isMeta=True)
        command = talk.user("<command-name>/model</command-name>")
        output = talk.user("<local-command-stdout>set</local-command-stdout>")
        talk.new_style = style
        two = turn(talk, "two")
        s.belong(key(one[0]), *one)
        s.belong(caveat["uuid"], caveat, command, output)
        s.belong(key(two[0]), *two)
    return s


@story
def a_slash_command_with_ids() -> Story:
    """Records of one command share their promptId."""
    s = Story()
    talk = s.main("slash")
    caveat = talk.user("Caveat: x", isMeta=True, prompt=make_uuid("shared"))
    command = talk.user("<command-name>/go</command-name>", prompt=make_uuid("shared"))
    reply = talk.assistant("going")
    s.belong(make_uuid("shared"), caveat, command, reply)
    return s


@story
def cycles() -> Story:
    """Records that are their own ancestors end nowhere: unattached where there are promptIds."""
    s = Story()
    talk = s.main("cycles")
    one = turn(talk, "one")
    me = talk.assistant("my own parent", uuid=make_uuid("self"), parent=make_uuid("self"))
    a = talk.assistant("a", uuid=make_uuid("ca"), parent=make_uuid("cb"))
    b = talk.assistant("b", uuid=make_uuid("cb"), parent=make_uuid("cc"))
    c = talk.assistant("c", uuid=make_uuid("cc"), parent=make_uuid("ca"))
    tail = talk.assistant("hangs on a cycle")
    two = talk.user("two", parent=make_uuid("ca"))
    s.belong(key(one[0]), *one)
    s.belong(None, me, a, b, c, tail)
    s.belong(key(two), two)
    return s


@story
def cycles_in_an_old_file() -> Story:
    """In a file without promptIds a cycle belongs, as a whole, to a prompt before it."""
    s = Story()
    talk = s.main("old cycles", new_style=False)
    one = talk.user("one")
    a = talk.assistant("a", uuid=make_uuid("oa"), parent=make_uuid("ob"))
    b = talk.assistant("b", uuid=make_uuid("ob"), parent=make_uuid("oa"))
    s.belong(one["uuid"], one, a, b)
    return s


@story
def a_parent_that_comes_later() -> Story:
    """A child may stand before its parent in the file."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"later {style}", style)
        early = talk.assistant("early", parent=make_uuid(f"late {style}"))
        late = talk.user("late", uuid=make_uuid(f"late {style}"), parent=None)
        s.belong(key(late), early, late, talk.assistant("on"))
    return s


@story
def a_lost_parent_that_comes_later() -> Story:
    """Where the later parent has no known parent either, both join the prompt before."""
    s = Story()
    talk = s.main("lost later", new_style=False)
    one = talk.user("one")
    early = talk.assistant("early", parent=make_uuid("lost late"))
    late = talk.assistant("late", uuid=make_uuid("lost late"), parent=make_uuid("never"))
    s.belong(one["uuid"], one, early, late)
    return s


@story
def a_long_chain() -> Story:
    """Three thousand records, each the child of the one before, are one thread."""
    s = Story()
    talk = s.main("long")
    first = talk.user("go")
    s.belong(key(first), first, *[talk.assistant(f"step {n}") for n in range(3_000)])
    return s


@story
def a_long_chain_upside_down() -> Story:
    """The same with every child before its parent."""
    s = Story()
    talk = s.main("upside down")
    first = talk.user("go")
    s.belong(key(first), first, *[talk.assistant(f"step {n}") for n in range(2_000)])
    talk.lines.reverse()
    talk.records.reverse()
    return s


@story
def steering() -> Story:
    """What is typed while Claude works belongs to the prompt that runs, from the queue or as an attachment."""
    s = Story()
    talk = s.main("steering")
    first = talk.user("go")
    talk.queue("also look at the hinge")
    steer = talk.add("attachment", attachment={"type": "queued_command", "prompt": "and the latch"})
    s.belong(key(first), first, steer, talk.assistant("yes"))
    return s


@story
def session_start_attachments() -> Story:
    """What stands before the first prompt belongs to no thread."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"starts {style}", style)
        talk.title("Porch lights")
        early = [
            talk.add("attachment", attachment={"type": "hook_success", "stdout": ""}),
            talk.add("system", subtype="x"),
        ]
        one = turn(talk, "one")
        s.belong(None, *early)
        s.belong(key(one[0]), *one)
    return s


@story
def sidechains_in_the_session() -> Story:
    """Until 2.0.21 subagents were inline: a root that repeats a Task's prompt joins it, another the running thread."""
    s = Story()
    talk = s.main("inline", new_style=False)
    one = talk.user("one")
    task = talk.call("Task", {"prompt": "count the birds", "description": "d"})
    two = talk.user("two")
    talk.sidechain = True
    root = talk.add("user", parent=None, message={"role": "user", "content": "count the birds"})
    found = talk.assistant("seven")
    nobody = talk.add("user", parent=None, message={"role": "user", "content": "launched by nobody"})
    reply = talk.assistant("eight")
    talk.sidechain = False
    after = talk.assistant("on", parent=two["uuid"])
    s.belong(one["uuid"], one, task, root, found)
    s.belong(two["uuid"], two, after, nobody, reply)
    return s


@story
def two_sessions_in_a_file() -> Story:
    """A record's session is its own; its thread keeps the prompt even where the parent is another session's."""
    s = Story()
    talk = s.main("mixed")
    one = turn(talk, "one")
    talk.session = make_uuid("mixed other")
    stray = talk.assistant("written under another id")
    two = turn(talk, "two")
    s.belong(key(one[0]), *one, stray)
    s.belong(key(two[0]), *two)
    return s


@story
def uuids_of_another_form() -> Story:
    """A record whose uuid has not uuid form still is the parent of those that name it."""
    s = Story()
    talk = s.main("odd uuids")
    first = talk.user("go")
    talk.assistant("odd", uuid="request_011")
    s.belong(key(first), first, talk.assistant("child of the odd one"))
    return s


# Forks


@story
def a_fork_that_keeps_prompts() -> Story:
    """A copied record belongs where its original does; new ones have their own prompts, or hang on copies."""
    s = Story()
    talk = s.main("fork source")
    one = turn(talk, "one")
    s.belong(key(one[0]), *one)
    fork = copy_of(talk, s, "fork copy")
    same(s, one, fork.session)
    more = fork.assistant("said in the fork only")
    two = turn(fork, "asked in the fork")
    s.belong(key(one[0]), more)
    s.belong(key(two[0]), *two)
    return s


@story
def a_fork_that_rewrites_prompts() -> Story:
    """A fork of 2.1.332 gives all copies one new promptId; they keep the prompts of the session with more of them."""
    s = Story()
    talk = s.main("rewritten source")
    one, two = turn(talk, "one"), turn(talk, "two")
    for records in (one, two):
        s.belong(key(records[0]), *records)
    fork = copy_of(talk, s, "rewritten copy", prompt=make_uuid("one new prompt"))
    same(s, one + two, fork.session)
    three = turn(fork, "three")
    s.belong(key(three[0]), *three)
    return s


@story
def a_fork_that_names_its_source() -> Story:
    """Where forkedFrom names the source, it decides, not the number of prompts."""
    s = Story()
    talk = s.main("named source")
    one = turn(talk, "one")
    s.belong(key(one[0]), *one)
    fork = copy_of(talk, s, "named copy", prompt=make_uuid("new prompt of the copy"), named=True)
    same(s, one, fork.session)
    return s


@story
def a_fork_of_a_fork() -> Story:
    """Through two forks a copy still belongs where the first session has it."""
    s = Story()
    talk = s.main("first of three")
    one, two = turn(talk, "one"), turn(talk, "two")
    for records in (one, two):
        s.belong(key(records[0]), *records)
    second = copy_of(talk, s, "second of three", prompt=make_uuid("second's"), named=True)
    three = turn(second, "three")
    s.belong(key(three[0]), *three)
    third = copy_of(second, s, "third of three", prompt=make_uuid("third's"), named=True)
    for fork in (second, third):
        same(s, one + two, fork.session)
    for record in three:
        s.threads[(third.session, record["uuid"])] = key(three[0])
    return s


@story
def a_fork_of_an_old_session() -> Story:
    """Without promptIds the copies belong to the thread of the prompt they copy."""
    s = Story()
    talk = s.main("old source", new_style=False)
    one = turn(talk, "one")
    s.belong(one[0]["uuid"], *one)
    fork = copy_of(talk, s, "old copy")
    same(s, one, fork.session)
    two = turn(fork, "two")
    s.belong(two[0]["uuid"], *two)
    return s


# Subagents in files of their own


def launch(talk: Transcript, text: str = "count the birds") -> Record:
    return talk.call("Task", {"prompt": text, "description": "d"})


@story
def an_agent_named_by_the_result() -> Story:
    """toolUseResult.agentId of a result names the subagent that the call launched."""
    s = Story()
    for style, beside in ((True, False), (False, False), (False, True)):
        talk = s.main(f"agent {style} {beside}", style)
        one = talk.user("one")
        task = launch(talk)
        two = talk.user("two")
        talk.prompt = one.get("promptId")
        done = talk.result(task, "seven", toolUseResult={"agentId": f"a{style}{beside}", "status": "completed"})
        side = s.agent(talk, f"a{style}{beside}", beside=beside)
        side.prompt = make_uuid("an id of the agent's own")
        s.belong(key(one), one, task, done, side.user("count the birds"), side.assistant("seven"))
        s.belong(key(two), two)
    return s


@story
def an_agent_named_by_progress() -> Story:
    """A progress record copied from a subagent names it, and joins its own parent's thread."""
    s = Story()
    talk = s.main("agent progress", new_style=False)
    one = talk.user("one")
    task = launch(talk)
    nested = {"type": "assistant", "uuid": make_uuid("n"), "message": {"role": "assistant", "content": "seven"}}
    step = talk.add(
        "progress", data={"type": "agent_progress", "agentId": "ap", "message": nested}, parentToolUseID="toolu_x"
    )
    two = talk.user("two")
    side = s.agent(talk, "ap")
    s.belong(one["uuid"], one, task, step, side.user("count the birds"), side.assistant("seven"))
    s.belong(two["uuid"], two)
    return s


@story
def an_agent_with_the_same_prompt() -> Story:
    """A subagent whose records carry the promptId of the turn belongs to it."""
    s = Story()
    talk = s.main("agent prompt")
    one = talk.user("one")
    task = launch(talk)
    two = talk.user("two")
    side = s.agent(talk, "same")
    s.belong(key(one), one, task, side.user("count the birds", prompt=key(one)), side.assistant("seven"))
    s.belong(key(two), two)
    return s


@story
def an_agent_whose_root_names_the_call() -> Story:
    """Where all else is silent, sourceToolAssistantUUID of the subagent's root names the record that launched it."""
    s = Story()
    talk = s.main("agent source", new_style=False)
    one = talk.user("one")
    task = launch(talk)
    two = talk.user("two")
    side = s.agent(talk, "src", "subagents/workflows/wf_1/")
    s.belong(one["uuid"], one, task, side.user("count", sourceToolAssistantUUID=task["uuid"]), side.assistant("seven"))
    s.belong(two["uuid"], two)
    return s


@story
def an_agent_nobody_launched() -> Story:
    """A subagent without any link is a thread of its own."""
    s = Story()
    for style in (True, False):
        talk = s.main(f"agent alone {style}", style)
        one = turn(talk, "one")
        side = s.agent(talk, f"warmup{style}", beside=not style)
        first = side.user("Warmup")
        s.belong(key(one[0]), *one)
        s.belong(key(first), first, side.assistant("ready"))
    return s


@story
def an_agent_launched_by_an_agent() -> Story:
    """A subagent's subagent belongs to the turn that launched the first."""
    s = Story()
    talk = s.main("nested agents")
    one = talk.user("one")
    task = launch(talk)
    done = talk.result(task, "x", toolUseResult={"agentId": "outer"})
    outer = s.agent(talk, "outer")
    begun = outer.user("count the birds", prompt=make_uuid("outer's"))
    inner_task = launch(outer, "count the eggs")
    inner_done = outer.result(inner_task, "y", toolUseResult={"agentId": "inner"})
    inner = s.agent(talk, "inner")
    s.belong(
        key(one),
        one,
        task,
        done,
        begun,
        inner_task,
        inner_done,
        inner.user("eggs", prompt=make_uuid("inner's")),
        inner.assistant("two"),
    )
    return s


@story
def agents_that_launched_each_other() -> Story:
    """Subagents whose links go in a circle end as threads of their own."""
    s = Story()
    talk = s.main("circle of agents", new_style=False)
    one = turn(talk, "one")
    s.belong(one[0]["uuid"], *one)
    left, right = s.agent(talk, "left"), s.agent(talk, "right")
    for side, other in ((left, "right"), (right, "left")):
        first = side.user(f"I am launched by {other}")
        call = launch(side)
        back = side.result(call, "x", toolUseResult={"agentId": other})
        s.threads.update({(talk.session, r["uuid"]): "any of their own" for r in (first, call, back)})
    return s


@story
def an_agent_whose_session_is_gone() -> Story:
    """Without its session's transcript a subagent's records are a thread of their own."""
    s = Story()
    talk = Transcript(session=make_uuid("gone session"))
    side = s.agent(talk, "left-behind")
    first = side.user("count")
    s.belong(key(first), first, side.assistant("seven"))
    return s
