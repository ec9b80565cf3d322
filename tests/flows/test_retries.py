"""What is tried again, after how long, and what is not."""

from __future__ import annotations

import pytest
from prefect.client.schemas.objects import State
from prefect.states import Failed

from flows.pipeline import ways_on
from flows.retries import RETRY_DELAYS_S, condition, may_pass
from sandbox import InvalidSuite, RunnerLost
from tasks.config import InvalidConfig
from tasks.engines import EngineDied, MissingModel
from tasks.problems.prompt import UnknownTemplate
from tasks.problems.records import InvalidProblem
from tasks.q0.stage import NoUsablePrompt
from tasks.run.runs import UnknownRun
from tasks.scoring.errors import UnsupportedModel
from tasks.train.shared.errors import NothingToTrainOn, ProcessDied, StoppedByGuards
from warehouse import NotWritable, StorageLost, WarehouseBusy

PERMANENT = (
    *(InvalidConfig, MissingModel, InvalidProblem, InvalidSuite, UnsupportedModel, NotWritable, UnknownRun),
    *(NoUsablePrompt, NothingToTrainOn, StoppedByGuards, TypeError, KeyError),
)


@pytest.mark.parametrize("kind", PERMANENT)
def test_what_waiting_does_not_mend_is_not_tried_again(kind: type[Exception]) -> None:
    assert not may_pass(kind("why"))


@pytest.mark.parametrize(
    "kind", [OSError, WarehouseBusy, StorageLost, ProcessDied, RunnerLost, ConnectionError, EngineDied]
)
def test_faults_of_the_world_are_tried_again(kind: type[Exception]) -> None:
    assert may_pass(kind("why"))


def test_every_retry_is_told_with_its_wait_and_its_cause() -> None:
    told: list[tuple[float, str]] = []
    ask = condition(3, lambda wait_s, cause: told.append((wait_s, cause)))
    lost: State[object] = Failed(data=StorageLost("no answer"))
    assert [ask(None, None, lost) for _ in range(3)] == [True] * 3
    assert told == [(wait_s, "StorageLost: no answer") for wait_s in RETRY_DELAYS_S]
    assert not ask(None, None, Failed(data=NotWritable("read-only")))
    assert len(told) == 3


@pytest.mark.parametrize("kind", [InvalidConfig, UnknownTemplate, NoUsablePrompt, NothingToTrainOn, StoppedByGuards])
def test_a_run_whose_settings_are_the_cause_is_not_said_to_be_resumable(kind: type[Exception]) -> None:
    assert "resume" not in ways_on("tiny-3", "q0", kind.__name__)
    assert "spo run --like tiny-3" in ways_on("tiny-3", "q0", kind.__name__)


@pytest.mark.parametrize("kind", [MissingModel, InvalidProblem, OSError, ProcessDied])
def test_a_run_that_the_world_stopped_is_resumed(kind: type[Exception]) -> None:
    assert "spo resume tiny-3" in ways_on("tiny-3", "q0", kind.__name__)
