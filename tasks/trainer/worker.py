"""`python -m tasks.trainer.worker JOB.json --index I`: one rollout worker.

Takes prompts, samples with the newest published weights, judges in the sandbox and appends trajectories, batch after
batch, staying at most `train.max_batches_ahead` optimizer batches ahead of the trainer. A batch is appended whole under
an id of its own: a worker that is killed and started again redoes the batch it had not finished.
Exit status: 0 stopped, 2 cannot go on (its last line says why; starting it again would not help), else a crash.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import Judge, SandboxError
from tasks.config import ConfigError
from tasks.engines import checkpoint as checkpoints
from tasks.engines import open_engine
from tasks.engines.protocol import EngineError
from tasks.engines.transformers_engine import check_drift
from tasks.problems.prompt import template_for
from tasks.rollout import KnownVerdicts, Sampler, tables
from tasks.trainer import weights
from tasks.trainer.errors import CANNOT_GO_ON, TrainerError
from tasks.trainer.job import TrainJob
from tasks.trainer.prompts import Prompts
from tasks.trainer.session import Stop
from warehouse import Warehouse

POLL_S = 0.3
MAX_DRIFT = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest difference per token (nats) between the engine's and the trainer's log-probabilities of the canary."""

WAITING = """
-- How many scored online trajectories of this run have not been trained on?
SELECT
  (SELECT count(*) FROM trajectories WHERE run_id = $run AND source = 'online' AND reward IS NOT NULL)
  - (SELECT coalesce(sum(len(list_filter(sources, lambda s: s = 'online'))), 0) FROM train_batches WHERE run_id = $run)
"""

Report = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Worker:
    """A rollout worker and what it holds open."""

    job: TrainJob
    index: int
    warehouse: Warehouse
    prompts: Prompts
    sampler: Sampler
    report: Report
    stop: Stop
    step: int = 0
    drift: float = 0.0
    """Difference to the trainer's log-probabilities at the last refresh (nats)."""

    def run(self) -> None:
        """Append batch after batch until asked to stop."""
        sequence = self.next_sequence()
        while self.has_room():
            self.refresh()
            self.append(sequence)
            sequence += 1

    def has_room(self) -> bool:
        """Wait until there is room for another batch; False when asked to stop."""
        most = self.job.train.max_batches_ahead * self.job.online_per_batch
        while not self.stop():
            if self.warehouse.value(WAITING, {"run": self.job.run_id}) < most:
                return True
            time.sleep(POLL_S)
        return False

    def refresh(self) -> None:
        """Load the newest published weights, unless they are loaded or the recipe samples from the reference."""
        if self.job.train.behaviour.weights == "reference":
            return
        newest = weights.latest(self.job.weights)
        if newest is None or newest.policy_id == self.sampler.engine.policy_id:
            return
        self.sampler.engine.refresh(newest.folder)
        self.step = newest.step
        self.drift = canary_drift(self.sampler, newest, self.job)

    def append(self, sequence: int) -> None:
        """Sample, judge and append batch number `sequence`, all of it or nothing."""
        train = self.job.train
        drawn = self.prompts.draw(
            self.index, sequence, responses=train.rollout_batch, per_prompt=train.responses_per_prompt
        )
        began = time.monotonic()
        judged = list(self.sampler.run(drawn, source="online", worker=str(self.index), step=self.step))
        self.warehouse.append(batch_id(self.job.run_id, self.index, sequence), tables(judged), run_id=self.job.run_id)
        passed = sum(item.row["reward"] == 0 for item in judged)
        self.report(
            {
                "worker": self.index,
                "sequence": sequence,
                "responses": len(judged),
                "passed": passed,
                "step": self.step,
                "drift": self.drift,
                "seconds": round(time.monotonic() - began, 3),
            }
        )

    def next_sequence(self) -> int:
        """The number after this worker's last appended batch."""
        prefix = batch_id(self.job.run_id, self.index)
        done = self.warehouse.committed_under(prefix)
        return 1 + max((int(identity.removeprefix(prefix)) for identity in done), default=-1)


def batch_id(run_id: str, index: int, sequence: int | None = None) -> str:
    """Batch id of a worker's batch; without `sequence` the prefix of all of them."""
    return f"rollout/{run_id}/{index}/" + ("" if sequence is None else f"{sequence:08d}")


def canary_drift(sampler: Sampler, published: weights.Published, job: TrainJob) -> float:
    """Difference per token (nats) between engine and trainer on the published canary. Raises EngineDrift."""
    canary = weights.read_canary(published.folder)
    if canary is None or job.config.engine.kind == "scripted":
        return 0.0
    scores = sampler.engine.score([(canary.prompt_ids, canary.response_ids)])[0]
    return check_drift(scores, canary.logprobs, MAX_DRIFT[job.config.reference.dtype])


def work(job: TrainJob, index: int, report: Report) -> None:
    """Run worker `index` of the job until it is asked to stop."""
    stop = Stop()
    stop.listen(stdin=job.end_on_stdin_eof)
    config = job.config
    with (
        Warehouse.open(job.warehouse) as warehouse,
        closing(open_engine(config.engine, job.reference, dtype=config.reference.dtype)) as engine,
        Judge(config.sandbox.backend, config.sandbox.workers, config.sandbox.mode) as judge,
    ):
        tokenizer = checkpoints.load_tokenizer(job.reference)
        sampler = Sampler(
            engine,
            tokenizer,
            judge,
            behaviour=job.train.behaviour,
            max_response_tokens=config.engine.max_response_tokens,
            sandbox_config=config.sandbox,
            known=KnownVerdicts(warehouse),
            template=template_for(config.reference, tokenizer),
        )
        Worker(job, index, warehouse, Prompts.read(warehouse, job), sampler, report, stop).run()


def main(argv: list[str]) -> int:
    """Run the worker that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tasks.trainer.worker", description="One rollout worker.")
    parser.add_argument("job", type=Path)
    parser.add_argument("--index", type=int, required=True)
    arguments = parser.parse_args(argv)
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def report(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")

    try:
        work(TrainJob.read(arguments.job), arguments.index, report)
    except (TrainerError, SandboxError, EngineError, ConfigError) as error:
        report({"error": str(error), "kind": type(error).__name__, "worker": arguments.index})
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return CANNOT_GO_ON
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
