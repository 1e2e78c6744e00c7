"""Builds transcripts in the words of the domain: prompts, replies, tool calls, subagents, torn lines."""

from __future__ import annotations

import datetime
import json
import uuid as uuids
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = uuids.UUID("6f1d7c1e-0000-4000-8000-000000000000")
START = 1_772_000_000


def make_uuid(name: str) -> str:
    """A uuid that is the same for the same name in every run."""
    return str(uuids.uuid5(NAMESPACE, name))


def line(record: dict[str, Any]) -> bytes:
    """One record as the client writes it: compact JSON, non-ASCII raw."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def instant(number: int) -> str:
    """The timestamp of a record: ten seconds after the one before."""
    moment = datetime.datetime.fromtimestamp(START + number * 10, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{number % 1000:03d}Z"


@dataclass
class Transcript:
    """A session being written: each call adds a line and returns its record.

    `parent` is the last conversation record unless given; `prompt` the running promptId (None: a client before 2.1.79).
    """

    session: str = field(default_factory=lambda: make_uuid("session"))
    cwd: str = "/home/ana/app"
    new_style: bool = True
    sidechain: bool = False
    agent: str | None = None
    salt: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    last: str | None = None
    prompt: str | None = None
    count: int = 0

    def _name(self, label: str | None) -> str:
        self.count += 1
        return make_uuid(f"{self.session}/{self.agent}/{self.salt}/{label or self.count}")

    def add(self, kind: str, /, label: str | None = None, **more: Any) -> dict[str, Any]:
        """A record with the common envelope."""
        name = self._name(label)
        record: dict[str, Any] = {
            "parentUuid": more.pop("parent", self.last),
            "isSidechain": self.sidechain,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.1.200" if self.new_style else "2.1.50",
            "type": kind,
            "uuid": more.pop("uuid", name),
            "timestamp": instant(self.count),
        }
        if self.agent is not None:
            record["agentId"] = self.agent
        record.update(more)
        self.last = record["uuid"]
        return self.put(record)

    def put(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record exactly as given."""
        self.records.append(record)
        self.lines.append(line(record))
        return record

    def raw(self, data: bytes) -> None:
        """A line of any bytes."""
        self.lines.append(data)

    def user(self, text: Any, **more: Any) -> dict[str, Any]:
        """A prompt; starts a thread."""
        if self.new_style:
            self.prompt = more.pop("prompt", None) or make_uuid(f"{self.session}/{self.salt}/prompt/{self.count}")
            more["promptId"] = self.prompt
        return self.add("user", message={"role": "user", "content": text}, **more)

    def assistant(self, text: str, **more: Any) -> dict[str, Any]:
        return self._say([{"type": "text", "text": text}], **more)

    def thinking(self, text: str, **more: Any) -> dict[str, Any]:
        return self._say([{"type": "thinking", "thinking": text, "signature": "c2ln"}], **more)

    def call(self, tool: str, arguments: dict[str, Any], call: str | None = None, **more: Any) -> dict[str, Any]:
        """A tool call; its id is `toolu_` and the record's number unless given."""
        call = call or f"toolu_{self.session[:8]}_{self.agent}_{self.count}"
        return self._say([{"type": "tool_use", "id": call, "name": tool, "input": arguments}], **more)

    def _say(self, content: list[dict[str, Any]], message: str | None = None, **more: Any) -> dict[str, Any]:
        message = message or f"msg_{self.count}"
        return self.add(
            "assistant",
            requestId=f"req_{self.count}",
            message={
                "id": message,
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": content,
                "stop_reason": None,
            },
            **more,
        )

    def result(self, of: dict[str, Any], content: Any, **more: Any) -> dict[str, Any]:
        """The result of a call."""
        call = of["message"]["content"][0]["id"]
        if self.new_style and self.prompt is not None:
            more.setdefault("promptId", self.prompt)
        more.setdefault("parent", of["uuid"])
        return self.add(
            "user",
            sourceToolAssistantUUID=of["uuid"],
            message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": content}]},
            **more,
        )

    def compact(self, summary: str) -> dict[str, Any]:
        """A compaction: boundary and summary."""
        before = self.last
        self.add(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            parent=None,
            logicalParentUuid=before,
        )
        more: dict[str, Any] = {}
        if self.new_style:
            self.prompt = make_uuid(f"{self.session}/{self.salt}/prompt/{self.count}")
            more["promptId"] = self.prompt
        return self.add("user", isCompactSummary=True, message={"role": "user", "content": summary}, **more)

    def queue(self, text: str) -> dict[str, Any]:
        self.count += 1
        return self.put(
            {
                "type": "queue-operation",
                "operation": "enqueue",
                "timestamp": instant(self.count),
                "sessionId": self.session,
                "content": text,
            }
        )

    def title(self, text: str) -> dict[str, Any]:
        return self.put({"type": "custom-title", "customTitle": text, "sessionId": self.session})

    @property
    def data(self) -> bytes:
        """The whole file."""
        return b"".join(part + b"\n" for part in self.lines)
