"""The whole pipeline with its catalog in PostgreSQL, its Parquet files in a bucket, and its engines elsewhere."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.tasks.conftest import Lab
from tests.tasks.engines.test_launched_engines import LIKE_SSH
from tests.warehouse.conftest import bucket, postgres  # noqa: F401  (fixtures)


@pytest.fixture
def remote(finished: Lab, postgres: str, bucket: str, tmp_path: Path) -> Lab:  # noqa: F811
    """A lab whose reference policy is made and whose warehouse is empty and elsewhere."""
    shutil.copytree(finished.home / "models", tmp_path / "models")
    name = f"stages_{uuid.uuid4().hex[:8]}"
    return Lab(tmp_path, f"{postgres}?schema={name}&data={bucket}/{name}")


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_the_pipeline_runs_on_postgres_s3_and_engines_elsewhere_as_in_a_folder(finished: Lab, remote: Lab) -> None:
    run_id = remote.start("remote", {"shards": {"launcher": LIKE_SSH, "engines": 2}})
    results = remote.run(run_id)
    assert not any(result.skipped for result in results.values())
    sums = "SELECT list((problem_id, n, k) ORDER BY problem_id) FROM (SELECT problem_id, sum(n) AS n, sum(k) AS k \
        FROM reference_counts GROUP BY problem_id)"
    assert remote.value(sums) == finished.value(sums)
    for table in ("problems", "tests", "prompts", "train_batches", "eval_samples"):
        count = f"SELECT count(*) FROM {table}"
        assert remote.value(count) == finished.value(count) > 0
    for batches in ("q0/", "corpus/", "pivotal/"):
        drawn = f"SELECT list((trajectory_id, token_ids, reward) ORDER BY trajectory_id) FROM trajectories \
            WHERE starts_with(batch_id, '{batches}')"
        assert len(remote.value(drawn)) > 0
        assert remote.value(drawn) == finished.value(drawn)
    assert not (remote.home / "warehouse").exists()
    assert all(result.skipped for result in remote.run(run_id).values())
