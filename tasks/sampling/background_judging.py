"""Judging in a thread of its own, so that whoever samples never waits for a verdict."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from sandbox import Judgement, Submission


class Judging(Protocol):
    """What judges a stream of submissions: a `sandbox.Judge`."""

    def judge_stream(self, submissions: Iterable[Submission]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as they come."""
        ...


class BackgroundJudging:
    """One stream of submissions on its way through a judge."""

    def __init__(self, judge: Judging) -> None:
        self._judge = judge
        self._asked: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[int, Judgement] | BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="judging", daemon=True).start()

    def submit(self, submission: Submission) -> None:
        """Have a submission judged; positions count from 0 in the order of submission."""
        self._asked.put(submission)

    def ready(self) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) of what has been judged meanwhile. Raises what the judge raised."""
        while not self._found.empty():
            found = self._found.get()
            if found is None:
                return
            yield _checked(found)

    def rest(self) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) of everything else, as they come; nothing can be submitted any more."""
        self._asked.put(None)
        while (found := self._found.get()) is not None:
            yield _checked(found)

    def abandon(self) -> None:
        """Take nothing more out of what was submitted; harmless at the end."""
        while not self._asked.empty():
            self._asked.get()
        self._asked.put(None)

    def _work(self) -> None:
        try:
            for found in self._judge.judge_stream(iter(self._asked.get, None)):
                self._found.put(found)
        except BaseException as error:  # noqa: BLE001  whoever waits for the judgements shall see it
            self._found.put(error)
        finally:
            self._found.put(None)


def _checked(found: tuple[int, Judgement] | BaseException) -> tuple[int, Judgement]:
    if isinstance(found, BaseException):
        raise found
    return found
