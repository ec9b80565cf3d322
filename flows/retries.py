"""Which failures are tried again: faults of the world, not faults of the request or of the code."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State

from tasks.config import ConfigError

RETRY_DELAYS_S = [5.0, 30.0, 120.0]
BUGS = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ImportError)


def worth_retrying(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a task that ended in `state` could succeed if it were run again."""
    from tasks.run.errors import StageError
    from tasks.train.shared.errors import Refused

    error = state.result(raise_on_failure=False)
    return not isinstance(error, (ConfigError, StageError, Refused, *BUGS))
