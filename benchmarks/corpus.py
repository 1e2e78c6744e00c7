"""Writes a folder of invented transcripts, the same for the same arguments, with the record and byte mix of real ones.

What the text in them looks like is left to `words`; nothing of fabled is used here, so that the input does not depend
on what is measured.

    python -m benchmarks.corpus OUT --mb 100 --sessions 8 --big 0.84

Shares follow what was counted in public transcripts: about two records in five are the assistant's, one in five a tool's
result, a quarter progress (in the versions that wrote it); a third of the bytes is `toolUseResult`, half of that the
`originalFile` of edits; texts that people and models wrote are 4 %. Sessions are of several client versions, which
differ in what they write.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp
from random import Random
from typing import Any

from benchmarks.words import Words, lexicon

MADE = 1
"""Changed whenever the same arguments give other bytes: caches of corpora are named by it."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Era:
    """What a range of client versions writes."""

    share: float
    versions: tuple[str, ...]
    prompt_ids: bool = False
    progress: bool = False
    attachments: bool = False
    titles: bool = False
    original_file: float = 0.5
    """share of edits whose result repeats the whole file as it was"""
    signature: int = 600
    """mean characters of a thinking block's signature"""
    agent_folder: bool = True


ERAS = (
    Era(0.05, ("1.0.86", "1.0.98", "1.0.113"), original_file=0.25, signature=300, agent_folder=False),
    Era(0.09, ("2.0.61", "2.0.69", "2.0.76"), original_file=0.6, signature=500, agent_folder=False),
    Era(0.26, ("2.1.31", "2.1.36", "2.1.42", "2.1.47"), progress=True, original_file=1.0, signature=700),
    Era(0.30, ("2.1.50", "2.1.56", "2.1.63"), progress=True, original_file=1.0, signature=700),
    Era(0.10, ("2.1.114", "2.1.126", "2.1.131"), prompt_ids=True, attachments=True, original_file=0.8, signature=1500),
    Era(0.20, ("2.1.205", "2.1.214", "2.1.219"), prompt_ids=True, attachments=True, titles=True, original_file=0.3, signature=2600),
)  # fmt: skip

TOOLS = ("Bash", "Read", "Edit", "Grep", "Write", "Glob", "TodoWrite", "WebFetch", "mcp__browser__snapshot")
TOOL_WEIGHTS = (36, 19, 17, 9, 5, 4, 5, 1, 3)
MODELS = ("claude-sonnet-4-5", "claude-opus-4-6", "claude-haiku-4-5")
SUMMARY = "This session is being continued from a previous conversation that ran out of context. "


def _line(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Files:
    """The source files of one project as its sessions meet them: read again and again, changed a little."""

    def __init__(self, words: Words, random: Random) -> None:
        self._words = words
        self._texts: dict[str, list[str]] = {}
        self._random = random

    def lines(self, path: str) -> list[str]:
        found = self._texts.get(path)
        if found is None:
            size = int(min(70_000, 7_000 * exp(self._random.gauss(0, 1.0))))
            found = self._texts[path] = self._words.code(self._random, size)
        return found


class Session:
    """One session: its transcript and those of its subagents, written until they have the bytes asked for."""

    def __init__(self, folder: str, era: Era, words: Words, random: Random, cwd: str) -> None:
        self.random, self.words, self.era, self.cwd = random, words, era, cwd
        self.files = Files(words, random)
        self.folder = folder
        self.id = self._uuid()
        self.path = os.path.join(folder, f"{self.id}.jsonl")
        self.version = random.choice(era.versions)
        self.model = random.choice(MODELS)
        self.branch = random.choice(("main", "main", "HEAD", f"fix/{words.some_names(random, 1)[0]}"))
        self.now = 1_767_225_600_000 + random.randrange(180 * 86_400_000)
        self.bytes = 0
        self.out: Any = None
        self.parent: str | None = None
        self.prompt: str | None = None
        self.agent: str | None = None
        self.api = 0
        self.compacted = 0
        self.title = ""

    # Small things

    def _uuid(self) -> str:
        digits = f"{self.random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def _id(self, prefix: str) -> str:
        return f"{prefix}_01{self.random.getrandbits(110):028x}"[: len(prefix) + 25]

    def _size(self, median: float, sigma: float, most: float = 30_000) -> int:
        return int(min(most, median * exp(self.random.gauss(0, sigma))))

    def _clock(self, seconds: float) -> str:
        self.now += int(seconds * 1000 * self.random.random()) + 3
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(self.now // 1000))}.{self.now % 1000:03}Z"

    def _put(self, value: Json) -> None:
        data = _line(value)
        self.out.write(data)
        self.bytes += len(data)

    def _envelope(self, type: str, seconds: float = 4.0) -> Json:
        """The fields that every record of the chain has; links it to the record before."""
        value: Json = {
            "parentUuid": self.parent,
            "isSidechain": self.agent is not None,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.id,
            "version": self.version,
            "gitBranch": self.branch,
        }
        if self.agent is not None:
            value["agentId"] = self.agent
        if self.era.attachments:
            value["entrypoint"] = "claude-desktop" if self.era.titles else "cli"
        value |= {"type": type, "uuid": self._uuid(), "timestamp": self._clock(seconds)}
        self.parent = value["uuid"]
        return value

    # The session

    def write(self, budget: int) -> int:
        """Writes about `budget` bytes; how many they became."""
        with open(self.path, "wb") as self.out:
            if not self.era.prompt_ids and self.random.random() < 0.2:
                self._put({"type": "summary", "summary": self.words.prose(self.random, 50), "leafUuid": self._uuid()})
            while self.bytes < budget:
                self.turn(budget)
        return self.bytes

    def fork(self, budget: int) -> int:
        """Goes on in a new session that begins with a copy of this one's first half, as the desktop app has it."""
        old, old_id = self.path, self.id
        self.id, self.bytes, self.compacted = self._uuid(), 0, 0
        self.path = os.path.join(self.folder, f"{self.id}.jsonl")
        with open(old, "rb") as source, open(self.path, "wb") as self.out:
            for line in source:
                if self.bytes > budget // 2:
                    break
                copied = line.replace(old_id.encode(), self.id.encode())
                self.out.write(copied)
                self.bytes += len(copied)
                self.parent = json.loads(line).get("uuid", self.parent)
            while self.bytes < budget:
                self.turn(budget)
        return self.bytes

    def turn(self, budget: int) -> None:
        """What one prompt leads to."""
        random, era = self.random, self.era
        if random.random() < 0.45 and not era.titles:
            self._snapshot()
        if era.titles:
            self._bookkeeping()
        if era.prompt_ids:
            self.prompt = self._uuid()
        self._user(self._prompt_content())
        if era.attachments:
            for _ in range(random.choices((0, 1, 2, 4), (3, 4, 2, 1))[0]):
                self._attachment()
        steps = self._size(6, 0.8, 60)
        for number in range(steps):
            self._step(budget)
            if number and random.random() < 0.02:
                self._queued()
            if self.bytes > budget:
                break
        self._say(self._size(300, 1.0, 9_000))
        if era.progress or era.attachments:
            self._hooks("Stop", random.randrange(2))
            stop = self._envelope("system") | {
                "subtype": "stop_hook_summary", "hookCount": 1, "hookInfos": [{"command": "python3 .claude/hooks/stop.py"}],
                "hookErrors": [], "preventedContinuation": False, "stopReason": "", "hasOutput": False, "level": "suggestion",
                "toolUseID": self._uuid(),
            }  # fmt: skip
            self._put(stop)
            self._put(self._envelope("system") | {"subtype": "turn_duration", "durationMs": random.randrange(900_000), "isMeta": False})
        if era.prompt_ids:
            self._put({"type": "last-prompt", "lastPrompt": self.title[:120], "sessionId": self.id})
        if self.bytes - self.compacted > 6_000_000:
            self._compact()

    def _prompt_content(self) -> Any:
        random = self.random
        text = self.words.prose(random, self._size(330, 1.2, 20_000))
        self.title = text
        draw = random.random()
        if draw < 0.02:
            return [self._image(), {"type": "text", "text": text}]
        if draw < 0.05:
            return [{"type": "text", "text": f"<ide_opened_file>{random.choice(self.words.paths)}</ide_opened_file>"}, {"type": "text", "text": text}]
        return text if draw < 0.7 else [{"type": "text", "text": text}]

    def _user(self, content: Any, **more: Any) -> Json:
        value = self._envelope("user", 90.0) | {"message": {"role": "user", "content": content}} | more
        if self.prompt is not None:
            value["promptId"] = self.prompt
        elif self.era.progress:
            value |= {"thinkingMetadata": {"maxThinkingTokens": 31_999}, "todos": [], "permissionMode": "default"}
        self._put(value)
        return value

    def _image(self) -> Json:
        data = base64.b64encode(self.random.randbytes(self._size(70_000, 0.6, 900_000))).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    # The assistant

    def _assistant(self, block: Json, stop: str | None, message: str) -> Json:
        random = self.random
        usage: Json = {
            "input_tokens": random.randrange(1, 9_000), "cache_creation_input_tokens": random.randrange(9_000),
            "cache_read_input_tokens": random.randrange(160_000), "output_tokens": random.randrange(1, 2_000), "service_tier": "standard",
        }  # fmt: skip
        if self.era.progress or self.era.attachments:
            usage["cache_creation"] = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": random.randrange(9_000)}
        if self.era.titles:
            usage |= {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}, "inference_geo": "not_available", "speed": "standard"}
            usage["iterations"] = [{"type": "message", "input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}]
        value = self._envelope("assistant") | {
            "message": {
                "model": self.model, "id": message, "type": "message", "role": "assistant", "content": [block],
                "stop_reason": stop, "stop_sequence": None, "usage": usage,
            },
            "requestId": self._id("req"),
        }  # fmt: skip
        self._put(value)
        return value

    def _think(self, message: str) -> None:
        random = self.random
        text = "" if self.era.titles and random.random() < 0.7 else self.words.prose(random, self._size(280, 0.9, 8_000))
        signature = base64.b64encode(random.randbytes(max(90, int(random.expovariate(1 / self.era.signature) * 0.75) + 90))).decode()
        self._assistant({"type": "thinking", "thinking": text, "signature": signature}, None, message)

    def _say(self, chars: int) -> None:
        self._assistant({"type": "text", "text": self.words.prose(self.random, chars)}, "end_turn", self._id("msg"))

    def _step(self, budget: int) -> None:
        """One answer of the model with its tool calls and their results."""
        random = self.random
        message = self._id("msg")
        if random.random() < 0.37:
            self._think(message)
        if random.random() < 0.32:
            self._assistant({"type": "text", "text": self.words.prose(random, self._size(150, 0.8, 4_000))}, None, message)
        if self.agent is None and random.random() < 0.02 and self.bytes < 0.9 * budget:
            self._task(message, budget)
            return
        calls = []
        for _ in range(2 if random.random() < 0.08 else 1):
            name = random.choices(TOOLS, TOOL_WEIGHTS)[0]
            given, shown, result = TOOL_MAKERS.get(name, _other)(self)
            block = {"type": "tool_use", "id": self._id("toolu"), "name": name, "input": given}
            calls.append((self._assistant(block, "tool_use", message), name, shown, result))
        for call, name, shown, result in calls:  # parallel calls fork the chain
            self._result(call, name, shown, result)

    def _result(self, call: Json, name: str, shown: Any, result: Any) -> None:
        random = self.random
        self.parent = call["uuid"]
        identity = call["message"]["content"][0]["id"]
        if self.era.progress:
            self._hooks(f"PreToolUse:{name}", random.random() < 0.5, identity)
            if name == "Bash" and random.random() < 0.12:
                self._running(identity, random.randrange(1, 24))
        block: Json = {"tool_use_id": identity, "type": "tool_result", "content": shown}
        if name == "Bash":
            block["is_error"] = random.random() < 0.04
        value = self._envelope("user", 20.0) | {"message": {"role": "user", "content": [block]}, "toolUseResult": result}
        if self.prompt is not None:
            value["promptId"] = self.prompt
        if self.era.progress or self.era.attachments:
            value["sourceToolAssistantUUID"] = call["uuid"]
        self._put(value)

    def _running(self, identity: str, times: int) -> None:
        """What a long command tells while it runs: the end of its output, and all of it, again and again."""
        whole = self.words.log(self.random, self._size(1_400, 0.9, 9_000))
        for number in range(times):
            so_far = whole[: len(whole) * (number + 1) // times]
            data = {
                "type": "bash_progress", "output": so_far[-400:], "fullOutput": so_far,
                "elapsedTimeSeconds": number + 2, "totalLines": so_far.count("\n"),
            }  # fmt: skip
            more = {"data": data, "toolUseID": f"bash-progress-{number}", "parentToolUseID": identity}
            self._put(self._envelope("progress", 1.0) | more)

    def _hooks(self, event: str, times: float, identity: str = "") -> None:
        if not self.era.progress:
            return
        for _ in range(int(times)):
            data = {"type": "hook_progress", "hookEvent": event.split(":")[0], "hookName": event, "command": "python3 .claude/hooks/guard.py --quiet"}
            self._put(self._envelope("progress", 0.2) | {"data": data, "parentToolUseID": identity, "toolUseID": identity})

    def _task(self, message: str, budget: int) -> None:
        """A subagent: its own transcript, in some versions a whole copy of it in this one, and its result here."""
        random = self.random
        order = self.words.prose(random, self._size(900, 0.6, 6_000))
        agent = f"a{random.getrandbits(64):016x}" if self.era.agent_folder else f"{random.getrandbits(32):08x}"
        given = {"description": self.words.prose(random, 30), "prompt": order, "subagent_type": "general-purpose"}
        call = self._assistant({"type": "tool_use", "id": self._id("toolu"), "name": "Task", "input": given}, "tool_use", message)
        identity = call["message"]["content"][0]["id"]
        outer = (self.out, self.parent, self.prompt, self.agent)
        folder = os.path.join(self.folder, self.id, "subagents") if self.era.agent_folder else self.folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"agent-{agent}.jsonl")
        with open(path, "wb") as self.out:
            self.parent, self.agent = None, agent
            self._user(order)
            for _ in range(self._size(9, 0.7, 60)):
                self._step(budget)
            self._say(self._size(900, 0.7, 9_000))
        if self.era.agent_folder:
            with open(path.replace(".jsonl", ".meta.json"), "w") as file:
                json.dump({"agentType": "general-purpose", "description": given["description"]}, file)
        self.out, self.parent, self.prompt, self.agent = outer
        answer = self.words.prose(random, self._size(1_500, 0.7, 9_000))
        if self.era.progress:
            self._copy_of(path, order, agent, identity)
        result = {
            "status": "completed", "prompt": order, "agentId": agent, "content": [{"type": "text", "text": answer}],
            "totalDurationMs": random.randrange(600_000), "totalTokens": random.randrange(90_000), "totalToolUseCount": 9,
        }  # fmt: skip
        self._result(call, "Task", [{"type": "text", "text": answer}], result)

    def _copy_of(self, path: str, order: str, agent: str, identity: str) -> None:
        with open(path, "rb") as file:
            for line in file:
                inner = json.loads(line)
                if inner["type"] not in ("user", "assistant"):
                    continue
                nested = {"type": inner["type"], "message": inner["message"], "uuid": self._uuid(), "timestamp": inner["timestamp"]}
                data = {"message": nested, "normalizedMessages": [], "type": "agent_progress", "prompt": order, "agentId": agent}
                more = {"data": data, "toolUseID": f"agent_{nested['uuid']}", "parentToolUseID": identity}
                self._put(self._envelope("progress", 1.0) | more)

    # Beside the conversation

    def _snapshot(self) -> None:
        backups = {
            path: {"backupFileName": f"{self.random.getrandbits(64):016x}@v{n}", "version": n, "backupTime": self._clock(0)}
            for n, path in enumerate(self.random.sample(self.words.paths, self.random.randrange(6)), 1)
        }
        identity = self._uuid()
        snapshot = {"messageId": identity, "trackedFileBackups": backups, "timestamp": self._clock(0)}
        self._put({"type": "file-history-snapshot", "messageId": identity, "snapshot": snapshot, "isSnapshotUpdate": False})

    def _bookkeeping(self) -> None:
        """What the later versions write again and again, mostly word for word the same."""
        if self.title:
            self._put({"type": "custom-title", "customTitle": f"work on {self.words.name}", "sessionId": self.id})
            self._put({"type": "mode", "mode": "default", "sessionId": self.id})
        if self.random.random() < 0.1:
            self._put({"type": "ai-title", "aiTitle": self.words.prose(self.random, 40), "sessionId": self.id})

    def _queued(self) -> None:
        text = self.words.prose(self.random, self._size(150, 1.0, 6_000))
        for operation in ("enqueue", "dequeue" if self.random.random() < 0.6 else "remove"):
            value = {"type": "queue-operation", "operation": operation, "timestamp": self._clock(1.0), "sessionId": self.id}
            if operation == "enqueue":
                value["content"] = text
            self._put(value)
        if self.era.attachments:
            attachment = {"type": "queued_command", "prompt": text, "commandMode": "prompt"}
            self._put(self._envelope("attachment") | {"attachment": attachment})

    def _attachment(self) -> None:
        random, words = self.random, self.words
        kind = random.choices(range(5), (10, 4, 3, 2, 2))[0]
        path = random.choice(words.paths)
        attachment: Json
        if kind == 0:
            attachment = {"type": "task_reminder", "content": [], "itemCount": 0}
        elif kind == 1:
            attachment = {"type": "hook_additional_context", "content": [words.prose(random, 300)], "hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit", "toolUseID": self._uuid()}
        elif kind == 2:
            attachment = {"type": "nested_memory", "path": path, "displayPath": path, "content": {"path": path, "type": "Project", "content": words.prose(random, 700)}}
        elif kind == 3:
            attachment = {"type": "skill_listing", "content": words.prose(random, 14_000), "skillCount": 40, "isInitial": True}
        else:
            attachment = {"type": "edited_text_file", "filename": path, "snippet": "\n".join(self.files.lines(path)[:60])}
        self._put(self._envelope("attachment") | {"attachment": attachment})

    def _compact(self) -> None:
        self.compacted = self.bytes
        last, self.parent = self.parent, None
        metadata = {"trigger": "auto", "preTokens": self.random.randrange(120_000, 190_000)}
        self._put(
            self._envelope("system") | {
                "subtype": "compact_boundary", "content": "Conversation compacted", "isMeta": False, "level": "info",
                "logicalParentUuid": last, "compactMetadata": metadata,
            }
        )  # fmt: skip
        self._user(SUMMARY + self.words.prose(self.random, 13_000), isCompactSummary=True, isVisibleInTranscriptOnly=True)


# The tools: what the call says, what the model is shown, and the same in structured form

Made = tuple[Json, Any, Any]


def _bash(s: Session) -> Made:
    text = s.words.log(s.random, s._size(420, 1.3))
    given = {"command": f"cd {s.cwd} && {' '.join(s.words.words(s.random, s._size(9, 0.8, 400)))}", "description": s.words.prose(s.random, 40)}
    return given, text, {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}


def _read(s: Session) -> Made:
    path = s.random.choice(s.words.paths)
    lines = s.files.lines(path)
    first = s.random.randrange(max(1, len(lines) - 40)) if s.random.random() < 0.5 else 0
    part = lines[first : first + min(s._size(70, 0.9), 2_000)]
    numbered = "\n".join(f"{number:>6}→{line}" for number, line in enumerate(part, first + 1))
    where = f"{s.cwd}/{path}"
    file = {"filePath": where, "content": "\n".join(part), "numLines": len(part), "startLine": first + 1, "totalLines": len(lines)}
    return {"file_path": where, "offset": first, "limit": len(part)}, numbered, {"type": "text", "file": file}


def _edit(s: Session) -> Made:
    random = s.random
    path = random.choice(s.words.paths)
    lines = s.files.lines(path)
    before = "\n".join(lines)
    count = min(len(lines), s._size(6, 0.9, 60))
    at = random.randrange(len(lines) - count + 1)
    old = lines[at : at + count]
    new = s.words.code(random, 40 * count)[: count + random.randrange(-1, 3)] or [""]
    lines[at : at + count] = new
    where = f"{s.cwd}/{path}"
    shown = f"The file {where} has been updated. Here's the result of running `cat -n` on a snippet:\n" + "\n".join(
        f"{number:>6}→{line}" for number, line in enumerate(lines[max(0, at - 4) : at + len(new) + 4], max(1, at - 3))
    )
    patch = [{"oldStart": at, "oldLines": count, "newStart": at, "newLines": len(new), "lines": [f"-{x}" for x in old] + [f"+{x}" for x in new]}]
    result = {
        "filePath": where, "oldString": "\n".join(old), "newString": "\n".join(new),
        "originalFile": before if random.random() < s.era.original_file else "", "structuredPatch": patch, "userModified": False, "replaceAll": False,
    }  # fmt: skip
    return {"file_path": where, "old_string": "\n".join(old), "new_string": "\n".join(new), "replace_all": False}, shown, result


def _write(s: Session) -> Made:
    path = s.random.choice(s.words.paths)
    lines = s.words.code(s.random, s._size(2_600, 0.9, 40_000))
    s.files._texts[path] = lines
    where, text = f"{s.cwd}/{path}", "\n".join(lines)
    result = {"type": "create", "filePath": where, "content": text, "structuredPatch": [], "originalFile": None}
    return {"file_path": where, "content": text}, f"File created successfully at: {where}", result


def _grep(s: Session) -> Made:
    found = s.words.log(s.random, s._size(350, 1.1, 12_000))
    result = {"mode": "content", "numFiles": 0, "filenames": [], "content": found, "numLines": found.count("\n") + 1}
    return {"pattern": s.words.some_names(s.random, 1)[0], "path": s.cwd, "output_mode": "content", "-n": True}, found, result


def _glob(s: Session) -> Made:
    found = [f"{s.cwd}/{path}" for path in s.random.sample(s.words.paths, s.random.randrange(1, 40))]
    return {"pattern": "**/*.py"}, "\n".join(found), {"filenames": found, "durationMs": 12, "numFiles": len(found), "truncated": False}


def _todo(s: Session) -> Made:
    todos = [{"content": s.words.prose(s.random, 50), "status": "pending", "activeForm": s.words.prose(s.random, 50)} for _ in range(s.random.randrange(2, 8))]
    shown = "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress."
    return {"todos": todos}, shown, {"oldTodos": todos, "newTodos": todos}


def _fetch(s: Session) -> Made:
    text, url = s.words.prose(s.random, s._size(1_800, 0.6, 9_000)), f"https://docs.example.org/{s.words.name}"
    result = {"bytes": 40_000, "code": 200, "codeText": "OK", "result": text, "durationMs": 2_000, "url": url}
    return {"url": url, "prompt": s.words.prose(s.random, 90)}, text, result


def _other(s: Session) -> Made:
    if s.random.random() < 0.12:
        block = s._image()
        return {"full_page": False}, [block], [block]
    blocks = [{"type": "text", "text": s.words.log(s.random, s._size(600, 1.0, 9_000))}]
    return {"ref": s.words.some_names(s.random, 1)[0]}, blocks, blocks


TOOL_MAKERS: dict[str, Callable[[Session], Made]] = {
    "Bash": _bash, "Read": _read, "Edit": _edit, "Write": _write, "Grep": _grep, "Glob": _glob, "TodoWrite": _todo, "WebFetch": _fetch,
}  # fmt: skip


# The whole folder


@dataclass(frozen=True, slots=True)
class Plan:
    """One session to write."""

    projects: str
    seed: int
    number: int
    project: int
    era: int
    bytes: int


def plan(projects: str, mb: float, sessions: int, seed: int, big: float, folders: int) -> list[Plan]:
    """Which sessions there are, and how large: log-normal as real ones, or one that holds the share `big` of all."""
    random = Random(f"plan {seed}")
    weights = [exp(random.gauss(0, 1.5)) for _ in range(sessions)]
    if big:
        rest = sum(weights[1:]) or 1.0
        weights = [big / (1 - big) * rest, *weights[1:]]
    total = sum(weights)
    eras = random.choices(range(len(ERAS)), [era.share for era in ERAS], k=sessions)
    if big:
        eras[0] = 3  # the versions that most of the bytes come from
    return [
        Plan(projects, seed, number, random.randrange(folders), eras[number], int(mb * 1_000_000 * weight / total))
        for number, weight in enumerate(weights)
    ]


def write_session(order: Plan) -> int:
    """Writes one session; its bytes. Depends on nothing but the order, so that sessions can be written side by side."""
    words = Words(order.seed, order.project, lexicon(order.seed))
    cwd = f"/home/dev/src/{words.name}"
    folder = os.path.join(order.projects, "".join(c if c.isascii() and c.isalnum() else "-" for c in cwd))
    os.makedirs(folder, exist_ok=True)
    era = ERAS[order.era]
    session = Session(folder, era, words, Random(f"session {order.seed} {order.number}"), cwd)
    if not era.titles or order.number % 4:
        return session.write(order.bytes)
    return session.write(order.bytes // 2) + session.fork(order.bytes // 2)


def make(out: str, mb: float, sessions: int, seed: int = 1, big: float = 0.0, folders: int = 0) -> int:
    """Writes OUT/projects; the bytes of all sessions. OUT appears only when it is complete."""
    temp = f"{out}.tmp-{os.getpid()}"
    projects = os.path.join(temp, "projects")
    os.makedirs(projects)
    try:
        orders = plan(projects, mb, sessions, seed, big, folders or max(2, sessions // 12))
        orders.sort(key=lambda order: -order.bytes)
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            total = sum(pool.map(write_session, orders))
        os.rename(temp, out)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a folder of invented transcripts.")
    parser.add_argument("out")
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--big", type=float, default=0.0, help="share of the bytes that one session holds")
    given = parser.parse_args()
    began = time.monotonic()
    total = make(given.out, given.mb, given.sessions, given.seed, given.big)
    print(f"{total / 1e6:.0f} MB in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
