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

from tasks import material as materials
from tasks import runs
from tasks.stage import Context, Stage
from tasks.trainer import launch, weights
from tasks.trainer.job import CountsFilter, TrainJob

EVALUATOR = "tasks.evaluator"
"""Module of the process that evaluates kept weights while training goes on."""
NICENESS = 15
"""Added to the evaluator's priority from its first instruction and inherited by its sandbox: it takes what is left."""


def inputs(context: Context) -> dict[str, Any]:
    """Corpus, annotations, soft values and the reference policy: everything training reads."""
    material = materials.load(context, "train")
    values = sorted(materials.counts(context, material).items())
    return {
        "corpus_id": context.manifest("corpus")["corpus_id"],
        "search_id": context.manifest("pivotal")["search_id"],
        "counts": hashlib.sha256(json.dumps(values).encode()).hexdigest(),
        "policy_id": material.policy_id,
        "prompts_batch": context.manifest("prepare")["prompts_batch"],
    }


def body(context: Context) -> dict[str, Any]:
    """Train to the last step, resuming from the newest complete checkpoint of this run."""
    job = make_job(context)
    job_file = job.write(job.run_dir / "job.json")
    beside = {"evaluator": evaluator_command(job_file)} if context.config.evaluate.during_training else {}
    secrets = context.warehouse.location.credentials()
    launch.run_training(job_file, _relay(context), beside=beside, secrets=secrets)
    kept = weights.kept(job.kept, every=job.train.snapshot_interval, last=job.train.steps)
    store = context.warehouse
    used = store.value("SELECT count(*) FROM trajectories WHERE run_id = ? AND source = 'online'", [context.run_id])
    return {
        "rows": int(used),
        "policies": [{"policy_id": p.policy_id, "path": str(p.folder), "step": p.step} for p in kept],
        "summary": f"{kept[-1].step} steps, {used} online trajectories; policy {kept[-1].policy_id[:8]}",
    }


def evaluator_command(job_file: Path) -> list[str]:
    """What starts the evaluator of a job."""
    return ["nice", "-n", str(NICENESS), sys.executable, "-m", EVALUATOR, str(job_file)]


def _relay(context: Context) -> Callable[[dict[str, Any]], None]:
    """Progress lines of the trainer to the stage's progress, warnings to the run's history."""

    def relay(line: dict[str, Any]) -> None:
        if "done" in line:
            context.progress(line["done"], line["total"], line["unit"], line["note"])
        elif "warning" in line and "step" not in line:  # the trainer writes those about its steps down itself
            runs.note(context.warehouse, context.run_id, stage="train", kind="warning", message=line["warning"])

    return relay


def make_job(context: Context) -> TrainJob:
    """Everything the training processes need to know."""
    prepared = context.manifest("prepare")
    return TrainJob(
        run_id=context.run_id,
        warehouse=str(context.warehouse.location),
        run_dir=context.run_dir / "train",
        reference=Path(prepared["reference"]),
        config=context.config,
        counts=CountsFilter(
            reference=prepared["policy_id"], sampling=materials.sampling(context), template_id=prepared["template_id"]
        ),
        corpus_id=context.manifest("corpus")["corpus_id"],
        search_id=context.manifest("pivotal")["search_id"],
        problems_batch=prepared["problems_batch"],
        prompts_batch=prepared["prompts_batch"],
        weights_dir=_hand_over(context, Path(prepared["reference"])),
        end_on_stdin_eof=True,
    )


def _hand_over(context: Context, reference: Path) -> Path | None:
    """The folder in shared memory through which the workers get weights; None: they read what is kept on disk."""
    if context.config.train.hand_over == "disk":
        return None
    return weights.memory_folder(context.run_dir / "train", reference)


def _usable(manifest: dict[str, Any]) -> bool:
    return all((Path(kept["path"]) / "config.json").is_file() for kept in manifest["policies"])


STAGE = Stage(
    name="train",
    version=1,
    sections=("train", "engine", "sandbox", "q0", "seed"),
    inputs=inputs,
    body=body,
    usable=_usable,
)
