"""The host's side of judging: who is judged where, which tests first, and what the measured facts mean.

Expected outputs and checkers stay here. A fault of the sandbox is retried on a fresh runner and then reported as
`infra`; it never becomes a verdict about the program.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from sandbox.backends import open_backend
from sandbox.errors import RunnerLost, SandboxUnavailable
from sandbox.grading import Grader, SpecialChecker, refusal
from sandbox.records import VERSION, Judgement, Submission, Suite, Verdict, VerdictStore
from sandbox.stream import Job, Stream
from sandbox.timeouts import RunGate
from sandbox.worker import JudgeWorker

ATTEMPTS = 3
RECYCLE_AFTER = 2000
"""Submissions after which a runner is replaced, so that nothing can pile up in one."""

Mode = Literal["test", "batch"]


class Judge:
    """Judges submissions on `workers` runners; a context manager, usable from several threads.

    `mode`: `test` runs every test in a process of its own; `batch` runs several in one and decides every doubt
    again alone. `store` keeps verdicts across runs. `special` are the caller's checkers by name. `preimports` are
    modules every program finds imported already. SandboxUnavailable when the walls cannot be had.
    """

    def __init__(
        self, backend: str = "embedded", workers: int = 2, mode: Mode = "test", *, store: VerdictStore | None = None,
        stop_at_first_failure: bool = True, special: Mapping[str, SpecialChecker] | None = None,
        preimports: Sequence[str] = (), backend_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.version = VERSION
        self._store = store
        self._backend = open_backend(backend, **(backend_options or {}))
        memory = self._backend.memory_bytes
        self._grader = Grader(mode, stop_at_first_failure, dict(special or {}), RunGate(workers), memory)
        self._workers = [JudgeWorker(self._backend, preimports) for _ in range(workers)]
        try:
            self._workers[0].start()
        except SandboxUnavailable:
            self._backend.close()
            raise
        self.walls = self._workers[0].walls
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, args=(w,), daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the runners; submissions under way are finished first."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._backend.close()

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judgements in the order of the submissions."""
        found = dict(self.judge_stream(submissions))
        return [found[i] for i in range(len(submissions))]

    def judge_stream(self, submissions: Iterable[Submission]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as they come; never takes many more submissions than the workers can hold."""
        return Stream(self._jobs, self._store, 3 * len(self._workers)).run(submissions)

    # threads

    def _work(self, worker: JudgeWorker) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.done.put((job, *self._judge_one(worker, job)))
            except BaseException as error:  # noqa: BLE001  the caller's own checker or store failed: the caller shall see it
                job.done.put((job, "", error))
        worker.close()

    def _judge_one(self, worker: JudgeWorker, job: Job) -> tuple[str, Judgement]:
        """Judge on this worker; on a fault of the sandbox again on a fresh one, and in the end `infra`."""
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                if not worker.alive:
                    worker.start()
                outcome = self._grader.grade(worker, job.submission, job.known)
                worker.jobs_done += 1
                if worker.jobs_done >= RECYCLE_AFTER:
                    worker.close()
                return outcome
            except (RunnerLost, SandboxUnavailable) as error:
                fault = str(error)
                worker.close()
        return "", Judgement(Verdict.infra, 0, len(job.submission.suite.tests), detail=fault)


def judgeable(suite: Suite, special: Container[str] = ()) -> str:
    """Why a judge with the special checkers of these names cannot judge by this suite; empty when it can."""
    return refusal(suite, special)
