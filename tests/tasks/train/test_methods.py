"""Other methods through the stages, with workers: batches are whole groups by the same weights, or pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.conftest import Lab, trained_with
from warehouse.schema import TABLES

GROUPS = """
    SELECT b.step, t.batch_id, t.problem_id, count(*) AS n, count(DISTINCT t.policy_start) AS policies,
      count(*) FILTER (t.reward = 0) AS passed
    FROM (
        SELECT step, unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source
        FROM train_batches WHERE run_id = ?
    ) b JOIN trajectories t USING (trajectory_id)
    WHERE b.source = ? AND t.run_id = ?
    GROUP BY ALL ORDER BY ALL
"""
STEPS = "SELECT count(*) FROM train_batches WHERE run_id = ?"
EXACT = {"temperature": [1.0, 1.0], "top_p": 1.0}
K = 4


def online(share: float, objective: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Overrides of the micro recipe: no corpus, groups of K, the rest of a batch used again."""
    sources = {name: {"share": part, "objectives": [objective]} for name, part in (("online", share),)}
    if share < 1:
        sources["replay"] = {"share": 1 - share, "objectives": [objective]}
    train = {"sources": {"offline": {"share": 0.0}} | sources, "behaviour": EXACT, "responses_per_prompt": K}
    return {"pivotal": {"trajectories": 0}, "train": train | settings}


@pytest.mark.parametrize(
    ("share", "overrides"),
    [
        (1.0, online(1.0, {"kind": "grpo"}, model_update_interval=1, max_batches_ahead=0)),
        (0.5, online(0.5, {"kind": "tba"}, replay={"uses": 4})),
    ],
    ids=["on-policy", "replayed"],
)
def test_batches_are_whole_groups_of_one_policys_responses_to_a_prompt(
    share: float, overrides: dict[str, Any], copied: Callable[[], Lab]
) -> None:
    lab, run_id = trained_with(copied(), overrides)
    with lab.store() as store:
        steps = store.value(STEPS, (run_id,))
        new, again = (store.rows(GROUPS, (run_id, source, run_id)) for source in ("online", "replay"))
    assert steps == 4
    assert sum(row["n"] for row in new) == 4 * 16 * share
    assert all(row["n"] % K == 0 and row["policies"] == 1 for row in (*new, *again))
    assert bool(again) == (share < 1)


def plant_successes(lab: Lab) -> None:
    """Two samples of pi_0 for every problem that passed; this pi_0 has learnt too little to have any."""
    with lab.store() as store:
        rows = store.rows("SELECT * FROM trajectories WHERE source = 'reference'")
        kept = {
            name: [row for row in rows if row["problem_id"] == name][:2] for name in {r["problem_id"] for r in rows}
        }
        planted = [row for found in kept.values() for row in found]
        columns = {column.name for column in TABLES["trajectories"].columns}
        new = [{name: value for name, value in row.items() if name in columns} for row in planted]
        for number, row in enumerate(new):
            row |= {"trajectory_id": f"planted-{number}", "program_hash": f"planted-{number}", "reward": 0.0}
        store.append("planted", {"trajectories": new}, run_id="planted")


def test_dpo_trains_on_pairs_of_the_references_samples(copied: Callable[[], Lab]) -> None:
    lab = copied()
    plant_successes(lab)
    pairs = {"share": 1.0, "objectives": [{"kind": "dpo"}]}
    sources = {"online": {"share": 0.0}, "offline": {"share": 0.0}, "pairs": pairs}
    lab, run_id = trained_with(lab, {"pivotal": {"trajectories": 0}, "train": {"sources": sources}})
    with lab.store() as store:
        found = store.rows(GROUPS.replace("AND t.run_id = ?", "AND ? IS NOT NULL"), (run_id, "pairs", run_id))
        online = store.value("SELECT count(*) FROM trajectories WHERE run_id = ? AND source = 'online'", (run_id,))
    assert online == 0
    assert found
    by_problem: dict[tuple[int, str], list[int]] = {}
    for row in found:
        total = by_problem.setdefault((row["step"], row["problem_id"]), [0, 0])
        total[0] += row["n"]
        total[1] += row["passed"]
    assert all(n == 2 * passed for n, passed in by_problem.values())
