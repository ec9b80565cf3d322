"""The look of every HTML page the project writes: one style sheet, light and dark, nothing loaded from elsewhere."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, StrictUndefined

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --quiet: #5b6470; --faint: #d5dae1; --paper: #ffffff; --raised: #f5f7f9; --heat: #12a06d;
  --alarm: #b42318;
  --series-1: #1a4f9c; --series-2: #d9631e; --series-3: #0f766e; --series-4: #7e22ce; --series-5: #946c00;
  --series-6: #be185d; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ee; --quiet: #9aa4b2; --faint: #39414d; --paper: #14181d; --raised: #1c2229; --heat: #1fbf83;
  --alarm: #ff8a7a;
  --series-1: #74a9ff; --series-2: #ff9a5c; --series-3: #4fd1c0; --series-4: #c79bff; --series-5: #e3bd4a;
  --series-6: #ff86b8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; } p { margin: .4rem 0; max-width: 48rem; } a { color: var(--series-1); }
.quiet { color: var(--quiet); } nav { margin: 1rem 0; } nav a { margin-right: 1rem; white-space: nowrap; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
.facts div { background: var(--raised); border: 1px solid var(--faint); border-radius: .5rem; padding: .5rem .75rem; }
.facts b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.facts span { color: var(--quiet); font-size: .85rem; }
.finding { border-left: 4px solid var(--series-5); background: var(--raised); padding: .5rem .9rem; margin: .5rem 0; }
.finding.alarm { border-left-style: double; border-left-color: var(--alarm); }
.finding.fine { border-left-color: var(--heat); }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; display: block;
  font-family: system-ui, sans-serif; }
figcaption { color: var(--quiet); font-size: .87rem; max-width: 48rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
th, td { text-align: left; padding: .28rem .9rem .28rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
.wide table { font-size: .85rem; } .wide th, .wide td { padding-right: .65rem; }
.wide td.number, .wide td:first-child { white-space: nowrap; } .wide th { vertical-align: bottom; }
th { color: var(--quiet); font-weight: 600; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; }
details { margin: .4rem 0; } summary { cursor: pointer; }
pre { background: var(--raised); border: 1px solid var(--faint); border-radius: .5rem; padding: .7rem .9rem;
  overflow-x: auto;
  font: 13px/1.6 ui-monospace, monospace; tab-size: 4; }
@media (max-width: 44rem) { figure { overflow-x: auto; } figure svg { min-width: 40rem; } }
@media print { body { max-width: none; } details > * { display: block; } }
"""

TOP = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{{ title }}</title><style>{{ style | safe }}</style></head><body>
"""
BOTTOM = "\n</body></html>\n"


def render(body: str, title: str, extra_style: str = "", /, **values: Any) -> str:
    """The whole page: `body` is a jinja2 template filled with `values`, which are escaped unless they are Markup."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    style = STYLE + extra_style
    return environment.from_string(TOP + body + BOTTOM).render(title=title, style=style, **values)


def cell(value: object) -> str:
    """A table cell as people read it: four significant digits, thousands apart, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
