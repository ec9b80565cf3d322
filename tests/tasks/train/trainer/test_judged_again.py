"""Verdicts that change while a run is stopped: what it trains on is what it began with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.train.trainer.session import WITH_VERDICTS
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run
from warehouse import Warehouse
from warehouse.superseding import content, superseded

MIX = {"online": {"share": 0.25}, "offline": {"share": 0.5}, "pivotal": {"share": 0.25}}


def judge_otherwise(location: str, batch: str) -> None:
    """Append a batch once more as `spo rejudge` does, with the opposite verdict on every response."""
    new = f"{batch}/rejudged-9"
    with Warehouse.open(location) as store:
        tables = {
            table: [content(row) for row in store.rows(f"SELECT * FROM {table} WHERE batch_id = ?", [batch])]
            for table in (*WITH_VERDICTS, "corpus")
        }
        for row in tables["trajectories"]:
            row["reward"] = -1 - row["reward"]
        for row in tables["token_values"]:
            row["k"] = row["n"] - row["k"]
        store.append(new, tables | {"quarantine": [superseded(batch, new)]}, run_id="rejudge")


@pytest.mark.parametrize("remembers", [True, False])
def test_a_stopped_run_goes_on_with_the_verdicts_that_it_began_with(
    remembers: bool, stocked: Path, reference: Path, tmp_path: Path
) -> None:
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    whole = outcome(run(job_in(stocked, reference, tmp_path / "whole", sources=MIX)))
    job = job_in(stocked, reference, tmp_path / "stopped", sources=MIX)
    kill_at(job, 2)
    judge_otherwise(job.warehouse, "corpus")
    if remembers:
        assert_identical(outcome(run(job)), whole)
        return
    (job.run_dir / "verdicts-until.json").unlink()  # as a run of before it was kept has none
    assert outcome(run(job))["figures"] != whole["figures"]
