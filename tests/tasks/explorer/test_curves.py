"""The curve of a run that is still on its way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tasks.explorer.address import Address
from tasks.explorer.curves import figure_plots, learning_curves, trainers_of
from tasks.explorer.look import Look
from tasks.explorer.pages import Explorer
from tests.tasks.explorer.conftest import Pages
from warehouse import Warehouse
from warehouse.reading.readers import Readers


def samples(policy: str, step: int, problem: str, passed: int) -> list[dict[str, Any]]:
    row = {"policy_id": policy, "step": step, "problem_set": "set", "problem_id": problem, "suite_hash": "s"}
    return [
        row | {"prompt_id": "q", "sample": n, "seed": n, "token_ids": [1], "reward": 0.0 if n < passed else -1.0}
        for n in range(4)
    ]


def test_it_counts_its_own_problems_alone_and_each_sample_once(tmp_path: Path) -> None:
    problems = [{"problem_id": p, "split": "train" if p == "c" else "evaluation"} for p in "abc"]
    manifest = json.dumps({"problems_batch": "problems/own"})
    prepared = {"stage": "prepare", "key": "k", "status": "completed", "manifest_json": manifest}
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("problems/own", {"problems": problems}, run_id="one")
        store.append("problems/other", {"problems": [{"problem_id": "x", "split": "evaluation"}]}, run_id="one")
        store.append("prepared", {"stages": [prepared]}, run_id="one")
        for policy, step, passed in (("base", 0, 1), ("end", 8, 3)):
            own = [*samples(policy, step, "a", passed), *samples(policy, step, "b", passed)]
            store.append(f"eval/{policy}", {"eval_samples": own}, run_id="one")
            store.append(f"at once/{policy}", {"eval_samples": samples(policy, step, "a", passed)}, run_id="one")
        store.append("transfer", {"eval_samples": samples("base", 0, "x", 0)}, run_id="one")
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            with readers.session() as session:
                curve = learning_curves(Look(session, Address("/run"), tmp_path), ["one"])["one"]
    assert [(point.step, point.k, point.value) for point in curve] == [(0, 1, 0.25), (8, 1, 0.75)]


def evaluated(store: Warehouse, run: str, policies: int, *ks: int) -> None:
    """A run whose evaluation found that each policy solves one problem half as often as the next."""
    curve = [
        {"step": step, "policy_id": f"{run}/{step}", "k": k, "value": 0.2 * (step + 1), "low": 0.1, "high": 0.9}
        for step in range(policies)
        for k in ks
    ]
    change = {"before": 0.2, "after": 0.2 * policies, "difference": 0.2 * (policies - 1)}
    change |= {"interval": [math.nan, math.nan], "p_value": 1.0, "better": 1, "worse": 0, "equal": 0}
    manifest = {"curve": curve, "comparison": {f"pass@{k}": change for k in ks}, "described": "one problem"}
    stage = {"stage": "evaluate", "key": run, "status": "completed", "manifest_json": json.dumps(manifest)}
    tables = {"runs": [{"recipe": "tiny", "config_json": "{}"}], "stages": [stage]}
    store.append(run, tables, run_id=run)


def test_runs_show_every_k_and_no_difference_where_there_is_none(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        evaluated(store, "one", 1, 1)
        evaluated(store, "two", 2, 1, 10)
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            pages = Pages(Explorer(readers, tmp_path, asked_s=300), store)
            compared = pages.html("/compare", run=["one", "two"])
            alone, both = pages.html("/run", id="one"), pages.html("/run", id="two")
    assert "pass@10</th>" in compared
    assert '<td class="number"><b>20.0%</b></td>' in compared
    assert "20.0% → <b>40.0%</b>" in compared
    assert "<dt>pass@1</dt><dd>20.0%</dd></div>" in alone
    assert '20.0% → 40.0%</dd><dd class="quiet">+20.0 points [unknown]</dd>' in both


def test_a_run_is_shown_its_own_training_although_a_longer_one_passed_the_same_weights_before(tmp_path: Path) -> None:
    trained = {"stage": "train", "status": "completed", "manifest_json": "{}"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for run, kind, key in (("long", "snapshot", "long"), ("own", "final", "short"), ("took-over", "", "short")):
            evaluated(store, run, 2, 1)
            policies = [{"policy_id": "own/1", "kind": kind, "step": 1}] if kind else []
            steps = [{"step": 1, "name": "loss", "value": 0.5}] if kind else []
            rows = {"policies": policies, "stages": [trained | {"key": key}], "train_steps": steps}
            store.append(run + "/p", rows, run_id=run)
        manifest = store.value("SELECT manifest_json FROM stages WHERE run_id = 'own' AND stage = 'evaluate'")
        later = {"stage": "evaluate", "key": "again", "status": "completed", "manifest_json": manifest}
        store.append("again", {"stages": [later]}, run_id="took-over")
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            with readers.session() as session:
                look = Look(session, Address("/run"), tmp_path)
                found = trainers_of(look, ["own", "took-over"])
                (losses,) = figure_plots(look, ["own", "took-over"])
    assert found == {"own": "own", "took-over": "own"}
    assert sorted(line.label for line in losses.lines) == ["own", "took-over"]
