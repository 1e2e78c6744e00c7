"""Writes one invented session: its transcript and those of its subagents, as a client of some version would.

Which sessions there are is left to `corpus`, what tools say to `tools`.
"""

from __future__ import annotations

import base64
import json
import os
import time
from random import Random
from typing import Any

from benchmarks.eras import Era
from benchmarks.tools import Json, Toolbox, Use, image, size
from benchmarks.words import Words

MODELS = ("claude-sonnet-4-5", "claude-opus-4-6", "claude-haiku-4-5")
SUMMARY = "This session is being continued from a previous conversation that ran out of context. "
COMPACT_BYTES = 6_000_000


class Session:
    """A session being written."""

    def __init__(self, folder: str, era: Era, words: Words, random: Random, cwd: str) -> None:
        self._random, self._words, self._era, self._cwd = random, words, era, cwd
        self._tools = Toolbox(random, words, cwd, era.original_file)
        self._folder = folder
        self._id = self._uuid()
        self._path = os.path.join(folder, f"{self._id}.jsonl")
        self._version = random.choice(era.versions)
        self._model = random.choice(MODELS)
        self._branch = random.choice(("main", "main", "HEAD", f"fix/{words.some_names(random, 1)[0]}"))
        self._now = 1_767_225_600_000 + random.randrange(180 * 86_400_000)
        self._bytes = self._compacted = 0
        self._out: Any = None
        self._parent: str | None = None
        self._prompt: str | None = None
        self._agent: str | None = None
        self._last = ""

    def write(self, budget: int) -> int:
        """Writes about `budget` bytes; how many they became."""
        with open(self._path, "wb") as self._out:
            if not self._era.prompt_ids and self._random.random() < 0.2:
                self._put({"type": "summary", "summary": self._prose(50), "leafUuid": self._uuid()})
            while self._bytes < budget:
                self._turn(budget)
        return self._bytes

    def fork(self, budget: int) -> int:
        """Goes on in a new session that begins with a copy of this one's first half, as the desktop app has it."""
        old, old_id = self._path, self._id.encode()
        self._id, self._bytes, self._compacted = self._uuid(), 0, 0
        self._path = os.path.join(self._folder, f"{self._id}.jsonl")
        with open(old, "rb") as source, open(self._path, "wb") as self._out:
            for line in source:
                if self._bytes > budget // 2:
                    break
                copied = line.replace(old_id, self._id.encode())
                self._out.write(copied)
                self._bytes += len(copied)
                self._parent = json.loads(line).get("uuid", self._parent)
            while self._bytes < budget:
                self._turn(budget)
        return self._bytes

    # Small things

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def _name(self, prefix: str) -> str:
        return f"{prefix}_01{self._random.getrandbits(88):022x}"

    def _some(self, median: float, sigma: float, most: float) -> int:
        return size(self._random, median, sigma, most)

    def _prose(self, chars: int) -> str:
        return self._words.prose(self._random, chars)

    def _clock(self, seconds: float) -> str:
        self._now += int(seconds * 1000 * self._random.random()) + 3
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(self._now // 1000))}.{self._now % 1000:03}Z"

    def _put(self, value: Json) -> None:
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self._out.write(data)
        self._bytes += len(data)

    def _envelope(self, type: str, seconds: float = 4.0) -> Json:
        """The fields that every record of the chain has; links it to the record before."""
        value: Json = {
            "parentUuid": self._parent,
            "isSidechain": self._agent is not None,
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._id,
            "version": self._version,
            "gitBranch": self._branch,
        }
        if self._agent is not None:
            value["agentId"] = self._agent
        if self._era.attachments:
            value["entrypoint"] = "claude-desktop" if self._era.titles else "cli"
        value |= {"type": type, "uuid": self._uuid(), "timestamp": self._clock(seconds)}
        self._parent = value["uuid"]
        return value

    # What one prompt leads to

    def _turn(self, budget: int) -> None:
        random, era = self._random, self._era
        if era.titles:
            self._bookkeeping()
        elif random.random() < 0.45:
            self._file_history()
        if era.prompt_ids:
            self._prompt = self._uuid()
        self._user(self._asked())
        if era.attachments:
            for _ in range(random.choices((0, 1, 2, 4), (3, 4, 2, 1))[0]):
                self._attachment()
        for number in range(self._some(6, 0.8, 60)):
            self._step(budget)
            if number and random.random() < 0.02:
                self._queued()
            if self._bytes > budget:
                break
        self._say(self._some(300, 1.0, 9_000))
        if era.progress or era.attachments:
            self._stopped()
        if era.prompt_ids:
            self._put({"type": "last-prompt", "lastPrompt": self._last[:120], "sessionId": self._id})
        if self._bytes - self._compacted > COMPACT_BYTES:
            self._compact()

    def _asked(self) -> Any:
        text = self._last = self._prose(self._some(330, 1.2, 20_000))
        block = {"type": "text", "text": text}
        draw = self._random.random()
        if draw < 0.02:
            return [image(self._random), block]
        if draw < 0.05:
            opened = f"<ide_opened_file>{self._random.choice(self._words.paths)}</ide_opened_file>"
            return [{"type": "text", "text": opened}, block]
        return text if draw < 0.7 else [block]

    def _user(self, content: Any, **more: Any) -> None:
        value = self._envelope("user", 90.0) | {"message": {"role": "user", "content": content}} | more
        if self._prompt is not None:
            value["promptId"] = self._prompt
        elif self._era.progress:
            thinking = {"maxThinkingTokens": 31_999}
            value |= {"thinkingMetadata": thinking, "todos": [], "permissionMode": "default"}
        self._put(value)

    def _stopped(self) -> None:
        self._hooks("Stop", self._random.randrange(2))
        stop = {
            "subtype": "stop_hook_summary",
            "hookCount": 1,
            "hookInfos": [{"command": "python3 .claude/hooks/stop.py"}],
            "hookErrors": [],
            "preventedContinuation": False,
            "stopReason": "",
            "hasOutput": False,
            "level": "suggestion",
            "toolUseID": self._uuid(),
        }
        self._put(self._envelope("system") | stop)
        turn = {"subtype": "turn_duration", "durationMs": self._random.randrange(900_000), "isMeta": False}
        self._put(self._envelope("system") | turn)

    # The assistant

    def _assistant(self, block: Json, stop: str | None, message: str) -> Json:
        value = self._envelope("assistant") | {
            "message": {
                "model": self._model,
                "id": message,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop,
                "stop_sequence": None,
                "usage": self._usage(),
            },
            "requestId": self._name("req"),
        }
        self._put(value)
        return value

    def _usage(self) -> Json:
        number = self._random.randrange
        usage: Json = {
            "input_tokens": number(1, 9_000),
            "cache_creation_input_tokens": number(9_000),
            "cache_read_input_tokens": number(160_000),
            "output_tokens": number(1, 2_000),
            "service_tier": "standard",
        }
        if self._era.progress or self._era.attachments:
            usage["cache_creation"] = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": number(9_000)}
        if self._era.titles:
            usage["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0}
            usage |= {"inference_geo": "not_available", "speed": "standard"}
            tokens = {key: usage[key] for key in ("input_tokens", "output_tokens")}
            usage["iterations"] = [{"type": "message", **tokens}]
        return usage

    def _think(self, message: str) -> None:
        random = self._random
        secret = self._era.titles and random.random() < 0.7
        text = "" if secret else self._prose(self._some(280, 0.9, 8_000))
        chars = 90 + random.expovariate(1 / self._era.signature)
        signature = base64.b64encode(random.randbytes(int(chars * 0.75))).decode()
        self._assistant({"type": "thinking", "thinking": text, "signature": signature}, None, message)

    def _say(self, chars: int) -> None:
        self._assistant({"type": "text", "text": self._prose(chars)}, "end_turn", self._name("msg"))

    def _step(self, budget: int) -> None:
        """One answer of the model with its tool calls and their results."""
        random = self._random
        message = self._name("msg")
        if random.random() < 0.37:
            self._think(message)
        if random.random() < 0.32:
            self._assistant({"type": "text", "text": self._prose(self._some(150, 0.8, 4_000))}, None, message)
        if self._agent is None and random.random() < 0.02 and self._bytes < 0.9 * budget:
            self._task(message, budget)
            return
        calls = []
        for _ in range(2 if random.random() < 0.08 else 1):
            use = self._tools.use()
            calls.append((self._call(use.name, use.given, message), use))
        for call, use in calls:  # parallel calls fork the chain
            self._result(call, use)

    def _call(self, name: str, given: Json, message: str) -> Json:
        block = {"type": "tool_use", "id": self._name("toolu"), "name": name, "input": given}
        return self._assistant(block, "tool_use", message)

    def _result(self, call: Json, use: Use) -> None:
        random = self._random
        self._parent = call["uuid"]
        identity = call["message"]["content"][0]["id"]
        if self._era.progress:
            self._hooks(f"PreToolUse:{use.name}", random.random() < 0.5, identity)
            if use.name == "Bash" and random.random() < 0.12:
                self._running(identity, random.randrange(1, 24))
        block: Json = {"tool_use_id": identity, "type": "tool_result", "content": use.shown}
        if use.name == "Bash":
            block["is_error"] = random.random() < 0.04
        message = {"role": "user", "content": [block]}
        value = self._envelope("user", 20.0) | {"message": message, "toolUseResult": use.result}
        if self._prompt is not None:
            value["promptId"] = self._prompt
        if self._era.progress or self._era.attachments:
            value["sourceToolAssistantUUID"] = call["uuid"]
        self._put(value)

    def _running(self, identity: str, times: int) -> None:
        """What a long command tells while it runs: the end of its output, and all of it, again and again."""
        whole = self._words.log(self._random, self._some(1_400, 0.9, 9_000))
        for number in range(times):
            so_far = whole[: len(whole) * (number + 1) // times]
            data = {
                "type": "bash_progress",
                "output": so_far[-400:],
                "fullOutput": so_far,
                "elapsedTimeSeconds": number + 2,
                "totalLines": so_far.count("\n"),
            }
            more = {"data": data, "toolUseID": f"bash-progress-{number}", "parentToolUseID": identity}
            self._put(self._envelope("progress", 1.0) | more)

    def _hooks(self, event: str, times: int, identity: str = "") -> None:
        if not self._era.progress:
            return
        for _ in range(times):
            command = "python3 .claude/hooks/guard.py --quiet"
            data = {"type": "hook_progress", "hookEvent": event.split(":")[0], "hookName": event, "command": command}
            more = {"data": data, "parentToolUseID": identity, "toolUseID": identity}
            self._put(self._envelope("progress", 0.2) | more)

    # Subagents

    def _task(self, message: str, budget: int) -> None:
        """A subagent: its own transcript, in some versions a whole copy of it in this one, and its result here."""
        random = self._random
        order = self._prose(self._some(900, 0.6, 6_000))
        agent = f"a{random.getrandbits(64):016x}" if self._era.agent_folder else f"{random.getrandbits(32):08x}"
        given = {"description": self._prose(30), "prompt": order, "subagent_type": "general-purpose"}
        call = self._call("Task", given, message)
        outer = (self._out, self._parent, self._agent)
        folder = os.path.join(self._folder, self._id, "subagents") if self._era.agent_folder else self._folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"agent-{agent}.jsonl")
        with open(path, "wb") as self._out:
            self._parent, self._agent = None, agent
            self._user(order)
            for _ in range(self._some(9, 0.7, 60)):
                self._step(budget)
            self._say(self._some(900, 0.7, 9_000))
        if self._era.agent_folder:
            with open(path.replace(".jsonl", ".meta.json"), "w") as file:
                json.dump({"agentType": "general-purpose", "description": given["description"]}, file)
        self._out, self._parent, self._agent = outer
        answer = [{"type": "text", "text": self._prose(self._some(1_500, 0.7, 9_000))}]
        if self._era.progress:
            self._copy_of(path, order, agent, call["message"]["content"][0]["id"])
        result = {
            "status": "completed",
            "prompt": order,
            "agentId": agent,
            "content": answer,
            "totalDurationMs": random.randrange(600_000),
            "totalTokens": random.randrange(90_000),
            "totalToolUseCount": 9,
        }
        self._result(call, Use("Task", given, answer, result))

    def _copy_of(self, path: str, order: str, agent: str, identity: str) -> None:
        with open(path, "rb") as file:
            for line in file:
                inner = json.loads(line)
                if inner["type"] not in ("user", "assistant"):
                    continue
                nested = {key: inner[key] for key in ("type", "message", "timestamp")} | {"uuid": self._uuid()}
                data = {
                    "type": "agent_progress",
                    "message": nested,
                    "normalizedMessages": [],
                    "prompt": order,
                    "agentId": agent,
                }
                more = {"data": data, "toolUseID": f"agent_{nested['uuid']}", "parentToolUseID": identity}
                self._put(self._envelope("progress", 1.0) | more)

    # Beside the conversation

    def _file_history(self) -> None:
        paths = self._random.sample(self._words.paths, self._random.randrange(6))
        backups = {
            path: {
                "backupFileName": f"{self._random.getrandbits(64):016x}@v{number}",
                "version": number,
                "backupTime": self._clock(0),
            }
            for number, path in enumerate(paths, 1)
        }
        identity = self._uuid()
        snapshot = {"messageId": identity, "trackedFileBackups": backups, "timestamp": self._clock(0)}
        more = {"messageId": identity, "snapshot": snapshot, "isSnapshotUpdate": False}
        self._put({"type": "file-history-snapshot"} | more)

    def _bookkeeping(self) -> None:
        """What the later versions write again and again, mostly word for word the same."""
        if self._last:
            title = f"work on {self._words.name}"
            self._put({"type": "custom-title", "customTitle": title, "sessionId": self._id})
            self._put({"type": "mode", "mode": "default", "sessionId": self._id})
        if self._random.random() < 0.1:
            self._put({"type": "ai-title", "aiTitle": self._prose(40), "sessionId": self._id})

    def _queued(self) -> None:
        text = self._prose(self._some(150, 1.0, 6_000))
        for operation in ("enqueue", "dequeue" if self._random.random() < 0.6 else "remove"):
            value: Json = {"type": "queue-operation", "operation": operation, "timestamp": self._clock(1.0)}
            value["sessionId"] = self._id
            if operation == "enqueue":
                value["content"] = text
            self._put(value)
        if self._era.attachments:
            attachment = {"type": "queued_command", "prompt": text, "commandMode": "prompt"}
            self._put(self._envelope("attachment") | {"attachment": attachment})

    def _attachment(self) -> None:
        random = self._random
        kind = random.choices(range(5), (10, 4, 3, 2, 2))[0]
        path = random.choice(self._words.paths)
        attachment: Json
        if kind == 0:
            attachment = {"type": "task_reminder", "content": [], "itemCount": 0}
        elif kind == 1:
            event = {"hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit", "toolUseID": self._uuid()}
            attachment = {"type": "hook_additional_context", "content": [self._prose(300)], **event}
        elif kind == 2:
            memory = {"path": path, "type": "Project", "content": self._prose(700)}
            attachment = {"type": "nested_memory", "path": path, "displayPath": path, "content": memory}
        elif kind == 3:
            attachment = {"type": "skill_listing", "content": self._prose(14_000), "skillCount": 40, "isInitial": True}
        else:
            snippet = "\n".join(self._tools.lines(path)[:60])
            attachment = {"type": "edited_text_file", "filename": path, "snippet": snippet}
        self._put(self._envelope("attachment") | {"attachment": attachment})

    def _compact(self) -> None:
        self._compacted = self._bytes
        last, self._parent = self._parent, None
        boundary = {
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "logicalParentUuid": last,
            "compactMetadata": {"trigger": "auto", "preTokens": self._random.randrange(120_000, 190_000)},
        }
        self._put(self._envelope("system") | boundary)
        self._user(SUMMARY + self._prose(13_000), isCompactSummary=True, isVisibleInTranscriptOnly=True)
