"""One submission on one runner: the order of its tests, and what the measured facts mean."""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

from sandbox.checker import compare, suite_tolerance
from sandbox.errors import InvalidSuite
from sandbox.records import Judgement, Limits, Submission, Suite, TestResult, Verdict
from sandbox.runner import ENDED_ASLEEP, ENDED_CPU, ENDED_WALL
from sandbox.worker import Report, Worker

SpecialChecker = Callable[[str, str, str], str]
"""(input, output, expected) -> why the output is wrong; empty when it is right."""
LARGEST_CHUNK = 32
"""Most tests ordered at once: what may be run in vain after a failure."""
LARGEST_GROUP = 64
"""Most tests in one process in batch mode."""
SUITES_REMEMBERED = 4096
PATIENCE = 4
"""A test that was still computing at its wall-clock cap is tried again with this many times the cap."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What comparing needs, made once per suite."""

    expected: tuple[bytes, ...]
    tolerance: float | None


class Examiner:
    """Decides verdicts; remembers per suite which tests failed, so that later samples meet those first."""

    def __init__(
        self, mode: Literal["test", "batch"], stop_at_first_failure: bool, special: Mapping[str, SpecialChecker]
    ) -> None:
        self._mode, self._stop, self._special = mode, stop_at_first_failure, special
        self._failures: OrderedDict[str, dict[int, int]] = OrderedDict()
        self._facts: OrderedDict[str, Facts] = OrderedDict()
        self._lock = threading.Lock()

    def examine(
        self, worker: Worker, submission: Submission, known: Callable[[str], Judgement | None]
    ) -> tuple[str, Judgement]:
        """(code hash, judgement). InvalidSuite when the suite cannot be judged; RunnerLost when the runner is lost."""
        suite = submission.suite
        reason = self.refusal(suite)
        if reason:
            raise InvalidSuite(f"suite {suite.suite_id!r}: {reason}")
        compiled = worker.compile(submission.program, suite.limits)
        if compiled.error:
            return "", Judgement(Verdict.compile_error, 0, len(suite.tests), detail=compiled.error)
        earlier = known(compiled.code_hash)
        if earlier is not None:
            return compiled.code_hash, replace(earlier, reused=True)
        return compiled.code_hash, self._summary(suite, self._run_tests(worker, suite))

    def refusal(self, suite: Suite) -> str:
        """Why the suite cannot be judged; empty if it can."""
        if suite.checker.kind == "special" and suite.checker.name not in self._special:
            return f"no special checker {suite.checker.name!r} was given to the judge"
        return unjudgeable(suite)

    # running

    def _run_tests(self, worker: Worker, suite: Suite) -> dict[int, TestResult]:
        """Results by test index, in the order they came about."""
        results: dict[int, TestResult] = {}
        todo, size = self._order(suite), 1
        while todo:
            for index, report in self._reports(worker, suite, todo[:size], suite.limits):
                results[index] = self._settle(worker, suite, index, report)
                if self._stop and results[index].verdict is not Verdict.accepted:
                    self._note_failure(suite, index)
                    return results
            todo = [index for index in todo if index not in results]
            size = min(2 * size, LARGEST_CHUNK)
        return results

    def _reports(
        self, worker: Worker, suite: Suite, indices: Sequence[int], limits: Limits
    ) -> Iterator[tuple[int, Report]]:
        run = worker.run(
            suite, indices, limits, per_fork=1, stop=self._stop, inputs=lambda index: suite.tests[index].input
        )
        with closing(run):
            yield from run

    def _settle(self, worker: Worker, suite: Suite, index: int, report: Report) -> TestResult:
        """The test's result; a program stopped by the wall clock while computing gets a longer second try later."""
        return self._result(suite, index, report)

    def _result(self, suite: Suite, index: int, report: Report) -> TestResult:
        verdict, detail = outcome(report, suite.limits)
        if verdict is Verdict.accepted:
            detail = self._compare(suite, index, report.out)
            verdict = Verdict.wrong_answer if detail else Verdict.accepted
        return TestResult(index, verdict, report.cpu_s, report.wall_s, report.memory_bytes, detail)

    def _compare(self, suite: Suite, index: int, output: bytes) -> str:
        test = suite.tests[index]
        if suite.checker.kind == "special":
            text = output.decode("utf-8", "replace")
            return self._special[suite.checker.name](test.input, text, test.expected)
        facts = self._facts_of(suite)
        return compare(output, facts.expected[index], suite.checker, facts.tolerance)

    def _summary(self, suite: Suite, results: dict[int, TestResult]) -> Judgement:
        failed = [r for r in results.values() if r.verdict is not Verdict.accepted]
        if not self._stop:
            failed.sort(key=lambda result: result.index)
        tests = tuple(results[index] for index in sorted(results))
        return Judgement(
            verdict=failed[0].verdict if failed else Verdict.accepted,
            passed=len(results) - len(failed),
            total=len(suite.tests),
            cpu_s=sum(result.cpu_s for result in tests),
            memory_bytes=max((result.memory_bytes for result in tests), default=0),
            detail=f"test {failed[0].index + 1}: {failed[0].detail}" if failed else "",
            tests=tests,
        )

    # memory

    def _order(self, suite: Suite) -> list[int]:
        with self._lock:
            failures = self._failures.get(suite.suite_id, {})
            return sorted(range(len(suite.tests)), key=lambda index: -failures.get(index, 0))

    def _note_failure(self, suite: Suite, index: int) -> None:
        with self._lock:
            counts = self._failures.setdefault(suite.suite_id, {})
            counts[index] = counts.get(index, 0) + 1
            self._failures.move_to_end(suite.suite_id)
            while len(self._failures) > SUITES_REMEMBERED:
                self._failures.popitem(last=False)

    def _facts_of(self, suite: Suite) -> Facts:
        with self._lock:
            facts = self._facts.get(suite.suite_id)
        if facts is None:
            expected = tuple(test.expected.encode("utf-8", "surrogateescape") for test in suite.tests)
            facts = Facts(expected, suite_tolerance(suite))
            with self._lock:
                self._facts[suite.suite_id] = facts
                while len(self._facts) > 64:
                    self._facts.popitem(last=False)
        return facts


def unjudgeable(suite: Suite) -> str:
    """Why nobody could judge by this suite; empty if one can."""
    return "" if suite.tests else "it has no tests"


def outcome(report: Report, limits: Limits) -> tuple[Verdict, str]:
    """Verdict and detail before any comparison: `accepted` means that the program ended well within its limits."""
    if report.ended == ENDED_CPU or report.cpu_s > limits.cpu_s:
        return Verdict.time_limit, f"more than {limits.cpu_s:g} s of CPU time"
    if report.ended == ENDED_ASLEEP:
        return Verdict.time_limit, "asleep without computing anything"
    if report.ended == ENDED_WALL:
        return Verdict.time_limit, f"more than {limits.wall_cap_s:g} s of real time"
    if report.memory_bytes > limits.memory_bytes:
        return Verdict.memory_limit, f"{report.memory_bytes >> 20} MiB of memory"
    if max(report.out_size, report.err_size) > limits.output_bytes:
        return Verdict.output_limit, f"more than {limits.output_bytes} bytes of output"
    if report.status:
        return failure(report)
    return Verdict.accepted, ""


def failure(report: Report) -> tuple[Verdict, str]:
    """What a non-zero wait status means."""
    words = report.err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:300]
    if os.WIFSIGNALED(report.status):
        number = os.WTERMSIG(report.status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return Verdict.runtime_error, f"killed by {name}" + (f": {words}" if words else "")
    if words.startswith("MemoryError"):
        return Verdict.memory_limit, "MemoryError"
    return Verdict.runtime_error, words or f"exit status {os.waitstatus_to_exitcode(report.status)}"
