"""The tools of invented sessions: what a call says, what the model is shown, and the same in structured form.

Records are made of it by `session`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from math import exp
from random import Random
from typing import Any

from benchmarks.words import Words

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a tool."""

    name: str
    given: Json
    shown: Any
    """what the model gets to see"""
    result: Any
    """the same for programs: `toolUseResult`"""


def size(random: Random, median: float, sigma: float, most: float = 30_000) -> int:
    """A length: most are small, few are large."""
    return int(min(most, median * exp(random.gauss(0, sigma))))


def image(random: Random) -> Json:
    data = base64.b64encode(random.randbytes(size(random, 70_000, 0.6, 900_000))).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


class Toolbox:
    """The tools, and the source files of the project as they leave them: read again and again, changed a little."""

    def __init__(self, random: Random, words: Words, cwd: str, original_file: float) -> None:
        self._random, self._words, self._cwd = random, words, cwd
        self._original_file = original_file
        self._texts: dict[str, list[str]] = {}
        self._made = {
            "Bash": (36, self._bash),
            "Read": (19, self._read),
            "Edit": (17, self._edit),
            "Grep": (9, self._grep),
            "Write": (5, self._write),
            "Glob": (4, self._glob),
            "TodoWrite": (5, self._todo),
            "WebFetch": (1, self._fetch),
            "mcp__browser__snapshot": (3, self._snapshot),
        }
        self._names = list(self._made)
        self._weights = [weight for weight, _ in self._made.values()]

    def use(self) -> Use:
        """Any tool, as often as each is used."""
        name = self._random.choices(self._names, self._weights)[0]
        return Use(name, *self._made[name][1]())

    def lines(self, path: str) -> list[str]:
        """A source file as it is now."""
        found = self._texts.get(path)
        if found is None:
            found = self._texts[path] = self._words.code(self._random, size(self._random, 9_000, 1.0, 70_000))
        return found

    def _some(self, median: float, sigma: float, most: float = 30_000) -> int:
        return size(self._random, median, sigma, most)

    def _prose(self, chars: int) -> str:
        return self._words.prose(self._random, chars)

    def _bash(self) -> tuple[Json, Any, Any]:
        printed = self._words.log(self._random, self._some(420, 1.3))
        command = " ".join(self._words.words(self._random, self._some(9, 0.8, 400)))
        given = {"command": f"cd {self._cwd} && {command}", "description": self._prose(40)}
        return given, printed, {"stdout": printed, "stderr": "", "interrupted": False, "isImage": False}

    def _read(self) -> tuple[Json, Any, Any]:
        path = self._random.choice(self._words.paths)
        lines = self.lines(path)
        first = self._random.randrange(max(1, len(lines) - 40)) if self._random.random() < 0.5 else 0
        part = lines[first : first + self._some(70, 0.9, 2_000)]
        where = f"{self._cwd}/{path}"
        file = {
            "filePath": where,
            "content": "\n".join(part),
            "numLines": len(part),
            "startLine": first + 1,
            "totalLines": len(lines),
        }
        given = {"file_path": where, "offset": first, "limit": len(part)}
        return given, _numbered(part, first + 1), {"type": "text", "file": file}

    def _edit(self) -> tuple[Json, Any, Any]:
        random = self._random
        path = random.choice(self._words.paths)
        lines = self.lines(path)
        before = "\n".join(lines)
        count = min(len(lines), self._some(6, 0.9, 60))
        at = random.randrange(len(lines) - count + 1)
        old = lines[at : at + count]
        new = self._words.code(random, 40 * count)[: count + random.randrange(-1, 3)] or [""]
        lines[at : at + count] = new
        where = f"{self._cwd}/{path}"
        around = _numbered(lines[max(0, at - 4) : at + len(new) + 4], max(1, at - 3))
        said = f"The file {where} has been updated. Here's the result of running `cat -n` on a snippet:"
        strings = {"oldString": "\n".join(old), "newString": "\n".join(new)}
        result = {
            "filePath": where,
            **strings,
            "originalFile": before if random.random() < self._original_file else "",
            "structuredPatch": [
                {
                    "oldStart": at,
                    "oldLines": count,
                    "newStart": at,
                    "newLines": len(new),
                    "lines": [f"-{line}" for line in old] + [f"+{line}" for line in new],
                }
            ],
            "userModified": False,
            "replaceAll": False,
        }
        given = {"file_path": where, "old_string": strings["oldString"], "new_string": strings["newString"]}
        return given, f"{said}\n{around}", result

    def _write(self) -> tuple[Json, Any, Any]:
        path = self._random.choice(self._words.paths)
        lines = self._texts[path] = self._words.code(self._random, self._some(2_600, 0.9, 40_000))
        where, text = f"{self._cwd}/{path}", "\n".join(lines)
        patch: list[Json] = []
        result = {"type": "create", "filePath": where, "content": text, "structuredPatch": patch, "originalFile": None}
        return {"file_path": where, "content": text}, f"File created successfully at: {where}", result

    def _grep(self) -> tuple[Json, Any, Any]:
        found = self._words.log(self._random, self._some(350, 1.1, 12_000))
        result: Json = {
            "mode": "content",
            "numFiles": 0,
            "filenames": [],
            "content": found,
            "numLines": found.count("\n") + 1,
        }
        pattern = self._words.some_names(self._random, 1)[0]
        return {"pattern": pattern, "path": self._cwd, "output_mode": "content", "-n": True}, found, result

    def _glob(self) -> tuple[Json, Any, Any]:
        paths = self._random.sample(self._words.paths, self._random.randrange(1, 40))
        found = [f"{self._cwd}/{path}" for path in paths]
        result: Json = {"filenames": found, "durationMs": 12, "numFiles": len(found), "truncated": False}
        return {"pattern": "**/*.py"}, "\n".join(found), result

    def _todo(self) -> tuple[Json, Any, Any]:
        todos = [
            {"content": self._prose(50), "status": "pending", "activeForm": self._prose(50)}
            for _ in range(self._random.randrange(2, 8))
        ]
        said = "Todos have been modified successfully. Ensure that you continue to use the todo list."
        return {"todos": todos}, said, {"oldTodos": todos, "newTodos": todos}

    def _fetch(self) -> tuple[Json, Any, Any]:
        text, url = self._prose(self._some(1_800, 0.6, 9_000)), f"https://docs.example.org/{self._words.name}"
        result = {"bytes": 40_000, "code": 200, "codeText": "OK", "result": text, "durationMs": 2_000, "url": url}
        return {"url": url, "prompt": self._prose(90)}, text, result

    def _snapshot(self) -> tuple[Json, Any, Any]:
        if self._random.random() < 0.12:
            block = image(self._random)
            return {"full_page": False}, [block], [block]
        blocks = [{"type": "text", "text": self._words.log(self._random, self._some(600, 1.0, 9_000))}]
        return {"ref": self._words.some_names(self._random, 1)[0]}, blocks, blocks


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, first))
