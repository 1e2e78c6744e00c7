"""Records that no client would write are stored, resolved, found and shown, whatever they hold."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fabled.answers import Reader, answer, block_bytes
from fabled.store.queries import Queries
from fabled.transcript.record import uuid_text
from tests.build import make_uuid
from tests.home import Home, differences, dump, rebuilt

EXAMPLES = int(os.environ.get("FABLED_STATES", "40"))
# Making an odd history small takes minutes: that is for the long form, run by a person who looks into it.
PHASES = tuple(Phase) if "FABLED_STATES" in os.environ else (Phase.explicit, Phase.reuse, Phase.generate)
UUIDS = [make_uuid(f"odd {n}") for n in range(7)]
SESSIONS = [make_uuid("odd session"), make_uuid("odd other"), "no uuid at all", "", "../escape/\u202e"]
PROMPTS = [make_uuid("odd prompt"), "p1", "x@y", "unattached", "\ud83d", "%"]
TYPES = (
    "user assistant progress attachment system queue-operation summary ai-title custom-title last-prompt mode quantum"
).split()

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["plover", "\ud83d", "\0", "<historical_context a='", "🙏"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "server_tool_use", 7])},
    optional={
        "text": anything,
        "thinking": anything,
        "id": st.sampled_from(["toolu_1", "toolu_2", 7]),
        "tool_use_id": st.sampled_from(["toolu_8", "toolu_9", None]),
        "name": st.sampled_from(["Bash", "Task", "Agent", '\n"', 7]),
        "input": anything | st.fixed_dictionaries({"prompt": st.just("plover"), "file_path": anything}),
        "content": anything | st.just([{"type": "text", "text": "plover"}]),
    },
)
contents = st.text(max_size=9) | st.just("plover") | st.lists(blocks | anything, max_size=3) | anything
records = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "uuid": st.sampled_from(UUIDS) | anything,
        "parentUuid": st.sampled_from(UUIDS) | anything,
        "sessionId": st.sampled_from(SESSIONS) | anything,
        "promptId": st.sampled_from(PROMPTS) | anything,
        "isSidechain": st.booleans() | anything,
        "agentId": st.sampled_from(["a1", "a2"]) | anything,
        "timestamp": st.sampled_from(["2026-03-02T09:00:01.137Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
        | anything,
        "message": st.fixed_dictionaries({"content": contents}, optional={"id": anything, "role": anything}) | anything,
        "isMeta": anything,
        "isCompactSummary": st.booleans(),
        "toolUseResult": st.just({"agentId": "a1"}) | anything,
        "forkedFrom": st.fixed_dictionaries({"sessionId": st.sampled_from(SESSIONS)}) | anything,
        "cwd": st.sampled_from(["/home/ana/app", ""]) | anything,
        "subtype": st.sampled_from(["local_command", "away_summary", "compact_boundary"]) | anything,
        "content": contents,
        "operation": st.just("enqueue") | anything,
        "summary": contents,
        "aiTitle": contents,
        "customTitle": contents,
        "leafUuid": st.sampled_from(UUIDS) | anything,
        "logicalParentUuid": st.sampled_from(UUIDS),
        "sourceToolAssistantUUID": st.sampled_from(UUIDS) | anything,
        "attachment": st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": contents}) | anything,
        "data": st.fixed_dictionaries(
            {"type": st.just("agent_progress"), "agentId": st.just("a2"), "message": anything}
        )
        | anything,
    },
)
FILES = [
    f"-home-ana-app/{SESSIONS[0]}.jsonl",
    f"-home-ana-app/{SESSIONS[1]}.jsonl",
    f"-home-ana-app/{SESSIONS[0]}/subagents/agent-a1.jsonl",
    "-home-ana-app/agent-a2.jsonl",
    f"-home-ana-app/{SESSIONS[0]}/subagents/x/agent-a1.jsonl",
]


def fit(path: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record as it may lie in a file: with ids of that file's own; in a subagent's file, of its session."""
    fitted = dict(record)
    for key in ("uuid", "parentUuid", "logicalParentUuid"):
        if isinstance(record.get(key), str) and record[key]:
            fitted[key] = make_uuid(f"{path} {record[key]}") if record[key] in UUIDS else f"{path} {record[key]}"
    if "agent-" not in path:
        return fitted
    name = path.rpartition("agent-")[2].removesuffix(".jsonl")
    fitted |= {"agentId": name, "sessionId": SESSIONS[0]}
    return json.loads(json.dumps(fitted).replace("toolu_", f"toolu_{name}"))  # type: ignore[no-any-return]


steps = st.lists(
    st.tuples(st.sampled_from(FILES), st.lists(records, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=6
)


def every_answer(home: Home) -> None:
    """Asks for everything there is."""
    queries = Queries(str(home.map_db))
    reader = Reader(queries, home.vault)
    for method in ("sessions", "projects", "status_counts"):
        json.dumps(answer(reader, method, {}), ensure_ascii=False).encode()
    for query in ("plover", "user", '"a b"'):
        for row in answer(reader, "search", {"query": query})["results"]:
            json.dumps(row, ensure_ascii=False).encode()
    for session, prompt in home.map.db.execute(
        "SELECT s.session_id,t.prompt FROM threads t JOIN sessions s ON s.id=t.session"
    ):
        if session in SESSIONS[:3] and prompt in (*PROMPTS[:2], *UUIDS):
            asked = {"id": f"{prompt}@{session}", "budget": 0, "branches": True, "subagents": True}
            json.dumps(answer(reader, "thread", asked), ensure_ascii=False).encode()
    for uuid, session in home.map.db.execute(
        "SELECT r.uuid,s.session_id FROM records r JOIN sessions s ON s.id=r.session"
    ):
        if session in SESSIONS[:3]:
            assert block_bytes(reader, {"id": f"{uuid_text(uuid)}@{session}"}).startswith(b"{")
    queries.close()


@given(steps)
@settings(max_examples=EXAMPLES, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_records_hold_the_map_is_that_of_a_rebuild(
    parts: list[tuple[str, list[dict[str, Any]], bool]],
) -> None:
    """Odd records appended here and there, seen after each step or not: no file fails, everything can be asked for."""
    folder = Path(tempfile.mkdtemp(prefix="fabled-odd-"))
    home = Home(folder)
    try:
        for path, added, seen in parts:
            data = b"".join(json.dumps(fit(path, record)).encode() + b"\n" for record in added)
            (home.root / path).parent.mkdir(parents=True, exist_ok=True)
            home.append(path, data)
            if seen:
                assert home.index(path).failed == ()
        report = home.index()
        assert (report.failed, report.unparsed, report.pending_bytes) == ((), 0, 0)
        assert differences(dump(home.map_db), rebuilt(home, folder)) == []
        assert home.faults() == []
        every_answer(home)
    finally:
        home.close()
        shutil.rmtree(folder)
