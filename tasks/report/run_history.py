"""What the warehouse knows of a run, gathered for whoever shows it: evaluated policies, training figures, cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.config import RunConfig
from tasks.estimators import Counts
from tasks.evaluate import eval_samples
from tasks.evaluate.eval_samples import Scores
from tasks.evaluate.model_evaluation import evaluated_scores
from tasks.run import prompt_set, runs
from tasks.run.manifests import KeptPolicy, ModelEvaluation, PrepareManifest, TrainManifest
from tasks.run.prompt_set import PromptedProblem, read_prompts
from tasks.run.sampling import counts_for_training
from tasks.run.stage import Context, finished
from warehouse import Warehouse
from warehouse.queries import query

Curve = list[tuple[float, float]]

FIGURES = [
    *("loss", "grad_norm", "clipped_fraction", "wait_s", "kl"),
    *("online/pass_fraction", "online/y_T", "online/entropy", "online/loss", "online/log_ratio"),
    *("replay/loss", "replay/log_ratio"),
]
"""The trainer's figures that a report shows or watches."""
MOST_POINTS = 120
"""Of a curve; longer training is shown as means over stretches."""

PUBLISHED = query(__name__, "published")
PROGRESS = query(__name__, "progress")
DIVERSITY = query(__name__, "diversity")
TRAINING_FIGURES = query(__name__, "training_figures")
SOURCE_MIX = query(__name__, "source_mix")
BY_AGE = query(__name__, "by_age")
USES = query(__name__, "uses")
DRAWN = query(__name__, "drawn")
BELIEVED = query(__name__, "believed")
REWARD_BY_TEMPERATURE = query(__name__, "reward_by_temperature")
STAGE_COST = query(__name__, "stage_cost")
DISCOVERED = query(__name__, "discovered")


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
    problems: Mapping[str, PromptedProblem] = field(default_factory=dict[str, PromptedProblem])
    """What `points` were evaluated on, by problem id: statement, tests and prompt."""
    figures: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    """The trainer's figures against the step."""
    source_mix: Sequence[Mapping[str, Any]] = ()
    by_age: Sequence[Mapping[str, Any]] = ()
    """Figures by the age of the weights that sampled: age (optimizer steps, from), name, value."""
    uses: Sequence[Mapping[str, Any]] = ()
    """Online trajectories by how often they were used: uses, trajectories, age (mean over their uses)."""
    drawn: Sequence[Mapping[str, Any]] = ()
    """Online responses by problem: problem_id, n, k (successes)."""
    believed: Sequence[Mapping[str, Any]] = ()
    """Online responses by what was believed of their problems: step (of the weights), kind, responses."""
    temperatures: Sequence[Mapping[str, Any]] = ()
    """Online responses by temperature: low, n, k."""
    stages: Sequence[Mapping[str, Any]] = ()
    """In order: stage, seconds, reused, responses, tokens, programs, judging (CPU s)."""
    q0: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    """Samples and successes of pi_0 per training problem."""
    discovered: Sequence[Mapping[str, Any]] = ()
    """Different correct online programs: problem_id, program, times, step, new (to pi_0), human (people's too)."""
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])
    sampling: str = ""
    """How the policies of `points` were sampled."""


def points(store: Warehouse, home: Path, run_id: str) -> Sequence[Point]:
    """The completely evaluated policies of `run_id` alone, as `read` has them. Raises UnknownRun."""
    context = Context(run_id, runs.load_config(store, run_id), store, home)
    if context.config.subject is not None:
        return _evaluation(context).points
    prepared = finished(store, PrepareManifest, run_id=run_id)
    if prepared is None:
        return ()
    kept = _kept(context)
    return _points(context, prepared, kept, _trainer(context, kept))


def read(store: Warehouse, home: Path, run_id: str) -> RunHistory:
    """What is known of `run_id` now. Raises UnknownRun."""
    config = runs.load_config(store, run_id)
    context = Context(run_id, config, store, home)
    if config.subject is not None:
        return _evaluation(context)
    prepared = finished(store, PrepareManifest, run_id=run_id)
    if prepared is None:
        return RunHistory(run_id, config)
    kept = _kept(context)
    trainer = _trainer(context, kept)
    return RunHistory(
        run_id=run_id,
        config=config,
        points=_points(context, prepared, kept, trainer),
        problems=prompt_set.load(context, "evaluation").prompts,
        figures=_figures(store, trainer),
        source_mix=store.rows(SOURCE_MIX, {"run": trainer, "points": MOST_POINTS}),
        by_age=store.rows(BY_AGE, [trainer]),
        uses=store.rows(USES, [trainer]),
        drawn=store.rows(DRAWN, [trainer]),
        believed=store.rows(BELIEVED, [trainer]),
        temperatures=store.rows(REWARD_BY_TEMPERATURE, [trainer]),
        stages=store.rows(STAGE_COST, {"run": run_id}),
        q0=counts_for_training(context, prompt_set.load(context, "train")),
        discovered=store.rows(DISCOVERED, [trainer]),
        sampling=eval_samples.label_of(context),
        fingerprints={
            "reference policy": prepared.policy_id,
            "prompt template": prepared.template_id,
            "problems": prepared.problems_batch,
            **({"trained policy": kept[-1].policy_id} if kept else {}),
            "warehouse snapshot": str(store.snapshot()),
        },
    )


def _evaluation(context: Context) -> RunHistory:
    """What is known of a model that was evaluated by itself: one point."""
    found = finished(context.warehouse, ModelEvaluation, run_id=context.run_id)
    if found is None:
        return RunHistory(context.run_id, context.config)
    prompts = read_prompts(context.warehouse, found.problems_batch, found.prompts_batch, "evaluation")
    scores = evaluated_scores(context, found)
    numbers = [one for own in scores.values() for one in own.values()]
    if len(numbers) < len(prompts) or not _complete(context, numbers):
        return RunHistory(context.run_id, context.config)  # some of its samples were put aside
    row = _diversity(context, prompts.values(), [found.policy_id], found.sampling)[found.policy_id]
    point = Point(
        step=0,
        policy_id=found.policy_id,
        scores=scores,
        trajectories=0,
        seconds=0.0,
        distinct_correct=float(row["distinct_correct"]),
        duplicates=float(row["duplicates"]),
        entropy=row["entropy"],
    )
    return RunHistory(
        run_id=context.run_id,
        config=context.config,
        points=[point],
        problems=prompts,
        stages=context.warehouse.rows(STAGE_COST, {"run": context.run_id}),
        fingerprints={"model": found.title, "policy": found.policy_id, "problems": found.problems_batch},
        sampling=found.sampling,
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


def _trainer(context: Context, kept: Sequence[KeptPolicy]) -> str:
    """The run that trained the kept weights: this one, or one whose training it took over."""
    return trained_by(context.warehouse, kept[-1].policy_id, context.run_id) if kept else context.run_id


def trained_by(store: Warehouse, policy_id: str, run_id: str) -> str:
    """The run whose training made a policy of the run: itself, or the one whose training it took over."""
    found = store.rows(runs.TRAINED_BY, {"runs": [run_id], "policies": [policy_id]})
    return str(found[0]["trainer"]) if found else run_id


def _points(context: Context, prepared: PrepareManifest, kept: Sequence[KeptPolicy], trainer: str) -> list[Point]:
    prompts = prompt_set.load(context, "evaluation")
    steps = {prepared.policy_id: 0} | {found.policy_id: found.step for found in kept}
    scores = {policy_id: eval_samples.counts(context, prompts, policy_id) for policy_id in steps}
    complete = [p for p, found in scores.items() if _complete(context, found.values())]
    progress = {int(row["step"]): row for row in context.warehouse.rows(PROGRESS, {"run": trainer})}
    diversity = _diversity(context, prompts.prompts.values(), complete, eval_samples.label_of(context))
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


def _complete(context: Context, found: Iterable[Counts]) -> bool:
    """Whether there are problems, and as many samples of each as pass@k needs."""
    numbers = [n for n, _ in found]
    return bool(numbers) and min(numbers) >= max(context.config.evaluate.ks)


def _diversity(
    context: Context, prompts: Collection[PromptedProblem], policies: Sequence[str], sampling: str
) -> dict[str, dict[str, Any]]:
    wanted = {
        "policies": list(policies),
        "sampling": sampling,
        "suites": sorted({one.problem.suite_hash for one in prompts}),
        "prompts": sorted(one.prompt_id for one in prompts),
        "most": eval_samples.most_samples(context.config),
    }
    return {row["policy_id"]: row for row in context.warehouse.rows(DIVERSITY, wanted)}


def _figures(store: Warehouse, run_id: str) -> dict[str, Curve]:
    found: dict[str, Curve] = {}
    wanted = {"run": run_id, "names": FIGURES, "points": MOST_POINTS}
    for row in store.rows(TRAINING_FIGURES, wanted):
        found.setdefault(row["name"], []).append((float(row["step"]), float(row["value"])))
    return found
