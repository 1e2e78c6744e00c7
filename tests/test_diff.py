"""What lies between two states of a session, which states it has, and one value of a record cut out of its copy."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled import errors
from fabled.answers import Reader, answer, block_bytes, resolved
from fabled.store.ledger import Kept
from fabled.store.queries import Queries
from fabled.transcript import rules
from fabled.transcript.losses import removals
from tests.build import Transcript, line, make_uuid
from tests.home import Home
from tests.packed import seekable

APP = "-home-ana-app"
SESSION = make_uuid("long")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 4_000}}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reader(home: Home) -> Iterator[Reader]:
    queries = Queries(str(home.map_db))
    yield Reader(queries, home.vault, home.ledger.path)
    queries.close()


@pytest.fixture
def ask(reader: Reader) -> Ask:
    return lambda method, **params: answer(reader, method, params)


def long_talk() -> Transcript:
    """A session with an old picture, an old long result and much progress, and enough behind it to be old."""
    talk = Transcript(SESSION)
    talk.user("Draw the harbour's chart")
    call = talk.call("Draw", {"what": "chart"})
    talk.result(call, [{"type": "text", "text": "here it is"}, IMAGE], toolUseResult={"file": "x" * 3_000})
    talk.user("List every berth")
    call = talk.call("Bash", {"command": "berths --all"})
    for number in range(20):
        talk.add("progress", data={"type": "bash_progress", "output": f"berth {number} " * 20})
    talk.result(call, "\n".join(f"berth {number} is free" for number in range(600)))
    for number in range(40):
        talk.user(f"And berth {number}?")
        talk.assistant(f"Berth {number} is free.")
    return talk


def pruned(data: bytes, level: rules.Level = "standard") -> bytes:
    """The transcript as a prune leaves it."""
    lines = data.splitlines(keepends=True)
    plan = rules.plan(rules.survey(lines), level, {}, rules.Limits(), lambda *block: False)
    out: list[bytes] = []
    rules.carry_out(lines, plan, rules.Limits(), lambda *block: False, None, out.append)
    return b"".join(out)


def generation(home: Home, name: str, data: bytes, session: str = SESSION) -> str:
    """A generation in the Vault, and its row in the Ledger."""
    folder = home.vault_folder / APP / session
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.parent.chmod(0o700)
    path = folder / f"{name}.jsonl.zst"
    path.write_bytes(seekable(data))
    path.chmod(0o400)
    number, kind = name.removeprefix("v").split("-")
    home.ledger.keep(
        Kept(
            str(path), APP, session, "", int(number), kind, str(home.root / APP / f"{session}.jsonl"), len(data),
            path.stat().st_size, hashlib.sha256(data).digest(), int(time.time()), "asked for",
        )
    )  # fmt: skip
    return str(path)


def journal(home: Home, base: str, what: str = "prune") -> None:
    """A finished row of the journal."""
    path = str(home.root / APP / f"{SESSION}.jsonl")
    row = {"session_id": SESSION, "path": path, "what": what, "level": "standard", "at": int(time.time())}
    home.ledger.begin({**row, "state": "done", "generation": base, "base_length": 1, "base_sha": b""})


def after_a_prune(home: Home) -> Transcript:
    talk = long_talk()
    home.write(f"{APP}/{SESSION}.jsonl", pruned(talk.data))
    journal(home, generation(home, "v0-raw", talk.data))
    home.index()
    return talk


# ── what a prune cost ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_prune_is_told_thread_by_thread(home: Home, ask: Ask) -> None:
    """Each thread says what left it, the largest block first, and every block named opens with its reason beside it."""
    talk = after_a_prune(home)
    value = ask("diff", session=SESSION[:8], limit=0)
    assert (value["a"], value["b"]) == ("v0-raw", "live")
    assert (value["before_bytes"], value["after_bytes"]) == (len(talk.data), len(pruned(talk.data)))
    chart, berths = value["threads"][:2]
    assert (chart["title"], berths["title"]) == ("Draw the harbour's chart", "List every berth")
    assert [(block["what"], block["reason"]) for block in chart["blocks"]] == [
        ("image", rules.RULES["S1"]),
        ("tool result as shown", rules.RULES["G2"]),
    ]
    assert berths["removed"]["records"] == 20 and berths["reduced"]["records"] == 1
    assert {block["what"] for block in berths["blocks"]} == {"progress record", "tool output"}
    assert value["est_tokens_after"] < 0.5 * value["est_tokens_before"]
    lost = value["removed"]["bytes"] + value["reduced"]["bytes"] - value["added"]["bytes"]
    assert lost + value["removed"]["records"] == len(talk.data) - len(pruned(talk.data))


def test_every_block_of_a_diff_opens(home: Home, ask: Ask, reader: Reader) -> None:
    """What a diff names is what `block` takes: whole lines, and values byte for byte."""
    talk = after_a_prune(home)
    blocks = [block for one in ask("diff", session=SESSION, limit=0)["threads"] for block in one["blocks"]]
    assert len(blocks) >= 23
    for block in blocks:
        data = block_bytes(reader, {"id": block["id"]})
        if "#" not in block["id"]:
            assert data in talk.lines
            continue
        uuid, _, path = block["id"].partition("#")
        value: Any = next(record for record in talk.records if record.get("uuid") == uuid)
        for step in path.split("."):
            value = value[int(step)] if isinstance(value, list) else value[step]
        assert data == line(value)


def test_a_limit_keeps_the_largest_blocks(home: Home, ask: Ask) -> None:
    after_a_prune(home)
    berths = next(one for one in ask("diff", session=SESSION)["threads"] if one["title"] == "List every berth")
    assert (len(berths["blocks"]), berths["blocks_total"]) == (5, 21)
    assert berths["blocks"][0]["what"] == "tool output"


def test_a_rewrite_by_another_program_is_not_called_ours(home: Home, ask: Ask) -> None:
    """Without a prune in the journal nobody else's cuts get our reasons."""
    talk = long_talk()
    short = Transcript(SESSION)
    short.lines = talk.lines[:3]
    generation(home, "v0-raw", talk.data)
    home.write(f"{APP}/{SESSION}.jsonl", short.data)
    home.index()
    value = ask("diff", session=SESSION)
    assert value["removed"]["records"] == len(talk.lines) - 3
    reasons = {block["reason"] for one in value["threads"] for block in one["blocks"]}
    assert reasons == {"another program rewrote the transcript"}


def test_what_was_written_since_is_added(home: Home, ask: Ask) -> None:
    talk = long_talk()
    generation(home, "v0-raw", talk.data)
    talk.user("And the pier?")
    home.write(f"{APP}/{SESSION}.jsonl", talk.data)
    home.index()
    value = ask("diff", session=SESSION)
    assert (value["added"]["records"], value["removed"]["records"], value["reduced"]["records"]) == (1, 0, 0)


def test_a_repeated_line_that_went_is_told_as_such(home: Home, ask: Ask) -> None:
    """The record is still there, so no words are counted as lost."""
    talk = Transcript(SESSION)
    talk.user("once")
    talk.lines.append(talk.lines[0])
    talk.assistant("twice")
    generation(home, "v0-raw", talk.data)
    del talk.lines[1]
    home.write(f"{APP}/{SESSION}.jsonl", talk.data)
    home.index()
    value = ask("diff", session=SESSION)
    (block,) = value["threads"][0]["blocks"]
    assert (block["what"], value["removed"]["tokens"]) == ("repeated line", 0)


# ── which states ────────────────────────────────────────────────────────────────────────────────────────────────


def two_states(home: Home) -> None:
    talk = long_talk()
    generation(home, "v0-raw", talk.data)
    generation(home, "v1-pruned", pruned(talk.data))
    home.write(f"{APP}/{SESSION}.jsonl", talk.data)
    home.index()


@pytest.mark.parametrize(
    ("behind", "states"),
    [
        ("", ("v1-pruned", "live")), ("@v0", ("v0-raw", "live")), ("@v0..v1", ("v0-raw", "v1-pruned")),
        ("@v1..v0", ("v1-pruned", "v0-raw")), ("@v0-raw..live", ("v0-raw", "live")),
        ("@live..v0", ("live", "v0-raw")),
    ],
)  # fmt: skip
def test_states_are_named_as_they_are_listed(home: Home, ask: Ask, behind: str, states: tuple[str, str]) -> None:
    two_states(home)
    value = ask("diff", session=SESSION[:6] + behind)
    assert (value["a"], value["b"]) == states


@pytest.mark.parametrize(
    ("given", "fault", "words"),
    [
        ("@v9", errors.NotFound, f"session {SESSION} has no generation v9; it has v0-raw, v1-pruned"),
        ("@v0-pruned", errors.NotFound, "no generation v0-pruned"),
        ("@x9", errors.BadRequest, "@x9 names no state"),
        ("@v0..", errors.BadRequest, "names no two states"),
        ("@..v0", errors.BadRequest, "names no two states"),
        ("@", errors.BadRequest, "ends with @"),
        ("@v0..v0", errors.BadRequest, "the same state"),
    ],
)
def test_a_state_that_is_none_is_one_clear_line(
    home: Home, ask: Ask, given: str, fault: type[errors.FabledError], words: str
) -> None:
    two_states(home)
    with pytest.raises(fault) as told:
        ask("diff", session=SESSION + given)
    assert words in told.value.message and told.value.hint is not None


def test_a_retired_generation_names_the_one_that_holds_it(home: Home, ask: Ask) -> None:
    two_states(home)
    path = home.vault_folder / APP / SESSION / "v0-raw.jsonl.zst"
    home.ledger.retire(str(path), str(path.with_name("v1-pruned.jsonl.zst")))
    path.unlink()
    home.index()
    with pytest.raises(errors.NotFound) as told:
        ask("diff", session=f"{SESSION}@v0")
    assert "v0 was retired: v1-pruned begins with all its bytes" in told.value.message


def test_one_state_alone_has_nothing_to_be_compared_with(home: Home, ask: Ask) -> None:
    home.write(f"{APP}/{SESSION}.jsonl", long_talk().data)
    home.index()
    with pytest.raises(errors.NotFound) as told:
        ask("diff", session=SESSION)
    assert "only live" in told.value.message and "fabled capture" in told.value.hint


def test_verbs_get_whole_ids(home: Home, reader: Reader) -> None:
    """A prefix becomes the session, `@v1` the generation's name; a state where none belongs is refused in words."""
    two_states(home)
    assert resolved(reader, "prune", {"session": SESSION[:7], "apply": True}) == {"session": SESSION, "apply": True}
    assert resolved(reader, "restore", {"session": SESSION[:7] + "@v1"}) == {"session": f"{SESSION}@v1-pruned"}
    assert resolved(reader, "capture", {"sessions": [SESSION[:6], SESSION]}) == {"sessions": [SESSION]}
    assert resolved(reader, "capture", {}) == {}
    for method, params in (
        ("undo", {"session": SESSION + "@v1"}),
        ("restore", {"session": SESSION + "@v1", "full": True}),
        ("restore", {"session": SESSION + "@live"}),
        ("restore", {}),
    ):
        with pytest.raises(errors.BadRequest):
            resolved(reader, method, params)


# ── generations ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_generations_tell_how_whole_each_state_is(home: Home, ask: Ask) -> None:
    """Records in full, and those that no other state has; figures of the Ledger beside those of the Map."""
    talk = after_a_prune(home)
    value = ask("generations", session=SESSION[:8])
    (row,), (live,) = value["generations"], value["live"]
    assert (row["generation"], row["number"], row["kind"], row["part"]) == ("v0-raw", 0, "raw", "")
    assert (row["sha256"], row["logical_bytes"]) == (hashlib.sha256(talk.data).hexdigest(), len(talk.data))
    assert row["records"] == row["full"] == len(talk.lines) and row["only"] == 20
    assert live["records"] == len(talk.lines) - 20 and live["full"] == live["records"] - 2


def test_a_generation_that_the_ledger_does_not_know_is_listed(home: Home, ask: Ask) -> None:
    """The Vault's own listing is the truth; the Ledger only adds."""
    generation(home, "v3-raw", long_talk().data)
    home.index()
    home.close()
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (home.path / name).unlink(missing_ok=True)
    home.open()
    (row,) = ask("generations")["generations"]
    assert (row["generation"], row["sha256"], row["retired"]) == ("v3-raw", None, False)


def test_parts_and_what_is_missing_are_listed_too(home: Home, ask: Ask) -> None:
    path = generation(home, "v0-raw", long_talk().data)
    part = "tool-results/a1.txt"
    home.ledger.keep(
        Kept(f"{path}/../{part}/v0-raw.zst", APP, SESSION, part, 0, "raw", "", 9, 5, b"x" * 32, 1, "asked for")
    )
    home.index()
    rows = ask("generations", session=SESSION)["generations"]
    assert [(row["part"], row.get("missing", False)) for row in rows] == [("", False), (part, True)]


# ── one value of a record ───────────────────────────────────────────────────────────────────────────────────────


def test_a_marker_opens(home: Home, ask: Ask, reader: Reader) -> None:
    """The place that a stub names gives exactly the bytes whose length and checksum the stub tells."""
    after_a_prune(home)
    live = (home.root / APP / f"{SESSION}.jsonl").read_text()
    found = {part.split("]")[0] for part in live.split("[fabled block ")[1:]}
    assert len(found) == 2
    for marker in found:
        id_, size, check = marker.split(" ")
        data = block_bytes(reader, {"id": id_})
        assert size == f"{len(data)}B" and hashlib.sha256(data).hexdigest().startswith(check.removeprefix("sha256:"))
        part = ask("block", id=id_)["part"]
        assert (part["length"], part["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert block_bytes(reader, {"id": f"{id_[:8]}#{id_.partition('#')[2]}"}) == data


def test_the_stub_never_stands_in_for_the_value(home: Home, ask: Ask) -> None:
    """Where only the reduced record is left, the answer says so instead of giving the stub."""
    talk = long_talk()
    home.write(f"{APP}/{SESSION}.jsonl", pruned(talk.data))
    home.index()
    picture = talk.records[2]["uuid"]
    with pytest.raises(errors.NotFound) as told:
        ask("block", id=f"{picture}#message.content.0.content.1")
    assert "only the stub is left" in told.value.message


@pytest.mark.parametrize("path", ["message.nothing", "message.content.77", "x", "message.content.0.content.1.0", "…"])
def test_a_path_that_leads_nowhere_is_said(home: Home, ask: Ask, path: str) -> None:
    talk = after_a_prune(home)
    with pytest.raises(errors.NotFound) as told:
        ask("block", id=f"{talk.records[2]['uuid']}#{path}")
    assert f"has no value at {path}" in told.value.message


def test_a_hash_without_a_path_is_a_mistake(home: Home, ask: Ask) -> None:
    talk = after_a_prune(home)
    with pytest.raises(errors.BadRequest):
        ask("block", id=f"{talk.records[2]['uuid']}#")


# ── what one value lost to become another ───────────────────────────────────────────────────────────────────────


def test_removals_are_the_smallest_values_that_tell() -> None:
    """A key that went, a block that went from between others, a text that was cut."""
    thinking, text, call = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "tool_use"}
    before = {"a": 1, "gone": [1], "message": {"content": [thinking, text, call]}, "s": "long"}
    after = {"a": 1, "message": {"content": [text, call]}, "s": "lo", "new": 2}
    assert [(path, value) for path, value, _ in removals(before, after)] == [
        (("gone",), [1]),
        (("message", "content", 0), thinking),
        (("s",), "long"),
    ]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "a", "b"]), inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES, _VALUES)
def test_removals_name_places_that_are_there(a: Any, b: Any) -> None:
    """Whatever two values are, each path leads to the value told, and equal values lost nothing."""
    for path, value, _ in removals(a, b):
        found = a
        for step in path:
            found = found[step]
        assert json.dumps(found) == json.dumps(value)
    assert list(removals(a, a)) == []
