"""Reads problems from where the recipe says, splits them, and counts what is left out and why."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.config import EvaluationSet, ProblemFiles, ProblemsConfig
from tasks.problems import basics, evalplus, miniature, own_layout, published
from tasks.problems.hub import read_hub
from tasks.problems.kattis import read_packages
from tasks.problems.problem import Problem, Split
from tasks.problems.records import InvalidProblem, Record, long_numbers, read_records

__all__ = ["InvalidProblem", "ReadReport", "read", "read_file", "split_of"]

LAYOUTS: dict[str, Callable[[Record, str], Problem]] = {
    "jsonl": own_layout.read_problem,
    "codecontests": published.codecontests,
    "taco": published.taco,
    "apps": published.apps,
    "livecodebench": published.livecodebench,
    "humaneval": published.humaneval,
    "mbpp": published.mbpp,
    "humanevalplus": evalplus.humanevalplus,
    "mbppplus": evalplus.mbppplus,
}
"""Readers of one line, by the recipe's name of the layout."""

_TELLING: dict[str, set[str]] = {
    "jsonl": {"problem_id", "statement"},
    "humaneval": {"task_id", "prompt", "entry_point", "test"},
    "mbpp": {"task_id", "test_list"},
    "livecodebench": {"question_id", "question_content"},
    "codecontests": {"name", "description", "public_tests"},
    "taco": {"question", "input_output", "time_limit"},
    "apps": {"question", "input_output"},
}
"""Fields by which a layout is recognized, the most telling first."""
_KNOWN_FILE = re.compile(r"\.(jsonl|json|parquet)(\.gz)?$")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
"""In the source that a LiveCodeBench problem names."""
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
    spare: tuple[Problem, ...] = ()
    """More problems that can be judged than were asked for: those that take the place of what meets an objection."""


def no_objection(_: Problem) -> None:
    """An Objection that takes every problem."""


def read(config: ProblemsConfig, objection: Objection = no_objection) -> ReadReport:
    """The problems that `config` asks for, the next ones taking the place of those that meet an `objection`.

    Raises InvalidProblem (names file, line and field) or TooFewCompositions.
    """
    if config.source == "miniature":
        made = miniature.generate(config.train, config.evaluation, config.seed, config.depth)
        return ReadReport(tuple(made), (), {})
    if not config.evaluation_sets:
        return _split_up(read_set(config), config, objection)
    train = _chosen(_as(_part(config, "train"), "train"), config.train, config.seed, objection)
    return _together([train, *_to_evaluate(config.evaluation_sets, config.seed, objection)])


def evaluation_problems(sets: Sequence[EvaluationSet], seed: int) -> list[Problem]:
    """The judgeable problems of sets to evaluate on. Raises InvalidProblem, also for a set without any."""
    found = _to_evaluate(sets, seed, no_objection)
    for one, part in zip(sets, found, strict=True):
        if not part.problems:
            why = "; ".join(sorted(part.left_out))
            raise InvalidProblem(
                f"{one.place}: no program for any of its problems can be judged: {why}", code="NothingJudgeable"
            )
    return list(_together(found).problems)


def _to_evaluate(sets: Sequence[EvaluationSet], seed: int, objection: Objection) -> list[ReadReport]:
    found: list[ReadReport] = []
    for one, name in zip(sets, set_names(sets), strict=True):
        problems = [problem for problem in _as(_part(one, "evaluation"), "evaluation") if within(problem, one)]
        if not problems:
            raise none_released(one)
        named = [replace(problem, problem_set=name or problem.problem_set) for problem in problems]
        found.append(_chosen(named, one.most or len(named), seed, objection))
    return found


def set_names(sets: Sequence[EvaluationSet]) -> list[str]:
    """What sets of the same name are called instead, for pass@k is the mean over sets: empty where it is their own.

    The folder above, the split and the window are added. Raises InvalidProblem where that does not tell them apart.
    """
    names = [_set_name(one) for one in sets]
    longer = [_longer(one) if names.count(name) > 1 else "" for one, name in zip(sets, names, strict=True)]
    if alike := [name for name in longer if name and longer.count(name) > 1]:
        places = ", ".join(one.place for one, name in zip(sets, longer, strict=True) if name == alike[0])
        raise InvalidProblem(
            f"several sets to evaluate on are called {alike[0]!r} ({places}): rename a file or folder",
            code="SetsOfOneName",
        )
    return longer


def _set_name(one: ProblemFiles) -> str:
    """How the problems of a set are called together."""
    path = Path(one.place)
    return path.name if one.hub or one.source == "kattis" else _file_name(path)


def _file_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".parquet")


def _longer(one: EvaluationSet) -> str:
    above = Path(one.place).parent.name
    window = f"{one.since or ''}..{one.until or ''}" if one.since or one.until else ""
    on_hub = (one.hub_config, one.hub_split) if one.hub else ()
    return " ".join(part for part in (f"{above}/{_set_name(one)}".lstrip("/"), *on_hub, one.only, window) if part)


def within(problem: Problem, one: EvaluationSet) -> bool:
    """Whether the problem was released in the window that the set asks for. Raises InvalidProblem without a day."""
    if not one.since and not one.until:
        return True
    day = _DAY.search(problem.source)
    if day is None:
        raise InvalidProblem(f"problem {problem.problem_id!r} has no contest_date: leave `since` and `until` out")
    return (not one.since or one.since <= day[0]) and (not one.until or day[0] < one.until)


def read_set(files: ProblemFiles) -> list[Problem]:
    """Every problem of a set, judgeable or not; only those of `basics` are in a split. Raises InvalidProblem."""
    if files.source == "basics":
        return basics.problems()
    if files.hub:
        return _problems(read_hub(files), files.source, _set_name(files), Path(files.place), files.only)
    path = Path(files.place)
    if files.source == "kattis":
        return read_packages(path, _set_name(files))
    return read_file(path, files.source, files.only)


def read_file(path: Path, layout: str = "jsonl", only: str | None = None) -> list[Problem]:
    """Every problem of a file, folder or pattern, judgeable or not, as training problems. Raises InvalidProblem.

    `only`: those whose field `split` says this.
    """
    return _problems(read_records(path), layout, _file_name(path), path, only)


def none_of(path: Path, only: str) -> InvalidProblem:
    """The error for a set without a record of the split asked for, to be raised."""
    return InvalidProblem(f"{path}: no record whose field 'split' is {only!r}; set `only` to one that it holds")


def none_released(one: EvaluationSet) -> InvalidProblem:
    """The error for a set without a problem, or without one of the window asked for, to be raised."""
    window = [f"{word} {day}" for word, day in (("since", one.since), ("before", one.until)) if day]
    released = f"no problem was released {' and '.join(window)}" if window else "there is no problem"
    return InvalidProblem(f"{one.place}: {released}")


def layout_of(path: Path) -> str:
    """The layout that the first record's fields belong to; folders of packages are `kattis`. Raises InvalidProblem."""
    if path.is_dir() and not any(_KNOWN_FILE.search(file.name) for file in path.rglob("*")):
        return "kattis"
    first = next(iter(read_records(path)), Record(str(path), {}))
    fields = set(first.data)
    if fields >= {"task_id", "entry_point", "base_input", "plus_input"}:
        return "mbppplus" if str(first.data["task_id"]).startswith("Mbpp/") else "humanevalplus"
    found = [layout for layout, telling in _TELLING.items() if telling <= fields]
    if not found:
        raise InvalidProblem(f"{path}: its fields are those of no known layout; name it with --layout")
    return found[0]


def problem_of(record: Record, layout: str, problem_set: str) -> Problem:
    """The problem that a record holds. Raises InvalidProblem (names file, line and field)."""
    with long_numbers():
        return LAYOUTS[layout](record, problem_set)


def is_of(record: Record, only: str | None) -> bool:
    """Whether a record is of the split that `only` names, or none is asked for."""
    return only is None or record.text("split", "") == only


def _part(files: ProblemFiles, split: Split) -> list[Problem]:
    """What a set gives to a split: all of it, or that split of `basics`."""
    return [problem for problem in read_set(files) if files.source != "basics" or problem.split == split]


def _problems(records: Iterable[Record], layout: str, problem_set: str, place: Path, only: str | None) -> list[Problem]:
    """The problems of the split `only`. Raises InvalidProblem, also where there is none of it at `place`."""
    problems: list[Problem] = []
    lines: dict[str, str] = {}
    for record in records:
        if not is_of(record, only):
            continue
        problem = problem_of(record, layout, problem_set)
        if problem.problem_id in lines:
            raise record.error("problem_id", f"{problem.problem_id!r} occurs before, at {lines[problem.problem_id]}")
        lines[problem.problem_id] = record.where
        problems.append(problem)
    if only and not problems:
        raise none_of(place, only)
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
        split = problem.split if config.source == "basics" else split_of(problem.problem_id, config)
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
    spare: list[Problem] = []
    judgeable = [problem for problem in problems if problem.unjudgeable_reason is None]
    for problem in sorted(judgeable, key=lambda problem: _draw(problem.problem_id, seed + 1)):
        if len(taken) >= most:
            spare.append(problem)
        elif reason := objection(problem):
            left_out[reason] += 1
        else:
            taken.append(problem)
    left_out |= Counter({NOT_NEEDED: len(spare)})
    return ReadReport(tuple(taken), tuple(unjudgeable), dict(+left_out), tuple(spare))


def _together(parts: Sequence[ReadReport]) -> ReadReport:
    """The parts as one report. Raises InvalidProblem for a problem that is in two of them."""
    seen: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for part in parts:
        left_out.update(part.left_out)
        for problem in (*part.problems, *part.unjudgeable):
            if problem.problem_id in seen:
                raise InvalidProblem(
                    in_two_sets(problem.problem_id, seen[problem.problem_id], problem.problem_set), code="InTwoSets"
                )
            seen[problem.problem_id] = problem.problem_set
    return ReadReport(
        tuple(problem for part in parts for problem in part.problems),
        tuple(problem for part in parts for problem in part.unjudgeable),
        dict(left_out),
        tuple(problem for part in parts for problem in part.spare),
    )


def in_two_sets(problem_id: str, one: str, other: str) -> str:
    """What is wrong with two sets of a run that share a problem, or the name of one."""
    return (
        f"problem {problem_id!r} is in {one} and in {other}: sets of one run must have other problems, for a set "
        f"cannot be trained and evaluated on, and a problem counts once; `spo eval` takes a further set by itself"
    )


def _draw(problem_id: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed} {problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
