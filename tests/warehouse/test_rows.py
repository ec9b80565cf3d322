from __future__ import annotations

from datetime import datetime
from typing import Any, get_type_hints

from tests.refusals import refused
from tests.warehouse.conftest import trajectories
from warehouse import Warehouse
from warehouse.rows import TrajectoryRow, trajectory_rows
from warehouse.schema import PROVENANCE, TRAJECTORIES, VIEW_COLUMNS

PYTHON: dict[str, Any] = {
    "VARCHAR": str,
    "BIGINT": int,
    "INTEGER": int,
    "DOUBLE": float,
    "TIMESTAMPTZ": datetime,
    "INTEGER[]": list[int],
    "FLOAT[]": list[float | None],
}


def test_a_trajectory_row_has_the_columns_of_the_schema_with_their_types() -> None:
    stored = {
        column.name: PYTHON[column.type] if column.required else PYTHON[column.type] | None
        for column in (*TRAJECTORIES.columns, *PROVENANCE)
    }
    shown = {column.name: PYTHON[column.type] for column in VIEW_COLUMNS}
    assert get_type_hints(TrajectoryRow) == stored | shown


def test_trajectories_are_read_as_their_type(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("b", {"trajectories": trajectories(2)}, run_id="run")
        rows = trajectory_rows(store.rows("SELECT * FROM trajectories ORDER BY arrival"))
        assert [row["trajectory_id"] for row in rows] == ["t0", "t1"]
        assert set(rows[0]) == TrajectoryRow.__required_keys__ | TrajectoryRow.__optional_keys__
        assert trajectory_rows([]) == []
        with refused("MissingField", "token_ids"):
            trajectory_rows(store.rows("SELECT trajectory_id, reward FROM trajectories"))
