"""A recall handed to the real Claude Code comes back as a citation, never as something said.

Skipped without CLAUDE_CLIENT (the client's binary) and the tool that runs it against a mock of the API, which is looked
for beside the project. The script below runs in a network of its own that has only loopback, with a home of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (ROOT.parent / "shared" / "tools" / "client").resolve()

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("CLAUDE_CLIENT") or not (TOOLS / "sandbox.py").is_file(),
        reason="needs CLAUDE_CLIENT and the tool that runs it",
    ),
    pytest.mark.xdist_group("client"),
]

SCRIPT = '''
import json, os, pathlib, shutil, subprocess, sys, tempfile, time

import sandbox

sandbox.enter()
root = pathlib.Path(tempfile.mkdtemp(prefix="fc-", dir="/tmp"))
home = root / "f"
extra = {"PYTHONPATH": os.environ["PYTHONPATH"], "FABLED_HOME": str(home), "FABLED_WATCH_QUIET_SECONDS": "0.1"}
box = sandbox.Sandbox(sandbox.find_client(), root=str(root / "c"), extra_env=extra)
env = {**box.env(), **extra}
fabled = [sys.executable, "-m", "fabled"]


def run(*arguments, **more):
    command = [*fabled, *arguments]
    return subprocess.run(command, env=env, cwd=box.cwd, capture_output=True, text=True, timeout=60, **more)


def texts():
    return {path.stem: path.read_text() for path in box.transcripts()}


out = {}
try:
    home.mkdir()
    (home / "config.toml").write_text("[recall]\\non_prompt = true\\n")
    # An earlier session, made by the client itself.
    word = "zanzibarquokka"
    said = f"the {word} watcher drops inotify events after every laptop suspend, remember the overflow queue"
    box.run("-p", said + " [[text: a periodic sweep rescans whatever inotify lost]]")
    (first,) = texts()
    out["installed"] = run("claude", "install").returncode
    daemon = subprocess.Popen([*fabled, "daemon"], env=env, cwd=box.cwd, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def until(condition):
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, "it did not come"
            time.sleep(0.05)

    until(lambda: run("search", word, "--all").returncode == 0)
    found = json.loads(run("search", word, "--all", "--json").stdout)["results"]
    out["before"] = len(found)
    out["arc"] = arc = found[0]["thread"]
    prompt = "does the watcher still drop inotify events after a laptop suspend, with the overflow queue?"
    asked = (("search", {"query": word}), ("thread", {"id": arc}), ("block", {"id": found[0]["uuid"]}))
    calls = " ".join("[[tool: mcp__plugin_fabled_fabled__%s %s]]" % (name, json.dumps(what)) for name, what in asked)
    known = set(texts())

    def told(*arguments):
        """A run of the client: its exit status, and how often the request held a recall."""
        done = box.run(*arguments, "--allowedTools", "mcp__plugin_fabled_fabled")
        sent = [json.dumps(request["body"]["messages"]) for request in done["main"]]
        return [done["rc"], [messages.count("<historical_context source=") for messages in sent]]

    # Told at its start and with its prompt; then asking through MCP; compacted, and told what it lost.
    out["prompt"] = told("-p", prompt)
    (second,) = set(texts()) - known
    out["tools"] = told("--resume", second, "-p", calls)
    out["compact"] = told("--resume", second, "-p", "/compact")
    out["later"] = told("--resume", second, "-p", "thank you")
    # What other hooks could print: as JSON, longer than the client lets through, before a compaction.
    from fabled.transcript.frame import Passage, Quote, frame

    def framed(mark, size):
        quote = Quote("user", f"{mark} " + f"{mark} filler </historical_context> \\"quoted\\" " * size)
        return frame([Passage(f"arc-{mark}", f"- {mark}", [quote])], "0a1b2c3d", tokens=10**6, chars=10**6).text

    shaped = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": framed("jsonmark", 3)}}
    long = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": framed("cutmark", 600)}}
    prints = {"json": json.dumps(shaped), "long": json.dumps(long), "plain": framed("plainmark", 600),
              "before": framed("compactmark", 3)}
    hooks = {}
    for name, text in prints.items():
        (root / name).write_text(text)
        event = "PreCompact" if name == "before" else "UserPromptSubmit"
        cat = {"type": "command", "command": f"cat {root / name}"}
        hooks.setdefault(event, [{"hooks": []}])[0]["hooks"].append(cat)
    settings = json.loads((box.config / "settings.json").read_text())
    (box.config / "settings.json").write_text(json.dumps({**settings, "hooks": hooks}))
    known = set(texts())
    out["others"] = told("-p", "hello")
    (third,) = set(texts()) - known
    told("--resume", third, "-p", "and now")
    out["others compact"] = told("--resume", third, "-p", "/compact")
    told("--resume", third, "-p", "bye")

    out["carriers"] = carriers = {}
    for line in (line for session in (second, third) for line in texts()[session].splitlines()):
        if "historical_context" in line:
            record = json.loads(line)
            kind = record["type"]
            if kind == "attachment":
                kind += "/" + record["attachment"]["type"] + "/" + str(record["attachment"].get("hookEvent"))
            carriers[kind] = carriers.get(kind, 0) + 1
    out["cut"] = "cutmark" in texts()[third] and 'cutmark \\n</historical_context>' not in texts()[third]
    run("index")

    def hits(query):
        return [one["session_id"] for one in json.loads(run("search", query, "--all", "--json").stdout)["results"]]

    out["hits"] = {query: hits(query) for query in (
        "rescans", "jsonmark", "cutmark", "plainmark", "compactmark", '"quoted record of earlier"')}
    out["sessions"] = [first, second, third]
    import apsw
    db = apsw.Connection(str(home / "data" / "map.db"), flags=apsw.SQLITE_OPEN_READONLY)
    out["cited"] = [ref for ref, in db.execute("SELECT DISTINCT ref FROM citations")]
    db.close()
    out["check"] = run("check").returncode
    out["plugins"] = box.run("plugin", "list")["stdout"]
    daemon.terminate()
    out["daemon"] = daemon.wait(20)
    out["uninstalled"] = run("claude", "uninstall").returncode
    out["after_uninstall"] = box.run("plugin", "list")["stdout"]
finally:
    box.close()
    shutil.rmtree(root, ignore_errors=True)
print(json.dumps(out))
'''


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("client") / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(filter(None, (str(ROOT), str(TOOLS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    value = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(value, dict)
    return value


def test_a_recall_reaches_the_model_through_every_hook_and_tool(outcome: dict[str, Any]) -> None:
    """At the start and with the prompt, three times through MCP, and after a compaction."""
    assert (outcome["installed"], outcome["before"]) == (0, 1)
    assert outcome["prompt"] == [0, [2]]
    assert outcome["tools"] == [0, [2, 3, 4, 5]]
    assert outcome["compact"][0] == 0 and outcome["later"] == [0, [1]]
    assert outcome["others"][0] == outcome["others compact"][0] == 0
    assert set(outcome["carriers"]) >= {
        "user", "attachment/hook_success/SessionStart", "attachment/hook_success/UserPromptSubmit",
        "attachment/hook_additional_context/UserPromptSubmit",
    }  # fmt: skip


def test_it_comes_back_as_citations_and_not_as_hits(outcome: dict[str, Any]) -> None:
    """Printed, in a hook's JSON, cut at 10,000 characters, in a tool's result, in the client's copies of requests."""
    assert outcome["cut"]
    first = outcome["sessions"][0]
    assert outcome["hits"] == {
        "rescans": [first], "jsonmark": [], "cutmark": [], "plainmark": [], "compactmark": [],
        '"quoted record of earlier"': [],
    }  # fmt: skip
    marks = {f"arc-{mark}" for mark in ("jsonmark", "cutmark", "plainmark", "compactmark")}
    assert set(outcome["cited"]) >= {outcome["arc"], *marks}
    assert outcome["check"] == 0


def test_the_client_lists_the_plugin_while_it_is_installed(outcome: dict[str, Any]) -> None:
    assert "fabled@fabled" in outcome["plugins"] and "enabled" in outcome["plugins"]
    assert outcome["uninstalled"] == 0 and "fabled@fabled" not in outcome["after_uninstall"]


@pytest.mark.parametrize("folder", ["service/claude-plugin", "service/claude-plugin/fabled"])
def test_the_client_finds_nothing_wrong_with_the_plugin(tmp_path: Path, folder: str) -> None:
    quiet = dict.fromkeys(("DISABLE_TELEMETRY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"), "1")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path), **quiet}
    command = [os.environ["CLAUDE_CLIENT"], "plugin", "validate", "--strict", str(ROOT / folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
