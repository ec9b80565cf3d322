"""`spo eval` goes through Prefect, is found again, and is compared and shown like a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.conftest import Server

PROBLEM = {
    "task_id": "Human/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


@pytest.mark.timeout(900)
def test_a_file_of_samples_is_evaluated_compared_and_shown(server: Server, tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps(PROBLEM) + "\n")
    for name, answers in (("a", ["x + x", "x"]), ("b", ["x + x", "2 * x"])):
        rows = [{"task_id": "Human/0", "completion": f"    return {answer}\n", "passed": True} for answer in answers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--set", str(problems), "--k", "1", "--k", "2"]
    first = server.spo("eval", str(tmp_path / "a.jsonl"), *asked)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "problems pass@1" in first.stdout
    assert "1 of 2 verdicts are not those of the file" in first.stdout
    assert "none of the problems is a training problem of this warehouse" in first.stdout
    assert server.spo("eval", str(tmp_path / "b.jsonl"), *asked).returncode == 0
    again = server.spo("eval", str(tmp_path / "a.jsonl"), *asked)
    assert "run eval-3" in again.stdout
    assert server.value("SELECT status FROM stages WHERE run_id = 'eval-3'") == "skipped"
    compared = server.spo("eval", "--compare", "eval-1", "eval-2")
    assert "50.0%" in compared.stdout
    assert "100.0%" in compared.stdout
    assert server.spo("report", "eval-1", "eval-2").returncode == 0
    (run,) = server.flow_runs("eval-1")
    assert run["state"]["message"].startswith("eval-1: pass@1 50.0%")


def test_what_is_missing_or_wrong_is_named_before_anything_is_submitted(server: Server, tmp_path: Path) -> None:
    lacking = server.spo("eval", "model", "--set", str(tmp_path / "nothing.jsonl"))
    assert lacking.returncode == 2
    assert "there is no file or folder" in lacking.stderr
    assert server.spo("eval", "model").returncode == 2
