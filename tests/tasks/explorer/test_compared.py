"""What the page of runs side by side says of evaluations that cannot be set side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tasks.explorer.pages import Explorer
from tests.tasks.explorer.conftest import Pages
from warehouse import Warehouse
from warehouse.reading.readers import Readers

OTHER_PROBLEMS = "evaluated on different problems"
OTHER_SAMPLING = "sampled in different ways"


def evaluated(store: Warehouse, run: str, problems: str, sampling: str) -> None:
    """A run of the pipeline, or an evaluation alone where its name begins so."""
    alone = run.startswith("eval")
    point = {"policy_id": run, "k": 1, "value": 0.2, "low": 0.1, "high": 0.9}
    found: dict[str, Any] = {"curve": [point | {"step": step} for step in (0, 1)[: 1 if alone else 2]]}
    found |= {"comparison": {}, "described": "", "sampling": sampling}
    found |= {"problems_batch": problems} if alone else {}
    manifests = {"evaluate": found} | ({} if alone else {"prepare": {"problems_batch": problems}})
    stages = [
        {"stage": stage, "key": f"{stage}/{run}", "status": "completed", "manifest_json": json.dumps(manifest)}
        for stage, manifest in manifests.items()
    ]
    store.append(f"run/{run}", {"runs": [{"recipe": "tiny", "config_json": "{}"}], "stages": stages}, run_id=run)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("compared")
    with Warehouse.open(folder / "warehouse") as store:
        for batch, names in (("problems/1", "ab"), ("problems/2", "cd")):
            rows = [{"problem_id": name, "split": "evaluation", "suite_hash": name} for name in names]
            store.append(batch, {"problems": rows}, run_id="x")
        evaluated(store, "eval-1", "problems/1", "T=1")
        evaluated(store, "eval-2", "problems/2", "T=0.2")
        evaluated(store, "tiny-1", "problems/2", "T=1")
        evaluated(store, "tiny-2", "problems/1", "T=1")
        evaluated(store, "tiny-3", "problems/2", "T=0.2")
        with Readers.open(folder / "warehouse") as readers:
            readers.fill()
            yield Pages(Explorer(readers, folder, asked_s=300), store)


@pytest.mark.parametrize(
    ("runs", "warnings"),
    [
        (("eval-1", "eval-2"), {OTHER_PROBLEMS, OTHER_SAMPLING}),
        (("eval-1", "tiny-1"), {OTHER_PROBLEMS}),
        (("tiny-1", "tiny-2"), {OTHER_PROBLEMS}),
        (("tiny-1", "tiny-3"), {OTHER_SAMPLING}),
        (("eval-1", "tiny-2"), set[str]()),
    ],
)
def test_what_cannot_be_set_side_by_side_is_said(pages: Pages, runs: tuple[str, ...], warnings: set[str]) -> None:
    page = pages.html("/compare", run=runs)
    assert {text for text in (OTHER_PROBLEMS, OTHER_SAMPLING) if text in page} == warnings
