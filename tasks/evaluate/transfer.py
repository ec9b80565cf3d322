"""Zero-shot transfer: problems of other sets, on which the reference policy and the trained one are compared.

They are read, judged and sampled like the run's own evaluation problems, and training never sees them. Kept weights
between the two policies are not sampled: such sets are large.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from tasks.checkpoints import checkpoint
from tasks.config import RunConfig
from tasks.engines.positions import longest_prompt
from tasks.prepare import reference_solutions
from tasks.prepare.stage import limited, prompt_id
from tasks.problems import problem as problems_module
from tasks.problems.problem import Problem
from tasks.problems.prompt import template_for
from tasks.problems.sources import evaluation_problems
from tasks.run.manifests import PrepareManifest
from tasks.run.problem_lists import fingerprint, problems_batch
from tasks.run.prompt_set import PromptedProblem, PromptSet
from tasks.run.stage import Context


def problems(config: RunConfig) -> list[Problem]:
    """The judgeable problems of `evaluate.transfer`, judged as the recipe says. Raises InvalidProblem."""
    return [limited(one, config) for one in evaluation_problems(config.evaluate.transfer, config.problems.seed)]


def fit(context: Context, found: Sequence[Problem]) -> tuple[list[Problem], dict[str, str]]:
    """Those of the problems whose tests can be trusted, and why the others' cannot, by problem.

    A problem is left out where all its own solutions fail its tests, or its test code fails for any program, as
    the run's own problems are.
    """
    refused = reference_solutions.refused_of(context, found)
    return [problem for problem in found if problem.problem_id not in refused], refused


def too_long(found: Sequence[Problem], prompts: Container[str]) -> tuple[str, ...]:
    """Those of the problems that have none of the `prompts`, since they are too long."""
    return tuple(sorted(one.problem_id for one in found if one.problem_id not in prompts))


def load(context: Context, found: Sequence[Problem]) -> PromptSet | None:
    """The prompts of these problems, written into the warehouse with them; None without problems.

    A prompt that is too long is left out: longer than `problems.max_prompt_tokens`, or than the engine has room for.
    """
    config, manifest = context.config, context.manifest(PrepareManifest)
    if not found:
        return None
    tokenizer = checkpoint.load_tokenizer(manifest.reference)
    template = template_for(config.reference, tokenizer)
    encoded = {one.problem_id: template.encode(tokenizer, one) for one in found}
    most, _ = longest_prompt(config, manifest.reference)
    kept = [one for one in found if len(encoded[one.problem_id]) <= most]
    batch = problems_batch(kept)
    context.warehouse.append(batch, problems_module.rows(kept), run_id=context.run_id)
    rows: list[dict[str, Any]] = [
        {
            "prompt_id": prompt_id(encoded[one.problem_id]),
            "problem_id": one.problem_id,
            "template_id": template.template_id,
            "token_ids": encoded[one.problem_id],
            "text": template.render(one),
        }
        for one in kept
    ]
    shown = prompts_batch(kept, template.template_id, manifest.reference)
    context.warehouse.append(shown, {"prompts": rows}, run_id=context.run_id)
    return PromptSet(
        {
            one.problem_id: PromptedProblem(one, str(row["prompt_id"]), tuple(row["token_ids"]))
            for one, row in zip(kept, rows, strict=True)
        },
        manifest.policy_id,
        manifest.reference,
        template.template_id,
        batch,
        shown,
        "evaluation",
    )


def prompts_batch(kept: Sequence[Problem], template_id: str, reference: Path) -> str:
    """Batch of the prompts of these problems, in the tokens of the checkpoint `reference`."""
    return f"prompts/{fingerprint(kept)}/{template_id}/{checkpoint.tokenizer_hash(reference)}"
