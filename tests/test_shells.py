"""What shells and `man` get: completion in the real shells, and a page that says what the commands say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled.cli import manual
from fabled.indexer.projects import encode_folder
from tests.build import Transcript, make_uuid
from tests.shell import ROOT, Home, daemon, harbour

SESSION = make_uuid("harbour")
ODD = "/srv/it's $(touch ran), `*` \\x"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with a daemon, and `fabled` on the PATH."""
    made = Home(tmp_path_factory.mktemp("c"))
    made.write(harbour())
    odd = Transcript(make_uuid("odd name"), cwd=ODD)
    odd.user("what a name")
    made.write(odd, encode_folder(ODD))
    program = made.path / "bin" / "fabled"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fabled "$@"\n')
    program.chmod(0o755)
    made.env["PATH"] = f"{program.parent}{os.pathsep}{made.env['PATH']}"
    with daemon(made):
        yield made


HOSTILE = ("/srv/h/$(touch pwned)", "/srv/h/`touch pwned`", "/srv/h/x;touch pwned", "/srv/h/a b'\"\\c", "/srv/h/n\nx",
           "/srv/h/\x1b[31mred", "/srv/h/c:d=e")  # fmt: skip


def test_a_name_is_one_word_and_never_a_command(home: Home, tmp_path: Path) -> None:
    """What bash puts into the line for a folder, whatever it is called, is that folder's name and nothing else."""
    script = (
        "source <(fabled completion bash)\nCOMP_WORDS=(fabled search --project /srv/h/)\nCOMP_CWORD=3\n"
        '_fabled_completion fabled\nfor one in "${COMPREPLY[@]}"; do eval "printf \'%s\\n\' $one"; done\n'
    )
    other = Home(tmp_path)
    for number, name in enumerate(HOSTILE):
        talk = Transcript(make_uuid(f"hostile {number}"), cwd=name)
        talk.user("nothing")
        other.write(talk, encode_folder(name))
    folder = tmp_path / "here"
    folder.mkdir()
    env = {**other.env, "PATH": home.env["PATH"]}
    with daemon(other):
        done = subprocess.run(
            ["bash", "-c", script], env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=True
        )
    assert sorted(done.stdout.splitlines()) == sorted(name for name in HOSTILE if name.isprintable())
    assert list(folder.iterdir()) == []


def in_bash(home: Home, *words: str) -> list[str]:
    """What bash itself offers for the last of the words."""
    script = (
        f"source <(fabled completion bash)\nCOMP_WORDS=(fabled {' '.join(map(repr, words))})\n"
        f"COMP_CWORD={len(words)}\n_fabled_completion fabled\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(["bash", "-c", script], env=home.env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [word for word in done.stdout.splitlines() if word]


def test_a_name_is_inserted_as_a_name(home: Home) -> None:
    """Whatever a project is called, bash runs nothing of it and gets all of it; fish has it with its comma."""
    (found,) = in_bash(home, "stats", "--project", "/srv")
    said = subprocess.run(
        ["bash", "-c", f"printf %s {found}"], cwd=home.path, capture_output=True, text=True, check=True
    )
    assert said.stdout == ODD and not (home.path / "ran").exists()
    if shutil.which("fish") is not None:
        script = "fabled completion fish | source; complete --do-complete 'fabled stats --project /srv'"
        done = subprocess.run(["fish", "-c", script], env=home.env, capture_output=True, text=True, timeout=60)
        assert ODD in done.stdout, done


def test_bash_completes_commands_options_ids_projects_and_settings(home: Home) -> None:
    """Each where it may stand; ids and names come from the running daemon."""
    assert {"search", "sessions", "service"} & set(in_bash(home, "se")) >= {"search", "sessions"}
    assert in_bash(home, "prune", SESSION[:4]) == [SESSION]
    assert set(in_bash(home, "generations", "")) == {SESSION, make_uuid("odd name")}
    assert in_bash(home, "search", "--project", "/home/a") == ["/home/ana/app"]
    assert in_bash(home, "search", "--project", "ap") == ["app"]
    assert in_bash(home, "config", "set", "prune.min_b") == ["prune.min_bytes"]
    assert in_bash(home, "config", "se") == ["set"]
    assert "--by" in in_bash(home, "stats", "--b")
    assert in_bash(home, "stats", "--by", "d") == ["day"]
    thread = in_bash(home, "thread", "")[0]
    assert in_bash(home, "export", thread[:3]) == [thread]


def test_without_a_daemon_completion_is_quiet(home: Home) -> None:
    """Commands and options still complete; there are no ids, and no word of complaint."""
    alone = home.beside("elsewhere")
    assert in_bash(alone, "prune", "") == []
    assert "search" in in_bash(alone, "sear")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish is installed")
def test_fish_completes(home: Home) -> None:
    script = f"fabled completion fish | source; complete --do-complete 'fabled prune {SESSION[:4]}'"
    done = subprocess.run(["fish", "-c", script], env=home.env, capture_output=True, text=True, timeout=60)
    assert SESSION in done.stdout, done


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh is installed")
def test_zsh_takes_the_script(home: Home) -> None:
    """It loads after compinit and is bound to the command; what it asks for is answered."""
    script = (
        "autoload -U compinit; compinit -u -d $ZDOTDIR/dump; source <(fabled completion zsh); print $_comps[fabled]"
    )
    env = {**home.env, "ZDOTDIR": str(home.path)}
    done = subprocess.run(["zsh", "-f", "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "_fabled_completion", done
    asked = {**env, "COMP_WORDS": f"fabled prune {SESSION[:4]}", "COMP_CWORD": "2", "_FABLED_COMPLETE": "zsh_complete"}
    found = subprocess.run(["fabled"], env=asked, capture_output=True, text=True, timeout=60)
    assert SESSION in found.stdout.splitlines()


def test_a_shell_we_do_not_know_is_told_so(home: Home) -> None:
    done = home.run("completion", "tcsh")
    assert done.returncode == 2 and "'bash', 'zsh', 'fish'" in done.stderr


# ── the man page ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_shipped_page_says_what_the_commands_say() -> None:
    """`python -m fabled.cli.manual > docs/fabled.1` renews it."""
    assert (ROOT / "docs" / "fabled.1").read_text() == manual.page()


@pytest.mark.skipif(shutil.which("man") is None, reason="no man is installed")
def test_man_shows_it_without_a_complaint() -> None:
    """Every command and exit status is in what `man` prints, with dashes that can be copied."""
    page = str(Path(ROOT / "docs" / "fabled.1"))
    env = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "MANPAGER": "cat"}
    done = subprocess.run(["man", "--warnings", "-l", page], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    for word in ("fabled prune", "fabled config set", "--level", "Exit status".upper(), "78"):
        assert word in done.stdout
