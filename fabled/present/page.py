"""Whole HTML pages that need nothing else: no network, no script, no font but the reader's.

What stands on them is left to `report` and `exported`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LIGHT = """color-scheme: light; --ink: #1d2129; --soft: #566070; --line: #d5dae1; --paper: #fff; --panel: #f5f6f8;
  --one: #2f6fd0; --two: #1f8a60; --three: #bd6420; --four: #7d51c6;"""
_DARK = """color-scheme: dark; --ink: #e6e8eb; --soft: #9ea7b4; --line: #363c46; --paper: #15181d; --panel: #1d2128;
  --one: #6ea3f2; --two: #5cc79b; --three: #eaa067; --four: #b596ee;"""
CSS = f"""
:root {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }} td.t {{ min-width: 8rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.2rem; margin: 2.75rem 0 .5rem; }}
p {{ margin: .25rem 0 .75rem; max-width: 46rem; }} .soft {{ color: var(--soft); }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .88em; }}
summary {{ cursor: pointer; color: var(--soft); font-size: .9rem; }}
.away {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }}
.facts {{ display: grid; grid-template-columns: repeat(4, 1fr); gap: .75rem; margin: 1.25rem 0; padding: 0;
  list-style: none; }}
.facts li {{ background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem;
  color: var(--soft); line-height: 1.35; }}
.facts b {{ display: block; font-size: 1.35rem; color: var(--ink); }}
figure {{ margin: 1.25rem 0 1.5rem; }} figcaption {{ margin-bottom: .5rem; }}
figcaption span {{ color: var(--soft); font-size: .9rem; white-space: nowrap; margin-left: .9rem; }}
.plot {{ display: grid; grid-template-columns: 3.9rem 1fr; }}
.ys, .xs {{ position: relative; color: var(--soft); font-size: .75rem; line-height: 1; white-space: nowrap; }}
.ys span {{ position: absolute; right: .5rem; transform: translateY(50%); }}
.xs {{ grid-column: 2; height: 1.3rem; }}
.xs span {{ position: absolute; top: .4rem; transform: translateX(-50%); }}
.xs .first {{ transform: none; }} .xs .last {{ transform: translateX(-100%); }}
svg {{ display: block; }} svg.key {{ display: inline-block; margin-right: .35em; }}
svg .grid {{ stroke: var(--line); }} svg .zero {{ stroke: var(--soft); }}
svg .one {{ fill: var(--one); }} svg .two {{ fill: var(--two); }} svg .three {{ fill: var(--three); }}
svg .four {{ fill: var(--four); }} svg .area {{ opacity: .22; }} svg .line {{ fill: none; stroke-width: 2; }}
svg .line.one {{ stroke: var(--one); }} svg .line.two {{ stroke: var(--two); }}
table {{ border-collapse: collapse; width: 100%; font-size: .92rem; }}
th, td {{ padding: .35rem .5rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }}
th {{ color: var(--soft); font-weight: 600; white-space: nowrap; vertical-align: bottom; }}
td.n, th.n {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
td.c {{ white-space: nowrap; }} td.w, th.w {{ width: 24%; min-width: 8.5rem; }}
tr.rest td {{ color: var(--soft); }} td .soft {{ font-size: .9em; }}
.share {{ display: flex; align-items: center; gap: .5rem; }} .share svg {{ flex: 1; min-width: 3rem; }}
.share b {{ flex: 0 0 4.75rem; text-align: right; font-weight: 400; font-variant-numeric: tabular-nums;
  white-space: nowrap; }} .over {{ margin: 1.5rem 0 .25rem; }}
details table {{ margin-top: .5rem; font-size: .85rem; }} .scroll {{ overflow: auto; max-height: 24rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .75rem 0 1.5rem;
  font-size: .92rem; }}
dl div {{ display: contents; }} dt {{ color: var(--soft); }} dd {{ margin: 0; }}
.turn {{ border: 1px solid var(--line); border-radius: .5rem; margin: .75rem 0; overflow: hidden; }}
.turn header {{ display: flex; justify-content: space-between; gap: 1rem; background: var(--panel);
  padding: .3rem .8rem; color: var(--soft); font-size: .85rem; }}
.turn h2 {{ font-size: inherit; margin: 0; }} .turn time {{ white-space: nowrap; }}
.turn pre {{ margin: 0; padding: .6rem .8rem; white-space: pre-wrap; }} .turn details {{ padding: .3rem .8rem; }}
.turn details pre {{ padding: .4rem 0; }}
.turn.user h2 {{ color: var(--one); }} .turn.reply pre, .turn.prompt pre {{ font-family: inherit; font-size: 1em; }}
.turn.sidechain, .turn.branch {{ margin-left: 1.5rem; }}
@media screen and (max-width: 52rem) {{
  body {{ padding: 1.25rem .9rem 3rem; }} .facts {{ grid-template-columns: repeat(2, 1fr); }}
  .xs .odd {{ display: none; }} figcaption span {{ margin: 0 .9rem 0 0; }} figcaption b {{ display: block; }}
  .stack thead {{ display: none; }} .stack, .stack tbody {{ display: block; }}
  .stack tr {{ display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: .5rem 0;
    border-bottom: 1px solid var(--line); }}
  .stack td, .stack td.n {{ border: 0; padding: 0; text-align: left; width: auto; }}
  .stack td[data-h]::before {{ content: attr(data-h) " "; color: var(--soft); }}
  .stack td.t, .stack td.w {{ flex: 1 0 100%; }} .stack td.z {{ display: none; }}
  .turn.sidechain, .turn.branch {{ margin-left: .5rem; }}
  dl {{ grid-template-columns: 1fr; }} dt {{ margin-top: .3rem; }}
}}
@media print {{
  :root {{ {_LIGHT} print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  body {{ max-width: none; padding: 0; font-size: 11pt; }} figure, tr, .facts li {{ break-inside: avoid; }}
  h2, figcaption {{ break-after: avoid; }} .turn header {{ break-after: avoid; }} figure details {{ display: none; }}
  thead {{ display: table-header-group; }} table {{ font-size: 8pt; }} th, td {{ padding: .2rem .3rem; }}
  .share b {{ flex-basis: 3.6rem; }} td.w, th.w {{ min-width: 6rem; }}
}}
"""


def html(title: str, body: list[str]) -> str:
    """A page with a title; the parts of `body` are HTML already."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The browser itself is told that nothing is to be fetched or run, whatever a transcript holds.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
    )
    parts = [f"{head}<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>", *body, "</body>\n</html>\n"]
    return "\n".join(parts)


def text(value: object) -> str:
    """Text as HTML has it."""
    return escape(holdable(str(value)), quote=True)


def holdable(said: str) -> str:
    """What no file can hold is shown by its escape."""
    return said.encode("utf-8", "backslashreplace").decode()


def key(colour: str) -> str:
    """A spot of a chart's colour, for the words that explain it."""
    spot = f'<rect class="{colour}" width="10" height="10"/>'
    return f'<svg class="key" width="10" height="10" aria-hidden="true">{spot}</svg>'


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `kind`: n for figures, t for what leads a row, c for an id, w for a wide picture."""

    head: str
    kind: str = ""


def table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], rest: Sequence[str] = ()) -> str:
    """A table whose rows become short blocks where the screen is narrow; cells are HTML. `rest`: a last row for all
    that is not shown."""
    tops = "".join(f'<th role="columnheader" scope="col"{_class(one.kind)}>{text(one.head)}</th>' for one in columns)
    lines = [
        f'<tr role="row"{" class=rest" if row is rest else ""}>'
        + "".join(_cell(cell, one) for cell, one in zip(row, columns, strict=True))
        + "</tr>"
        for row in [*rows, *([rest] if rest else [])]
    ]
    # A browser that shows rows as blocks would take them for no table any more; the roles say that they are one.
    return (
        f'<table class="stack" role="table"><caption class="away">{text(title)}</caption><thead role="rowgroup">'
        f'<tr role="row">{tops}</tr></thead><tbody role="rowgroup">{"".join(lines)}</tbody></table>'
    )


def plain_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Figures as a table, the first column naming them; cells are text."""
    tops = "".join(f'<th scope="col"{_class("n" if at else "")}>{text(head)}</th>' for at, head in enumerate(heads))
    top = f'<caption class="away">{text(title)}</caption><thead><tr>{tops}</tr></thead>'
    lines = "".join(
        "<tr>" + "".join(f"<td{_class('n' if at else 'c')}>{text(cell)}</td>" for at, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table>{top}<tbody>{lines}</tbody></table>"


def _cell(cell: str, column: Column) -> str:
    named = f' data-h="{text(column.head)}"' if column.kind == "n" else ""
    # Where rows are blocks, what there is nothing of takes no room.
    kind = f"{column.kind} z" if cell in ("", "0", "0 B", "~0") else column.kind
    role = "rowheader" if column.kind == "t" else "cell"
    return f'<td role="{role}"{_class(kind)}{named}>{cell}</td>'


def _class(kind: str) -> str:
    return f' class="{kind.strip()}"' if kind else ""
