"""Masks credentials in text that is about to be shown: the first characters stay, `[masked]` stands for the rest.

Stored bytes and spans are untouched by it; where text is shown unmasked (`block`, `thread --raw`) is left to the
callers.

Every pattern starts with a literal (which is how `re` searches fast) and is bounded, or cannot be tried again inside
its own match, so that the time is linear in the text whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .commands import passwords

MASKED = "[masked]"
KEEP = 6
"""Characters of a credential that stay at most."""

_WORD = "[A-Za-z0-9_-]"
# Prefixes that issuers chose so that their keys are recognised, and what must follow.
_ISSUED = tuple(
    (prefix, re.compile(re.escape(prefix) + rest))
    for prefixes, rest in (
        ("sk-ant-", _WORD + "{8,}"),
        ("sk-proj- sk-svcacct- sk-admin- sk-or- sk-lf-", _WORD + "{16,}"),
        ("sk_live_ sk_test_ rk_live_ rk_test_", "[A-Za-z0-9_]{8,}"),
        ("whsec_", "[A-Za-z0-9+/=_-]{8,}"),
        ("ghp_ gho_ ghs_ ghu_ ghr_ github_pat_", "[A-Za-z0-9_]{16,}"),
        ("AKIA ASIA", "[A-Z0-9]{12,}"),
        ("xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxc- xoxd- xoxe. xapp-", "[A-Za-z0-9.-]{8,}"),
        ("AIza", _WORD + "{24,}"),
        ("ya29.", "[A-Za-z0-9_.-]{20,}"),
        (
            "GOCSPX- nvapi- glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- glimt-",
            "[A-Za-z0-9_.-]{16,}",
        ),
        ("npm_ gsk_ xai- lin_api_ ntn_ r8_ hvs.", "[A-Za-z0-9]{20,}"),
        ("hf_ dckr_pat_", _WORD + "{16,}"),
        ("shpat_ shpss_ shpca_ shppa_ dop_v1_ doo_v1_ dor_v1_ sbp_", "[A-Fa-f0-9]{20,}"),
        ("SG.", _WORD + r"{12,}\." + _WORD + "{12,}"),
        ("AGE-SECRET-KEY-1", "[A-Z0-9]{20,}"),
    )
    for prefix in prefixes.split()
)
# Prefixes that are also ordinary words (`sk-folding-cube`, `pypi-publish-action`): what follows is looked at.
_MAYBE_ISSUED = tuple((prefix, re.compile(prefix + _WORD + "{16,}")) for prefix in ("sk-", "pypi-"))
_JWT = re.compile(rf"eyJ(?<!{_WORD}eyJ){_WORD}{{6,}}\.(?:{_WORD}{{6,}}\.{_WORD}+|eyJ{_WORD}{{6,}})")
_SLACK_HOOK = re.compile(r"hooks\.slack\.com/services/([A-Za-z0-9/]{16,})")
_USERINFO = re.compile(r"""://([^\s/:@"'<>`\\]{0,128}:)([^\s/"'<>`\\]{1,512})(?=@)""")

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_LONGEST_PEM = 32_768
# The lines of a key whose end is missing: base64 or a `Name: value` header, joined by newlines, raw or escaped.
_BREAK = r"(?:\s|\\{1,4}[nrt]?)"
_BODY = re.compile(
    rf"{_BREAK}{{0,16}}(?:(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n\\]{{0,120}}{_BREAK}{{1,16}}){{0,6}}"
    rf"[A-Za-z0-9+/=]*(?:{_BREAK}{{1,16}}[A-Za-z0-9+/=]{{24,}})*(?:{_BREAK}{{1,16}}[A-Za-z0-9+/=]*\Z)?"
)

# The following are matched against the lower-cased text.
_HEADER = re.compile(
    r"""authorization\\{0,7}["']?\s{0,4}[:=]\s{0,4}\\{0,7}["']?
        ((?:bearer|basic|token|digest|apikey|bot|negotiate)\s{1,4})?([^\s"'\\,;<>(){}$`]{4,})""",
    re.VERBOSE,
)
_BEARER = re.compile(r"bearer\s{1,4}([a-z0-9._~+/=-]{8,})")
# NAME = value. Only the end of the name is matched, so no name however long is walked more than once.
_NAMED = re.compile(
    r"""(?:secret|token|passw(?:or)?d|passphrase|pass|pwd|api[_-]?key|credentials?|_auth
          |(?:access|account|private|encryption|signing|master|session|auth|admin|deploy|shared|storage)[_-]?key)
        (?:[_-]?(?:access[_-]?)?key(?:[_-]?base)?|[_-]?(?:value|[0-9]{1,3}))?
        \\{0,7}["'`]?\]?\s{0,4}(:=|=>|[:=])(?![=>])(\s{0,4})
        (?:[brfu]{0,2}(\\{0,7}["'`]))?""",
    re.VERBOSE,
)
_FLAG = re.compile(
    r"--(?:[a-z-]{0,24}-)?(?:password|passwd|token|secret|api-key|access-key|secret-key)\s{1,4}(?=[^-\s])"
)
_NAME_END = re.compile("[a-z0-9]+(?:[_-][a-z0-9]+)*")
_UNQUOTED = re.compile(r"""[^\s"'`,;<>(){}\[\]|&…]{1,4096}""")
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,80}")
_CODE_PATH = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+!?")
_NUMBER_TYPE = re.compile(r"(?:big)?(?:u?int|float|uint)[0-9]{1,3}(?:_t|array)?|[uif](?:8|16|32|64|128)", re.IGNORECASE)
_IDENTIFIER = re.compile("[a-z]+(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z]+)+[0-9]?")
_LONG_RUN = re.compile("[A-Za-z0-9+/=]{20,}")
_NAME_HINTS = ("secret", "token", "passw", "passphrase", "pass", "pwd", "key", "credential", "_auth")
_PLAIN = frozenset(
    """
    string str text bytes number integer int float boolean bool object array list dict any none null nil true false
    undefined unknown optional required redacted masked hidden secret token password passwd key apikey api_key
    authorization bearer basic username value example changeme default empty missing invalid expired type
    """.split()
)

_STAND_INS = _PLAIN | frozenset("pass pw pwd passphrase mypassword mypass user admin_password db_password".split())
_ROUNDS = 4
"""What was masked may have been a program's name itself, so that a command goes on where another seemed to begin."""


def mask(text: str) -> str:
    """`text` with its credentials masked. Hashes, uuids, words and code stay as they are."""
    if "-----BEGIN " in text:
        text = _mask_pem(text)
    if "://" in text:
        text = _USERINFO.sub(_userinfo, text)
    if "hooks.slack.com" in text:
        text = _SLACK_HOOK.sub(_slack, text)
    for prefix, pattern in _ISSUED:
        if prefix in text:
            text = pattern.sub(_issued, text)
    for prefix, pattern in _MAYBE_ISSUED:
        if prefix in text:
            text = pattern.sub(_maybe_issued, text)
    if "eyJ" in text:
        text = _JWT.sub(_issued, text)
    if ":AA" in text:
        text = _TELEGRAM.sub(_issued, text)
    lowered = _lower(text)
    if "authorization" in lowered:
        text, lowered = _mask_found(text, lowered, _HEADER, _header)
    if "bearer" in lowered:
        text, lowered = _mask_found(text, lowered, _BEARER, _bearer)
    if any(hint in lowered for hint in _NAME_HINTS):
        text = _mask_named(text, lowered)
    return _mask_commands(text)


def _mask_commands(text: str) -> str:
    """Masks what command lines hand to programs as a password. There every word is one, unless it stands for one."""
    for _ in range(_ROUNDS):
        spans: list[tuple[int, int]] = []
        for start, stop in sorted(set(passwords(text))):
            value = text[start:stop]
            if (not spans or start >= spans[-1][1]) and not _placeholder(value) and value.lower() not in _STAND_INS:
                spans.append((start, stop))
        if not spans:
            break
        text = _replace(text, spans)
    return text


_TELEGRAM = re.compile(rf"[0-9]{{8,10}}:AA{_WORD}{{30,}}")


def _lower(text: str) -> str:
    """The text in lower case, character for character (İ alone becomes two; it is left as it is)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.replace("İ", "_").lower()


def _keep(secret: str) -> str:
    """The start of a credential that may stay: never more than a third of it, so that a short one stays secret."""
    return secret[: min(KEEP, len(secret) // 3)] + "…" + MASKED


def _issued(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    return match[0] if before.isalnum() else _keep(match[0])


def _maybe_issued(match: re.Match[str]) -> str:
    return _issued(match) if _random(match[0].partition("-")[2]) else match[0]


def _slack(match: re.Match[str]) -> str:
    return match[0][: match.start(1) - match.start()] + _keep(match[1])


def _userinfo(match: re.Match[str]) -> str:
    return match[0] if _placeholder(match[2]) else f"://{match[1]}{_keep(match[2])}"


def _random(text: str) -> bool:
    """Is this no word: digits beside letters, or a run of letters too long to be one?"""
    has_digit = any("0" <= c <= "9" for c in text)
    if has_digit and any(c.isalpha() for c in text):
        return True
    return _LONG_RUN.search(text) is not None


def _placeholder(value: str) -> bool:
    """Does the value stand for a credential instead of being one (`$TOKEN`, `<key>`, `***`, already masked)?"""
    if value[:1] in "$<{%*" or not value.strip("x*.•…-_X") or "…" in value:
        return True
    return value[:4].lower() == "your" or (value[:1] == "[" and value[-1:] == "]")


_Span = tuple[int, int] | None


def _mask_found(
    text: str, lowered: str, pattern: re.Pattern[str], secret: Callable[[re.Match[str], str], _Span]
) -> tuple[str, str]:
    """Masks the spans that `secret` sees in the matches of `pattern`; the text, plain and lower-cased."""
    spans = [span for match in pattern.finditer(lowered) if (span := secret(match, text))]
    return (text, lowered) if not spans else ((masked := _replace(text, spans)), _lower(masked))


def _replace(text: str, spans: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    pos = 0
    for start, stop in spans:
        kept += text[pos:start], _keep(text[start:stop])
        pos = stop
    return "".join(kept) + text[pos:]


def _header(match: re.Match[str], text: str) -> _Span:
    start, stop = match.span(2)
    value = text[start:stop]
    if _placeholder(value) or value.lower() in _PLAIN:
        return None
    return (start, stop) if _random(value) or (match[1] and len(value) >= 12) else None


def _bearer(match: re.Match[str], text: str) -> _Span:
    start, stop = match.span(1)
    if text[match.start() - 1 : match.start()].isalnum() or not _random(text[start:stop]):
        return None
    return start, stop


def _mask_pem(text: str) -> str:
    """Takes out private key blocks, also those whose end is missing."""
    begins = list(_BEGIN.finditer(text))
    ends = list(_END.finditer(text))
    spans: list[tuple[int, int]] = []
    number = 0
    for index, begin in enumerate(begins):
        while number < len(ends) and ends[number].start() < begin.end():
            number += 1
        limit = begins[index + 1].start() if index + 1 < len(begins) else len(text)
        if number < len(ends) and ends[number].start() <= min(limit, begin.end() + _LONGEST_PEM):
            stop = ends[number].end()
        else:
            body = _BODY.match(text, begin.end(), limit)
            stop = body.end() if body else begin.end()
        spans.append((begin.start(), stop))
    return _replace(text, spans)


def _mask_named(text: str, lowered: str) -> str:
    """Masks what is assigned to a name that says it is secret, in shell, JSON, YAML, INI and program text."""
    spans: list[tuple[int, int]] = []
    pos = 0
    for match in sorted((*_NAMED.finditer(lowered), *_FLAG.finditer(lowered)), key=lambda found: found.start()):
        if match.start() < pos:
            continue
        span = _flag_value(match, text) if match.re is _FLAG else _named_value(match, text)
        if span:
            spans.append(span)
            pos = span[1]
    return _replace(text, spans) if spans else text


def _flag_value(match: re.Match[str], text: str) -> _Span:
    """The value behind `--password`."""
    found = _UNQUOTED.match(text, match.end())
    if found is None or _placeholder(found[0]) or len(found[0]) < 4 or not _random(found[0]):
        return None
    return found.span()


def _named_value(match: re.Match[str], text: str) -> _Span:
    name = _name(match, text)
    word = match[0]
    before = text[match.start() - 1 : match.start()]
    # Alone, `pass` and `pwd` are words of programs and shells; as the end of a name (`DB_PASS`) they are not.
    if (
        word.startswith("pass")
        and not word.startswith(("passw", "passp"))
        and before not in ("_", "-")
        and name != "SSHPASS"
    ):
        return None
    if word.startswith("pwd") and before.isalnum():
        return None
    start, quote = match.end(), match[3]
    if quote is not None:
        stop = _closing(text, start, quote)
        return (start, stop) if _quoted_secret(text[start:stop], word, name) else None
    found = _UNQUOTED.match(text, start)
    if found is None:
        return None
    value = found[0].rstrip("\\.")
    after = text[found.end() : found.end() + 1]
    return (start, start + len(value)) if _unquoted_secret(value, after, match[1], match[2], name) else None


def _name(match: re.Match[str], text: str) -> str:
    """The whole name whose end matched, at most some 80 characters of it."""
    start = match.start()
    low = max(0, start - 60)
    while start > low and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    end = _NAME_END.match(match.string, match.start())
    return text[start : end.end() if end else match.start()]


def _closing(text: str, start: int, quote: str) -> int:
    """Where the quoted value that begins at `start` ends: at its quote, its line's end, or 4,096 characters on."""
    limit = min(len(text), start + 4096)
    newline = text.find("\n", start, limit)
    if newline >= 0:
        limit = newline
    escapes = len(quote) - 1
    at = text.find(quote[-1], start, limit)
    while at >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        if at - before <= escapes:  # a quote inside the value is escaped once more than the one that opened it
            return before
        at = text.find(quote[-1], at + 1, limit)
    return limit


def _quoted_secret(value: str, keyword: str, name: str) -> bool:
    if len(value) < 4 or _placeholder(value) or value.lower() in _PLAIN or value == name:
        return False
    if any(c.isspace() for c in value):
        # A sentence about a password is no password; a pass phrase, and what a shell variable holds, may have blanks.
        return "phrase" in keyword or bool(_ENV_NAME.fullmatch(name))
    if value[0] in "/~." or "://" in value or "${" in value or "{{" in value:
        return False
    return len(value) >= 6 or _random(value)


def _unquoted_secret(value: str, after: str, sign: str, blanks: str, name: str) -> bool:
    if len(value) < 4 or _placeholder(value) or value.lower() in _PLAIN or value[0] in "/~.\\":
        return False
    if (after and after in "([{<…") or "://" in value or sign in (":=", "=>") or (value.isdigit() and len(value) < 6):
        return False
    is_path = _CODE_PATH.fullmatch(value) is not None and len(value) < 60
    if _ENV_NAME.fullmatch(name) and not is_path:
        if sign == "=" and not blanks:
            return True
        if sign == ":" and "_" in name and (not after or after in "\r\n\"'`,}"):
            return True
    if is_path or _NUMBER_TYPE.fullmatch(value):
        return False
    if value.isalpha() or (sign == "=" and blanks and _IDENTIFIER.fullmatch(value)):
        return len(value) >= 20 and value.isalpha() and _IDENTIFIER.fullmatch(value) is None
    return len(value) >= 6 and _random(value)
