"""The problems and prompts that rollout workers draw from, and which they draw when."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.engines.randomness import derived_seed
from tasks.problems import problem as problems
from tasks.sampling.sampler import Assignment
from tasks.train.shared.errors import NothingToTrainOn
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import frozen_values
from warehouse import Warehouse

PROBLEMS = "SELECT * FROM problems WHERE batch_id = ? AND split = 'train'"
TESTS = "SELECT * FROM tests WHERE batch_id = ?"
PROMPTS = "SELECT problem_id, prompt_id, token_ids FROM prompts WHERE batch_id = ?"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A training problem as the policy sees it."""

    problem: problems.Problem
    prompt_id: str
    token_ids: tuple[int, ...]


class Prompts:
    """The run's training prompts with a soft value, in a fixed order."""

    def __init__(self, prompts: list[Prompt], seed: int) -> None:
        self.prompts = prompts
        self.seed = seed

    @classmethod
    def read(cls, warehouse: Warehouse, job: TrainJob) -> Prompts:
        """The prompts of the job. Raises NothingToTrainOn when none can be judged."""
        values = frozen_values(warehouse, job)
        batch = (job.problems_batch,)
        found = problems.from_rows(warehouse.rows(PROBLEMS, batch), warehouse.rows(TESTS, batch), [])
        tokens = {str(row["problem_id"]): row for row in warehouse.rows(PROMPTS, (job.prompts_batch,))}
        kept = [
            Prompt(p, str(tokens[p.problem_id]["prompt_id"]), tuple(tokens[p.problem_id]["token_ids"]))
            for p in sorted(found, key=lambda p: p.problem_id)
            if p.problem_id in values and p.problem_id in tokens and p.unjudgeable_reason is None
        ]
        if not kept:
            raise NothingToTrainOn(f"none of {len(values)} problems with a soft value has a prompt and can be judged")
        return cls(kept, job.config.seed)

    def draw(self, worker: int, sequence: int, *, responses: int, per_prompt: int) -> list[Assignment]:
        """The assignments of a worker's batch number `sequence`: a function of the run's seed and these numbers."""
        wanted = [per_prompt] * (responses // per_prompt) + ([responses % per_prompt] if responses % per_prompt else [])
        return [self._assignment(worker, sequence, place, n) for place, n in enumerate(wanted)]

    def _assignment(self, worker: int, sequence: int, place: int, n: int) -> Assignment:
        """`n` responses to a prompt drawn uniformly."""
        seed = derived_seed(self.seed, "rollout", worker, sequence, place)
        prompt = self.prompts[seed % len(self.prompts)]
        return Assignment(prompt.problem, prompt.prompt_id, prompt.token_ids, n, seed)
