"""Reads problems from where the recipe says, splits them, and counts what is left out and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.config import ProblemFiles, ProblemsConfig
from tasks.problems import miniature, own_layout, published
from tasks.problems.hub import read_hub
from tasks.problems.kattis import read_packages
from tasks.problems.problem import Problem, Split
from tasks.problems.records import InvalidProblem, Record, read_records

__all__ = ["InvalidProblem", "ReadReport", "read", "read_file", "split_of"]

LAYOUTS: dict[str, Callable[[Record, str], Problem]] = {
    "jsonl": own_layout.read_problem,
    "codecontests": published.codecontests,
    "taco": published.taco,
    "apps": published.apps,
    "livecodebench": published.livecodebench,
    "humaneval": published.humaneval,
    "mbpp": published.mbpp,
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
    if config.source == "miniature":
        return ReadReport(tuple(miniature.generate(config.train, config.evaluation, config.seed)), (), {})
    if not config.evaluation_sets:
        return _split_up(read_set(config), config, objection)
    train = _chosen(_as(read_set(config), "train"), config.train, config.seed, objection)
    parts = [train]
    for one in config.evaluation_sets:
        problems = _as(read_set(one), "evaluation")
        parts.append(_chosen(problems, one.most or len(problems), config.seed, objection))
    return _together(parts)


def read_set(files: ProblemFiles) -> list[Problem]:
    """Every problem of a set, judgeable or not, as training problems. Raises InvalidProblem."""
    if files.hub:
        name = files.hub.rstrip("/").rsplit("/", 1)[-1]
        return _problems(read_hub(files), files.source, name)
    assert files.path is not None
    path = Path(files.path)
    return read_packages(path, path.name) if files.source == "kattis" else read_file(path, files.source)


def read_file(path: Path, layout: str = "jsonl") -> list[Problem]:
    """Every problem of a file, folder or pattern, judgeable or not, as training problems. Raises InvalidProblem."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".parquet")
    return _problems(read_records(path), layout, name)


def _problems(records: Iterable[Record], layout: str, problem_set: str) -> list[Problem]:
    problems: list[Problem] = []
    lines: dict[str, str] = {}
    for record in records:
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


def _as(problems: Iterable[Problem], split: Split) -> list[Problem]:
    return [replace(problem, split=split) for problem in problems]


def _split_up(problems: Sequence[Problem], config: ProblemsConfig, objection: Objection) -> ReadReport:
    splits: dict[Split, list[Problem]] = {"train": [], "evaluation": []}
    for problem in problems:
        split = split_of(problem.problem_id, config)
        splits[split].append(replace(problem, split=split))
    return _together(
        [
            _chosen(splits["train"], config.train, config.seed, objection),
            _chosen(splits["evaluation"], config.evaluation, config.seed, objection),
        ]
    )


def _chosen(problems: Sequence[Problem], most: int, seed: int, objection: Objection) -> ReadReport:
    """At most `most` of the problems that can be judged, in the order that the seed and their ids decide."""
    unjudgeable = [problem for problem in problems if problem.unjudgeable_reason is not None]
    left_out = Counter(problem.unjudgeable_reason or "" for problem in unjudgeable)
    taken: list[Problem] = []
    judgeable = [problem for problem in problems if problem.unjudgeable_reason is None]
    for problem in sorted(judgeable, key=lambda problem: _draw(problem.problem_id, seed + 1)):
        reason = NOT_NEEDED if len(taken) >= most else objection(problem)
        if reason is None:
            taken.append(problem)
        else:
            left_out[reason] += 1
    return ReadReport(tuple(taken), tuple(unjudgeable), dict(left_out))


def _together(parts: Sequence[ReadReport]) -> ReadReport:
    """The parts as one report. Raises InvalidProblem for a problem that is in two of them."""
    seen: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for part in parts:
        left_out.update(part.left_out)
        for problem in (*part.problems, *part.unjudgeable):
            if problem.problem_id in seen:
                raise InvalidProblem(
                    f"problem {problem.problem_id!r} is in {seen[problem.problem_id]} and in {problem.problem_set}: "
                    f"a set cannot be trained and evaluated on"
                )
            seen[problem.problem_id] = problem.problem_set
    return ReadReport(
        tuple(problem for part in parts for problem in part.problems),
        tuple(problem for part in parts for problem in part.unjudgeable),
        dict(left_out),
    )


def _draw(problem_id: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed} {problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
