"""Processes forked from one that has imported what they need, for tests that start many: an import of the trainer takes
five seconds, a fork a few milliseconds. One fork server a test process; it starts with the first process that is asked
for, and imports what the modules collected until then have named with `preload`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerProcess
from typing import Any

from tests.budget import apart

_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED: list[str] = []


def preload(*modules: str) -> None:
    """Let the fork server import these modules."""
    _PRELOADED.extend(modules)
    _CONTEXT.set_forkserver_preload(_PRELOADED)


@cache
def start() -> None:
    """Start the fork server once, and wait until it has imported everything."""
    with apart("imports"):
        process = _CONTEXT.Process(target=int)
        process.start()
        process.join()


def process_of(target: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process for `target` with the environment of now (its parent, the fork server, may be older)."""
    start()
    return _CONTEXT.Process(target=_in_environment, args=(dict(os.environ), target, arguments))


def _in_environment(environment: dict[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
