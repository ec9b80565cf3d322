"""`spo judge` tells a person what became of a program, test by test."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tasks import config
from tasks.problems.problem import rows
from tasks.problems.sources import read_file
from tasks.run import runs
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


def judge(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "problems.jsonl").write_text(json.dumps(PROBLEM))
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "flows.cli", "judge", str(folder / "program.py")]
    arguments = options or ("--problem", "sum", "--problems", str(folder / "problems.jsonl"))
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)


def test_every_test_is_numbered_from_one_and_the_first_failing_input_is_shown(tmp_path: Path):
    done = judge(tmp_path, "a, b = input().split(); print(int(a) + int(b))")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:3] == ["sum:", "3", "tests,"]
    assert [line[:3] for line in lines[2:5]] == [
        ["1", "public", "accepted"],
        ["2", "hidden", "accepted"],
        ["3", "hidden", "runtime_error"],
    ]
    assert "input of test 3:\n  5 [b]6" in done.stdout
    assert "runtime_error: 2 of 3 tests passed" in done.stdout
    assert "seccomp" in done.stdout


def test_an_accepted_program_ends_with_status_zero(tmp_path: Path):
    done = judge(tmp_path, "a, b = input().replace('[b]', '').split(); print(int(a) + int(b))")
    assert done.returncode == 0
    assert "accepted: 3 of 3 tests passed" in done.stdout


def test_a_program_that_does_not_compile_is_told_why(tmp_path: Path):
    done = judge(tmp_path, "def f(:")
    assert done.returncode == 1
    assert "compile_error: SyntaxError: invalid syntax" in done.stdout


@pytest.mark.parametrize(
    "options, words",
    [
        (("--problem", "none"), "no problem 'none'"),
        (("--problem", "sum", "--backend", "magic"), "'magic' is not one of"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, options: tuple[str, ...], words: str):
    done = judge(tmp_path, "", *options, "--problems", str(tmp_path / "problems.jsonl"))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_nothing_a_program_says_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    done = judge(tmp_path, "raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')")
    assert "owned" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_a_stored_problem_is_judged_with_the_packages_that_its_run_gave(
    public_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = public_folder
    (folder / "adding.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM))
    (problem,) = read_file(tmp_path / "problems.jsonl")
    monkeypatch.setenv("SPO_WAREHOUSE", str(tmp_path / "warehouse"))
    with Warehouse.open(str(tmp_path / "warehouse")) as store:
        tables = rows([replace(problem, packages=("adding.py",))])
        for batch in ("problems/sum", "problems/more"):  # a list of each of two runs
            store.append(batch, tables, run_id="micro-1")
        store.append("import", {"problems": tables["problems"]}, run_id="import")  # and its tests in another file
        runs.create(store, config.load(MICRO, {"sandbox.packages": [str(folder)]}, folder=Path()), origin="a")
    program = "from adding import add\na, b = input().replace('[b]', '').split(); print(add(int(a), int(b)))"
    done = judge(tmp_path, program, "--problem", "sum")
    assert "accepted: 3 of 3 tests passed" in done.stdout, done.stderr
    (folder / "adding.py").rename(folder / "gone.py")
    done = judge(tmp_path, program, "--problem", "sum")
    assert done.returncode == 2
    assert "programs for 'sum' find adding.py" in " ".join(done.stderr.replace("│", " ").split())
