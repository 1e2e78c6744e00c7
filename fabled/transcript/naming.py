"""Turns the first words of a thread into a title a person would give: a slash command, a task's outcome, a prompt.

Which record names a thread is decided where threads are stored.
"""

from __future__ import annotations

import re

_COMMAND = re.compile(r"<command-name>\s*([^<]*?)\s*</command-name>")
_MESSAGE = re.compile(r"<command-message>\s*([^<]*?)\s*</command-message>")
_ARGUMENTS = re.compile(r"<command-args>\s*([^<]*)")
_TASK = re.compile(r"<summary>\s*([^<]*)")
_BEFORE = re.compile(r"\A\s*(?:<(ide_opened_file|ide_selection|system-reminder)>.*?</\1>\s*)+", re.DOTALL)
_TAGGED = re.compile(r"\A\s*<(bash-input|local-command-stdout)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)


def plain(text: str) -> str:
    """`text` without the client's tags around what was said; as it is where there are none."""
    if "<" not in text:
        return text
    text = _BEFORE.sub("", text) or text
    if text.startswith(("<command-name>", "<command-message>")):
        name = _COMMAND.search(text)
        said = name[1] if name else (found[1] if (found := _MESSAGE.search(text)) else "")
        if said:
            arguments = _ARGUMENTS.search(text)
            return f"/{said.lstrip('/')} {arguments[1].strip() if arguments else ''}".rstrip()
    if text.startswith("<task-notification>") and (outcome := _TASK.search(text)) and outcome[1].strip():
        return f"task: {outcome[1].strip()}"
    if tagged := _TAGGED.match(text):
        return f"! {tagged[2]}" if tagged[1] == "bash-input" else tagged[2]
    return text
