"""PPO from a recipe: trained to the end on samples of the very policy that each batch updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.run import prompt_set, runs
from tasks.run.provenance import reads_until
from tasks.run.sampling import counts
from tasks.run.stage import Context
from tasks.run.stage_names import STAGE_NAMES
from tasks.sampling.reference_counts import counted
from tasks.train.shared.job import TrainJob
from tasks.train.stage import make_job
from tests.tasks.conftest import Lab, trained_with

OVERRIDES: dict[str, Any] = {
    "train": {
        "algorithm": "ppo",
        "steps": 3,
        "batch_size": 8,
        "model_update_interval": 1,
        "max_batches_ahead": 0,
        "sources": {"online": {"share": 1.0}, "offline": {"share": 0.0}},
        "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
        "ppo": {"epochs": 1, "minibatches": 1},
    }
}

USED = """
SELECT b.step AS step, t.policy_start AS behaviour, p.step AS sampled_at
FROM (SELECT step, unnest(trajectory_ids) AS trajectory_id FROM train_batches WHERE run_id = ?) b
JOIN trajectories t USING (trajectory_id) JOIN policies p
  ON p.policy_id = t.policy_start AND (p.run_id = t.run_id OR p.kind = 'reference')
"""


def test_ppo_from_a_recipe_trains_every_batch_on_samples_of_the_policy_that_it_updates(
    copied: Callable[[], Lab],
) -> None:
    lab, run_id = trained_with(copied(), OVERRIDES)
    with lab.store() as store:
        used = store.rows(USED, (run_id,))
        figures = store.rows("SELECT step, name, value FROM train_steps WHERE run_id = ?", (run_id,))
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        job = TrainJob.read(context.run_dir / "train" / "job.json")
        shares = [k / n if k else job.config.q0.prior / (n + 1) for n, k in counted(store, job.counts).values()]
    assert len(used) == 3 * 8
    assert all(row["sampled_at"] == row["step"] - 1 for row in used)
    found = {(row["step"], row["name"]): row["value"] for row in figures}
    for step in (1, 2, 3):
        assert found[step, "clip_fraction"] == 0
        assert found[step, "kl_behaviour"] < 1e-6
        assert found[step, "value_loss"] > 0
        assert {(step, "explained_variance"), (step, "entropy"), (step, "kl")} <= set(found)
    assert abs(found[1, "kl"]) == 0
    assert job.value_start == pytest.approx(sum(shares) / len(shares) - 1)
    assert_first_batch_counts_for_later_runs_alone(lab, run_id)


def assert_first_batch_counts_for_later_runs_alone(lab: Lab, run_id: str) -> None:
    """Of what it drew from pi_0."""
    assert lab.value(f"SELECT sum(n) FROM reference_counts WHERE starts_with(batch_id, 'rollout/{run_id}/')") == 8
    assert all(result.skipped for result in lab.run(run_id, *STAGE_NAMES[: STAGE_NAMES.index("train") + 1]).values())
    with lab.store() as store:
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        prompts = prompt_set.load(context, "train")
        q0 = context.config.q0.model_copy(update={"count_rollouts": False})
        isolated = context.config.model_copy(update={"q0": q0})
        later = replace(context, run_id="later")
        for asking, rollouts in ((context, 0), (later, 8), (replace(later, config=isolated), 0)):
            assert sum(n for n, _ in counts(asking, prompts).values()) == 6 * 24 + rollouts


@pytest.mark.parametrize("pinned", [pytest.param(False, marks=pytest.mark.slow), True])
def test_pairs_are_made_of_what_the_runs_own_q0_and_corpus_drew(pinned: bool, with_models: Lab) -> None:
    """In an empty warehouse, too, where all of it is younger than the snapshot that the run reads others' up to."""
    lab = with_models
    run_id = lab.start("pairs", {"pivotal": {"trajectories": 0}})
    lab.run(run_id, "prepare")
    pin = lab.value("SELECT max(snapshot_id) FROM prompts") if pinned else None
    lab.run(run_id, "q0", "corpus", "pivotal", pin=pin)
    with lab.store() as store:
        reads = reads_until(store, run_id, "train") if pin is None else pin
        job = make_job(Context(run_id, runs.load_config(store, run_id), store, lab.home, pin=reads))
        drawn = store.rows("SELECT snapshot_id, batch_id FROM trajectories WHERE source = 'reference'")
    assert {row["batch_id"].split("/")[0] for row in drawn} == {"q0", "corpus"}
    assert job.earlier_until is not None
    assert job.pairs_until is not None
    assert job.earlier_until < max(row["snapshot_id"] for row in drawn) <= job.pairs_until
