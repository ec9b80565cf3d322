"""The stages with their catalog in PostgreSQL and their Parquet files in a bucket.

Engines elsewhere besides: test_two_machines.py, and tests/tasks/engines/test_launched_engines.py.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tasks.run.stage_names import STAGE_NAMES
from tests.shared_folder import copy_home
from tests.tasks.conftest import Lab
from tests.warehouse.conftest import bucket, postgres  # noqa: F401  (fixtures)


@pytest.fixture
def remote(finished: Lab, postgres: str, bucket: str, tmp_path: Path) -> Lab:  # noqa: F811
    """A lab whose reference policy is made and whose warehouse is empty and elsewhere."""
    copy_home(finished.home / "models", tmp_path / "models")
    name = f"stages_{uuid.uuid4().hex[:8]}"
    return Lab(tmp_path, f"{postgres}?schema={name}&data={bucket}/{name}")


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_the_stages_run_on_postgres_and_s3_as_in_a_folder(finished: Lab, remote: Lab) -> None:
    run_id, stages = remote.start("remote"), STAGE_NAMES[: STAGE_NAMES.index("report")]
    results = remote.run(run_id, *stages)
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
    assert all(result.skipped for result in remote.run(run_id, *stages).values())
