"""The daemon's log: private, bounded, machine-readable, and without a word of any transcript."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fabled.logs import RotatingFile

ROOT = Path(__file__).parent.parent

SCRIPT = """
import logging, os, warnings
import structlog
from fabled import config, logs
where = config.load(os.environ)
logs.setup(where, foreground={foreground}, json_lines={json_lines})
log = structlog.get_logger()
{body}
"""


def run(home: Path, body: str, *, foreground: bool = False, json_lines: bool = False, **more: str) -> Any:
    """Log in a process of its own: set-up is for a whole process."""
    script = SCRIPT.format(body=body, foreground=foreground, json_lines=json_lines)
    variables = {"PATH": os.environ["PATH"], "FABLED_HOME": str(home), "HOME": str(home), **more}
    variables["PYTHONPATH"] = str(ROOT)
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "state" / "fabled.log").read_text().splitlines()]


def test_a_line_is_one_json_object_with_time_and_level(tmp_path: Path) -> None:
    done = run(tmp_path, "log.info('index.done', session='6513270e', records=12); log.debug('unseen')")
    assert done.stdout == done.stderr == ""
    (line,) = lines(tmp_path)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "index.done", "session": "6513270e", "records": 12, "level": "info"}
    assert (tmp_path / "state" / "fabled.log").stat().st_mode & 0o777 == 0o600


def test_long_values_stay_out_and_tracebacks_stay_in(tmp_path: Path) -> None:
    """Neither a value, nor the words of an exception, nor the locals of a frame carry a transcript's text."""
    run(
        tmp_path,
        """
secret = "what she wrote, " * 50
try:
    raise ValueError(secret)
except ValueError:
    log.exception("index.failed", text=secret, nested={"a": [secret]}, path="/p" * 300, size=3)
logging.getLogger("apscheduler.executors").error(secret)
""",
    )
    text = (tmp_path / "state" / "fabled.log").read_text()
    assert "she wrote" not in text
    failed, scheduler = lines(tmp_path)
    assert (failed["text"], failed["size"], failed["path"]) == ("(800 bytes left out)", 3, "/p" * 300)
    (exception,) = failed["exception"]
    assert exception["exc_type"] == "ValueError" and exception["frames"][0]["name"] == "<module>"
    assert (scheduler["event"], scheduler["level"]) == ("(800 bytes left out)", "error")


def test_the_libraries_speak_through_the_same_chain(tmp_path: Path) -> None:
    """Their errors and warnings arrive as lines of ours; their chatter does not."""
    run(
        tmp_path,
        """
logging.getLogger("apscheduler").info("Running job")
logging.getLogger("watchdog").error("emitter died")
warnings.warn("table of watches " * 99, RuntimeWarning)
try: 1 / 0
except ZeroDivisionError: logging.getLogger("apscheduler").exception("job failed")
""",
    )
    events = lines(tmp_path)
    assert [line["level"] for line in events] == ["error", "warning", "error"]
    assert events[0]["event"] == "emitter died"
    assert events[2]["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_the_journal_is_told_the_priority_when_it_reads_stderr(tmp_path: Path) -> None:
    """JOURNAL_STREAM names stderr's own device and inode; inherited from elsewhere it means nothing."""
    body = "log.warning('sweep.slow', seconds=3); log.error('x')"
    with (tmp_path / "journal").open("w") as journal:
        status = os.fstat(journal.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        script = SCRIPT.format(body=body, foreground=False, json_lines=False)
        variables = {"FABLED_HOME": str(tmp_path), "HOME": "/", "JOURNAL_STREAM": stream, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script], env=variables, stderr=journal, check=True)
    first, second = (tmp_path / "journal").read_text().splitlines()
    assert first.startswith('<4>{"') and second.startswith('<3>{"')
    assert not (tmp_path / "state").exists()
    run(tmp_path, body, JOURNAL_STREAM=stream)
    assert len(lines(tmp_path)) == 2


def test_json_lines_go_to_stdout_where_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "log.info('daemon.ready', pid=1)", json_lines=True)
    assert json.loads(done.stdout)["event"] == "daemon.ready"


def test_a_terminal_gets_lines_for_people(tmp_path: Path) -> None:
    """A real terminal on stderr: readable, in colour unless NO_COLOR, and a traceback as usual."""
    body = (
        "log.warning('index.done', records=12, path='/a\\x1b]0;b\\x07'); log.info('routine')\n"
        "try: 1/0\nexcept Exception: log.exception('oops')"
    )
    script = SCRIPT.format(body=body, foreground=True, json_lines=False)
    shown = {}
    for no_colour in ("", "1"):
        parent, child = os.openpty()
        variables = {"FABLED_HOME": str(tmp_path), "HOME": "/", "NO_COLOR": no_colour, "TERM": "xterm"}
        subprocess.run(
            [sys.executable, "-c", script], env={**variables, "PYTHONPATH": str(ROOT)}, stderr=child, check=True
        )
        os.close(child)
        data = b""
        while True:
            try:
                data += os.read(parent, 65536)
            except OSError:  # Linux's way to say that the other side of a terminal is gone
                break
        os.close(parent)
        shown[no_colour] = data.decode()
    assert "\x1b[" in shown[""] and "\x1b[" not in shown["1"]
    assert "index.done" in shown["1"] and "records=12" in shown["1"]
    assert all("\x1b]" not in text and "\x07" not in text for text in shown.values())
    assert "routine" not in shown["1"]
    assert "Traceback (most recent call last):" in shown["1"] and "ZeroDivisionError: division by zero" in shown["1"]


def test_a_reload_changes_level_and_keeps_one_handler(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
log.debug("before")
os.environ["FABLED_LOG_LEVEL"] = "debug"
logs.setup(config.load(os.environ), foreground=False)
log.debug("after")
logging.getLogger("other").warning("once")
""",
    )
    assert [line["event"] for line in lines(tmp_path)] == ["after", "once"]


def test_the_file_starts_anew_and_keeps_a_bounded_number(tmp_path: Path) -> None:
    """Also with several OS threads writing: every line whole, in order for each, and no file above its limit."""
    path = tmp_path / "deep" / "fabled.log"
    file = RotatingFile(str(path), limit=1000, keep=3)
    workers = [
        threading.Thread(target=lambda name=name: [file.write(f"{name} {n:03d} " + "x" * 40) for n in range(100)])
        for name in "ab"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found.name for found in path.parent.iterdir()) == ["fabled.log", "fabled.log.1", "fabled.log.2"]
    kept = [
        line
        for name in ("fabled.log.2", "fabled.log.1", "fabled.log")
        for line in (path.parent / name).read_text().splitlines()
    ]
    assert {len(line) for line in kept} == {46}
    for name in "ab":
        numbers = [line[2:5] for line in kept if line[0] == name]
        assert numbers == sorted(numbers)
    for found in path.parent.iterdir():
        assert found.stat().st_size <= 1000 and found.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_loses_whole_lines_only(tmp_path: Path) -> None:
    """A line that has no room is not there, not half of it; the next one stands for itself."""
    path = tmp_path / "fabled.log"
    file = RotatingFile(str(path))
    file.write("first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4, limits[1]))
    try:
        file.write("has no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.write("last")
    assert path.read_text() == "first\nlast\n"


def test_an_existing_file_is_tightened_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "fabled.log"
    path.write_text("old\n")
    path.chmod(0o644)
    RotatingFile(str(path)).write("new \ud800")
    assert path.read_text() == "old\nnew \\ud800\n"
    assert path.stat().st_mode & 0o777 == 0o600
