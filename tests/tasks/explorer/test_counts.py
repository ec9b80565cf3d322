"""What the pages say of pi_0 is of the statement, the way of sampling and the tests of today alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.explorer import audits, problem, trajectory
from tasks.explorer.pages import Explorer
from tests.tasks.explorer.conftest import Pages
from warehouse import Warehouse
from warehouse.reading.readers import Readers

WAY = {"problem_id": "p", "reference": "base", "sampling": "t1", "template_id": "chat", "suite_hash": "s"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Counted 10 of 10 as first worded, 1 of 1 before prompts were recorded, 9 of 9 in other ways, 2 of 4 today."""
    folder = tmp_path_factory.mktemp("counts")
    with Warehouse.open(folder / "warehouse") as store:
        known = {"problem_id": "p", "split": "train", "title": "Reworded", "suite_hash": "s"}
        other = {"n": 9, "k": 9, "prompt_id": "new"}
        rows: list[dict[str, Any]] = [
            {"n": 10, "k": 10, "prompt_id": "old"},
            {"n": 1, "k": 1, "prompt_id": None},
            *({name: "other"} | other for name in ("reference", "sampling", "template_id", "suite_hash")),
            {"n": 3, "k": 2, "prompt_id": "new"},
        ]
        store.append("first", {"problems": [known], "reference_counts": [WAY | row for row in rows]}, run_id="one")
        store.append("last", {"reference_counts": [WAY | {"n": 1, "k": 0, "prompt_id": "new"}]}, run_id="two")
        with Readers.open(folder / "warehouse") as readers:
            readers.fill()
            yield Pages(Explorer(readers, folder, asked_s=300), store)


def test_a_problem_is_as_hard_as_its_present_statement(pages: Pages) -> None:
    assert pages.store.rows(problem.PI_0, {"problem": "p"}) == [{"n": 5, "k": 3}]
    assert "3 of 5, [" in pages.html("/problem", id="p")
    assert "3 of 5<" in pages.html("/problems")


def test_each_suite_has_its_counts_of_the_present_statement(pages: Pages) -> None:
    found = pages.store.rows(audits.COUNTS, {"problem": "p"})
    assert {row["suite_hash"]: (row["n"], row["k"]) for row in found} == {"s": (5, 3), "other": (9, 9)}


@pytest.mark.parametrize(
    "prompt, sampling, expected",
    [
        ("old", "t1", 10 + 1),
        ("new", "t1", 1 + 9 + 4),
        (None, "t1", 10 + 1 + 9 + 4),
        ("new", "other", 9),
        ("new", "never counted", 1 + 9 + 4),
    ],
)
def test_a_trajectorys_page_tells_of_its_own_prompt_and_limit(
    pages: Pages, prompt: str | None, sampling: str, expected: int
) -> None:
    asked = {"problem": "p", "suite": "s", "reference": "base", "prompt": prompt, "sampling": sampling}
    (row,) = pages.store.rows(trajectory.COUNTS, asked)
    assert row["n"] == expected


def test_a_problem_that_was_never_counted_says_so(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("a", {"problems": [{"problem_id": "p", "split": "train", "suite_hash": "s"}]}, run_id="one")
        assert store.rows(problem.PI_0, {"problem": "p"}) == [{"n": None, "k": None}]
