"""A probe says before a run whether it can learn, and its samples are Q0's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.cli.probe import lines
from tasks import config
from tasks.checks.plan import PlannedStage
from tasks.checks.probe import Probe, Responses, describe, probe
from tasks.config import RunConfig
from tasks.estimators import beta_interval
from tasks.run.stage import Amount
from tests.tasks.conftest import MICRO, Lab

STATEMENT = "Read a line with several integers and print their product, please."


def micro(**overrides: Any) -> RunConfig:
    return config.load(MICRO, overrides, folder=Path())


def test_its_samples_are_the_first_of_q0_and_a_run_draws_the_rest_alone(with_models: Lab) -> None:
    lab = with_models
    with lab.store() as store:
        found = probe(store, micro(), lab.home)
        again = probe(store, micro(), lab.home)
    assert found.drawn == 6 * 16
    assert {n for n, _ in found.known.values()} == {16}
    assert found.tokens_per_s is not None
    assert found.tokens_per_s > 0
    assert (again.drawn, again.tokens_per_s, again.known) == (0, None, found.known)
    assert {stage.stage: stage.amount.units for stage in again.work}["q0"] == 6 * (24 - 16)
    run_id = lab.start("after the probe")
    results = lab.run(run_id, "prepare", "q0")
    assert results["prepare"].skipped
    assert results["q0"].manifest.rows == 6 * (24 - 16)
    assert lab.value("SELECT count(*) FROM trajectories") == lab.value("SELECT sum(n) FROM reference_counts") == 6 * 24
    assert lab.value("SELECT count(DISTINCT trajectory_id) FROM trajectories") == 6 * 24
    assert lab.value("SELECT count(*) FROM runs WHERE run_id = 'probe'") == 0


def row(text: str, *, verdict: str = "wrong_answer", finish: str = "stop") -> dict[str, Any]:
    return {"problem_id": "a", "text": text, "verdict": verdict, "finish_reason": finish, "tokens": 10}


def test_what_responses_look_like_is_counted() -> None:
    rows = [
        row("print(1)", verdict="accepted"),
        row(f"{STATEMENT}\nprint(1)"),
        row("The answer is 7, isn't it?"),
        row(""),
        row("x = 1\ny = '", finish="length", verdict="cut_off"),
        row("print(1) ```", finish="stop"),
    ]
    assert describe(rows, {"a": STATEMENT}) == Responses(
        number=6, accepted=1, cut_off=1, not_python=3, empty=1, repeat_prompt=1, stray_fence=1, tokens=60
    )


def found(counts: list[tuple[int, int]] | None = None, **changes: int) -> Probe:
    seen = {"number": 100, "accepted": 50, "cut_off": 0, "not_python": 0, "empty": 0, "repeat_prompt": 0}
    responses = Responses(**(seen | {"stray_fence": 0, "tokens": 4000} | changes))
    known = {str(number): pair for number, pair in enumerate(counts or [(16, 8)] * 16)}
    work = (
        PlannedStage("q0", False, Amount(1000, "samples"), None),
        PlannedStage("train", False, Amount(60, "steps"), None),
        PlannedStage("evaluate", False, Amount(10, "samples"), 7.0),
    )
    return Probe(known, responses, 256, 64.0, 1000.0, work)


def test_a_healthy_probe_warns_of_nothing_and_predicts_what_samples() -> None:
    healthy = found()
    assert healthy.warnings() == []
    assert [healthy.seconds_of(stage) for stage in healthy.work] == [250.0, None, 7.0]
    assert healthy.learnable == (16, *beta_interval(16, 16))


def test_programs_to_be_judged_and_what_nobody_has_counted_have_no_time_from_a_probe() -> None:
    judged = PlannedStage("corpus", False, Amount(9600, "responses", "9600 known programs in a first round"), None)
    uncounted = PlannedStage("corpus", False, Amount(0, "responses", open_ended=True), None, "not counted yet")
    told = replace(found(), work=(judged, uncounted))
    assert [told.seconds_of(stage) for stage in told.work] == [None, None]
    assert "corpus     9,600 responses: never measured here" in lines(told)
    assert "corpus     0 responses: not counted yet" in lines(told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cut_off": 60}, "never stop"),
        ({"cut_off": 20}, "raise engine.max_response_tokens"),
        ({"not_python": 30, "empty": 4}, "no Python program (4 are empty)"),
        ({"repeat_prompt": 20}, "repeat the task"),
        ({"stray_fence": 20}, "code block was not understood"),
    ],
)
def test_what_looks_wrong_is_said_with_what_to_do(changes: dict[str, int], words: str) -> None:
    (warning,) = found(**changes).warnings()
    assert words in warning


@pytest.mark.parametrize(("k", "words"), [(0, "easier problems"), (16, "harder problems")])
def test_prompts_that_cannot_teach_are_told(k: int, words: str) -> None:
    (warning,) = found([(16, k)] * 16).warnings()
    assert "0 of 16 prompts" in warning
    assert words in warning
