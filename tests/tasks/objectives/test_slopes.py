"""What docs/evidence/regime.md says of the losses is what the losses do."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import slopes

PAGE = (Path(__file__).parents[3] / "docs" / "evidence" / "regime.md").read_text(encoding="utf-8")
CHANCES = slopes.CHANCES


@pytest.mark.parametrize("table", slopes.TABLES, ids=lambda table: table.__name__)
def test_the_page_has_the_tables_that_the_losses_give(table) -> None:
    assert table() in PAGE, "put what `python -m benchmarks.slopes` prints into docs/evidence/regime.md"


@pytest.mark.parametrize("chance", CHANCES)
def test_cross_entropy_at_the_start_has_the_slopes_of_the_closed_form(chance: float) -> None:
    objective, y_0 = slopes.LOSSES["cross-entropy"], slopes.soft_value(chance)
    assert slopes.slope(objective, chance, y_0, success=True) == pytest.approx(-1)
    assert slopes.slope(objective, chance, y_0, success=False) == pytest.approx(chance / (1 - chance), rel=1e-2)
    assert slopes.balance(objective, chance, chance) == pytest.approx(math.log(chance), abs=1e-2)
    assert slopes.trajectories_needed(objective, chance) == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize("chance", CHANCES)
def test_squared_loss_settles_at_the_mean_of_its_targets(chance: float) -> None:
    objective = slopes.LOSSES["squared"]
    assert slopes.balance(objective, chance, chance) == pytest.approx((1 - chance) * slopes.FAILURE, rel=1e-6)
    gap = slopes.slope(objective, chance, -3.0, success=False) - slopes.slope(objective, chance, -3.0, success=True)
    assert gap == pytest.approx(2 * slopes.PAPER_BETA)
