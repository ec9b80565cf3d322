"""What docs/evidence/regime.md says of the study's outcomes is what its runs gave."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import regime_tables
from flows import study_config
from tasks.report.arms import ArmResult

PAGE = (regime_tables.RESULTS.parents[1] / "regime.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def arms() -> dict[str, ArmResult]:
    return regime_tables.read()


@pytest.fixture(scope="module")
def tables(arms: dict[str, ArmResult]) -> dict[str, str]:
    return regime_tables.tables(arms)


def arm(values: dict[int, float]) -> ArmResult:
    """An arm whose runs end with these values, by seed."""
    return ArmResult("", list(values), [{}] * len(values), [{"pass@10": value} for value in values.values()])


@pytest.mark.parametrize("name", ["claims", *regime_tables.CORNERS, "cost"])
def test_the_page_has_the_tables_that_the_runs_give(tables: dict[str, str], name: str) -> None:
    assert tables[name] in PAGE, "put what `python -m benchmarks.regime_tables` prints into docs/evidence/regime.md"


def test_every_arm_of_the_study_is_in_the_table_of_its_corner(
    arms: dict[str, ArmResult], tables: dict[str, str]
) -> None:
    rows = sum(len(tables[name].splitlines()) - 2 for name in regime_tables.CORNERS if tables[name])
    assert rows == len(arms)


def test_of_an_arm_at_several_rates_the_first_row_has_the_label() -> None:
    names = ("pass@1", "pass@10", "distinct correct", "duplicates", "online trajectories", "train s")
    one = ArmResult("", [0], [{"pass@10": {0: 0.1, 3: 0.2}}], [dict.fromkeys(names, 0.5)])
    rate = {"ppo-1e-5": 1e-5, "ppo-3e-5": 3e-5}
    rows = regime_tables.at_the_end(dict.fromkeys(rate, one), rate, "many, small")
    assert [(row["arm"], row["rate"]) for row in rows] == [("PPO", "3e-5"), ("", "1e-5")]


def test_differences_are_paired_by_seed_whatever_their_order() -> None:
    found = arm({2: 0.5, 0: 0.3, 1: 0.4}).differences(arm({0: 0.1, 1: 0.1, 2: 0.2, 3: 0.9}), "pass@10")
    assert found == pytest.approx([0.2, 0.3, 0.3])
    reach = 100 * 4.3027 * math.sqrt(1 / 300) / math.sqrt(3)
    mean = 100 * 0.8 / 3
    assert regime_tables.percent(found, "+") == f"+{mean:.1f} [+{mean - reach:.1f}, +{mean + reach:.1f}]"


def test_fewer_than_three_runs_get_no_interval() -> None:
    assert regime_tables.percent([0.12, 0.5]) == "12.0, 50.0"


def test_every_line_of_the_pictures_is_an_arm_of_the_study_and_is_drawn_with_its_interval(
    arms: dict[str, ArmResult], tmp_path: Path
) -> None:
    lines = {
        (picture, label, corner): regime_tables.arm_of(picture, label, corner)
        for picture, labels in regime_tables.PICTURES.items()
        for label in labels
        for corner in regime_tables.CORNERS
    }
    corners_without = {("fine-tuning on the corpus", "few, large"), ("fine-tuning on the corpus", "few, small")}
    known = {name for (_, label, corner), name in lines.items() if name and (label, corner) not in corners_without}
    assert known <= set(study_config.load("regime").arms)
    drawn = regime_tables.draw(arms, tmp_path)
    assert [path.is_file() for path in drawn] == [True] * 4
    half = arms["half-online"]
    line = regime_tables.series("SPO half online", half, "pass@10")
    assert line.y[-1] == pytest.approx(fmean(half.values("pass@10")))
    assert line.low[-1] < line.y[-1] < line.high[-1]
