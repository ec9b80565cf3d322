"""What a search writes down names its rule and reference; trajectories without room for a rollout are left out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasks.config import PivotalConfig
from tasks.estimators import difference_p_value
from tasks.pivotal import stage as pivotal
from tasks.pivotal.search import PrefixCounts, Search, SearchConfig, search_state
from warehouse import Warehouse


@pytest.fixture
def search() -> Search:
    return Search.start("t", list(range(4)), (800, 80), group="g")


def annotate(store: Warehouse, search: Search, reference: str, **rule: Any) -> tuple[str, list[int]]:
    """The id of a search with that rule over the same counts, and the pivotal positions stored under it."""
    seen = PrefixCounts({search.prefix(at): (40, k) for at, k in ((1, 4), (2, 20), (3, 40))})
    outcome = search_state(search, seen, SearchConfig.from_config(PivotalConfig(**rule), difference_p_value))
    context, prompts = SimpleNamespace(warehouse=store, run_id="run"), SimpleNamespace(policy_id=reference)
    found = pivotal._annotate(cast("Any", context), cast("Any", prompts), [search], [outcome], seen)
    asked = "SELECT position FROM token_values WHERE search_id = ? AND reference = ? AND pivotal ORDER BY position"
    assert {pivot.position for pivot in outcome.pivots if pivot.position < search.length} == {
        row["position"] for row in store.rows(asked, [found, reference])
    }
    return found, [pivot.position for pivot in outcome.pivots]


def test_the_same_counts_under_another_rule_or_reference_are_another_search(search: Search, tmp_path: Path) -> None:
    with Warehouse.open(str(tmp_path / "warehouse")) as store:
        lax, found = annotate(store, search, "pi_0", min_difference=0.2)
        strict, fewer = annotate(store, search, "pi_0", min_difference=0.95)
        other, _ = annotate(store, search, "another", min_difference=0.2)
        assert len(fewer) < len(found)
        assert len({lax, strict, other}) == 3
        assert annotate(store, search, "pi_0", min_difference=0.2) == (lax, found)
        assert store.value("SELECT count(*) FROM token_values WHERE search_id = ?", [lax]) == 3


def test_trajectories_longer_than_a_response_may_be_are_not_searched(tmp_path: Path) -> None:
    lengths = {"short": 2, "fits": 8, "long": 9}
    members = [{"corpus_id": "c", "trajectory_id": t, "problem_id": "p", "source": "human"} for t in lengths]
    rows = [
        {"trajectory_id": t, "problem_id": "p", "source": "human", "token_ids": list(range(n)), "reward": 0.0}
        for t, n in lengths.items()
    ]
    with Warehouse.open(str(tmp_path / "warehouse")) as store:
        store.append("corpus", {"corpus": members, "trajectories": rows}, run_id="run")
        asked = {"corpus_id": "c", "problem_ids": ["p"], "longest": 8, "limit": 9}
        assert [row["trajectory_id"] for row in store.rows(pivotal.SELECTION, asked)] == ["fits"]
