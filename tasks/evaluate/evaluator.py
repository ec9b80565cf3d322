"""`python -m tasks.evaluate.evaluator JOB.json`: evaluates a run's kept weights while the run still trains.

The train stage starts it beside the rollout workers when `evaluate.during_training` is set. It follows the weights that
the trainer publishes and does for each kept policy what the stage `evaluate` would do, with a low priority and no more
processes than `sandbox.workers`; training never waits for it. When training ends it is stopped, and the stage samples
what is missing.

Exit status: 0 stopped, 2 cannot go on (its last line says why), else a crash.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox import SandboxError
from tasks.checkpoints.errors import EngineError
from tasks.config import ConfigError
from tasks.evaluate import eval_samples
from tasks.evaluate.eval_samples import EvaluatedPolicy
from tasks.run import prompt_set, runs
from tasks.run.errors import StageError
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context
from tasks.train.shared import published_weights
from tasks.train.shared.errors import CANNOT_GO_ON, TrainerError
from tasks.train.shared.job import TrainJob
from tasks.train.shared.process import ReportLine, run_process
from tasks.train.shared.stop import Stop
from warehouse import Warehouse

POLL_S = 1.0


def follow(context: Context, job: TrainJob, report: ReportLine, stop: Callable[[], bool]) -> None:
    """Evaluate the reference policy, then each kept policy once it is published, until told to stop."""
    prompts = prompt_set.load(context, "evaluation")
    done: set[str] = set()
    behaviour = context.config.evaluate.behaviour
    with open_sampler(context, prompts.reference, behaviour, trained=True, beside=True) as sampler:
        sampler.expect(prompts.problems)
        while not stop():
            waiting = [c for c in published(job, prompts) if c.policy_id not in done]
            if not waiting:
                time.sleep(POLL_S)
                continue
            eval_samples.sample_missing(context, prompts, waiting[0], sampler, stop=stop)
            if not stop():
                done.add(waiting[0].policy_id)
                report(announce(context, prompts, waiting[0]))


def published(job: TrainJob, prompts: PromptSet) -> list[EvaluatedPolicy]:
    """The reference policy and the kept weights that exist by now, by step."""
    kept = published_weights.kept(job.kept, every=job.train.snapshot_interval, last=job.train.steps)
    return [
        EvaluatedPolicy(prompts.policy_id, prompts.reference, 0),
        *(EvaluatedPolicy(found.policy_id, found.folder, found.step) for found in kept),
    ]


def announce(context: Context, prompts: PromptSet, candidate: EvaluatedPolicy) -> dict[str, Any]:
    """Write the policy's pass@k into the run's history; the same as a line for whoever reads this process.

    Where the sandbox failed on samples, the ks that the others suffice for.
    """
    counts = eval_samples.counts(context, prompts, candidate.policy_id)
    sets, fewest = eval_samples.by_set(prompts, counts), min(n for n, _ in counts.values())
    ks = [k for k in context.config.evaluate.ks if k <= fewest]
    shares = [f"pass@{k} {eval_samples.policy_pass_at_k(sets, k).value:.1%}" for k in ks]
    message = f"step {candidate.step}: " + (", ".join(shares) or f"only {fewest} samples of a problem could be judged")
    runs.note(context.warehouse, context.run_id, stage="evaluate", kind="evaluated", message=message)
    return {"evaluated": candidate.step, "message": message}


def main(argv: list[str]) -> int:
    """Follow the job of the file `argv[0]`."""
    job = TrainJob.read(Path(argv[0]))
    stop = Stop()
    stop.listen(stdin=job.end_on_stdin_eof)

    def body(report: ReportLine) -> None:
        with Warehouse.open(job.warehouse) as warehouse:
            follow(Context(job.run_id, job.config, warehouse, job.run_dir), job, report, stop)

    refusals = (StageError, SandboxError, EngineError, ConfigError, TrainerError)
    return run_process(body, refusals=refusals, status=CANNOT_GO_ON)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
