"""Back-pressure: how far rollout workers may run ahead of the trainer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query

PACE = query(__name__, "pace")
OLDEST_S = 5.0
"""Counts are read again after so long even if the run appended nothing: its batches may have been quarantined."""


@dataclass(frozen=True, slots=True)
class Backpressure:
    """Where a run is: optimizer steps recorded, online trajectories trained on and sampled, newest published step.

    `scored` counts what can be trained on: responses with a reward, in whole groups where they are compared.
    """

    steps: int
    trained: int
    scored: int
    published: int | None

    @classmethod
    def read(cls, warehouse: Warehouse, job: TrainJob) -> Backpressure:
        """Where the job's run is now."""
        newest = published_weights.latest(job.weights)
        (row,) = warehouse.rows(PACE, {"run": job.run_id, "group": job.train.group_size})
        published = None if newest is None else newest.step
        return cls(int(row["steps"]), int(row["trained"]), int(row["scored"]), published)

    def has_room(self, job: TrainJob, under_way: int = 0) -> bool:
        """Whether a worker that has so many rollout batches under way may begin another one now.

        Each of the others may have as many.
        """
        train, batch = job.train, job.online_per_batch
        waiting = self.scored - self.trained
        coming = self.scored + under_way * train.rollout_batch
        if coming >= train.sampled_by(train.steps) or not self._has_weights(job):
            return False
        in_flight = train.rollout_workers * train.rollout_batch * (1 + under_way)
        starving = under_way == 0 and waiting < batch
        return starving or waiting + in_flight <= train.max_batches_ahead * batch

    def _has_weights(self, job: TrainJob) -> bool:
        """Whether what a worker would sample with is new enough; before the first step that is the reference."""
        if job.train.behaviour.weights == "reference":
            return True
        if job.train.max_batches_ahead == 0:
            due = self.steps % job.train.sampling_interval == 0
            return due and self.published is not None and self.published >= self.steps
        return self.published is not None or self.steps == 0


@dataclass(slots=True)
class BackpressureReader:
    """Reads where a run is as often as it is asked to; counts anew only when the run has appended something since.

    Counting asks the lake, which takes a waiting worker more than all its sampling where the policy is small.
    """

    warehouse: Warehouse
    job: TrainJob
    _found: Backpressure | None = None
    _known: tuple[int, published_weights.Published | None] = (0, None)
    _read_at: float = 0.0

    def read(self) -> Backpressure:
        """Where the run is now."""
        known = (self.warehouse.newest_of(self.job.run_id), published_weights.latest(self.job.weights))
        now = time.monotonic()
        if self._found is None or known != self._known or now - self._read_at > OLDEST_S:
            self._found, self._known, self._read_at = Backpressure.read(self.warehouse, self.job), known, now
        return self._found
