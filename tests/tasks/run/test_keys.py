"""What a stage's key depends on, and what names of units of work depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.config import load
from tasks.run import runs
from tasks.run.durations import duration
from tasks.run.errors import TrainingHasBegun
from tasks.run.identity import digest
from tasks.run.stage import Context, key_of, run_stage
from tasks.stages import STAGES
from tests.tasks.conftest import MICRO, Lab


def keys(lab: Lab, overrides: dict[str, Any]) -> dict[str, str]:
    """The key of every stage of the finished run, had it been configured otherwise."""
    with lab.store() as store:
        stored = runs.load_config(store, "micro-1")
        changed = load(MICRO, overrides, folder=Path())
        context = Context("micro-1", changed.model_copy(update={"recipe": stored.recipe}), store, lab.home, pin=1)
        return {name: key_of(stage, context) for name, stage in STAGES.items()}


@pytest.fixture(scope="module")
def before(finished: Lab) -> dict[str, str]:
    return keys(finished, {})


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ({}, set()),
        ({"reference.dtype": "bfloat16"}, {"prepare", "q0", "corpus", "pivotal", "train", "evaluate"}),
        # an engine may be replaced by another one: the contract of all is the same distribution
        ({"engine.max_batch": 3}, {"train"}),
        ({"engine.kind": "scripted"}, {"train"}),
        ({"train.steps": 5}, {"corpus", "train"}),
    ],
)
def test_a_stage_is_done_again_when_what_it_computes_changes(
    finished: Lab, before: dict[str, str], overrides: dict[str, Any], changed: set[str]
) -> None:
    after = keys(finished, overrides)
    assert {name for name in before if before[name] != after[name]} == changed


def test_a_unit_of_work_is_named_by_its_values_and_their_names() -> None:
    named = digest(samples=8, problems=["a", "ü"])
    assert named == digest(problems=["a", "ü"], samples=8) == "b94fb3bcae30ab7a507e0840"
    assert digest(samples=8) != digest(rollouts=8)
    assert digest(text="\ud800") != digest(text="?")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.23, "4.2 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_a_time_is_written_as_people_read_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_forced_training_that_fails_is_tried_again_and_begins_with_nothing_else(copied: Callable[[], Lab]) -> None:
    lab, tried = copied(), list[str]()
    run_id = lab.start("another")

    def body(context: Context) -> Any:
        tried.append(context.run_id)
        raise OSError("the share went away")

    stage = replace(STAGES["train"], body=body)
    lab.run(run_id, "prepare", "q0", "corpus", "pivotal")
    with lab.store() as store:
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        for again in (False, True):
            with pytest.raises(OSError):
                run_stage(stage, context, force=True, again=again)
        with pytest.raises(TrainingHasBegun):
            run_stage(stage, context, force=True)
    assert len(tried) == 2
