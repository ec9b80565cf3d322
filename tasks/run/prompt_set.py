"""The problems and prompts of a run, as the stage `prepare` left them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks.engines.randomness import derived_seed
from tasks.problems.problem import Problem, Split, problems_from_rows
from tasks.run.manifests import PrepareManifest
from tasks.run.stage import Context
from tasks.sampling.assignment import Assignment
from warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class PromptedProblem:
    """A problem as the policy sees it."""

    problem: Problem
    prompt_id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of a run by problem id, and what identifies the reference policy."""

    prompts: dict[str, PromptedProblem]
    policy_id: str
    """Of the reference policy pi_0."""
    reference: Path
    """Checkpoint folder of pi_0."""
    template_id: str
    problems_batch: str
    """Warehouse batch that the problems were written in."""
    prompts_batch: str
    """Warehouse batch that the prompts were written in."""
    split: Split

    @property
    def problems(self) -> list[Problem]:
        """The problems of these prompts."""
        return [prompt.problem for prompt in self.prompts.values()]

    @property
    def suites(self) -> list[str]:
        """Identities of the suites that judge these problems."""
        return sorted({prompt.problem.suite_hash for prompt in self.prompts.values()})

    @property
    def prompt_ids(self) -> list[str]:
        """Identities of the prompts."""
        return sorted(prompt.prompt_id for prompt in self.prompts.values())

    def assignment(self, problem_id: str, n: int, *seed: object) -> Assignment:
        """`n` responses to one problem; `seed` names what they are for and where they start."""
        prompt = self.prompts[problem_id]
        return Assignment(
            prompt.problem, prompt.prompt_id, prompt.token_ids, n, derived_seed(self.policy_id, problem_id, *seed)
        )


def load(context: Context, split: Split) -> PromptSet:
    """The judgeable problems of `split`. Raises StageInputMissing when the run has not been prepared."""
    manifest = context.manifest(PrepareManifest)
    batches = (manifest.problems_batch, manifest.prompts_batch, split)
    if batches not in context.kept:
        context.kept[batches] = read_prompts(context.warehouse, *batches)
    return PromptSet(
        context.kept[batches],
        manifest.policy_id,
        manifest.reference,
        manifest.template_id,
        *batches,
    )


def read_prompts(store: Warehouse, problems_batch: str, prompts_batch: str, split: Split) -> dict[str, PromptedProblem]:
    """The judgeable problems of `split` with their prompts, by problem id in alphabetical order."""
    problems = store.rows(
        "SELECT * FROM problems WHERE batch_id = ? AND split = ? AND unjudgeable_reason IS NULL",
        [problems_batch, split],
    )
    tests = store.rows("SELECT * FROM tests WHERE batch_id = ?", [problems_batch])
    solutions = store.rows("SELECT * FROM solutions WHERE batch_id = ?", [problems_batch])
    prompts = store.rows("SELECT problem_id, prompt_id, token_ids FROM prompts WHERE batch_id = ?", [prompts_batch])
    by_id = {str(row["problem_id"]): row for row in prompts}
    found = sorted(problems_from_rows(problems, tests, solutions), key=lambda problem: problem.problem_id)
    return {
        problem.problem_id: PromptedProblem(
            problem, str(by_id[problem.problem_id]["prompt_id"]), tuple(by_id[problem.problem_id]["token_ids"])
        )
        for problem in found
    }
