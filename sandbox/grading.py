"""One submission on one runner: the order of its tests, and what the measured facts mean."""

from __future__ import annotations

import ast
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

from sandbox.checker import compare, suite_tolerance
from sandbox.errors import InvalidSuite
from sandbox.function_tests import FunctionTests
from sandbox.outcome import outcome, printable
from sandbox.records import Judgement, Submission, Suite, TestResult, Verdict
from sandbox.timeouts import RunGate, confirm, killed, over_time
from sandbox.worker import Input, JudgeWorker, RunReport, only

SpecialChecker = Callable[[str, str, str], str]
"""(input, output, expected) -> why the output is wrong; empty when it is right."""
RUNNER_MEMORY = 512 << 20
"""Memory of a container that no test may have: for the runner and the inputs it keeps."""
LARGEST_CHUNK = 32
"""Most tests ordered at once: what may be run in vain after a failure."""
LARGEST_GROUP = 64
"""Most tests in one process in batch mode."""
SUITES_REMEMBERED = 4096
OUTPUT_KEPT = 1000
"""Bytes that are kept of what a program printed on a test that it failed, for people to see."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What comparing needs, made once per suite."""

    expected: tuple[bytes, ...]
    tolerance: float | None


class Grader:
    """Decides verdicts; remembers per suite which tests failed, so that later samples meet those first."""

    def __init__(
        self,
        mode: Literal["test", "batch"],
        stop_at_first_failure: bool,
        special: Mapping[str, SpecialChecker],
        gate: RunGate,
        memory_bytes: int | None = None,
    ) -> None:
        """`memory_bytes`: what a runner has; None: no limit of its own."""
        self._memory_bytes = memory_bytes
        self._mode, self._stop, self._special, self._gate = mode, stop_at_first_failure, special, gate
        self._failures: OrderedDict[str, dict[int, int]] = OrderedDict()
        self._facts: OrderedDict[str, Facts] = OrderedDict()
        self._functions = FunctionTests(gate)
        self._lock = threading.Lock()

    def grade(
        self, worker: JudgeWorker, submission: Submission, known: Callable[[str], Judgement | None]
    ) -> tuple[str, Judgement]:
        """(code hash, judgement). InvalidSuite when the suite cannot be judged; RunnerLost when the runner is lost."""
        suite = submission.suite
        reason = refusal(suite, self._special, self._memory_bytes)
        if reason:
            raise InvalidSuite(f"suite {suite.suite_id!r}: {reason}")
        with self._gate.shared():
            compiled = worker.compile(with_prelude(submission.program, suite.prelude), suite.limits)
        if compiled.error:
            return "", Judgement(Verdict.compile_error, 0, len(suite.tests), detail=printable(compiled.error))
        earlier = known(compiled.code_hash)
        if earlier is not None:
            return compiled.code_hash, replace(earlier, reused=True)
        return compiled.code_hash, self._summary(suite, self._run_tests(worker, suite, compiled.plain))

    # running

    def _run_tests(self, worker: JudgeWorker, suite: Suite, plain: bool) -> dict[int, TestResult]:
        """Results by test index, in the order they came about; of a `plain` program several may run in one process."""
        results: dict[int, TestResult] = {}
        stop = self._stops(suite)
        todo, size = self._order(suite), 1
        grouping = self._mode == "batch" and suite.style == "stdin" and plain
        while todo:
            group = group_size(suite, results) if grouping and results else 1
            if group > 1:
                grouping = self._run_group(worker, suite, todo[:group], results)
            elif suite.style == "function":
                results[todo[0]] = self._functions.test(worker, suite, todo[0])
            else:
                self._run_chunk(worker, suite, todo[:size], results)
                size = min(2 * size, LARGEST_CHUNK)
            if stop and not last_is_good(results):
                last = next(reversed(results))
                if results[last].verdict is not Verdict.infra:  # else it would come first, and keep wrong from wrong
                    self._note_failure(suite, last)
                break
            todo = [index for index in todo if index not in results]
        return results

    def _run_chunk(self, worker: JudgeWorker, suite: Suite, chunk: list[int], results: dict[int, TestResult]) -> None:
        """Run tests one process each, up to the first failure if so wanted; at least one result is added."""
        doubtful: tuple[int, RunReport] | None = None
        stop = self._stops(suite)
        with self._gate.shared(), closing(worker.run(inputs_of(suite, chunk), suite.limits, stop=stop)) as found:
            for position, report in found:
                if over_time(report, suite.limits) or killed(report, suite.limits):
                    doubtful = chunk[position], report
                    break
                result = results[chunk[position]] = self._result(suite, chunk[position], report)
                if (stop and result.verdict is not Verdict.accepted) or self._gate.wanted:
                    break
        if doubtful is not None:
            index, report = doubtful
            again = inputs_of(suite, [index])
            report = confirm(self._gate, lambda limits: only(worker, again, limits), report, suite.limits)
            results[index] = self._result(suite, index, report)

    def _run_group(self, worker: JudgeWorker, suite: Suite, group: list[int], results: dict[int, TestResult]) -> bool:
        """Run tests in one process; what is not plainly right is decided alone. False: do not group any longer.

        A right output counts only if the whole process stayed within the limits of a single test.
        """
        doubtful: list[int] = []
        run = worker.run(inputs_of(suite, group), suite.limits, per_fork=len(group), stop=False)
        with self._gate.shared(), closing(run) as reports:
            for position, report in reports:
                result = self._result(suite, group[position], report)
                if result.verdict is Verdict.accepted:
                    share = result.cpu_s / len(group)
                    results[group[position]] = replace(result, cpu_s=share, wall_s=result.wall_s / len(group))
                else:
                    doubtful.append(group[position])
        for index in doubtful[:1]:
            self._run_chunk(worker, suite, [index], results)
        return not doubtful

    def _result(self, suite: Suite, index: int, report: RunReport) -> TestResult:
        verdict, detail = outcome(report, suite.limits)
        if verdict is Verdict.accepted and not suite.keep_outputs:
            detail = self._compare(suite, index, report.out)
            verdict = Verdict.wrong_answer if detail else Verdict.accepted
        kept = b""
        if suite.keep_outputs == (verdict is Verdict.accepted):
            kept = report.out if suite.keep_outputs else report.out[:OUTPUT_KEPT]
        used = report.cpu_s, report.wall_s, report.memory_bytes
        return TestResult(index, verdict, *used, printable(detail), kept)

    def _compare(self, suite: Suite, index: int, output: bytes) -> str:
        test = suite.tests[index]
        if suite.checker.kind == "special":
            text = output.decode("utf-8", "replace")
            return self._special[suite.checker.name](test.input, text, test.expected)
        facts = self._facts_of(suite)
        return compare(output, facts.expected[index], suite.checker, facts.tolerance)

    def _summary(self, suite: Suite, results: dict[int, TestResult]) -> Judgement:
        failed = [r for r in results.values() if r.verdict is not Verdict.accepted]
        if not self._stops(suite):
            failed.sort(key=lambda result: (suite.every_test and result.verdict is not Verdict.infra, result.index))
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

    def _stops(self, suite: Suite) -> bool:
        """Whether a failure ends the grading."""
        return self._stop and not suite.every_test

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


def refusal(suite: Suite, special: Container[str], memory_bytes: int | None = None) -> str:
    """Why a judge with these special checkers and so much memory per runner cannot judge by it; empty if it can."""
    if not suite.tests:
        return "it has no tests"
    if suite.keep_outputs and suite.style == "function":
        return "only what programs print can be kept, and it is in function style"
    compared = suite.style == "stdin" and not suite.keep_outputs
    if suite.checker.kind == "special" and compared and suite.checker.name not in special:
        return f"it needs the special checker {suite.checker.name!r}, which the judge was not given"
    if memory_bytes is not None and suite.limits.memory_bytes + RUNNER_MEMORY > memory_bytes:
        wanted, there = suite.limits.memory_bytes >> 20, memory_bytes >> 20
        return f"its tests may use {wanted} MiB, but a container has {there} and needs {RUNNER_MEMORY >> 20} for itself"
    return ""


def inputs_of(suite: Suite, indices: Sequence[int]) -> list[Input]:
    """Inputs of tests, under keys that hold for the suite's life."""
    return [Input((suite.suite_id, index), suite.tests[index].input) for index in indices]


def group_size(suite: Suite, results: dict[int, TestResult]) -> int:
    """Tests that fit into one process: half the CPU limit at the cost met so far, more after each good group."""
    dearest = max(result.cpu_s for result in results.values())
    affordable = int(suite.limits.cpu_s / 2 / max(dearest, 1e-4))
    return max(1, min(LARGEST_GROUP, affordable, 15 * len(results)))


def last_is_good(results: dict[int, TestResult]) -> bool:
    """Whether the latest result is a success."""
    return results[next(reversed(results))].verdict is Verdict.accepted


def with_prelude(program: str, prelude: str) -> str:
    """The program with the line `prelude` before it, behind what only the beginning of a program may say."""
    if not prelude:
        return program
    program = program.removeprefix("\ufeff")
    place = last_future_line(program) if "__future__" in program else 0
    lines = program.split("\n")
    return "\n".join([*lines[:place], prelude, *lines[place:]])


def last_future_line(program: str) -> int:
    """The line on which the program's last import from `__future__` ends; 0 without one, and where it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings
        try:
            body = ast.parse(program).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 0
    ends = [one.end_lineno or 0 for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    return max(ends, default=0)
