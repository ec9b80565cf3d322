"""Function-style tests: asserts on what a program's functions return, without the program's word for anything.

The program runs in one process and only answers calls; the asserts run in another, in a runner that no foreign
program ever enters, on plain values decoded from those answers. So exiting early, overriding `__eq__`, patching
builtins or walking frames changes nothing: to pass, a program must return the values that the asserts want.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections import OrderedDict

from sandbox.errors import RunnerLost
from sandbox.outcome import outcome
from sandbox.records import Limits, Suite, TestResult, Verdict
from sandbox.runner import ENDED_ASLEEP, ENDED_WALL
from sandbox.timeouts import RunGate, confirm
from sandbox.worker import REFEREE_LIMITS, Input, JudgeWorker, RunReport, only

ROUNDS = 256
"""How often asserts may ask for calls that depend on earlier answers."""
TESTS_REMEMBERED = 20_000


class FunctionTests:
    """Judges single tests; remembers which calls a test makes before any answer is known."""

    def __init__(self, gate: RunGate) -> None:
        self._gate = gate
        self._first_calls: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def test(self, worker: JudgeWorker, suite: Suite, index: int) -> TestResult:
        """Result of one test by the program compiled on `worker`; `infra` if the test code itself is broken."""
        calls, fault = self._calls_before_answers(worker, suite, index)
        if fault:
            return TestResult(index, Verdict.infra, detail=f"the test code itself fails: {fault}")
        cpu_s, wall_s, memory = 0.0, 0.0, 0
        for _ in range(ROUNDS):
            report = self._answer(worker, suite, index, calls)
            cpu_s, wall_s, memory = report.cpu_s, wall_s + report.wall_s, max(memory, report.memory_bytes)
            verdict, detail = outcome(report, suite.limits)
            if verdict is not Verdict.accepted:
                return TestResult(index, verdict, cpu_s, wall_s, memory, detail)
            if not report.out:
                return TestResult(index, Verdict.wrong_answer, cpu_s, wall_s, memory, "it ended without an answer")
            letter, text = rule(worker, suite, index, calls, report.out.decode("utf-8", "replace"))
            if letter != "N":
                verdict = {"A": Verdict.accepted, "E": Verdict.infra}.get(letter, Verdict.wrong_answer)
                return TestResult(index, verdict, cpu_s, wall_s, memory, text[:300])
            calls = text
        fault = f"the asserts asked for further calls {ROUNDS} times"
        return TestResult(index, Verdict.infra, cpu_s, wall_s, memory, fault)

    def _answer(self, worker: JudgeWorker, suite: Suite, index: int, calls: str) -> RunReport:
        """Let the program answer calls."""
        key = (suite.suite_id, index, hashlib.sha256(calls.encode("utf-8", "surrogatepass")).digest())

        def run(limits: Limits) -> RunReport:
            return only(worker, [Input(key, calls)], limits, calls=True)

        with self._gate.shared():
            report = run(suite.limits)
        return confirm(self._gate, run, report, suite.limits)

    def _calls_before_answers(self, worker: JudgeWorker, suite: Suite, index: int) -> tuple[str, str]:
        """(calls as JSON, why the test code fails without any answer)."""
        key = (suite.suite_id, index)
        with self._lock:
            if key in self._first_calls:
                return self._first_calls[key], ""
        letter, text = rule(worker, suite, index, "", "")
        if letter not in "AN":
            return "", text or "it fails without calling anything"
        calls = text if letter == "N" else "[]"
        with self._lock:
            self._first_calls[key] = calls
            while len(self._first_calls) > TESTS_REMEMBERED:
                self._first_calls.popitem(last=False)
        return calls, ""


def rule(worker: JudgeWorker, suite: Suite, index: int, calls: str, answers: str) -> tuple[str, str]:
    """The referee's letter and text; F when it could not come to a ruling on these answers."""
    names = [suite.entry_point] if suite.entry_point else []
    request = json.dumps(
        {"setup": suite.setup, "test": suite.tests[index].input, "names": names, "calls": calls, "answers": answers}
    )
    referee = worker.referee()
    try:
        key = ("ruling", hashlib.sha256(request.encode()).digest())
        report = only(referee, [Input(key, request)], REFEREE_LIMITS)
        if report.ended in (ENDED_WALL, ENDED_ASLEEP):
            raise RunnerLost("the referee was not let near a processor")
        if report.signal == signal.SIGKILL and not report.ended:
            raise RunnerLost("the referee was killed from outside")
    except RunnerLost:
        referee.close()
        raise
    if report.status or report.ended or not report.out:
        words = report.err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return "F", f"no ruling on these answers: {words[:200]}"
    text = report.out.decode("utf-8", "replace")
    return text[0], text[1:]
