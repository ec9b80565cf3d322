"""The files that a configuration names, looked at before a run is submitted.

A look, not the reading: the first records of each file are understood as its layout says, and the rest is read as far
as a few seconds reach. What comes after is checked by the stage that reads it, with the same messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from tasks.config import ProblemFiles, RunConfig
from tasks.corpus import files
from tasks.engines import checkpoint
from tasks.engines.protocol import MissingModel
from tasks.problems import kattis
from tasks.problems.records import Record, read_records
from tasks.problems.sources import LAYOUTS

UNDERSTOOD = 200
"""Records of a file that are understood field by field."""
PATIENCE_S = 2.0
"""Time spent on the rest of one file."""

Clock = Callable[[], float]
"""Seconds from some moment on."""


def check_files(config: RunConfig, *, clock: Clock = time.monotonic) -> None:
    """Raise InvalidProblem or MissingModel when a file that the run needs is missing or cannot be understood.

    The message names file, line and field. What lies on the hub is not looked at.
    """
    for one in (config.problems, *config.problems.evaluation_sets):
        _check_problems(one, clock)
    for path in config.corpus.files:
        _look(Path(path), files.check_record, clock)
    _check_model(config.reference.model, config.reference.gguf_file)
    for model in config.corpus.other_models:
        if model.endpoint is None:
            _check_model(model.model, None)


def _check_problems(one: ProblemFiles, clock: Clock) -> None:
    if one.path is None:
        return
    if one.source == "kattis":
        for folder in kattis.packages(Path(one.path))[:UNDERSTOOD]:
            kattis.read_package(folder, "")
        return
    _look(Path(one.path), lambda record: LAYOUTS[one.source](record, ""), clock)


def _look(path: Path, understand: Callable[[Record], object], clock: Clock) -> None:
    records = read_records(path)
    for record in islice(records, UNDERSTOOD):
        understand(record)
    until = clock() + PATIENCE_S
    for _ in records:
        if clock() > until:
            return


def _check_model(name: str, gguf_file: str | None) -> None:
    """Look at a model that is a folder, or is written like a path; any other name is one on the hub."""
    folder = Path(name).expanduser()
    if name == "miniature":
        return
    if not folder.is_dir() and not folder.is_absolute() and not name.startswith("."):
        return
    if gguf_file is None:
        checkpoint.require_checkpoint(folder)
    elif not (folder / gguf_file).is_file():
        raise MissingModel(f"{folder} holds no {gguf_file}; set reference.gguf_file to a file in it")
