"""Files that a run would stumble over are named before it is submitted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tasks import config
from tasks.engines.protocol import MissingModel
from tasks.input_files import check_files
from tasks.problems.records import InvalidProblem, read_records

PROBLEM = {"problem_id": "a", "statement": "Print 1.", "tests": [{"input": "", "output": "1"}]}
RESPONSE = {"problem_id": "a", "program": "print(1)"}


def check(problems: dict[str, Any] | None = None, **sections: Any) -> None:
    check_files(config.validate({"problems": problems or {}} | sections))


def lines(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_what_can_be_read_is_taken(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", PROBLEM)
    sets = [{"source": "jsonl", "path": lines(tmp_path / "t.jsonl", PROBLEM | {"problem_id": "b"})}]
    check({"source": "jsonl", "path": path, "evaluation_sets": sets})
    check(corpus={"files": [lines(tmp_path / "r.jsonl", RESPONSE)]})
    check({"source": "taco", "hub": "BAAI/TACO"})
    check()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem, match=r"absent\.jsonl: cannot be read"):
        check({"source": "jsonl", "path": str(tmp_path / "absent.jsonl")})
    with pytest.raises(InvalidProblem, match=r"absent\.jsonl: cannot be read"):
        check(corpus={"files": [str(tmp_path / "absent.jsonl")]})
    with pytest.raises(InvalidProblem, match="is no folder of problem packages"):
        check({"source": "kattis", "path": str(tmp_path / "absent")})


def test_a_record_of_another_layout_is_named_with_line_and_field(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", PROBLEM, {"problem_id": "b"})
    with pytest.raises(InvalidProblem, match=r"p\.jsonl:2: field 'statement'"):
        check({"source": "jsonl", "path": path})
    with pytest.raises(InvalidProblem, match=r"r\.jsonl:1: field"):
        check(corpus={"files": [lines(tmp_path / "r.jsonl", {"problem_id": "a"})]})


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_text_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    good = json.dumps(PROBLEM).encode()
    content = b"\n".join([good] * 300 + [good.replace(b"Print", b"Pr\xefnt")])
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InvalidProblem, match=rf"{name}:301: not UTF-8.*0xef"):
        check({"source": "jsonl", "path": str(path)})
    with pytest.raises(InvalidProblem, match=rf"{name}:301: not UTF-8"):
        list(read_records(path))


def test_a_package_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "sum").mkdir()
    (tmp_path / "sum" / "problem.yaml").write_text("name: Sum\n", encoding="utf-8")
    with pytest.raises(InvalidProblem, match="sum"):
        check({"source": "kattis", "path": str(tmp_path)})


def test_a_model_given_as_a_path_must_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MissingModel, match="no checkpoint folder"):
        check(reference={"model": str(tmp_path / "absent")})
    with pytest.raises(MissingModel, match=r"no config\.json"):
        check(reference={"model": str(tmp_path)})
    with pytest.raises(MissingModel, match=r"other\.gguf"):
        check(reference={"model": str(tmp_path), "gguf_file": "other.gguf"})
    check(reference={"model": "somebody/on-the-hub"})


def test_a_large_file_is_looked_at_for_a_while_only(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines(path, *[PROBLEM | {"problem_id": str(i)} for i in range(500)])
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken")
    run = config.validate({"problems": {"source": "jsonl", "path": str(path)}})
    seconds = iter(range(1000))
    check_files(run, clock=lambda: float(next(seconds)))
    assert next(seconds) < 10, "a second passed with every record, and two were granted"
    with pytest.raises(InvalidProblem, match=r"p\.jsonl:501: not valid JSON"):
        check_files(run, clock=lambda: 0.0)
