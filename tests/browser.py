"""A real headless Chromium, spoken to over its debugging pipe: pages opened, looked at and listened to."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")


# The pipe is at descriptors 3 and 4 by the browser's own rule.
_TO_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of it. `said` is all that came on its console, `fetched` every address it asked for."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = out, back
        self._rest = b""
        self._number = 0
        self._session = ""
        self.said: list[str] = []
        self.fetched: list[str] = []
        self._loaded = False

    def open(self, url: str, width: int = 1000, dark: bool = False) -> None:
        """Load a page and wait until it is drawn."""
        self._session = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self._ask("Page.navigate", url=url)
        end = time.monotonic() + 60
        while not self._loaded:
            assert time.monotonic() < end, "the page was not loaded in time"
            self._hear(60)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        request = {"id": number, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            assert time.monotonic() < end, f"no answer to {method}"
            message = self._hear(60)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def _hear(self, seconds: float) -> Any:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], seconds)
            assert ready, "the browser is silent"
            data = os.read(self._back, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.said.append(json.dumps(params.get("args")))
            case "Runtime.exceptionThrown":
                self.said.append(json.dumps(params))
            case "Log.entryAdded":
                self.said.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.fetched.append(params["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, without any profile; its process ends with the block."""
    assert PROGRAM is not None
    folder = Path(tempfile.mkdtemp(prefix="fabled-browser-"))
    theirs_in, ours_out = os.pipe()
    ours_back, theirs_out = os.pipe()
    command = [
        PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
        f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    begin = [sys.executable, "-c", _TO_3_AND_4, str(theirs_in), str(theirs_out), *command]
    process = subprocess.Popen(
        begin, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_back)
    finally:
        os.close(ours_out)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_back)
        shutil.rmtree(folder, ignore_errors=True)
