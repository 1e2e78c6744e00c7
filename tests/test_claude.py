"""`fabled claude`: the plugin comes and goes, and the user's own settings stay as they are."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabled
from fabled.cli import jsonedit
from fabled.client import absent
from fabled.errors import Refused
from fabled.transcript.text import strip_recalled
from tests.shell import Home, harbour

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "service" / "claude-plugin"
OWN = """{
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]},   "model": "opus",
  "permissions": {
    "allow": ["Bash(ls:*)"]
  },
  "enabledPlugins": {"other@market": false}
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def settings(home: Home) -> Path:
    return home.path / "claude" / "settings.json"


# ── texts of JSON ───────────────────────────────────────────────────────────────────────────────────────────────

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6) | st.sampled_from(["a", "b"]), VALUES, max_size=4)
LAYOUTS = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}, {"separators": (" ,\n", " : ")}])


@given(OBJECTS, LAYOUTS, st.sampled_from([("a",), ("a", "b"), ("new", "inner"), ("x", "y", "z")]), VALUES)
def test_what_is_put_and_dropped_leaves_no_trace(
    value: dict[str, Any], layout: dict[str, Any], path: tuple[str, ...], new: Any
) -> None:
    """Byte for byte, however the text is laid out; a member that was there is not ours to put back."""
    text = " \n" + json.dumps(value, **layout) + "\n"
    inner: Any = value
    depth = 0
    while depth < len(path) and isinstance(inner, dict) and path[depth] in inner:
        inner = inner[path[depth]]
        depth += 1
    if depth == len(path):
        assert json.loads(jsonedit.put(text, path, new))[path[0]] != {} or len(path) == 1
        return
    if not isinstance(inner, dict):
        with pytest.raises(Refused):
            jsonedit.put(text, path, new)
        assert jsonedit.drop(text, path) == text
        return
    there = jsonedit.put(text, path, new)
    assert there != text and jsonedit.drop(there, path[: depth + 1]) == text


@pytest.mark.parametrize("text", ["", "[]", "{,}", '{"a": 1} // mine', "\ufeff{}", "{'a': 1}"])
def test_what_is_no_plain_json_is_not_touched(text: str) -> None:
    with pytest.raises(Refused):
        jsonedit.put(text, ("a",), 1)


# ── install ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [None, "", "{}", "{}\n", OWN, '{"a":1}', '{\r\n\t"a": 1\r\n}\r\n'])
def test_uninstalling_gives_back_the_very_bytes(home: Home, before: str | None) -> None:
    if before is not None:
        settings(home).write_bytes(before.encode())
    done = home.run("claude", "install")
    assert (done.returncode, done.stderr) == (0, "")
    value = json.loads(settings(home).read_text())
    assert value["enabledPlugins"]["fabled@fabled"] is True
    folder = Path(value["extraKnownMarketplaces"]["fabled"]["source"]["path"])
    assert (folder / "fabled" / "hooks" / "hooks.json").is_file()
    assert home.run("claude", "install").returncode == 0  # again: nothing more
    assert json.loads(settings(home).read_text()) == value
    assert home.run("claude", "uninstall").returncode == 0
    assert (settings(home).read_bytes().decode() if settings(home).exists() else None) == before
    assert not folder.exists()
    assert "was not installed" in home.run("claude", "uninstall").stdout


def test_only_our_entries_go_where_the_settings_changed_since(home: Home) -> None:
    """The client writes the file anew when it likes, and the user edits it."""
    settings(home).write_text(OWN)
    home.run("claude", "install", "--statusline")
    value = json.loads(settings(home).read_text())
    assert value["statusLine"]["command"].endswith(" statusline")
    value["model"] = "sonnet"
    value["enabledPlugins"]["third@market"] = True
    settings(home).write_text(json.dumps(value, indent=4))
    lists = home.path / "claude" / "plugins"
    lists.mkdir()
    market = {"source": value["extraKnownMarketplaces"]["fabled"]["source"], "installLocation": "x"}
    (lists / "known_marketplaces.json").write_text(json.dumps({"fabled": market, "other": {"source": {}}}))
    assert home.run("claude", "uninstall").returncode == 0
    left = json.loads(settings(home).read_text())
    plugins = {"other@market": False, "third@market": True}
    assert left == {**json.loads(OWN), "model": "sonnet", "enabledPlugins": plugins}
    assert json.loads((lists / "known_marketplaces.json").read_text()) == {"other": {"source": {}}}


def test_links_and_rights_of_the_settings_stay(home: Home) -> None:
    """Settings kept elsewhere, with secrets in them: the link stays one, and so does the mode."""
    real = home.path / "dotfiles.json"
    real.write_text('{"env": {"KEY": "x"}}')
    real.chmod(0o640)
    settings(home).symlink_to(real)
    home.run("claude", "install")
    assert settings(home).is_symlink() and "fabled" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    backup = home.path / "fabled" / "data" / "claude" / "settings-before.json"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600 and backup.read_text() == '{"env": {"KEY": "x"}}'


@pytest.mark.parametrize(
    "before",
    [
        "{ nonsense",
        '{"extraKnownMarketplaces": {"fabled": {"source": {"source": "github", "repo": "a/b"}}}}',
        '{"enabledPlugins": ["x"]}',
        '{"extraKnownMarketplaces": 3}',
    ],
)
def test_what_cannot_be_done_safely_is_refused_and_changes_nothing(home: Home, before: str) -> None:
    settings(home).write_text(before)
    done = home.run("claude", "install")
    assert done.returncode == 4 and "nothing was changed" in done.stderr
    assert settings(home).read_text() == before


def test_a_status_line_of_the_users_own_stays(home: Home) -> None:
    settings(home).write_text('{"statusLine": {"type": "command", "command": "mine"}}')
    assert home.run("claude", "install", "--statusline").returncode == 4
    assert home.run("claude", "install").returncode == 0
    home.run("claude", "uninstall")
    assert "mine" in settings(home).read_text()


def test_print_shows_and_changes_nothing(home: Home) -> None:
    settings(home).write_text(OWN)
    done = home.run("claude", "install", "--print")
    assert "+" in done.stdout and "fabled@fabled" in done.stdout and "hook session-start" in done.stdout
    assert settings(home).read_text() == OWN and not (home.path / "fabled" / "data" / "claude").exists()


def test_the_commands_written_are_absolute_and_know_their_home(home: Home) -> None:
    """Whatever the person's work has set for other programs, and also when this one is gone."""
    home.run("claude", "install")
    odd = home.path / "odd"
    odd.mkdir()
    for name in ("os", "site", "sitecustomize", "re", "json", "fabled"):
        (odd / f"{name}.py").write_text("raise SystemExit('another one')")
    env = {"PYTHONPATH": str(odd), "PYTHONHOME": "/nowhere"}
    folder = home.path / "fabled" / "data" / "claude" / "plugin" / "fabled"
    hooks = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]
    commands = [hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]]
    assert len(commands) == 5
    for command in commands:
        assert command.startswith("! [ -x /") and f"] || FABLED_HOME={home.path / 'fabled'} /" in command
        done = subprocess.run(["sh", "-c", command], cwd=odd, env=env, input=b"{}", capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for what in (sys.prefix, str(ROOT / "fabled")):
        gone = commands[0].replace(what, "/nowhere")
        assert gone != commands[0]
        done = subprocess.run(["sh", "-c", gone], env={}, input=b"{}", capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["fabled"]
    assert os.path.isabs(server["command"]) and server["args"][-1] == "mcp"
    assert server["env"] == {"FABLED_HOME": str(home.path / "fabled")}


def test_status_says_what_is_on_and_what_is_missing(home: Home) -> None:
    value = json.loads(home.run("claude", "status", "--json").stdout)
    assert (value["installed"], value["daemon"]) == (False, False)
    home.run("claude", "install")
    done = home.run("claude", "status", "--json")
    value = json.loads(done.stdout)
    assert (done.returncode, value["installed"], value["enabled"], value["on_prompt"]) == (1, True, True, False)
    assert value["hook_ms"] > 0 and value["mcp_ms"] > 0
    start = absent.start_line(home.env)
    assert value["problems"] == [f"the daemon is not running, so nothing is recalled: {start}"]
    changed = json.loads(settings(home).read_text())
    changed["enabledPlugins"]["fabled@fabled"] = False
    settings(home).write_text(json.dumps(changed))
    assert "switched off" in home.run("claude", "status").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": ', "is not plain JSON (Expecting value: line 1 column 7)"),
        ("[]", "holds no JSON object"),
        (None, "cannot be read: not a regular file"),
    ],
)
def test_settings_that_tell_nothing_are_one_clear_line(home: Home, text: str | None, said: str) -> None:
    """Broken, of another kind, or a pipe that nobody writes to: named with its reason, by `status` and the doctor."""
    if text is None:
        os.mkfifo(settings(home))
    else:
        settings(home).write_text(text)
    done = home.run("claude", "status")
    told = [one for one in " ".join(done.stdout.split()).split("! ") if "settings.json" in one and said in one]
    assert done.returncode == 1 and len(told) == 1 and "not installed" not in done.stdout
    (found,) = (one for one in json.loads(home.run("doctor", "--json").stdout)["checks"] if one["id"] == "claude")
    assert found["state"] == "failure" and said in found["message"] and found["fix"]
    assert home.run("claude", "install").returncode in (1, 4)


def checked(home: Home, **env: str) -> list[tuple[str, str]]:
    """What the doctor says of Claude Code: state and message."""
    value = json.loads(home.run("doctor", "--json", **env).stdout)
    return [(one["state"], one["message"]) for one in value["checks"] if one["id"] == "claude"]


def test_the_doctor_tries_what_the_client_would_run(home: Home) -> None:
    """Not there, there and answering, of another version, switched off, its program gone, its server mute."""
    assert checked(home) == [("warning", "the plugin is not installed")]
    home.run("claude", "install")
    ((state, said),) = checked(home)
    assert state == "ok" and re.fullmatch(r"plugin \S+ on, hooks answer in \d+ ms, MCP in \d+ ms", said), said
    changed = json.loads(settings(home).read_text())
    settings(home).write_text(json.dumps({**changed, "disableAllHooks": True}))
    assert checked(home) == [("warning", "Claude Code runs no hooks at all: disableAllHooks is set")]
    settings(home).write_text(json.dumps({**changed, "enabledPlugins": {}}))
    assert checked(home) == [("warning", "the plugin is switched off in Claude Code")]
    settings(home).write_text(json.dumps(changed))
    folder = home.path / "fabled" / "data" / "claude" / "plugin" / "fabled"
    manifest = folder / ".claude-plugin" / "plugin.json"
    manifest.write_text(manifest.read_text().replace(f'"{fabled.__version__}"', '"0.0.1"'))
    said = f"the plugin that lies there is of 0.0.1, this is {fabled.__version__}"
    assert checked(home) == [("warning", said)]
    server = folder / ".mcp.json"
    server.write_text(server.read_text().replace('"mcp"', '"--version"'))
    mute = re.compile(r"the plugin's MCP server gives no answer: it ended with status \d+ and no answer")
    assert [state for state, said in checked(home) if mute.fullmatch(said)] == ["failure"]
    server.write_text(server.read_text().replace(f'"{sys.prefix}', '"/nowhere'))
    found = [said for _, said in checked(home)]
    assert any(said.startswith("the plugin's hook gives no answer: /nowhere/") for said in found), found
    assert home.run("claude", "install").returncode == 0
    assert checked(home)[0][0] == "ok"


# ── what a model would be given ─────────────────────────────────────────────────────────────────────────────────


def test_show_context_prints_exactly_that_also_without_a_daemon(home: Home) -> None:
    talk = harbour()
    talk.cwd = str(home.path)
    for record in talk.records:
        record["cwd"] = str(home.path)
    talk.lines = [json.dumps(record).encode() for record in talk.records]
    home.write(talk, "".join(c if c.isalnum() else "-" for c in str(home.path)))
    home.run("index")
    done = home.run("claude", "show-context")
    assert done.returncode == 0 and " tok, " in done.stderr
    assert strip_recalled(done.stdout) == ("\n", (talk.prompt,))
    value = json.loads(home.run("claude", "show-context", "--thread", str(talk.prompt), "--json").stdout)
    assert value["v"] == 1 and value["arcs"] == [talk.prompt] and "CREATE TABLE" not in value["text"]
    compacted = home.run("claude", "show-context", "--source", "compact", "--session", talk.session)
    assert strip_recalled(compacted.stdout)[1] == (talk.prompt,)
    nothing = home.run("claude", "show-context", "--prompt", "hello")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert home.run("claude", "show-context", "--prompt", "x", "--thread", "y").returncode == 2


# ── the plugin's files ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_plugin_is_of_this_version_and_travels_in_the_wheel() -> None:
    plugin = json.loads((PLUGIN / "fabled" / ".claude-plugin" / "plugin.json").read_text())
    assert plugin["version"] == fabled.__version__
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["service"] == "fabled/service"


def test_every_hook_of_the_plugin_is_one_the_client_side_knows() -> None:
    from fabled.client import hook

    hooks = json.loads((PLUGIN / "fabled" / "hooks" / "hooks.json").read_text())["hooks"]
    called = {one["command"].split()[-1] for groups in hooks.values() for group in groups for one in group["hooks"]}
    assert called == {*hook._ANSWERED, *hook._NUDGES}


def test_the_installed_interpreter_is_the_one_that_runs_this() -> None:
    from fabled.cli import plugin

    assert plugin.command()[0].startswith(os.path.dirname(sys.executable))


def test_any_answer_can_be_framed_with_the_threads_it_names() -> None:
    """Lists that others make: their words are quoted, their threads cited, whatever their shape."""
    from fabled import recall

    rows = [{"thread": "aaaaaaaa-1", "title": "x"}, {"thread": 'b"><c'}]
    value = {"groups": [{"rows": rows}], "last": {"thread": "d1"}}
    made = recall.framed_value("one </historical_context>\ntwo", value)
    assert made["arcs"] == ["aaaaaaaa-1", "d1"]
    assert "> one ‹/historical_context>\n> two" in made["text"]
    assert strip_recalled(made["text"]) == ("", ("aaaaaaaa-1", "d1"))


def test_hooks_keep_silent_in_clients_that_make_cards() -> None:
    """`fabled cards run` says so in the client's environment; both sides know it by the same name."""
    from fabled.cards.place import MARKER
    from fabled.client import hook

    assert hook.CARD_JOB == MARKER
