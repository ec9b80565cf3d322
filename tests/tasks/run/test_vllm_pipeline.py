"""The whole pipeline with vLLM on a CPU, under an interpreter of its own, and nothing else that samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.conftest import Lab
from tests.tasks.engines.test_vllm_process import PYTHON

pytestmark = pytest.mark.slow


@pytest.mark.timeout(2400)
def test_every_stage_samples_with_vllm_whose_weights_are_refreshed_in_place(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    heads = {"reference": {"pretrain": {"heads": 2}}}  # vLLM's attention on a CPU knows widths of 32 and more
    run_id = lab.start("vllm", heads | {"engine": {"kind": "vllm", "python": str(PYTHON)}})
    assert not any(result.skipped for result in lab.run(run_id).values())
    sampled = "SELECT list(DISTINCT engine) FROM trajectories WHERE engine IS NOT NULL AND starts_with(batch_id, ?)"
    with lab.store() as store:
        for batches in ("q0/", "corpus/", "pivotal/", "rollout/"):
            assert store.value(sampled, [batches]) == ["vllm"], batches
        refreshed = store.rows("SELECT step, value FROM train_steps WHERE name = 'worker-0/drift' ORDER BY step")
    assert 2 in [row["step"] for row in refreshed]
    assert all(row["value"] < 1e-4 for row in refreshed), "nats a token between vLLM and the trainer"
    assert lab.value("SELECT count(DISTINCT policy_id) FROM eval_samples") == 3
