"""What a run may train on of earlier runs: their online trajectories, failures included, as they were at its snapshot.

The selection is fixed when training begins: it is written beside the run's soft values, and its identity is part of the
stage's key. Other runs may add what they like meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.config import EarlierConfig
from tasks.train.shared import atomic
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query

SELECTION = query(__name__, "selection")
THERE = query(__name__, "there")


@dataclass(frozen=True, slots=True)
class Selection:
    """Trajectories of earlier runs by reward class, sorted."""

    successes: tuple[str, ...]
    failures: tuple[str, ...]

    def digest(self) -> str:
        """24 hexadecimal digits that identify the selection."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:24]


def select(store: Warehouse, config: EarlierConfig, **run: Any) -> Selection:
    """What is there for a run: its name, a snapshot, a limit in tokens, and the batches of its prompts and problems."""
    rows = store.rows(SELECTION, config.model_dump() | {"run_ids": list(config.run_ids)} | run)
    right, wrong = ([str(row["trajectory_id"]) for row in rows if row["passed"] is passed] for passed in (True, False))
    return Selection(tuple(right), tuple(wrong))


def selected(store: Warehouse, job: TrainJob, problems: Iterable[str]) -> Selection:
    """The run's selection as it was when training began, on these problems, without what was quarantined since."""
    kept = _file(job)
    if not kept.is_file():
        found = select(
            store,
            job.train.earlier,
            run=job.run_id,
            **job.selection_bounds,
        )
        atomic.write_once(kept, json.dumps(asdict(found)))
    read = json.loads(kept.read_text(encoding="utf-8"))
    asked = {"ids": read["successes"] + read["failures"], "problems": sorted(problems)}
    there = {str(row["trajectory_id"]) for row in store.rows(THERE, asked)}
    right, wrong = (tuple(name for name in read[kind] if name in there) for kind in ("successes", "failures"))
    return Selection(right, wrong)


def _file(job: TrainJob) -> Path:
    return job.run_dir / "earlier.json"
