"""Which of a run's problems a foreign row answers: by the name that it gives, else by the statement in its prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tasks.problems.problem import Problem

_WORD = re.compile(r"\w+")

OPENING_WORDS = 6
"""Words of a statement by which it is looked for."""


class Matching:
    """Finds problems by name and by statement."""

    def __init__(self, train: Iterable[Problem], evaluation: Iterable[Problem]) -> None:
        self._split = {problem.problem_id: problem.split for problem in (*train, *evaluation)}
        self._statements: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for problem in (*train, *evaluation):
            words = _words(problem.statement)
            if words:
                known = self._statements.setdefault(tuple(words[:OPENING_WORDS]), [])
                known.append((_joined(words), problem.problem_id))
        self._asked = lru_cache(maxsize=4096)(self._by_statement)

    def find(self, names: Iterable[str], prompt: str) -> tuple[str | None, str]:
        """The training problem, or None and the reason why there is none."""
        named = [name for name in names if name in self._split]
        found = frozenset(named[:1]) or self._asked(prompt)
        if not found:
            return None, "answers no problem of the run: neither its name nor a statement in its prompt is known"
        if len(found) > 1:
            return None, f"its prompt fits several problems: {', '.join(sorted(found))}"
        (problem_id,) = found
        if self._split[problem_id] != "train":
            return None, "answers an evaluation problem of the run, which is never trained on"
        return problem_id, ""

    def _by_statement(self, prompt: str) -> frozenset[str]:
        """The problems whose whole statement stands in the prompt; of statements within one another the longest."""
        words = _words(prompt)
        text = _joined(words)
        found: set[tuple[str, str]] = set()
        for start in range(len(words)):
            for length in range(1, OPENING_WORDS + 1):
                for statement, problem_id in self._statements.get(tuple(words[start : start + length]), ()):
                    if statement in text:
                        found.add((statement, problem_id))
        longest = {one for one in found if not any(one[0] != other[0] and one[0] in other[0] for other in found)}
        return frozenset(problem_id for _, problem_id in longest)


def _words(text: str) -> list[str]:
    """The words and numbers of a text, whatever its layout."""
    return _WORD.findall(text.lower())


def _joined(words: list[str]) -> str:
    return f" {' '.join(words)} "
