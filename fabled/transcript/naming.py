"""Turns the first words of a thread into what a person would call it: a slash command, a task's outcome, a prompt.

Which record names a thread is decided where threads are stored.
"""

from __future__ import annotations

import re

_COMMAND = re.compile(r"<command-name>\s*([^<]*?)\s*</command-name>")
_MESSAGE = re.compile(r"<command-message>\s*([^<]*?)\s*</command-message>")
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*(?:</command-args>|\Z)", re.DOTALL)
_TASK = re.compile(r"<summary>\s*([^<]+)")
_TASK_ID = re.compile(r"<task-id>\s*([^<]{1,80})")
_BEFORE = re.compile(
    r"\A\s*(?:<(ide_opened_file|ide_selection|system-reminder|local-command-caveat|user-prompt-submit-hook)>.*?</\1>\s*)+",
    re.DOTALL,
)
_TAGGED = re.compile(r"\A\s*<(bash-input|bash-std[a-z]+|local-command-std[a-z]+)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)
_PLAN = re.compile(r"\A\s*(?:implement|execute|carry out) the following plan\b[^\S\n]*:?", re.IGNORECASE)
_HEADING = re.compile(r"(?:\A|\s)#{1,4}\s+(?:plan\s*[:–-]\s*)?(\S[^\n]{2,160}?)(?=\s+#{1,4}\s|\n|\Z)", re.IGNORECASE)
_CONTINUED = re.compile(r"\A\W{0,8}this session is being continued from a previous conversation", re.IGNORECASE)
# Of whatever else the client puts around a text, the tags go and the words stay. One alone is talk about the tag.
_PAIR = re.compile(
    r"<(command-(?:name|message|args|contents)|local-command-[a-z]+|bash-(?:input|std[a-z]+)|system-reminder|"
    r"ide_opened_file|ide_selection|task-notification|user-prompt-submit-hook)>(.*?)(?:</\1>)",
    re.DOTALL,
)
_LONGEST_READ = 20_000


def plain(text: str) -> str:
    """`text` without the client's tags around what was said; as it is where there are none."""
    text = text[:_LONGEST_READ]
    if "<" in text:
        text = _untagged(text)
    if (plan := _PLAN.match(text)) and (heading := _HEADING.search(text, plan.end())):
        return heading[1].strip()
    return text


def _untagged(text: str) -> str:
    text = _BEFORE.sub("", text) or text
    bare = text.lstrip()
    if bare.startswith(("<command-name>", "<command-message>")):
        name = _COMMAND.search(text)
        said = name[1] if name else (found[1] if (found := _MESSAGE.search(text)) else "")
        if said:
            arguments = _ARGUMENTS.search(text)
            return f"/{said.lstrip('/')} {arguments[1] if arguments else ''}".rstrip()
    if bare.startswith("<task-notification>"):
        outcome, task = _TASK.search(text), _TASK_ID.search(text)
        if outcome or task:
            return f"task: {outcome[1].strip()}" if outcome else f"task {task[1].strip() if task else ''}"
    if tagged := _TAGGED.match(text):
        return f"! {tagged[2]}" if tagged[1] == "bash-input" else tagged[2]
    return _PAIR.sub(r"\2", text)


def continued(text: str) -> bool:
    """Whether a text is the client's own beginning after a compaction, which says nothing of what it is about."""
    return _CONTINUED.match(text) is not None
