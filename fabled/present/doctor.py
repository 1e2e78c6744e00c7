"""The doctor's findings: a sign, a name, what was found, and the fix below it.

What is well and what is not is decided by the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, cells, one_line, path, plural

Value = Mapping[str, Any]
_LEFT = 15


def doctor(value: Value, style: Style) -> list[str]:
    checks = value.get("checks") or []
    lines = []
    for one in checks:
        state = str(one.get("state"))
        sign, paint = {
            "ok": ("✓", style.good), "warning": ("!", style.warn), "failure": ("✗", style.bad)
        }[state]  # fmt: skip
        said = _wrap(_homely(one_line(str(one.get("message") or "")), style), style.width - _LEFT)
        lines.append(f"{paint(sign)} {one_line(str(one.get('id'))):<12} {said[0]}")
        lines += [f"{'':<{_LEFT}}{more}" for more in said[1:]]
        if one.get("fix"):
            fix = _wrap(f"fix: {_homely(one_line(str(one['fix'])), style)}", style.width - _LEFT)
            lines += [f"{'':<{_LEFT}}{style.bold(line)}" for line in fix]
        for detail in one.get("details") or []:
            shown = _wrap(_homely(one_line(str(detail)), style), style.width - _LEFT - 2)
            lines += [
                style.dim(f"{'':<{_LEFT}}{'' if number == 0 else '  '}{line}") for number, line in enumerate(shown)
            ]
    bad = sum(one.get("state") == "failure" for one in checks)
    odd = sum(one.get("state") == "warning" for one in checks)
    summary = f"{plural(bad, 'problem')}, {plural(odd, 'warning')}." if bad or odd else "All is well."
    if value.get("bundle"):
        lines += [
            summary,
            f"Written: {path(str(value['bundle']), style)}   (no transcript text inside; look it through)",
        ]
    else:
        report = "Send a report:  fabled doctor --bundle   (no transcript text inside)"
        one = f"{summary}        {report}"
        lines += [one] if cells(one) <= style.width else [summary, *_wrap(report, style.width)]
    return lines


def _homely(text: str, style: Style) -> str:
    return text.replace(style.home.rstrip("/") + "/", "~/") if len(style.home) > 1 else text


def _wrap(text: str, width: int) -> list[str]:
    """Broken between words; a word that is longer than the line stands on one of its own."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cells(lines[-1]) + 1 + cells(word) > max(20, width):
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
