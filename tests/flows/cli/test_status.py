"""`spo status` and `spo runs` where there are evaluations alone, and where all runs are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tasks import config
from tasks.run import runs
from warehouse import Warehouse

SUBJECT = {"kind": "samples", "path": "samples.jsonl"}
SETS = [{"source": "humaneval", "path": "humaneval.jsonl"}]


@pytest.fixture(autouse=True)
def two_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    settings = config.validate({"recipe": "eval", "subject": SUBJECT, "evaluate": {"transfer": SETS}})
    with Warehouse.open(tmp_path / "warehouse") as store:
        for origin in ("first", "second"):
            runs.create(store, settings, origin=origin)


def test_the_newest_evaluation_is_shown_where_there_is_no_run() -> None:
    shown = CliRunner().invoke(app, ["status"])
    assert shown.exit_code == 0, shown.output
    assert "eval-2" in shown.output
    assert runs.OF_AN_EVALUATION in " ".join(shown.output.split())


def test_no_limit_shows_all_runs() -> None:
    for limit, expected in (("0", 2), ("1", 1)):
        shown = CliRunner().invoke(app, ["runs", "--limit", limit])
        assert shown.exit_code == 0, shown.output
        assert sum(name in shown.output for name in ("eval-1", "eval-2")) == expected
