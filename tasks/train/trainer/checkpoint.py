"""Everything that an exact continuation needs: model, optimizer, schedule, random state, the mix of batches."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.train.shared import atomic
from tasks.train.shared.errors import DiskFull, ResumeImpossible
from tasks.train.shared.job import TrainJob
from tasks.train.trainer.state import MixState, ReferenceSteps

if TYPE_CHECKING:  # whoever starts trainers reads checkpoints' names without loading torch
    from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine

PREFIX = "step-"
STATE = "trainer.json"
FORMAT = 3
"""Raised when a checkpoint holds something else than before."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point to continue from."""

    step: int
    mix: MixState
    references: ReferenceSteps
    folder: Path


def save(job: TrainJob, engine: DeepSpeedEngine, step: int, mix: MixState, references: ReferenceSteps) -> None:
    """Write a checkpoint of `step`; it appears complete or not at all. Collective. Raises DiskFull."""
    import torch

    engine.raise_together(no_room(job, engine, step))
    target = job.checkpoints / f"{PREFIX}{step:08d}"
    building = engine.share(atomic.start_folder(target) if engine.rank == 0 else None)
    engine.save(building)
    torch.save(torch.get_rng_state(), building / f"random-{engine.rank}.pt")
    engine.barrier()
    if engine.rank == 0:
        content = {
            "format": FORMAT,
            "step": step,
            "replay": dataclasses.asdict(mix),
            "references": dataclasses.asdict(references),
            "fits": _fits(job),
            "processes": engine.world,
        }
        (building / STATE).write_text(json.dumps(content), encoding="utf-8")
        atomic.finish_folder(building, target)
        _prune(job)
    engine.barrier()


def newest(job: TrainJob) -> Checkpoint | None:
    """The newest complete checkpoint of the run, or None. Raises ResumeImpossible for one of another format."""
    folders = atomic.complete_folders(job.checkpoints, PREFIX)
    if not folders:
        return None
    content = json.loads((folders[-1] / STATE).read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ResumeImpossible(
            f"checkpoint {folders[-1]} was written by another version of this project; resume with that version, or "
            f"move {job.checkpoints} away to train from the beginning"
        )
    mix = content["replay"]
    state = MixState(
        cursors={name: (int(epoch), int(used)) for name, (epoch, used) in mix["cursors"].items()},
        watermark=int(mix["watermark"]),
        waiting=tuple(mix["waiting"]),
    )
    return Checkpoint(int(content["step"]), state, ReferenceSteps(**content["references"]), folders[-1])


def newest_step(folder: Path) -> int:
    """Step of the newest complete checkpoint in the folder of a run's checkpoints; 0 when there is none."""
    found = atomic.complete_folders(folder, PREFIX)
    return int(found[-1].name.removeprefix(PREFIX)) if found else 0


def is_there(job: TrainJob, step: int) -> bool:
    """Whether the run has a complete checkpoint of the step."""
    return (job.checkpoints / f"{PREFIX}{step:08d}").is_dir()


def load(job: TrainJob, engine: DeepSpeedEngine, checkpoint: Checkpoint) -> None:
    """Put the engine where it was. Raises ResumeImpossible when the job has changed in a way that forbids it."""
    import torch

    content = json.loads((checkpoint.folder / STATE).read_text(encoding="utf-8"))
    saved, now = content["fits"], _fits(job)
    changed = [f"{name} {saved.get(name)} -> {value}" for name, value in now.items() if saved.get(name) != value]
    if changed:
        raise ResumeImpossible(
            f"checkpoint {checkpoint.folder} was written with other settings ({', '.join(changed)}); "
            f"restore them, or start a new run"
        )
    if checkpoint.step:  # before the first step it is what the engine was made with, and has no optimizer's state
        engine.load(checkpoint.folder, processes=int(content["processes"]))
    own = checkpoint.folder / f"random-{engine.rank}.pt"
    if own.is_file():  # a process that was not there before keeps the state it was started with
        torch.set_rng_state(torch.load(own, weights_only=True))


def _fits(job: TrainJob) -> dict[str, object]:
    """What must be equal for a checkpoint to be continued."""
    return {
        "run": job.run_id,
        "algorithm": job.train.algorithm,
        "zero_stage": job.train.zero_stage,
        "dtype": job.config.reference.dtype,
        "corpus": job.corpus_id,
        "pivotal search": job.search_id,
    }


def no_room(job: TrainJob, engine: DeepSpeedEngine, step: int) -> DiskFull | None:
    job.checkpoints.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(job.checkpoints).free
    if free >= engine.state_bytes:
        return None
    return DiskFull(
        f"the checkpoint of step {step} takes about {engine.state_bytes >> 20} MiB, and {job.checkpoints} has "
        f"{free >> 20} left; make room and resume: the run continues from its last complete checkpoint"
    )


def _prune(job: TrainJob) -> None:
    for folder in atomic.complete_folders(job.checkpoints, PREFIX)[: -job.train.keep_checkpoints]:
        atomic.delete_folder(folder)
