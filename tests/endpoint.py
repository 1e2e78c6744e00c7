"""A scripted model endpoint on loopback: real HTTP, answers made by the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CARD: dict[str, Any] = {
    "title": "Bookings after midnight land on the wrong day",
    "type": "insight",
    "topics": ["bookings", "time zones"],
    "decisions": ["Convert to the harbour's zone before grouping."],
    "files": ["report.sql"],
    "outcome": "The report groups by the harbour's date.",
    "summary": "Bookings were grouped by the UTC date. They are converted first.",
}


def openai(text: str, tokens: int = 100) -> tuple[int, dict[str, Any]]:
    """An answer as OpenAI's protocol has it."""
    usage = {"prompt_tokens": tokens - 10, "completion_tokens": 10}
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}


def anthropic(text: str, tokens: int = 100) -> tuple[int, dict[str, Any]]:
    """An answer as the Anthropic API has it."""
    usage = {"input_tokens": tokens - 10, "output_tokens": 10}
    return 200, {"content": [{"type": "text", "text": text}], "usage": usage}


@dataclass
class Endpoint:
    """`answer` makes (status, JSON or bytes) of a request's JSON; `requests` holds (path, headers, JSON) of each."""

    answer: Callable[[dict[str, Any]], tuple[int, Any]]
    port: int = 0
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    came: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def texts(self) -> list[str]:
        """What was asked, of each request."""
        return [body["messages"][-1]["content"] for _, _, body in self.requests]


@contextmanager
def endpoint(answer: Callable[[dict[str, Any]], tuple[int, Any]]) -> Iterator[Endpoint]:
    """An endpoint that answers as scripted until the block ends."""
    made = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            made.came.set()
            status, value = made.answer(body)
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            try:
                self.send_response(status)
                for name, text in made.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # whoever asked was killed

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield made
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
