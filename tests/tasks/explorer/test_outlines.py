"""Every kind of page has its headings, tables with their columns, facts and links: outlines.json, one golden file.

`SPO_WRITE_GOLDEN=1` writes it anew, for a change of the pages that is meant.
"""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tasks.explorer.pages import PAGES
from tests.tasks.explorer.conftest import Pages
from tests.tasks.explorer.test_audited import audited  # noqa: F401  (fixtures)
from tests.tasks.explorer.test_planted import planted  # noqa: F401
from tests.tasks.explorer.test_studies import study  # noqa: F401

GOLDEN = Path(__file__).with_name("outlines.json")
TEXTS = frozenset({"h1", "h2", "h3", "th", "dt", "figcaption"})
PLANTED: dict[str, dict[str, Any]] = {
    "/": {},
    "/problems": {},
    "/problem": {"id": "p"},
    "/prompt": {"id": "p"},
    "/trajectory": {"id": "t4"},
    "/sandbox": {},
    "/searched": {},
    "/ask": {"sql": "SELECT 1 AS one"},
}
STUDY: dict[str, dict[str, Any]] = {
    "/studies": {},
    "/study": {"id": "hand"},
    "/run": {"id": "m-0"},
    "/compare": {"run": ["m-0", "b-0"]},
}


class Outline(HTMLParser):
    """Collects headings, columns, facts and captions, and where links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: set[str] = set()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in TEXTS:
            self._inside = tag
            self.texts.append(f"{tag}: ")
        target = urlsplit(dict(attrs).get("href") or "")
        if tag == "a" and not target.netloc:
            self.links.add(f"{target.path}?{','.join(sorted({name for name, _ in parse_qsl(target.query)} - {'at'}))}")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += " ".join(data.split())


def outline(html: str) -> dict[str, list[str]]:
    """Returns the parts and links of a page, without the values in them."""
    found = Outline()
    found.feed(html)
    return {"parts": found.texts, "links": sorted(found.links)}


@pytest.fixture(scope="module")
def outlines(planted: Pages, audited: Pages, study: Pages) -> dict[str, dict[str, list[str]]]:  # noqa: F811
    """By address and warehouse."""
    then = planted.value("SELECT max(snapshot_id) FROM trajectories WHERE run_id = 'two'")
    shown = re.findall(r'id="p(\d+)"', planted.html("/problem", id="p", at=then))
    found = {"/programs": outline(planted.html("/programs", id="p", p=shown[:2], at=then))}
    found |= {path: outline(planted.html(path, **asked, at=then)) for path, asked in PLANTED.items()}
    found |= {path: outline(study.html(path, **asked)) for path, asked in STUDY.items()}
    accepted = audited.value("SELECT max(snapshot_id) FROM suite_versions")
    return found | {"/problem, audited": outline(audited.html("/problem", id="p", at=accepted))}


def test_every_kind_of_page_has_its_outline(outlines: dict[str, dict[str, list[str]]]) -> None:
    if "SPO_WRITE_GOLDEN" in os.environ:
        GOLDEN.write_text(json.dumps(outlines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert outlines == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(PAGES) - {name for name in outlines if "," not in name} == {"/sample", "/step"}, "tested by themselves"
