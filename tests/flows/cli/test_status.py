"""`spo status` and `spo runs` where there are evaluations alone, and where all runs are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks import config
from tasks.run import runs
from tests.flows.cli.conftest import Spo, code
from warehouse import Warehouse

SUBJECT = {"kind": "samples", "path": "samples.jsonl"}
SETS = [{"source": "humaneval", "path": "humaneval.jsonl"}]


@pytest.fixture(autouse=True)
def two_evaluations(tmp_path: Path) -> None:
    settings = config.validate({"recipe": "eval", "subject": SUBJECT, "evaluate": {"transfer": SETS}})
    with Warehouse.open(tmp_path / "warehouse") as store:
        for origin in ("first", "second"):
            runs.create(store, settings, origin=origin)


def test_the_newest_evaluation_is_shown_where_there_is_no_run(spo: Spo) -> None:
    shown = spo("status")
    assert code(shown) == ""
    assert "eval-2" in shown.output
    assert runs.OF_AN_EVALUATION in " ".join(shown.output.split())


@pytest.mark.parametrize(("limit", "expected"), [("0", 2), ("1", 1)])
def test_no_limit_shows_all_runs(limit: str, expected: int, spo: Spo) -> None:
    shown = spo("runs", "--limit", limit).output
    assert sum(name in shown for name in ("eval-1", "eval-2")) == expected
