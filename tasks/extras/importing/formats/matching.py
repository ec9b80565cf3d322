"""Which of a run's problems a foreign row answers: by the name that it gives, else by the statement in its prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from tasks.problems.problem import Problem

_WORD = re.compile(r"\w+|[^\w\s]|\n")
_LINE_MARKS = re.compile(r"^[ \t]*(?:(?:#+|//+|>+)[ \t]*)+", re.MULTILINE)
"""What a prompt may put before every line of a statement: marks of comments and of quotations."""
_ENDS = frozenset(".!?;:\"'`<[|#\n")
"""What can follow a statement in its line; after anything else the prompt asks for more than the statement says."""

OPENING_WORDS = 6
"""Words of a statement by which it is looked for."""


class Matching:
    """Finds problems by name and by statement."""

    def __init__(self, train: Iterable[Problem], evaluation: Iterable[Problem]) -> None:
        self._split = {problem.problem_id: problem.split for problem in (*train, *evaluation)}
        self._statements: dict[tuple[str, ...], list[tuple[list[str], str]]] = {}
        for problem in (*train, *evaluation):
            words, _ = _words(problem.statement)
            if words:
                known = self._statements.setdefault(tuple(words[:OPENING_WORDS]), [])
                known.append((words, problem.problem_id))
        self._asked = lru_cache(maxsize=4096)(self._by_statement)

    def find(self, names: Iterable[str], prompt: str) -> tuple[str | None, str]:
        """The training problem, or None and the reason why there is none.

        A name counts unless the prompt holds the statements of other problems alone: programs number their rows, and
        such a number may be the name of a problem.
        """
        named = [name for name in names if name in self._split]
        asked = self._asked(prompt)
        found = frozenset([name for name in named if not asked or name in asked][:1])
        if named and not found:
            return None, f"is named {named[0]!r}, but its prompt holds the statement of {', '.join(sorted(asked))}"
        found = found or asked
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
        words, following = _words(prompt)
        found: set[tuple[str, str]] = set()
        for start in range(len(words)):
            for length in range(1, OPENING_WORDS + 1):
                for statement, problem_id in self._statements.get(tuple(words[start : start + length]), ()):
                    end = start + len(statement)
                    if words[start:end] == statement and _is_whole(statement, following[end - 1]):
                        found.add((_joined(statement), problem_id))
        longest = {one for one in found if not any(one[0] != other[0] and one[0] in other[0] for other in found)}
        return frozenset(problem_id for _, problem_id in longest)


def _is_whole(statement: Sequence[str], following: str) -> bool:
    """Whether a statement is over where `following` comes next: else it is but the beginning of what is asked."""
    return following in _ENDS or not statement[-1][-1].isalnum()


def _words(text: str) -> tuple[list[str], list[str]]:
    """Words, numbers and single other characters of a text; and what follows each, ends of lines included."""
    found = [*_WORD.findall(_LINE_MARKS.sub("", text.lower())), "\n"]
    places = [place for place, word in enumerate(found) if word != "\n"]
    return [found[place] for place in places], [found[place + 1] for place in places]


def _joined(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
