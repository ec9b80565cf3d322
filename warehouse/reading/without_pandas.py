"""Queries without pandas: DuckDB imports it, where it is installed, at the first query with parameters.

It does so only to recognise pandas' own values among them. None are passed here, and the import takes as long as much
else that a short command does: it is refused while a query of this package begins, and succeeds for everybody else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

_here = threading.local()


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas" and getattr(_here, "querying", False):
            raise ModuleNotFoundError("no query needs pandas", name=fullname)


@contextmanager
def without_pandas() -> Generator[None]:
    """In the block, this thread does not import pandas; what has been imported before stays as it is."""
    _here.querying = True
    try:
        yield
    finally:
        _here.querying = False


sys.meta_path.insert(0, _WithoutPandas())
