"""What goes into the judge and what comes out: frozen records, no behaviour beyond simple derived values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

VERSION = "10"
"""Meaning of a verdict. Raised whenever the same program and suite could be judged differently than before."""


class Verdict(StrEnum):
    """Outcome of a test or of a submission. `infra` is the sandbox's own failure and never a reward."""

    accepted = "accepted"
    wrong_answer = "wrong_answer"
    time_limit = "time_limit"
    memory_limit = "memory_limit"
    output_limit = "output_limit"
    runtime_error = "runtime_error"
    compile_error = "compile_error"
    infra = "infra"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test may use. CPU time decides `time_limit`; the wall-clock cap only catches programs that wait."""

    cpu_s: float = 2.0
    wall_s: float | None = None
    """None: five times the CPU limit and at least ten seconds."""
    asleep_s: float = 1.0
    """Seconds of real time without any CPU time after which a program counts as asleep, and is ended."""
    memory_bytes: int = 512 << 20
    """Resident memory, the interpreter's about 15 MiB included."""
    output_bytes: int = 1 << 20
    """Most bytes on standard output and, separately, on standard error."""
    compile_cpu_s: float = 10.0

    @property
    def wall_cap_s(self) -> float:
        """Seconds of real time after which a test is ended."""
        return self.wall_s if self.wall_s is not None else max(10.0, 5 * self.cpu_s)


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test: what the program reads and what it should print.

    In function style `input` is one assert statement (or test code) and `expected` is empty.
    """

    __test__ = False
    input: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Checker:
    """How an output is compared with the expected one (see checker.py)."""

    kind: Literal["tokens", "codecontests", "lines", "exact", "caseless", "kattis", "special"] = "tokens"
    case_sensitive: bool = False
    """`tokens`, `kattis`: compare letters exactly. Off: letters are compared without case, in `tokens` of tokens of
    letters only."""
    float_tolerance: float | None = None
    """`tokens`: absolute or relative tolerance. None: 1e-6 if the expected output holds a non-integer, else none.
    `kattis`: the absolute tolerance."""
    name: str = ""
    """`special`: which of the judge's special checkers decides; `kattis`: the relative tolerance, as a number."""


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one problem. `suite_id` must change whenever anything else here changes."""

    suite_id: str
    tests: tuple[TestCase, ...]
    checker: Checker = Checker()
    limits: Limits = Limits()
    style: Literal["stdin", "function"] = "stdin"
    entry_point: str = ""
    """Function style: name of the function under test; empty: whatever the asserts call."""
    setup: str = ""
    """Function style: trusted code run before the asserts (imports, helper functions of the tests)."""
    prelude: str = ""
    """One line of Python put before each program, as the graders of some sets do: names that it need not import."""
    every_test: bool = False
    """Run the tests after a failure too, whatever the judge does: their number counts."""
    keep_outputs: bool = False
    """Compare nothing (stdin style): who ends well is accepted, and `TestResult.output` is what was printed."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A program to be judged against a suite."""

    program: str
    suite: Suite


@dataclass(frozen=True, slots=True)
class TestResult:
    """What happened on one test; `index` is its position in the suite."""

    __test__ = False
    index: int
    verdict: Verdict
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_bytes: int = 0
    detail: str = ""
    output: bytes = b""
    """What it printed: all of it where the suite keeps outputs and it ended well, the beginning where it failed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on a submission: `accepted`, or that of the first failing test in the order they were run.

    Where every test counts (`Suite.every_test`) one test that the sandbox failed on makes the whole `infra`.
    """

    verdict: Verdict
    passed: int
    total: int
    cpu_s: float = 0.0
    """CPU seconds of all tests run."""
    memory_bytes: int = 0
    """Largest resident memory of any test."""
    detail: str = ""
    tests: tuple[TestResult, ...] = ()
    """Results of the tests that were run, by index; fewer than `total` after an early exit."""
    reused: bool = False
    """Taken from an identical program, of this batch or of the store."""

    @property
    def outcomes(self) -> str | None:
        """A letter per test of the suite, in order: the first of its verdict, `.` where it was not run.

        None: not known, as of a judgement that was stored before outcomes were.
        """
        if not self.tests and self.verdict is not Verdict.compile_error:
            return None
        letters = {result.index: result.verdict.value[0] for result in self.tests}
        return "".join(letters.get(index, ".") for index in range(self.total))

    @property
    def output(self) -> str:
        """How the output on the test that `detail` names begins; empty where none failed or nothing was printed."""
        failed = next((one for one in self.tests if self.detail.startswith(f"test {one.index + 1}:")), None)
        return failed.output.decode("utf-8", "replace") if failed else ""


class VerdictStore(Protocol):
    """Verdicts kept across runs by the caller, under (program key, suite id)."""

    def get(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Judgement]:
        """Judgements known for these keys."""
        ...

    def put(self, judgements: Mapping[tuple[str, str], Judgement]) -> None:
        """Keep these judgements."""
        ...
