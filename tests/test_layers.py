"""Imports go one way: bytes and values, then state, then the verbs, then the process and the edge."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fabled"
VERBS = {"indexer", "retrieval", "recall", "answers", "check", "capture", "pruner", "cards", "present"}

# room → (what of ours it may import, why no more)
OURS = {
    "errors": (set(), "the facts everyone names; it knows nobody"),
    "logs": ({"config"}, "only the type of what it is set up from"),
    "config": ({"errors"}, "read before anything else exists"),
    "transcript": ({"errors"}, "pure: bytes and values in, values out"),
    "store": ({"transcript", "errors"}, "state must not know what it is used for"),
    "indexer": ({"transcript", "store", "errors"}, "a verb stands on state and values, not on another verb"),
    "retrieval": ({"transcript", "store", "errors"}, "a verb stands on state and values, not on another verb"),
    "check": ({"transcript", "store", "errors"}, "a verb stands on state and values, not on another verb"),
    "capture": ({"transcript", "store", "indexer", "errors"}, "what is kept must be indexed before it counts"),
    "pruner": (
        {"transcript", "store", "indexer", "capture", "config", "errors"},
        "it captures and indexes before its gate; its settings are many, so it takes them as they are",
    ),
    "recall": ({"retrieval", "transcript", "store", "errors"}, "what it hands over is what search and thread found"),
    "answers": ({"retrieval", "recall", "transcript", "store", "errors"}, "what daemon and command share"),
    "cards": (
        {"transcript", "store", "config", "errors"},
        "it is handed what it asks about; its settings are many, so it takes them as they are",
    ),
    "present": (set(), "pure: values in, text out"),
    "service": ({"config", "store", "errors", ""}, "asks the system's manager; what it removes lies in the store"),
    "daemon": (VERBS | {"store", "transcript", "config", "logs", "errors", ""}, "the process; the edge uses it"),
    "client": ({"errors", "cli", ""}, "the fast path; `cli` only where the fast path ends"),
    "cli": (
        VERBS | {"daemon", "store", "transcript", "config", "logs", "errors", "client", "service", ""},
        "the edge sees every room and nobody sees the edge",
    ),
    "__main__": ({"client"}, "the same door as the installed command"),
}

# library → (rooms that may import it, why)
THEIRS = {
    "apsw": ({"store"}, "one room touches SQLite"),
    "sqlite3": (set(), "its SQLite lacks contentless deletes on the Pythons we support"),
    "orjson": ({"transcript/record", "daemon/protocol"}, "where the volume is; slower to import than json"),
    "structlog": ({"logs", "daemon"}, "110 ms of import that no client should pay"),
    "platformdirs": ({"config"}, "places are worked out once"),
    "watchdog": ({"daemon/observer"}, "its traps are known to one file"),
    "apscheduler": ({"daemon/schedule"}, "its traps are known to one file"),
    "regex": ({"retrieval/pattern"}, "patterns that users type; nothing else needs a time limit"),
    "msgspec": ({"config", "daemon"}, "settings and the wire"),
    "click": ({"cli"}, "the edge"),
    "rich": ({"cli"}, "the edge"),
    "subprocess": ({"cards/providers", "cli", "service"}, "the daemon has no children"),
    "urllib": ({"cards/providers", "store"}, "no network but where a model is asked; `store` quotes a path with it"),
    "http": ({"cards/providers"}, "no network but where a model is asked"),
    "tomlkit": ({"cli/rewrite"}, "only where a file that people wrote is changed; reading needs no more than tomllib"),
    "socket": ({"daemon"}, "`client` has the same in `_socket`, without enum and selectors"),
}
FAST_PATH = {"os", "sys", "time", "errno", "_socket", "_signal", "hashlib", "pwd", "collections", "__future__"}
# The MCP server reads JSON; it starts once a session, and still with nothing but that.
MCP_PATH = {"json", "typing"}


def room(module: str) -> str:
    return module.split("/")[0]


def imports(path: Path) -> Iterator[str]:
    """The full name of all that a file imports, wherever the statement stands."""
    folders = ("fabled", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folders[: len(folders) + 1 - node.level] if node.level else ()
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def modules() -> list[tuple[str, Path]]:
    named = [(str(path.relative_to(PACKAGE).with_suffix("")), path) for path in sorted(PACKAGE.rglob("*.py"))]
    return [(name.removesuffix("/__init__"), path) for name, path in named if name != "__init__"]


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    """Each import of ours and of the guarded libraries is in the tables above."""
    assert room(module) in OURS, f"a new room {room(module)}: say in OURS what it may import, and why"
    wrong = []
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "fabled":
            target = rest[0] if rest and (rest[0] in OURS) else ""
            allowed, why = OURS[room(module)]
            if target != room(module) and target not in allowed:
                wrong.append(f"{module} imports {name}: {why}")
        elif top in THEIRS:
            rooms, why = THEIRS[top]
            if room(module) not in rooms and module not in rooms:
                wrong.append(f"{module} imports {name}: {why}")
        if room(module) == "client" and top not in FAST_PATH | {"fabled"} | (MCP_PATH if "mcp" in module else set()):
            wrong.append(f"{module} imports {name}: a cold `fabled status` would pay for it")
    assert wrong == []


def test_the_daemon_neither_starts_a_process_nor_opens_a_network() -> None:
    """What asks a model is not even brought in by the rooms the daemon stands on."""
    asking = {"fabled.cards.run", "fabled.cards.providers", "fabled.cards.brief"}
    found = [
        f"{module} imports {name}"
        for module, path in modules()
        if room(module) not in ("cli", "client") and module not in ("cards/run", "cards/providers", "cards/brief")
        for name in imports(path)
        if any(name == one or name.startswith(one + ".") for one in asking)
    ]
    assert found == []


def test_transcript_stays_pure() -> None:
    """No file, clock or log behind the pure functions: what they say depends on their arguments alone."""
    impure = {"os", "io", "pathlib", "time", "logging", "socket", "subprocess", "tempfile", "threading"}
    found = [
        f"{module} imports {name}"
        for module, path in modules()
        if room(module) == "transcript"
        for name in imports(path)
        if name.split(".")[0] in impure
    ]
    assert found == []


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """The wheel names every library it needs, with an upper bound, and none that it does not."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w.-]+", line)[0].lower(): line for line in project["dependencies"]}  # type: ignore[index]
    assert [line for line in declared.values() if "<" not in line.partition(";")[0]] == []
    used = {
        "backports.zstd" if name.startswith("backports.zstd") else name.split(".")[0]
        for _, path in modules()
        for name in imports(path)
    }
    theirs = {name for name in used if name not in sys.stdlib_module_names | {"fabled", "compression", "__future__"}}
    assert theirs == set(declared)
