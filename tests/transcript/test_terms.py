"""What a conversation's discovery terms are: of records alone, in any order, the same each time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.terms import CONCEPT, LONGEST, MOST, NAMES, OPERATIVE, TARGET, WIKILINK, Tally, commands, derived
from fabled.transcript.text import PROMPT, REPLY, facts
from tests.build import Transcript


def terms(talk: Transcript, *kinds: int) -> dict[str, int]:
    """term → count, of the kinds given."""
    return {
        term.text: term.count
        for term in derived((record, facts(record, False).kind) for record in talk.records)
        if term.kind in (kinds or NAMES)
    }


def test_operatives_are_commands_and_tools_that_are_not_the_clients_own() -> None:
    """Programs with their verb, modules, slash commands, skills and foreign tools; neither plumbing nor `Read`."""
    talk = Transcript()
    talk.user("<command-name>/review</command-name> <command-args>src</command-args>")
    talk.call("Bash", {"command": "cd /x && FOO=1 git rebase -i main | tee log; python3 -m pytest -q 'a && rm b'"})
    talk.call("Bash", {"command": 'node -e "const x = 1; console.log(x)"\nsudo systemctl --user restart harbour'})
    talk.call("mcp__maps__route", {"from": "a"})
    talk.call("Read", {"file_path": "/home/ana/app/src/tide.py"})
    talk.call("Task", {"prompt": "look", "subagent_type": "Explore"})
    assert terms(talk, OPERATIVE) == {
        "/review": 1, "git rebase": 1, "pytest": 1, "node": 1, "systemctl restart": 1, "mcp__maps__route": 1,
        "subagent:Explore": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("", []),
        ("ls -la | grep x", []),
        ("cat > f <<EOF\nrm -rf /\nEOF", []),
        ("git commit -m 'fix: make it && break it'", ["git commit"]),
        ("/usr/bin/cargo build --release", ["cargo build"]),
        ("npx 'unclosed", ["npx"]),
        ("\0\x1b[31m;;;&&", []),
    ],
)
def test_what_a_command_runs(command: str, found: list[str]) -> None:
    """Words within quotes and here-documents are no commands."""
    assert commands(command) == found


def test_targets_are_files_named_to_tools_and_identifiers_written_about() -> None:
    """A file of the project by its path there, another by its own; names as programs spell them; tickets."""
    talk = Transcript(cwd="/home/ana/app")
    talk.call("Edit", {"file_path": "/home/ana/app/src/tide.py", "old_string": "a", "new_string": "b"})
    talk.call("Read", {"file_path": "/etc/harbour.conf"})
    talk.user(
        "In src/tide.py:42 getTideTable calls low_water and Harbour.moor_now, see POL-358 and https://x.example/a.py"
    )
    assert terms(talk, TARGET) == {
        "src/tide.py": 2, "/etc/harbour.conf": 1, "getTideTable": 1, "low_water": 1, "Harbour.moor_now": 1,
        "POL-358": 1,
    }  # fmt: skip


def test_concepts_are_telling_words_and_plurals_join_their_singular() -> None:
    """Words without meaning of their own, random strings and code blocks leave no concept; the prompt's come first."""
    talk = Transcript()
    talk.user("Could you please explain the copy-on-write journal and its checkpoints? deadbeef01 9f02ab3c4d")
    talk.assistant("The journal is replayed from the last checkpoint.\n```\nzebra = zebra + 1\n```\n")
    found = terms(talk, CONCEPT)
    assert found == {"journal": 2, "copy-on-write": 1, "checkpoint": 2, "replayed": 1}


def test_words_without_blanks_are_found_too() -> None:
    talk = Transcript()
    talk.user("外注管理の部署を確認。キャッシュが古い。캐시 무효화")
    assert {"外注管理", "部署", "確認", "キャッシュ", "캐시", "무효화"} <= set(terms(talk, CONCEPT))


def test_wikilinks_are_links_and_no_shell_tests() -> None:
    talk = Transcript()
    talk.assistant('See [[Harbour rules]] and [[tide table|the table]]. `if [[ -f x ]]` and [["$a"]] are shell.')
    assert terms(talk, WIKILINK) == {"Harbour rules": 1, "tide table": 1}


def test_recalled_passages_tool_output_and_thoughts_leave_no_terms() -> None:
    """Inception: what was handed to the model is not what this conversation is about."""
    talk = Transcript()
    call = talk.call("Bash", {"command": "true"})
    talk.result(call, "walrus walrus walrus")
    talk.thinking("narwhal narwhal")
    talk.user('<historical_context source="fabled" arcs="a1">beluga beluga</historical_context> kelp')
    talk.user("<system-reminder>dugong dugong</system-reminder> kelp")
    records = [(record, facts(record, True).kind) for record in talk.records]
    tally = Tally()
    for record, kind in records:
        if kind not in (5, 3):
            tally.add(record, kind)
    assert {term.text for term in tally.terms() if term.kind == CONCEPT} == {"kelp"}


def test_credentials_are_no_terms() -> None:
    talk = Transcript()
    talk.user("use ghp_16C7e42F292c6912E7710c838347Ae178B4a and AKIAIOSFODNN7EXAMPLE for kelp")
    assert all("16C7e42F" not in term and "AKIAIOS" not in term for term in terms(talk))


words = st.sampled_from(["kelp", "tideTable", "src/a.py", "[[Moor]]", "git", "外注部署", "\ud800", "a" * 300, "x=1"])


@given(st.lists(st.lists(words, max_size=12), max_size=12), st.randoms())
def test_the_order_of_records_does_not_matter(texts: list[list[str]], order: random.Random) -> None:
    """The same records in any order: the same terms, of bounded number and length."""
    records: list[tuple[Any, int]] = [
        ({"type": "user", "message": {"content": " ".join(text)}}, PROMPT if number % 2 else REPLY)
        for number, text in enumerate(texts)
    ]
    found = derived(records)
    order.shuffle(records)
    assert derived(records) == found
    assert all(1 < len(term.text) <= LONGEST and term.count > 0 for term in found)
    assert all(sum(term.kind == kind for term in found) <= most for kind, most in MOST.items())


@given(st.recursive(st.none() | st.text(max_size=20), lambda v: st.lists(v, max_size=3) | st.dictionaries(
    st.sampled_from(["message", "content", "type", "text", "input", "name", "command", "file_path", "tool_use"]), v,
    max_size=4), max_leaves=12))  # fmt: skip
def test_a_record_of_any_shape_is_counted_without_fault(value: Any) -> None:
    tally = Tally()
    for kind in range(10):
        tally.add(value, kind)
        tally.add({"message": {"content": value}, "cwd": value}, kind)
    tally.terms()


def test_a_credential_in_a_text_gives_no_terms() -> None:
    """Its pieces look like words once they are apart."""
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    said = {"message": {"content": f"use aws_secret_access_key={secret} for the bucket of the harbour"}}
    words = " ".join(term.text.lower() for term in derived([(said, PROMPT)]))
    assert "harbour" in words and not any(part in words for part in ("utnfemi", "mdeng", "examplekey"))
