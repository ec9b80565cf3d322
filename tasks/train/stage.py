"""Stage `train`: SPO training with rollout workers beside it (sections 3 and 5).

The stage writes one job file and starts the processes; they speak to the warehouse, not to the stage. It leaves
the policies kept along the way and the last one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.checkpoints import inspection
from tasks.checkpoints.checkpoint import is_complete
from tasks.run import prompt_set, runs
from tasks.run.judged_again import judged_again
from tasks.run.manifests import (
    CorpusManifest,
    KeptPolicy,
    PivotalManifest,
    PrepareManifest,
    Q0Manifest,
    TrainManifest,
)
from tasks.run.placement import EVALUATOR
from tasks.run.sampling import counts, counts_filter
from tasks.run.stage import Amount, Context, Outlook, Stage, finished
from tasks.train import supervisor
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import mean_return
from tasks.train.trainer import checkpoint, earlier, pairs

EVALUATOR_MODULE = "tasks.evaluate.evaluator"
"""Module of the process that evaluates kept weights while training goes on."""
NICENESS = 15
"""Added to the evaluator's priority from its first instruction and inherited by its sandbox: it takes what is left."""


def inputs(context: Context) -> dict[str, Any]:
    """Corpus, annotations, soft values and the reference policy: everything training reads."""
    prompts = prompt_set.load(context, "train")
    values, searched = sorted(counts(context, prompts).items()), context.manifest(PivotalManifest)
    corpus = context.manifest(CorpusManifest)
    drawn_from = "pivotal_rollouts" in context.config.train.sources
    of_others = "earlier" in context.config.train.learnt_from
    paired = "pairs" in context.config.train.learnt_from
    return {
        "corpus_id": corpus.corpus_id,
        **({"known_shares": corpus.known_shares} if corpus.known_shares else {}),
        "search_id": searched.search_id,
        **({"rollouts_until": searched.snapshot} if drawn_from else {}),
        **({"earlier": _earlier(context).digest()} if of_others else {}),
        **({"pairs": _pairs(context, prompts.policy_id).digest()} if paired else {}),
        "counts": hashlib.sha256(json.dumps(values).encode()).hexdigest(),
        "policy_id": prompts.policy_id,
        "prompts_batch": context.manifest(PrepareManifest).prompts_batch,
        **judged_again(context, "train"),
    }


def _earlier(context: Context) -> earlier.Selection:
    """What the run may train on of earlier runs."""
    return earlier.select(context.warehouse, context.config.train.earlier, run=context.run_id, **_within(context))


def _pairs(context: Context, policy_id: str) -> pairs.Selection:
    """The pairs of pi_0's samples that the run may train on."""
    bounds = _within(context) | {"until": _pairs_until(context)}
    return pairs.select(context.warehouse, context.config.train.pairs, reference=policy_id, **bounds)


def _within(context: Context) -> dict[str, Any]:
    """What bounds both selections, as `TrainJob.selection_bounds` does for the trainer."""
    prepared = context.manifest(PrepareManifest)
    return {
        "until": _until(context),
        "limit": context.config.engine.max_response_tokens,
        "prompts_batch": prepared.prompts_batch,
        "problems_batch": prepared.problems_batch,
    }


def _until(context: Context) -> int:
    """The snapshot that the run reads what others made up to."""
    return context.warehouse.snapshot() if context.pin is None else context.pin


def _pairs_until(context: Context) -> int:
    """The same for pi_0's samples: those that Q0 and the corpus ask for belong to the run whenever they were drawn."""
    drawn = finished(context.warehouse, Q0Manifest, run_id=context.run_id)
    collected = context.manifest(CorpusManifest)
    return max(_until(context), drawn.snapshot if drawn else 0, collected.snapshot)


def body(context: Context) -> TrainManifest:
    """Train to the last step, resuming from the newest complete checkpoint of this run."""
    job = _with_value_start(context, make_job(context))
    job_file = job.write(job.run_dir / "job.json")
    beside = {EVALUATOR: evaluator_command(job_file)} if context.config.evaluate.during_training else {}
    secrets = context.warehouse.location.credentials()
    supervisor.run_training(job_file, _relay(context), beside=beside, secrets=secrets)
    kept = published_weights.kept(job.kept, every=job.train.snapshot_interval, last=job.train.steps)
    store = context.warehouse
    used = store.value("SELECT count(*) FROM trajectories WHERE run_id = ? AND source = 'online'", [context.run_id])
    return TrainManifest(
        rows=int(used),
        policies=tuple(KeptPolicy(policy_id=p.policy_id, path=p.folder, step=p.step) for p in kept),
        summary=f"{kept[-1].step} steps, {used} online trajectories; policy {kept[-1].policy_id[:8]}",
    )


def amount(outlook: Outlook) -> Amount:
    """The steps after the run's newest checkpoint."""
    train = outlook.config.train
    done = 0 if outlook.run_dir is None else checkpoint.newest_step(outlook.run_dir / "train" / "checkpoints")
    sampled = train.sampled_by(train.steps) - train.sampled_by(done)
    continued = f"from the checkpoint of step {done}, " if done else ""
    return Amount(train.steps - done, "steps", f"{continued}{sampled} online trajectories")


def evaluator_command(job_file: Path) -> list[str]:
    """What starts the evaluator of a job."""
    return ["nice", "-n", str(NICENESS), sys.executable, "-m", EVALUATOR_MODULE, str(job_file)]


def _relay(context: Context) -> Callable[[dict[str, Any]], None]:
    """Progress lines of the trainer to the stage's progress, warnings to the run's history."""

    def relay(line: dict[str, Any]) -> None:
        if "done" in line:
            context.progress(line["done"], line["total"], line["unit"], line["note"])
        elif "placement" in line:
            runs.note(context.warehouse, context.run_id, stage="train", kind="placement", message=line["placement"])
        elif "warning" in line and "step" not in line:  # the trainer writes those about its steps down itself
            runs.note(context.warehouse, context.run_id, stage="train", kind="warning", message=line["warning"])

    return relay


def make_job(context: Context) -> TrainJob:
    """Everything the training processes need to know."""
    prepared, searched = context.manifest(PrepareManifest), context.manifest(PivotalManifest)
    corpus = context.manifest(CorpusManifest)
    return TrainJob(
        run_id=context.run_id,
        warehouse=str(context.warehouse.location),
        run_dir=context.run_dir / "train",
        reference=prepared.reference,
        config=context.config,
        counts=counts_filter(context, prompt_set.load(context, "train")),
        corpus_id=corpus.corpus_id,
        known_shares=corpus.known_shares,
        search_id=searched.search_id,
        rollouts_until=searched.snapshot,
        earlier_until=_until(context),
        pairs_until=_pairs_until(context),
        problems_batch=prepared.problems_batch,
        prompts_batch=prepared.prompts_batch,
        weights_dir=_hand_over(context, prepared.reference),
        end_on_stdin_eof=True,
    )


def _with_value_start(context: Context, job: TrainJob) -> TrainJob:
    """The job with what PPO's value model starts at: of its processes only the first can ask the warehouse."""
    if job.train.algorithm != "ppo" or job.train.ppo.value_start == "zero":
        return job
    return job.model_copy(update={"value_start": mean_return(context.warehouse, job)})


def _hand_over(context: Context, reference: Path) -> Path | None:
    """The folder in shared memory through which the workers get weights; None: they read what is kept on disk."""
    train = context.config.train
    if train.hand_over == "disk":
        return None
    size = inspection.adapter_bytes(reference, train.lora.rank) if train.lora else inspection.weight_bytes(reference)
    return published_weights.roomy_memory_folder(context.run_dir / "train", size)


def _usable(manifest: TrainManifest) -> bool:
    return all(is_complete(kept.path) for kept in manifest.policies)


STAGE = Stage(
    manifest=TrainManifest,
    version=1,
    sections=("train", "engine", "sandbox", "q0", "seed", "reference.dtype"),
    inputs=inputs,
    body=body,
    amount=amount,
    units=lambda execution: execution.config.train.steps,
    usable=_usable,
)
