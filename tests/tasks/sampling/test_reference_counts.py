"""Which of pi_0's responses count as evidence for a soft value."""

from __future__ import annotations

from pathlib import Path

from tasks.sampling.reference_counts import CountsFilter, counted, drawn_first, reference_counts, reference_sampling
from tasks.sampling.sampler import Judged
from tests.warehouse.conftest import judge_again, trajectory
from warehouse import Warehouse
from warehouse.exchange.exporting import export
from warehouse.exchange.importing_files import import_file

LIMIT = 96


def drawn(number: int) -> list[Judged]:
    """Responses of pi_0 as Q0 draws them."""
    same = {"top_p": 1.0, "max_response_tokens": LIMIT, "prefix_tokens": 0, "prompt_id": "q", "suite_hash": "s"}
    return [Judged(0, n, trajectory(n, source="reference", **same), None) for n in range(number)]


def counts(judged: list[Judged]) -> list[dict[str, object]]:
    """Their rows of `reference_counts`."""
    return reference_counts(judged, reference="policy", template_id="t", max_response_tokens=LIMIT)


def test_responses_count_once_and_those_that_an_import_brought_alone_still_count(tmp_path: Path) -> None:
    judged, here, there = drawn(4), str(tmp_path / "here"), str(tmp_path / "there")
    with Warehouse.open(here) as store:
        store.append(
            "q0/a", {"trajectories": [one.row for one in judged], "reference_counts": counts(judged)}, run_id="r"
        )
        assert drawn_first(store, "q0/b", judged, reference="policy") == []
    export(here, tmp_path / "out", "trajectories")
    import_file(there, tmp_path / "out" / "trajectories.parquet", "trajectories")
    with Warehouse.open(there) as store:
        assert drawn_first(store, "q0/b", judged, reference="policy") == judged


def test_what_was_judged_again_counts_as_of_when_it_was_drawn(tmp_path: Path) -> None:
    def tables(first: int) -> dict[str, list[dict[str, object]]]:
        judged = drawn(6)[first : first + 3]
        return {"trajectories": [one.row for one in judged], "reference_counts": counts(judged)}

    with Warehouse.open(tmp_path / "warehouse") as store:
        prompt = {"prompt_id": "q", "problem_id": "p0", "token_ids": [1], "text": "?"}
        problem = {"problem_id": "p0", "suite_hash": "s", "split": "train", "statement": "?", "style": "stdin"}
        store.append("prepared", {"prompts": [prompt], "problems": [problem]}, run_id="r")
        until = store.append("q0/a", tables(0), run_id="r")
        store.append("q0/b", tables(3), run_id="other")
        wanted = CountsFilter(
            reference="policy",
            sampling=reference_sampling(LIMIT),
            template_id="t",
            problems_batch="prepared",
            prompts_batch="prepared",
            left_out=None,
            until=until,
        )
        for batch in ("q0/a", "q0/b"):
            judge_again(store, batch)
        assert counted(store, wanted) == {"p0": (3, 3)}
        assert counted(store, wanted.model_copy(update={"until": None})) == {"p0": (6, 6)}
