"""`spo judge` tells a person what became of a program, test by test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from tasks import config
from tasks.problems.problem import rows
from tasks.problems.sources import read_file
from tasks.run import runs
from tests.flows.cli.conftest import USAGE, Spo, code
from tests.tasks.conftest import MICRO
from warehouse import Warehouse

PROBLEM = {
    "problem_id": "sum",
    "title": "Sum",
    "statement": "Add two numbers.",
    "public_tests": [{"input": "1 2\n", "output": "3\n"}],
    "input_tests": ["2 3\n", "5 [b]6\n"],
    "output_tests": ["5\n", "11\n"],
    "checker": {"type": "kattis_default"},
    "time_limit_s": 1.0,
    "memory_limit_mb": 256,
    "solutions": [],
}
RIGHT = "a, b = input().replace('[b]', '').split(); print(int(a) + int(b))"


@pytest.fixture
def judge(tmp_path: Path, spo: Spo) -> Callable[..., Result]:
    """`spo judge` on a program, by default for the problem in a file."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM))

    def judged(program: str, *options: str) -> Result:
        (tmp_path / "program.py").write_text(program)
        arguments = options or ("--problem", "sum", "--problems", str(tmp_path / "problems.jsonl"))
        return spo("judge", str(tmp_path / "program.py"), *arguments)

    return judged


@pytest.mark.parametrize(
    ("program", "status", "tests", "verdict"),
    [
        (RIGHT, 0, ["accepted"] * 3, "accepted"),
        (RIGHT.replace(".replace('[b]', '')", ""), 1, ["accepted", "accepted", "runtime_error"], "runtime_error"),
        ("def f(:", 1, [], "compile_error"),
    ],
)
def test_every_test_is_numbered_from_one_with_its_verdict_and_the_first_failing_input_is_shown(
    program: str, status: int, tests: list[str], verdict: str, judge: Callable[..., Result]
) -> None:
    done = judge(program)
    assert done.exit_code == status
    listed = re.findall(r"^\s*(\d) +(public|hidden) +(\w+)", done.stdout, flags=re.MULTILINE)
    assert listed == list(zip("123", ("public", "hidden", "hidden"), tests, strict=False))
    assert ("  5 [b]6" in done.stdout.splitlines()) is ("runtime_error" in tests)
    assert f"\n{verdict}: " in done.stdout


def test_a_mistake_is_named(judge: Callable[..., Result], tmp_path: Path) -> None:
    for options in (("--problem", "none"), ("--problem", "sum", "--backend", "magic")):
        assert code(judge("", *options, "--problems", str(tmp_path / "problems.jsonl"))) == USAGE


def test_nothing_a_program_says_reaches_the_terminal_as_it_is(judge: Callable[..., Result]) -> None:
    done = judge("raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')")
    assert "owned" in done.stdout
    assert not {"\x1b", "\x07"} & set(done.stdout)


def test_a_stored_problem_is_judged_with_the_packages_that_its_run_gave(
    public_folder: Path, tmp_path: Path, judge: Callable[..., Result]
) -> None:
    (public_folder / "adding.py").write_text("def add(a, b):\n    return a + b\n")
    (problem,) = read_file(tmp_path / "problems.jsonl")
    with Warehouse.open(str(tmp_path / "warehouse")) as store:
        tables = rows([replace(problem, packages=("adding.py",))])
        for batch in ("problems/sum", "problems/more"):  # a list of each of two runs
            store.append(batch, tables, run_id="micro-1")
        store.append("import", {"problems": tables["problems"]}, run_id="import")  # and its tests in another file
        runs.create(store, config.load(MICRO, {"sandbox.packages": [str(public_folder)]}, folder=Path()), origin="a")
    program = "from adding import add\n" + RIGHT.replace("int(a) + int(b)", "add(int(a), int(b))")
    assert code(judge(program, "--problem", "sum")) == ""
    (public_folder / "adding.py").rename(public_folder / "gone.py")
    refused = judge(program, "--problem", "sum")
    assert code(refused) == USAGE
    assert "adding.py" in refused.output
