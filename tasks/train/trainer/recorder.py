"""What a step used and what came of it, in the warehouse: once, and always what was really done.

A resumed run takes the steps that a killed process had recorded again, with the same batches; that changes nothing.
Where a batch cannot be taken again, because something in it was quarantined since, the step and all after it are
other steps: what was recorded of them is superseded, all at once, before or with what the first of them is now.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
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
COMMIT_AFTER_S = 5.0
"""Steps, and seconds, after which what was recorded is made visible. Every step is durable at once, and a worker that
waits for steps makes them visible itself."""
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
        self._taken = warehouse.committed_under(f"train/{job.run_id}/")
        """Batches of the run's steps and of what they stored, also those that were superseded or put aside."""
        self._staged = 0
        """Steps recorded since the last commit here."""
        self._committed_at = time.monotonic()

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
        }
        old = self._recorded.get(step)
        if old is not None and old.used == used:
            batch_id = old.batch_id
        else:
            batch_id = self._new_id(step)
            self._supersede(self._doomed(step), batch_id, tables)
        self._store_scores(step, reference_rows)
        self.warehouse.stage(batch_id, {name: rows for name, rows in tables.items() if rows}, run_id=self.job.run_id)
        self._staged += 1
        if self._staged == COMMIT_EVERY or time.monotonic() - self._committed_at >= COMMIT_AFTER_S:
            self.flush()
        for writer in self._writers:
            writer.write(step, figures)

    def _store_scores(self, step: int, rows: list[Row]) -> None:
        """What was computed of pi_0 is a batch of its own: who doubts it can put it aside without the step."""
        if rows:
            unit = digest(scored=[[row["trajectory_id"], row["fingerprint"]] for row in rows])
            first = f"train/{self.job.run_id}/{step:08d}/scores/{unit}"
            batch_id = self._free(first)  # it is taken where those that were stored have been put aside
            self.warehouse.stage(batch_id, {"reference_logprobs": rows}, run_id=self.job.run_id)

    def event(self, kind: str, message: str) -> None:
        """A line in `run_events`."""
        row = {"stage": "train", "kind": kind, "message": message, "payload_json": "{}"}
        self.warehouse.stage(f"event/{self.job.run_id}/{kind}/{message}", {"run_events": [row]}, run_id=self.job.run_id)

    def flush(self) -> None:
        """Make everything visible."""
        self.warehouse.commit()
        self._staged, self._committed_at = 0, time.monotonic()

    def close(self) -> None:
        """Flush and close the writers."""
        self.flush()
        for writer in self._writers:
            writer.close()

    def give_up(self, first: int) -> None:
        """Supersede what was recorded of step `first` and those after it, which will be taken otherwise, now.

        The workers, who count recorded steps, then sample for them.
        """
        doomed = self._doomed(first)
        if doomed:
            batch_id = f"train-again/{self.job.run_id}/{digest(batches=doomed)}"
            tables: dict[str, list[Row]] = {}
            self._supersede(doomed, batch_id, tables)
            self.event("drawn_anew", f"step {first} and those after it: something that they used was quarantined")
            self.warehouse.append(batch_id, tables, run_id=self.job.run_id)

    def _doomed(self, first: int) -> list[str]:
        """The batches of step `first` and those after it, which are known as recorded no more."""
        return [self._recorded.pop(step).batch_id for step in sorted(self._recorded) if step >= first]

    def _supersede(self, doomed: list[str], batch_id: str, tables: dict[str, list[Row]]) -> None:
        """Let `tables`, to be appended as `batch_id`, leave out these batches.

        What older versions put into them of pi_0 is as true as before, and moves.
        """
        if not doomed:
            return
        tables["reference_logprobs"] = [content(row) for row in self.warehouse.rows(REFERENCES, (doomed,))]
        tables["quarantine"] = [superseded(old, batch_id) for old in doomed]

    def _new_id(self, step: int) -> str:
        """A batch id for a step that this run has not taken in this way."""
        return self._free(f"train/{self.job.run_id}/{step:08d}")

    def _free(self, first: str) -> str:
        """This batch id or, where it is taken, the next of its kind that is not."""
        names = (first if number == 1 else f"{first}/{number}" for number in count(1))
        return next(name for name in names if name not in self._taken)
