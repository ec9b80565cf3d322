"""Data sets of the Hugging Face hub, record by record, through the library `datasets` (extra `hub`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tasks.problems.records import InvalidProblem, Record

PATIENCE_S = 5.0
"""Seconds the hub has for its answer whether it has a data set."""


class HubSet(Protocol):
    """A data set on the hub: its name, and which part of it; also a `ProblemFiles`."""

    @property
    def hub(self) -> str | None:
        """`owner/name`, or a folder of that layout."""
        ...

    @property
    def place(self) -> str:
        """The same, where it is known to be there."""
        ...

    @property
    def hub_split(self) -> str:
        """Split to read."""
        ...

    @property
    def hub_config(self) -> str | None:
        """Configuration of the data set; None: its only one."""
        ...

    @property
    def hub_revision(self) -> str | None:
        """Commit or branch; None: the newest."""
        ...


@dataclass(frozen=True, slots=True)
class HubPlace:
    """A HubSet that is no problem set."""

    hub: str
    hub_split: str = "train"
    hub_config: str | None = None
    hub_revision: str | None = None

    @property
    def place(self) -> str:
        """Its name or folder."""
        return self.hub


def read_hub(files: HubSet) -> Iterator[Record]:
    """The records of one split, streamed. Raises InvalidProblem when the library or the data set is out of reach."""
    where = f"{files.hub}[{files.hub_split}]"
    require_reachable(files)
    datasets: Any = importlib.import_module("datasets")
    try:
        rows = datasets.load_dataset(
            files.hub, files.hub_config, split=files.hub_split, revision=files.hub_revision, streaming=True
        )
        for number, row in enumerate(rows, start=1):
            yield Record(f"{where}:{number}", row)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(files, error) from error


def require_reachable(files: HubSet) -> None:
    """Raise InvalidProblem unless the library is here and the hub answers for the data set: asked once, not repeated.

    A folder is there.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if importlib.util.find_spec("datasets") is None:
        where = f"{files.hub}[{files.hub_split}]"
        raise InvalidProblem(f"{where}: reading from the hub needs `pip install -e '.[hub]'` in the project")
    if Path(files.place).is_dir():
        return
    transport: Any = HfHubHTTPError.__bases__[0]
    try:
        HfApi().dataset_info(files.place, revision=files.hub_revision, timeout=PATIENCE_S)
    except (HFValidationError, OSError, transport) as error:
        raise _unreachable(files, error) from error


def _unreachable(files: HubSet, error: Exception) -> InvalidProblem:
    first = str(error).partition("\n")[0]
    return InvalidProblem(
        f"{files.hub}[{files.hub_split}]: cannot be read from the hub ({type(error).__name__}: {first}); without "
        f"network access download its Parquet files elsewhere and set problems.path to their folder"
    )
