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
from dataclasses import replace
from typing import NamedTuple

from sandbox.errors import RunnerLost
from sandbox.outcome import outcome, printable
from sandbox.records import Limits, Suite, TestResult, Verdict
from sandbox.runner import ENDED_ASLEEP, ENDED_WALL
from sandbox.timeouts import RunGate, confirm
from sandbox.worker import CALL_BYTES, REFEREE_LIMITS, Input, JudgeWorker, RunReport, only

ROUNDS = 256
"""How often asserts may ask for calls that depend on earlier answers."""
RULING_CPU_S = 5.0
"""CPU seconds that asserts may take on one program's answers."""
TESTS_REMEMBERED = 20_000


class Ruling(NamedTuple):
    """The referee's word: A, all asserts hold; F, one does not; N, calls need answers; E, broken test; T, too slow."""

    letter: str
    text: str
    cpu_s: float = 0.0


VERDICTS = {"A": Verdict.accepted, "F": Verdict.wrong_answer, "E": Verdict.infra, "T": Verdict.time_limit}


class FunctionTests:
    """Judges single tests; remembers which calls a test makes before any answer is known."""

    def __init__(self, gate: RunGate) -> None:
        self._gate = gate
        self._first_calls: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def test(self, worker: JudgeWorker, suite: Suite, index: int) -> TestResult:
        """Result of one test by the program compiled on `worker`; `infra` if the test code itself is broken.

        What goes wrong because of the program's answers is the program's: wrong answers, and the time they cost.
        """
        calls, fault = self._calls_before_answers(worker, suite, index)
        if fault:
            return TestResult(index, Verdict.infra, detail=printable(f"the test cannot be judged: {fault}"))
        spent, wall_s, memory = 0.0, 0.0, 0

        def result(verdict: Verdict, detail: str) -> TestResult:
            return TestResult(index, verdict, report.cpu_s, wall_s, memory, printable(detail))

        for _ in range(ROUNDS):
            report = self._answer(worker, suite, index, calls)
            spent, wall_s, memory = spent + report.cpu_s, wall_s + report.wall_s, max(memory, report.memory_bytes)
            verdict, detail = outcome(report._replace(out_size=0), suite.limits)
            if verdict is not Verdict.accepted:
                return result(verdict, detail)
            if report.out_size > CALL_BYTES:
                return result(Verdict.output_limit, f"answers of {report.out_size} bytes")
            if not report.out:
                return result(Verdict.wrong_answer, "it ended without an answer")
            ruling = rule(worker, suite, index, calls, report.out.decode("utf-8", "replace"))
            if ruling.letter != "N":
                return result(VERDICTS.get(ruling.letter, Verdict.infra), ruling.text[:300])
            calls, spent = ruling.text, spent + ruling.cpu_s
            if spent > 2 * suite.limits.cpu_s + RULING_CPU_S:
                return result(Verdict.time_limit, "its answers make the asserts ask for ever more calls")
        return result(Verdict.wrong_answer, f"its answers made the asserts ask for further calls {ROUNDS} times")

    def _answer(self, worker: JudgeWorker, suite: Suite, index: int, calls: str) -> RunReport:
        """Let the program answer calls."""
        key = (suite.suite_id, index, hashlib.sha256(calls.encode("utf-8", "surrogatepass")).digest())
        limits = replace(suite.limits, output_bytes=max(CALL_BYTES, suite.limits.output_bytes))

        def run(limits: Limits) -> RunReport:
            return only(worker, [Input(key, calls)], limits, calls=True)

        with self._gate.shared():
            report = run(limits)
        return confirm(self._gate, run, report, limits)

    def _calls_before_answers(self, worker: JudgeWorker, suite: Suite, index: int) -> tuple[str, str]:
        """(calls as JSON, why the test code fails without any answer)."""
        key = (suite.suite_id, index)
        with self._lock:
            if key in self._first_calls:
                return self._first_calls[key], ""
        ruling = rule(worker, suite, index, "", "")
        if ruling.letter not in "AN":
            return "", ruling.text or "it fails without calling anything"
        calls = ruling.text if ruling.letter == "N" else "[]"
        with self._lock:
            self._first_calls[key] = calls
            while len(self._first_calls) > TESTS_REMEMBERED:
                self._first_calls.popitem(last=False)
        return calls, ""


def rule(worker: JudgeWorker, suite: Suite, index: int, calls: str, answers: str) -> Ruling:
    """The referee's ruling; without answers it may take its time, on answers it works at the program's expense."""
    names = [suite.entry_point] if suite.entry_point else []
    request = json.dumps(
        {"setup": suite.setup, "test": suite.tests[index].input, "names": names, "calls": calls, "answers": answers}
    )
    limits = replace(REFEREE_LIMITS, cpu_s=RULING_CPU_S) if answers else REFEREE_LIMITS
    referee = worker.referee()
    try:
        key = ("ruling", hashlib.sha256(request.encode()).digest())
        report = only(referee, [Input(key, request)], limits)
        if report.ended in (ENDED_WALL, ENDED_ASLEEP):
            raise RunnerLost("the referee was not let near a processor")
        if report.signal == signal.SIGKILL and not report.ended:
            raise RunnerLost("the referee was killed from outside")
    except RunnerLost:
        referee.close()
        raise
    if report.ended:
        return Ruling("T", f"the asserts take more than {limits.cpu_s:g} s on its answers")
    if report.status or not report.out:
        words = report.err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return Ruling("F", f"no ruling on these answers: {words[:200]}")
    text = report.out.decode("utf-8", "replace")
    return Ruling(text[0], text[1:], report.cpu_s)
