"""Samples from elsewhere that the sandbox fails on are neither kept nor counted: the next evaluation judges them."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tasks.config import validate
from tasks.evaluate.eval_samples import TooFewSamples
from tasks.evaluate.model_evaluation import STAGE
from tasks.run import runs
from tasks.run.sampling import SandboxFailing
from tasks.run.stage import Context, key_of
from tests.tasks.conftest import Lab, judgements_lost
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

FAILED = "a compiler was killed"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a batch may stay without a verdict."""
    monkeypatch.setattr("tasks.run.sampling.MOST_UNSCORED", 0.5)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "home")


def failing_on(words: str) -> AbstractContextManager[None]:
    """The sandbox itself fails on every program that holds these words."""
    return judgements_lost(lambda given: {n for n, one in enumerate(given) if words in one.program}, FAILED)


def file_settings(tmp_path: Path) -> dict[str, Any]:
    problems = write(tmp_path / "human.jsonl", [DOUBLE, SQUARE])
    return settings(problems, **of_file(samples_file(tmp_path)))


def kept(lab: Lab) -> int:
    return lab.value("SELECT count(*) FROM eval_samples")


def test_a_sandbox_that_fails_on_many_samples_stops_the_evaluation_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    with failing_on("x ** 2"), pytest.raises(SandboxFailing):
        evaluated(lab, "a", file_settings(tmp_path))
    assert kept(lab) == 0
    assert evaluated(lab, "b", file_settings(tmp_path))[1].rows == 4


@pytest.mark.usefixtures("patient")
def test_a_few_samples_that_the_sandbox_failed_on_are_named_and_judged_the_next_time(lab: Lab, tmp_path: Path) -> None:
    with failing_on("x ** 2"), pytest.raises(TooFewSamples):
        evaluated(lab, "a", file_settings(tmp_path))
    assert kept(lab) == 2
    _, result = evaluated(lab, "b", file_settings(tmp_path))
    assert (result.rows, result.manifest.curve[1].value) == (2, 1.0)


@pytest.mark.usefixtures("patient")
def test_a_server_is_asked_again_for_what_the_sandbox_failed_on(lab: Lab, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    problems = write(tmp_path / "human.jsonl", [DOUBLE, SQUARE])
    with server(["def double(x):\n    return 2 * x", "def square(x):\n    return x**2"]) as (address, asked):
        endpoint = {"name": "m", "model": "m", "endpoint": address, "max_tokens": 50, "requests": 1}
        tree = settings(problems, subject={"kind": "endpoint", "endpoint": endpoint})
        with failing_on("x**2"), pytest.raises(TooFewSamples):
            evaluated(lab, "a", tree)
        first = len(asked)
        evaluated(lab, "b", tree)
    assert (first, len(asked), kept(lab)) == (4, 6, 4)


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
