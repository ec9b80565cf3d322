"""Bad input is refused with a message that names it, and leaves the warehouse as it was."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tasks.config import load
from tasks.engines import MissingModel
from tasks.prepare.stage import NoUsableProblems
from tasks.problems.problem import ProblemError
from tasks.problems.prompt import FEW_SHOT
from tasks.problems.sources import read
from tasks.run.manifests import PrepareManifest
from tasks.run.stage import StageResult
from tests.tasks.conftest import MICRO, Lab


def problem(number: int, **changes: Any) -> dict[str, Any]:
    subject = ["frog", "harbour", "violin", "glacier", "teapot", "lantern", "walnut", "comet"][number % 8]
    return {
        "problem_id": f"{subject}-{number}",
        "statement": f"Read an integer. Print it plus {number}. This is about a {subject}.",
        "public_tests": [{"input": "1\n", "output": f"{1 + number}\n"}],
        "input_tests": ["5\n", "70\n"],
        "output_tests": [f"{5 + number}\n", f"{70 + number}\n"],
        "solutions": [{"code": f"print(int(input()) + {number})", "language": "python3", "correct": True}],
    } | changes


def write(path: Path, records: list[Any]) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def prepare(lab: Lab, path: Path, **overrides: Any) -> PrepareManifest:
    problems = {"source": "jsonl", "path": str(path), "train": 4, "evaluation": 2, "max_prompt_tokens": 512}
    run_id = lab.start(str(path) + str(overrides), {"problems": problems, **overrides})
    return lab.run(run_id, "prepare")["prepare"].manifest


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("{not json", "bad.jsonl:3"),
        (problem(3, output_tests=["1\n"]), "output_tests"),
        ({"statement": "no id"}, "problem_id"),
        (problem(1), "occurs before"),
    ],
)
def test_a_malformed_file_is_refused_by_line_and_field(
    with_models: Lab, tmp_path: Path, broken: Any, words: str
) -> None:
    path = write(tmp_path / "bad.jsonl", [problem(1), problem(2), broken])
    with pytest.raises(ProblemError, match=words) as refused:
        prepare(with_models, path)
    assert "bad.jsonl:3" in str(refused.value)
    assert with_models.value("SELECT count(*) FROM problems") == 0
    assert with_models.value("SELECT count(*) FROM run_events WHERE kind = 'failed'") == 1


def test_a_missing_file_is_named(with_models: Lab, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"nowhere\.jsonl"):
        prepare(with_models, tmp_path / "nowhere.jsonl")


def test_a_missing_model_is_named(with_models: Lab, tmp_path: Path) -> None:
    path = write(tmp_path / "fine.jsonl", [problem(n) for n in range(8)])
    with pytest.raises(MissingModel, match="no-such-model"):
        prepare(with_models, path, reference={"model": str(tmp_path / "no-such-model")})
    assert with_models.value("SELECT count(*) FROM policies") == 0


@pytest.fixture
def long_model(with_models: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A model with positions for any prompt."""
    monkeypatch.setattr("tasks.engines.positions.most_positions", lambda _: None)
    return with_models


def test_prompts_that_leave_no_room_for_a_response_are_left_out(with_models: Lab, tmp_path: Path) -> None:
    records = [problem(n, statement="Print 1." if n < 8 else "Print one more." * 40) for n in range(12)]
    path = write(tmp_path / "mixed.jsonl", records)
    problems = {"source": "jsonl", "path": str(path), "train": 12, "evaluation": 0}
    manifest = prepare(with_models, path, problems=problems, engine={"max_response_tokens": 100})
    assert manifest.left_out == {
        "prompt longer than 156 tokens: the engine has 256 positions, of which engine.max_response_tokens takes 100": 4
    }


def test_too_long_prompts_make_room_for_shorter_ones(long_model: Lab, tmp_path: Path) -> None:
    records = [problem(n) for n in range(24)]
    for record in records[::2]:
        record["statement"] += " and so on" * 2000
    path = tmp_path / "mixed.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    manifest = prepare(long_model, path, problems={"source": "jsonl", "path": str(path), "train": 2, "evaluation": 2})
    assert manifest.left_out["prompt longer than 512 tokens"] >= 1
    assert long_model.value("SELECT count(*) FROM prompts") == 4


def test_no_problem_left_says_why(long_model: Lab, tmp_path: Path) -> None:
    path = write(tmp_path / "long.jsonl", [problem(n, statement="word " * 4000) for n in range(6)])
    with pytest.raises(NoUsableProblems, match="prompt longer than 512 tokens"):
        prepare(long_model, path)


def test_a_training_problem_in_the_evaluation_set_is_taken_out_and_listed(long_model: Lab, tmp_path: Path) -> None:
    texts = [
        " ".join(f"{'abcdefgh'[pair]}{chr(97 + n // 8)}{chr(97 + n % 8)}q" for n in range(60)) for pair in range(8)
    ]
    records = [problem(n, statement=f"{texts[n // 2]} number {n}") for n in range(16)]
    path = write(tmp_path / "twins.jsonl", records)
    problems = {"source": "jsonl", "path": str(path), "train": 8, "evaluation": 8}
    manifest = prepare(long_model, path, problems=problems)
    removed = {pair.train_id for pair in manifest.overlaps}
    assert len(removed) == manifest.left_out["training problem that is an evaluation problem"] > 0
    assert all(pair.reason for pair in manifest.overlaps)


def solutions(*programs: str) -> list[dict[str, Any]]:
    return [{"code": program, "language": "python3", "correct": True} for program in programs]


def test_a_problem_whose_own_solutions_fail_is_left_out_with_the_reason(with_models: Lab, tmp_path: Path) -> None:
    records = [problem(n) for n in range(8)]
    for record in records[:3]:
        record["solutions"] = solutions("print(int(input()) - 1)", "1 / 0")
    records[3]["solutions"] = solutions("print(0)", f"print(int(input()) + {3})")
    records[4]["solutions"] = []
    path = write(tmp_path / "mixed.jsonl", records)
    manifest = prepare(with_models, path, **{"problems.train": 8, "problems.evaluation": 0})
    assert manifest.left_out == {"its own solution is judged wrong_answer": 3}
    asked = "SELECT problem_id FROM problems WHERE unjudgeable_reason LIKE 'its own solution is judged wrong_answer (%'"
    with with_models.store() as store:
        assert {row["problem_id"] for row in store.rows(asked)} == {record["problem_id"] for record in records[:3]}
    verdicts = with_models.value("SELECT count(*) FROM verdicts")
    assert verdicts == 3 * 2 + 2 + 3, "two of each that fails, both of the one whose second is right, one of the others"
    again = prepare(with_models, path, **{"problems.train": 7, "problems.evaluation": 0})
    assert again.rows <= 4
    assert with_models.value("SELECT count(*) FROM verdicts") == verdicts, "nothing is judged twice"


def test_tests_that_compare_a_programs_own_objects_with_values_are_left_out(with_models: Lab, tmp_path: Path) -> None:
    own = "class P:\n    def __init__(self, n): self.n = n\n    def __lt__(self, o): return True\ndef f(n): return P(n)"
    asserts = {"style": "function", "entry_point": "f", "test_list": ["assert f(1) < 2"], "test_setup_code": ""}
    record = problem(0) | asserts | {"solutions": solutions(own)}
    for name in ("input_tests", "output_tests", "public_tests"):
        del record[name]
    path = write(tmp_path / "mixed.jsonl", [record, *(problem(n) for n in range(1, 6))])
    manifest = prepare(with_models, path, **{"problems.train": 6, "problems.evaluation": 0})
    (reason,) = manifest.left_out
    assert reason.startswith("its own solution is judged ")


def test_few_problems_of_a_built_in_set_stay_although_their_phrases_are_alike(with_models: Lab) -> None:
    run_id = with_models.start("basics", {"problems": {"source": "basics", "train": 12, "evaluation": 6}})
    manifest = with_models.run(run_id, "prepare")["prepare"].manifest
    assert (manifest.rows, manifest.overlaps) == (18, ())


def test_another_version_of_the_template_renders_the_prompts_anew(
    long_model: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "set.jsonl", [problem(number) for number in range(8)])
    problems = {"source": "jsonl", "path": str(path), "train": 4, "evaluation": 2, "max_prompt_tokens": 512}

    def prepared(name: str) -> StageResult[PrepareManifest]:
        run_id = long_model.start(name, {"problems": problems, "reference": {"template": "few_shot"}})
        return long_model.run(run_id, "prepare")["prepare"]

    first = prepared("first")
    assert prepared("same").skipped
    monkeypatch.setattr("tasks.problems.prompt.FEW_SHOT", "few_shot-99")
    again = prepared("again")
    assert not again.skipped
    assert (first.manifest.template_id, again.manifest.template_id) == (FEW_SHOT, "few_shot-99")


def test_a_file_with_other_solutions_is_read_anew(with_models: Lab, tmp_path: Path) -> None:
    path, records = tmp_path / "set.jsonl", [problem(number) for number in range(8)]
    records[0]["solutions"] = solutions("print(0)")
    problems = {"source": "jsonl", "path": str(path), "train": 8, "evaluation": 0}

    def prepared(name: str) -> StageResult[PrepareManifest]:
        write(path, records)
        return with_models.run(with_models.start(name, {"problems": problems}), "prepare")["prepare"]

    wrong = prepared("wrong")
    records[0]["solutions"] = solutions("print(int(input()))")
    right = prepared("right")
    assert (wrong.manifest.rows, right.manifest.rows) == (7, 8)
    records[1]["solutions"] += solutions("print(1 + int(input()))")
    more = prepared("more")
    assert not more.skipped
    asked = "SELECT count(*) FROM solutions WHERE batch_id = ?"
    with with_models.store() as store:
        assert store.value(asked, [more.manifest.problems_batch]) == 9
    assert prepared("same").skipped


def test_a_problem_that_took_the_place_of_too_long_ones_is_seen_when_it_changes(
    with_models: Lab, tmp_path: Path
) -> None:
    path, records = tmp_path / "set.jsonl", [problem(number) for number in range(24)]
    for record in records[::2]:
        record["statement"] += " and so on" * 2000
    asked = {"source": "jsonl", "path": str(path), "train": 4, "evaluation": 2, "max_prompt_tokens": 512}

    def prepared(name: str) -> StageResult[PrepareManifest]:
        write(path, records)
        return with_models.run(with_models.start(name, {"problems": asked}), "prepare")["prepare"]

    def suites(result: StageResult[PrepareManifest]) -> dict[str, str]:
        with with_models.store() as store:
            asked = "SELECT problem_id, suite_hash FROM problems WHERE batch_id = ?"
            rows = store.rows(asked, [result.manifest.problems_batch])
        return {row["problem_id"]: row["suite_hash"] for row in rows}

    first = suites(prepared("first"))
    chosen = {one.problem_id for one in read(load(MICRO, {"problems": asked}, folder=Path()).problems).problems}
    spare = min(set(first) - chosen)
    (record,) = [record for record in records if record["problem_id"] == spare]
    record |= {"output_tests": ["999\n", "998\n"], "solutions": []}
    changed = suites(prepared("changed"))
    assert {name for name in first if changed[name] != first[name]} == {spare}
    assert prepared("same").skipped


def test_packages_that_are_installed_later_are_seen(with_models: Lab, tmp_path: Path, public_folder: Path) -> None:
    code = "from later import plus\nprint(plus(int(input())))"
    path = write(tmp_path / "set.jsonl", [problem(n, solutions=solutions(code) if n == 1 else []) for n in range(4)])
    folder = public_folder
    wanted = {
        "problems": {"source": "jsonl", "path": str(path), "train": 4, "evaluation": 0},
        "sandbox": {"packages": [str(folder)]},
    }

    def prepared(name: str) -> StageResult[PrepareManifest]:
        return with_models.run(with_models.start(name, wanted), "prepare")["prepare"]

    assert prepared("without").manifest.rows == 3
    (folder / "later.py").write_text("def plus(n): return n + 1\n", encoding="utf-8")
    (folder / "later-1.0.dist-info").mkdir()
    (folder / "later-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    assert prepared("with").manifest.rows == 4
    assert prepared("same").skipped
