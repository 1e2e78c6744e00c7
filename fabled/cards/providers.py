"""Asks a model: the `claude` command in print mode, the Anthropic API, or an endpoint that speaks OpenAI's protocol.

What is asked, and what becomes of the answer, is left to `run`. The standard library's HTTP client is enough: one
request after another, in a process that runs seldom; a library would add several packages to every installation, for
the few that turn this on. The care it needs is here: no redirect is followed (a key would go along), an answer is read
up to a limit and a deadline, and a fault is told without the answer's text.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..errors import FabledError
from .brief import ANSWER_TOKENS, SYSTEM
from .place import MARKER

_MOST_BYTES = 1 << 20
_LONGEST_PAUSE = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it cost; 0 tokens: it did not tell."""

    text: str
    tokens: int
    model: str


class Unanswered(FabledError):
    """The model gave no answer. `again`: the same may succeed later; `wait`: not before so many seconds; `slow`: it may
    be the thread that is too much for it."""

    code = "unanswered"

    def __init__(
        self, message: str, hint: str = "", *, again: bool = True, wait: float | None = None, slow: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.slow = slow
        self.again = again
        self.wait = wait


class Provider(Protocol):
    name: str

    def ask(self, text: str, seconds: float) -> Answer:
        """Raises Unanswered."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any, **more: Any) -> None:
        return None


def _post(url: str, headers: Mapping[str, str], body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """What an endpoint answers to JSON. Raises Unanswered."""
    host = urlsplit(url).netloc
    until = time.monotonic() + seconds
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}, method="POST"
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as reply:
            data = _read(reply, until)
    except urllib.error.HTTPError as fault:
        fault.close()
        raise _refused(host, fault.code, fault.headers.get("retry-after")) from None
    except (OSError, HTTPException, ValueError) as fault:
        reason = getattr(fault, "reason", None) or fault
        raise Unanswered(
            f"{host} does not answer: {reason}",
            "see that cards.url is right and it runs",
            slow=isinstance(reason, TimeoutError),
        ) from None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Unanswered(f"{host} answered something that is no JSON object", "see that cards.url is right")
    return value


def _read(reply: HTTPResponse, until: float) -> bytes:
    """The whole answer; one that trickles does not get more time than one that is silent."""
    pieces: list[bytes] = []
    size = 0
    while piece := reply.read1(65_536):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise ValueError("the answer is too long")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def _refused(host: str, status: int, wait: str | None) -> Unanswered:
    if status in (401, 403):
        return Unanswered(f"{host} refused the key ({status})", "see cards.key_env", again=False)
    if status in (408, 409, 425, 429) or status >= 500:
        seconds = min(float(wait), _LONGEST_PAUSE) if wait and re.fullmatch(r"\d{1,6}(\.\d+)?", wait) else None
        return Unanswered(f"{host} is busy ({status})", "fabled cards run goes on later", wait=seconds)
    return Unanswered(f"{host} refused the request ({status})", "see cards.url and cards.model", again=False)


def _tokens(usage: Any, *names: str) -> int:
    if not isinstance(usage, dict):
        return 0
    given = (usage.get(name) for name in names)
    return sum(value for value in given if type(value) is int and 0 <= value < 10**7)


class OpenAI:
    """Any endpoint with `/chat/completions`: a local one, or OpenAI's."""

    name = "openai"

    def __init__(self, url: str, model: str, key: str | None) -> None:
        self._url = url if url.endswith("/chat/completions") else url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, text: str, seconds: float) -> Answer:
        value = _post(
            self._url,
            self._headers,
            {
                "model": self._model, "max_tokens": ANSWER_TOKENS, "temperature": 0, "stream": False,
                "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
            },
            seconds,
        )  # fmt: skip
        try:
            said = value["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            said = None
        if not isinstance(said, str):
            raise Unanswered("the endpoint's answer holds no message", "see that cards.url is right")
        return Answer(said, _tokens(value.get("usage"), "prompt_tokens", "completion_tokens"), self._model)


class Anthropic:
    """The Anthropic API."""

    name = "anthropic"

    def __init__(self, url: str, model: str, key: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1/messages").removesuffix("/v1") + "/v1/messages"
        self._model = model
        self._headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def ask(self, text: str, seconds: float) -> Answer:
        value = _post(
            self._url,
            self._headers,
            {
                "model": self._model, "max_tokens": ANSWER_TOKENS, "system": SYSTEM,
                "messages": [{"role": "user", "content": text}],
            },
            seconds,
        )  # fmt: skip
        content = value.get("content")
        said = [
            block["text"]
            for block in (content if isinstance(content, list) else [])
            if isinstance(block, dict) and isinstance(block.get("text"), str)
        ]
        if not said:
            raise Unanswered("the API's answer holds no text", "see cards.model")
        return Answer("".join(said), _tokens(value.get("usage"), "input_tokens", "output_tokens"), self._model)


class Claude:
    """The `claude` command in print mode: without tools, hooks or servers, in a folder whose sessions are not indexed.

    Its own record of the session is turned off where it knows how; older ones write it, and the indexer passes it by.
    """

    name = "claude"
    _MORE = (
        "--tools", "", "--strict-mcp-config", "--disable-slash-commands", "--no-session-persistence",
        "--settings", '{"disableAllHooks":true}',
    )  # fmt: skip

    def __init__(self, command: str, model: str, folder: str) -> None:
        self._command = command
        self._model = model
        self._folder = folder
        self._more: tuple[str, ...] = self._MORE

    def ask(self, text: str, seconds: float) -> Answer:
        os.makedirs(self._folder, 0o700, exist_ok=True)
        while True:
            done = self._run(text, seconds)
            if done.returncode and self._more and b"unknown option" in done.stderr:
                self._more = ()
                continue
            break
        try:
            value = json.loads(done.stdout[:_MOST_BYTES])
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise Unanswered(
                f"{self._command} gave no answer (exit status {done.returncode})",
                f"try it: {self._command} -p hello",
                again=False,
            )
        if value.get("is_error") or not isinstance(value.get("result"), str):
            raise Unanswered(f"{self._command} could not ask the model", f"try it: {self._command} -p hello")
        usage = value.get("usage")
        cost = _tokens(usage, "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return Answer(value["result"], cost, self._model or "claude")

    def _run(self, text: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
        model = ("--model", self._model) if self._model else ()
        command = [self._command, "-p", "--output-format", "json", *model, *self._more]
        try:
            return subprocess.run(
                command,
                input=f"{SYSTEM}\n\n{text}".encode("utf-8", "replace"),
                capture_output=True,
                cwd=self._folder,
                env={**os.environ, MARKER: "1"},
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unanswered(
                f"{self._command} did not answer in {seconds:g} s", "see cards.timeout_seconds", slow=True
            ) from None
        except OSError as fault:
            raise Unanswered(
                f"{self._command} cannot be started: {fault.strerror or fault}", "see cards.command", again=False
            ) from None
