from __future__ import annotations

from pathlib import Path

from tasks.corpus import SELECTION
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse


def add(store: Warehouse, name: str, run_id: str, source: str) -> int:
    """A correct trajectory; the snapshot that shows it."""
    row = trajectory(name, source=source, prompt_id="q", suite_hash="s", normal_hash=name)
    return store.append(name, {"trajectories": [row]}, run_id=run_id)


def selected(store: Warehouse, pin: int | None) -> list[str]:
    wanted = {"prompt_ids": ["q"], "suite_hashes": ["s"], "correct_only": True, "cap": 9, "pin": pin}
    sources = ["prior_spo", "reference", "human"]
    rows = store.rows(SELECTION, {**wanted, "run_id": "third", "sources": sources})
    return sorted(row["trajectory_id"] for row in rows)


def test_a_pinned_selection_leaves_out_what_other_runs_found_later(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("runs", {"runs": [{"recipe": "r", "config_json": "{}"}]}, run_id="first")
        pin = add(store, "early", "first", "online")
        add(store, "late", "second", "online")
        add(store, "own", "third", "reference")
        add(store, "known", "third", "human")
        assert selected(store, None) == ["tearly", "tknown", "tlate", "town"]
        assert selected(store, pin) == ["tearly", "tknown", "town"]
