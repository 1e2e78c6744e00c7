"""A real user manager of systemd for tests, where root may make a mount namespace; see namespace.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.daemon.help import transcript, until
from tests.service.wheel import Built

UID = 47_110
HERE = Path(__file__).parent


def why_not() -> str:
    """Why no user manager can be had here; "" where it can."""
    if sys.platform != "linux":
        return "no systemd on this system"
    if os.geteuid() != 0:
        return "only root can give a user manager a mount namespace and control groups of its own"
    needed = ("unshare", "nsenter", "setpriv", "systemctl", "systemd-run", "journalctl", "script")
    missing = [name for name in needed if shutil.which(name) is None]
    missing += [p for p in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd-journald") if not os.path.exists(p)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return "" if tried.returncode == 0 else f"no mount namespace can be made: {tried.stderr.decode().strip()}"


class UserManager:
    """systemd for one user, with a home, a journal, and fabled from the built wheel."""

    def __init__(self, wheel: Built) -> None:
        self.fabled = str(wheel.fabled)
        self._venv = wheel.venv
        self.folder = Path(tempfile.mkdtemp(prefix="fabled-sd-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self._process: subprocess.Popen[str] | None = None

    def open(self) -> None:
        command = ["unshare", "--mount", "--fork", "--kill-child", "sh", str(HERE / "namespace.sh")]
        base = subprocess.run(
            [str(self._venv / "bin/python"), "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True
        ).stdout.strip()
        self._process = subprocess.Popen(
            [*command, str(self.folder), str(UID), base], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "ready\n", self.log()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._inside = children[0]

    def log(self) -> str:
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate("\n", timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(self.folder / "run"),
                "LANG": "C.UTF-8", "TERM": "dumb"}  # fmt: skip

    def _enter(self, env: dict[str, str]) -> list[str]:
        named = [f"{name}={value}" for name, value in {**self.env, **env}.items()]
        who = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "env", "-i", *named]
        # With its control groups, so that nothing of it is outside when it ends.
        return ["nsenter", "--target", self._inside, "--mount", f"--wdns={self.home}", *who]

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command as the user of that manager."""
        return subprocess.run([*self._enter(env), *command], capture_output=True, text=True, timeout=120)

    def call(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`fabled` as that user, from the wheel."""
        return self.run(self.fabled, *arguments, **env)

    def json(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        return json.loads(done.stdout)

    def on_terminal(self, answers: str, *arguments: str) -> str:
        """`fabled` with a terminal for all three streams that types `answers`; all that it showed."""
        command = " ".join(["exec", *(f"'{one}'" for one in (*self._enter({}), self.fabled, *arguments))])
        done = subprocess.run(
            ["script", "--quiet", "--return", "--command", command, "/dev/null"],
            input=answers, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.stdout.replace("\r\n", "\n")

    def show(self, *properties: str) -> dict[str, str]:
        done = self.run("systemctl", "--user", "show", "fabled", f"--property={','.join(properties)}")
        return dict(line.partition("=")[::2] for line in done.stdout.splitlines())

    def becomes(self, seconds: float = 30.0, **properties: str) -> bool:
        """Whether the unit comes to have these properties in time."""
        return until(lambda: self.show(*properties) == properties, seconds, 0.1)

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("systemctl", "--user", *words)

    def journal(self) -> list[dict[str, Any]]:
        """What the service wrote to the journal."""
        command = ["nsenter", "--target", self._inside, "--mount", "journalctl", "--output=json", "--no-pager"]
        subprocess.run([*command[:5], "--sync"], capture_output=True)
        done = subprocess.run([*command, f"_UID={UID}", "SYSLOG_IDENTIFIER=fabled"], capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def transcript(self, session: str, *texts: str) -> Path:
        """A transcript of that user's."""
        root = self.home / ".claude" / "projects"
        path = transcript(root, session, *texts)
        self._own()
        return path

    def drop_in(self, *lines: str) -> None:
        """A change to the unit by the person, who keeps it over installs."""
        folder = self.home / ".config/systemd/user/fabled.service.d"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test.conf").write_text("\n".join(("[Service]", *lines, "")))
        self._own()
        self.systemctl("daemon-reload")

    def config(self, text: str) -> None:
        folder = self.home / ".config/fabled"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
        self._own()

    def _own(self) -> None:
        for top, folders, names in os.walk(self.home):
            for name in (".", *folders, *names):
                os.lchown(os.path.join(top, name), UID, UID)

    def clean(self) -> None:
        """Stop the service and empty the home."""
        self.systemctl("stop", "fabled")
        self.systemctl("reset-failed")
        for one in self.home.iterdir():
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
        shutil.rmtree(self.folder / "run" / "fabled", ignore_errors=True)
        self.systemctl("daemon-reload")
