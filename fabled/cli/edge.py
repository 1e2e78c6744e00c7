"""Where faults become text and exit codes, and where answers leave the process.

What to answer, and in which words, is left to the commands and to `present`.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from fabled.client import connect, streams
from fabled.errors import Ambiguous, BadConfig, BadRequest, FabledError, NotFound, OutputFault
from fabled.present import Style, visible
from fabled.present.columns import cells
from fabled.present.terminal import finish

INTERRUPTED = 130


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run a command; every foreseeable fault is one line with its reason and the next step, never a traceback."""
    try:
        try:
            result = command.main(list(arguments), prog_name="fabled", standalone_mode=False)
        except (click.ClickException, FabledError) as fault:
            result = _tell(fault, arguments)
        except BrokenPipeError:
            raise
        except OSError as fault:
            known = _of_surroundings(fault)
            if known is None:
                raise
            result = _tell(known, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        beside("fabled: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        silence()  # the reader (`head`, a pager) has seen enough
        return 0


def _of_surroundings(fault: OSError) -> FabledError | None:
    """A fault that is nobody's but the shell's: its folder is gone, or what it gave us to print to takes nothing."""
    if isinstance(fault, FileNotFoundError) and streams.in_no_folder():
        return FabledError(streams.NO_FOLDER, streams.ANOTHER_FOLDER)
    if fault.filename is None and fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
        silence()
        return OutputFault(f"the output could not be written: {fault.strerror}", "free space, or print elsewhere")
    return None


def _tell(fault: click.ClickException | FabledError, arguments: Sequence[str]) -> int:
    if isinstance(fault, click.UsageError):
        fault = BadRequest(_worded(fault), _usage_hint(fault, arguments))
    elif isinstance(fault, click.ClickException):
        fault = FabledError(fault.format_message())
    error: dict[str, Any] = {"code": fault.code, "message": _flat(fault.message), "hint": fault.hint}
    if isinstance(fault, Ambiguous):
        error["candidates"] = list(fault.candidates)
    if isinstance(fault, BadConfig):
        error["problems"] = list(fault.problems)
    if isinstance(fault, NotFound) and fault.indexing is not None:
        error["indexing"] = dict(fault.indexing)
    if wants_json(arguments) and not isinstance(fault, OutputFault):
        put_json({"error": error})
    beside(*(line for line in _lines(fault) if line))
    return fault.exit


def _lines(fault: FabledError) -> list[str]:
    """One line; a configuration has a line for each of its problems."""
    hint = f"Next: {fault.hint}" if fault.hint else ""
    if isinstance(fault, BadConfig):
        many = "a problem" if len(fault.problems) == 1 else f"{len(fault.problems)} problems"
        return [f"fabled: the configuration has {many}:", *(f"  {_flat(one)}" for one in fault.problems), hint]
    message = _flat(fault.message)
    stop = "" if message.rstrip(")").endswith((".", "?", "!")) else "."
    said, style = f"fabled: {message}{stop}", _aside()
    if hint and style.folds and cells(f"{said} {_flat(hint)}") > style.width:
        return [said, f"  {_flat(hint)}"]
    return [f"{said} {_flat(hint)}".rstrip()]


def _flat(message: str) -> str:
    return " ".join(visible(message).split())


def _worded(fault: click.UsageError) -> str:
    """click's words, where they are no words of people's."""
    if isinstance(fault, click.NoSuchOption):
        near = difflib.get_close_matches(fault.option_name, fault.possibilities or (), 1)
        return f"No such option {fault.option_name}." + (f" Did you mean {near[0]}?" if near else "")
    said = fault.format_message()
    return _NUMBER.sub(lambda kind: f"is no {'whole ' if kind[1] == 'integer' else ''}number", said)


_NUMBER = re.compile(r"is not a valid (integer|float)(?: range)?")


def _usage_hint(fault: click.UsageError, arguments: Sequence[str]) -> str:
    asked = fault.ctx.command_path if fault.ctx else "fabled"
    if fault.ctx is None and isinstance(fault, click.BadOptionUsage) and arguments:
        asked = f"fabled {arguments[0]}"  # click does not say where an option lacks its value
    if isinstance(fault, click.NoSuchOption) and asked == "fabled search":
        return f"{asked} --help; a query that begins with a minus follows --"
    return f"{asked} --help"


def text_of(word: str) -> str:
    """An argument that is text. Raises BadRequest for one that is not UTF-8."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        said = word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise BadRequest(f"the argument {said} is not UTF-8; nothing was done", "write it in UTF-8") from None
    return word


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the caller is a program, known also where the arguments could not be made out."""
    before = list(arguments)[: list(arguments).index("--")] if "--" in arguments else arguments
    return "--json" in before or "--json-lines" in before


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def put(data: bytes) -> None:
    """All of `data` to stdout as it is. Raises OutputFault where it does not take it."""
    if sys.stdout is None:  # closed by whoever started this
        raise OutputFault("the output is closed; nothing was printed", "give it somewhere to print to")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        silence()
        reason = fault.strerror or fault
        raise OutputFault(f"the output could not be written: {reason}", "free space, or print elsewhere") from None


def show(data: bytes) -> None:
    """An answer for a person: through a pager where it is longer than the terminal, else as `put` has it."""
    pager = _pager() if _longer(data) else []
    if not pager:
        put(data)
        return
    env = {**os.environ, "LESS": os.environ.get("LESS", "FRX"), "LESSSECURE": "1"}
    try:
        with subprocess.Popen(pager, stdin=subprocess.PIPE, env=env) as process:
            with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
                process.communicate(data)
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
        if process.returncode == 127:  # no such program, said the shell
            put(data)
    except OSError:
        put(data)


def on_terminal() -> bool:
    """Whether an answer is read by a person as it comes."""
    return sys.stdout is not None and sys.stdout.isatty()


def _longer(data: bytes) -> bool:
    if not (on_terminal() and sys.stdin.isatty()):
        return False
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return False
    if size.lines < 2 or os.environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    return data.count(b"\n") >= size.lines


def _pager() -> list[str]:
    """What $FABLED_PAGER or $PAGER names; `cat` or nothing at all is none."""
    given = os.environ.get("FABLED_PAGER", os.environ.get("PAGER"))
    if given is None:
        found = shutil.which("less")
        return [found] if found else []
    try:
        words = shlex.split(given)
    except ValueError:
        return []
    return words if words and words != ["cat"] and shutil.which(words[0]) else []


def silence() -> None:
    """Stdout to nowhere: Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def put_text(text: str) -> None:
    """A text that is finished already, or for a program."""
    put(text.encode("utf-8", "backslashreplace"))


def say(*lines: str) -> None:
    """Lines for a person, to stdout."""
    put_text(finish(lines, style()))


def document(text: bytes) -> None:
    """What somebody wrote, to stdout: byte for byte, but to a terminal without what would steer it."""
    if on_terminal():
        put_text(visible(text.decode("utf-8", "backslashreplace")))
    else:
        put(text)


def steers(text: bytes) -> bool:
    """Whether there is in it what a terminal would not show but do."""
    said = text.decode("utf-8", "backslashreplace")
    return visible(said) != said


def put_json(value: Mapping[str, Any]) -> None:
    """One object on one line. A lone surrogate leaves as the escape that JSON has for it."""
    put_json_line({"v": 1, **value})


def put_json_line(value: Mapping[str, Any]) -> None:
    """A value as it is, where there is one on each line."""
    put_json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def put_json_text(text: str) -> None:
    """JSON that is text already; on a terminal, what would steer it leaves as the escape that means the same."""
    if on_terminal():
        text = re.sub(
            r"[^ -~\n\t]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text
        )
    put_text(text)


def note(text: str) -> None:
    """A word to the person, beside the data."""
    beside(*text.split("\n"))


def beside(*lines: str) -> None:
    """Lines for a person, to stderr; only a terminal has them broken."""
    streams.tell(finish(lines, _aside()).removesuffix("\n"))


def typed(text: str) -> str:
    """What a person types in answer."""
    return str(click.prompt(visible(text), default="", show_default=False, err=True))


def style(form: str = "text", utc: bool = False) -> Style:
    """How this process's own stdout is to be written to."""
    return Style(
        color=connect.colour(os.environ),
        width=connect.width(os.environ),
        folds=connect.folds(os.environ),
        utf8=connect.utf8(os.environ),
        now=time.time(),
        utc=utc,
        form=form,
        home=os.path.expanduser("~"),
    )


def _aside() -> Style:
    """The same for stderr, which has no colours; a fault is one line wherever it is not a terminal that shows it."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return Style(width=connect.width(os.environ, 2), folds=terminal, utf8=connect.utf8(os.environ))
