"""Reads problems from where the recipe says, splits them, and counts what is left out and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.config import ProblemsConfig
from tasks.problems import miniature, own_layout, published
from tasks.problems.kattis import read_packages
from tasks.problems.problem import Problem, Split
from tasks.problems.records import InvalidProblem, Record, read_json_lines

__all__ = ["InvalidProblem", "ReadReport", "read", "read_file", "split_of"]

LAYOUTS: dict[str, Callable[[Record, str], Problem]] = {
    "jsonl": own_layout.read_problem,
    "codecontests": published.codecontests,
    "taco": published.taco,
    "apps": published.apps,
    "livecodebench": published.livecodebench,
}
"""Readers of one line, by the recipe's name of the layout."""

NOT_NEEDED = "more than problems.train or problems.evaluation"


Objection = Callable[[Problem], str | None]
"""Why a problem cannot be used, or None."""


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What came out of a source."""

    problems: tuple[Problem, ...]
    """Training problems, then evaluation problems; all can be judged."""
    unjudgeable: tuple[Problem, ...]
    """Problems whose `unjudgeable_reason` says why no program for them can be judged."""
    left_out: dict[str, int]
    """Number of problems left out, by reason; the unjudgeable ones among them."""


def no_objection(_: Problem) -> None:
    """An Objection that takes every problem."""


def read(config: ProblemsConfig, objection: Objection = no_objection) -> ReadReport:
    """The problems that `config` asks for, the next ones taking the place of those that meet an `objection`.

    Raises InvalidProblem (names file, line and field) or TooFewCompositions.
    """
    if config.source == "miniature" or config.path is None:
        return ReadReport(tuple(miniature.generate(config.train, config.evaluation, config.seed)), (), {})
    path = Path(config.path)
    if config.source == "kattis":
        return _selected(read_packages(path, path.name), config, objection)
    return _selected(read_file(path, config.source), config, objection)


def read_file(path: Path, layout: str = "jsonl") -> list[Problem]:
    """Every problem of a JSON Lines file, judgeable or not, as training problems. Raises InvalidProblem."""
    problem_set = path.name.removesuffix(".gz").removesuffix(".jsonl")
    problems: list[Problem] = []
    lines: dict[str, str] = {}
    for record in read_json_lines(path):
        problem = LAYOUTS[layout](record, problem_set)
        if problem.problem_id in lines:
            raise record.error("problem_id", f"{problem.problem_id!r} occurs before, at {lines[problem.problem_id]}")
        lines[problem.problem_id] = record.where
        problems.append(problem)
    return problems


def split_of(problem_id: str, config: ProblemsConfig) -> Split:
    """The split of a problem: decided by its id and the seed alone, so that other problems never move it."""
    share = config.evaluation / (config.train + config.evaluation)
    return "evaluation" if _draw(problem_id, config.seed) < share else "train"


def _selected(problems: Iterable[Problem], config: ProblemsConfig, objection: Objection) -> ReadReport:
    unjudgeable: list[Problem] = []
    splits: dict[Split, list[Problem]] = {"train": [], "evaluation": []}
    left_out: Counter[str] = Counter()
    for problem in problems:
        if problem.unjudgeable_reason is not None:
            left_out[problem.unjudgeable_reason] += 1
            unjudgeable.append(problem)
        else:
            split = split_of(problem.problem_id, config)
            splits[split].append(replace(problem, split=split))
    chosen: list[Problem] = []
    wanted: tuple[tuple[Split, int], ...] = (("train", config.train), ("evaluation", config.evaluation))
    for split, most in wanted:
        ordered = sorted(splits[split], key=lambda problem: _draw(problem.problem_id, config.seed + 1))
        taken: list[Problem] = []
        for problem in ordered:
            reason = NOT_NEEDED if len(taken) >= most else objection(problem)
            if reason is None:
                taken.append(problem)
            else:
                left_out[reason] += 1
        chosen += taken
    return ReadReport(tuple(chosen), tuple(unjudgeable), {reason: n for reason, n in left_out.items() if n})


def _draw(problem_id: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed} {problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
