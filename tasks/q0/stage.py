"""Stage `q0`: how often the reference policy solves each training prompt (section 3.1.3).

What is stored are counts `(n, k)`, which add up over runs and stages; the soft value y_0 is computed from them where
it is used. Which prompt gets how many samples is decided in rounds by `tasks.q0.allocation`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from tasks.estimators import Counts, soft_value_interval
from tasks.q0 import allocation
from tasks.q0.allocation import Allocation
from tasks.run import prompt_set, runs
from tasks.run.errors import StageError
from tasks.run.identity import digest
from tasks.run.judged_again import judged_again
from tasks.run.manifests import PrepareManifest, Q0Manifest
from tasks.run.prompt_set import PromptSet
from tasks.run.put_aside import counted_and_put_aside, counts_put_aside
from tasks.run.sampling import (
    UNSCORED,
    counts,
    counts_filter,
    in_shards,
    open_sampler,
    retry_batch_id,
    rows_of_counts,
    sampling,
    scored,
)
from tasks.run.stage import Amount, Context, Outlook, Stage, Work
from tasks.sampling.reference_counts import REFERENCE_BEHAVIOUR, counted, drawn_first
from tasks.sampling.sampler import Judged, Sampler, tables


def inputs(context: Context) -> dict[str, Any]:
    """The prompts, the reference policy, and how the problems are judged."""
    manifest = context.manifest(PrepareManifest)
    beta = {"beta": context.config.train.beta} if context.config.q0.adaptive else {}
    algorithm = context.config.train.algorithm
    # `_refuse_if_unusable` lets these pass, so SPO must not take them for done
    fractional = context.config.train.reward == "fractional"
    unrefused = algorithm != "spo" and context.config.q0.zero_successes == "drop"
    return manifest.model_dump(include={"problems_batch", "prompts_batch", "policy_id", "template_id"}) | {
        "sampling": sampling(context),
        **beta,
        **({"algorithm": algorithm} if unrefused else {}),
        **({"rollouts": "not counted"} if fractional and context.config.q0.count_rollouts else {}),  # they once were
        **judged_again(context, "train"),
        **counts_put_aside(
            context, reference=manifest.policy_id, sampling=sampling(context), prompts=manifest.prompts_batch
        ),
    }


def body(context: Context) -> Q0Manifest:
    """Draw what `tasks.q0.allocation` plans, round by round, until it plans nothing more."""
    prompts = prompt_set.load(context, "train")
    before = _counts(context, prompts)
    sampled = 0
    if work := _plan(context, before):
        with context.executor(worker, context) as draw:
            asked: Allocation = {}
            while work:
                sampled += draw(work, sampled)
                asked = {name: asked.get(name, 0) + work.get(name, 0) for name in before}
                # a sample that stays without verdict counts as drawn here; a later run makes up for it
                found = _counts(context, prompts).items()
                work = _plan(context, {name: (max(n, before[name][0] + asked[name]), k) for name, (n, k) in found})
    manifest = _manifest(context, prompts, before, sampled)
    _refuse_if_unusable(context, manifest, len(before))
    return manifest


class NoUsablePrompt(StageError):
    """The reference policy solves no prompt, and such prompts are not trained on: nothing later could work."""


def _refuse_if_unusable(context: Context, manifest: Q0Manifest, prompts: int) -> None:
    config = context.config
    if (
        config.train.algorithm == "spo"
        and config.train.reward == "binary"
        and config.q0.zero_successes == "drop"
        and len(manifest.without_success) == prompts
    ):
        raise NoUsablePrompt(
            f"none of the {prompts} training prompts was solved in {config.q0.samples} samples each, so there is "
            f"nothing to train on (q0.zero_successes is 'drop'); take easier problems or a better reference policy, "
            f"draw more (q0.samples), or set q0.zero_successes to 'keep' or 'corpus'. The samples are kept."
        )


@contextmanager
def worker(context: Context) -> Generator[Work]:
    """What draws samples: an engine and a sandbox, here or on another machine."""
    prompts = prompt_set.load(context, "train")
    with open_sampler(context, prompts.reference, REFERENCE_BEHAVIOUR) as sampler:
        sampler.expect(prompts.problems)
        yield lambda work, done: _draw(context, prompts, sampler, work, done)


def _counts(context: Context, prompts: PromptSet) -> dict[str, Counts]:
    """All counts that there are: Q0 takes what others drew even after the snapshot that the run is pinned to."""
    return counts(replace(context, pin=None), prompts)


def _plan(context: Context, known: Mapping[str, Counts]) -> Allocation:
    return allocation.plan(known, context.config.q0, context.config.train.beta)


def _draw(context: Context, prompts: PromptSet, sampler: Sampler, work: Mapping[str, int], done_before: int) -> int:
    """Draw one round, shard by shard; a shard is one batch. Returns the number of samples."""
    drawn = _drawn(context, prompts)
    total, done = done_before + sum(work.values()), 0
    shards = in_shards(sorted(work), context.config.q0.problems_per_shard)
    asked = ([prompts.assignment(p, work[p], "q0", sampling(context), drawn[p]) for p in shard] for shard in shards)
    stored = 0

    def progress(sampled: int) -> None:
        context.progress(done_before + sampled, total, "samples", f"shard {stored + 1} of {len(shards)}")

    found = sampler.roll(asked, source="reference", step=lambda: 0, progress=progress)
    for shard, judged in zip(shards, found, strict=True):
        judged = scored(judged)
        done += len(judged)
        _append(context, prompts, [(p, drawn[p], work[p]) for p in shard], judged)
        stored += 1
    return done


def _drawn(context: Context, prompts: PromptSet) -> dict[str, int]:
    """Samples drawn so far per problem, also those without a verdict, those that this run does not count and those in
    quarantine: where the next ones start."""
    everybody = counts_filter(replace(context, pin=None), prompts).model_copy(update={"left_out": None})
    drawn = counted(context.warehouse, everybody)
    prefix = _prefix(context, prompts.policy_id)
    unscored = {row["problem_id"]: int(row["n"]) for row in context.warehouse.rows(UNSCORED, [prefix])}
    aside = counted_and_put_aside(context, prefix, reference=prompts.policy_id, sampling=sampling(context))
    return {name: drawn.get(name, (0, 0))[0] + unscored.get(name, 0) + aside[name] for name in prompts.prompts}


def _prefix(context: Context, policy_id: str) -> str:
    return f"q0/{policy_id}/{sampling(context)}/"


def _append(context: Context, prompts: PromptSet, work: list[tuple[str, int, int]], judged: list[Judged]) -> None:
    """One batch, named by what was drawn: per problem the prompt, the suite, the start and the number."""
    shown = [prompts.prompts[p] for p, _, _ in work]
    suites, prompt_ids = [one.problem.suite_hash for one in shown], [one.prompt_id for one in shown]
    unit = digest(problems_start_samples=work, suites=suites, prompts=prompt_ids, template=prompts.template_id)
    batch = retry_batch_id(context, _prefix(context, prompts.policy_id) + unit)
    first = drawn_first(context.warehouse, batch, judged, reference=prompts.policy_id)
    rows = {"reference_counts": rows_of_counts(context, prompts, first), **tables(judged)}
    context.warehouse.append(batch, rows, run_id=context.run_id)


def _manifest(context: Context, prompts: PromptSet, before: dict[str, Counts], sampled: int) -> Q0Manifest:
    after, beta = _counts(context, prompts), context.config.train.beta
    known = sum(n for n, _ in before.values())
    unsolved = sorted(problem_id for problem_id, (_, k) in after.items() if k == 0)
    share = sum(k / n for n, k in after.values() if n) / max(1, len(after))
    ends = [soft_value_interval(n, k, beta) for n, k in after.values()]
    if unsolved:
        _flag(context, unsolved, after)
    return Q0Manifest(
        rows=sampled,
        sampling=sampling(context),
        snapshot=context.warehouse.snapshot(),
        without_success=tuple(unsolved),
        mean_share=share,
        median_width_nats=median(high - low for low, high in ends),
        reused=f"{known} samples of earlier runs" if known else "",
        summary=f"{sampled} new samples, {known} known; pi_0 solves {100 * share:.1f}% at T=1, "
        f"{len(unsolved)} of {len(after)} prompts never",
    )


def amount(outlook: Outlook) -> Amount:
    """The samples that the ledger lacks."""
    config, context = outlook.config, outlook.context
    if context is None:
        more = max(0, config.q0.zero_top_up - config.q0.samples)
        number = config.problems.train
        return Amount(number * config.q0.samples, "samples", "all of them" + _topped_up(number * more))
    known = _counts(context, prompt_set.load(context, "train"))
    missing = allocation.missing(known, config.q0, config.train.beta)
    more = sum(max(0, config.q0.zero_top_up - max(n, config.q0.samples)) for n, k in known.values() if k == 0)
    return Amount(missing, "samples", f"{sum(n for n, _ in known.values())} known" + _topped_up(more))


def _topped_up(most: int) -> str:
    """What the plan says of the samples that prompts without a success get besides."""
    return f", and up to {most} for prompts that none of theirs solves" if most else ""


def _flag(context: Context, unsolved: list[str], after: dict[str, Counts]) -> None:
    config = context.config.q0
    fates = {
        "keep": f"kept with a prior of {config.prior:g} successes",
        "corpus": "kept with what pi_0 thinks of the corpus's programs",
        "drop": "not trained on",
    }
    fractional = context.config.train.reward == "fractional"
    fate = "trained on by the tests that they pass" if fractional else fates[config.zero_successes]
    listed = ", ".join(f"{name} (n = {after[name][0]})" for name in unsolved[:20])
    message = f"{len(unsolved)} prompts without a success are {fate}: {listed}{', ...' if len(unsolved) > 20 else ''}"
    runs.note(context.warehouse, context.run_id, stage="q0", kind="without_success", message=message)


STAGE = Stage(
    manifest=Q0Manifest,
    version=2,
    sections=("q0", "sandbox", "reference.dtype"),
    inputs=inputs,
    body=body,
    amount=amount,
)
