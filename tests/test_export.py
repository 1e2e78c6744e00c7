"""`export`: one thread as Markdown, HTML or its own bytes; what may be written where; what text may do in it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fabled.cli import output
from fabled.errors import BadRequest, OutputFault, Refused
from fabled.present.markdown import contained
from tests.build import Transcript, line, make_uuid
from tests.shell import FOLDER, Home, daemon, harbour

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
CANARY = "zebrafish-canary"
HTML = "<script>alert(1)</script><!-- hidden"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.write(secretive())
    return made


def secretive() -> Transcript:
    """A thread with a credential, a fence, a heading, HTML and a subagent's kind of noise in it."""
    talk = Transcript(make_uuid("secretive"))
    talk.user(f"Use {KEY} for {CANARY}")
    call = talk.call("Bash", {"command": f"echo {KEY}"})
    talk.add("progress", data={"type": "bash_progress", "output": "tick"})
    talk.result(call, "```\nfenced\n```\n", parent=call["uuid"])
    call = talk.call("mcp__`<b>`__*x*", {"in": 1})
    talk.result(call, "")
    talk.assistant(f"# A heading\nDone. {HTML}\n\n[x]: javascript:alert(1)\nUnder\n===\n```\nopen")
    return talk


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────

_RENDERERS = (MarkdownIt("commonmark", {"html": True}), MarkdownIt("commonmark", {"html": True}).enable("table"))
_PIECES = st.sampled_from(
    ["`", "``", "```", "````", "~~~", "<b>", "<script>", "<!--", "-->", "<?php", "<a href='", "'>", "![a](http://x)",
     "[a](javascript:b)", "[x]: /url", "[x]", "](", ")", "(", "[", "]", "!", "#", "## ", " ", "    ", "\t", "\n",
     "\n\n", "> ", "- ", "-", "---", "===", "=", "1. ", "* ", "|", "|---|---|", "word", "\\", "&lt;", "&#106;", "_",
     "**", "\n```\n", "\n~~~\n", "\n<div>\n", "```py", "- ```", "> ```", "\n    "]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(_PIECES, max_size=24).map("".join))
@example("[](]`1)a<script>x</script> \\`b")  # a span that a renderer never sees: its sign is in a link's address
@example("[x]> y\n    > \n- ")  # a line of nothing but a sign of quotation goes on with a paragraph
@example("- a\n\n~~~a|\n|---|\n<div>")  # a fence that one renderer takes for a table
@example("a\n- ```sh\n<b>\n")
@example("`a\nb` <i>x</i> `")
@example("| a | b |\n|---|---|\n| `x | <b>` | y |")
def test_nothing_in_a_text_gets_out_of_its_place(text: str) -> None:
    """No renderer finds HTML, an image, a bad link, a reference, or a heading as high as ours in it."""
    for renderer in _RENDERERS:
        known: dict[str, Any] = {}
        tokens = renderer.parse(f"## before\n\n{contained(text)}\n\n## after", known)
        headings = [(token.tag, token.level) for token in tokens if token.type == "heading_open"]
        assert headings[0] == headings[-1] == ("h2", 0) and not {"h1", "h2"} & {tag for tag, _ in headings[1:-1]}
        assert not known.get("references") and not [token for token in tokens if token.type == "html_block"]
        inner = [child for token in tokens for child in token.children or ()]
        assert not [child for child in inner if child.type in ("html_inline", "image")]
        addresses = [str(child.attrs["href"]).lower() for child in inner if child.type == "link_open"]
        assert not [address for address in addresses if address.startswith(("javascript:", "data:", "vbscript:"))]


@pytest.mark.parametrize(
    "text",
    ["Plain words, *stressed*, with `code <b>` and [a link](https://x.invalid/a_b#c).", "- one\n- two\n\n1. a\n2. b",
     "| a | b |\n|---|---|\n| 1 | 2 |", "> quoted\n> twice", "[the file](src/app.py:42) and a ~ b & c"],
)  # fmt: skip
def test_ordinary_markdown_stays_as_it_is(text: str) -> None:
    assert contained(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1. so:\n   ```py\n   print('<b>')\n   ```", "1. so:\n\n```py\nprint('<b>')\n```\n"),
        ("> ```\n> quoted\nbehind", "```\nquoted\n```\n\nbehind"),
        ("```\nopen ````", "`````\nopen ````\n`````\n"),
        ("so:\n\n    set <in>\n\nand on", "so:\n\n```\nset <in>\n```\n\n\nand on"),
        ("# one\n####### none\n\n6\n------", "### one\n####### none\n\n6\n\\------"),
    ],
)
def test_code_and_headings_are_written_anew(text: str, shown: str) -> None:
    """What renderers would understand in several ways is written in the one that all understand."""
    assert contained(text) == shown


def test_markdown_masks_and_keeps_its_shape(home: Home) -> None:
    """Credentials are masked and counted; what was said changes nothing of the document; --no-redact keeps all."""
    assert home.run("index").returncode == 0
    thread = secretive().records[0]["promptId"]
    done = home.run("export", thread, "-o", "why.md")
    assert "Masked 2 values that look like keys" in done.stdout, done
    text = (home.path / "why.md").read_text()
    assert KEY not in text and CANARY in text
    assert "````text\n```\nfenced\n```\n````" in text and "\n### A heading\n" in text
    tokens = MarkdownIt("commonmark", {"html": True}).parse(text)
    headings = [inside.content for opened, inside in pairwise(tokens) if opened.type == "heading_open"]
    assert [heading.partition(",")[0] for heading in headings[1:]] == [
        "user", "tool Bash", "result", r"tool mcp\_\_\`\<b\>\`\_\_\*x\*", "result", "assistant", "A heading",
    ]  # fmt: skip
    assert not [token for token in tokens if token.type == "html_block"]
    assert home.run("export", thread, "-o", "why.md", "--no-redact").returncode == 0
    assert KEY in (home.path / "why.md").read_text()
    told = json.loads(home.run("export", thread, "-o", "why.html", "--json").stdout)
    assert told["format"] == "html" and told["redacted"] == 2 and KEY not in (home.path / "why.html").read_text()
    assert (told["turns"], told["subagent_turns"], told["unreadable"]) == (6, 0, 0)


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def odd() -> Transcript:
    """Lines that a parser may take offence at, each a record all the same."""
    talk = Transcript(make_uuid("odd"))
    talk.user(f"odd bytes {CANARY}")
    lone = line({**talk.assistant("half"), "uuid": make_uuid("lone")}).replace(b"half", b"half \\ud83d pair")
    broken = line({**talk.records[-1], "uuid": make_uuid("broken")}).replace(b"half", b"half \xff\xfe\x00\x1b[2J")
    talk.lines[-1:] = [line(talk.records[-1]), lone, broken]
    talk.assistant("x" * 3_000_000)
    return talk


@pytest.mark.parametrize("running", [True, False])
def test_jsonl_is_byte_for_byte_what_was_written(home: Home, running: bool) -> None:
    """Every record of the thread and no other, in order, from live transcripts or from the Vault."""
    home.write(odd())
    assert home.run("capture").returncode == 0
    written = {secretive().records[0]["promptId"]: secretive(), odd().records[0]["promptId"]: odd()}
    if running:
        for talk in written.values():
            (home.projects / FOLDER / f"{talk.session}.jsonl").unlink()
        with daemon(home):
            for thread, talk in written.items():
                assert home.bytes("export", thread, "--format", "jsonl") == talk.data
        return
    for thread, talk in written.items():
        assert home.bytes("export", thread[:8], "--format", "jsonl") == talk.data
    told = json.loads(home.bytes("export", thread, "--format", "jsonl", "--json"))
    assert told["text"].encode("utf-8", "surrogateescape") == talk.data
    for kind in ("md", "html"):
        shown = home.bytes("export", thread, "--format", kind, "--no-redact")
        assert CANARY in shown.decode() and b"\x1b" not in shown and b"\0" not in shown
    assert home.run("export", "ffffff", "--format", "jsonl").returncode == 1


def test_a_document_on_a_terminal_does_not_steer_it(home: Home) -> None:
    """What somebody wrote is shown there, and goes into files and pipes as it was."""
    talk = Transcript(make_uuid("steering"))
    talk.user("draw the ibis")
    talk.assistant("\x9b2Jibis\u202e")
    home.write(talk)
    assert home.run("index").returncode == 0
    thread = talk.records[0]["promptId"]
    for arguments in (["--format", "jsonl"], ["--format", "md", "--no-redact"]):
        shown = home.on_terminal("export", thread, *arguments)[1]
        assert "ibis" in shown and "\x9b" not in shown and "\u202e" not in shown
    shown = home.on_terminal("thread", thread, "--raw", "--json")[1]
    assert "\x9b" not in shown and json.loads(shown.splitlines()[-1])["turns"][1]["text"] == "\x9b2Jibis\u202e"
    assert home.bytes("export", thread, "--format", "jsonl") == talk.data


def test_what_subagents_did_comes_last_or_not_at_all(home: Home) -> None:
    talk = harbour()
    side = Transcript(talk.session, agent="a1b2", sidechain=True)
    call = talk.call("Task", {"prompt": "look", "description": "look"})
    talk.result(call, "in the marsh")
    side.user("look")
    side.assistant("There it is.")
    home.write(talk)
    folder = home.projects / FOLDER / talk.session / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a1b2.jsonl").write_bytes(side.data)
    assert home.run("index").returncode == 0
    thread = talk.records[0]["promptId"]
    assert home.bytes("export", thread, "--format", "jsonl") == talk.data + side.data
    assert home.bytes("export", thread, "--format", "jsonl", "--no-subagents") == talk.data
    assert "6 turns and 2 turns of subagents" in home.run("export", thread, "-o", "t.md").stdout
    assert "6 turns," in home.run("export", thread, "-o", "t.md", "--no-subagents").stdout
    assert "There it is." not in (home.path / "t.md").read_text()


# ── where to ────────────────────────────────────────────────────────────────────────────────────────────────────


def at_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.path)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_file_of_others_is_overwritten(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transcripts, the Vault, settings and databases, however their path is spelt: exit 4 and nothing changed."""
    assert home.run("capture").returncode == 0
    at_home(home, monkeypatch)
    transcript = home.projects / FOLDER / f"{secretive().session}.jsonl"
    (home.path / "claude" / "settings.json").write_text("{}")
    (home.path / "link.jsonl").symlink_to(transcript)
    (home.path / "folder").symlink_to(home.projects)
    generation = next((home.path / "fabled" / "data" / "vault").rglob("*.zst"))
    before = {**everything(home.path / "claude"), str(generation): generation.read_bytes()}
    for to in (
        transcript, transcript.parent / "new.md", "link.jsonl", f"folder/{FOLDER}/{transcript.name}", generation,
        "claude/settings.json", "fabled/data/map.db", "fabled/config.toml", "fabled/data/vault/x.md",
    ):  # fmt: skip
        with pytest.raises(Refused, match="nothing was written"):
            output.write(str(to), [b"x"])
    thread = secretive().records[0]["promptId"]
    for command in (["export", thread, "--format", "jsonl"], ["report"], ["doctor", "--bundle"]):
        assert home.run(*command, "-o", str(transcript)).returncode == 4
    assert {**everything(home.path / "claude"), str(generation): generation.read_bytes()} == before


def test_a_place_that_takes_no_file_is_said_in_one_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a missing one, a closed stdout, a full disk: no traceback, and what was there stays whole."""
    home.write(odd())
    assert home.run("index").returncode == 0
    thread = odd().records[0]["promptId"]
    (home.path / "sub").mkdir()
    (home.path / "why.md").write_text("mine")
    at_home(home, monkeypatch)
    for to, fault in (("sub", BadRequest), ("sub/", BadRequest), ("", BadRequest), ("no/x.md", OutputFault),
                      ("why.md/x", OutputFault)):  # fmt: skip
        with pytest.raises(fault):
            output.write(to, [b"x"])
    for to, status in (("sub", 2), ("no/x.md", 1)):
        done = home.run("export", thread, "-o", to)
        assert (done.returncode, done.stdout) == (status, "") and "fabled: " in done.stderr.splitlines()[-1], done
    command = f"{sys.executable} -m fabled export {thread}"
    closed = subprocess.run(f"{command} >&-", shell=True, env=home.env, cwd=home.path, capture_output=True, text=True)
    assert closed.returncode == 1 and "Traceback" not in closed.stderr
    full = subprocess.run(f"{command} >/dev/full", shell=True, env=home.env, capture_output=True, text=True)
    assert full.returncode == 1 and "could not be written" in full.stderr
    limited = subprocess.run(
        [sys.executable, "-m", "fabled", "export", thread, "-o", "why.md"], env=home.env, cwd=home.path,
        capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6)),
    )  # fmt: skip
    assert limited.returncode == 1 and "could not be written" in limited.stderr, limited
    assert (home.path / "why.md").read_text() == "mine"
    assert [path.name for path in home.path.glob(".fabled*")] == []


def test_a_file_is_replaced_whole_and_a_device_is_written_into(home: Home) -> None:
    """Mine alone to read; a link keeps leading to its file; a pipe or /dev/null stays what it is."""
    assert home.run("index").returncode == 0
    thread = secretive().records[0]["promptId"]
    (home.path / "real.md").write_text("old")
    (home.path / "link.md").symlink_to("real.md")
    assert home.run("export", thread, "-o", "link.md").returncode == 0
    assert (home.path / "link.md").is_symlink() and CANARY in (home.path / "real.md").read_text()
    assert (home.path / "real.md").stat().st_mode & 0o077 == 0
    pipe = home.path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reading:
        assert home.run("export", thread, "-o", "pipe").returncode == 0
        assert CANARY in reading.communicate(timeout=30)[0]
    assert pipe.is_fifo()
    assert home.run("export", thread, "-o", "/dev/null").returncode == 0 and Path("/dev/null").is_char_device()
