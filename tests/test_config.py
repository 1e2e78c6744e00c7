"""Settings: every problem at once, with its place, and an example file that says what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabled import config
from fabled.client import connect
from fabled.errors import BadConfig

EXAMPLE = Path(__file__).parent.parent / "fabled.toml.example"


def env(home: Path, **more: str) -> dict[str, str]:
    return {"FABLED_HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "HOME": str(home), **more}


def load(home: Path, text: str, **more: str) -> config.Config:
    (home / "config.toml").write_text(text)
    return config.load(env(home, **more))


def problems(home: Path, text: str, **more: str) -> list[str]:
    """What is wrong, with the file's own path shortened to its name."""
    with pytest.raises(BadConfig) as caught:
        load(home, text, **more)
    assert caught.value.exit == 78
    return [problem.replace(str(home / "config.toml"), "config.toml") for problem in caught.value.problems]


def test_nothing_needs_to_be_set(tmp_path: Path) -> None:
    """Without a file the client's own folder is the only root, and the seed's numbers hold."""
    found = config.load(env(tmp_path))
    assert found.roots == (str(tmp_path / "claude" / "projects"),)
    assert (found.quiet_seconds, found.max_wait_seconds, found.sweep_seconds) == (0.3, 2.0, 600)
    assert found.vaults == () and found.log_level == "info"


def test_both_usual_folders_are_roots_where_the_second_exists(tmp_path: Path) -> None:
    """~/.config/claude/projects counts only when it is there and CLAUDE_CONFIG_DIR does not decide."""
    bare = {"FABLED_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert config.load(bare).roots == (f"{tmp_path}/.claude/projects",)
    (tmp_path / ".config/claude/projects").mkdir(parents=True)
    assert config.load(bare).roots == (f"{tmp_path}/.claude/projects", f"{tmp_path}/.config/claude/projects")
    assert config.load({**bare, "CLAUDE_CONFIG_DIR": "/c"}).roots == ("/c/projects",)


def test_a_tilde_is_the_home_and_a_folder_counts_once(tmp_path: Path) -> None:
    found = load(tmp_path, 'roots = ["~/a", "/b/", "/b"]\nvaults = ["~"]')
    assert found.roots == (f"{tmp_path}/a", "/b")
    assert found.vaults == (str(tmp_path),)


def test_every_problem_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    """One run shows all there is to correct, each with the place and, where one is near, the right name."""
    text = """\
rots = ["/a"]
roots = [
  "a",
]
quiet_seconds = 3

[watch]   # a comment
quiet_second = 1

quiet_seconds = "x"
max_wait_seconds = nan
sweep_seconds = 0
heartbeat_seconds = true

[log]
level = "loud"

[wach]
x = 1
"""
    assert problems(tmp_path, text, FABLED_LOG_LEVEL="4", FABLED_WATCH_QUIT_SECONDS="2") == [
        "config.toml:1: no setting rots. Did you mean roots?",
        "config.toml:5: no setting quiet_seconds. Did you mean watch.quiet_seconds?",
        "config.toml:8: no setting watch.quiet_second. Did you mean watch.quiet_seconds?",
        "config.toml:10: watch.quiet_seconds: expected a number, got text.",
        "config.toml:11: watch.max_wait_seconds: expected a number >= 0.01.",
        "config.toml:12: watch.sweep_seconds: expected a number >= 1.0.",
        "config.toml:13: watch.heartbeat_seconds: expected a number, got true or false.",
        "config.toml:16: log.level: expected one of debug, info, warning, error.",
        "config.toml:18: no setting wach. Did you mean watch?",
        "FABLED_LOG_LEVEL: log.level: expected one of debug, info, warning, error.",
        "FABLED_WATCH_QUIT_SECONDS: no setting watch.quit_seconds. Did you mean watch.quiet_seconds?",
        "config.toml:2: roots: 'a' is not absolute. Begin it with / or ~/.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("roots = []", "config.toml:1: roots is empty. Leave it out to use the client's usual folders."),
        ("\nwatch = 3", "config.toml:2: watch is a table. Write [watch] and its settings below it."),
        ("watch.quiet_seconds = inf", "config.toml:1: watch.quiet_seconds: expected a number <= 60.0."),
        ("roots = 3", "config.toml:1: roots: expected a list, got a whole number."),
        ("exclude = [4]", "config.toml:1: exclude: expected text, got a whole number in entry 1."),
        ("# a file of Windows\r\n[log]\r\nlevl = 1\r\n", "config.toml:3: no setting log.levl. Did you mean log.level?"),
        ("watch = { level = 1 }", "config.toml:1: no setting watch.level. Did you mean log.level or prune.level?"),
        ("zzz = 1", "config.toml:1: no setting zzz. fabled.toml.example lists them all."),
        (
            '"log.level" = "debug"',
            "config.toml:1: no setting log.level. Take the quotation marks off, or write level below [log].",
        ),
        ("vaults = [\n # ]\n  '/1',\n]\nzzz = 1", "config.toml:5: no setting zzz. fabled.toml.example lists them all."),
        (
            "vaults = ['/a']\nroots = [\"/a\\u0000b\"]",
            "config.toml:2: roots: '/a\\x00b' holds a NUL, which no path can.",
        ),
        ('\nvaults = ["/\\u0000"]', "config.toml:2: vaults: '/\\x00' holds a NUL, which no path can."),
        (
            'exclude = ["/\\u0000"]',
            "config.toml:1: exclude: '/\\x00' is neither an absolute path nor a folder's name.",
        ),
        ("\ufeffexclude = []", "config.toml:1: begins with a byte order mark. Save the file as UTF-8 without one."),
        ("x = " + "[" * 3_000, "config.toml: cannot be taken in: lists or tables nested too deeply."),
        ("x = " + "1" * 9_000, "config.toml: cannot be taken in: a number too long."),
        (
            "[watch]\nquiet_seconds = 3",
            "config.toml:2: watch.max_wait_seconds (2) is shorter than watch.quiet_seconds (3). "
            "A change waits for quiet, but never longer than the maximum.",
        ),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert problems(tmp_path, text) == [said]


def test_a_file_of_any_length_is_read_a_few_times_only(tmp_path: Path) -> None:
    """The line of each of a thousand problems is told, and the parser sees the file no more than three times."""
    text = "# mine\n" + "".join(f"odd_{number} = [\n  {number},\n]\n" for number in range(1_000))
    parse, seen = tomllib.loads, 0

    def counted(part: str) -> dict[str, Any]:
        nonlocal seen
        seen += len(part)
        assert seen <= 3 * len(text)
        return parse(part)

    with mock.patch.object(tomllib, "loads", counted):
        found = problems(tmp_path, text)
    assert [one.partition(": ")[0] for one in found] == [f"config.toml:{2 + 3 * n}" for n in range(1_000)]


def test_text_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    """The rest of the words is the parser's and differs between Pythons."""
    assert problems(tmp_path, "[watch]\nquiet_seconds 3\n")[0].startswith("config.toml:2: not valid TOML: ")


def test_a_file_that_is_no_text_or_cannot_be_read_is_a_problem_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\n\n# \xff")
    with pytest.raises(BadConfig, match=r"config\.toml:3: not UTF-8 text"):
        config.load(env(tmp_path))
    (tmp_path / "config.toml").unlink()
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(BadConfig, match="cannot be read: Is a directory"):
        config.load(env(tmp_path))


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        '[log]\nlevel = "error"\n[watch]\nquiet_seconds = 1',
        FABLED_LOG_LEVEL="debug",
        FABLED_WATCH_SWEEP_SECONDS="33",
        FABLED_ROOTS="/x:~/y",
    )
    assert (found.log_level, found.sweep_seconds, found.quiet_seconds) == ("debug", 33.0, 1.0)
    assert found.roots == ("/x", f"{tmp_path}/y")


def test_the_example_teaches_every_setting_with_its_default(tmp_path: Path) -> None:
    """Taking away the # of each setting gives a file that says exactly what holds without one."""
    text = EXAMPLE.read_text()
    shown = re.sub(r"^# ([a-z_]+ = )", r"\1", text, flags=re.M)
    names, table = [], ""
    for line in shown.splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            table = f"{header[1]}."
        elif setting := re.match(r"([a-z_]+) = ", line):
            names.append(table + setting[1])
    assert tuple(names) == config.setting_names()
    here = {"FABLED_HOME": str(tmp_path), "HOME": str(tmp_path)}
    without = config.load(here)
    (tmp_path / "config.toml").write_text(shown)
    assert config.load(here) == without


def test_the_example_tells_the_bounds_that_are_checked(tmp_path: Path) -> None:
    """`Seconds, LOW to HIGH.` above a setting: both are accepted, and nothing beyond."""
    watch = EXAMPLE.read_text().partition("[watch]")[2].partition("[log]")[0]
    stated = re.findall(r"Seconds, ([\d.]+) to (\d+)\.\n# (\w+) = ", watch)
    assert len(stated) == len(config.Watch.__struct_fields__)
    for low, high, name in stated:
        other = {"quiet_seconds": "max_wait_seconds = 300\n", "max_wait_seconds": "quiet_seconds = 0.01\n"}
        loose = other.get(name, "")
        for value in (low, high):
            assert getattr(load(tmp_path, f"[watch]\n{loose}{name} = {value}"), name) == float(value)
        for value in (float(low) / 2, float(high) * 1.01):
            assert (
                f"config.toml:{3 if loose else 2}: watch.{name}: expected a number"
                in problems(tmp_path, f"[watch]\n{loose}{name} = {value}")[0]
            )


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_variable_moves_everything(tmp_path: Path) -> None:
    found = config.places(env(tmp_path))
    inside = {name: getattr(found, name) for name in config.Places.__slots__ if name not in ("claude",)}
    assert [name for name, path in inside.items() if not path.startswith(str(tmp_path))] == []
    assert found.socket == f"{tmp_path}/run/fabled.sock" and found.map_db == f"{tmp_path}/data/map.db"


def test_another_environment_cannot_lead_to_the_real_home() -> None:
    """platformdirs would look at this process's own variables and not at those given."""
    with pytest.raises(ValueError, match="HOME"):
        config.places({"HOME": "/somewhere/else"})


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_long_path_falls_back_to_a_short_socket_of_its_own(letter: str) -> None:
    """The limit counts bytes; two data folders get two sockets."""
    long = "/" + letter * (90 if letter == "x" else 45)
    first, second = (config.places({"FABLED_HOME": long + tail}).socket for tail in ("/a", "/b"))
    assert first != second
    for path in (first, second):
        assert re.fullmatch(rf"/tmp/fabled-{os.getuid()}/[0-9a-f]{{16}}\.sock", path)
        assert len(os.fsencode(path)) <= 103


PATHS = st.one_of(
    st.sampled_from(["", "/", "relative", "/home/ana", "/home/ana/", "//two", "~/x", "/" + "x" * 60, "/" + "ü" * 60]),
    st.text("aüあ /.~%", max_size=120).map("/".__add__),
)
NAMES = ("FABLED_HOME", "HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), PATHS), st.sampled_from(["linux", "darwin"]))
@example({"HOME": "/", "XDG_DATA_HOME": "relative"}, "linux")
@example({"XDG_RUNTIME_DIR": "/run/user/7"}, "darwin")
def test_the_fast_path_finds_the_same_socket(variables: dict[str, str], platform: str) -> None:
    """What `connect` works out with plain `os` is what the configuration says, whatever is set."""
    import platformdirs.macos
    import platformdirs.unix

    kind = platformdirs.macos.MacOS if platform == "darwin" else platformdirs.unix.Unix
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(sys, "platform", platform),
        mock.patch.object(platformdirs, "PlatformDirs", kind),
    ):
        found = config.places(os.environ)
        assert connect.socket_path(os.environ) == found.socket
        assert (connect.data_folder(os.environ), connect.state_folder(os.environ)) == (found.data, found.state)


def test_the_sockets_limit_is_the_same_on_both_sides() -> None:
    assert connect.SOCKET_PATH_BYTES == config.SOCKET_PATH_BYTES == 103


def test_a_real_process_agrees_too(tmp_path: Path) -> None:
    """The same two answers from a cold process with a long XDG_RUNTIME_DIR and a plain HOME."""
    code = (
        "import os; from fabled import config; from fabled.client import connect;"
        "print(config.places(os.environ).socket == connect.socket_path(os.environ), config.places(os.environ).data)"
    )
    variables = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/" + "r" * 150, "PYTHONPATH": str(EXAMPLE.parent)}
    out = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    data = "Library/Application Support/fabled" if sys.platform == "darwin" else ".local/share/fabled"
    assert out.stdout.split(" ", 1) == ["True", f"{tmp_path}/{data}\n"]


def test_a_size_beyond_all_disks_is_refused(tmp_path: Path) -> None:
    """It would not fit into a question to the Map."""
    assert (
        "prune.min_bytes: expected a whole number <= "
        in problems(tmp_path, "[prune]\nmin_bytes = 9300000000000000000")[0]
    )
