"""The problems and prompts that rollout workers draw from, and which they draw when."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.config import CurriculumConfig, PromptRule
from tasks.engines.randomness import derived_seed
from tasks.run.prompt_set import PromptedProblem, read_prompts
from tasks.sampling.assignment import Assignment
from tasks.train.rollout_worker.curriculum import Belief, choose
from tasks.train.shared.errors import NothingToTrainOn
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import frozen_values
from warehouse import Warehouse


class PromptSchedule:
    """The run's training prompts with a soft value, in a fixed order, and how they are drawn."""

    def __init__(
        self,
        prompts: list[PromptedProblem],
        seed: int,
        rule: PromptRule = "uniform",
        curriculum: CurriculumConfig | None = None,
    ) -> None:
        self.prompts = prompts
        self.seed = seed
        self.rule: PromptRule = rule
        self.curriculum = curriculum or CurriculumConfig()
        self._by_id = {prompt.problem.problem_id: prompt for prompt in prompts}

    @classmethod
    def read(cls, warehouse: Warehouse, job: TrainJob) -> PromptSchedule:
        """The prompts of the job. Raises NothingToTrainOn when none can be judged."""
        values = frozen_values(warehouse, job)
        found = read_prompts(warehouse, job.problems_batch, job.prompts_batch, "train")
        kept = [prompt for problem_id, prompt in found.items() if problem_id in values]
        if not kept:
            raise NothingToTrainOn(f"none of {len(values)} problems with a soft value has a prompt and can be judged")
        return cls(kept, job.config.seed, job.train.prompts, job.train.curriculum)

    def draw(
        self,
        worker: int,
        sequence: int,
        *,
        responses: int,
        per_prompt: int,
        beliefs: Mapping[str, Belief] | None = None,
    ) -> list[Assignment]:
        """The assignments of a worker's batch number `sequence`: a function of the run's seed, these numbers and the
        beliefs; without them prompts are drawn uniformly.
        """
        wanted = [per_prompt] * (responses // per_prompt) + ([responses % per_prompt] if responses % per_prompt else [])
        return [self._assignment(worker, sequence, place, n, beliefs) for place, n in enumerate(wanted)]

    def _assignment(
        self, worker: int, sequence: int, place: int, n: int, beliefs: Mapping[str, Belief] | None
    ) -> Assignment:
        """`n` responses to one prompt."""
        seed = derived_seed(self.seed, "rollout", worker, sequence, place)
        prompt = self.prompts[seed % len(self.prompts)]
        if beliefs is not None:
            prompt = self._by_id[choose(self.rule, beliefs, self.curriculum, seed)]
        return Assignment(prompt.problem, prompt.prompt_id, prompt.token_ids, n, seed)
