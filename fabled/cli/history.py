"""The invented history that `fabled demo` shows: three projects, written out as transcripts the client might write.

Indexing and showing it is left to the command.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

DAY = 86_400


def files(now: float) -> dict[str, bytes]:
    """Transcripts by their path below `projects/`; the newest is from some hours before `now`."""
    found: dict[str, bytes] = {}
    for session in (_tidebook(now), _mailroom(now), _lantern(now)):
        found |= session.files()
    return found


class _Session:
    """One transcript under way, in the words of a conversation."""

    def __init__(self, name: str, cwd: str, start: float, agent: str | None = None) -> None:
        self._name, self._cwd, self._agent = name, cwd, agent
        self._at = datetime.fromtimestamp(start, UTC)
        self._records: list[dict[str, Any]] = []
        self._others: dict[str, bytes] = {}
        self._parent: str | None = None
        self.id = self._uuid("session")
        self.prompt_id = ""
        self._message = ""

    def _uuid(self, what: str) -> str:
        return str(uuid5(NAMESPACE_URL, f"fabled-demo:{self._name}:{self._agent}:{what}"))

    def _add(self, type_: str, seconds: float = 4, **fields: Any) -> str:
        self._at += timedelta(seconds=seconds)
        uuid = self._uuid(str(len(self._records)))
        record = {
            "parentUuid": self._parent,
            "isSidechain": self._agent is not None,
            **({"agentId": self._agent} if self._agent else {}),
            "type": type_,
            **fields,
            "uuid": uuid,
            "timestamp": self._at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self._at.microsecond // 1000:03d}Z",
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self._cwd,
            "sessionId": self.id,
            "version": "2.1.332",
            "gitBranch": "main",
        }
        self._records.append(record)
        self._parent = uuid
        return uuid

    def prompt(self, text: str, seconds: float = 90) -> None:
        self.prompt_id = self._uuid(f"prompt {len(self._records)}")
        self._message = self.prompt_id
        message = {"role": "user", "content": text}
        self._add("user", seconds, promptId=self.prompt_id, message=message)

    def _reply(self, block: dict[str, Any], stop: str, seconds: float = 4) -> str:
        message = {
            "id": "msg_" + self._uuid(self._message).replace("-", "")[:24],
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 2100, "output_tokens": 180},
        }
        return self._add("assistant", seconds, message=message, requestId="req_" + self._message[:8])

    def think(self, text: str) -> None:
        self._reply({"type": "thinking", "thinking": text, "signature": "ZGVtbw=="}, "tool_use")

    def say(self, text: str) -> None:
        self._reply({"type": "text", "text": text}, "end_turn", 9)
        self._message += "+"

    def call(self, tool: str, tool_input: dict[str, Any], output: str, structured: Any = None) -> str:
        """A tool call and its result; returns the call's id."""
        call = "toolu_" + self._uuid(f"call {len(self._records)}").replace("-", "")[:24]
        asked = self._reply({"type": "tool_use", "id": call, "name": tool, "input": tool_input}, "tool_use")
        self._message += "+"
        result = [{"type": "tool_result", "tool_use_id": call, "content": output}]
        self._add(
            "user",
            2,
            promptId=self.prompt_id,
            message={"role": "user", "content": result},
            toolUseResult=structured or {"stdout": output, "stderr": "", "interrupted": False},
            sourceToolAssistantUUID=asked,
        )
        return call

    def subagent(self, agent: str, kind: str, task: str, work: Any, answer: str) -> None:
        """A helper with a transcript of its own; `work` fills in what it did."""
        child = _Session(self._name, self._cwd, self._at.timestamp() + 5, agent)
        child.id, child.prompt_id, child._message = self.id, self.prompt_id, agent
        child._add("user", 1, promptId=self.prompt_id, message={"role": "user", "content": task})
        work(child)
        child.say(answer)
        asked = {"description": task.split(".")[0], "prompt": task, "subagent_type": kind}
        outcome = {
            "agentId": agent,
            "status": "completed",
            "prompt": task,
            "content": [{"type": "text", "text": answer}],
        }
        call = self.call("Agent", asked, answer, outcome)
        self._at = child._at
        meta = {"agentType": kind, "description": asked["description"], "toolUseId": call, "spawnDepth": 1}
        folder = f"{self._folder()}/{self.id}/subagents/agent-{agent}"
        self._others[f"{folder}.jsonl"] = child._bytes()
        self._others[f"{folder}.meta.json"] = json.dumps(meta).encode()

    def compact(self, summary: str) -> None:
        """What `/compact` leaves: a boundary without parent, and the summary below it."""
        before, self._parent = self._parent, None
        metadata = {"trigger": "manual", "preTokens": 151_200, "postTokens": 2_300}
        self._add(
            "system",
            30,
            subtype="compact_boundary",
            content="Conversation compacted",
            level="info",
            logicalParentUuid=before,
            compactMetadata=metadata,
        )
        self.prompt_id = self._uuid(f"prompt {len(self._records)}")
        text = (
            "This session is being continued from a previous conversation that ran out of context. "
            f"The summary below covers the earlier portion of the conversation.\n\nSummary:\n{summary}"
        )
        self._add(
            "user",
            1,
            promptId=self.prompt_id,
            message={"role": "user", "content": text},
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )

    def title(self, text: str) -> None:
        self._records.append({"type": "ai-title", "sessionId": self.id, "aiTitle": text})

    def _folder(self) -> str:
        return re.sub(r"[^a-zA-Z0-9]", "-", self._cwd)

    def _bytes(self) -> bytes:
        lines = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in self._records)
        return "".join(f"{line}\n" for line in lines).encode()

    def files(self) -> dict[str, bytes]:
        return {f"{self._folder()}/{self.id}.jsonl": self._bytes(), **self._others}


def _tidebook(now: float) -> _Session:
    s = _Session("tidebook", "/home/robin/src/tidebook", now - 19 * DAY)
    s.prompt("Bookings made after 23:00 show up on the wrong day in the harbour report. Why?")
    s.think("The report groups by date(created_at). If that column is UTC, evenings slip to the next day.")
    s.call(
        "Grep",
        {"pattern": "date\\(", "path": "tidebook/report.py"},
        "tidebook/report.py:41:    GROUP BY date(created_at)",
        {"mode": "content", "numLines": 1},
    )
    s.call(
        "Bash",
        {"command": "sqlite3 dev.db 'select created_at from bookings limit 2'"},
        "2026-02-12T22:58:09Z\n2026-02-13T00:22:51Z",
    )
    s.say(
        "`created_at` is stored in UTC and the report groups by its UTC date. 23:22 in Ponta Delgada is already the "
        "next day in UTC, and in Athens the first hours of a day slip the other way. The report must convert to the "
        "harbour's own time zone before it takes the date."
    )
    s.prompt("Should we store local time instead, so that the report stays simple?")
    s.say(
        "I would keep UTC. Two harbours in one report may lie in different zones, and local time repeats an hour "
        "when summer ends, so two tides could not be told apart. Decision: store UTC, keep the zone's name with the "
        "harbour, convert at the edge (report and e-mail only)."
    )
    s.prompt("Agreed. Do it and add a test for the repeated hour.")
    s.call(
        "Edit",
        {
            "file_path": "/home/robin/src/tidebook/tidebook/report.py",
            "old_string": "date(created_at)",
            "new_string": "local_date(created_at, harbour.zone)",
        },
        "The file has been updated.",
        {"filePath": "/home/robin/src/tidebook/tidebook/report.py"},
    )
    s.call("Bash", {"command": "pytest -q tests/test_report.py"}, "......                       [100%]\n6 passed")
    s.say(
        "Done. `local_date` is registered as a SQLite function, and the test books the same minute twice in the "
        "night the clocks go back: both land on the right day."
    )
    s.title("Harbour report: UTC and the wrong day")
    return s


def _mailroom(now: float) -> _Session:
    s = _Session("mailroom", "/home/robin/src/mailroom", now - 6 * DAY)
    s.prompt(
        "Webhook deliveries retry for ever when a customer's server is gone. Find out who relies on the retry "
        "queue before we change it."
    )

    def explore(agent: _Session) -> None:
        agent.call(
            "Grep",
            {"pattern": "retry_queue", "path": "."},
            "mailroom/deliver.py:88\nmailroom/admin/views.py:132\nscripts/drain.py:9",
        )
        agent.call(
            "Read",
            {"file_path": "/home/robin/src/mailroom/mailroom/deliver.py", "offset": 80, "limit": 20},
            "85  def later(job):\n86      # no limit: see incident of March\n87      job.attempt += 1\n"
            "88      retry_queue.put(job, delay=2 ** job.attempt)",
        )

    s.subagent(
        "a3f9c2e17b64d085a",
        "Explore",
        "List every place that reads or writes retry_queue. Say for each whether it needs the order.",
        explore,
        "Three places use retry_queue: deliver.later writes it without a limit, the admin page counts it, and "
        "scripts/drain.py empties it by hand. None of them needs the order.",
    )
    s.say(
        "Nobody needs the order, and the delay doubles without a ceiling: attempt 20 waits twelve days, and the job "
        "stays in memory all that time."
    )
    s.prompt("Then let us drop the retry queue. What do you suggest instead?")
    s.say(
        "A `dead_letters` table: after 8 attempts (about 4 minutes) the delivery is written there with its last "
        "error, and the customer sees it on the admin page with a button to send it again. Why not a longer backoff: "
        "the customers who come back do so within a minute, the others never, and a restart lost the queue anyway."
    )
    s.prompt("Good. Keep the March incident in mind: no deletes without a person.")
    migration = "/home/robin/src/mailroom/migrations/0031_dead_letters.sql"
    table = "CREATE TABLE dead_letters(id INTEGER PRIMARY KEY, delivery TEXT, error TEXT, at TEXT);"
    s.call(
        "Write", {"file_path": migration, "content": table}, "File created.", {"type": "create", "filePath": migration}
    )
    s.say("The migration only adds. Rows leave `dead_letters` when somebody presses the button, never by a job.")
    s.title("Dead letters instead of the retry queue")
    return s


def _lantern(now: float) -> _Session:
    s = _Session("lantern", "/home/robin/src/lantern", now - 0.2 * DAY)
    s.prompt("Building the gallery needs 3 GB of memory. Where does it go?")
    s.call(
        "Bash",
        {"command": "/usr/bin/time -v lantern build 2>&1 | grep Maximum"},
        "Maximum resident set size (kbytes): 3214880",
    )
    s.say("All originals are decoded at once: `Promise.all` over 412 photos. Each is about 8 MB decoded.")
    s.compact(
        "The user wants the gallery build of lantern to use less memory. Cause found: src/gallery.ts decodes all "
        "412 photos at once with Promise.all. Next: limit how many are decoded at a time."
    )
    s.prompt("Go on: limit it, but keep the build under a minute.", 20)
    s.call(
        "Edit",
        {
            "file_path": "/home/robin/src/lantern/src/gallery.ts",
            "old_string": "await Promise.all(",
            "new_string": "await inWindow(4, ",
        },
        "The file has been updated.",
        {"filePath": "/home/robin/src/lantern/src/gallery.ts"},
    )
    s.call("Bash", {"command": "time lantern build"}, "real 0m38.2s\npeak 190 MB")
    s.say("A window of 4 photos: 190 MB and 38 s. A window of 8 is only 2 s faster and takes 350 MB, so 4 it is.")
    s.title("Gallery build: 3 GB down to 190 MB")
    return s
