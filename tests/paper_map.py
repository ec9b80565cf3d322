"""The rows of docs/reference/paper-map.md, and whether the test that a row cites calls the function that it names."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PAPER_MAP = Path(__file__).parents[1] / "docs" / "reference" / "paper-map.md"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the map, such as Eq. 7, `tasks.objectives.spo.advantage` and the test of it."""

    paper: str
    function: str
    """Dotted name of a function or class."""
    test: str
    """Node id of a test; with `[case]` one case of it, without one all of them."""

    def cites(self, node_id: str) -> bool:
        """Whether this row names that test."""
        return node_id == self.test or node_id.startswith(f"{self.test}[")

    def resolve(self) -> Any:
        """The function or class itself. Raises ImportError or AttributeError when there is none."""
        module, name = self.function.rsplit(".", 1)
        return getattr(importlib.import_module(module), name)

    def resolve_test(self) -> tuple[Any, Any]:
        """The test's module and the test function. Raises ImportError or AttributeError when there is none."""
        file, name = self.test.split("[")[0].split("::")
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        return module, getattr(module, name)


def rows() -> list[Row]:
    """Every row of the map that cites a test."""
    lines = PAPER_MAP.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines if "::" in line]
    return [Row(paper, function, test) for paper, _, function, test in cells]


@contextmanager
def calls_to(*functions: Any) -> Iterator[set[str]]:
    """Names of those functions (for a class, any method of its own) that nobody has called yet, in this thread."""
    codes: dict[CodeType, str] = {}
    for function in functions:
        entered = vars(function).values() if inspect.isclass(function) else [inspect.unwrap(function)]
        codes |= {one.__code__: function.__name__ for one in entered if inspect.isfunction(one)}
    missing = set(codes.values())

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            missing.discard(codes[frame.f_code])
            if not missing:
                sys.setprofile(None)

    sys.setprofile(see)
    try:
        yield missing
    finally:
        sys.setprofile(None)
