"""Stage `q0`: how often the reference policy solves each training prompt (section 3.1.3).

What is stored are counts `(n, k)`, which add up over runs; the soft value y_0 is computed from them where it is used.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tasks import material as materials
from tasks.material import REFERENCE_BEHAVIOUR, UNSCORED, Material, counts, sampling
from tasks.rollout import Judged, tables
from tasks.stage import Context, Stage


def inputs(context: Context) -> dict[str, Any]:
    """The prompts, the reference policy, and how the problems are judged."""
    manifest = context.manifest("prepare")
    return {name: manifest[name] for name in ("problems_batch", "prompts_batch", "policy_id", "template_id")} | {
        "sampling": sampling(context)
    }


def body(context: Context) -> dict[str, Any]:
    """Top every prompt up to `q0.samples`, shard by shard; a shard is one batch."""
    config = context.config.q0
    material = materials.load(context, "train")
    before = counts(context, material)
    missing = {problem_id: config.samples - n for problem_id, (n, _) in before.items() if n < config.samples}
    drawn = _drawn(context, material, before)
    total, done = sum(missing.values()), 0
    if missing:
        with materials.open_sampler(context, material.reference, REFERENCE_BEHAVIOUR) as sampler:
            for shard in materials.shards(sorted(missing), config.problems_per_shard):
                asked = [material.assignment(p, missing[p], "q0", sampling(context), drawn[p]) for p in shard]
                start = done
                judged = materials.scored(
                    sampler.run(
                        asked,
                        source="reference",
                        step=0,
                        progress=lambda n, _, start=start: context.progress(start + n, total, "samples", ""),
                    )
                )
                done += len(judged)
                _append(context, material, shard, [(p, drawn[p], missing[p]) for p in shard], judged)
    return _manifest(context, material, before, total)


def _drawn(context: Context, material: Material, before: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Samples drawn so far per problem, those without a verdict included: where the next ones start."""
    lost = context.warehouse.rows(UNSCORED, [_prefix(context, material)])
    unscored = {row["problem_id"]: int(row["n"]) for row in lost}
    return {problem_id: n + unscored.get(problem_id, 0) for problem_id, (n, _) in before.items()}


def _prefix(context: Context, material: Material) -> str:
    return f"q0/{material.policy_id}/{sampling(context)}/"


def _append(
    context: Context, material: Material, shard: list[str], work: list[tuple[str, int, int]], judged: list[Judged]
) -> None:
    """One batch, named by what was drawn: per problem the suite, the start and the number."""
    tally = {problem_id: [0, 0] for problem_id in shard}
    for item in judged:
        if item.row["reward"] is not None:
            tally[item.row["problem_id"]][0] += 1
            tally[item.row["problem_id"]][1] += item.row["reward"] == 0
    rows = [
        {
            "problem_id": problem_id,
            "reference": material.policy_id,
            "sampling": sampling(context),
            "template_id": material.template_id,
            "suite_hash": material.prompts[problem_id].problem.suite_hash,
            "n": n,
            "k": k,
        }
        for problem_id, (n, k) in tally.items()
    ]
    suites = [material.prompts[p].problem.suite_hash for p in shard]
    unit = hashlib.sha256(repr([work, suites, material.template_id]).encode()).hexdigest()[:24]
    batch = _prefix(context, material) + unit
    context.warehouse.append(batch, {"reference_counts": rows, **tables(judged)}, run_id=context.run_id)


def _manifest(context: Context, material: Material, before: dict[str, tuple[int, int]], sampled: int) -> dict[str, Any]:
    after = counts(context, material)
    known = sum(n for n, _ in before.values())
    hopeless = sorted(problem_id for problem_id, (_, k) in after.items() if k == 0)
    share = sum(k / n for n, k in after.values() if n) / max(1, len(after))
    return {
        "rows": sampled,
        "sampling": sampling(context),
        "without_success": hopeless,
        "mean_share": share,
        "reused": f"{known} samples of earlier runs" if known else "",
        "summary": f"{sampled} new samples, {known} known; pi_0 solves {100 * share:.1f}% at T=1, "
        f"{len(hopeless)} of {len(after)} prompts never",
    }


STAGE = Stage(name="q0", version=1, sections=("q0", "sandbox"), inputs=inputs, body=body)
