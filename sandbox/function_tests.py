"""Function-style tests: asserts on what a program's functions return, without the program's word for anything.

The program runs in one process and only answers calls; the asserts run in another, in a runner that no foreign
program ever enters, on plain values decoded from those answers. So exiting early, overriding `__eq__`, patching
builtins or walking frames changes nothing: to pass, a program must return the values that the asserts want.

The program answers all calls anew in every round. What decides is a round in which it was asked exactly the calls that
the asserts make, in their order (referee.py); in the rounds before, calls are also asked for ahead of time.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from sandbox.children import ENDED_ASLEEP, ENDED_CPU, ENDED_WALL
from sandbox.errors import RunnerLost
from sandbox.outcome import outcome, printable
from sandbox.records import Limits, Suite, TestResult, Verdict
from sandbox.timeouts import GENEROSITY, RunGate, confirm
from sandbox.worker import CALL_BYTES, REFEREE_LIMITS, Input, JudgeWorker, RunReport, only

ROUNDS = 256
"""How often asserts may ask for calls that depend on earlier answers."""
AHEAD = 1000
"""Calls that a round may ask for ahead of time, at most."""
RULING_CPU_S = 5.0
"""CPU seconds that asserts may take on one program's answers."""
TESTS_REMEMBERED = 20_000


class Ruling(NamedTuple):
    """The referee's word: A, all asserts hold; F, one does not; N, calls need answers; E, broken test; T, too slow."""

    letter: str
    text: str
    cpu_s: float = 0.0


class Found(NamedTuple):
    """What came of a number of rounds."""

    result: TestResult
    decided: bool = False
    """By the referee, on answers to the very calls that the asserts make."""
    ended_on: str = ""
    """Calls on which the program ended badly, and the round before that."""
    asked: str = ""
    answers: str = ""


VERDICTS = {"A": Verdict.accepted, "F": Verdict.wrong_answer, "E": Verdict.infra, "T": Verdict.time_limit}


class FunctionTests:
    """Judges single tests; remembers which calls a test makes before any answer is known."""

    def __init__(self, gate: RunGate) -> None:
        self._gate = gate
        self._first_calls: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def test(self, worker: JudgeWorker, suite: Suite, index: int) -> TestResult:
        """Result of one test by the program compiled on `worker`; `infra` if the test code itself is broken.

        What goes wrong because of the program's answers is the program's: wrong answers, and the time they cost. One
        that ends badly on calls asked for ahead of time, which plain Python may not make, is asked one after another.
        """
        calls, fault = self._calls_before_answers(worker, suite, index)
        if fault:
            return TestResult(index, Verdict.infra, detail=printable(f"the test cannot be judged: {fault}"))
        found = self._rounds(worker, suite, index, calls, AHEAD)
        if found.ended_on:
            ruling = rule(worker, suite, index, found.asked, found.answers, 1)
            if ruling.letter == "N" and ruling.text != found.ended_on:
                slowly = self._rounds(worker, suite, index, ruling.text, 1)
                found = slowly if slowly.decided else found
        return found.result

    def _rounds(self, worker: JudgeWorker, suite: Suite, index: int, calls: str, ahead: int) -> Found:
        """What comes of asking `calls` and then what the asserts ask for, `ahead` calls beyond the certain ones."""
        spent, wall_s, memory = 0.0, 0.0, 0
        asked = answers = ""

        def result(verdict: Verdict, detail: str) -> TestResult:
            return TestResult(index, verdict, report.cpu_s, wall_s, memory, printable(detail))

        for number in range(1, ROUNDS + 1):
            report = self._answer(worker, suite, index, calls, confirmed=ahead > 1)
            spent, wall_s, memory = spent + report.cpu_s, wall_s + report.wall_s, max(memory, report.memory_bytes)
            verdict, detail = how_it_ended(report, suite)
            if verdict is not Verdict.accepted:
                return Found(result(verdict, detail), ended_on=calls, asked=asked, answers=answers)
            asked, answers = calls, report.out.decode("utf-8", "replace")
            ruling = rule(worker, suite, index, asked, answers, ahead)
            if ruling.letter != "N":
                return Found(result(VERDICTS.get(ruling.letter, Verdict.infra), ruling.text[:300]), decided=True)
            calls, spent = ruling.text, spent + ruling.cpu_s
            if ahead == 1 and wall_s > 2 * suite.limits.wall_cap_s:
                return Found(result(Verdict.time_limit, "one call after another it takes too long"))
            if spent > suite.limits.cpu_s * max(2.0, 1 + number / 2) + RULING_CPU_S:  # a round makes all calls anew
                return Found(result(Verdict.time_limit, "its answers make the asserts ask for ever more calls"))
        return Found(result(Verdict.wrong_answer, f"after {ROUNDS} rounds of calls the asserts still ask for others"))

    def _answer(self, worker: JudgeWorker, suite: Suite, index: int, calls: str, *, confirmed: bool) -> RunReport:
        """Let the program answer calls; `confirmed`: a passed limit of time is made sure of."""
        key = (suite.suite_id, index, hashlib.sha256(calls.encode("utf-8", "surrogatepass")).digest())
        limits = replace(suite.limits, output_bytes=max(CALL_BYTES, suite.limits.output_bytes))

        def run(limits: Limits) -> RunReport:
            return only(worker, [Input(key, calls)], limits, calls=True)

        with self._gate.shared():
            report = run(limits)
        return confirm(self._gate, run, report, limits) if confirmed else report

    def _calls_before_answers(self, worker: JudgeWorker, suite: Suite, index: int) -> tuple[str, str]:
        """(calls as JSON, why the test code fails without any answer)."""
        key = (suite.suite_id, index)
        with self._lock:
            if key in self._first_calls:
                return self._first_calls[key], ""
        ruling = rule(worker, suite, index, "", "", AHEAD)
        if ruling.letter == "A":
            return "", "it calls nothing of the program, so that any would pass"
        if ruling.letter != "N":
            return "", ruling.text or "it fails without calling anything"
        calls = ruling.text
        with self._lock:
            self._first_calls[key] = calls
            while len(self._first_calls) > TESTS_REMEMBERED:
                self._first_calls.popitem(last=False)
        return calls, ""


def how_it_ended(report: RunReport, suite: Suite) -> tuple[Verdict, str]:
    """Verdict and detail of a run of the program; `accepted` if it ended well and left answers to look at."""
    verdict, detail = outcome(report._replace(out_size=0), suite.limits)
    if verdict is not Verdict.accepted:
        return verdict, detail
    if report.out_size > CALL_BYTES:
        return Verdict.output_limit, f"answers of {report.out_size} bytes"
    return (Verdict.accepted, "") if report.out else (Verdict.wrong_answer, "it ended without an answer")


def rule(worker: JudgeWorker, suite: Suite, index: int, calls: str, answers: str, ahead: int) -> Ruling:
    """The referee's ruling; without answers it may take its time, on answers it works at the program's expense.

    Too much time is made sure of with twice the limit.
    """
    names = [suite.entry_point] if suite.entry_point else []
    told = {"setup": suite.setup, "test": suite.tests[index].input, "names": names, "calls": calls, "answers": answers}
    request = json.dumps(told | {"ahead": ahead})
    limits = replace(REFEREE_LIMITS, cpu_s=RULING_CPU_S) if answers else REFEREE_LIMITS
    referee = worker.referee()
    try:
        key = ("ruling", hashlib.sha256(request.encode()).digest())
        report = only(referee, [Input(key, request)], limits)
        if report.ended == ENDED_CPU and answers:  # not the asserts' doing alone, as of programs (timeouts.py)
            report = only(referee, [Input(key, request)], replace(limits, cpu_s=GENEROSITY * limits.cpu_s))
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
