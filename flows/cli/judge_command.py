"""`spo judge`: one program against one problem, a verdict per test."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.settings import warehouse_location, warehouse_shown

if TYPE_CHECKING:
    from sandbox import Judgement
    from tasks.config import SandboxConfig
    from tasks.problems.problem import Problem

SHOWN_LINES, SHOWN_WIDTH = 12, 100
"""Of the input of the first test that failed."""


class BackendChoice(StrEnum):
    """Backends of the sandbox."""

    embedded = "embedded"
    docker = "docker"


def judge(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A Python program.")],
    problem: Annotated[str, typer.Option(help="Problem id, in the warehouse or in --problems.")],
    problems: Annotated[
        Path | None, typer.Option(help="JSON Lines file of problems, instead of the warehouse.")
    ] = None,
    backend: Annotated[BackendChoice, typer.Option(help="Backend of the sandbox.")] = BackendChoice.embedded,
) -> None:
    """Judge a program in the sandbox and print a verdict per test. Exit status 0 if it is accepted."""
    from sandbox import Judge, Submission, Verdict

    found, settings = _find(problem, problems)
    settings = settings.model_copy(update={"backend": str(backend), "workers": 1, "mode": "test"})
    with Judge(**settings.judge_arguments(), stop_at_first_failure=False) as court:
        judgement = court.judge([Submission(program.read_text("utf-8", "surrogateescape"), found.suite())])[0]
        walls = ", ".join(court.walls)
    console = Console(highlight=False, soft_wrap=True)
    limits, rule = found.limits, "asserts" if found.style == "function" else f"the rule `{found.checker.kind}`"
    console.print(
        f"{found.problem_id}: {len(found.tests)} test{'s' * (len(found.tests) != 1)}, each with at most "
        f"{limits.cpu_s:g} s of CPU time and {limits.memory_bytes >> 20} MiB, judged by {rule}"
    )
    if found.unjudgeable_reason:
        console.print(f"runs leave this problem out: {found.unjudgeable_reason}")
    if judgement.tests:
        console.print(_table(judgement, len(found.public_tests)))
        _show_first_failure(console, judgement, found)
    _show_verdict(console, judgement)
    console.print(f"walls: {walls}")
    raise typer.Exit(0 if judgement.verdict == Verdict.accepted else 1)


def _table(judgement: Judgement, public: int) -> Table:
    """A line per test; the first `public` ones are those that the statement shows."""
    table = Table(box=None, pad_edge=False)
    for heading, side in (("test", "right"), ("", "left"), ("verdict", "left"), ("CPU s", "right"), ("MiB", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    table.add_column("", overflow="fold")
    for test in judgement.tests:
        figures = f"{test.cpu_s:.3f}", f"{test.memory_bytes / 2**20:.1f}"
        kind = "public" if test.index < public else "hidden"
        table.add_row(
            str(test.index + 1), kind, _coloured(test.verdict), *figures, escape(_printable(test.detail[-200:]))
        )
    return table


def _show_first_failure(console: Console, judgement: Judgement, problem: Problem) -> None:
    failed = next((test for test in judgement.tests if test.verdict != "accepted"), None)
    if failed is None:
        return
    lines = problem.tests[failed.index].input.splitlines()
    console.print(f"\ninput of test {failed.index + 1}:")
    for line in lines[:SHOWN_LINES]:
        console.print("  " + escape(_printable(line[:SHOWN_WIDTH])) + ("..." if len(line) > SHOWN_WIDTH else ""))
    if len(lines) > SHOWN_LINES:
        console.print(f"  ... ({len(lines)} lines)")


def _printable(text: str) -> str:
    """The text without what a terminal would obey: programs and data sets choose it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _show_verdict(console: Console, judgement: Judgement) -> None:
    passed = f"{judgement.passed} of {judgement.total} tests passed"
    reason = "" if judgement.tests else escape(_printable(judgement.detail))
    console.print(f"\n{_coloured(judgement.verdict)}: {reason or passed}")


def _coloured(verdict: str) -> str:
    colour = {"accepted": "green", "infra": "yellow"}.get(verdict, "red")
    return f"[{colour}]{verdict}[/]"


def _find(problem_id: str, path: Path | None) -> tuple[Problem, SandboxConfig]:
    """The problem, and the sandbox in which programs find the packages that it was stored with."""
    from tasks.config import SandboxConfig
    from tasks.problems.problem import problems_from_rows
    from tasks.problems.sources import read_file
    from tasks.run.stored_suites import settings_for
    from warehouse import Warehouse
    from warehouse.queries import query

    settings: dict[tuple[str, ...], SandboxConfig] = {(): SandboxConfig()}
    if path is not None:  # no file says which packages its problems need
        found = [one for one in read_file(path) if one.problem_id == problem_id]
    else:
        with Warehouse.open(warehouse_location(), read_only=True) as store:
            newest = "SELECT * FROM problems WHERE problem_id = ? ORDER BY arrival DESC LIMIT 1"
            rows = store.rows(newest, [problem_id])
            tests = store.rows(query(__name__, "tests"), [problem_id, rows[0]["suite_hash"]]) if rows else []
            found = problems_from_rows(rows, tests)
            settings = settings_for(store, [one.packages for one in found])
    if not found:
        raise typer.BadParameter(f"no problem {problem_id!r} in {path or warehouse_shown()}")
    if found[0].packages not in settings:
        raise typer.BadParameter(
            f"programs for {problem_id!r} find {', '.join(found[0].packages)}, which no run's sandbox.packages has "
            f"here; put the folder back, or judge with --problems FILE, without packages"
        )
    return found[0], settings[found[0].packages]
