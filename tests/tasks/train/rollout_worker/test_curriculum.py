"""Which problems are drawn: what is believed of them, the rules, and that a worker started again draws the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.config import CurriculumConfig, validate
from tasks.estimators import soft_value
from tasks.train.rollout_worker.curriculum import Belief, Rollouts, believed, choose, rollouts_before
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.shared.soft_values import success_rates
from tests.refusals import refused
from tests.tasks.train.conftest import PROBLEMS, RUN, config, fill, make_job
from warehouse import Warehouse

DRAWS = 4000


def shares(rule: Any, beliefs: dict[str, Belief], **settings: Any) -> dict[str, float]:
    """How often each problem is drawn, over many seeds."""
    found = Counter(choose(rule, beliefs, CurriculumConfig(**settings), seed) for seed in range(DRAWS))
    return {problem: found[problem] / DRAWS for problem in beliefs}


def test_belief_is_the_posterior_of_q0_and_rollouts_each_halved_by_age() -> None:
    """Worked by hand: Q0 at 1/4 as 8 rollouts, 20 steps old; 4 rollouts 10 steps old, 2 of the newest weights."""
    rollouts = {"a": [Rollouts(10, 4, 1), Rollouts(20, 2, 2)]}
    found = believed({"a": 0.25, "b": 0.0}, rollouts, CurriculumConfig(prior=8, half_life=10))
    assert found["a"].successes == pytest.approx(0.5 + 8 * 0.25 / 4 + 1 / 2 + 2)
    assert found["a"].failures == pytest.approx(0.5 + 8 * 0.75 / 4 + 3 / 2 + 0)
    assert (found["b"].successes, found["b"].failures) == (0.5, 0.5 + 8 / 4)


def test_learnability_is_the_mean_variance_of_the_reward() -> None:
    """Against the moments of the beta distribution: E[p] - E[p^2]."""
    belief = Belief(2.5, 4.0)
    second = 2.5 * 3.5 / (6.5 * 7.5)
    assert belief.learnability == pytest.approx(belief.mean - second)


def test_learnability_draws_in_proportion_above_a_floor_that_keeps_every_problem_alive() -> None:
    beliefs = {"hopeless": Belief(0.5, 60.0), "open": Belief(10.0, 10.0), "solved": Belief(60.0, 0.5)}
    found = shares("learnability", beliefs, floor=0.3)
    total = sum(belief.learnability for belief in beliefs.values())
    for problem, belief in beliefs.items():
        assert found[problem] == pytest.approx(0.1 + 0.7 * belief.learnability / total, abs=0.03)
    assert min(found.values()) > 0.08


def test_thompson_prefers_what_may_be_open_and_still_draws_the_rest() -> None:
    """Of two problems with the same mean, the one that is less known may be anything: it is not always taken."""
    beliefs = {"sure": Belief(40.0, 40.0), "unsure": Belief(0.6, 0.6), "solved": Belief(80.0, 0.5)}
    found = shares("thompson", beliefs, floor=0.15)
    assert found["sure"] > found["unsure"] > found["solved"] > 0.03


def test_uniform_drawing_does_not_look_at_beliefs() -> None:
    found = shares("uniform", {"a": Belief(0.5, 90.0), "b": Belief(9.0, 9.0)})
    assert found["a"] == pytest.approx(0.5, abs=0.03)


def test_success_rates_are_those_behind_the_soft_values() -> None:
    beta = config().train.beta
    values = {"never": soft_value(100, 0, beta), "some": soft_value(100, 7, beta), "always": soft_value(100, 100, beta)}
    assert success_rates(values, beta) == pytest.approx({"never": 0.0, "some": 0.07, "always": 1.0})


def test_prompts_of_recipes_without_a_curriculum_are_those_they_always_were(tmp_path: Path, reference: Path) -> None:
    """Taken before there was one."""
    fill(tmp_path / "warehouse", reference, online=0)
    with Warehouse.open(tmp_path / "warehouse") as store:
        schedule = PromptSchedule.read(store, make_job(tmp_path, reference, config()))
    drawn = [a.prompt_id for k in range(3) for a in schedule.draw(0, k, responses=8, per_prompt=2)]
    assert " ".join(drawn) == "q3 q2 q3 q3 q1 q2 q0 q0 q0 q1 q4 q5"


def test_evidence_ends_with_the_workers_last_batch_so_that_a_redone_batch_draws_the_same(
    tmp_path: Path, reference: Path
) -> None:
    """Batches 0 to 2 of worker 0 are there; another worker's arrives when batch 2 is drawn, and again after it."""
    fill(tmp_path / "warehouse", reference, online=16)
    mine, batch = f"rollout/{RUN}/0/", f"rollout/{RUN}/0/00000002"
    with Warehouse.open(tmp_path / "warehouse") as store:
        before = rollouts_before(store, RUN, mine, batch)
        other = store.rows(
            "SELECT * EXCLUDE (batch_id, created_at, schema_version, snapshot_id, arrival, run_id) "
            "FROM trajectories WHERE trajectory_id = 'online-0000'"
        )
        late = [row | {"trajectory_id": "late"} for row in other]
        store.append(f"rollout/{RUN}/1/00000000", {"trajectories": late}, run_id=RUN)
        assert rollouts_before(store, RUN, mine, batch) == before
        assert rollouts_before(store, RUN, mine, f"rollout/{RUN}/0/00000000") == {}
    assert sum(found.n for of_one in before.values() for found in of_one) == 16
    assert set(before) == {f"p{i}" for i in range(PROBLEMS)}


def test_a_refresh_of_the_reference_needs_uniform_prompts() -> None:
    train = {"prompts": "learnability", "reference_refresh_interval": 20}
    with refused("InvalidConfig", "prompts"):
        validate({"train": train})
