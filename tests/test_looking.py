"""`doctor`, `logs`, `stats`, `top` and `status --watch`, in real processes and on real terminals."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.build import Transcript, make_uuid
from tests.daemon.help import until
from tests.shell import FOLDER, Home, daemon, harbour

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
CANARY = "zebrafish-canary"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    (tmp_path / "fabled").mkdir(mode=0o700)
    (tmp_path / "fabled" / "config.toml").write_text("[prune]\nmin_bytes = 1000\n")
    made.write(secretive())
    made.write(harbour())
    return made


def secretive() -> Transcript:
    """A thread with a credential, a fence, a heading, a branch of work and a subagent's kind of noise in it."""
    talk = Transcript(make_uuid("secretive"))
    talk.user(f"Use {KEY} for {CANARY}")
    call = talk.call("Bash", {"command": f"echo {KEY}"})
    talk.add("progress", data={"type": "bash_progress", "output": "tick"})
    talk.result(call, "```\nfenced\n```\n", parent=call["uuid"])
    talk.assistant("# A heading\nDone.")
    return talk


def thread_of(home: Home, word: str) -> str:
    results = json.loads(home.run("search", word, "--all", "--json").stdout)["results"]
    return str(results[0]["thread"])


# ── doctor ──────────────────────────────────────────────────────────────────────────────────────────────────────


def findings(home: Home, **env: str) -> dict[str, dict[str, object]]:
    done = home.run("doctor", "--json", **env)
    value = json.loads(done.stdout)
    found = {one["id"]: one for one in value["checks"]}
    assert done.returncode == int(any(not one["ok"] for one in found.values()))
    assert all(one["fix"] for one in found.values() if one["state"] != "ok"), found
    return found


def test_the_doctor_says_why_each_large_session_was_not_pruned(home: Home) -> None:
    """With a daemon all is well or has its fix, and large sessions are listed with the reason of the pruner itself."""
    with daemon(home):
        found = findings(home)
        assert [name for name, one in found.items() if one["state"] == "failure"] == []
        assert {"program", "config", "daemon", "socket", "private", "database", "transcripts", "watching", "retention",
                "disk", "claude", "service", "log", "pruning"} <= set(found)  # fmt: skip
        assert "prunes nothing unasked" in str(found["pruning"]["message"])
        (shared,) = found["pruning"]["details"]  # type: ignore[misc]  # the same holds for both, and is said once
        assert make_uuid("secretive")[:8] in shared and make_uuid("harbour")[:8] in shared
        assert shared.startswith("2 sessions, ") and ", not pruned: " in shared
        text = home.run("doctor").stdout
        assert "✓ daemon" in text and "! service" in text and "fix: fabled " in text


def test_the_doctor_tells_what_fails_and_how_to_mend_it(home: Home) -> None:
    """No daemon, open rights, a faulty configuration, a damaged Map, no room: each is a line with its fix."""
    assert home.run("index").returncode == 0
    found = findings(home)
    assert found["daemon"]["state"] == "failure" and "fabled daemon" in str(found["daemon"]["fix"])
    data = home.path / "fabled" / "data"
    data.chmod(0o755)
    assert "chmod go-rwx" in str(findings(home)["private"]["fix"])
    data.chmod(0o700)
    assert findings(home, FABLED_CAPTURE_RESERVE_BYTES=str(10**15))["disk"]["state"] == "failure"
    claude = home.path / "claude" / "settings.json"
    claude.write_text('{"cleanupPeriodDays": "ten"}')
    assert "is no number of days" in str(findings(home)["retention"]["message"])
    claude.write_text('{"a": ')
    assert findings(home)["claude"]["state"] == "failure" and "line 1" in str(findings(home)["claude"]["message"])
    claude.unlink()
    (home.path / "fabled" / "plain").write_text("")
    assert "mv " in str(findings(home, FABLED_HOME=str(home.path / "fabled" / "plain"))["places"]["fix"])
    (data / "map.db").write_bytes(b"no database" * 1000)
    assert findings(home)["database"]["state"] == "failure"
    (home.path / "fabled" / "config.toml").write_text("[prune]\nmin_byte = 1\n")
    faulty = findings(home)["config"]
    assert faulty["state"] == "failure" and "Did you mean prune.min_bytes?" in str(faulty["details"])


def test_a_report_to_send_holds_no_text_of_a_transcript(home: Home) -> None:
    """Every file of it is readable and none holds a word that was said; it is for its owner only."""
    with daemon(home):
        assert home.run("search", CANARY).returncode == 0
        done = home.run("doctor", "--bundle", "-o", "report.tar.gz")
    assert done.returncode == 0 and "report.tar.gz" in done.stdout
    path = home.path / "report.tar.gz"
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        files = {Path(one.name).name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    assert set(files) == {"doctor.json", "status.json", "system.json", "paths.json", "config.toml", "log.jsonl"}
    assert json.loads(files["status.json"])["running"] is True and b"daemon.started" in files["log.jsonl"]
    for name, data in files.items():
        for word in (CANARY, KEY, "bookings", str(home.path)):
            assert word.encode() not in data, (name, word)


# ── logs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def log(home: Home, *rows: tuple[str, str, str]) -> Path:
    path = home.path / "fabled" / "state" / "fabled.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for at, level, event in rows:
            file.write(json.dumps({"event": event, "level": level, "timestamp": at, "files": 2}) + "\n")
    return path


def test_log_lines_are_chosen_by_level_and_time(home: Home) -> None:
    """Rotated files come first, a line that is no JSON is told of, and nothing found is exit 1."""
    path = log(home, ("2026-01-01T10:00:00.0Z", "warning", "the.first"))
    path.rename(path.with_suffix(".log.1"))
    log(home, ("2026-01-02T10:00:00.0Z", "info", "the.second"), ("2026-01-03T10:00:00.0Z", "error", "the.third"))
    with path.open("a") as file:
        file.write("Current thread 0x1 (most recent call first)\n")
    shown = [json.loads(line)["event"] for line in home.run("logs", "--json").stdout.splitlines()]
    assert shown == ["the.first", "the.second", "the.third", "Current thread 0x1 (most recent call first)"]
    assert "the.second" not in home.run("logs", "--level", "warning").stdout
    since = home.run("logs", "--since", "2026-01-02T12:00", "--json").stdout.splitlines()
    assert [json.loads(line)["event"] for line in since] == ["the.third"]
    assert home.run("logs", "--since", "2099-01-01").returncode == 1
    assert home.run("logs", "--since", "whenever").returncode == 2
    assert re.search(r"the\.third +error  files 2", home.run("logs", "--utc").stdout)


FOREIGN = (
    '{"event":"x","exception":3}', '{"event":{"a":[1]},"timestamp":5}', "[1]", "null", f"a {CANARY}", "\x1b[31mred",
    '{"a":' + "[" * 3_000, '{"event":"far","timestamp":1e400}', '{"event":"far","timestamp":' + "9" * 400 + "}",
    '{"event":"far","timestamp":"0001-01-01T00:00:00"}', '{"event":"x","exception":[{"frames":[3]}]}',
    f'{{"event":"e","exception":[{{"exc_value":"","exceptions":[{{"exc_value":"{CANARY}"}}]}}]}}',
    '  File "/x/y.py", line 3 in work',
)  # fmt: skip
"""Lines that no daemon writes, and lines of times that no calendar has."""


def test_lines_of_other_programs_are_shown_and_stay_at_home(home: Home) -> None:
    """Each is one line of the log whatever it holds; a report to send leaves out what nobody knows the words of."""
    log = home.path / "fabled" / "state" / "fabled.log"
    log.parent.mkdir(mode=0o700)
    log.write_text("\n".join(FOREIGN) + "\n")
    for options in (["--utc"], [], ["--json"], ["--since", "2020-01-01"]):
        done = home.run("logs", *options)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        assert "\x1b" not in done.stdout
    assert len(home.run("logs", "--json").stdout.splitlines()) == len(FOREIGN)
    report = home.path / "report.tar.gz"
    assert home.run("doctor", "-o", str(report)).returncode in (0, 1)
    with tarfile.open(report) as archive:
        (name,) = (one for one in archive.getnames() if one.endswith("log.jsonl"))
        file = archive.extractfile(name)
        assert file is not None
        told = file.read().decode()
    assert CANARY not in told and "/x/y.py" in told and len(told.splitlines()) == len(FOREIGN)


def test_a_report_to_send_names_nobody(home: Home) -> None:
    """Neither the home's path, nor the client's name for a folder in it, nor a password in an address is in it."""
    (home.path / "fabled" / "config.toml").write_text('[cards]\nurl = "http://ana:hunter2-hunter2@localhost/v1"\n')
    log = home.path / "fabled" / "state" / "fabled.log"
    log.parent.mkdir(mode=0o700)
    inside = re.sub(r"[^A-Za-z0-9]", "-", str(home.path))
    log.write_text(f'{{"event":"odd","path":"/mnt/{inside}-notes/a.jsonl"}}\n')
    report = home.path / "report.tar.gz"
    assert home.run("doctor", "-o", str(report)).returncode in (0, 1)
    with tarfile.open(report) as archive:
        told = "".join(file.read().decode() for one in archive if (file := archive.extractfile(one)) is not None)
    assert "/mnt/~-notes/a.jsonl" in told
    assert [word for word in (str(home.path), inside, "hunter2") if word in told] == []


def test_logs_follow_through_a_rotation(home: Home) -> None:
    """`-f` goes on with what is written, in the old file to its end and then in the new one; Ctrl-C is a good end."""
    path = log(home, ("2026-01-01T10:00:00.0Z", "info", "before"))
    command = [sys.executable, "-m", "fabled", "logs", "-f", "-n", "1", "--json"]
    with subprocess.Popen(command, env=home.env, cwd=home.path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "before"
        reader, got, number = process.stdout.fileno(), b"", 0

        def seen() -> list[str]:
            nonlocal got
            while select.select([reader], [], [], 0)[0] and (data := os.read(reader, 65536)):
                got += data
            return [json.loads(line)["event"] for line in got.split(b"\n")[:-1]]

        def more() -> bool:
            # What is written before it begins to follow is not promised; so something is written until it is seen.
            nonlocal number
            number += 1
            log(home, ("2026-01-01T10:00:01.0Z", "info", f"line {number}"))
            return bool(seen())

        try:
            assert until(more, 30, 0.05)
            path.rename(path.with_suffix(".log.1"))
            log(home, ("2026-01-01T10:00:02.0Z", "info", "after"))
            assert until(lambda: "after" in seen(), 30, 0.05), seen()
            first = int(seen()[0].split()[1])
            assert seen() == [*(f"line {n}" for n in range(first, number + 1)), "after"]
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


# ── live ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_top_sees_a_session_grow(home: Home) -> None:
    """Each view is one object; what is appended shows as growth of its session, and a question as a question."""
    with daemon(home):
        command = [sys.executable, "-m", "fabled", "top", "--json", "--interval", "0.1"]
        with subprocess.Popen(command, env=home.env, cwd=home.path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            assert first["v"] == 1 and first["sessions"] == []
            more = Transcript(harbour().session)
            more.user("What of the ferry?")
            path = home.projects / FOLDER / f"{more.session}.jsonl"
            with path.open("ab") as file:
                file.write(more.data)
            for line in process.stdout:
                view = json.loads(line)
                if view["sessions"] and view["events"]:
                    break
            asked = view["status"]["queries"]["answered"]
            assert home.run("search", "midnight", "--all").returncode == 0
            assert any(json.loads(line)["status"]["queries"]["answered"] > asked for line in process.stdout)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert [(row["session_id"], row["added"]) for row in view["sessions"]] == [(more.session, len(more.data))]
        assert view["sessions"][0]["project"] == harbour().cwd and view["sessions"][0]["bytes"] == path.stat().st_size
        assert view["events"][0]["event"] == "change" and asked == 0  # looking is no question
        assert home.run("top", "--once").stdout.startswith("fabled ")
        closed = ["sh", "-c", f"exec {sys.executable} -m fabled top --once >&-"]
        told = subprocess.run(closed, env=home.env, cwd=home.path, capture_output=True, text=True)
        assert told.returncode == 1 and told.stderr.startswith("fabled: the output is closed")
    assert home.run("top", "--once").returncode == 3


def test_live_views_paint_over_themselves_and_leave_with_q(home: Home) -> None:
    """On a terminal the screen is taken and given back, `q` and Ctrl-C both end well."""
    with daemon(home):
        # Keys are heard at once, however long the next view is off.
        keys = {"answer": (b"p pauses", b"p"), "then": (b"paused", b"q")}
        status, shown = home.on_terminal("top", "--interval", "3600", rows=30, **keys)
        assert status == 0 and "paused; p goes on" in shown
        status, shown = home.on_terminal("top", answer=(b"queue 0", b"q"), rows=30)
        assert status == 0 and "\x1b[?1049h" in shown and "\x1b[?1049l" in shown
        status, shown = home.on_terminal("status", "--watch", answer=(b"Ctrl-C ends it", b"q"), rows=30)
        assert status == 0 and "sessions" in shown
        status, shown = home.on_terminal("top", "--once", TERM="dumb")
        assert status == 0 and "\x1b" not in shown
    status, shown = home.on_terminal("top", rows=30)
    assert (status, "\x1b" in shown) == (3, False)
    assert home.run("status", "--watch", "--json").returncode == 2


def test_what_is_long_goes_through_the_pager(home: Home) -> None:
    """Only what is longer than the terminal, only on one, and never to a terminal that cannot move its cursor."""
    assert home.run("index").returncode == 0
    marker = home.path / "paged"
    pager = home.path / "pager"
    pager.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    pager.chmod(0o755)
    thread = thread_of(home, CANARY)

    def paged(*arguments: str, rows: int = 8, **env: str) -> bool:
        marker.unlink(missing_ok=True)
        status, shown = home.on_terminal(*arguments, rows=rows, **{"FABLED_PAGER": str(pager), **env})
        assert status == 0 and "Done." in shown
        return marker.exists()

    assert paged("thread", thread)
    assert not paged("thread", thread, rows=200)
    assert not paged("thread", thread, TERM="dumb")
    assert not paged("thread", thread, FABLED_PAGER="")
    assert not paged("thread", thread, FABLED_PAGER="/no/such/pager")
    assert home.run("thread", thread, FABLED_PAGER=str(pager)).returncode == 0 and not marker.exists()


def test_every_hit_says_how_to_take_the_session_up_again(home: Home) -> None:
    """On one line or, where it does not fit, on two that a shell takes as one; and never broken for a program."""
    assert home.run("index").returncode == 0
    resume = f"claude --resume {secretive().session}"
    for width, parts in (("60", ["cd /home/ana/app &&", resume]), ("120", [f"cd /home/ana/app && {resume}"]),
                         ("", [f"cd /home/ana/app && {resume}"])):  # fmt: skip
        shown = [line.strip() for line in home.run("search", CANARY, COLUMNS=width).stdout.splitlines()]
        assert shown[3:][shown[3:].index(parts[0]) :][: len(parts)] == parts


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_views_fit_their_terminal(home: Home, width: int) -> None:
    """No line of stats, doctor, config or top is wider than the terminal; without UTF-8 only ASCII is sent."""
    with daemon(home):
        for command in (["stats"], ["stats", "--by", "day"], ["doctor"], ["config"], ["top", "--once"], ["logs"]):
            shown = home.run(*command, COLUMNS=str(width)).stdout
            long = [line for line in shown.splitlines() if len(line) > max(width, 60) and " " in line.strip()]
            assert long == [], command
            ascii_only = home.run(*command, COLUMNS=str(width), LANG="C", LC_ALL="C").stdout
            assert ascii_only.isascii(), command
