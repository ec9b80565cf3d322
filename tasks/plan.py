"""What a run would do, and which of its stages still stand, read from the warehouse alone; nothing is changed.

A stage of a run is *fresh* when its key, computed now, is the one it was finished with; *stale* when its configuration
or inputs have changed since. What remains to be sampled, judged and trained is counted stage by stage, and timed with
the costs per unit that the warehouse has measured on earlier runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.config import RunConfig
from tasks.corpus import stage as corpus
from tasks.evaluate import eval_samples
from tasks.evaluate import stage as evaluation
from tasks.pivotal import stage as pivotal
from tasks.prepare import stage as prepare
from tasks.q0 import stage as q0
from tasks.report import stage as report
from tasks.run import prompt_set, runs
from tasks.run.sampling import counts
from tasks.run.stage import Context, Stage, StageError, finished, key_of
from tasks.sampling.sampler import sampling_label
from tasks.train import stage as training
from warehouse import Warehouse

DEFINITIONS: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        prepare.STAGE,
        q0.STAGE,
        corpus.STAGE,
        pivotal.STAGE,
        training.STAGE,
        evaluation.STAGE,
        report.STAGE,
    )
}
State = Literal["fresh", "stale", "failed", "waiting"]

RECORDS = """
-- The newest end of each stage of a run.
SELECT stage, key, status, seconds, "rows", snapshot_in, manifest_json, created_at FROM stages WHERE run_id = ?
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY created_at DESC) = 1
"""
FAILURES = """
-- The newest failure of each stage of a run.
SELECT stage, message, created_at FROM run_events WHERE run_id = ? AND kind = 'failed'
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY created_at DESC) = 1
"""
COSTS = """
-- What did the newest executions of a stage with this reference policy cost, those of the same recipe first?
SELECT s.seconds, s."rows" AS "rows", r.config_json FROM stages s JOIN runs r ON r.run_id = s.run_id
WHERE s.stage = ? AND s.status = 'completed' AND (s."rows" > 0 OR s.stage = 'report')
  AND json_extract_string(r.config_json, '$.reference.model') = ?
  AND json_extract_string(r.config_json, '$.engine.kind') = ?
ORDER BY r.recipe = ? DESC, s.created_at DESC LIMIT 5
"""
DRAWN = "SELECT count(*) FROM trajectories WHERE starts_with(batch_id, ?) AND list_contains(?, prompt_id)"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a stage of a run stands."""

    stage: str
    state: State
    note: str
    record: dict[str, Any] | None
    """Its newest row of `stages`."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Work of a stage: `units` of `unit`, and in words what is there already."""

    units: int
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What a stage would do."""

    stage: str
    done: bool
    amount: Amount
    seconds: float | None
    """Predicted time; 0 when it is done, None when nothing like it has been measured."""
    basis: str = ""
    """What the prediction rests on."""


def standings(store: Warehouse, run_id: str, home: Path) -> list[Standing]:
    """How every stage of `run_id` stands. Raises UnknownRun."""
    config = runs.load_config(store, run_id)
    records = {row["stage"]: row for row in store.rows(RECORDS, [run_id])}
    failures = {row["stage"]: row for row in store.rows(FAILURES, [run_id])}
    found: list[Standing] = []
    for name, stage in DEFINITIONS.items():
        record, failure = records.get(name), failures.get(name)
        if failure is not None and (record is None or failure["created_at"] > record["created_at"]):
            found.append(Standing(name, "failed", str(failure["message"]), record))
        elif record is None:
            found.append(Standing(name, "waiting", "", None))
        else:
            context = Context(run_id, config, store, home, pin=record["snapshot_in"])
            found.append(_standing(stage, context, record))
    return found


def _standing(stage: Stage, context: Context, record: dict[str, Any]) -> Standing:
    manifest = json.loads(record["manifest_json"])
    try:
        key = key_of(stage, context)
    except StageError as error:
        return Standing(stage.name, "stale", f"its inputs are gone: {error}", record)
    if key != record["key"]:
        return Standing(stage.name, "stale", "what it reads has changed since", record)
    if not stage.usable(manifest):
        return Standing(stage.name, "stale", "its files are gone", record)
    return Standing(stage.name, "fresh", str(manifest.get("summary", "")), record)


def plan(store: Warehouse | None, config: RunConfig, home: Path, *, run_id: str = "") -> list[Work]:
    """What each stage would do for `config`: as a new run, or as a continuation of `run_id`."""
    manifests: dict[str, dict[str, Any]] = {}
    context = None if store is None else Context(run_id, config, store, home, manifests=manifests)
    work: list[Work] = []
    for name, stage in DEFINITIONS.items():
        known = None if context is None else _finished(stage, context)
        if known is not None:
            manifests[name] = known
            work.append(Work(name, True, Amount(0, "", str(known.get("summary", ""))), 0.0))
            continue
        amount = AMOUNTS[name](context if "prepare" in manifests else None, config, home, run_id)
        seconds, basis = (None, "") if store is None else _predict(store, name, config, amount.units)
        work.append(Work(name, False, amount, seconds, basis))
    return work


def _finished(stage: Stage, context: Context) -> dict[str, Any] | None:
    try:
        known = finished(context.warehouse, stage.name, key=key_of(stage, context))
    except StageError:  # what it reads does not exist yet
        return None
    return known if known is not None and stage.usable(known) else None


def _predict(store: Warehouse, stage: str, config: RunConfig, units: int) -> tuple[float | None, str]:
    """Time for `units`, from the median cost per unit of earlier executions."""
    if units == 0:
        return 0.0, ""
    costs: list[float] = []
    for row in _costs(store, stage, config):
        measured = _measured_units(stage, row)
        if measured:
            costs.append(row["seconds"] / measured)
    if not costs:
        return None, "never measured here"
    cost = sorted(costs)[len(costs) // 2]
    each = f"{cost:.1f} s" if cost >= 1 else f"{1000 * cost:.1f} ms"
    return units * cost, f"{each} each, as in {len(costs)} earlier"


def _costs(store: Warehouse, stage: str, config: RunConfig) -> list[dict[str, Any]]:
    return store.rows(COSTS, [stage, config.reference.model, config.engine.kind, config.recipe])


def _measured_units(stage: str, row: Mapping[str, Any]) -> int:
    """In the units of the stage's `Amount`."""
    if stage == "train":
        return int(json.loads(row["config_json"])["train"]["steps"])
    if stage == "report":
        return 1
    return int(row["rows"])


Count = Callable[[Context | None, RunConfig, Path, str], Amount]
"""Called without a context when the problems are not in the warehouse yet: then what the recipe says at most."""


def _prepare(_context: Context | None, config: RunConfig, _home: Path, _run_id: str) -> Amount:
    train, evaluation_problems = config.problems.train, config.problems.evaluation
    return Amount(train + evaluation_problems, "problems", f"{train} to train on, {evaluation_problems} to evaluate")


def _q0(context: Context | None, config: RunConfig, _home: Path, _run_id: str) -> Amount:
    if context is None:
        return Amount(config.problems.train * config.q0.samples, "samples", "all of them")
    known = counts(context, prompt_set.load(context, "train"))
    missing = sum(max(0, config.q0.samples - n) for n, _ in known.values())
    return Amount(missing, "samples", f"{sum(n for n, _ in known.values())} known")


def _corpus(context: Context | None, config: RunConfig, _home: Path, _run_id: str) -> Amount:
    each = config.corpus.reference_samples if "reference" in config.corpus.sources else 0
    if context is None:
        return Amount(config.problems.train * each, "samples", "and the known programs")
    prompts = prompt_set.load(context, "train")
    label = sampling_label(config.corpus.behaviour, config.engine.max_response_tokens)
    prefix = f"corpus/reference/{prompts.policy_id}/{label}/"
    drawn = int(context.warehouse.value(DRAWN, [prefix, prompts.prompt_ids]))
    return Amount(max(0, each * len(prompts.prompts) - drawn), "samples", f"{drawn} known, and the known programs")


def _pivotal(context: Context | None, config: RunConfig, _home: Path, _run_id: str) -> Amount:
    search = config.pivotal
    most = search.trajectories * search.max_nodes * search.rollouts
    if context is None or most == 0:
        return Amount(most, "rollouts", "at most")
    rates = [
        row["rows"] / earlier
        for row in _costs(context.warehouse, "pivotal", config)
        if (earlier := json.loads(row["config_json"])["pivotal"]["trajectories"])
    ]
    if not rates:
        return Amount(most, "rollouts", "at most")
    likely = sorted(rates)[len(rates) // 2] * search.trajectories
    return Amount(min(most, round(likely)), "rollouts", f"as earlier searches; at most {most}")


def _train(_context: Context | None, config: RunConfig, home: Path, run_id: str) -> Amount:
    train = config.train
    folder = home / "runs" / run_id / "train" / "checkpoints"
    done = max((int(path.name.removeprefix("step-")) for path in folder.glob("step-*")), default=0) if run_id else 0
    online = train.sources.get("online")
    sampled = 0 if online is None else round(online.share * train.batch_size) * (train.steps - done)
    continued = f"from the checkpoint of step {done}, " if done else ""
    return Amount(train.steps - done, "steps", f"{continued}{sampled} online trajectories")


def _evaluate(context: Context | None, config: RunConfig, _home: Path, _run_id: str) -> Amount:
    steps, every = config.train.steps, config.train.snapshot_interval
    policies = 1 + steps // every + (steps % every > 0)
    if context is None:
        total = policies * config.problems.evaluation * config.evaluate.samples
        return Amount(total, "samples", f"{policies} policies")
    prompts = prompt_set.load(context, "evaluation")
    known = eval_samples.counts(context, prompts, prompts.policy_id)
    there = sum(min(n, config.evaluate.samples) for n, _ in known.values())
    total = policies * len(prompts.prompts) * config.evaluate.samples
    return Amount(total - there, "samples", f"{policies} policies, {there} samples of the reference known")


def _report(_context: Context | None, _config: RunConfig, _home: Path, _run_id: str) -> Amount:
    return Amount(1, "page")


AMOUNTS: dict[str, Count] = {
    "prepare": _prepare,
    "q0": _q0,
    "corpus": _corpus,
    "pivotal": _pivotal,
    "train": _train,
    "evaluate": _evaluate,
    "report": _report,
}
