"""Every address that there is, and what a request is answered with. Knows no web server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.explorer import ask, judging, problem, problems, run, runs, studies, trajectory
from tasks.explorer.address import Address, BadAddress, Linker, NotFound
from tasks.explorer.look import Look, Page
from tasks.explorer.rendering import environment, render
from warehouse import BadQuestion, StillReading, TookTooLong, UnknownSnapshot, WarehouseBusy
from warehouse.reading.readers import TIMEOUT_S, Readers

HTML, CSV, JSON = "text/html; charset=utf-8", "text/csv; charset=utf-8", "application/json"
PAGES: Mapping[str, Callable[[Look], Page]] = {
    "/": runs.runs_page,
    "/compare": runs.compare_page,
    "/run": run.run_page,
    "/step": run.step_page,
    "/problems": problems.problems_page,
    "/problem": problem.problem_page,
    "/programs": problem.programs_page,
    "/prompt": problem.prompt_page,
    "/trajectory": trajectory.trajectory_page,
    "/sample": trajectory.sample_page,
    "/searched": trajectory.searched_page,
    "/sandbox": judging.sandbox_page,
    "/ask": ask.ask_page,
    "/studies": studies.studies_page,
    "/study": studies.study_page,
}
ASKED_S = 10.0
"""Time limit of a typed question; the pages' own may take longer on a machine that is busy with runs."""
STATUSES: Mapping[type[Exception], int] = {
    BadAddress: 400,
    BadQuestion: 400,
    NotFound: 404,
    UnknownSnapshot: 404,
    StillReading: 503,
    WarehouseBusy: 503,
    TookTooLong: 503,
}

PASSING = (StillReading, WarehouseBusy)
"""What is over in a moment: such a page loads itself again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a browser is sent."""

    status: int
    media_type: str
    body: str
    wait_s: int | None = None
    """After how long to ask again."""


class Explorer:
    """The pages over one warehouse; safe to use from several threads."""

    def __init__(self, readers: Readers, home: Path, *, asked_s: float = ASKED_S) -> None:
        self._readers = readers
        self._home = home
        self._asked_s = asked_s

    def reply(self, path: str, query: str, *, linker: Linker | None = None, frozen: str = "") -> Reply:
        """The answer to a request. What is wrong with it is a page, too; other errors are raised."""
        if path == "/live":
            return self._live()
        if path not in PAGES and path != "/ask.csv":
            return _failed(404, "Nothing is here", f"there is no page {path[:80]!r}")
        try:
            address = Address.parse(path, query, linker)
            limit_s = self._asked_s if path.startswith("/ask") else TIMEOUT_S
            with self._readers.session(address.number("at"), timeout_s=limit_s) as session:
                look = Look(session, address, self._home)
                if path == "/ask.csv":
                    return Reply(200, CSV, ask.ask_csv(look))
                return Reply(200, HTML, render(look, PAGES[path](look), frozen=frozen))
        except tuple(STATUSES) as error:
            status = STATUSES[type(error)]
            heading = "This took too long" if isinstance(error, TookTooLong) else _HEADINGS[status]
            return _failed(status, heading, str(error), wait_s=1 if isinstance(error, PASSING) else None)

    def _live(self) -> Reply:
        with self._readers.session() as session:
            return Reply(200, JSON, json.dumps({"snapshot": session.newest}))


_HEADINGS = {400: "This address cannot be understood", 404: "Nothing is here", 503: "Not yet"}


def _failed(status: int, heading: str, message: str, wait_s: int | None = None) -> Reply:
    """A page that says what is wrong; with `wait_s` it loads itself again."""
    template = environment().get_template("failed.html")
    body = template.render(heading=heading, message=message, wait_s=wait_s)
    return Reply(status, HTML, body, wait_s)
