"""Samples from elsewhere that the sandbox fails on are neither kept nor counted: the next evaluation judges them."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Judgement, Submission, Verdict
from tasks.config import validate
from tasks.evaluate.eval_samples import TooFewSamples
from tasks.evaluate.model_evaluation import STAGE
from tasks.report import run_history
from tasks.report.comparison import NothingToCompare, compare
from tasks.run import runs
from tasks.run.sampling import SandboxFailing
from tasks.run.stage import Context, key_of
from tests.tasks.conftest import Lab
from tests.tasks.evaluate.endpoint_stub import server
from tests.tasks.evaluate.test_model_evaluation import (
    DOUBLE,
    SQUARE,
    evaluated,
    of_file,
    samples_file,
    settings,
    write,
)
from tests.tasks.small_model import small_model
from warehouse.superseding import content

FAILED = "a compiler was killed"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "home")


@contextmanager
def failing_on(words: str) -> Generator[None]:
    """The sandbox itself fails on every program that holds these words."""
    judge = Judge.judge

    def failing(self: Judge, submissions: Sequence[Submission]) -> list[Judgement]:
        return [
            replace(found, verdict=Verdict.infra, detail=FAILED) if words in submission.program else found
            for submission, found in zip(submissions, judge(self, submissions), strict=True)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "judge", failing)
        yield


def file_settings(tmp_path: Path) -> dict[str, Any]:
    problems = write(tmp_path / "human.jsonl", [DOUBLE, SQUARE])
    return settings(problems, **of_file(samples_file(tmp_path)))


def kept(lab: Lab) -> int:
    return lab.value("SELECT count(*) FROM eval_samples")


def test_a_sandbox_that_fails_on_many_samples_stops_the_evaluation_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    with failing_on("x ** 2"), pytest.raises(SandboxFailing, match=rf"could not judge 2 of 4 programs.*\({FAILED}\)"):
        evaluated(lab, "a", file_settings(tmp_path))
    assert kept(lab) == 0
    assert evaluated(lab, "b", file_settings(tmp_path))[1].rows == 4


def test_a_few_samples_that_the_sandbox_failed_on_are_named_and_judged_the_next_time(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.run.sampling.MOST_UNSCORED", 0.5)
    with failing_on("x ** 2"), pytest.raises(TooFewSamples, match=r"all of 1 problems: 'Human/1' \(0\)"):
        evaluated(lab, "a", file_settings(tmp_path))
    assert kept(lab) == 2
    _, result = evaluated(lab, "b", file_settings(tmp_path))
    assert (result.rows, result.manifest.curve[1].value) == (2, 1.0)


def test_rows_without_a_verdict_of_older_versions_are_judged_again(lab: Lab, tmp_path: Path) -> None:
    older = Lab(tmp_path / "older")
    _, right = evaluated(older, "a", file_settings(tmp_path))
    with older.store() as store:
        rows = [content(row) | {"verdict": "infra", "reward": None} for row in store.rows("SELECT * FROM eval_samples")]
    with lab.store() as store:
        store.append("as older versions did", {"eval_samples": rows}, run_id="eval-0")
    _, again = evaluated(lab, "b", file_settings(tmp_path))
    assert (again.rows, again.manifest.curve) == (4, right.manifest.curve)
    assert lab.value("SELECT min(n) FROM evaluation_counts") == 2


def test_a_server_is_asked_again_for_what_the_sandbox_failed_on(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setattr("tasks.run.sampling.MOST_UNSCORED", 0.5)
    problems = write(tmp_path / "human.jsonl", [DOUBLE, SQUARE])
    with server(["def double(x):\n    return 2 * x", "def square(x):\n    return x**2"]) as (address, asked):
        endpoint = {"name": "m", "model": "m", "endpoint": address, "max_tokens": 50, "requests": 1}
        tree = settings(problems, subject={"kind": "endpoint", "endpoint": endpoint})
        with failing_on("x**2"), pytest.raises(TooFewSamples):
            evaluated(lab, "a", tree)
        first = len(asked)
        evaluated(lab, "b", tree)
    assert (first, len(asked), kept(lab)) == (4, 6, 4)


def test_an_evaluation_whose_samples_were_put_aside_has_no_point(lab: Lab, tmp_path: Path) -> None:
    evaluated(lab, "a", file_settings(tmp_path))
    with lab.store() as store:
        rows = store.rows("SELECT DISTINCT batch_id AS bad_batch_id, 'test' AS reason FROM eval_samples")
        store.append("bad", {"quarantine": rows}, run_id="t")
        assert run_history.read(store, lab.home, "eval-1").points == ()
        with pytest.raises(NothingToCompare, match="no policy of run 'eval-1' has been evaluated"):
            compare(store, lab.home, "eval-1", "eval-1")


def test_the_room_that_the_engine_leaves_for_prompts_is_part_of_what_is_evaluated(lab: Lab, tmp_path: Path) -> None:
    problems, model = write(tmp_path / "human.jsonl", [DOUBLE, SQUARE]), small_model(tmp_path / "model")
    described = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 16384}
    (model / "config.json").write_text(json.dumps(described))
    keys: set[str] = set()
    for name, given in (("as it is", {}), ("more", {"max_model_len": 8192})):
        engine = {"kind": "vllm", "max_response_tokens": 24, "vllm": given}
        own = {"subject": {"kind": "checkpoint"}, "reference": {"model": str(model)}, "engine": engine}
        with lab.store() as store:
            run_id = runs.create(store, validate(settings(problems, **own)), origin=name)
            keys.add(key_of(STAGE, Context(run_id, runs.load_config(store, run_id), store, lab.home)))
    assert len(keys) == 2
