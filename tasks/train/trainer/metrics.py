"""The figures of a step, and where they go."""

from __future__ import annotations

import importlib
import math
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tasks.train.shared.errors import TrainerError
from tasks.train.shared.job import TrainJob
from tasks.train.trainer.spo_step import SequenceRecord

Figures = dict[str, float]
AGES = (0, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Ages in optimizer steps at which groups of trajectories begin."""


def summarize(records: Sequence[SequenceRecord], step: int | None = None) -> Figures:
    """Means over the batch and per source; `value_error/*` is mean |y_T - r/beta| (nats) by reward class.

    `pull_above` is the share of all pull at the policy that comes from failures with y_T above 0. `log_ratio` is mean
    |log pi_theta/pi_sampler| (nats a token). Given the `step`, `age/*` are means by the age of what the run sampled.
    """
    figures = _group("", records)
    for source in dict.fromkeys(record.source for record in records):
        figures |= _group(f"{source}/", [record for record in records if record.source == source])
    return figures if step is None else figures | by_age(records, step)


def by_age(records: Sequence[SequenceRecord], step: int) -> Figures:
    """`age/FROM/*`: sequences, y_T, loss and log-ratio of those whose weights are FROM optimizer steps old or more.

    A step that is drawn anew may take what later weights of its first course sampled: such are of age 0.
    """
    groups: dict[int, list[SequenceRecord]] = {}
    for record in records:
        if record.sampled_step is not None:
            age = step - record.sampled_step
            groups.setdefault(max((start for start in AGES if start <= age), default=0), []).append(record)
    figures: Figures = {}
    for start, members in groups.items():
        prefix = f"age/{start}/"
        figures |= {f"{prefix}sequences": float(len(members)), f"{prefix}y_T": _mean([r.y_T for r in members])}
        figures[f"{prefix}loss"] = _mean([r.loss for r in members])
        figures |= {prefix + name: value for name, value in _log_ratio(members).items()}
    return figures


def _log_ratio(records: Sequence[SequenceRecord]) -> Figures:
    known = [abs(r.log_ratio) for r in records if r.log_ratio is not None]
    return {"log_ratio": _mean(known)} if known else {}


def _group(prefix: str, records: Sequence[SequenceRecord]) -> Figures:
    passed = [r for r in records if r.terminal == 0]
    failed = [r for r in records if r.terminal != 0]
    figures = {
        "loss": _mean([r.loss for r in records]),
        "y_T": _mean([r.y_T for r in records]),
        "entropy": _mean([r.entropy for r in records]),
        "length": _mean([r.length for r in records]),
        "stop_fraction": _mean([r.stopped for r in records]),
        "pass_fraction": len(passed) / len(records),
        "largest_advantage": max(r.largest_advantage for r in records),
    }
    if passed:
        figures["value_error/pass"] = _mean([abs(r.y_T - r.terminal) for r in passed])
    if failed:
        figures["value_error/fail"] = _mean([abs(r.y_T - r.terminal) for r in failed])
        figures["clipped_fraction"] = _mean([r.y_T > 0 for r in failed])
    figures |= _log_ratio(records)
    pull = math.fsum(r.pull for r in records)
    if pull > 0:
        figures["pull"] = pull / len(records)
        figures["pull_above"] = math.fsum(r.pull for r in failed if r.y_T > 0) / pull
    return {prefix + name: value for name, value in figures.items()}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def peak_memory_mb() -> float:
    """Most memory this process has held so far, in MB: of the GPU if it uses one, else resident in main memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    # not ru_maxrss, which on Linux begins at the peak of the process that started this one
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6


class TensorBoard:
    """TensorBoard's files in the run's folder; what a killed process wrote after step `after` is left out."""

    def __init__(self, job: TrainJob, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(job.run_dir / "tensorboard"), purge_step=after + 1)

    def write(self, step: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(f"train/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class Tracker:
    """Weights & Biases, or Trackio, which has the same calls. A resumed run continues its entry."""

    def __init__(self, package: str, job: TrainJob) -> None:
        """Raises TrainerError when the package is not installed."""
        try:
            self._package: Any = importlib.import_module(package)
        except ImportError as error:
            raise TrainerError(
                f"train.report_to names {package!r}, which cannot be imported ({error}); "
                f"`pip install {package}`, or take it out of train.report_to"
            ) from error
        names = {"id": job.run_id} if package == "wandb" else {}
        settings = job.config.model_dump(mode="json")
        self._package.init(project="spo", name=job.run_id, config=settings, resume="allow", **names)

    def write(self, step: int, figures: Figures) -> None:
        self._package.log({f"train/{name}": value for name, value in figures.items()}, step=step)

    def close(self) -> None:
        self._package.finish()


def open_trackers(job: TrainJob) -> list[Tracker]:
    """The trackers that the recipe names besides TensorBoard. Raises TrainerError when one is not installed."""
    return [Tracker(name, job) for name in job.train.report_to if name != "tensorboard"]
