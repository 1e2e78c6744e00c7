"""A recalled passage comes back as a citation, never as a hit, whatever carries it; and threads tell of each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabled.answers import Reader, answer
from fabled.present import Style, text
from fabled.store.queries import Queries
from tests.build import Transcript, make_uuid
from tests.home import Home

APP = "-home-ana-app"
CLIENT = Path(__file__).parent.parent.parent / "shared" / "transcripts" / "client"
ARC, OTHER = make_uuid("arc"), make_uuid("other arc")
SHOWN = "lapwing"
OPEN = f'<historical_context source="fabled" arcs="{ARC},{OTHER}" nonce="5d1c0e77">'
PASSAGE = f"{OPEN}\nQuoted record.\n[user] where does the {SHOWN} nest?\n</historical_context>"
CUT = f"{OPEN}\n{f'the {SHOWN} nests. ' * 600}"[:10_000]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    assert made.faults() == []
    made.close()


@pytest.fixture
def queries(home: Home) -> Iterator[Queries]:
    made = Queries(str(home.map_db))
    yield made
    made.close()


@pytest.fixture
def ask(home: Home, queries: Queries) -> Ask:
    return lambda method, **params: answer(Reader(queries, home.vault), method, params)


def put(home: Home, *talks: Transcript) -> None:
    for one in talks:
        home.write(f"{APP}/{one.session}.jsonl", one.data)
    home.index()


# Carriers


def attached(one: Transcript, rendered: str | None = None, **body: Any) -> None:
    more = {} if rendered is None else {"rendered": [{"content": rendered}], "renderedRole": "system"}
    one.add("attachment", attachment={"toolUseID": "t", "hookName": "SessionStart", **body}, **more)


def context(one: Transcript, passage: str) -> None:
    attached(one, type="hook_additional_context", content=["a first string", passage], hookEvent="UserPromptSubmit")


def rendered(one: Transcript, passage: str) -> None:
    said = f"<system-reminder>\nUserPromptSubmit hook additional context: {passage}\n</system-reminder>"
    attached(one, said, type="hook_additional_context", content=["shortened"], hookEvent="UserPromptSubmit")


def plain_stdout(one: Transcript, passage: str) -> None:
    attached(one, type="hook_success", content=passage, stdout=passage + "\n", exitCode=0)


def json_stdout(one: Transcript, passage: str) -> None:
    told = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": passage}}
    attached(one, type="hook_success", content="", stdout=json.dumps(told) + "\n", exitCode=0)


def blob(one: Transcript, passage: str) -> None:
    one.put({"type": "api-request-blob", "sessionId": one.session, "hash": "4e007f8f", "message": {
        "role": "system", "content": [{"type": "text", "text": f"SessionStart: {passage}\n\n# Environment {SHOWN}s"}],
    }})  # fmt: skip


def blob_as_text(one: Transcript, passage: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": passage}]})
    one.put({"type": "api-request-blob", "sessionId": one.session, "body": body})


def mcp_content(one: Transcript, passage: str) -> None:
    call = one.call("mcp__fabled__thread", {"id": ARC})
    one.result(call, [{"type": "text", "text": "found:"}, {"type": "text", "text": passage}])


def mcp_result(one: Transcript, passage: str) -> None:
    call = one.call("mcp__fabled__thread", {"id": ARC})
    one.result(call, "cut away", toolUseResult=[{"type": "text", "text": passage}])


def mcp_json(one: Transcript, passage: str) -> None:
    call = one.call("mcp__fabled__search", {"query": "nests"})
    one.result(call, json.dumps({"results": [{"text": passage}]}), toolUseResult=json.dumps({"text": passage}))


def compacting(one: Transcript, passage: str) -> None:
    one.user(
        f"<local-command-stdout>Compacted (ctrl+o to see full summary)\nPreCompact [fabled hook pre-compact] "
        f"completed successfully: {passage}\nPostCompact [x] completed successfully</local-command-stdout>"
    )


def persisted(one: Transcript, passage: str) -> None:
    head = passage[:2_000]
    told = (
        f"<persisted-output>\nOutput too large (58.7KB). Full output saved to: /x.txt\n\nPreview (first 2KB):\n{head}"
    )
    attached(one, type="hook_additional_context", content=[f"{told}\n...\n</persisted-output>"], hookEvent="Stop")


def read_back(one: Transcript, passage: str) -> None:
    call = one.call("Read", {"file_path": "/x.txt"})
    lines = "\n".join(f"{number:6}→{line}" for number, line in enumerate(passage.split("\n"), 1))
    one.result(call, lines, toolUseResult={"type": "text", "file": {"filePath": "/x.txt", "content": passage}})


def prompted(one: Transcript, passage: str) -> None:
    one.user([{"type": "text", "text": passage}, {"type": "text", "text": "go on"}])


def queued(one: Transcript, passage: str) -> None:
    one.queue(f"as I said {passage}")


CARRIERS = [context, rendered, plain_stdout, json_stdout, blob, blob_as_text, mcp_content, mcp_result, mcp_json,
            compacting, persisted, read_back, prompted, queued]  # fmt: skip


@pytest.mark.parametrize("passage", [PASSAGE, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("carrier", CARRIERS, ids=lambda one: one.__name__)
def test_a_passage_is_cited_and_never_found(
    home: Home, ask: Ask, carrier: Callable[[Transcript, str], None], passage: str
) -> None:
    """In every place where the client writes it, whole or cut at 10,000 characters without its closing tag."""
    one = Transcript()
    one.user("go")
    carrier(one, passage)
    one.assistant("went")
    put(home, one)
    assert ask("search", query=SHOWN, all=True)["results"] == []
    refs = [ref for (ref,) in home.map.db.execute("SELECT DISTINCT ref FROM citations ORDER BY ref")]
    assert refs == sorted([ARC, OTHER])
    assert ask("search", query="went", all=True)["total"] == 1


def test_a_copy_of_a_request_is_no_hit_at_all(home: Home, ask: Ask) -> None:
    """What was sent is found once: where it was said."""
    one = Transcript()
    said = one.user("where does the curlew rest")
    one.put({"type": "api-request-blob", "sessionId": one.session, "message": said["message"]})
    one.assistant("in the marsh")
    put(home, one)
    assert [row["uuid"] for row in ask("search", query="curlew", all=True)["results"]] == [said["uuid"]]


# Who recalled what


def source(name: str = "source") -> Transcript:
    one = Transcript(session=make_uuid(name))
    one.user("where does the plover nest")
    one.assistant("in the shingle")
    return one


def recalling(*arcs: str, name: str = "recalling") -> Transcript:
    """A session that was handed these threads with its first prompt, in two records."""
    one = Transcript(session=make_uuid(name))
    one.count = 100
    one.user("what did we say of nests")
    passage = f'<historical_context source="fabled" arcs="{",".join(arcs)}" nonce="1">x</historical_context>'
    context(one, passage)
    json_stdout(one, passage)
    one.assistant("that they are in the shingle")
    return one


def test_a_thread_tells_what_it_recalled_and_who_recalled_it(home: Home, ask: Ask) -> None:
    """Both ways, each once however many records repeat it, with all that is needed to open the other."""
    old, new = source(), recalling(source().records[0]["promptId"])
    put(home, old, new)
    old_id, new_id = old.records[0]["promptId"], new.records[0]["promptId"]
    (recalled,) = ask("thread", id=new_id)["recalled"]
    assert (recalled["thread"], recalled["ref"], recalled["session_id"]) == (old_id, old_id, old.session)
    assert (recalled["title"], recalled["records"]) == ("where does the plover nest", 2)
    assert recalled["first_ts"] == old.records[0]["timestamp"] and recalled["ts"] == new.records[2]["timestamp"]
    value = ask("thread", id=old_id)
    (by,) = value["recalled_by"]
    assert (by["thread"], by["session_id"], by["project"]) == (new_id, new.session, "/home/ana/app")
    assert (by["title"], by["records"]) == ("what did we say of nests", 2)
    assert value["recalled"] == ask("thread", id=new_id)["recalled_by"] == []
    assert f"Recalled by:  fabled thread {new_id[:8]}" in text("thread", {"v": 1, **value}, Style(width=100))


def test_an_arc_is_an_id_in_any_spelling(home: Home, ask: Ask) -> None:
    """Shortened, with its session, or a record's: two spellings of one thread are one recall; an unknown one stays."""
    old = source()
    prompt, record = old.records[0]["promptId"], old.records[1]["uuid"]
    new = recalling(prompt[:8], f"{prompt}@{old.session}", record, make_uuid("gone"))
    put(home, old, new)
    recalled = ask("thread", id=new.records[0]["promptId"])["recalled"]
    assert [(row["thread"], row["records"]) for row in recalled] == [(prompt, 2), (None, 2)]
    assert recalled[1]["ref"] == make_uuid("gone")
    (by,) = ask("thread", id=prompt)["recalled_by"]
    assert (by["thread"], by["records"]) == (new.records[0]["promptId"], 2)
    shown = text("thread", {"v": 1, **ask("thread", id=new.records[0]["promptId"])}, Style(width=100))
    assert f"Recalled here:  fabled thread {prompt[:8]}" in shown and "(not known here)" in shown


def test_what_a_session_starts_with_belongs_to_its_first_thread(home: Home, ask: Ask) -> None:
    """A hook speaks before the first prompt; its records have no thread, the one that follows was told."""
    old = source()
    prompt = old.records[0]["promptId"]
    new = Transcript(session=make_uuid("start"))
    new.count = 100
    passage = f'<historical_context arcs="{prompt}">x</historical_context>'
    context(new, passage)
    first = new.user("go on with the nests")
    new.assistant("gladly")
    second = new.user("and the eggs")
    new.assistant("four")
    blob(new, passage)
    put(home, old, new)
    assert [row["thread"] for row in ask("thread", id=first["promptId"])["recalled"]] == [prompt]
    assert ask("thread", id=second["promptId"])["recalled"] == []
    assert [row["thread"] for row in ask("thread", id=prompt)["recalled_by"]] == [first["promptId"]]


def test_a_fork_s_copy_of_a_recall_is_no_second_one(home: Home, ask: Ask, queries: Queries) -> None:
    """Copied records cite nothing of their own."""
    old = source()
    new = recalling(old.records[0]["promptId"])
    fork = Transcript(session=make_uuid("fork"), salt="fork")
    for record in new.records:
        fork.put({**record, "sessionId": fork.session})
    put(home, old, new, fork)
    assert len(ask("thread", id=old.records[0]["promptId"])["recalled_by"]) == 1
    assert sum(row.refs for row in queries.recalls()) == 1


def test_recalls_are_counted_by_project_and_thread(home: Home, queries: Queries) -> None:
    """Each source once for each thread that was handed it; a copy of a request adds none."""
    one, two = source("a"), source("b")
    arcs = [made.records[0]["promptId"] for made in (one, two)]
    new, other = recalling(*arcs), recalling(arcs[0], name="second")
    blob(new, f'<historical_context arcs="{arcs[0]}">x</historical_context>')
    put(home, one, two, new, other)
    rows = queries.recalls()
    assert [(row.project, row.session_id, row.refs, row.records) for row in rows] == [
        ("/home/ana/app", new.session, 2, 4),
        ("/home/ana/app", other.session, 1, 2),
    ]
    threads = queries.threads(row.thread for row in rows if row.thread is not None)
    prompts = [made.records[0]["promptId"] for made in (new, other)]
    assert [threads[row.thread or 0].prompt for row in rows] == prompts
    assert queries.recalls(since=(rows[0].last_ts or 0) + 10**9) == []


def test_a_recall_of_itself_is_none(home: Home, ask: Ask) -> None:
    """A thread that was handed its own beginning neither recalled nor was recalled."""
    one = recalling("x")
    prompt = one.records[0]["promptId"]
    context(one, f'<historical_context arcs="{prompt}">x</historical_context>')
    put(home, one)
    value = ask("thread", id=prompt)
    assert ([row["ref"] for row in value["recalled"]], value["recalled_by"]) == (["x"], [])


@pytest.mark.skipif(not CLIENT.is_dir(), reason="transcripts of the real client are not beside this project")
def test_what_the_real_client_wrote_of_recalls_is_cited_and_never_found(home: Home, ask: Ask) -> None:
    """Sessions with hooks and an MCP server: each line with a passage cites it, and no words of one are found."""
    holding = set()
    for name in ("hooks-197", "hooks-332", "misc-332-bighook"):
        for path in (CLIENT / name / "projects").rglob("*.jsonl"):
            relative = path.relative_to(CLIENT / name / "projects")
            home.write(str(relative), path.read_bytes())
            holding |= {(path.name, at) for at, line in enumerate(path.read_bytes().split(b"\n"), 1)
                        if b"<historical_context arcs" in line}  # fmt: skip
    home.index()
    cited = home.map.db.execute(
        "SELECT DISTINCT f.path,c.line FROM citations i JOIN copies c ON c.record=i.record JOIN files f ON f.id=c.file"
    )
    assert {(Path(path).name, line) for path, line in cited} == holding and len(holding) > 40
    for words in ('"RECALLED BY"', '"MCP RECALL"', '"historical context"'):
        assert ask("search", query=words, all=True)["results"] == []
