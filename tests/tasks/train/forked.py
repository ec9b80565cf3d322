"""The answer of a process forked from one that has imported the trainer's libraries."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tests.fork_server import preload, process_of

preload("tests.tasks.train.preloading", "tests.tasks.train.conftest")


def answers_of(target: Callable[..., Any], *calls: Sequence[Any], timeout_s: float = 300) -> list[Any]:
    """What `target` returns for each of these arguments, in processes that run at the same time."""
    running = []
    for arguments in calls:
        ours, theirs = multiprocessing.Pipe()
        process = process_of(_answer, theirs, target, arguments)
        process.start()
        theirs.close()
        running.append((process, ours))
    answers = []
    for process, ours in running:
        with ours:
            answers.append(ours.recv() if ours.poll(timeout_s) else None)
        process.join(timeout_s)
        assert process.exitcode == 0
    return answers


def answer_of(target: Callable[..., Any], *arguments: Any) -> Any:
    """What `target` returns in a process of its own."""
    return answers_of(target, arguments)[0]


def _answer(connection: Connection, target: Callable[..., Any], arguments: Sequence[Any]) -> None:
    connection.send(target(*arguments))
    connection.close()
