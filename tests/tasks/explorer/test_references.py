"""A trajectory's page tells everything of one pi_0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.explorer.trajectory import CONTEXT, REFERENCE_LOGPROBS
from warehouse import Warehouse


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Warehouse]:
    """The problem was sampled from `old`, then from `new`; `end` was trained from `old`, `s` is searched."""
    counted = {"problem_id": "p", "sampling": "t1", "template_id": "chat", "suite_hash": "s", "n": 4, "k": 1}
    with Warehouse.open(tmp_path / "warehouse") as opened:
        for number, name in enumerate(("old", "new")):
            manifest = json.dumps({"policy_id": name})
            scored = [{"trajectory_id": "t", "fingerprint": f"f {name}", "logprobs": [-1.0 - number]}]
            tables: dict[str, list[dict[str, Any]]] = {
                "policies": [{"policy_id": name, "kind": "reference"}],
                "stages": [{"stage": "prepare", "key": name, "status": "completed", "manifest_json": manifest}],
                "reference_counts": [counted | {"reference": name}],
                "reference_logprobs": scored,
            }
            opened.append(name, tables, run_id=f"run {name}")
        searched = {"trajectory_id": "s", "position": 1, "reference": "old", "n": 4, "k": 1} | {
            "search_id": "annotation/1"
        }
        end = {"policy_id": "end", "kind": "final", "parent_policy_id": "old"}
        stranger = {"policy_id": "stranger", "kind": "evaluated"}
        opened.append("end", {"token_values": [searched], "policies": [end, stranger]}, run_id="run old")
        refreshed = {"trajectory_id": "late", "fingerprint": "refreshed", "logprobs": [-9.0]}
        opened.append("refreshed", {"reference_logprobs": [refreshed]}, run_id="run old")
        yield opened


@pytest.mark.parametrize(
    "identity, source, policy, expected",
    [
        ("s", "online", "new", "old"),
        ("t", "online", "end", "old"),
        ("t", "reference", "end", "end"),
        ("t", "evaluation", "old", "old"),
        ("t", "evaluation", "stranger", "new"),
        ("t", "human", None, "new"),
    ],
)
def test_it_is_the_searchs_else_the_policys_else_the_newest(
    store: Warehouse, identity: str, source: str, policy: str | None, expected: str
) -> None:
    asked = {"id": identity, "source": source, "policy": policy, "problem": "p", "prompt": None}
    assert store.rows(CONTEXT, asked)[0]["reference"] == expected


def test_log_probabilities_are_that_pi_0s(store: Warehouse) -> None:
    for name, expected in (("old", [-1.0]), ("new", [-2.0])):
        assert store.rows(REFERENCE_LOGPROBS, {"id": "t", "reference": name}) == [{"logprobs": expected}]
    assert store.rows(REFERENCE_LOGPROBS, {"id": "late", "reference": "old"}) == []
