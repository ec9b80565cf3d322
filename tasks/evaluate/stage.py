"""Stage `evaluate`: pass@k of the reference policy, of the weights kept along training, and of the trained policy (5).

Samples are kept in `eval_samples` per policy; a policy that has enough of them is not sampled again, by any run. With
`evaluate.during_training` most of the work is done already when this stage begins (`tasks/evaluate/evaluator.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox import VERSION
from tasks.config import RunConfig
from tasks.estimators import average_paired_difference
from tasks.evaluate import eval_samples, transfer
from tasks.evaluate.eval_samples import EvaluatedPolicy, Scores, policy_pass_at_k
from tasks.problems.decontamination import overlaps
from tasks.problems.problem import ProblemError
from tasks.problems.prompt import version_of
from tasks.run import prompt_set
from tasks.run.judged_again import judged_again, judged_again_by
from tasks.run.manifests import Change, CurvePoint, EvaluateManifest, PassAtK, PrepareManifest, TrainManifest
from tasks.run.problem_lists import fingerprint, known_of
from tasks.run.prompt_set import PromptSet
from tasks.run.put_aside import put_aside
from tasks.run.sampling import open_sampler
from tasks.run.stage import Amount, Context, Outlook, Stage


def inputs(context: Context) -> dict[str, Any]:
    """The evaluated policies and how they are sampled."""
    manifest = context.manifest(PrepareManifest)
    policies = candidates(context)
    return {
        "policies": [[c.policy_id, c.step] for c in policies],
        "prompts_batch": manifest.prompts_batch,
        "max_response_tokens": context.config.engine.max_response_tokens,
        **_transfer_inputs(context),
        **judged_again(context, "evaluation"),
        **put_aside(context, *(eval_samples.batches_of(c.policy_id) for c in policies)),
    }


def _transfer_inputs(context: Context) -> dict[str, Any]:
    """The sets in `evaluate.transfer`, how they are shown and what was judged again; nothing without such a set."""
    found = transfer.problems(context.config)
    if not found:
        return {}
    own = {"transfer": fingerprint(found), "max_prompt_tokens": context.config.problems.max_prompt_tokens}
    own |= {"transfer_known": known_of(found), "solutions_judged_by": VERSION}
    again = judged_again_by(context, (problem.suite_hash for problem in found))
    again = {f"transfer_{name}": content for name, content in again.items()}
    return own | version_of(context.config.reference) | again


def candidates(context: Context) -> list[EvaluatedPolicy]:
    """The reference policy, then this run's kept weights by step."""
    prepared = context.manifest(PrepareManifest)
    trained = context.manifest(TrainManifest)
    return [
        EvaluatedPolicy(prepared.policy_id, prepared.reference, 0),
        *(EvaluatedPolicy(kept.policy_id, kept.path, kept.step) for kept in trained.policies),
    ]


def body(context: Context) -> EvaluateManifest:
    """Sample what is missing, then compare the last policy with the first."""
    prompts, policies = prompt_set.load(context, "evaluation"), candidates(context)
    fit, unfit = transfer.fit(context, transfer.problems(context.config))
    others = transfer.load(context, fit)
    asked = [(prompts, policy) for policy in policies]
    asked += [(others, policy) for policy in (policies[0], policies[-1])] if others is not None else []
    lacking = _lacking(context, asked)
    if todo := [work for work, lacks in zip(asked, lacking, strict=True) if lacks]:
        _sample(context, todo, sum(lacking))
    manifest = _manifest(context, prompts, policies, sum(lacking[: len(policies)]), sum(lacking))
    transferred = {} if others is None else _transferred(context, others, policies)
    long = transfer.too_long(fit, others.prompts if others is not None else ())
    return manifest.model_copy(update={**transferred, "transfer_unfit": unfit, "transfer_too_long": long})


def _lacking(context: Context, asked: list[tuple[PromptSet, EvaluatedPolicy]]) -> list[int]:
    """Samples that each of the policies lacks on its problems."""
    return [sum(eval_samples.missing(context, found, policy.policy_id).values()) for found, policy in asked]


def _sample(context: Context, todo: list[tuple[PromptSet, EvaluatedPolicy]], total: int) -> None:
    done = 0
    with open_sampler(context, todo[0][1].folder, context.config.evaluate.behaviour, trained=True) as sampler:
        sampler.expect({one.problem_id: one for prompts, _ in todo for one in prompts.problems}.values())
        for prompts, candidate in todo:

            def progress(n: int, start: int = done, step: int = candidate.step) -> None:
                context.progress(start + n, total, "samples", f"step {step}")

            done += eval_samples.sample_missing(context, prompts, candidate, sampler, progress=progress)


def _scores(context: Context, prompts: PromptSet, policy: EvaluatedPolicy) -> Scores:
    """What is known of the policy on these problems. Raises TooFewSamples."""
    found = eval_samples.by_set(prompts, eval_samples.counts(context, prompts, policy.policy_id))
    eval_samples.require_enough(found, prompts.prompts, max(context.config.evaluate.ks))
    return found


def _transferred(context: Context, others: PromptSet, policies: list[EvaluatedPolicy]) -> dict[str, Any]:
    """The last policy against the first on each set of `evaluate.transfer`, whole and without what was trained on."""
    first, last = (_scores(context, others, policy) for policy in (policies[0], policies[-1]))
    trained_on = prompt_set.load(context, "train").problems
    alike = {pair.evaluation_id for pair in overlaps(trained_on, others.problems)}
    number = {name: n for name, own in first.items() if (n := len(alike.intersection(own)))}
    before, after = (_without(alike, {name: scores[name] for name in number}) for scores in (first, last))
    ks = context.config.evaluate.ks
    return {
        "transfer": _compared(first, last, ks),
        "transfer_unseen": _compared(before, after, ks),
        "transfer_alike": number,
    }


def _without(left_out: set[str], scores: Scores) -> Scores:
    """Sets and problems that are not left out; sets of which nothing is left are gone."""
    kept = {name: {p: counts for p, counts in own.items() if p not in left_out} for name, own in scores.items()}
    return {name: own for name, own in kept.items() if own}


def _compared(first: Scores, last: Scores, ks: Sequence[int]) -> dict[str, dict[str, Change]]:
    """Set -> `pass@10` -> how the last policy differs from the first."""
    return {
        name: {f"pass@{k}": _change({name: first[name]}, {name: last[name]}, k) for k in ks} for name in sorted(first)
    }


def _manifest(
    context: Context,
    prompts: PromptSet,
    policies: list[EvaluatedPolicy],
    drawn: int,
    sampled: int,
) -> EvaluateManifest:
    """`drawn` samples of the run's own evaluation problems, `sampled` of all that were compared."""
    config, label = context.config.evaluate, eval_samples.label_of(context)
    if not prompts.prompts:  # `problems.evaluation = 0`
        said = "no evaluation problems"
        return EvaluateManifest(
            rows=sampled,
            sampling=label,
            curve=(),
            sets={},
            comparison={},
            described=said,
            summary=f"{said}, {sampled} new samples",
        )
    scores = [_scores(context, prompts, policy) for policy in policies]
    curve = tuple(
        CurvePoint(step=candidate.step, policy_id=candidate.policy_id, **point.model_dump())
        for candidate, found in zip(policies, scores, strict=True)
        for point in curve_points(found, config.ks)
    )
    comparison = {f"pass@{k}": _change(scores[0], scores[-1], k) for k in config.ks}
    known = len(policies) * len(prompts.prompts) * config.samples - drawn
    largest, samples = f"pass@{max(config.ks)}", eval_samples.samples_text(scores[-1])
    change = comparison[largest]
    sets = f" of {len(scores[0])} sets" if len(scores[0]) > 1 else ""
    return EvaluateManifest(
        rows=sampled,
        sampling=label,
        curve=curve,
        sets={name: curve_points({name: found}, config.ks) for name, found in scores[-1].items()},
        comparison=comparison,
        described=f"{len(prompts.prompts)} evaluation problems{sets}, {samples}, {label}",
        reused=f"{known} samples drawn beside training or in earlier runs" if known else "",
        summary=f"{largest} {100 * change.before:.1f}% -> {100 * change.after:.1f}%, {sampled} new samples",
    )


def amount(outlook: Outlook) -> Amount:
    """The samples that the policies lack, of those that are left to this stage: beside training all but the last are
    evaluated."""
    config, context = outlook.config, outlook.context
    number, at_least = config.problems.evaluation_problems()
    try:
        others = 2 * len(transfer.problems(config)) * config.evaluate.samples
    except ProblemError:  # a set that cannot be read, which is told before the run begins
        others, at_least = 0, True
    if context is None:
        policies = _left_to_the_stage(config)
        total = policies * number * config.evaluate.samples
        return Amount(total + others, "samples", _told(config, policies) + (", at least" if at_least else ""))
    prompts, every = prompt_set.load(context, "evaluation"), config.evaluate.samples
    if "train" in context.manifests:
        asked = candidates(context)
        lacking = sum(_lacking(context, [(prompts, policy) for policy in asked]))
        return Amount(lacking + others, "samples", f"{len(asked) * len(prompts.prompts) * every - lacking} known")
    policies = _left_to_the_stage(config)
    if config.evaluate.during_training:
        return Amount(policies * len(prompts.prompts) * every + others, "samples", _told(config, policies))
    known = eval_samples.counts(context, prompts, prompts.policy_id)
    there = sum(min(n, every) for n, _ in known.values())
    said = f"{_told(config, policies)}, {there} samples of the reference known"
    return Amount(policies * len(prompts.prompts) * every + others - there, "samples", said)


def _left_to_the_stage(config: RunConfig) -> int:
    """The policies that a new run leaves to this stage."""
    steps, interval = config.train.steps, config.train.snapshot_interval
    return 1 if config.evaluate.during_training else 1 + steps // interval + (steps % interval > 0)


def _told(config: RunConfig, policies: int) -> str:
    return "the last policy; the others beside training" if config.evaluate.during_training else f"{policies} policies"


def curve_points(scores: Scores, ks: Sequence[int]) -> tuple[PassAtK, ...]:
    """pass@k with its interval for each k, averaged over the problem sets."""
    estimates = [(k, policy_pass_at_k(scores, k)) for k in ks]
    return tuple(PassAtK(k=k, value=e.value, low=e.low, high=e.high) for k, e in estimates)


def _change(before: Scores, after: Scores, k: int) -> Change:
    difference = average_paired_difference(before, after, k)
    first, last = (policy_pass_at_k(scores, k).value for scores in (before, after))
    return Change(
        before=first,
        after=last,
        difference=difference.difference,
        interval=(difference.low, difference.high),
        p_value=difference.p_value,
        better=difference.better,
        worse=difference.worse,
        equal=difference.equal,
    )


STAGE = Stage(
    manifest=EvaluateManifest,
    version=3,
    sections=("evaluate", "sandbox", "reference.dtype"),
    inputs=inputs,
    body=body,
    amount=amount,
)
