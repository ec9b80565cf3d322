"""Of the programs shipped with the problems, only a sample is judged: as many as it takes to keep enough of them.

CodeContests ships some 150 programs a problem, and a corpus keeps 32. The rule, problem by problem:

* The programs are ordered by a hash of problem and program, those that are claimed right first where only right ones
  are kept. So the order is the same in every run.
* They are judged in rounds of ROUND in this order. What is kept of those judged is what the selection would keep of
  them alone (tasks/corpus/selection.py), at most `corpus.per_problem`.
* A problem is done when `corpus.per_problem` are kept, when a whole round kept nothing new, or when none is left.

A problem with at most ROUND programs has all of them judged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.config.offline import CorpusConfig
from tasks.corpus.ingestion import ExternalResponse, numbered
from tasks.corpus.selection import KEPT, CorpusCandidate, choose
from tasks.problems.problem import Problem

PYTHON = {"python", "python3", "py"}
ROUND = 32
"""Programs of a problem that are judged before it is asked whether they are enough; no setting, so that runs with
different settings judge the same ones."""


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A program shipped with a problem, as a response."""

    item: ExternalResponse
    claimed_right: bool


def of_problems(problems: Sequence[Problem]) -> tuple[list[KnownProgram], Counter[str]]:
    """The known Python programs of these problems, and the number of those in other languages."""
    solutions = [(problem.problem_id, solution) for problem in problems for solution in problem.solutions]
    chosen = [(p, solution) for p, solution in solutions if solution.language in PYTHON]
    items = numbered(ExternalResponse(p, "human", "human", solution.program) for p, solution in chosen)
    known = [KnownProgram(i, solution.claimed == "accepted") for i, (_, solution) in zip(items, chosen, strict=True)]
    return known, Counter({"human: not Python": len(solutions) - len(chosen)})


Judged = Callable[[Sequence[ExternalResponse]], Mapping[str, Sequence[CorpusCandidate]]]
"""Judges responses; those of them that the corpus could take, by problem."""


def take_in(programs: Sequence[KnownProgram], config: CorpusConfig, judge: Judged) -> int:
    """Judge as many of the programs as the rule says; the number of those that were not needed."""
    by_problem: dict[str, list[KnownProgram]] = {}
    for program in programs:
        by_problem.setdefault(program.item.problem_id, []).append(program)
    open_problems = {name: _Problem(ordered(own, config)) for name, own in by_problem.items()}
    unneeded = 0
    while open_problems:
        found = judge([program.item for problem in open_problems.values() for program in problem.next_round()])
        for name, problem in list(open_problems.items()):
            if problem.done(found.get(name, ()), config):
                unneeded += len(problem.waiting)
                del open_problems[name]
    return unneeded


def ordered(programs: Sequence[KnownProgram], config: CorpusConfig) -> list[KnownProgram]:
    """The programs of a problem in the order in which they are judged."""

    def rank(program: KnownProgram) -> tuple[bool, str]:
        text = f"{program.item.problem_id}/{program.item.number}/{program.item.content}"
        return config.correct_only and not program.claimed_right, hashlib.sha256(text.encode()).hexdigest()

    return sorted(programs, key=rank)


@dataclass(slots=True)
class _Problem:
    """A problem that has not enough programs yet."""

    waiting: list[KnownProgram]
    candidates: list[CorpusCandidate] = field(default_factory=list[CorpusCandidate])
    kept: int = 0

    def next_round(self) -> list[KnownProgram]:
        now, self.waiting = self.waiting[:ROUND], self.waiting[ROUND:]
        return now

    def done(self, new: Sequence[CorpusCandidate], config: CorpusConfig) -> bool:
        """Whether no further round is needed after one that brought these candidates."""
        self.candidates += new
        fates = choose(self.candidates, threshold=config.near_duplicates, cap=config.per_problem)
        before, self.kept = self.kept, sum(fate == KEPT for fate in fates.values())
        return not self.waiting or self.kept >= config.per_problem or self.kept == before
