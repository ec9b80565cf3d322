"""How many of the shipped programs are judged: the rule of tasks/corpus/known_programs.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tasks.config import validate
from tasks.corpus.ingestion import ExternalResponse
from tasks.corpus.known_programs import ROUND, KnownProgram, ordered, take_in
from tasks.corpus.selection import CorpusCandidate

CAP = 32


def config(**corpus: object):
    return validate({"corpus": {"per_problem": CAP, "near_duplicates": 1.0} | corpus}).corpus


def shipped(problem: str, right: int, wrong: int = 0) -> list[KnownProgram]:
    """Programs of a problem, mixed, those that are wrong called so."""
    programs = [(f"print('right {problem} {number}')", True) for number in range(right)]
    programs += [(f"print('wrong {problem} {number}')", False) for number in range(wrong)]
    random.Random(problem).shuffle(programs)
    return [KnownProgram(ExternalResponse(problem, "human", "human", text), good) for text, good in programs]


class Judge:
    """Remembers what it judged; a program is right when it says so."""

    def __init__(self, *, only_right: bool = True) -> None:
        self.rounds: list[list[ExternalResponse]] = []
        self.only_right = only_right

    def __call__(self, items: Sequence[ExternalResponse]) -> Mapping[str, Sequence[CorpusCandidate]]:
        self.rounds.append(list(items))
        found: dict[str, list[CorpusCandidate]] = {}
        for item in items:
            good = "right" in item.content
            if good or not self.only_right:
                own = CorpusCandidate(item.content, "human", good, item.content)
                found.setdefault(item.problem_id, []).append(own)
        return found

    def judged(self, problem: str) -> int:
        return sum(item.problem_id == problem for one in self.rounds for item in one)


def test_of_hundreds_of_right_programs_as_many_are_judged_as_are_kept() -> None:
    judge = Judge()
    assert take_in(shipped("many", 500), config(), judge) == 500 - CAP
    assert judge.judged("many") == CAP == ROUND


def test_a_few_programs_are_all_judged() -> None:
    judge = Judge()
    assert take_in([*shipped("few", 5, 20), *shipped("none", 0, 3)], config(), judge) == 0
    assert (judge.judged("few"), judge.judged("none")) == (25, 3)


def test_wrong_ones_are_judged_after_the_right_ones_until_a_round_keeps_nothing() -> None:
    judge = Judge()
    assert take_in(shipped("rare", 10, 500), config(), judge) == 510 - 2 * ROUND
    assert judge.judged("rare") == 2 * ROUND, "ten right ones with 22 wrong ones, then wrong ones alone"


def test_wrong_ones_count_where_they_are_kept() -> None:
    judge = Judge(only_right=False)
    assert take_in(shipped("both", 40, 400), config(correct_only=False), judge) == 440 - CAP
    assert any("wrong" in item.content for item in judge.rounds[0]), "in the order of the hash alone"


def test_claims_may_be_false() -> None:
    judge = Judge()
    false = [KnownProgram(program.item, True) for program in shipped("claimed", 40, 60)]
    assert take_in(false, config(), judge) == 100 - judge.judged("claimed")
    right = sum("right" in item.content for one in judge.rounds for item in one)
    assert right >= CAP or judge.judged("claimed") == 100
    assert judge.judged("claimed") % ROUND == 0 or judge.judged("claimed") == 100


def test_near_duplicates_are_not_enough() -> None:
    long = "\n".join(f"value_{line} = {line} + int(input())" for line in range(40))
    copies = [
        KnownProgram(ExternalResponse("copied", "human", "human", f"{long}\nright = {number}"), True)
        for number in range(200)
    ]
    judge = Judge()
    take_in(copies, config(near_duplicates=0.8), judge)
    assert judge.judged("copied") == 2 * ROUND, "the second round keeps nothing new"


def test_the_same_programs_are_judged_in_every_run_whatever_their_order() -> None:
    programs = shipped("many", 300, 50)
    sample = [program.item.content for program in ordered(programs, config())[:ROUND]]
    assert sample == [program.item.content for program in ordered(programs[::-1], config())[:ROUND]]
    judges: list[Callable[..., object]] = []
    for cap in (8, 16, 32):
        judge = Judge()
        take_in(programs, config(per_problem=cap), judge)
        judges.append(judge)
        assert sorted(item.content for item in judge.rounds[0]) == sorted(sample)
    assert sample != sorted(sample), "a sample, not the first ones"
