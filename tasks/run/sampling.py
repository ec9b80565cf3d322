"""How the stages of a run sample: a sampler over a checkpoint, batches of work, and pi_0's counts so far."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox import Verdict
from tasks.config import BehaviourConfig
from tasks.run.errors import OtherWeights, StageError
from tasks.run.manifests import PrepareManifest, Q0Manifest
from tasks.run.prompt_set import PromptSet
from tasks.run.provenance import reads_until, training_began_with
from tasks.run.stage import Context, finished
from tasks.sampling.opening import open_configured_sampler
from tasks.sampling.reference_counts import CountsFilter, counted, not_counted, reference_counts, reference_sampling
from tasks.sampling.sampler import Judged, Sampler
from warehouse.queries import query

MOST_UNSCORED = 0.1
"""Share of a batch that may stay without verdict because of the sandbox itself."""

UNSCORED = query(__name__, "unscored")


class SandboxFailing(StageError):
    """Too many programs came back without a verdict."""


def sampling(context: Context) -> str:
    """Label of Q0's way of sampling, part of the identity of its counts."""
    return reference_sampling(context.config.engine.max_response_tokens)


def counts_filter(context: Context, prompts: PromptSet) -> CountsFilter:
    """Which counts of pi_0 this run uses."""
    return CountsFilter(
        reference=prompts.policy_id,
        sampling=sampling(context),
        template_id=prompts.template_id,
        problems_batch=prompts.problems_batch,
        prompts_batch=prompts.prompts_batch,
        split=prompts.split,
        left_out=not_counted(context.config, context.run_id),
        until=_until(context),
    )


def _until(context: Context) -> int | None:
    """The pin, or the end of Q0 where that came later: the samples that Q0 asks for count whenever they were drawn."""
    drawn = finished(context.warehouse, Q0Manifest, run_id=context.run_id)
    return None if context.pin is None else max(context.pin, drawn.snapshot if drawn else 0)


def counts(context: Context, prompts: PromptSet) -> dict[str, tuple[int, int]]:
    """Samples and successes of pi_0 per problem so far, over all runs, without what this run's own workers drew.

    (0, 0) where there are none.
    """
    found = counted(context.warehouse, counts_filter(context, prompts))
    return {problem_id: found.get(problem_id, (0, 0)) for problem_id in prompts.prompts}


def counts_for_training(context: Context, prompts: PromptSet) -> dict[str, tuple[int, int]]:
    """The same, as the run's training began with them: what was drawn since changes nothing about it."""
    if training_began_with(context.warehouse, context.run_id):
        context = replace(context, pin=reads_until(context.warehouse, context.run_id, "train"))
    return counts(context, prompts)


def rows_of_counts(context: Context, prompts: PromptSet, judged: Iterable[Judged]) -> list[dict[str, Any]]:
    """Rows of `reference_counts` for those of the samples that were drawn from pi_0 in Q0's way."""
    return reference_counts(
        judged,
        reference=prompts.policy_id,
        template_id=prompts.template_id,
        max_response_tokens=context.config.engine.max_response_tokens,
    )


@contextmanager
def open_sampler(
    context: Context, folder: Path, behaviour: BehaviourConfig, *, trained: bool = False, beside: bool = False
) -> Generator[Sampler]:
    """A sampler over the weights in `folder`, judging in the run's sandbox, knowing the warehouse's verdicts.

    `trained`: it will load what the run's trainer publishes. `beside`: training goes on meanwhile, so its engines are
    here, whatever `shards` says. Raises OtherWeights where `folder` is that of pi_0 and its weights are others now.
    """
    config, shards = context.config, None if beside else context.config.shards
    with open_configured_sampler(
        config, folder, behaviour, context.warehouse, trained=trained, shards=shards
    ) as sampler:
        _require_prepared(context, folder, sampler.engine.policy_id)
        yield sampler


def _require_prepared(context: Context, folder: Path, policy_id: str) -> None:
    prepared = context.manifests.get("prepare") or finished(context.warehouse, PrepareManifest, run_id=context.run_id)
    if isinstance(prepared, PrepareManifest) and prepared.reference == folder and prepared.policy_id != policy_id:
        raise OtherWeights(
            f"{folder} holds policy {policy_id}, but run {context.run_id!r} was prepared with policy "
            f"{prepared.policy_id}, and nothing was sampled: put that model back, or take the new one with "
            f"`prefect deployment run spo/prepare -p run={context.run_id} -p force=true` and go on"
        )


def scored(judged: Iterable[Judged]) -> list[Judged]:
    """`judged` as a list, unless the sandbox failed on too many programs to go on.

    Raises SandboxFailing; the caller must not have stored anything of the batch then.
    """
    found = list(judged)
    lost = [(item.row["problem_id"], item.detail) for item in found if item.row["reward"] is None]
    _refuse_if_failing(lost, len(found))
    return found


def without_unjudged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of trajectories but those that the sandbox failed on. Raises SandboxFailing where these are too many.

    One alone is never too many: units of one or two programs are common.
    """
    lost = [(row["problem_id"], "") for row in rows if row["verdict"] == Verdict.infra]
    if len(lost) > 1:
        _refuse_if_failing(lost, len(rows))
    return [row for row in rows if row["verdict"] != Verdict.infra]


def _refuse_if_failing(lost: Sequence[tuple[str, str]], of: int) -> None:
    if len(lost) > MOST_UNSCORED * of:
        name, reason = lost[0]
        raise SandboxFailing(
            f"the sandbox could not judge {len(lost)} of {of} programs, first of problem {name!r} "
            f"({reason or 'no reason'}); nothing of this batch was stored: look at `spo doctor`, then run again"
        )


def in_shards(problem_ids: Sequence[str], size: int) -> list[list[str]]:
    """`problem_ids` in order, `size` at a time."""
    return [list(problem_ids[start : start + size]) for start in range(0, len(problem_ids), size)]


def retry_batch_id(context: Context, batch_id: str) -> str:
    """The batch id, or one with a number behind it while batches of that name are in quarantine.

    What was put aside is drawn again, and could not be appended under its old name.
    """
    name, number = batch_id, 0
    while context.warehouse.value("SELECT count(*) FROM quarantine WHERE bad_batch_id = ?", [name]):
        number += 1
        name = f"{batch_id}/again-{number}"
    return name
