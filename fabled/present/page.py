"""Whole HTML pages that need nothing else: no network, no script, no font but the reader's.

What stands on them is left to `report` and `exported`.
"""

from __future__ import annotations

from html import escape

CSS = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #5c6573; --line: #d9dde3; --paper: #fff; --panel: #f6f7f9;
  --one: #2f6fd0; --two: #2a9d6f; --three: #d0762f; --four: #8a5cd0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #98a1ae; --line: #353b45; --paper: #15181d;
  --panel: #1d2128; --one: #6ea3f2; --two: #5cc79b; --three: #eaa067; --four: #b596ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p.soft, .soft { color: var(--soft); } code, pre { font-family: ui-monospace, monospace; font-size: .88em; }
a { color: var(--one); }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; list-style: none; }
.facts li { flex: 1 1 9rem; background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.35rem; }
figure { margin: .5rem 0 1rem; overflow-x: auto; } figcaption { color: var(--soft); font-size: .9rem; }
svg { display: block; max-width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .grid { stroke: var(--line); } svg .one { fill: var(--one); } svg .two { fill: var(--two); }
svg .three { fill: var(--three); } svg .four { fill: var(--four); } svg .line { fill: none; stroke: var(--two);
  stroke-width: 2; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; } th, td { padding: .3rem .5rem; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; } th { color: var(--soft); font-weight: 600; }
.wide { overflow-x: auto; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .35em; }
.turn { border: 1px solid var(--line); border-radius: .5rem; margin: 1rem 0; overflow: hidden; }
.turn > header { background: var(--panel); padding: .35rem .8rem; color: var(--soft); font-size: .88rem; }
.turn > pre { margin: 0; padding: .7rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.turn.user > header { color: var(--one); font-weight: 600; } .turn.reply > pre { font-family: inherit; font-size: 1em; }
"""


def html(title: str, body: list[str]) -> str:
    """A page with a title; the parts of `body` are HTML already."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The browser itself is told that nothing is to be fetched or run, whatever a transcript holds.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
    )
    parts = [f"{head}<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>", *body, "</body>\n</html>\n"]
    return "\n".join(parts)


def text(value: object) -> str:
    """Text as HTML has it; what no file can hold is shown by its escape."""
    return escape(str(value).encode("utf-8", "backslashreplace").decode(), quote=True)


def table(heads: list[tuple[str, bool]], rows: list[list[str]]) -> str:
    """A table; a head with True is a figure's. Cells are HTML."""
    tops = "".join(f'<th class="n">{text(name)}</th>' if n else f"<th>{text(name)}</th>" for name, n in heads)
    lines = [
        "<tr>" + "".join(f'<td class="n">{cell}</td>' if n else f"<td>{cell}</td>"
                         for cell, (_, n) in zip(row, heads, strict=True)) + "</tr>"
        for row in rows
    ]  # fmt: skip
    return f'<div class="wide"><table><thead><tr>{tops}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
