"""What a step used and what came of it, in the warehouse: once, and always what was really done.

A resumed run takes the steps that a killed process had recorded again, with the same batches; that changes nothing.
Where a batch cannot be taken again, because something in it was quarantined since, the step and all after it are
other steps: what was recorded of them is superseded in the same commit that records the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.run.identity import digest
from tasks.train.shared.job import TrainJob
from tasks.train.trainer.metrics import Figures, TensorBoard, open_trackers
from tasks.train.trainer.spo_step import SequenceRecord
from warehouse import Warehouse
from warehouse.queries import query
from warehouse.superseding import content, superseded

Row = dict[str, Any]
COMMIT_EVERY = 10
"""Steps between two group commits when no worker waits to see them; every step is durable at once."""
STEPS = query(__name__, "steps")
REFERENCES = query(__name__, "references")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A step as the warehouse has it."""

    batch_id: str
    used: tuple[tuple[str, str], ...]
    """(trajectory, source) of each sequence."""


class Recorder:
    """Appends every step's figures and batch; used by the first process only."""

    def __init__(self, warehouse: Warehouse, job: TrainJob, *, after: int) -> None:
        """`after`: the last step that is not taken again."""
        self.warehouse = warehouse
        self.job = job
        self._writers = [TensorBoard(job, after), *open_trackers(job)]
        self._recorded = {
            int(row["step"]): _Recorded(row["batch_id"], tuple(zip(row["trajectory_ids"], row["sources"], strict=True)))
            for row in warehouse.rows(STEPS, (job.run_id, after))
        }
        self._otherwise = False
        """Whether a step that was recorded has been taken with another batch, so that the weights are others."""

    def record(
        self, step: int, records: Sequence[SequenceRecord], figures: Figures, reference_rows: list[Row], snapshot: int
    ) -> None:
        """Make the step durable under a batch id of its own: recording it twice changes nothing."""
        used = tuple((record.trajectory_id, record.source) for record in records)
        tables: dict[str, list[Row]] = {
            "train_steps": [{"step": step, "name": name, "value": value} for name, value in sorted(figures.items())],
            "train_batches": [
                {
                    "step": step,
                    "trajectory_ids": [identity for identity, _ in used],
                    "sources": [source for _, source in used],
                    "max_snapshot": snapshot,
                }
            ],
            "reference_logprobs": reference_rows,
        }
        batch_id, old = step_batch_id(self.job.run_id, step), self._recorded.get(step)
        self._otherwise = self._otherwise or (old is not None and old.used != used)
        if old is not None:
            batch_id = self._superseding(old, used, tables) if self._otherwise else old.batch_id
        self.warehouse.stage(batch_id, {name: rows for name, rows in tables.items() if rows}, run_id=self.job.run_id)
        if self.job.online_per_batch or step % COMMIT_EVERY == 0:
            self.warehouse.commit()
        for writer in self._writers:
            writer.write(step, figures)

    def event(self, kind: str, message: str) -> None:
        """A line in `run_events`."""
        row = {"stage": "train", "kind": kind, "message": message, "payload_json": "{}"}
        self.warehouse.stage(f"event/{self.job.run_id}/{kind}/{message}", {"run_events": [row]}, run_id=self.job.run_id)

    def flush(self) -> None:
        """Make everything visible."""
        self.warehouse.commit()

    def close(self) -> None:
        """Flush and close the writers."""
        self.flush()
        for writer in self._writers:
            writer.close()

    def _superseding(self, old: _Recorded, used: tuple[tuple[str, str], ...], tables: dict[str, list[Row]]) -> str:
        """Leave the old batch out; what it has of pi_0, which is as true as before, moves. The new batch's id."""
        batch_id = f"{old.batch_id}/{digest(old=old.batch_id, used=used)}"
        moved = self.warehouse.rows(REFERENCES, (old.batch_id,))
        fresh = {row["trajectory_id"] for row in tables["reference_logprobs"]}
        tables["reference_logprobs"] += [content(row) for row in moved if row["trajectory_id"] not in fresh]
        tables["quarantine"] = [superseded(old.batch_id, batch_id)]
        return batch_id


def step_batch_id(run_id: str, step: int) -> str:
    """Batch id of an optimizer step that was taken once."""
    return f"train/{run_id}/{step:08d}"
