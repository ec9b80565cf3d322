"""`spo judge`: one program against one problem, a verdict per test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.settings import warehouse_location

if TYPE_CHECKING:
    from tasks.problems.problem import Problem


def judge(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A Python program.")],
    problem: Annotated[str, typer.Option(help="problem_id, in the warehouse or in --problems.")],
    problems: Annotated[Path | None, typer.Option(help="JSON Lines file of problems to look in instead.")] = None,
    backend: Annotated[str, typer.Option(help="embedded or docker.")] = "embedded",
) -> None:
    """Judge a program in the sandbox and print a verdict per test."""
    from sandbox import Judge, Submission, Verdict

    suite = _find(problem, problems).suite()
    with Judge(backend, 1, stop_at_first_failure=False) as court:
        judgement = court.judge([Submission(program.read_text(encoding="utf-8"), suite)])[0]
        walls = ", ".join(court.walls)
    table = Table(box=None, pad_edge=False)
    for heading, side in (("test", "right"), ("verdict", "left"), ("CPU s", "right"), ("MiB", "right"), ("", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for test in judgement.tests:
        memory = f"{test.memory_bytes / 2**20:.1f}"
        table.add_row(str(test.index), test.verdict, f"{test.cpu_s:.3f}", memory, test.detail[-200:])
    console = Console()
    console.print(table)
    console.print(f"{judgement.verdict}: {judgement.passed} of {judgement.total} tests passed", highlight=False)
    console.print(f"walls: {walls}", highlight=False)
    raise typer.Exit(0 if judgement.verdict == Verdict.accepted else 1)


def _find(problem_id: str, path: Path | None) -> Problem:
    from tasks.config import ProblemsConfig
    from tasks.problems.problem import from_rows
    from tasks.problems.sources import read
    from warehouse import Warehouse

    if path is not None:
        config = ProblemsConfig(source="jsonl", path=str(path), train=10**6, evaluation=10**6)
        found = [problem for problem in read(config).problems if problem.problem_id == problem_id]
    else:
        with Warehouse.open(warehouse_location(), read_only=True) as store:
            newest = "SELECT * FROM problems WHERE problem_id = ? ORDER BY created_at DESC LIMIT 1"
            rows = store.rows(newest, [problem_id])
            tests = store.rows("SELECT * FROM tests WHERE problem_id = ?", [problem_id])
        found = from_rows(rows, tests)
    if not found:
        raise typer.BadParameter(f"no problem {problem_id!r} in {path or warehouse_location()}")
    return found[0]
