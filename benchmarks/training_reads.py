"""What training reads of a warehouse: the batches of a run that has trained, drawn again from where it was.

    python -m benchmarks.training_reads --home FOLDER --run RUN [--steps 160]

CPU seconds a step: in the trainer of drawing its batch and of looking up log pi_0, in a rollout worker of looking up
verdicts for what it is about to sample. Nothing is computed, sampled or written. RUN has trained so many steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from tasks.run.stage import run_folder
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.scoring.example import Example
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.reference_refresh import open_store
from tasks.train.trainer.state import MixState
from warehouse import Warehouse


def trainer_steps(warehouse: Warehouse, job: TrainJob) -> tuple[Callable[[int], object], Callable[[int], object]]:
    """Draws the batch of a step; looks up what is stored of log pi_0 for the batch that was drawn last."""
    mix = BatchMix(Examples(warehouse, job, prompt_values(warehouse, job)), MixState(), after=0)
    anew = job.model_copy(update={"run_id": ""})  # a run that has scored nothing yet looks for none of its own
    store = open_store(warehouse, anew, job.reference, "cpu")
    last: list[Example] = []

    def draw(step: int) -> None:
        last[:] = mix.next(step)

    return draw, lambda _: store.lookup(last, ahead=mix.ahead())


def worker_step(warehouse: Warehouse, job: TrainJob) -> Callable[[int], object]:
    """Makes known what is stored of the programs of the problems that a worker's batch asks for."""
    schedule, limits = PromptSchedule.read(warehouse, job), job.config.sandbox
    memory = limits.memory_limit_mb << 20 if limits.memory_limit_mb else None
    suites = {
        prompt.prompt_id: prompt.problem.suite(cpu_s=limits.cpu_limit_s, memory_bytes=memory).suite_id
        for prompt in schedule.prompts
    }
    known = KnownVerdicts(warehouse, most_mb=limits.known_verdicts_mb)
    known.expect(suites.values())
    train = job.train

    def step(number: int) -> None:
        drawn = schedule.draw(0, number, responses=train.rollout_batch, per_prompt=train.responses_per_prompt)
        known.read(suites[one.prompt_id] for one in drawn)

    return step


def main() -> None:
    """Print CPU seconds a step of each part, over all steps and over the last quarter."""
    parser = argparse.ArgumentParser(description="What training reads of a warehouse.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, default=160)
    given = parser.parse_args()
    job = TrainJob.read(run_folder(given.home, given.run) / "train" / "job.json")
    with Warehouse.open(given.home / "warehouse", read_only=True) as warehouse:
        draw, lookup = trainer_steps(warehouse, job)
        parts = {"batch": draw, "log pi_0": lookup, "verdicts": worker_step(warehouse, job)}
        spent: dict[str, list[float]] = {name: [] for name in parts}
        for step in range(1, given.steps + 1):
            for name, part in parts.items():
                began = time.process_time()
                part(step)
                spent[name].append(time.process_time() - began)
    late = given.steps // 4
    print(f"| part | CPU s a step, {given.steps} steps | the last {late} |\n|---|---|---|")
    for name, seconds in spent.items():
        print(f"| {name} | {sum(seconds) / len(seconds):.3f} | {sum(seconds[-late:]) / late:.3f} |")


if __name__ == "__main__":
    main()
