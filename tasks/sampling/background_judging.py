"""Judging beside sampling, so that whoever samples never waits for a verdict."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from sandbox import Judgement, Submission

AT_ONCE = 128
"""Most submissions handed to the judge at a time: more than its workers, so that they always find one."""

Found = tuple[int, Judgement] | BaseException


class Judging(Protocol):
    """What judges submissions: a `sandbox.Judge`, which several threads may use."""

    def judge_stream(self, submissions: Iterable[Submission]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as they come."""
        ...


class BackgroundJudging:
    """Submissions on their way through a judge, each by itself: a slow one holds up no other."""

    def __init__(self, judge: Judging) -> None:
        self._judge = judge
        self._asked: queue.SimpleQueue[tuple[int, Submission] | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._submitted = self._taken = self._threads = 0

    def submit(self, submission: Submission) -> None:
        """Have a submission judged; positions count from 0 in the order of submission."""
        self._asked.put((self._submitted, submission))
        self._submitted += 1
        if self._threads < min(AT_ONCE, self._submitted - self._taken):
            self._threads += 1
            threading.Thread(target=self._work, name="judging", daemon=True).start()

    def ready(self) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) of what has been judged meanwhile. Raises what the judge raised."""
        while not self._found.empty() and (found := self.next()) is not None:
            yield found

    def next(self, most_s: float | None = None) -> tuple[int, Judgement] | None:
        """(position, judgement) of the next one judged, once it is; something submitted must be on its way.

        None after `most_s` seconds. Raises what the judge raised.
        """
        try:
            found = self._found.get(timeout=most_s)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        self._taken += 1
        return found

    def abandon(self) -> None:
        """Judge nothing more than what has begun; harmless at the end."""
        while not self._asked.empty():
            self._asked.get()
        for _ in range(self._threads):
            self._asked.put(None)

    def _work(self) -> None:
        try:
            while (asked := self._asked.get()) is not None:
                position, submission = asked
                ((_, judgement),) = self._judge.judge_stream([submission])
                self._found.put((position, judgement))
        except BaseException as error:  # noqa: BLE001  whoever waits for the judgements shall see it
            self._found.put(error)
