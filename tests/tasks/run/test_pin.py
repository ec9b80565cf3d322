from __future__ import annotations

from pathlib import Path

from tasks.corpus.stage import SELECTION
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse


def add(store: Warehouse, name: str, run_id: str, source: str) -> int:
    """A correct trajectory; the snapshot that shows it."""
    row = trajectory(name, source=source, policy_start="p", prompt_id="q", suite_hash="s", normal_hash=name)
    return store.append(name, {"trajectories": [row]}, run_id=run_id)


def selected(store: Warehouse, pin: int | None) -> list[str]:
    wanted = {
        "prompt_ids": ["q"],
        "suite_hashes": ["s"],
        "correct_only": True,
        "run_id": "third",
        "policy_id": "p",
        "sources": ["prior_spo", "reference", "human"],
        "limit": 99,
        "max_tokens": 99,
        "too_long": "too_long",
        "pin": pin,
        "until": pin,
        "ingested": ["known"],
    }
    rows = store.rows(SELECTION, wanted)
    return sorted(row["trajectory_id"] for row in rows)


def test_a_pinned_selection_leaves_out_what_other_runs_found_later(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("runs", {"runs": [{"recipe": "r", "config_json": "{}"}]}, run_id="first")
        pin = add(store, "early", "first", "online")
        add(store, "late", "second", "online")
        add(store, "drawn", "second", "reference")
        add(store, "known", "third", "human")
        assert selected(store, None) == ["tdrawn", "tearly", "tknown", "tlate"]
        assert selected(store, pin) == ["tearly", "tknown"]
