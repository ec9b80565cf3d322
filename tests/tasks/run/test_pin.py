from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.corpus.stage import EARLIER, SELECTION
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse


def add(store: Warehouse, name: str, run_id: str, source: str, **tables: Any) -> int:
    """A batch of a correct trajectory; the snapshot that shows it."""
    return store.append(name, {"trajectories": [right(name, source)]} | tables, run_id=run_id)


def right(name: str, source: str, **fields: Any) -> dict[str, Any]:
    own = {"policy_start": "p", "prompt_id": "q", "suite_hash": "s", "normal_hash": name}
    return trajectory(name, source=source, **own | fields)


def selected(store: Warehouse, pin: int | None, found: Sequence[str] = ()) -> list[str]:
    wanted = {
        "prompt_ids": ["q"],
        "suite_hashes": ["s"],
        "correct_only": True,
        "run_id": "third",
        "policy_id": "p",
        "sources": ["prior_spo", "reference", "human", "other_model"],
        "limit": 99,
        "max_tokens": 99,
        "too_long": "too_long",
        "pin": pin,
        "until": pin,
        "asked": [7],
        "ingested": ["known"],
        "found": list(found),
        "end": None,
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
        add(store, "cut otherwise", "second", "human")
        assert selected(store, pin, ["tcut otherwise"]) == ["tcut otherwise", "tearly", "tknown"]


def test_a_pinned_selection_keeps_what_it_asks_for_and_takes_in_whoever_stored_it_later(
    tmp_path: Path,
) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        pin = add(store, "known", "first", "human")
        answers = [right("asked", "other_model", seed=7), right("unasked", "other_model", seed=8)]
        store.append("answers", {"trajectories": answers}, run_id="second")
        assert selected(store, None) == ["tasked", "tknown", "tunasked"]
        assert selected(store, pin) == ["tasked", "tknown"]


def test_what_others_bring_is_part_of_what_the_corpus_reads_and_programs_of_the_problems_are_not(
    tmp_path: Path,
) -> None:
    """Those are taken in by every run; a run of the same settings must find its corpus done."""
    asked = {"sources": ["online"], "run_id": "second", "pin": None, "prompt_ids": ["q"], "suite_hashes": ["s"]}
    with Warehouse.open(tmp_path / "warehouse") as store:

        def known(*, human: bool = True, other_models: bool = True) -> int:
            return int(store.rows(EARLIER, asked | {"human": human, "other_models": other_models})[0]["n"])

        add(store, "import/human/unit", "first", "human")
        assert known() == 0
        add(store, "import/columns/rollouts/unit", "import", "human")
        assert (known(), known(human=False)) == (1, 0)
        add(store, "q0", "first", "reference")
        assert known() == 1
        store.append(
            "others", {"trajectories": [right("theirs", "reference", prompt_id="in-other-tokens")]}, run_id="first"
        )
        assert (known(), known(other_models=False)) == (2, 1)
