"""What the report says of the corpus and of soft values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.config import PAPER_BETA, validate
from tasks.estimators import soft_value, soft_value_of_share
from tasks.report.chart_rendering import svg
from tasks.report.corpus_sections import FATES, VERDICTS, _prompt_row, soft_values, source_flow
from warehouse import Warehouse

FLOW = {
    "human": {"came in": 10, "judged": 9, "correct": 6, "kept": 4, "duplicate": 2, "not correct": 3, "too long": 1},
    "reference": {"came in": 100, "judged": 100, "correct": 0, "not correct": 100},
}


def test_the_flow_names_every_source_and_what_became_of_it() -> None:
    text = svg(source_flow(FLOW))
    for word in ("human", "reference", "kept", "duplicate", "not correct", "too long"):
        assert word in text
    assert "near duplicate" not in text
    assert "10 came in, 4 kept" in source_flow(FLOW).alt


def test_the_fates_are_all_that_can_become_of_a_response() -> None:
    assert all(sum(fates.get(fate, 0) for fate in FATES) == fates["came in"] for fates in FLOW.values())


def test_soft_values_are_drawn_with_their_intervals_and_without_samples_left_out() -> None:
    chart = soft_values([(100, 0), (100, 50), (0, 0), (400, 400)], PAPER_BETA)
    assert "3 prompts" in chart.alt
    assert "<svg" in svg(chart)


@pytest.mark.parametrize(
    ("fate", "known", "flag", "y0"),
    [
        ("drop", None, "no success: not trained on", -1 / PAPER_BETA),
        ("keep", None, "no success: kept with a prior", soft_value(100, 0, PAPER_BETA, prior=0.5)),
        ("corpus", None, "no success: kept with a prior", soft_value(100, 0, PAPER_BETA, prior=0.5)),
        ("corpus", 2e-4, "S = 0.0002 of known programs", soft_value_of_share(2e-4, PAPER_BETA)),
    ],
)
def test_a_prompt_never_solved_says_what_becomes_of_it_and_from_which_value_it_starts(
    fate: str, known: float | None, flag: str, y0: float
) -> None:
    context = SimpleNamespace(config=validate({"q0": {"zero_successes": fate}}))
    row = _prompt_row(context, "p", (100, 0), known, PAPER_BETA)  # type: ignore[arg-type]
    assert flag in row["flag"]
    assert row["y_0, nats"] == round(y0, 2)


def test_a_prompt_never_solved_is_trained_on_where_rewards_are_shares_of_tests() -> None:
    context = SimpleNamespace(config=validate({"train": {"reward": "fractional"}}))
    row = _prompt_row(context, "p", (100, 0), None, PAPER_BETA)  # type: ignore[arg-type]
    assert row["flag"] == "no success: trained on by the tests that it passes"


def test_a_corpus_of_nothing_can_be_drawn() -> None:
    assert "<svg" in svg(source_flow({"human": {}}))


def test_the_newest_verdict_counts_and_a_failure_of_the_sandbox_is_none(tmp_path: Path) -> None:
    row = {"program_hash": "p", "suite_hash": "s", "sandbox_version": "1", "verdict": "time_limit", "detail": "slow"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for number, changes in enumerate(({}, {"verdict": "accepted", "detail": None}, {"verdict": "infra"})):
            version = {"sandbox_version": str(number)}
            store.append(str(number), {"verdicts": [row | changes | version]}, run_id="run")
        found = store.rows(VERDICTS, [["s"]])
    assert found == [{"program_hash": "p", "suite_hash": "s", "verdict": "accepted", "detail": None}]
