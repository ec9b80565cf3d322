"""What docs/regime.md says of the study's outcomes is what its runs gave."""

from __future__ import annotations

import math

import pytest

from benchmarks import regime_tables
from tasks.report.study import ArmResult

PAGE = (regime_tables.RESULTS.parents[2] / "regime.md").read_text(encoding="utf-8")
TABLES = regime_tables.tables(regime_tables.read())


def arm(values: dict[int, float]) -> ArmResult:
    """An arm whose runs end with these values, by seed."""
    return ArmResult("", list(values), [{}] * len(values), [{"pass@10": value} for value in values.values()])


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables_that_the_runs_give(name: str) -> None:
    assert TABLES[name] in PAGE, "put what `python -m benchmarks.regime_tables` prints into docs/regime.md"


def test_every_arm_of_the_study_is_in_the_table_of_its_corner() -> None:
    rows = sum(len(TABLES[name].splitlines()) - 2 for name in regime_tables.CORNERS if name in TABLES)
    assert rows == len(regime_tables.read())


def test_differences_are_paired_by_seed_whatever_their_order() -> None:
    arms = {"a": arm({2: 0.5, 0: 0.3, 1: 0.4}), "b": arm({0: 0.1, 1: 0.1, 2: 0.2, 3: 0.9})}
    found = regime_tables.differences(arms, "a", "b", "pass@10")
    assert found == pytest.approx([0.2, 0.3, 0.3])
    reach = 100 * 4.3027 * math.sqrt(1 / 300) / math.sqrt(3)
    mean = 100 * 0.8 / 3
    assert regime_tables.percent(found, "+") == f"+{mean:.1f} [+{mean - reach:.1f}, +{mean + reach:.1f}]"


def test_fewer_than_three_runs_get_no_interval() -> None:
    assert regime_tables.percent([0.12, 0.5]) == "12.0, 50.0"
