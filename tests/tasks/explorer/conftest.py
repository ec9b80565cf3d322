"""The pages over the finished run, asked as a browser would, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest

from tasks.explorer.pages import Explorer, Reply
from tests.tasks.conftest import Lab
from warehouse import Warehouse
from warehouse.reading.readers import Readers


class Structure(HTMLParser):
    """Refuses unbalanced tags; keeps links, element names and attributes."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr", "circle", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value or "" for name, value in attrs if name == "href" and tag == "a"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag, tag


class Pages:
    """Asks for pages and checks that each is whole."""

    def __init__(self, explorer: Explorer, store: Warehouse) -> None:
        self.explorer = explorer
        self.store = store

    def reply(self, path: str, **filters: Any) -> Reply:
        return self.explorer.reply(path, urlencode(filters, doseq=True))

    def html(self, path: str, **filters: Any) -> str:
        """The page, which must be there, be balanced, and hold no code of its own."""
        reply = self.reply(path, **filters)
        assert reply.status == 200, reply.body
        found = structure(reply.body)
        assert "style" not in found.tags
        assert "style" not in found.attributes
        assert not [name for name in found.attributes if name.startswith("on")]
        assert found.tags.count("script") == 1
        return reply.body

    def value(self, sql: str, *parameters: Any) -> Any:
        return self.store.value(sql, list(parameters))


def structure(html: str) -> Structure:
    parser = Structure()
    parser.feed(html)
    assert parser.open == []
    return parser


@pytest.fixture(scope="session")
def pages(finished: Lab) -> Iterator[Pages]:
    with Readers.open(finished.location) as readers, Warehouse.open(finished.location, read_only=True) as store:
        readers.fill()
        yield Pages(Explorer(readers, finished.home, asked_s=300), store)
