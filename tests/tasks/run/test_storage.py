"""The whole pipeline with its catalog in PostgreSQL and its Parquet files in a bucket."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tasks.run.stage import StageResult
from tests.tasks.conftest import Lab
from tests.warehouse.conftest import bucket, postgres  # noqa: F401  (fixtures)


@pytest.fixture
def remote(finished: Lab, postgres: str, bucket: str, tmp_path: Path) -> Lab:  # noqa: F811
    """A lab whose reference policy is made and whose warehouse is empty and elsewhere."""
    shutil.copytree(finished.home / "models", tmp_path / "models")
    name = f"stages_{uuid.uuid4().hex[:8]}"
    return Lab(tmp_path, f"{postgres}?schema={name}&data={bucket}/{name}")


def summaries(results: dict[str, StageResult]) -> dict[str, int]:
    return {stage: result.rows for stage, result in results.items()}


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_the_pipeline_runs_on_postgres_and_s3_as_it_does_in_a_folder(finished: Lab, remote: Lab) -> None:
    run_id = remote.start("remote")
    results = remote.run(run_id)
    assert not any(result.skipped for result in results.values())
    sums = "SELECT list((problem_id, n, k) ORDER BY problem_id) FROM (SELECT problem_id, sum(n) AS n, sum(k) AS k \
        FROM reference_counts GROUP BY problem_id)"
    assert remote.value(sums) == finished.value(sums)
    for table in ("problems", "tests", "prompts", "train_batches", "eval_samples"):
        count = f"SELECT count(*) FROM {table}"
        assert remote.value(count) == finished.value(count) > 0
    assert not (remote.home / "warehouse").exists()
    assert all(result.skipped for result in remote.run(run_id).values())
