"""Which thread a record belongs to follows from promptIds, parents, calls and file order, in that order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.transcript import record as r
from fabled.transcript import text as t
from fabled.transcript import threads as th
from tests.build import Transcript
from tests.stories import STORIES, Story, a_long_chain, copy_of, prompts_with_ids, turn


def read(
    files: dict[str, bytes], order: list[str] | None = None
) -> tuple[list[th.Session], dict[int, tuple[str, str]]]:
    """The sessions of some files, and what each record is called: (session, uuid)."""
    sessions: dict[str, th.Session] = {}
    known: dict[tuple[str, bytes], th.Node] = {}
    called: dict[int, tuple[str, str]] = {}
    for number, path in enumerate(order or sorted(files), 1):
        data, stem = files[path], path.rsplit("/", 1)[-1].removesuffix(".jsonl")
        in_agent = stem.startswith("agent-")
        nodes: list[th.Node] = []
        owners: dict[str, None] = {}
        for line in data.splitlines():
            obj = r.loads(line)
            f = t.facts(obj, False)
            name = f.session or stem
            uuid = f.uuid or r.digest(line)[:8]
            session = sessions.setdefault(name, th.Session(len(sessions) + 1, name))
            owners[name] = None
            node = known.get((name, uuid))
            if node is None:
                flags = (
                    (t.SIDECHAIN if f.sidechain else 0)
                    | (t.FORKED if f.forked_from else 0)
                    | (t.STARTS if f.starts else 0)
                )
                node = th.Node(
                    len(known) + 1,
                    session.id,
                    uuid,
                    f.parent,
                    f.prompt,
                    f.kind,
                    flags,
                    f.type in ("user", "assistant"),
                    in_agent,
                )
                known[(name, uuid)] = node
                called[node.id] = (name, r.uuid_text(uuid))
                if f.forked_from is not None:
                    session.forks[node.id] = f.forked_from
                session.calls.update((t.key64(call), node.id) for call in f.calls if t.key64(call) not in session.calls)
                session.tasks.update((t.key64(p), node.id) for p in f.task_prompts if t.key64(p) not in session.tasks)
                if f.answers is not None:
                    session.answers[node.id] = t.key64(f.answers)
                if f.sidechain and f.parent is None and f.kind == t.PROMPT:
                    session.sides[node.id] = t.key64(f.text)
                if f.alias is not None:
                    session.aliases[node.id] = f.alias
            nodes.append(node)
        for name in owners:
            sessions[name].files.append((number, nodes))
    return list(sessions.values()), called


def memberships(files: dict[str, bytes], order: list[str] | None = None) -> dict[tuple[str, str], str | None]:
    """(session, uuid) → thread key of every record outside the subagents' files."""
    sessions, called = read(files, order)
    return {called[number]: key for number, key in th.resolve(sessions).keys.items()}


def expected(story: Story) -> dict[tuple[str, str], str | None]:
    """What a story says of the records that lie in session transcripts."""
    aside = {record["uuid"] for talk in story.files.values() if talk.agent is not None for record in talk.records}
    return {name: key for name, key in story.threads.items() if name[1] not in aside}


@pytest.mark.parametrize("name", STORIES)
def test_every_record_belongs_where_the_story_says(name: str) -> None:
    """Each story's records are in the threads it tells of."""
    story = STORIES[name]()
    found = memberships(story.data)
    assert {one: found.get(one) for one in expected(story)} == expected(story), STORIES[name].__doc__


@pytest.mark.parametrize("name", STORIES)
def test_the_order_in_which_files_are_seen_decides_nothing(name: str) -> None:
    """Read in the opposite order, and numbered otherwise, the files give the same threads."""
    files = STORIES[name]().data
    assert memberships(files, sorted(files, reverse=True)) == memberships(files)


def test_the_smaller_session_id_is_the_original_where_nothing_else_tells() -> None:
    """Two sessions that share records with equally many prompts: the one with the smaller id counts as the original."""
    story = Story()
    source = story.main("tie")
    turn(source, "one")
    fork = copy_of(source, story, "tie copy")
    sessions, called = read(story.data)
    copies = th.resolve(sessions).copies
    first, second = sorted((source.session, fork.session))
    assert {(called[copy][0], called[original][0]) for copy, original in copies.items()} == {(second, first)}
    assert len(copies) == len(source.records)


def test_a_copy_is_no_copy_without_its_original() -> None:
    """Alone, a fork's records are its own and keep the prompts they carry."""
    story = Story()
    source = story.main("lost source")
    turn(source, "one")
    fork = copy_of(source, story, "left copy", prompt="the one new prompt", named=True)
    del story.files[next(path for path in story.files if source.session in path)]
    assert set(memberships(story.data).values()) == {"the one new prompt"}
    assert all(name == fork.session for name, _ in memberships(story.data))


def test_only_shared_records_are_copies() -> None:
    """A session that shares nothing has no copies, and what a fork adds is none."""
    sessions, _ = read(prompts_with_ids().data)
    assert th.resolve(sessions).copies == {}


def test_a_file_says_how_to_go_on_where_it_ends() -> None:
    """The state kept of a file: whether it has promptIds, whether file order decided something, which thread runs."""
    story = Story()
    old, new = story.main("state old", new_style=False), story.main("state new")
    old.user("one")
    old.assistant("lost", parent="587aa158-62d1-5c4d-a561-08fa44d973b7")
    first = new.user("one")
    sessions, _ = read(story.data)
    states = th.resolve(sessions).states
    by_name = {session.name: states[session.files[0][0]] for session in sessions}
    assert by_name[old.session] == th.FileState(has_prompts=False, guessed=True, current=old.records[0]["uuid"])
    assert by_name[new.session] == th.FileState(has_prompts=True, guessed=False, current=first["promptId"])


def test_the_same_records_in_two_files_are_one() -> None:
    """A generation and the live transcript of a session hold the same records once."""
    story = a_long_chain()
    (path, data), *_ = story.data.items()
    both = {"v/" + path: data[: len(data) // 2].rpartition(b"\n")[0] + b"\n", path: data}
    assert memberships(both) == memberships({path: data})


def test_a_chain_of_many_thousands_ends() -> None:
    """Twenty thousand links, a cycle at their end: no recursion, no loop."""
    talk = Transcript()
    talk.assistant("first", uuid="587aa158-62d1-5c4d-a561-08fa44d973b7", parent="e7d802a2-c1bb-58e2-a3c7-2dc4d9cbf5c2")
    for _ in range(20_000):
        talk.assistant("x")
    talk.assistant("last", uuid="e7d802a2-c1bb-58e2-a3c7-2dc4d9cbf5c2")
    assert len(set(memberships({"s.jsonl": talk.data}).values())) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "result", "system", "side"]), st.integers(0, 7)), max_size=8
    ),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_graph_of_parents_is_resolved(records: list[tuple[str, int]], new: bool) -> None:
    """Whatever hangs on whatever, every record of a conversation gets one answer, in any order of numbering."""
    talk = Transcript(new_style=new)
    names = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(8)]
    call = talk.call("Bash", {"command": "x"}, call="toolu_1", uuid=names[7], parent=None)
    for n, (kind, parent) in enumerate(records[:7]):
        more = {"uuid": names[n], "parent": names[parent] if parent != n else None}
        if kind == "user":
            talk.user("hello", **more)
        elif kind == "result":
            talk.result(call, "r", **more)
        elif kind == "system":
            talk.add("system", subtype="x", **more)
        else:
            talk.sidechain = kind == "side"
            talk.assistant("said", **more)
            talk.sidechain = False
    found = memberships({"s.jsonl": talk.data})
    assert len(found) == len(talk.records)
    if not new and any(kind == "user" for kind, _ in records[:7]):
        assert found[(talk.session, names[7])] is not None


# Subagents


def agent(name: int, *launchers: int) -> th.Agent:
    return th.Agent(name, f"own {name}", launchers)


@pytest.mark.parametrize(
    ("agents", "inside", "threads", "found"),
    [
        ([agent(1, 10)], {10: None}, {10: "P"}, {1: "P"}),
        ([agent(1)], {}, {}, {1: "own 1"}),
        ([agent(1, 10, 11)], {10: None, 11: None}, {10: "first", 11: "second"}, {1: "first"}),
        ([agent(1, 10, 11)], {10: None, 11: None}, {10: None, 11: "second"}, {1: "second"}),
        ([agent(1, 10), agent(2, 20)], {10: None, 20: 1}, {10: "P", 20: "x"}, {1: "P", 2: "P"}),
        ([agent(1, 20), agent(2, 10)], {10: 1, 20: 2}, {}, {1: "own 2", 2: "own 1"}),
        ([agent(1, 10)], {10: 1}, {10: "x"}, {1: "own 1"}),
        ([agent(1, 10, 11)], {10: 9, 11: None}, {10: "x", 11: "P"}, {1: "P"}),
        (
            [agent(n, n + 100) for n in range(1, 500)],
            {n + 100: n + 1 if n < 499 else None for n in range(1, 500)},
            {599: "P"},
            dict.fromkeys(range(1, 500), "P"),
        ),
    ],
)
def test_a_subagent_joins_the_thread_that_launched_it(
    agents: list[th.Agent], inside: dict[int, int | None], threads: dict[int, str | None], found: dict[int, str]
) -> None:
    """The best evidence that leads to a thread decides, through other subagents where they are nested."""
    assert th.attach(agents, inside, threads) == found
