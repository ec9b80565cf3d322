"""The pages frozen for a selection: HTML files that open from a folder or any static host, and ask nothing any more.

A bundle begins at the page of runs and follows the links of each page as far as the selection goes; what lies outside
of it stands as plain text. The files need no server and no network.

Errors
------
EmptyBundle
"""

from __future__ import annotations

import hashlib
import html
import re
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from tasks.errors import CodedError
from tasks.explorer.pages import PAGES, Explorer
from tasks.explorer.rendering import FOLDER

MOST_PAGES = 2_000
"""Pages of a bundle; its selection has to be smaller."""
NEVER = frozenset({"/ask", "/ask.csv", "/programs", "/compare", "/searched", "/sample"})
"""Pages that ask for more than a link, and samples of evaluations, which have no name to be chosen by."""
BY_RUN = frozenset({"/run", "/step"})
BY_PROBLEM = frozenset({"/problem", "/prompt"})


class EmptyBundle(CodedError):
    """The selection has no page, or too many; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a bundle holds beside the lists: the pages of these runs, problems and trajectories.

    Nothing chosen: all runs and problems. Runs chosen: their pages, and all problems. Problems or trajectories chosen:
    these, and no run but a chosen one. Trajectories are too many to be taken without being named.
    """

    runs: frozenset[str] = frozenset()
    problems: frozenset[str] = frozenset()
    trajectories: frozenset[str] = frozenset()
    at: int | None = None

    def holds(self, address: str) -> bool:
        """Whether the page of `address` belongs to the bundle."""
        parts = urlsplit(address)
        values = dict(parse_qsl(parts.query))
        if parts.path not in PAGES or parts.path in NEVER or values.get("at", "") != self._at():
            return False
        named = bool(self.problems or self.trajectories)
        if parts.path in BY_RUN:
            name = values.get("id") or values.get("run", "")
            return name in self.runs if self.runs or named else True
        if parts.path in BY_PROBLEM:
            return values.get("id", "") in self.problems if named else True
        if parts.path == "/trajectory":
            return "policy" not in values and values.get("id", "") in self.trajectories
        return True

    def begin(self) -> list[str]:
        """The addresses from which every other page is reached."""
        at = "" if self.at is None else f"?at={self.at}"
        more = "&at=" + str(self.at) if self.at is not None else ""
        own = [f"/problem?{urlencode({'id': problem})}{more}" for problem in sorted(self.problems)]
        own += [f"/trajectory?{urlencode({'id': identity})}{more}" for identity in sorted(self.trajectories)]
        return [f"/{at}", *own]

    def _at(self) -> str:
        return "" if self.at is None else str(self.at)


@dataclass(slots=True)
class _Crawl:
    """The addresses seen, and the file of each."""

    selection: Selection
    files: dict[str, str] = field(default_factory=dict[str, str])
    waiting: deque[str] = field(default_factory=deque[str])

    def file_of(self, address: str) -> str | None:
        """The linker of a bundle's pages: the file of an address inside, None outside."""
        page, _, place = address.partition("#")
        if not self.selection.holds(page):
            return None
        if page not in self.files:
            self.files[page] = file_name(page)
            self.waiting.append(page)
        return self.files[page] + (f"#{place}" if place else "")


def write(explorer: Explorer, selection: Selection, folder: Path, label: str) -> list[Path]:
    """Write the pages of `selection` into `folder`; the files, `index.html` first. Raises EmptyBundle."""
    crawl = _Crawl(selection)
    for address in selection.begin():
        crawl.file_of(address)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(FOLDER / "static", folder / "static", dirs_exist_ok=True)
    written: list[Path] = []
    while crawl.waiting:
        address = crawl.waiting.popleft()
        if len(written) == MOST_PAGES:
            raise EmptyBundle(f"the selection has more than {MOST_PAGES} pages; choose fewer runs or problems")
        parts = urlsplit(address)
        reply = explorer.reply(parts.path, parts.query, linker=crawl.file_of, frozen=label)
        if reply.status != 200:
            raise EmptyBundle(f"the page {address} is not there: {said(reply.body)}")
        path = folder / crawl.files[address]
        path.write_text(reply.body, encoding="utf-8")
        written.append(path)
    return written


def file_name(address: str) -> str:
    """`run-tiny-1.4f1c22ab.html`: a name that says what it is and differs for different addresses."""
    parts = urlsplit(address)
    values = parse_qsl(parts.query)
    if parts.path == "/" and not [name for name, _ in values if name != "at"]:
        return "index.html"
    words = "-".join([parts.path.strip("/") or "runs", *(value for name, value in values if name != "at")])
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-.")[:60]
    return f"{readable}.{hashlib.sha256(address.encode()).hexdigest()[:8]}.html"


def chosen_by(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[frozenset[str], frozenset[str]]:
    """The problems and trajectories that a question's answer names in columns `problem_id` and `trajectory_id`.

    Raises EmptyBundle when it has neither column, or no row.
    """
    found = {name: frozenset(str(row[columns.index(name)]) for row in rows) for name in _NAMED if name in columns}
    if not any(found.values()):
        raise EmptyBundle("the question must give rows with problem_id or trajectory_id; it gives neither")
    return found.get("problem_id", frozenset()), found.get("trajectory_id", frozenset())


_NAMED = ("problem_id", "trajectory_id")


def said(body: str) -> str:
    """What a page that failed says."""
    found = re.search(r"<p>(.*?)</p>", body, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", found[1])) if found else "no reason was given"
