"""What the warehouse knows of a run, gathered for whoever shows it: evaluated policies, training figures, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.config import RunConfig
from tasks.estimators import Counts
from tasks.evaluate import eval_samples
from tasks.evaluate.eval_samples import Scores
from tasks.run import prompt_set, runs
from tasks.run.manifests import KeptPolicy, PrepareManifest, TrainManifest
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import counts
from tasks.run.stage import Context, finished
from warehouse import Warehouse

Curve = list[tuple[float, float]]

FIGURES = [
    *("loss", "grad_norm", "clipped_fraction", "wait_s", "kl"),
    *("online/pass_fraction", "online/y_T", "online/entropy"),
]
"""The trainer's figures that a report shows or watches."""
MOST_POINTS = 300
"""Of a curve; longer training is shown as means over stretches."""

PUBLISHED = """
-- Which weights has the run published so far, the newest of each step?
SELECT DISTINCT ON (step) policy_id, step, path FROM policies
WHERE run_id = ? AND kind <> 'reference' AND step > 0 ORDER BY step, created_at DESC
"""
TRAINED_BY = """
-- Which run trained this policy (a later run may have taken it over)?
SELECT run_id FROM policies WHERE policy_id = ? AND kind <> 'reference' ORDER BY created_at LIMIT 1
"""
PROGRESS = """
-- How many trajectories was the run trained on, and how long did it train (waiting included), until each step?
SELECT step, sum(sequences) OVER (ORDER BY step) AS trajectories, sum(seconds) OVER (ORDER BY step) AS seconds
FROM (SELECT DISTINCT ON (step) step, len(trajectory_ids) AS sequences FROM train_batches WHERE run_id = $run)
LEFT JOIN (SELECT step, any_value(value) AS seconds FROM train_steps
           WHERE run_id = $run AND name = 'seconds' GROUP BY step) USING (step)
ORDER BY step
"""
DIVERSITY = """
-- How diverse are the samples of each evaluated policy? Means over problems, then over problem sets.
SELECT policy_id, avg(distinct_correct) AS distinct_correct, avg(duplicates) AS duplicates, avg(entropy) AS entropy
FROM (
    SELECT policy_id, problem_set, avg(distinct_correct) AS distinct_correct, avg(duplicates) AS duplicates,
           avg(entropy) AS entropy
    FROM (
        SELECT policy_id, problem_set, problem_id,
               count(DISTINCT normal_hash) FILTER (reward = 0) AS distinct_correct,
               1 - count(DISTINCT normal_hash) / count(*) AS duplicates, avg(entropy) AS entropy
        FROM eval_samples
        WHERE list_contains(?, policy_id) AND sampling = ? AND list_contains(?, suite_hash)
          AND list_contains(?, prompt_id)
        GROUP BY ALL
    ) GROUP BY ALL
) GROUP BY policy_id
"""
TRAINING_FIGURES = """
-- The trainer's figures that are shown, as means over equal stretches of training (single steps of a short run).
SELECT name, max(step) AS step, avg(value) AS value
FROM (
    SELECT name, step, any_value(value) AS value FROM train_steps
    WHERE run_id = $run AND list_contains($names, name) GROUP BY name, step
)
GROUP BY name, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM train_steps WHERE run_id = $run)
ORDER BY name, step
"""
SOURCE_MIX = """
-- Which sources did each stretch of training train on?
SELECT max(step) AS step, source, count(*) AS sequences
FROM (SELECT step, unnest(sources) AS source FROM train_batches WHERE run_id = $run)
GROUP BY source, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM train_batches WHERE run_id = $run)
ORDER BY step, source
"""
REWARD_BY_TEMPERATURE = """
-- How often do online responses pass, by their temperature?
SELECT floor(temperature * 10 + 1e-9) / 10 AS low, count(*) AS n, count(*) FILTER (reward = 0) AS k
FROM trajectories WHERE run_id = ? AND source = 'online' AND reward IS NOT NULL GROUP BY low ORDER BY low
"""
STAGE_COST = """
-- What did each stage of the run take and make: time, responses, sampled tokens, judged programs, time of judging?
WITH took AS (
    SELECT stage, sum(seconds) FILTER (status = 'completed') AS seconds, bool_and(status = 'skipped') AS reused,
           min(created_at) AS ended
    FROM stages WHERE run_id = $run AND status IN ('completed', 'skipped') GROUP BY stage
), made AS (
    SELECT split_part(batch_id, '/', 1) AS origin, count(*) AS responses,
           sum(len(token_ids) - coalesce(prefix_tokens, 0)) FILTER (source <> 'human') AS tokens
    FROM trajectories WHERE run_id = $run GROUP BY ALL
    UNION ALL
    SELECT 'eval', count(*), sum(len(token_ids)) FROM eval_samples WHERE run_id = $run
), judged AS (
    SELECT split_part(batch_id, '/', 1) AS origin, count(*) AS programs, sum(cpu_s) AS judging
    FROM verdicts WHERE run_id = $run GROUP BY ALL
), cost AS (
    SELECT CASE origin WHEN 'rollout' THEN 'train' WHEN 'eval' THEN 'evaluate' WHEN 'import' THEN 'corpus'
                       ELSE origin END AS stage,
           sum(responses) AS responses, sum(tokens) AS tokens, sum(programs) AS programs, sum(judging) AS judging
    FROM made FULL JOIN judged USING (origin) GROUP BY ALL
)
SELECT $run AS run, stage, seconds, reused, CAST(responses AS BIGINT) AS responses, CAST(tokens AS BIGINT) AS tokens,
       CAST(programs AS BIGINT) AS programs, judging
FROM took LEFT JOIN cost USING (stage) ORDER BY ended
"""
DISCOVERED = """
-- Correct programs that training found: how many different ones, and which of them pi_0 never wrote, in any run?
WITH found AS (
    SELECT problem_id, normal_hash, any_value(text) AS program, count(*) AS times, min(step) AS step
    FROM trajectories WHERE run_id = ? AND source = 'online' AND reward = 0 GROUP BY problem_id, normal_hash
), known AS (
    SELECT problem_id, normal_hash, bool_or(source <> 'human') AS by_pi_0, bool_or(source = 'human') AS by_people
    FROM trajectories WHERE source IN ('reference', 'pivotal_rollout', 'human') GROUP BY problem_id, normal_hash
)
SELECT found.*, NOT coalesce(by_pi_0, false) AS new, coalesce(by_people, false) AS human
FROM found LEFT JOIN known USING (problem_id, normal_hash)
ORDER BY new DESC, step, problem_id
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A policy of the run on the evaluation problems."""

    step: int
    policy_id: str
    scores: Scores
    trajectories: int
    """Sequences trained on until then."""
    seconds: float
    """Time of the optimizer steps until then, waiting for trajectories included, pauses of the run not."""
    distinct_correct: float
    """Correct programs per problem, different after normalisation."""
    duplicates: float
    """Share of the samples whose program another sample had before."""
    entropy: float | None
    """Nats per token, of the policy on its own samples."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """One run, as far as it has got."""

    run_id: str
    config: RunConfig
    points: Sequence[Point] = ()
    """Completely evaluated policies by step; step 0 is the reference policy."""
    figures: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    """The trainer's figures against the step."""
    source_mix: Sequence[Mapping[str, Any]] = ()
    temperatures: Sequence[Mapping[str, Any]] = ()
    """Online responses by temperature: low, n, k."""
    stages: Sequence[Mapping[str, Any]] = ()
    """In order: stage, seconds, reused, responses, tokens, programs, judging (CPU s)."""
    q0: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    """Samples and successes of pi_0 per training problem."""
    discovered: Sequence[Mapping[str, Any]] = ()
    """Different correct online programs: problem_id, program, times, step, new (to pi_0), human (people's too)."""
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])


def read(store: Warehouse, home: Path, run_id: str) -> RunHistory:
    """What is known of `run_id` now. Raises UnknownRun."""
    config = runs.load_config(store, run_id)
    context = Context(run_id, config, store, home)
    prepared = finished(store, PrepareManifest, run_id=run_id)
    if prepared is None:
        return RunHistory(run_id, config)
    kept = _kept(context)
    trainer = store.value(TRAINED_BY, [kept[-1].policy_id]) if kept else run_id
    return RunHistory(
        run_id=run_id,
        config=config,
        points=_points(context, prepared, kept, str(trainer)),
        figures=_figures(store, str(trainer)),
        source_mix=store.rows(SOURCE_MIX, {"run": trainer, "points": MOST_POINTS}),
        temperatures=store.rows(REWARD_BY_TEMPERATURE, [trainer]),
        stages=store.rows(STAGE_COST, {"run": run_id}),
        q0=counts(context, prompt_set.load(context, "train")),
        discovered=store.rows(DISCOVERED, [trainer]),
        fingerprints={
            "reference policy": prepared.policy_id,
            "prompt template": prepared.template_id,
            "problems": prepared.problems_batch,
            **({"trained policy": kept[-1].policy_id} if kept else {}),
            "warehouse snapshot": str(store.snapshot()),
        },
    )


def _kept(context: Context) -> list[KeptPolicy]:
    """The run's kept weights by step; of a run that still trains, those published so far."""
    trained = finished(context.warehouse, TrainManifest, run_id=context.run_id)
    if trained is not None:
        return list(trained.policies)
    train = context.config.train
    rows = context.warehouse.rows(PUBLISHED, [context.run_id])
    published = [KeptPolicy.model_validate(row) for row in rows]
    return [kept for kept in published if kept.step == train.steps or kept.step % train.snapshot_interval == 0]


def _points(context: Context, prepared: PrepareManifest, kept: Sequence[KeptPolicy], trainer: str) -> list[Point]:
    prompts = prompt_set.load(context, "evaluation")
    steps = {prepared.policy_id: 0} | {found.policy_id: found.step for found in kept}
    scores = {policy_id: eval_samples.counts(context, prompts, policy_id) for policy_id in steps}
    most = max(context.config.evaluate.ks)
    complete = [p for p, found in scores.items() if found and all(n >= most for n, _ in found.values())]
    progress = {int(row["step"]): row for row in context.warehouse.rows(PROGRESS, {"run": trainer})}
    diversity = _diversity(context, prompts, complete)
    nothing = {"trajectories": 0, "seconds": 0.0}
    return [
        Point(
            step=steps[policy_id],
            policy_id=policy_id,
            scores=eval_samples.by_set(prompts, scores[policy_id]),
            trajectories=int(progress.get(steps[policy_id], nothing)["trajectories"]),
            seconds=float(progress.get(steps[policy_id], nothing)["seconds"] or 0.0),
            distinct_correct=float(diversity[policy_id]["distinct_correct"]),
            duplicates=float(diversity[policy_id]["duplicates"]),
            entropy=diversity[policy_id]["entropy"],
        )
        for policy_id in sorted(complete, key=lambda p: steps[p])
    ]


def _diversity(context: Context, prompts: PromptSet, policies: list[str]) -> dict[str, dict[str, Any]]:
    parameters = [policies, eval_samples.label_of(context), prompts.suites, prompts.prompt_ids]
    return {row["policy_id"]: row for row in context.warehouse.rows(DIVERSITY, parameters)}


def _figures(store: Warehouse, run_id: str) -> dict[str, Curve]:
    found: dict[str, Curve] = {}
    wanted = {"run": run_id, "names": FIGURES, "points": MOST_POINTS}
    for row in store.rows(TRAINING_FIGURES, wanted):
        found.setdefault(row["name"], []).append((float(row["step"]), float(row["value"])))
    return found
