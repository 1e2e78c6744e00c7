"""The messages on the socket: JSON-RPC 2.0, one line each, and the one table of methods that all sides go by.

Carrying bytes is left to the server, answering to `desk`, wording to `present`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from fabled.errors import BadRequest, FabledError

PROTOCOL = 1
LINE_BYTES = 1 << 20

Kind = Literal["string", "integer", "number", "boolean", "strings"]
Lane = Literal["quick", "read", "stream"]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a method."""

    name: str
    kind: Kind
    about: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Method:
    """One thing to ask for.

    `quick` is answered beside whatever else goes on, `read` by a bounded number of readers, `stream` by messages
    until either side ends it.
    """

    name: str
    about: str
    params: tuple[Param, ...] = ()
    lane: Lane = "read"


@dataclass(frozen=True, slots=True)
class As:
    """How an answer is to be printed. `form`: text, json, or a shorter form that the method knows."""

    form: str
    color: bool = False
    width: int = 80
    folds: bool = False
    utf8: bool = True
    utc: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Without an id it is a notification: done, but not answered."""

    method: Method
    params: Mapping[str, Any] = field(default_factory=dict)
    id: str | int | None = None
    as_: As | None = None


class Malformed(BadRequest):
    """A line that is no request; `number` is JSON-RPC's code, `id` what could be made out of the request's."""

    def __init__(self, number: int, message: str, hint: str = "", id: str | int | None = None) -> None:
        super().__init__(message, hint)
        self.number = number
        self.id = id


# ── methods ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _filters() -> tuple[Param, ...]:
    return (
        Param("project", "string", "only sessions of this project: folder name or path"),
        Param("since", "string", "not before: ISO date or time, or an age such as 90m, 3h, 2d, 6w"),
        Param("until", "string", "not after: as `since`"),
        Param("limit", "integer", "at most so many"),
        Param("offset", "integer", "skip so many"),
    )


def _card_key(turns: bool = True) -> tuple[Param, ...]:
    return (
        Param("session_id", "string", "whole id of the thread's session", required=True),
        Param("prompt_id", "string", "whole id of its prompt", required=True),
        *([Param("turns", "integer", "how many turns it had then", required=True)] if turns else []),
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "hello",
            "Who is there: protocol and version of the daemon, its pid, and the methods it has.",
            (
                Param("protocol", "integer", "the newest protocol the client speaks"),
                Param("version", "string", "the client's version, for the log"),
            ),
            lane="quick",
        ),
        Method("ping", "Nothing; the answer shows that the daemon lives.", lane="quick"),
        Method("status", "Health, counts, watcher, jobs and warnings.", lane="quick"),
        Method(
            "search",
            "Threads that answer a query, best first.",
            (
                Param("query", "string", "words, phrases and filters of the query language", required=True),
                *_filters(),
                Param("all", "boolean", "every project, not only the one `cwd` lies in"),
                Param("cwd", "string", "the caller's working folder: where its project is known, the scope"),
                Param("session", "string", "only this session"),
                Param("role", "string", "only records of this role"),
                Param("tool", "string", "only records of this tool"),
                Param("file", "string", "only records that name a file this pattern matches"),
                Param("kind", "string", "prompt, reply, thinking, tool, queued or summary"),
                Param("term", "string", "only threads with this term"),
                Param("sort", "string", "rank or time"),
                Param("exact", "boolean", "the literal spelling only"),
                Param("regex", "boolean", "the query is a regular expression; the latest threads come first"),
                Param("after", "integer", "with `regex`: go on behind so many threads, as `searched` said"),
                Param("seconds", "integer", "with `regex`: how long to look, 5 if absent"),
                Param("explain", "boolean", "with each result, which part gave which score"),
                Param("include_subagents", "boolean", "show subagents apart instead of within their thread"),
                Param("no_subagents", "boolean", "leave subagents out"),
                Param("subagents", "boolean", "true is include_subagents, false is no_subagents"),
            ),
        ),
        Method(
            "thread",
            "The turns of one thread within a budget.",
            (
                Param("id", "string", "as search prints it, or a prefix of it", required=True),
                Param("budget", "integer", "tokens; 0 is all"),
                Param("branches", "boolean", "abandoned branches too"),
                Param("subagents", "boolean", "the turns of subagents too"),
                Param("around", "string", "uuid of the record to be sure to show"),
                Param("raw", "boolean", "verbatim, without masking credentials"),
            ),
        ),
        Method(
            "block",
            "One record and where its copies lie, or exactly its bytes.",
            (
                Param(
                    "id",
                    "string",
                    "uuid or content id, `@SESSION` behind it if need be; `#PATH`: one value of it",
                    required=True,
                ),
                Param("raw", "boolean", "its bytes, behind a line that says how many"),
                Param("info", "boolean", "where its copies lie, which is told anyway"),
            ),
        ),
        Method("sessions", "The sessions, latest first.", _filters()),
        Method("projects", "The projects, latest first.", _filters()),
        Method(
            "terms",
            "Discovery terms, those of most threads first; with `thread` its own, the most telling first.",
            (
                Param("prefix", "string", "only terms that begin so, in any case"),
                Param("kind", "string", "operative, target, concept or wikilink"),
                Param("thread", "string", "id of a thread, or a prefix of it"),
                Param("project", "string", "only sessions of this project: folder name or path"),
                Param("limit", "integer", "at most so many"),
                Param("offset", "integer", "skip so many"),
            ),
        ),
        Method(
            "cards",
            "Threads with their cards, the latest first.",
            (
                Param("project", "string", "only sessions of this project: folder name or path"),
                Param("source", "string", "model or extracted: only such cards"),
                Param("limit", "integer", "at most so many"),
                Param("offset", "integer", "skip so many"),
            ),
        ),
        Method(
            "card",
            "The card of one thread.",
            (
                Param("id", "string", "as search prints it, or a prefix of it", required=True),
                Param("extracted", "boolean", "the one made by rule, also where a model made one"),
            ),
        ),
        Method(
            "cards_due",
            "Finished threads that a model may be asked to make a card of, and what this day has cost.",
            (
                Param("project", "string", "only sessions of this project: folder name or path"),
                Param("quiet_seconds", "integer", "a thread is finished when nothing was added to it for so long"),
                Param("min_turns", "integer", "only threads with so many turns"),
                Param("limit", "integer", "at most so many"),
            ),
        ),
        Method(
            "card_begin",
            "Count a request to a model before it is made, if the day's budget has room for it.",
            (
                *_card_key(),
                Param("tokens", "integer", "what it will cost, about", required=True),
                Param("requests_per_day", "integer", "the day's budget", required=True),
                Param("tokens_per_day", "integer", "the day's budget", required=True),
            ),
            lane="quick",
        ),
        Method(
            "card_put",
            "Store a model's card of a thread. It is checked and cut; one that is none is refused.",
            (
                *_card_key(),
                Param("title", "string", "what it was about", required=True),
                Param("type", "string", "decision, workflow, insight or concept", required=True),
                Param("topics", "strings", "terms"),
                Param("decisions", "strings", "sentences"),
                Param("files", "strings", "paths"),
                Param("outcome", "string", "how it ended"),
                Param("summary", "string", "two or three sentences", required=True),
                Param("provider", "string", "who made it", required=True),
                Param("model", "string", "with which model"),
                Param("last_ts", "integer", "its last record then, in milliseconds since 1970"),
                Param("tokens", "integer", "what it did cost"),
                Param("counted", "integer", "what was counted for it"),
            ),
            lane="quick",
        ),
        Method(
            "card_fail",
            "Note that a request gave no card.",
            (
                *_card_key(turns=False),
                Param("reason", "string", "why, in words", required=True),
                Param("counts", "boolean", "for a fault of the thread's: after three of them it is left alone"),
            ),
            lane="quick",
        ),
        Method(
            "recent",
            "Where was I: the last threads, how they ended, and what the last compaction put out of sight.",
            (
                *_filters(),
                Param("all", "boolean", "every project, not only the one `cwd` lies in"),
                Param("cwd", "string", "the caller's working folder: where its project is known, the scope"),
                Param("session", "string", "only this session, and its compaction"),
            ),
        ),
        Method(
            "overview",
            "Every project with its last activity, its counts and what its last sessions left open.",
            (
                Param("since", "string", "only projects at work since: ISO date or time, or an age such as 3h, 2d, 6w"),
                Param("limit", "integer", "at most so many"),
                Param("offset", "integer", "skip so many"),
            ),
        ),
        Method(
            "file",
            "Every change of a file that a tool call made, over all sessions, in order of time.",
            (
                Param("path", "string", "absolute, relative to `cwd`, or the end of one", required=True),
                Param("cwd", "string", "the caller's working folder"),
                Param("project", "string", "only sessions of this project: folder name or path"),
                Param("since", "string", "not before: ISO date or time, or an age such as 90m, 3h, 2d, 6w"),
                Param("until", "string", "not after: as `since`"),
                Param("limit", "integer", "at most so many, the last ones"),
                Param("diff", "boolean", "each change as the hunks of a diff"),
            ),
        ),
        Method(
            "spans",
            "Every byte of one transcript accounted for.",
            (
                Param("path", "string", "absolute path of the transcript", required=True),
                Param("all", "boolean", "separators too"),
            ),
        ),
        Method(
            "index",
            "Bring the Map up to date now; answered when that is done.",
            (Param("paths", "strings", "only these files and folders; absent: everything"),),
            lane="quick",
        ),
        Method(
            "capture",
            "Keep sessions' bytes in the Vault; answered when that is done.",
            (Param("sessions", "strings", "ids of sessions, or prefixes of them; absent: every session"),),
            lane="quick",
        ),
        Method(
            "generations",
            "What the Vault keeps: of a session, or of all.",
            (Param("session", "string", "only of this session"),),
        ),
        Method(
            "prune",
            "Make a session's live transcript smaller, or say what that would do.",
            (
                Param("session", "string", "id of the session, or a prefix of it", required=True),
                Param("level", "string", "gentle (what it is if absent), standard or aggressive"),
                Param("apply", "boolean", "do it; absent: only plan and prove it"),
            ),
            lane="quick",
        ),
        Method(
            "prune_check",
            "Prove the last prune of a session once more, from Vault and live transcript.",
            (Param("session", "string", "id of the session, or a prefix of it", required=True),),
            lane="quick",
        ),
        Method(
            "restore",
            "Put a kept state of a session back, or say what that would do.",
            (
                Param("session", "string", "id of the session, or a prefix, `@vN` behind it: that state", True),
                Param("full", "boolean", "the longest copy of every record there ever was"),
                Param("to", "string", "absolute path of a new file to write instead"),
                Param("apply", "boolean", "do it; absent: only say what it would do"),
            ),
            lane="quick",
        ),
        Method(
            "undo",
            "Take the last prune of a session back, or say what that would do.",
            (
                Param("session", "string", "id of the session, or a prefix of it", required=True),
                Param("apply", "boolean", "do it; absent: only say what it would do"),
            ),
            lane="quick",
        ),
        Method(
            "forget",
            "Forget a session, or all of a project, and keep it out; or say what that would remove for good.",
            (
                Param("session", "string", "id of the session, or a prefix of it"),
                Param("project", "string", "folder name or path instead of a session"),
                Param("apply", "boolean", "do it; absent: only say what it would remove"),
                Param("let_in", "string", "instead: a name that is to come in again"),
            ),
            lane="quick",
        ),
        Method("forgotten", "What was forgotten, and stays out since."),
        Method(
            "diff",
            "What a session lost between two of its states, thread by thread.",
            (
                Param(
                    "session",
                    "string",
                    "id of the session, or a prefix; `@vA..vB` behind it: these states",
                    required=True,
                ),
                Param("limit", "integer", "at most so many blocks of a thread, the largest first; 0 is all"),
            ),
        ),
        Method(
            "export",
            "Where every record of one thread lies, in order: what a byte-exact copy of it is made of.",
            (Param("id", "string", "as search prints it, or a prefix of it", required=True),),
        ),
        Method(
            "threads_like",
            "The latest threads whose ids begin so: for completion.",
            (Param("prefix", "string", "the beginning of an id"), Param("limit", "integer", "at most so many")),
        ),
        Method(
            "stats",
            "Sums over one's own history, by project or by day.",
            (
                Param("by", "string", "project (what it is if absent) or day"),
                *(param for param in _filters() if param.name != "offset"),
            ),
        ),
        Method(
            "report",
            "All that a page of pictures about one's own history shows.",
            tuple(param for param in _filters() if param.name in ("project", "since", "until")),
        ),
        Method(
            "subscribe",
            "What happens from now on: `event` messages, until the connection ends.",
            (Param("events", "strings", "only these: change, index, watcher, storage; absent: all"),),
            lane="stream",
        ),
        Method(
            "recall",
            "What a model is to be given of earlier sessions, framed as a quoted record.",
            (
                Param("what", "string", "session-start, prompt, search, thread, block, recent or file", required=True),
                Param("query", "string", "of search: the words; of prompt: the prompt"),
                Param("id", "string", "of thread and block: which"),
                Param("path", "string", "of file: which"),
                Param("cwd", "string", "the working folder: its project is the scope"),
                Param("session", "string", "the session that is told; of search: only this one"),
                Param("source", "string", "of session-start: startup, resume, clear or compact"),
                Param("project", "string", "only this project: folder name or path"),
                Param("all", "boolean", "every project"),
                Param("since", "string", "not before: ISO date or time, or an age such as 90m, 3h, 2d, 6w"),
                Param("until", "string", "not after: as `since`"),
                Param("role", "string", "only records of this role"),
                Param("tool", "string", "only records of this tool"),
                Param("file", "string", "only records that name a file this pattern matches"),
                Param("sort", "string", "rank or time"),
                Param("limit", "integer", "at most so many"),
                Param("offset", "integer", "skip so many"),
                Param("budget", "integer", "tokens"),
                Param("around", "string", "of thread: uuid of the record to be sure to show"),
                Param("branches", "boolean", "of thread: abandoned branches too"),
                Param("subagents", "boolean", "of thread: the turns of subagents too"),
                Param("page", "integer", "of block: which page of a long record, from 1"),
                Param("automatic", "boolean", "of thread: without tool output, as hooks have it"),
            ),
        ),
        Method(
            "hook",
            "What an event of Claude Code's hooks is to be answered with: text to print, or none.",
            (
                Param("event", "string", "session-start or user-prompt-submit", required=True),
                Param("input", "string", "the JSON that the client gave the hook"),
            ),
        ),
        Method(
            "nudge",
            "Look at a session now; before a compaction, also take a generation of it.",
            (
                Param("event", "string", "pre-compact, session-end or stop", required=True),
                Param("input", "string", "the JSON that the client gave the hook"),
                Param("session", "string", "the session, where there is no such JSON"),
                Param("path", "string", "its transcript, likewise"),
            ),
            lane="quick",
        ),
        Method(
            "statusline",
            "One short line for Claude Code's status line.",
            (Param("input", "string", "the JSON that the client gave the command"),),
            lane="quick",
        ),
        Method("reload", "Read the configuration file again; a faulty one changes nothing.", lane="quick"),
    )
}

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "strings": (list,),
}
_FORMS = ("text", "json", "plain", "oneline", "raw")


# ── in ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse(line: bytes, version: str) -> Request:
    """The request a line holds; raises Malformed. `version` is the daemon's, for the words of a mismatch."""
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise Malformed(-32700, f"the line is not JSON: {fault}", "send one JSON-RPC 2.0 object a line") from None
    if not isinstance(message, dict):
        raise Malformed(-32600, "a request is one JSON object", "send requests one by one, not as an array")
    id = message.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        raise Malformed(-32600, "id must be a string or an integer")
    name, params = message.get("method"), message.get("params", {})
    if message.get("jsonrpc") != "2.0" or not isinstance(name, str):
        raise Malformed(-32600, 'a request has "jsonrpc":"2.0" and a "method"', id=id)
    method = METHODS.get(name)
    if method is None:
        raise Malformed(
            -32601,
            f"this daemon ({version}, protocol {PROTOCOL}) knows no method {name[:80]!r}",
            "if the client is newer, restart the daemon; `hello` lists the methods",
            id,
        )
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Malformed(-32602, f"the parameters of {name} are named: send an object", id=id)
    try:
        wishes = _wishes(params.pop("as", None))
        return Request(method, _checked(method, params, version), id, wishes)
    except BadRequest as fault:
        raise Malformed(-32602, fault.message, fault.hint, id) from None


def _checked(method: Method, params: Mapping[str, Any], version: str) -> dict[str, Any]:
    known = {param.name: param for param in method.params}
    checked = {}
    for name, value in params.items():
        param = known.get(name)
        if param is None:
            raise BadRequest(
                f"this daemon ({version}, protocol {PROTOCOL}) knows no parameter {name[:80]!r} of {method.name}",
                "if the client is newer, restart the daemon",
            )
        if value is None:
            continue  # as good as absent
        right = isinstance(value, _KINDS[param.kind]) and (param.kind == "boolean" or not isinstance(value, bool))
        if not right or (param.kind == "strings" and not all(isinstance(item, str) for item in value)):
            raise BadRequest(f"{method.name}: {name} must be {_a(param.kind)}")
        checked[name] = value
    for param in method.params:
        if param.required and param.name not in checked:
            raise BadRequest(f"{method.name}: {param.name} is missing")
    return checked


def _a(kind: str) -> str:
    return {"strings": "a list of strings", "integer": "an integer"}.get(kind, f"a {kind}")


def _wishes(given: object) -> As | None:
    if given is None:
        return None
    if not isinstance(given, dict) or given.get("form") not in _FORMS:
        raise BadRequest(f'"as" must be an object whose form is one of {", ".join(_FORMS)}')
    width = given.get("width", 80)
    if isinstance(width, bool) or not isinstance(width, int):
        raise BadRequest('"as": width must be an integer')
    return As(
        form=given["form"],
        color=given.get("color") is True,
        width=max(20, min(width, 1000)),
        folds=given.get("folds") is True,
        utf8=given.get("utf8") is not False,
        utc=given.get("utc") is True,
    )


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def result(id: str | int | None, value: object) -> bytes:
    """The answer to a request, as a line."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (dumps(id), dumps(value))


def printed(id: str | int | None, exit: int, body: bytes) -> bytes:
    """An answer that the client only has to print: the length in the line, then the bytes."""
    return b'{"jsonrpc":"2.0","id":%b,"result":{"exit":%d,"bytes":%d}}\n%b' % (dumps(id), exit, len(body), body)


def error(id: str | int | None, fault: FabledError) -> bytes:
    """The refusal of a request, as a line."""
    # JSON-RPC keeps -32000 to -32099 for the answering side; the name beside it is what clients go by.
    number = fault.number if isinstance(fault, Malformed) else -32000 - fault.exit
    data: dict[str, object] = {"code": fault.code, "hint": fault.hint, "exit": fault.exit}
    for more in ("candidates", "problems", "indexing"):
        if getattr(fault, more, None) is not None:
            data[more] = getattr(fault, more)
    value = {"code": number, "message": fault.message, "data": data}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (dumps(id), dumps(value))


def event(name: str, value: Mapping[str, object]) -> bytes:
    """A message to subscribers, as a line."""
    params = {"event": name, **value}
    return b'{"jsonrpc":"2.0","method":"event","params":%b}\n' % dumps(params)


def dumps(value: object) -> bytes:
    """JSON on one line. Names of files may hold bytes that are no UTF-8; orjson refuses their surrogates."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":"), default=list).encode()
