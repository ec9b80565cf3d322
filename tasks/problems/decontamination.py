"""Training problems that are evaluation problems in other clothes, found by their statements and by their tests.

Statements are compared by word n-grams after normalisation (case, punctuation, formula marks and layout are dropped,
one-letter names and numbers count as one word each), so copies with other white space, renamed variables or reordered
sections still share most n-grams. N-grams that occur in many problems ("the first line contains ...") are left out.
Problems are also the same when they share enough tests, whatever their statements say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.problems.problem import Problem

_WORD = re.compile(r"[^\W\d_]+|\d+")
_MARKUP = re.compile(r"\\[a-zA-Z]+|<[^>]{1,40}>|!\[[^\]]*\]\([^)]*\)|https?://\S+")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When two problems count as the same."""

    words: int = 5
    """Length of an n-gram."""
    containment: float = 0.5
    """Share of the shorter statement's telling n-grams that the other one holds, too."""
    fewest_ngrams: int = 20
    """A statement with fewer telling n-grams is not compared: short ones are alike by chance."""
    common: float = 0.05
    """N-grams in more than this share of all problems (and in more than `common_at_least`) say nothing."""
    common_at_least: int = 4
    shared_tests: int = 3
    """Number of equal tests (input and output) that make two problems the same ..."""
    shared_share: float = 0.5
    """... if they are also this share of the smaller suite."""
    shortest_test: int = 12
    """Characters of input and output together below which a test is alike by chance."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem that was found to be an evaluation problem, and why."""

    train_id: str
    evaluation_id: str
    containment: float
    """Share of the shorter statement's telling n-grams in the other statement."""
    jaccard: float
    """Jaccard similarity of the telling n-grams."""
    shared_tests: int
    reason: str
    """`statement`, `tests`, or `statement and tests`."""


def decontaminate(
    train: Sequence[Problem], evaluation: Sequence[Problem], thresholds: Thresholds | None = None
) -> tuple[list[Problem], list[Overlap]]:
    """The training problems that are no evaluation problem, and every pair that cost one its place."""
    found = overlaps(train, evaluation, thresholds)
    gone = {overlap.train_id for overlap in found}
    return [problem for problem in train if problem.problem_id not in gone], found


def overlaps(
    train: Sequence[Problem], evaluation: Sequence[Problem], thresholds: Thresholds | None = None
) -> list[Overlap]:
    """Every pair of a training and an evaluation problem that are the same, most alike first.

    Time and memory grow with the number of words and with the number of pairs that share an n-gram or a test.
    """
    limits = thresholds or Thresholds()
    grams = _telling_ngrams([*train, *evaluation], limits)
    train_grams, evaluation_grams = grams[: len(train)], grams[len(train) :]
    train_tests, evaluation_tests = ([_tests(p, limits) for p in problems] for problems in (train, evaluation))
    shared_grams = _shared(train_grams, evaluation_grams)
    shared_tests = _shared(train_tests, evaluation_tests)
    found: list[Overlap] = []
    for i, j in sorted({*shared_grams, *shared_tests}):
        common = shared_grams.get((i, j), 0)
        smaller = min(len(train_grams[i]), len(evaluation_grams[j]))
        containment = common / smaller if smaller >= limits.fewest_ngrams else 0.0
        tests = shared_tests.get((i, j), 0)
        least = max(1, min(len(train_tests[i]), len(evaluation_tests[j])))
        same_tests = tests >= min(limits.shared_tests, least) and tests / least >= limits.shared_share
        reasons = [("statement", containment >= limits.containment), ("tests", same_tests)]
        reason = " and ".join(name for name, holds in reasons if holds)
        if reason:
            union = len(train_grams[i]) + len(evaluation_grams[j]) - common
            jaccard = common / union if union else 0.0
            ids = (train[i].problem_id, evaluation[j].problem_id)
            found.append(Overlap(*ids, containment, jaccard, tests, reason))
    return sorted(found, key=lambda overlap: (-overlap.containment, -overlap.shared_tests))


def normal_words(statement: str) -> list[str]:
    """The words that a statement is compared by: lower case, variables as `v`, numbers as `0`."""
    words = _WORD.findall(_MARKUP.sub(" ", statement).lower())
    return ["0" if word.isdigit() else "v" if len(word) == 1 else word for word in words]


def _telling_ngrams(problems: Sequence[Problem], limits: Thresholds) -> list[set[int]]:
    everything = [_ngrams(normal_words(problem.statement), limits.words) for problem in problems]
    seen = Counter(gram for grams in everything for gram in grams)
    most = max(limits.common_at_least, limits.common * len(problems))
    return [{gram for gram in grams if seen[gram] <= most} for grams in everything]


def _ngrams(words: list[str], length: int) -> set[int]:
    return {hash(tuple(words[start : start + length])) for start in range(len(words) - length + 1)}


def _tests(problem: Problem, limits: Thresholds) -> set[int]:
    pairs = [(" ".join(test.input.split()), " ".join(test.expected.split())) for test in problem.tests]
    return {hash(pair) for pair in pairs if len(pair[0]) + len(pair[1]) >= limits.shortest_test}


def _shared(train: Sequence[Iterable[int]], evaluation: Sequence[Iterable[int]]) -> Counter[tuple[int, int]]:
    """Number of common elements of every pair that has some."""
    holders: dict[int, list[int]] = {}
    for index, elements in enumerate(evaluation):
        for element in elements:
            holders.setdefault(element, []).append(index)
    return Counter((i, j) for i, elements in enumerate(train) for element in elements for j in holders.get(element, ()))
