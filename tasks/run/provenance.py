"""What a run reads, once and for all: the snapshot it is pinned to, and what its training has begun with.

Other runs add trajectories and samples of pi_0 all the time. Before training begins, a run that is continued may take
in what has arrived since. From the moment training begins, prepare, q0, corpus, pivotal and train of that run stand
as they are: what its batches were drawn from is what is recorded, however often it is resumed and whoever else runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tasks.run import runs
from tasks.run.errors import TrainingHasBegun
from tasks.run.stage_names import STAGE_NAMES, StageName
from warehouse import Warehouse
from warehouse.queries import query

FIXED: tuple[StageName, ...] = STAGE_NAMES[: STAGE_NAMES.index("train") + 1]
"""The stages that stand once training has begun."""


def pin(store: Warehouse, run_id: str, snapshot: int) -> None:
    """From now on the run leaves out what others add after `snapshot`. Raises TrainingHasBegun and UnknownSnapshot."""
    refuse_to_pin(store, run_id, snapshot)
    if pinned(store, run_id) != snapshot:
        message = f"reads snapshot {snapshot}"
        runs.note(store, run_id, stage="", kind="pinned", message=message, payload={"snapshot": snapshot})


def refuse_to_pin(store: Warehouse, run_id: str, snapshot: int) -> None:
    """Raise UnknownSnapshot or TrainingHasBegun when the run cannot be pinned to `snapshot`."""
    store.check_snapshot(snapshot)
    if pinned(store, run_id) != snapshot and training_began_with(store, run_id):
        raise TrainingHasBegun(
            f"run {run_id!r} cannot be pinned to snapshot {snapshot}: its training has begun with what it read before; "
            f"`spo run --like {run_id} --pin {snapshot}` starts a new run that is"
        )


def pinned(store: Warehouse, run_id: str) -> int | None:
    """The snapshot that the run is pinned to; None: it reads the newest."""
    found = _newest(store, run_id, "pinned")
    return None if found is None else int(found["snapshot"])


def reads_until(store: Warehouse, run_id: str, stage: StageName) -> int:
    """The snapshot that `stage` of a run without a pin reads: the newest as its corpus is made, and that from then on.

    So one number says what the run's batches were drawn from: `snapshot_in` of its stage `corpus`.
    """
    begun = _newest(store, run_id, "begun")
    if begun is not None and stage in FIXED and "snapshot" in begun:
        return int(begun["snapshot"])
    found = store.value(query(__name__, "corpus_read"), [run_id]) if stage in ("pivotal", "train") else None
    return store.snapshot() if found is None else int(found)


def begin_training(store: Warehouse, run_id: str, key: str, snapshot: int) -> None:
    """Write down the keys of the stages that training begins with, and the snapshot that they read.

    `key` is that of training itself.
    """
    rows = store.rows(query(__name__, "newest_keys"), [run_id])
    keys = {str(row["stage"]): str(row["key"]) for row in rows if row["stage"] in FIXED} | {"train": key}
    runs.note(
        store,
        run_id,
        stage="train",
        kind="begun",
        message="training begins",
        payload={"keys": keys, "snapshot": snapshot},
    )


def training_began_with(store: Warehouse, run_id: str) -> Mapping[str, str]:
    """Stage -> key that the run's training began with; empty while it has not begun."""
    found = _newest(store, run_id, "begun")
    return {} if found is None else {str(stage): str(key) for stage, key in found["keys"].items()}


def _newest(store: Warehouse, run_id: str, kind: str) -> Mapping[str, Any] | None:
    text = store.value(query(__name__, "newest_event"), [run_id, kind])
    return None if text is None else json.loads(text)
