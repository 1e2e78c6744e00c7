"""What the events of Claude Code's hooks ask for, worked out from the JSON that the client gives a hook.

Choosing the text is left to `recall`, carrying it out to `desk`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fabled.config import Recall
from fabled.errors import BadRequest


def data_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object a hook was given, {} where there was none."""
    given = params.get("input") or "{}"
    try:
        data = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest("the hook's input is not JSON") from None
    if not isinstance(data, dict):
        raise BadRequest("the hook's input is not an object")
    return data


def recall_for(event: str, data: Mapping[str, Any], wanted: Recall) -> dict[str, Any] | None:
    """What to recall at an event; None where nothing is to be said."""
    about = {name: _text(data, key) for name, key in (("cwd", "cwd"), ("session", "session_id"))}
    if event == "session-start" and wanted.on_start:
        return {"what": "session-start", "source": _text(data, "source"), **about}
    # A subagent's prompt is no person's.
    if event == "user-prompt-submit" and wanted.on_prompt and not _text(data, "agent_id"):
        return {"what": "prompt", "query": _text(data, "prompt"), **about}
    return None


def transcript_of(params: Mapping[str, Any], data: Mapping[str, Any], roots: Sequence[str]) -> str | None:
    """The transcript to look at: one below a root, else None."""
    path = params.get("path") or _text(data, "transcript_path") or ""
    if not os.path.isabs(path) or not path.endswith(".jsonl"):
        return None
    path = os.path.normpath(path)
    for root in roots:
        if path.startswith(root.rstrip("/") + "/"):
            return path
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
        if not inside.startswith(".."):
            return os.path.join(root, inside)
    return None


def session_of(params: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    """The session an event belongs to."""
    return params.get("session") or _text(data, "session_id")


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) and value else None
