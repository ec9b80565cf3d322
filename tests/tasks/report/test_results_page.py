"""The table of docs/evidence/results.md has the figures that the studies' runs gave."""

from __future__ import annotations

import pytest

from benchmarks.regime_tables import BOTH, RESULTS, percent
from flows import study_config
from tasks.report import study_results
from tasks.report.arms import ArmResult

DATA = RESULTS.parent
PAGE = (DATA.parent / "results.md").read_text(encoding="utf-8")
SETTINGS = ("methods.jsonl", "regime.jsonl", "basics-before/smollm.jsonl")
"""The studies' files, in the order of the table's settings, each with a column for pass@1 and one for pass@10."""
ROWS = {
    "**SPO half online**": ("spo-half-online", "half-online-3e-4", "half-online"),
    "SPO online": ("spo-online", "online-3e-5", "online"),
    "fine-tuning on known programs": ("rft", "rejection", "rejection"),
    "PPO": ("ppo", "ppo-3e-5", "ppo"),
    "A\\*-PO half online": ("a-star-po-half-online", None, "a-star-po-half-online"),
    "pass@4": ("pass-at-4", None, "pass-at-4"),
    "MaxRL": ("max-rl", None, "max-rl"),
    "GRPO": ("grpo", None, None),
    "RLOO": ("rloo", None, None),
}


@pytest.fixture(scope="module")
def results() -> list[study_results.Results]:
    files = [DATA / name for name in SETTINGS]
    return [study_results.read(path, study_config.load(path.stem).settings()) for path in files]


@pytest.mark.parametrize("label", ROWS)
def test_a_row_has_the_figures_of_the_runs(results: list[study_results.Results], label: str) -> None:
    expected = [label]
    for found, arm in zip(results, ROWS[label], strict=True):
        ended = found.added(arm, ArmResult("", (), (), ())) if arm else None
        expected += [percent(ended.values(measure)) if ended else "not run" for measure in BOTH]
    assert f"| {' | '.join(expected)} |" in PAGE


def test_every_method_of_the_table_is_checked() -> None:
    table = PAGE.partition("| method |")[2].partition("\n\n")[0].splitlines()[3:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in table] == list(ROWS)
