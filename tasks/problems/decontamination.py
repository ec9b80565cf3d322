"""Training problems that are evaluation problems in other clothes, found by their statements and by their tests.

Five signs, all but the first with a threshold of their own:

* They have the same number in MBPP or HumanEval, of which there are several editions with statements of their own.
* Statements are the same but for case, white space, quotes around them and the asserts that they show, however short
  they are.
* Statements share word n-grams after normalisation (case, punctuation, formula marks and layout are dropped, one-letter
  names and numbers count as one word each), so copies with other white space, renamed variables or reordered sections
  still share most of them. N-grams that occur in many problems ("the first line contains ...") are left out.
* Whole statements are near duplicates: MinHash (rensa) over all n-grams proposes pairs, their sets decide. It finds
  copies of which little is left once common n-grams are out, as when one problem is in a set many times.
* Problems share enough tests, whatever their statements say.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tasks.problems import published
from tasks.problems.dedup import BANDS, PERMUTATIONS, rensa, similarity, sketch_of
from tasks.problems.problem import Problem

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""Chinese characters, which are written without spaces: each is a word of its own."""
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\W\d_{_IDEOGRAPH}]+|\d+")
_VARIABLE = re.compile(rf"[^{_IDEOGRAPH}]")
_NUMBERED = re.compile(r"(mbpp|humaneval)(?:plus|\+)?/(\d+)", re.IGNORECASE)
_SHOWN = re.compile(rf"^\s*assert\b.*$|{re.escape(published.SHOWN)}|\"{{3}}|'{{3}}", re.MULTILINE)
"""What editions put around the same words: asserts, what leads to them, quotes."""
_MARKUP = re.compile(r"\\[a-zA-Z]+|<[^>]{1,40}>|!\[[^\]]*\]\([^)]*\)|https?://\S+")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When two problems count as the same."""

    words: int = 5
    """Length of an n-gram."""
    containment: float = 0.45
    """Share of the shorter statement's telling n-grams that the other one holds, too."""
    shortest_statement: int = 20
    """Characters below which equal statements are alike by chance ("Print the answer.")."""
    fewest_ngrams: int = 20
    """The n-grams of a statement with fewer telling ones are not compared: short ones are alike by chance."""
    common: float = 0.05
    """N-grams in more than this share of all problems (and in more than `common_at_least`) say nothing."""
    common_at_least: int = 4
    near_duplicate: float = 0.7
    """Jaccard similarity of all n-grams from which two statements of at least `fewest_ngrams` are near duplicates."""
    shared_tests: int = 3
    """Number of equal tests (input and output; all of a suite of fewer) that make two problems the same ..."""
    shared_share: float = 0.5
    """... if they are also this share of the smaller suite, its trivial tests included."""
    shortest_test: int = 12
    """Characters of input and output together below which an equal test is trivial: alike by chance."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem that was found to be an evaluation problem, and why."""

    train_id: str
    evaluation_id: str
    containment: float
    """Share of the shorter statement's telling n-grams in the other statement."""
    jaccard: float
    """Jaccard similarity of all n-grams of the statements."""
    shared_tests: int
    reason: str
    """Which of `same number`, `same statement`, `shared phrases`, `near duplicate` and `tests` hold, with "and"."""


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

    A problem may be there in several versions, all with its id: the one most alike speaks for it. Time and
    memory grow with the number of words and with the number of pairs that share an n-gram or a test.
    """
    limits = thresholds or Thresholds()
    sides = (train, evaluation)
    texts = [[_ngrams(normal_words(problem.statement), limits.words) for problem in side] for side in sides]
    telling = _telling(texts, [[problem.problem_id for problem in side] for side in sides], limits)
    tests = [[_tests(problem) for problem in side] for side in sides]
    numbers = _shared(*([_number(problem) for problem in side] for side in sides))
    equal = _shared(*([_whole(problem, limits) for problem in side] for side in sides))
    shared_grams = _shared(*telling)
    shared_tests = _shared(*([_long_enough(suite, limits) for suite in side] for side in tests))
    found: list[Overlap] = []
    for i, j in sorted({*numbers, *equal, *shared_grams, *shared_tests, *_near_duplicates(texts[0], texts[1], limits)}):
        smaller = min(len(telling[0][i]), len(telling[1][j]))
        containment = shared_grams[i, j] / smaller if smaller >= limits.fewest_ngrams else 0.0
        jaccard = similarity(texts[0][i], texts[1][j])
        long_enough = min(len(texts[0][i]), len(texts[1][j])) >= limits.fewest_ngrams
        least = max(1, min(len(tests[0][i]), len(tests[1][j])))
        same = shared_tests[i, j]
        signs = {
            "same number": (i, j) in numbers,
            "same statement": (i, j) in equal,
            "shared phrases": containment >= limits.containment,
            "near duplicate": long_enough and jaccard >= limits.near_duplicate,
            "tests": same >= min(limits.shared_tests, least) and same / least >= limits.shared_share,
        }
        if any(signs.values()):
            reason = " and ".join(name for name, holds in signs.items() if holds)
            ids = (train[i].problem_id, evaluation[j].problem_id)
            found.append(Overlap(*ids, containment, jaccard, same, reason))
    found.sort(key=lambda overlap: (-overlap.containment, -overlap.jaccard, -overlap.shared_tests))
    best: dict[tuple[str, str], Overlap] = {}
    for overlap in found:
        best.setdefault((overlap.train_id, overlap.evaluation_id), overlap)
    return list(best.values())


def normal_words(statement: str) -> list[str]:
    """The words that a statement is compared by: lower case, variables as `v`, numbers as `0`."""
    words = _WORD.findall(_MARKUP.sub(" ", statement).lower())
    return ["0" if word.isdigit() else "v" if _VARIABLE.fullmatch(word) else word for word in words]


def _telling(texts: list[list[set[str]]], ids: list[list[str]], limits: Thresholds) -> list[list[set[str]]]:
    """Each text's n-grams without those that many problems have."""
    held: dict[tuple[int, str], set[str]] = {}
    for side, (own, names) in enumerate(zip(texts, ids, strict=True)):
        for name, grams in zip(names, own, strict=True):
            key = side, name
            held[key] = held[key] | grams if key in held else grams  # seldom: no copy of what has one version
    seen = Counter(gram for grams in held.values() for gram in grams)
    most = max(limits.common_at_least, limits.common * len(held))
    return [[{gram for gram in grams if seen[gram] <= most} for grams in side] for side in texts]


def _near_duplicates(
    train: Sequence[set[str]], evaluation: Sequence[set[str]], limits: Thresholds
) -> Iterator[tuple[int, int]]:
    """Pairs that MinHash proposes."""
    index = rensa.RMinHashLSH(threshold=limits.near_duplicate, num_perm=PERMUTATIONS, num_bands=BANDS)
    for j, grams in enumerate(evaluation):
        if grams:
            index.insert(j, sketch_of(grams))
    for i, grams in enumerate(train):
        if grams:
            yield from ((i, j) for j in index.query(sketch_of(grams)))


def _ngrams(words: list[str], length: int) -> set[str]:
    return {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}


def _number(problem: Problem) -> set[tuple[str, str]]:
    """Set and number of a problem of MBPP or HumanEval, whatever edition it is of."""
    found = _NUMBERED.fullmatch(problem.problem_id)
    return {(found[1].lower(), found[2])} if found else set()


def _whole(problem: Problem, limits: Thresholds) -> set[str]:
    """The statement in lower case and on one line, without what is shown around it, if long enough to be told by."""
    text = " ".join(_SHOWN.sub(" ", problem.statement).lower().split())
    return {text} if len(text) >= limits.shortest_statement else set()


def _tests(problem: Problem) -> set[tuple[str, str]]:
    """The tests without what layout adds; of asserts in a row, each without the code that prepares them."""
    found = ((one, test.expected) for test in problem.tests for one in _asserted(problem, test.input))
    return {(" ".join(asked.split()), " ".join(expected.split())) for asked, expected in found}


def _asserted(problem: Problem, text: str) -> list[str]:
    if problem.style != "function":
        return [text]
    try:
        found = [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.Assert)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = []
    return found or [text]


def _long_enough(tests: set[tuple[str, str]], limits: Thresholds) -> set[tuple[str, str]]:
    return {test for test in tests if sum(map(len, test)) >= limits.shortest_test}


def _shared(train: Sequence[Iterable[Hashable]], evaluation: Sequence[Iterable[Hashable]]) -> Counter[tuple[int, int]]:
    """Number of common elements of every pair that has some."""
    holders: dict[Hashable, list[int]] = {}
    for index, elements in enumerate(evaluation):
        for element in elements:
            holders.setdefault(element, []).append(index)
    return Counter((i, j) for i, elements in enumerate(train) for element in elements for j in holders.get(element, ()))
