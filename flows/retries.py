"""Which failures are tried again: faults of the world, not faults of the request, the data or the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

RETRY_DELAYS_S = [5.0, 30.0, 120.0]
BUGS = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ImportError)


def condition(retries: int, tell: Callable[[float, str], None]) -> Callable[[Any, Any, State[Any]], bool]:
    """What Prefect asks before it tries a task again; `tell` hears how long it waits, and the cause."""
    waits = iter(RETRY_DELAYS_S[:retries])

    def worth_retrying(_task: Any, _run: Any, state: State[Any]) -> bool:
        error = state.result(raise_on_failure=False)
        if not may_pass(error):
            return False
        tell(next(waits), f"{type(error).__name__}: {error}")
        return True

    return worth_retrying


def may_pass(error: object) -> bool:
    """Whether what failed with `error` could succeed if it were tried again unchanged."""
    from tasks.engines.protocol import EngineDied
    from warehouse import StorageFull, StorageLost, WarehouseBusy, WarehouseError

    if isinstance(error, (WarehouseBusy, StorageLost, StorageFull, EngineDied)):
        return True
    return not isinstance(error, (WarehouseError, *permanent(), *BUGS))


def new_run(run_id: str) -> str:
    """What to do about a run whose settings are the cause of its end."""
    return f"continued as it is, it would end the same; with other settings: spo run --like {run_id} --set NAME=VALUE"


def settled(kind: str) -> bool:
    """Whether a run that ended with the error class of this name would end so again, however often it is continued.

    Its stored settings, or what they have led to, are the cause; what lies outside (files, models, the machine) is not.
    """
    from tasks.checkpoints.errors import UnsupportedArchitecture
    from tasks.config import ConfigError, InvalidConfig
    from tasks.problems.prompt import UnknownTemplate
    from tasks.q0.stage import NoUsablePrompt
    from tasks.train.shared.errors import NothingToTrainOn, StoppedByGuards

    unchanging = (ConfigError, InvalidConfig, UnsupportedArchitecture, UnknownTemplate, NoUsablePrompt)
    return kind in {found.__name__ for found in (*unchanging, NothingToTrainOn, StoppedByGuards)}


def permanent() -> tuple[type[Exception], ...]:
    """Errors about a configuration, a model, problems or a run, which waiting does not mend."""
    from sandbox import InvalidSuite, SandboxUnavailable
    from tasks.checkpoints.errors import EngineError
    from tasks.config import ConfigError
    from tasks.prepare.pretrain import PretrainError
    from tasks.problems.problem import ProblemError
    from tasks.run.errors import StageError
    from tasks.run.runs import UnknownRun
    from tasks.scoring.errors import ScoringError
    from tasks.train.shared import errors

    refused = (errors.Refused, errors.GuardTripped, errors.MissingReferenceValues)
    impossible = (errors.NothingToTrainOn, errors.ResumeImpossible)
    asked = (ConfigError, StageError, UnknownRun, ProblemError, InvalidSuite)
    return (*asked, EngineError, ScoringError, PretrainError, SandboxUnavailable, *refused, *impossible)
