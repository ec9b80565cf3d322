"""`python -m tasks.train.rollout_worker.worker JOB.json --index I`: one rollout worker.

Takes prompts, samples with the newest published weights, judges in the sandbox and appends trajectories, batch after
batch, as far ahead of the trainer as back-pressure lets it. While a batch's last responses and verdicts are awaited,
the next one is sampled. A batch is appended whole under an id of its own, after those before it: a worker that is
killed and started again redoes the batches that it had not finished.
Exit status: 0 stopped, 2 cannot go on (its last line says why; starting it again would not help), else a crash.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandbox import Judge, SandboxError, Submission, Suite, TestCase, Verdict
from tasks.checkpoints.errors import EngineError
from tasks.config import ConfigError
from tasks.engines.canary import MEAN_DRIFT, check_drift
from tasks.sampling.assignment import Assignment
from tasks.sampling.opening import open_configured_sampler
from tasks.sampling.reference_counts import drawn_first, reference_counts, rollout_batches
from tasks.sampling.sampler import Judged, Sampler, tables
from tasks.train.rollout_worker.backpressure import BackpressureReader
from tasks.train.rollout_worker.curriculum import Belief, believed, rollouts_before
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.shared import published_weights
from tasks.train.shared.errors import CANNOT_GO_ON, JudgingImpossible, TrainerError
from tasks.train.shared.job import TrainJob
from tasks.train.shared.process import ReportLine, run_process
from tasks.train.shared.soft_values import frozen_values, success_rates
from tasks.train.shared.stop import Stop
from warehouse import Warehouse

LONGEST_POLL_S = 1.0
"""A waiting worker asks again after a fiftieth of the time that it has waited, at most this."""
SHORTEST_POLL_S = 0.25
"""A worker that has batches under way asks no more often for room for another one."""
_PROBE = Submission("print(input())", Suite("probe", (TestCase("1", "1"),)))
"""A program that every working sandbox accepts."""


@dataclass(slots=True)
class Seconds:
    """Where a worker's time since its last batch went; `judge`: waiting for verdicts with nothing to sample."""

    wait: float = 0.0
    refresh: float = 0.0
    sample: float = 0.0
    judge: float = 0.0


@dataclass(slots=True)
class RolloutWorker:
    """A rollout worker and what it holds open."""

    job: TrainJob
    index: int
    warehouse: Warehouse
    prompts: PromptSchedule
    sampler: Sampler
    judge: Judge
    report: ReportLine
    stop: Stop
    step: int = 0
    """Optimizer step of the weights it samples with."""
    drifts: dict[int, float] = field(default_factory=dict[int, float])
    """Drift (nats) by step of the weights loaded since the last batch."""
    seconds: Seconds = field(default_factory=Seconds)
    spent: tuple[float, float] = (0.0, 0.0)
    """Seconds of the sampler, in its engine and waiting for verdicts, up to the last batch."""
    begun: int = 0
    """Number of the next batch to begin."""
    appended: int = 0
    """Number after the last batch appended here."""
    rates: dict[str, float] = field(default_factory=dict[str, float])
    """Q0's success rate by problem; not read where prompts are drawn uniformly."""
    believed: list[tuple[str, float, int]] = field(default_factory=list[tuple[str, float, int]])
    """Of the last batch: problem, expected chance of success when it was drawn, responses."""
    pace: BackpressureReader = field(init=False)
    shortest_poll_s: float = SHORTEST_POLL_S
    """Least time between two questions whether there is room."""

    def __post_init__(self) -> None:
        self.pace = BackpressureReader(self.warehouse, self.job)

    def run(self) -> None:
        """Append batch after batch until asked to stop."""
        self.appended = self.next_sequence()
        while self.await_room():
            self.begun = self.appended
            rolling = self.sampler.roll(self.batches(), source="online", worker=str(self.index), step=lambda: self.step)
            for sequence, judged in enumerate(rolling, start=self.appended):
                self.append(sequence, judged)

    def batches(self) -> Iterator[list[Assignment] | None]:
        """What to sample while there is room; None where only what is under way must come back first.

        Ends when nothing is under way and there is no room.
        """
        asked = 0.0
        while not self.stop():
            under_way = self.begun - self.appended
            if under_way and time.monotonic() - asked < self.shortest_poll_s:
                yield None
                continue
            asked = time.monotonic()
            if not self.may_begin(under_way):
                if not under_way:
                    return
                yield None
            elif not self.refresh():
                yield None
            else:
                self.begun += 1
                yield self.draw(self.begun - 1)

    def may_begin(self, under_way: int) -> bool:
        """Whether another batch may begin while so many are under way.

        None may where what is drawn follows from what has arrived: a batch that is lost must be drawn again as it was.
        """
        if under_way and self.prompts.rule != "uniform":
            return False
        return self.has_room(under_way)

    def has_room(self, under_way: int = 0) -> bool:
        """Whether there is room for another batch; the steps that the trainer has staged are made visible for it."""
        if self.pace.read().has_room(self.job, under_way):
            return True
        self.warehouse.commit()
        return self.pace.read().has_room(self.job, under_way)

    def await_room(self) -> bool:
        """Wait until there is room for another batch; False when asked to stop."""
        began = time.monotonic()
        while not self.stop():
            room, waited = self.has_room(), time.monotonic() - began
            if room:
                self.seconds.wait += waited
                return True
            time.sleep(min(LONGEST_POLL_S, 0.02 + waited / 50))
        return False

    def refresh(self) -> bool:
        """Load the newest published weights, unless they are loaded or the recipe samples from the reference.

        False where there are newer ones, and what is being sampled must be finished first.
        """
        if self.job.train.behaviour.weights == "reference":
            return True
        began = time.monotonic()
        engine = self.sampler.engine
        with published_weights.newest_held(self.job.weights) as newest:
            if newest is not None and newest.policy_id != engine.policy_id:
                if self.sampler.sampling:
                    return False
                engine.refresh(newest.folder)
                self.drifts[newest.step] = canary_drift(self.sampler, newest, self.job)
        self.step = self.step if newest is None else newest.step
        self.seconds.refresh += time.monotonic() - began
        return True

    def append(self, sequence: int, judged: list[Judged]) -> None:
        """Append batch number `sequence`, all of it or nothing. Raises JudgingImpossible."""
        name = batch_id(self.job.run_id, self.index, sequence)
        sampled_s, judged_s = self.sampler.sampling_s, self.sampler.judging_s
        self.seconds.sample, self.seconds.judge = sampled_s - self.spent[0], judged_s - self.spent[1]
        figures: dict[str, Any] = {"worker": self.index, "sequence": sequence, "step": judged[0].row["step"]}
        figures |= {
            "responses": len(judged),
            "passed": sum(item.row["reward"] == 0 for item in judged),
            "seconds": {part: round(value, 3) for part, value in asdict(self.seconds).items()},
        }
        if self.believed:
            figures["drawn"] = self.believed
        counts = self.job.counts
        counted = reference_counts(
            drawn_first(self.warehouse, name, judged, reference=counts.reference),
            reference=counts.reference,
            template_id=counts.template_id,
            max_response_tokens=self.job.config.engine.max_response_tokens,
        )
        rows = tables(judged) | self.records(figures) | {"reference_counts": counted}
        self.warehouse.append(name, rows, run_id=self.job.run_id)
        self.appended = sequence + 1
        self.seconds, self.drifts, self.spent = Seconds(), {}, (sampled_s, judged_s)
        self.report(figures)
        if any(item.row["verdict"] == Verdict.infra for item in judged):
            require_sandbox(self.judge)

    def draw(self, sequence: int) -> list[Assignment]:
        """What batch number `sequence` asks for."""
        train, beliefs = self.job.train, self.beliefs(sequence)
        drawn = self.prompts.draw(
            self.index, sequence, responses=train.rollout_batch, per_prompt=train.responses_per_prompt, beliefs=beliefs
        )
        if beliefs is not None:
            self.believed = [(a.problem.problem_id, round(beliefs[a.problem.problem_id].mean, 3), a.n) for a in drawn]
        return drawn

    def beliefs(self, sequence: int) -> dict[str, Belief] | None:
        """What is believed of every problem when batch number `sequence` is drawn; None where that does not matter."""
        if self.prompts.rule == "uniform":
            return None
        run, worker = self.job.run_id, batch_id(self.job.run_id, self.index)
        rollouts = rollouts_before(self.warehouse, run, worker, batch_id(run, self.index, sequence))
        drawn_from = [prompt.problem.problem_id for prompt in self.prompts.prompts]
        return believed({p: self.rates[p] for p in drawn_from}, rollouts, self.job.train.curriculum)

    def records(self, figures: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """The rows that describe a batch: an event, and how far the engine was from the trainer."""
        message = (
            f"worker {self.index}, batch {figures['sequence']}: {figures['passed']} of {figures['responses']} pass"
        )
        event = {"stage": "train", "kind": "rollout", "message": message, "payload_json": json.dumps(figures)}
        drift = [
            {"step": step, "name": f"worker-{self.index}/drift", "value": value} for step, value in self.drifts.items()
        ]
        return {"run_events": [event], "train_steps": drift}

    def next_sequence(self) -> int:
        """The number after this worker's last appended batch."""
        prefix = batch_id(self.job.run_id, self.index)
        done = self.warehouse.committed_under(prefix)
        return 1 + max((int(identity.removeprefix(prefix).partition("/")[0]) for identity in done), default=-1)


def batch_id(run_id: str, index: int, sequence: int | None = None) -> str:
    """Batch id of a worker's batch; without `sequence` the prefix of all of them."""
    return f"{rollout_batches(run_id)}{index}/" + ("" if sequence is None else f"{sequence:08d}")


def canary_drift(sampler: Sampler, published: published_weights.Published, job: TrainJob) -> float:
    """Difference (nats a token) of engine and trainer on the worst of the published canaries. Raises EngineDrift."""
    canaries = published_weights.read_canaries(published.folder)
    if job.config.engine.kind == "scripted":
        return 0.0
    scores = sampler.engine.score([(canary.prompt_ids, canary.response_ids) for canary in canaries])
    most = MEAN_DRIFT[job.config.reference.dtype]
    return max((check_drift(found, c.logprobs, most) for found, c in zip(scores, canaries, strict=True)), default=0.0)


def require_sandbox(judge: Judge) -> None:
    """Judge a program that must be accepted. Raises JudgingImpossible when the sandbox fails at that too."""
    (found,) = judge.judge([_PROBE])
    if found.verdict == Verdict.infra:
        raise JudgingImpossible(
            f"the sandbox cannot judge any more ({found.detail}): no further prompts are taken, and what was sampled "
            f"stays without reward; run `spo doctor`, then resume the run"
        )


def work(job: TrainJob, index: int, report: ReportLine) -> None:
    """Run worker `index` of the job until it is asked to stop."""
    stop = Stop()
    stop.listen(stdin=job.end_on_stdin_eof)
    with (
        Warehouse.open(job.warehouse) as warehouse,
        open_configured_sampler(job.config, job.reference, job.train.behaviour, warehouse, trained=True) as sampler,
    ):
        prompts = PromptSchedule.read(warehouse, job)
        sampler.expect(prompt.problem for prompt in prompts.prompts)
        rates = success_rates(frozen_values(warehouse, job), job.train.beta)
        RolloutWorker(job, index, warehouse, prompts, sampler, sampler.judge, report, stop, rates=rates).run()


def main(argv: list[str]) -> int:
    """Run the worker that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tasks.train.rollout_worker.worker", description="One rollout worker."
    )
    parser.add_argument("job", type=Path)
    parser.add_argument("--index", type=int, required=True)
    arguments = parser.parse_args(argv)
    return run_process(
        lambda report: work(TrainJob.read(arguments.job), arguments.index, report),
        refusals=(TrainerError, SandboxError, EngineError, ConfigError),
        status=CANNOT_GO_ON,
        worker=arguments.index,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
