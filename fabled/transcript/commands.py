"""Finds passwords that a command line hands to a program: `mysql -pSECRET`, `curl -u ana:SECRET`, `sshpass -p SECRET`.

Which of them are shown how far is left to `mask`.

Only options of programs that take a password there count, within one command: what follows a separator, a newline or
some hundred characters belongs to another. So each occurrence of a name costs a bounded walk, and one of the same name
ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .query import STOP_WORDS

WINDOW = 400
LONGEST = 256

# How a value may follow its option, and what may stand before it: also as words of a list in a program.
_GAP = r"""(?:=|\s{1,4}|\\{0,7}["'],\s{0,4}(?=\\{0,7}["']))"""
_LEAD = r"""(?<=[\s"'])"""

_PASSWORD = rf"--(?:[a-z]+-)?(?:password|passwd|pass|passphrase){_GAP}"
_USER = r"(?P<user>\\{0,7}[\"']?[^\s:\"'$]{0,128}:)"
# Programs by what all names of a row have in common, and the options behind which they take a password, beside those
# that say so. A group `user` is what stands before it.
_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("mysql", "mysql mysqldump mysqladmin mysqlimport mysqlshow", r"-p(?=\S)"),
    ("mariadb", "mariadb mariadb-dump mariadb-admin", r"-p(?=\S)"),
    ("7z", "7z 7za 7zz", r"-p(?=\S)"),
    ("sshpass", "", r"-p\s{0,4}"),
    ("curl", "", rf"(?:-u|--user|-U|--proxy-user){_GAP}?{_USER}"),
    ("http", "http https", rf"(?:-a|--auth){_GAP}{_USER}"),
    ("lftp", "", r"-u\s{0,4}(?P<user>\\{0,7}[\"']?[^\s,\"'$]{1,128},)"),
    ("smbclient", "", r"-U\s{0,4}(?P<user>\\{0,7}[\"']?[^\s%\"'$]{1,128}%)"),
    *((name, "", rf"-p{_GAP}") for name in ("docker", "podman", "buildah", "skopeo", "oc", "az")),
    ("mongo", "mongo mongosh mongodump mongorestore mongoexport mongoimport", rf"-p{_GAP}"),
    ("redis-cli", "", rf"-a{_GAP}"),
    ("ldap", "ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami", r"-w\s{0,4}"),
    ("sqlcmd", "", r"-P\s{0,4}"),
    ("zip", "zip unzip", r"-P\s{1,4}"),
    ("openssl", "", r"-pass(?:in|out)?\s{1,4}(?P<user>\\{0,7}[\"']?pass:)"),
    ("keytool", "", rf"-(?:src|dest)?(?:store|key)pass{_GAP}"),
    ("psql", "", r"password=(?=\S)"),
    ("pg_", "pg_dump pg_restore", r"password=(?=\S)"),
    *((name, "", "(?!)") for name in ("wget", "gpg", "restic", "borg", "rclone")),
)
_LOGIN = frozenset(("docker", "podman", "buildah", "skopeo", "oc", "az"))
"""Programs whose -p is a password only behind `login`; else it is a port, or a folder."""

_PROGRAMS = tuple(
    (root, tuple((names or root).split()), re.compile(f"{_LEAD}(?:{flags}|{_PASSWORD})"))
    for root, names, flags in _OPTIONS
)
_SIGNS = (" -", '"-', "'-", "password=", "\n-")
"""What a text with such a call holds: most hold none, and cost next to nothing."""
_COMMAND = re.compile(rf"""(?:[^"'\n;|&\\]|\\[^\n]|\\\n|"[^"\n]{{0,200}}"|'[^'\n]{{0,200}}'){{0,{WINDOW}}}""")
_ECHOED = re.compile(
    r"""echo\s{1,4}(?:-n\s{1,4})?(?=\S)(?P<value>\\{0,7}["']?[^\s"'|\\]{1,256})\\{0,7}["']?\s{0,4}\|\s{0,4}
        (?:sudo\s{1,4}-[A-Za-z]{0,6}S\b|[a-z][\w.-]{0,40}\s[^|\n;&]{0,200}--password-stdin\b)""",
    re.VERBOSE,
)
_QUOTE = re.compile(r"""\\{0,7}["']""")
_BARE = re.compile(rf"""[^\s"'`,;<>(){{}}\[\]|&\\…]{{1,{LONGEST}}}""")
_QUOTED = {sign: re.compile(rf"[^{sign}\n\\]{{1,{LONGEST}}}") for sign in "\"'"}
_PORTS = re.compile(r"[0-9.:/-]+(?:/(?:tcp|udp))?")


def passwords(text: str) -> Iterator[tuple[int, int]]:
    """Where passwords of command lines stand in a text, in any order, some perhaps twice."""
    if not any(sign in text for sign in _SIGNS):
        return
    for root, names, flags in _PROGRAMS:
        if root in text:
            for name in names:
                yield from _of_program(text, name, flags)
    if "echo" in text and ("sudo" in text or "--password-stdin" in text):
        for echoed in _ECHOED.finditer(text):
            start, stop = echoed.span("value")
            quote = _QUOTE.match(text, start)
            if text[stop : stop + 1] != "…":
                yield (quote.end() if quote else start), stop


def _of_program(text: str, name: str, flags: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    at = text.find(name)
    while at >= 0:
        begin, end = at + len(name), text.find(name, at + len(name))
        if _is_word(text, at, begin):
            yield from _given(text, name, flags, begin, len(text) if end < 0 else end)
        at = end


def _is_word(text: str, at: int, begin: int) -> bool:
    """Whether a program is called there, rather than part of another name meant."""
    before, after = text[at - 1 : at], text[begin : begin + 1]
    return not (before.isalnum() or before in ("_", "-", ".")) and (after.isspace() or after in ('"', "'"))


def _given(text: str, name: str, flags: re.Pattern[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The passwords of one call. `end`: where the same name stands again."""
    command = _COMMAND.match(text, begin, min(end, begin + 2 * WINDOW))
    stop = command.end() if command else begin
    if name in _LOGIN and "login" not in text[begin:stop]:
        return
    for flag in flags.finditer(text, begin, stop):
        user = flag.groupdict().get("user")
        start = flag.end()
        quote = _QUOTE.match(text, flag.start("user") if user else start)
        if quote is not None and not user:
            start = quote.end()
        value = (_QUOTED[quote[0][-1]] if quote is not None else _BARE).match(text, start)
        if value is None or text[value.end() : value.end() + 1] == "…":
            continue  # none, or masked already
        word = value[0].rstrip("\\.") if quote is None else value[0]
        if word and word[0] != "-" and not _PORTS.fullmatch(word) and word.lower() not in STOP_WORDS:
            yield start, start + len(word)
