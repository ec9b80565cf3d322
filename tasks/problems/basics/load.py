"""Reads the tasks of the set `basics` from the files beside this module."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tasks.problems.basics.task import Task
from tasks.problems.problem import Problem, Split, Style

SPLITS: tuple[Split, ...] = ("train", "evaluation")
STYLES: tuple[Style, ...] = ("stdin", "function")


@cache
def tasks() -> tuple[Task, ...]:
    """Every task: those for training, then those for evaluation, in the order of files and tables."""
    found: list[Task] = []
    for split in SPLITS:
        for path in sorted((Path(__file__).parent / split).glob("*.toml")):
            families = tomllib.loads(path.read_text(encoding="utf-8"))
            found += [
                _task(name, family, split, said) for family, group in families.items() for name, said in group.items()
            ]
    return tuple(found)


def problems() -> list[Problem]:
    """Every task in both styles; which split a problem belongs to is decided by its family, and no seed changes it."""
    return [task.problem(style) for task in tasks() for style in STYLES]


def _task(name: str, family: str, split: Split, said: dict[str, Any]) -> Task:
    takes = [argument.split(": ") for argument in said["takes"].split(", ")]
    return Task(
        name=name,
        family=family,
        split=split,
        takes=tuple((argument, kind) for argument, kind in takes),
        gives=said.get("asks") or said["gives"],
        asks="asks" in said,
        difficulty=said["difficulty"],
        solutions=tuple(said["solutions"]),
        wrong=tuple(said["wrong"]),
        tests=tuple(said["tests"]),
    )
