"""From a page to HTML: templates of this folder, everything escaped, the same frame around each."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tasks.explorer.drawing import short
from tasks.explorer.look import Look, Page
from tasks.explorer.visible import plain, visible
from tasks.run.durations import duration
from warehouse.reading.readers import Asked

FOLDER = Path(__file__).parent
SECTIONS = (
    ("/", "Runs"),
    ("/problems", "Problems"),
    ("/studies", "Studies"),
    ("/sandbox", "Sandbox"),
    ("/ask", "Ask"),
)


@cache
def environment() -> Environment:
    """The templates; undefined names are errors, everything is escaped."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "visible": visible,
        "plain": plain,
        "percent": percent,
        "duration": took,
        "when": when,
        "count": count,
        "short": few_characters,
        "cell": cell,
    }
    return made


def _safe(value: Any) -> Any:
    """What a template writes: texts, which anybody may have written, without characters that hide or turn others."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(look: Look, page: Page, *, frozen: str = "") -> str:
    """The whole page. `frozen` says of a page of a bundle what it is a copy of; such a page asks nothing."""

    def anchor(text: object, path: str, /, **filters: object) -> Markup:
        return linked(text, look.address.link(path, **filters))

    def same(text: object, /, **filters: object) -> Markup:
        return linked(text, look.address.changed(**filters))

    template = environment().get_template(page.template)
    return template.render(
        title=page.title,
        section=page.section,
        sections=SECTIONS,
        address=look.address,
        anchor=anchor,
        same=same,
        link=look.address.link,
        changed=look.address.changed,
        shown=look.session.snapshot,
        newest=look.session.newest,
        past=look.session.at is not None,
        live=page.live and look.session.at is None and not frozen,
        asked=[] if frozen else [(item, question(item)) for item in look.session.asked],
        frozen=frozen,
        **page.values,
    )


def linked(text: object, href: str | None) -> Markup:
    """A link, or the bare text where it leads nowhere."""
    shown = text if isinstance(text, Markup) else visible(str(text))
    return shown if href is None else Markup('<a href="{}">{}</a>').format(href, shown)


def question(asked: Asked) -> str:
    """The question with its values filled in, to be asked again by hand."""
    values = asked.parameters
    return re.sub(r"\$(\w+)", lambda match: literal(values[match[1]]) if match[1] in values else match[0], asked.sql)


def literal(value: Any) -> str:
    """A value as DuckDB reads it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(one) for one in value)}]"
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat()}'"
    return "'" + str(value).replace("'", "''") + "'"


def took(seconds: float | None) -> str:
    """`3 min 05 s`, and nothing for what is unknown."""
    return "" if seconds is None else duration(seconds)


def count(value: int | None) -> str:
    """`12,345`, and nothing for what is unknown."""
    return "" if value is None else f"{value:,}"


def few_characters(value: float | None) -> str:
    """A number in few characters, and nothing for what is unknown."""
    return "" if value is None else short(float(value))


def percent(share: float | None) -> str:
    """`61.2%`, and nothing for what is unknown."""
    return "" if share is None else f"{100 * share:.1f}%"


def when(moment: datetime | None) -> Markup:
    """A time that people read, with the exact one behind it."""
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M:%S"), moment.strftime("%Y-%m-%d %H:%M")
    )


def cell(value: Any) -> Markup:
    """A value of an unknown result: numbers short, texts visible and cut."""
    if value is None:
        return Markup('<span class="quiet">null</span>')
    if isinstance(value, bool):
        return Markup("true" if value else "false")
    if isinstance(value, int):
        return escape(f"{value:,}")
    if isinstance(value, float):
        return escape(f"{value:.6g}")
    if isinstance(value, datetime):
        return when(value)
    text = str(value)
    return visible(text if len(text) <= 300 else text[:300] + "…")
