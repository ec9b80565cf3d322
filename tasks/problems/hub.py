"""Data sets of the Hugging Face hub, record by record, through the library `datasets` (extra `hub`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tasks.config import ProblemFiles
from tasks.problems.records import InvalidProblem, Record


def read_hub(files: ProblemFiles) -> Iterator[Record]:
    """The records of one split, streamed. Raises InvalidProblem when the library or the data set is out of reach."""
    where = f"{files.hub}[{files.hub_split}]"
    try:
        datasets: Any = importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise InvalidProblem(f"{where}: reading from the hub needs `pip install spo-pipeline[hub]`") from error
    try:
        rows = datasets.load_dataset(
            files.hub, files.hub_config, split=files.hub_split, revision=files.hub_revision, streaming=True
        )
        for number, row in enumerate(rows, start=1):
            yield Record(f"{where}:{number}", row)
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidProblem(
            f"{where}: cannot be read from the hub ({type(error).__name__}: {error}); without network access download "
            f"its Parquet files elsewhere and set problems.path to their folder"
        ) from error
