"""The doctor's findings: a sign, a name, what was found, and the fix below it.

What is well and what is not is decided by the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabled.present.terminal import Style, homely, one_line, path, plural

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
        said, fix = (homely(one_line(str(one.get(key) or "")), style) for key in ("message", "fix"))
        lines += style.fold(f"{paint(sign)} {one_line(str(one.get('id'))):<12} {said}", _LEFT)
        if fix:
            lines += style.fold(f"{'':<{_LEFT}}{style.bold(f'fix: {fix}')}", _LEFT + 5)
        for detail in one.get("details") or []:
            shown = style.dim(homely(one_line(str(detail)), style))
            lines += style.fold(f"{'':<{_LEFT}}{shown}", _LEFT + 2)
    bad = sum(one.get("state") == "failure" for one in checks)
    odd = sum(one.get("state") == "warning" for one in checks)
    summary = f"{plural(bad, 'problem')}, {plural(odd, 'warning')}." if bad or odd else "All is well."
    if value.get("bundle"):
        said = f"Written: {path(str(value['bundle']), style)}   (no transcript text inside; look it through)"
        return [*lines, summary, said]
    report = "Send a report:  fabled doctor --bundle   (no transcript text inside)"
    return [*lines, *style.fold(f"{summary}        {report}", 0)]
