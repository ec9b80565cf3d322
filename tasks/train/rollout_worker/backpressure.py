"""Back-pressure: how far rollout workers may run ahead of the trainer."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query
from warehouse.reading.following import RunFollower

PACE = query(__name__, "pace")
OLDEST_S = 30.0
"""Everything is counted again after so long, whatever arrived: batches of the run may have been quarantined."""
FOLLOWED = {"trajectories": ("batch_id", "problem_id", "source", "reward"), "train_batches": ("step", "sources")}
"""Tables whose rows move a run on, and the columns that say how far."""


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
    def read(cls, warehouse: Warehouse, job: TrainJob, *, snapshot: int | None = None) -> Backpressure:
        """Where the job's run is now, or was at a snapshot of the warehouse."""
        published = newest_step(job)
        (row,) = warehouse.rows(PACE, {"run": job.run_id, "group": job.train.group_size}, snapshot=snapshot)
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
    """Reads where a run is as often as it is asked to, at a cost that does not grow with the run.

    What the run has is counted once and then every `oldest_s`; in between, what it appends is added. Counting at
    every question takes more than all sampling where the policy is small.
    """

    warehouse: Warehouse
    job: TrainJob
    oldest_s: float = OLDEST_S
    _found: Backpressure | None = None
    _counted_at: float = 0.0
    _newest: int = 0
    """Snapshot of the run's newest batch at the last question."""
    _followers: dict[str, RunFollower] = field(default_factory=dict[str, RunFollower])
    """By table: what it brings after what is in `_found`."""

    def read(self) -> Backpressure:
        """Where the run is now."""
        published, newest = newest_step(self.job), self.warehouse.newest_of(self.job.run_id)
        if self._found is None or time.monotonic() - self._counted_at > self.oldest_s:
            found = self._count()
        elif newest != self._newest:
            found = self._add(self._found) or self._count()
        else:
            found = self._found
        self._newest, self._found = newest, replace(found, published=published)
        return self._found

    def _count(self) -> Backpressure:
        snapshot = self.warehouse.snapshot()
        self._followers = {
            table: RunFollower(self.warehouse, table, self.job.run_id, since=snapshot, columns=columns)
            for table, columns in FOLLOWED.items()
        }
        self._counted_at = time.monotonic()
        return Backpressure.read(self.warehouse, self.job, snapshot=snapshot)

    def _add(self, found: Backpressure) -> Backpressure | None:
        """`found` and what the run appended since; None when it trained a step anew: counts no longer add up."""
        arrived, steps = self._followers["trajectories"].read(), self._followers["train_batches"].read()
        sampled = [row for row in arrived if row["source"] == "online" and row["reward"] is not None]
        if any(row["step"] <= found.steps for row in steps):
            return None
        size = self.job.train.group_size
        groups = Counter((row["batch_id"], row["problem_id"]) for row in sampled)  # a batch is appended whole
        return replace(
            found,
            steps=max((row["step"] for row in steps), default=found.steps),
            trained=found.trained + sum(row["sources"].count("online") for row in steps),
            scored=found.scored + sum(n // size * size for n in groups.values()),
        )


def newest_step(job: TrainJob) -> int | None:
    """Optimizer step of the newest published weights; None before the first."""
    newest = published_weights.latest(job.weights)
    return None if newest is None else newest.step
