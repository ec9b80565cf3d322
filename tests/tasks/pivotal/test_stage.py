"""The pivotal stage: killed anywhere nothing is paid twice; line ends; its rollouts are data for everyone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.pivotal import stage as pivotal
from tasks.pivotal.prefix_counts import PrefixCounts
from tasks.run import prompt_set, runs
from tasks.run.stage import Context
from tests.fork_server import process_of
from tests.shared_folder import copy_home
from tests.tasks.conftest import Lab, breaking
from warehouse import WarehouseBusy

PAID = (
    "SELECT string_agg(concat_ws('/', prefix_hash, position, n, k), '; ' ORDER BY prefix_hash, n, k) "
    "FROM token_values WHERE search_id LIKE 'wave/%'"
)
ANNOTATED = "SELECT string_agg(DISTINCT search_id, ',') FROM token_values WHERE search_id LIKE 'annotation/%'"


@pytest.fixture(scope="module")
def _with_corpus(finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("corpus"))
    copy_home(finished.home / "models", lab.home / "models")
    lab.run(lab.start("first"), "prepare", "q0", "corpus")
    return lab


@pytest.fixture
def with_corpus(_with_corpus: Lab, tmp_path: Path) -> Lab:
    """A home whose run has its corpus and nothing else."""
    return Lab(copy_home(_with_corpus.home, tmp_path / "with_corpus"))


def search_and_die(home: str, when: str) -> None:
    """Be killed around the second commit of the search."""
    lab = Lab(Path(home))
    lab.opened = breaking("pivotal/", 2, lambda: os.kill(os.getpid(), signal.SIGKILL), after=when == "after")
    lab.run("micro-1", "pivotal")


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_killed_around_its_second_commit_it_pays_for_no_node_twice(when: str, finished: Lab, with_corpus: Lab) -> None:
    lab = with_corpus
    died = process_of(search_and_die, str(lab.home), when)
    died.start()
    died.join()
    assert died.exitcode == -signal.SIGKILL
    stored = lab.value("SELECT count(DISTINCT batch_id) FROM token_values")
    assert stored == (1 if when == "before" else 2)
    paid_before = lab.value("SELECT sum(n) FROM token_values")
    result = lab.run("micro-1", "pivotal")["pivotal"]
    assert lab.value(PAID) == finished.value(PAID)
    assert lab.value(ANNOTATED) == finished.value(ANNOTATED)
    rollouts = "SELECT count(*) FROM trajectories WHERE source = 'pivotal_rollout'"
    assert paid_before + result.rows == lab.value(rollouts) == finished.value(rollouts)
    assert lab.run("micro-1", "pivotal")["pivotal"].skipped


def test_no_other_search_of_the_policy_reads_the_counts_that_one_adds_to(
    with_corpus: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, alone = with_corpus, list[str]()

    def watched(name: str) -> None:
        done = getattr(pivotal, name)

        def step(context: Context, prompts: prompt_set.PromptSet, *arguments: Any) -> Any:
            with (
                lab.store() as other,
                pytest.raises(WarehouseBusy),
                other.lock(f"pivotal/{prompts.policy_id}", timeout_s=0),
            ):
                pass
            alone.append(name)
            return done(context, prompts, *arguments)

        monkeypatch.setattr(pivotal, name, step)

    watched("_stored")
    watched("_absorb")
    assert lab.run("micro-1", "pivotal")["pivotal"].rows > 0
    assert alone[0] == "_stored"
    assert "_absorb" in alone


def test_line_ends_are_passed_on_when_the_recipe_wants_them(finished: Lab) -> None:
    with finished.store() as store:
        config = runs.load_config(store, "micro-1")
        wanting = config.model_copy(update={"pivotal": config.pivotal.model_copy(update={"line_ends": True})})
        plans = [
            pivotal.plan(context, prompt_set.load(context, "train"))
            for context in (Context("micro-1", c, store, finished.home) for c in (config, wanting))
        ]
        (search, *_) = plans[1].searches
        text = store.value("SELECT text FROM trajectories WHERE trajectory_id = ? LIMIT 1", [search.trajectory_id])
    assert all(search.line_ends == () for search in plans[0].searches)
    assert len(search.line_ends) in (text.count("\n"), text.count("\n") - 1)
    assert all(0 < end < search.length for end in search.line_ends)


def test_line_ends_are_the_positions_after_tokens_with_a_line_end() -> None:
    class Words:
        def decode(self, ids: list[int]) -> str:
            return {1: "x", 2: "\n", 3: ":\n    "}[ids[0]]

    assert pivotal.line_ends(Words(), [1, 2, 1, 3, 1]) == [2, 4]


def test_searched_trajectories_and_rollouts_are_sources_of_training_each_with_its_objective(
    copied: Callable[[], Lab],
) -> None:
    lab = copied()
    terminal, monte_carlo = ({"kind": kind, "loss": "cross_entropy"} for kind in ("terminal", "monte_carlo"))
    sources = {
        "offline": {"share": 0.25},
        "pivotal": {"share": 0.125, "objectives": [terminal, monte_carlo]},
        "pivotal_rollouts": {"share": 0.125, "objectives": [terminal]},
    }
    run_id = lab.start("control", {"train.sources": sources, "train.steps": 2})
    lab.run(run_id, "prepare", "q0", "corpus", "pivotal", "train")
    with lab.store() as store:
        rows = store.rows(
            "SELECT source, count(*) AS n FROM (SELECT unnest(sources) AS source FROM train_batches WHERE run_id = ?) "
            "GROUP BY source",
            [run_id],
        )
        losses = store.rows(
            "SELECT name, value FROM train_steps WHERE run_id = ? AND name LIKE 'pivotal%loss'", [run_id]
        )
    assert {row["source"]: row["n"] for row in rows} == {
        "online": 16,
        "offline": 8,
        "pivotal": 4,
        "pivotal_rollouts": 4,
    }
    assert {row["name"] for row in losses} == {"pivotal/loss", "pivotal_rollouts/loss"}
    assert all(row["value"] > 0 for row in losses)


def test_rollouts_of_an_earlier_search_serve_a_corpus_that_wants_them(copied: Callable[[], Lab]) -> None:
    lab = copied()
    exact = {"corpus.near_duplicates": 1}
    plain = lab.run(lab.start("plain", exact), "prepare", "q0", "corpus")["corpus"].manifest
    run_id = lab.start("more", exact | {"corpus.sources": ["reference", "human", "prior_spo", "pivotal_rollout"]})
    manifest = lab.run(run_id, "prepare", "q0", "corpus")["corpus"].manifest
    new = lab.value(
        "SELECT count(DISTINCT (problem_id, normal_hash)) FROM trajectories r WHERE source = 'pivotal_rollout' AND "
        "reward = 0 AND NOT EXISTS (SELECT 1 FROM trajectories t WHERE t.reward = 0 AND t.problem_id = r.problem_id "
        "AND t.normal_hash = r.normal_hash AND t.source <> 'pivotal_rollout')"
    )
    assert "pivotal_rollout" not in plain.per_source
    assert manifest.per_source.get("pivotal_rollout", 0) == new
    assert sum(manifest.per_source.values()) == sum(plain.per_source.values()) + new


def test_rollouts_in_place_of_those_put_aside_start_behind_them(with_corpus: Lab) -> None:
    lab = with_corpus
    drawn = lab.run("micro-1", "pivotal")["pivotal"].rows
    batch = lab.value("SELECT min_by(batch_id, arrival) FROM token_values WHERE search_id LIKE 'wave/%'")
    with lab.store() as store:
        aside = store.rows("SELECT prefix_hash, n FROM token_values WHERE batch_id = ?", [batch])
        store.append("bad", {"quarantine": [{"bad_batch_id": batch, "reason": "by hand"}]}, run_id="by hand")
        context = Context("micro-1", runs.load_config(store, "micro-1"), store, lab.home)
        planned = pivotal.plan(context, prompt_set.load(context, "train"))
    nothing_seen = PrefixCounts()
    assert 0 < sum(row["n"] for row in aside) < drawn
    assert all(planned.start(row["prefix_hash"], nothing_seen) == row["n"] for row in aside)
    again = lab.run("micro-1", "pivotal")["pivotal"]
    assert again.rows > 0
    assert not again.skipped
