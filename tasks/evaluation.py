"""Stage `evaluate`: pass@k of the reference policy, of the weights kept along training, and of the trained policy (5).

Samples are kept in `eval_samples` per policy; a policy that has enough of them is not sampled again, by any run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import material as materials
from tasks.estimators import mean_pass_at_k, paired_difference
from tasks.material import Material
from tasks.rollout import Sampler, eval_sample_row, sampling_label
from tasks.stage import Context, Stage

PROBLEMS_PER_BATCH = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy to be evaluated."""

    policy_id: str
    folder: Path
    step: int


def inputs(context: Context) -> dict[str, Any]:
    """The evaluated policies and how they are sampled."""
    manifest = context.manifest("prepare")
    return {
        "policies": [[c.policy_id, c.step] for c in candidates(context)],
        "prompts_batch": manifest["prompts_batch"],
        "max_response_tokens": context.config.engine.max_response_tokens,
    }


def candidates(context: Context) -> list[Candidate]:
    """The reference policy, then this run's kept weights by step."""
    prepared = context.manifest("prepare")
    trained = context.manifest("train")
    return [
        Candidate(prepared["policy_id"], Path(prepared["reference"]), 0),
        *(Candidate(kept["policy_id"], Path(kept["path"]), kept["step"]) for kept in trained["policies"]),
    ]


def body(context: Context) -> dict[str, Any]:
    """Sample what is missing, then compare the last policy with the first."""
    config = context.config
    material = materials.load(context, "evaluation")
    label = sampling_label(config.evaluate.behaviour, config.engine.max_response_tokens)
    policies = candidates(context)
    work = {c.policy_id: _missing(context, material, c.policy_id, label) for c in policies}
    total = sum(sum(missing.values()) for missing in work.values())
    done = 0
    if total:
        first = next(c for c in policies if work[c.policy_id])
        with materials.open_sampler(context, first.folder, config.evaluate.behaviour) as sampler:
            for candidate in policies:
                if work[candidate.policy_id]:
                    if sampler.engine.policy_id != candidate.policy_id:
                        sampler.engine.refresh(candidate.folder)
                    done += _sample(context, material, candidate, work[candidate.policy_id], sampler, (done, total))
    return _manifest(context, material, policies, label, total)


def results(context: Context, material: Material, policy_id: str, label: str) -> dict[str, tuple[int, int]]:
    """Scored samples and successes per problem; unscored ones (infrastructure) do not count."""
    rows = context.warehouse.rows(
        "SELECT problem_id, count(reward) AS n, count(*) FILTER (reward = 0) AS k FROM eval_samples "
        "WHERE policy_id = ? AND sampling = ? AND list_contains(?, suite_hash) AND list_contains(?, prompt_id) "
        "GROUP BY problem_id",
        [
            policy_id,
            label,
            material.suites,
            material.prompt_ids,
        ],
    )
    found = {row["problem_id"]: (int(row["n"]), int(row["k"])) for row in rows}
    return {problem_id: found.get(problem_id, (0, 0)) for problem_id in material.prompts}


def _missing(context: Context, material: Material, policy_id: str, label: str) -> dict[str, int]:
    wanted = context.config.evaluate.samples
    have = results(context, material, policy_id, label)
    return {problem_id: wanted - n for problem_id, (n, _) in have.items() if n < wanted}


def _sample(
    context: Context,
    material: Material,
    candidate: Candidate,
    missing: dict[str, int],
    sampler: Sampler,
    progress: tuple[int, int],
) -> int:
    done, total = progress
    behaviour = context.config.evaluate.behaviour
    label = sampling_label(behaviour, context.config.engine.max_response_tokens)
    wanted = context.config.evaluate.samples
    drawn = 0
    for shard in materials.shards(sorted(missing), PROBLEMS_PER_BATCH):
        asked = [
            material.assignment(p, missing[p], "evaluate", candidate.policy_id, label, wanted - missing[p])
            for p in shard
        ]
        start = done + drawn
        judged = materials.scored(
            sampler.run(
                asked,
                source="online",
                step=candidate.step,
                progress=lambda n, _, start=start: context.progress(
                    start + n, total, "samples", f"step {candidate.step}"
                ),
            )
        )
        rows = [
            eval_sample_row(item, asked[item.assignment].problem, label, entropy=entropy)
            for item, entropy in zip(judged, sampler.entropies(asked, judged), strict=True)
        ]
        verdicts = [item.verdict_row for item in judged if item.verdict_row is not None]
        work = [(a.prompt_id, a.problem.suite_hash, wanted, a.n) for a in asked]
        unit = hashlib.sha256(repr(work).encode()).hexdigest()[:24]
        batch = f"eval/{candidate.policy_id}/{label}/{unit}"
        counts = materials.evidence(context, material, judged)
        context.warehouse.append(
            batch, {"eval_samples": rows, "verdicts": verdicts, "reference_counts": counts}, run_id=context.run_id
        )
        drawn += len(judged)
    return drawn


def _manifest(
    context: Context, material: Material, policies: list[Candidate], label: str, sampled: int
) -> dict[str, Any]:
    config = context.config.evaluate
    curve: list[dict[str, Any]] = []
    per_policy: list[dict[str, tuple[int, int]]] = []
    for candidate in policies:
        found = results(context, material, candidate.policy_id, label)
        per_policy.append(found)
        for k in config.ks:
            estimate = mean_pass_at_k([found[p] for p in sorted(found)], k)
            curve.append(
                {"step": candidate.step, "policy_id": candidate.policy_id, "k": k, "value": estimate.value}
                | {"low": estimate.low, "high": estimate.high}
            )
    comparison: dict[str, Any] = {}
    for k in config.ks:
        difference = paired_difference(per_policy[0], per_policy[-1], k)
        values = [point["value"] for point in curve if point["k"] == k]
        comparison[f"pass@{k}"] = {
            "before": values[0],
            "after": values[-1],
            "difference": difference.difference,
            "interval": [difference.low, difference.high],
            "p_value": difference.p_value,
        }
    known = len(policies) * len(material.prompts) * config.samples - sampled
    largest = f"pass@{max(config.ks)}"
    change = comparison[largest]
    return {
        "rows": sampled,
        "sampling": label,
        "curve": curve,
        "comparison": comparison,
        "described": f"{len(material.prompts)} evaluation problems, {config.samples} samples each, {label}",
        "reused": f"{known} samples of earlier evaluations" if known else "",
        "summary": f"{largest} {100 * change['before']:.1f}% -> {100 * change['after']:.1f}%, {sampled} new samples",
    }


STAGE = Stage(name="evaluate", version=1, sections=("evaluate", "sandbox"), inputs=inputs, body=body)
