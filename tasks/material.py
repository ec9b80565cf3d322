"""What the stages of a run sample from: its problems, its prompts, and a sampler over a checkpoint."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import Judge
from tasks.config import BehaviourConfig
from tasks.engines import checkpoint as checkpoints
from tasks.engines import open_engine
from tasks.engines.randomness import derived_seed
from tasks.evidence import not_counted, reference_counts, reference_sampling
from tasks.problems import problem as problems_module
from tasks.problems.problem import Problem, Split
from tasks.problems.prompt import template_for
from tasks.rollout import Assignment, Judged, KnownVerdicts, Sampler
from tasks.stage import Context, StageError

MOST_UNSCORED = 0.1
"""Share of a batch that may stay without verdict because of the sandbox itself."""

UNSCORED = (
    "SELECT problem_id, count(*) AS n FROM trajectories WHERE starts_with(batch_id, ?) AND reward IS NULL "
    "GROUP BY problem_id"
)
COUNTS = (
    "SELECT problem_id, CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k FROM reference_counts "
    "WHERE reference = ? AND sampling = ? AND template_id = ? AND list_contains(?, suite_hash) "
    "AND NOT starts_with(batch_id, ?) GROUP BY problem_id"
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem as the policy sees it."""

    problem: Problem
    prompt_id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """The prompts of a run by problem id, and what identifies the reference policy."""

    prompts: dict[str, Prompt]
    policy_id: str
    reference: Path
    template_id: str
    problems_batch: str

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


def load(context: Context, split: Split) -> Material:
    """The problems of `split` as the stage `prepare` left them for this run."""
    manifest = context.manifest("prepare")
    store = context.warehouse
    batch = manifest["problems_batch"]
    problems = store.rows(
        "SELECT * FROM problems WHERE batch_id = ? AND split = ? AND unjudgeable_reason IS NULL", [batch, split]
    )
    tests = store.rows("SELECT * FROM tests WHERE batch_id = ?", [batch])
    solutions = store.rows("SELECT * FROM solutions WHERE batch_id = ?", [batch])
    prompts = store.rows(
        "SELECT problem_id, prompt_id, token_ids FROM prompts WHERE batch_id = ?", [manifest["prompts_batch"]]
    )
    by_id = {row["problem_id"]: row for row in prompts}
    return Material(
        {
            problem.problem_id: Prompt(
                problem, by_id[problem.problem_id]["prompt_id"], tuple(by_id[problem.problem_id]["token_ids"])
            )
            for problem in sorted(problems_module.from_rows(problems, tests, solutions), key=lambda p: p.problem_id)
        },
        manifest["policy_id"],
        Path(manifest["reference"]),
        manifest["template_id"],
        batch,
    )


class SandboxFailing(StageError):
    """Too many programs came back without a verdict."""


def sampling(context: Context) -> str:
    """Label of Q0's way of sampling, part of the identity of its counts."""
    return reference_sampling(context.config.engine.max_response_tokens)


def counts(context: Context, material: Material) -> dict[str, tuple[int, int]]:
    """Samples and successes of pi_0 per problem so far, over all runs, without what this run's own workers drew.

    (0, 0) where there are none.
    """
    found: dict[str, tuple[int, int]] = dict.fromkeys(material.prompts, (0, 0))
    left_out = not_counted(context.config.q0, context.run_id)
    parameters = [material.policy_id, sampling(context), material.template_id, material.suites, left_out]
    for row in context.warehouse.rows(COUNTS, parameters):
        if row["problem_id"] in found:
            found[row["problem_id"]] = (int(row["n"]), int(row["k"]))
    return found


def evidence(context: Context, material: Material, judged: Iterable[Judged]) -> list[dict[str, Any]]:
    """Rows of `reference_counts` for those of the samples that were drawn from pi_0 in Q0's way."""
    return reference_counts(
        judged,
        reference=material.policy_id,
        template_id=material.template_id,
        max_response_tokens=context.config.engine.max_response_tokens,
    )


@contextmanager
def open_sampler(context: Context, folder: Path, behaviour: BehaviourConfig) -> Generator[Sampler]:
    """A sampler over the weights in `folder`, judging in the run's sandbox, knowing the warehouse's verdicts."""
    config = context.config
    tokenizer: Any = checkpoints.load_tokenizer(folder)
    with (
        closing(open_engine(config.engine, folder, dtype=config.reference.dtype)) as engine,
        Judge(**config.sandbox.judge_arguments()) as judge,
    ):
        yield Sampler(
            engine,
            tokenizer,
            judge,
            behaviour=behaviour,
            max_response_tokens=config.engine.max_response_tokens,
            sandbox_config=config.sandbox,
            known=KnownVerdicts(context.warehouse),
            template=template_for(config.reference, tokenizer),
        )


def scored(judged: Iterable[Judged]) -> list[Judged]:
    """`judged` as a list, unless the sandbox failed on too many programs to go on.

    Raises SandboxFailing; the caller must not have stored anything of the batch then.
    """
    found = list(judged)
    lost = [item.row for item in found if item.row["reward"] is None]
    if len(lost) > MOST_UNSCORED * len(found):
        raise SandboxFailing(
            f"the sandbox could not judge {len(lost)} of {len(found)} programs, first of problem "
            f"{lost[0]['problem_id']!r}; nothing of this batch was stored: look at `spo doctor`, then run again"
        )
    return found


def shards(problem_ids: Sequence[str], size: int) -> list[list[str]]:
    """`problem_ids` in order, `size` at a time."""
    return [list(problem_ids[start : start + size]) for start in range(0, len(problem_ids), size)]


def unspoilt(context: Context, batch_id: str) -> str:
    """The batch id, or one with a number behind it while batches of that name are quarantined: what was put aside is
    drawn again, and could not be appended under its old name."""
    name, number = batch_id, 0
    while context.warehouse.value("SELECT count(*) FROM quarantine WHERE bad_batch_id = ?", [name]):
        number += 1
        name = f"{batch_id}/again-{number}"
    return name
