"""Records that continue a transcript which is there, as the client would append them.

Appending them, and what comes of it, is left to `figures` and `inside`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID


class Tail:
    """The conversation goes on: records that continue a transcript, of the kinds that are most frequent."""

    KINDS = ("tool call", "tool result", "prompt", "reply")

    def __init__(self, path: Path) -> None:
        linked = [record for record in _last(path) if record.get("uuid")]
        self._like = {key: linked[-1].get(key) for key in ("userType", "cwd", "sessionId", "version", "gitBranch")}
        self._parent = str(linked[-1]["uuid"])
        self._prompt = next((record["promptId"] for record in reversed(linked) if record.get("promptId")), None)
        text = " ".join(str(record.get("message", "")) for record in linked[-200:])
        self._words = re.findall("[A-Za-z_]{3,20}", text) or ["word"]
        self._random = Random(f"{path.name} {path.stat().st_size}")  # never the same uuids twice

    def lines(self, count: int) -> Iterator[bytes]:
        for number in range(count):
            yield self.line(number)

    def line(self, number: int, word: str = "") -> bytes:
        """The next record; `word` is in its text."""
        random = self._random
        text = " ".join([word, *random.choices(self._words, k=random.randrange(5, 260))]).strip()
        kind = self.KINDS[number % len(self.KINDS)]
        call = f"toolu_bench{number // len(self.KINDS):012}"
        more: dict[str, Any] = {}
        content: Any = text
        if kind == "tool call":
            content = [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": text}}]
        elif kind == "tool result":
            content = [{"type": "tool_result", "tool_use_id": call, "content": text}]
            more["toolUseResult"] = {"stdout": text, "stderr": ""}
        elif kind == "reply":
            content = [{"type": "text", "text": text}]
        message: dict[str, Any] = {"role": "user", "content": content}
        type = "user"
        if kind in ("tool call", "reply"):
            type = "assistant"
            message |= {"id": f"msg_bench{number:012}", "type": "message", "role": type, "usage": {"output_tokens": 9}}
        elif self._prompt is not None:
            if kind == "prompt":
                self._prompt = self._uuid()
            more["promptId"] = self._prompt
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        linked = {"parentUuid": self._parent, "isSidechain": False, **self._like}
        self._parent = self._uuid()
        value = {**linked, "type": type, "message": message, "uuid": self._parent, "timestamp": now, **more}
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128)))


def _last(path: Path) -> Iterator[dict[str, Any]]:
    """The whole records among the last megabytes; a corpus may have damaged lines."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - (4 << 20)))
        for line in file.read().split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if type(record) is dict:
                yield record


def end_line(path: Path) -> None:
    """Ends a last line that was left without its newline: what is appended must not run into it."""
    with open(path, "rb+") as file:
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
