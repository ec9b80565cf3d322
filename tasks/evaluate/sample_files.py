"""Files of programs that somebody sampled, which `spo eval` judges as they stand (docs/guides/evaluate.md).

A line names its problem (`problem_id`, `task_id` or `question_id`) and holds one program or several: `completion` goes
on where the statement ends (HumanEval's way), `solution`, `program` or `code` is whole, `text`, `response` or `output`
is an answer with a program in it; `samples` is a list of such objects, `code_list` one of whole programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.problems.problem import Problem
from tasks.problems.records import Record, read_records
from tasks.programs.extraction import extract_program

NAMES = ("problem_id", "task_id", "question_id")
WHOLE = ("solution", "program", "code")
ANSWERS = ("text", "response", "output")
PREFIXES = ("livecodebench/", "mbpp/", "codecontests/", "taco/")
"""Put before the names that these sets give their problems (tasks/problems/published.py)."""


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A program that was sampled elsewhere."""

    where: str
    """`file:line`."""
    program: str
    passed: bool | None = None
    """What the file says of it; None where it says nothing."""


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """What a file holds for some problems."""

    samples: Mapping[str, list[StoredSample]]
    """By problem, in the order of the file."""
    left_out: Mapping[str, int]
    """Samples that are not judged, by reason."""
    drawn: str
    """How the file says that they were drawn; empty where it does not, or says several things."""
    unknown: str = ""
    """A name in the file that no problem has; empty where there is none."""


def read(path: Path, problems: Mapping[str, Problem]) -> StoredSamples:
    """The file's programs for these problems. Raises InvalidProblem (names file, line and field)."""
    by_name = _by_name(problems)
    found: dict[str, list[StoredSample]] = {name: [] for name in problems}
    left_out, drawn, unknown = Counter[str](), set[str](), ""
    for record in read_records(path):
        name = next((record.data[name] for name in NAMES if record.data.get(name) is not None), None)
        if name is None:
            raise record.error(NAMES[0], f"is missing, and so are {' and '.join(NAMES[1:])}")
        known = by_name.get(str(name).lower())
        statement = problems[known].statement if known is not None else ""
        samples = list(_samples(record, statement))
        if known is None:
            left_out["of no problem of the set"] += len(samples)
            unknown = unknown or str(name)
            continue
        found[known] += samples
        drawn.add(_drawn(record))
    return StoredSamples(found, dict(left_out), drawn.pop() if len(drawn) == 1 else "", unknown)


def _by_name(problems: Iterable[str]) -> dict[str, str]:
    """Problem by its id in lower case, and as its set calls it where reading the set puts a name before that."""
    whole = {name.lower(): name for name in problems}
    return {low.partition("/")[2]: name for low, name in whole.items() if low.startswith(PREFIXES)} | whole


def _samples(record: Record, statement: str) -> Iterator[StoredSample]:
    if record.data.get("samples") is not None:
        for one in record.records("samples"):
            yield from _samples(one, statement)
        return
    programs = record.texts("code_list") or [_program(record, statement)]
    passed = record.flag("passed") if record.data.get("passed") is not None else None
    yield from (StoredSample(record.where, program, passed) for program in programs)


def _program(record: Record, statement: str) -> str:
    if record.data.get("completion") is not None:
        return statement + record.text("completion")
    for names, cut in ((WHOLE, False), (ANSWERS, True)):
        for name in names:
            if record.data.get(name) is not None:
                text = record.text(name)
                return extract_program(text) if cut else text
    known = ("completion", *WHOLE, *ANSWERS, "samples", "code_list")
    raise record.error(known[0], f"is missing, and so are {', '.join(known[1:])}: there is no program")


def _drawn(record: Record) -> str:
    parts = [("T", record.number("temperature", None)), ("top_p", record.number("top_p", None))]
    return " ".join(f"{name}={value:g}" for name, value in parts if value is not None)
