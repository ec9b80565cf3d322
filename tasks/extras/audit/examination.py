"""One problem's stored-correct programs run against each other: on which new inputs they part, and who is likely wrong.

Programs run in the sandbox alone. An input counts only if every reference solution answers it, twice alike, and all of
them agree; what a program does there that the reference solutions do not do is a disagreement. Without reference
solutions more than half of the programs must agree on what is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sandbox import Judgement, Submission, Suite, TestCase, Verdict
from sandbox.checker import compare, suite_tolerance
from tasks.extras.audit.calls import UNKNOWN, CallMaker, answer_in, answering, called_name, same_answers
from tasks.extras.audit.inputs import InputMaker
from tasks.problems.problem import Problem
from tasks.run.identity import digest

VERSION = "3"
"""Meaning of an audit. Raised whenever the same programs and seed could be judged differently than before."""
AT_ONCE = 25
"""Inputs of one submission."""
PATIENCE = 2
"""Inputs on which a program may end by a limit before it is run on no further ones."""
OUTPUT_BYTES = 256 << 10
LIMITS = (Verdict.time_limit, Verdict.memory_limit, Verdict.output_limit)
REFERENCES_FAIL = "a reference solution fails"
REFERENCES_DIFFER = "reference solutions differ"
NO_MAJORITY = "no majority"
UNSTABLE = "not the same when run again"


class Judging(Protocol):
    """What runs programs: a `sandbox.Judge`."""

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judgements in the order of the submissions."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program stored as correct; `reference` if the problem's source says that it is a solution."""

    program_hash: str
    normal_hash: str
    program: str
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program did on one input: its verdict, and what it printed if it ended well."""

    verdict: Verdict
    output: bytes = b""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input on which programs part that all passed the suite."""

    input: str
    expected: str
    """What is likely right: the output that the reference solutions or most programs agree on."""
    basis: str
    """`reference` or `majority`."""
    groups: tuple[tuple[str, ...], ...]
    """Program hashes by what they did; the first group is likely right."""
    behaviour: dict[str, str]
    """By program hash: the verdict of each of the others on this input."""

    @property
    def dissenters(self) -> tuple[str, ...]:
        """Program hashes of those who say otherwise."""
        return tuple(sorted(name for group in self.groups[1:] for name in group))


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of auditing one problem."""

    inputs: int
    """Inputs that counted."""
    discarded: dict[str, int]
    """Inputs that did not, by reason."""
    findings: tuple[Finding, ...]
    unstable: tuple[str, ...] = ()
    """Program hashes of those that answer an input differently each time; nothing is said of them."""

    @property
    def survivors(self) -> dict[str, int]:
        """By program hash: the inputs on which it is likely wrong, most first."""
        found = Counter(name for finding in self.findings for name in finding.dissenters)
        return dict(found.most_common())

    @property
    def behaviours(self) -> int:
        """Number of different behaviours of the programs over all findings; 1 when they never part."""
        seen: dict[str, list[int]] = {}
        for finding in self.findings:
            for number, group in enumerate(finding.groups):
                for name in group:
                    seen.setdefault(name, []).append(number)
        return max(1, len(set(map(tuple, seen.values()))))


@dataclass(slots=True)
class _Runs:
    """Programs and the inputs they still run on."""

    judge: Judging
    problem: Problem
    suite: Suite
    driver: Callable[[str], str]
    limited: Counter[str] = field(default_factory=Counter[str])

    def answers(
        self, candidates: Sequence[Candidate], inputs: Sequence[str], again: int = 0
    ) -> dict[str, list[Answer]]:
        """By program hash: an answer per input; programs that spent their patience answer no more."""
        asked = [one for one in candidates if self.limited[one.program_hash] < PATIENCE]
        tests = tuple(TestCase(text) for text in inputs)
        name = digest(audit=VERSION, suite=self.problem.suite_hash, inputs=list(inputs), again=again)
        suite = replace(self.suite, suite_id=f"audit/{name}", tests=tests)
        judged = self.judge.judge([Submission(self.driver(one.program), suite) for one in asked])
        found: dict[str, list[Answer]] = {}
        for one, judgement in zip(asked, judged, strict=True):
            by_index = {test.index: Answer(test.verdict, test.output) for test in judgement.tests}
            answers = [by_index.get(place, Answer(judgement.verdict)) for place in range(len(inputs))]
            self.limited[one.program_hash] += sum(answer.verdict in LIMITS for answer in answers) if not again else 0
            found[one.program_hash] = answers
        return found


def examine(
    problem: Problem, candidates: Sequence[Candidate], judge: Judging, *, inputs: int, seed: int
) -> Examination:
    """Run the programs, all of them accepted by the problem's suite, on new inputs, and see where they part."""
    function = problem.style == "function"
    programs = [one.program for one in candidates]
    maker = CallMaker(problem, programs, seed) if function else InputMaker(problem, programs, seed)
    name = called_name(problem) if function else ""
    runs = _Runs(judge, problem, _suite(problem), (lambda text: answering(text, name)) if function else str)
    same = _same_values if function else _same_outputs(problem)
    counted = 0
    discarded = Counter[str]()
    findings: list[Finding] = []
    unstable: set[str] = set()
    for chunk in _chunks(maker.make(inputs, [test.input for test in problem.tests])):
        answers = runs.answers(candidates, chunk)
        parted: list[int] = []
        for place in range(len(chunk)):
            here = {name: found[place] for name, found in answers.items() if name not in unstable}
            ruling = rule(candidates, here, same)
            if isinstance(ruling, str):
                discarded[ruling] += 1
            elif len(ruling.groups) > 1:
                parted.append(place)
            else:
                counted += 1
        again = runs.answers(candidates, [chunk[place] for place in parted], again=1) if parted else {}
        for number, place in enumerate(parted):
            first = {name: found[place] for name, found in answers.items() if name not in unstable}
            second = {name: found[number] for name, found in again.items()}
            outcome = confirmed(candidates, first, second, same, unstable)
            if isinstance(outcome, str):
                discarded[outcome] += 1
                continue
            counted += 1
            if len(outcome.groups) > 1:
                findings.append(_finding(chunk[place], outcome, first, function=function))
    return Examination(counted, dict(discarded), tuple(findings), tuple(sorted(unstable)))


Same = Callable[[Answer, Answer], bool]


@dataclass(frozen=True, slots=True)
class Ruling:
    """Programs by what they did; the first group is likely right."""

    groups: tuple[tuple[str, ...], ...]
    basis: str


def rule(candidates: Sequence[Candidate], answers: dict[str, Answer], same: Same) -> Ruling | str:
    """Who is likely right on an input, or why nothing can be said of it. Faults of the sandbox say nothing of anybody.

    A reference solution outweighs all other programs together, so the solutions decide where there are any.
    """
    known = {name: answer for name, answer in answers.items() if answer.verdict is not Verdict.infra}
    references = [one.program_hash for one in candidates if one.reference]
    if any(name not in known or known[name].verdict is not Verdict.accepted for name in references):
        return REFERENCES_FAIL
    groups: list[list[str]] = []
    for name in [*references, *(name for name in known if name not in references)]:
        group = next((group for group in groups if same(known[name], known[group[0]])), None)
        groups.append([name]) if group is None else group.append(name)
    if references:
        if not set(references) <= set(groups[0]):
            return REFERENCES_DIFFER
        return Ruling(tuple(map(tuple, groups)), "reference")
    groups.sort(key=len, reverse=True)
    most = groups[0] if groups else []
    if 2 * len(most) <= len(known) or known[most[0]].verdict is not Verdict.accepted:
        return NO_MAJORITY
    return Ruling(tuple(map(tuple, groups)), "majority")


def confirmed(
    candidates: Sequence[Candidate], first: dict[str, Answer], second: dict[str, Answer], same: Same, unstable: set[str]
) -> Ruling | str:
    """The ruling without the programs that did something else the second time, which are added to `unstable`."""
    solutions = {one.program_hash for one in candidates if one.reference}
    changed = {name for name in first if name in second and not same(first[name], second[name])}
    unstable |= changed - solutions
    if changed & solutions:
        return UNSTABLE
    return rule(candidates, {name: answer for name, answer in first.items() if name not in changed}, same)


def _suite(problem: Problem) -> Suite:
    """The problem's limits on programs of which nothing is compared."""
    limits = replace(problem.limits, output_bytes=min(OUTPUT_BYTES, problem.limits.output_bytes))
    return Suite("", (), limits=limits, prelude=problem.prelude, every_test=True, keep_outputs=True)


def _same_outputs(problem: Problem) -> Same:
    """Whether two answers are the same as the problem's checker compares them; failures are alike by their verdict."""
    suite = problem.suite()
    tolerance = suite_tolerance(suite)

    def same(one: Answer, other: Answer) -> bool:
        if one.verdict is not other.verdict or one.verdict is not Verdict.accepted:
            return one.verdict is other.verdict
        return not compare(one.output, other.output, suite.checker, tolerance)

    return same


def _same_values(one: Answer, other: Answer) -> bool:
    if one.verdict is not other.verdict or one.verdict is not Verdict.accepted:
        return one.verdict is other.verdict
    values: tuple[Any, Any] = answer_in(_text(one.output)), answer_in(_text(other.output))
    if UNKNOWN in values:
        return one.output == other.output
    return same_answers(*values)


def _finding(text: str, ruling: Ruling, answers: dict[str, Answer], *, function: bool) -> Finding:
    right, *others = ruling.groups
    expected = _text(answers[right[0]].output)
    if function:
        expected = repr(answer_in(expected))
    behaviour = {name: str(answers[name].verdict) for group in others for name in sorted(group)}
    return Finding(text, expected, ruling.basis, ruling.groups, behaviour)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
