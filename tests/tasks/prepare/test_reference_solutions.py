"""Test code that fails whatever a program answers says so without an own solution."""

from __future__ import annotations

from pathlib import Path

from sandbox import Judge
from tasks.prepare.reference_solutions import refused
from tasks.problems.sources import read_file
from tests.tasks.prepare.test_stage import write


def test_test_code_that_fails_for_every_program_is_named_without_an_own_solution(tmp_path: Path, judge: Judge) -> None:
    records = [
        {
            "problem_id": name,
            "statement": f"Write f, which doubles a number. This is about a {name}.",
            "style": "function",
            "entry_point": "f",
            "test_list": ["assert f(2) == 4"],
            "test_setup_code": setup,
        }
        for name, setup in (("frog", "import no_such_module"), ("violin", ""))
    ]
    found = refused(read_file(write(tmp_path / "asserts.jsonl", records)), judge)
    assert set(found) == {"frog"}
    assert found["frog"].startswith("its test code fails for every program (")
    assert "no_such_module" in found["frog"]
