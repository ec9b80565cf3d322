"""Start, watch and end the processes of a training run: the trainer (under torchrun when there are several), the
rollout workers, and what the stage wants beside them, without which training goes on. Plain functions; the train stage
calls `run_training`.

How such a process is held: tasks/train/shared/child.py. Their logs are in `run_dir/logs`.
"""

from __future__ import annotations

import json
import queue
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.config.placeholders import filled
from tasks.engines.devices import visible_gpus
from tasks.run import placement as placements
from tasks.train.shared import fork_server, time_limits
from tasks.train.shared.child import Child, ChildCommand, Line
from tasks.train.shared.errors import (
    CANNOT_GO_ON,
    STOPPED,
    Interrupted,
    ProcessDied,
    Refused,
    StoppedByGuards,
    is_guard,
)
from tasks.train.shared.job import TrainJob
from tasks.train.trainer import checkpoint

POLL_S = 0.2
MOST_RESTARTS = 5
"""Crashes of a process in a row, without progress between them, after which the run fails.

A trainer's progress is a step that none before it reached."""


@dataclass(slots=True)
class TrainingProcesses:
    """The processes of one training run."""

    job: TrainJob
    job_file: Path
    on_line: Callable[[Line], None]
    beside: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Commands of further processes, by name."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    lines: queue.Queue[tuple[str, Line]] = field(default_factory=queue.Queue[tuple[str, Line]])
    trainer: ChildCommand = field(init=False)
    workers: list[ChildCommand] = field(init=False)
    helpers: list[ChildCommand] = field(init=False)
    running: dict[str, Child] = field(default_factory=dict[str, Child])
    """What was started, by name."""

    def __post_init__(self) -> None:
        logs = self.job.run_dir / "logs"
        count = self.job.train.rollout_workers if self.job.online_per_batch else 0
        placement = placements.place(self.job.config, visible_gpus())

        def process(name: str, command: list[str]) -> ChildCommand:
            environment = placement.environment(name) | dict(self.secrets)
            return ChildCommand(name, command, logs / f"{name}.log", environment)

        self.trainer = process(placements.TRAINER, trainer_command(self.job, self.job_file))
        self.workers = [
            process(placements.worker_name(i), worker_command(self.job, self.job_file, i)) for i in range(count)
        ]
        self.helpers = [process(name, command) for name, command in self.beside.items()]
        if told := placement.lines():
            self.on_line({"placement": "; ".join(told)})

    def supervise(self, cancelled: Callable[[], bool]) -> Line:
        """Run to the end; returns the manifest. Raises ProcessDied, or Interrupted when cancelled."""
        try:
            trainer, workers, helpers = self._started()
            while (status := trainer.status()) != 0:
                if cancelled():
                    raise Interrupted(f"training of run {self.job.run_id!r} was cancelled; it can be resumed")
                self._relay()
                if status is not None:
                    self._trainer_ended(trainer, status)
                for worker in workers:
                    self._look_after(worker)
                for helper in helpers:
                    self._keep(helper)
                time.sleep(POLL_S)
            self._relay()
        finally:
            self._end()
        return json.loads(self.job.manifest.read_text(encoding="utf-8"))

    def _started(self) -> tuple[Child, list[Child], list[Child]]:
        """Trainer, workers and helpers."""

        def start(what: ChildCommand) -> Child:
            child = self.running[what.name] = Child(what, self.lines)
            return child

        return start(self.trainer), [start(what) for what in self.workers], [start(what) for what in self.helpers]

    def _end(self) -> None:
        for child in self.running.values():
            if child.what is not self.trainer:
                child.signal(signal.SIGTERM)
        grace = time_limits.grace_s(self.job.reference, self.job.train)
        for child in self.running.values():
            child.end(grace if child.what is self.trainer else 5.0)
        if self.job.weights != self.job.kept:  # memory; a trainer that resumes publishes anew
            shutil.rmtree(self.job.weights, ignore_errors=True)

    def _relay(self) -> None:
        while not self.lines.empty():
            name, line = self.lines.get()
            child = self.running[name]
            if "error" in line:
                child.last_kind = str(line.get("kind", "error"))
                child.last_error = f"{child.last_kind}: {line['error']}"
            elif self._advanced(child, line):
                child.crashes = 0
            self.on_line(line)

    def _advanced(self, child: Child, line: Line) -> bool:
        """Whether a line tells of progress: steps that a trainer repeats after a crash are none, nor are warnings."""
        if child.what is not self.trainer:
            return True
        further = line.get("done", 0) > child.furthest
        child.furthest = max(child.furthest, line.get("done", 0))
        return further

    def _trainer_ended(self, trainer: Child, status: int) -> None:
        if trainer.last_error:
            kind = StoppedByGuards if is_guard(trainer.last_kind) else Refused
            raise kind(f"the trainer stopped: {trainer.last_error}")
        if status == STOPPED:
            raise Interrupted(f"the trainer of run {self.job.run_id!r} was asked to stop; it can be resumed")
        self._restart(trainer, status)

    def _look_after(self, worker: Child) -> None:
        status = worker.status()
        if status is None:
            return
        self._relay()
        if status == CANNOT_GO_ON:
            raise ProcessDied(f"{worker.name} cannot go on: {worker.last_error or worker.what.tail()}")
        self._restart(worker, status)

    def _keep(self, helper: Child) -> None:
        """Start a helper again once it has died, unless that does not help; training goes on without it."""
        status = helper.status()
        if status is None or helper.gone:
            return
        self._relay()
        if status != CANNOT_GO_ON and helper.crashes < MOST_RESTARTS:
            self._restart(helper, status)
            return
        helper.gone = True
        why = helper.last_error or f"it ended with status {status}: {helper.what.tail()}"
        self.on_line({"warning": f"training goes on without {helper.name}: {why}"})

    def _restart(self, child: Child, status: int) -> None:
        child.crashes += 1
        if child.crashes > MOST_RESTARTS:
            raise ProcessDied(
                f"{child.name} ended {child.crashes} times in a row (last status {status}) without progress; "
                f"the end of {child.what.log}:\n{child.what.tail()}"
            )
        found = checkpoint.newest(self.job)
        since = "the beginning" if found is None else f"step {found.step}"
        note = f" from {since}" if child.what is self.trainer else ""
        self.on_line({"warning": f"{child.name} ended with status {status}; starting it again{note}"})
        child.start()


def get_ready() -> None:
    """Let a process import what trainer, workers and evaluator need, so that they only need to be forked from it.

    Not beside GPUs, whose drivers do not survive a fork: there every process starts from nothing.
    """
    if sys.platform == "linux" and not visible_gpus():
        fork_server.start()


def run_training(
    job_file: Path,
    on_line: Callable[[Line], None],
    cancelled: Callable[[], bool] = lambda: False,
    beside: Mapping[str, list[str]] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Line:
    """Train the job to its end, relaying every line its processes report; returns the manifest.

    `beside`: commands of processes to run meanwhile, by name; one that fails is a warning, not a failure.
    `secrets`, what the warehouse needs beside its location, go into the environment of all of them and nowhere else.

    A run that was interrupted continues from its newest complete checkpoint. Dead processes are started again.
    Raises ProcessDied when that does not help and Interrupted when `cancelled` says so.
    """
    get_ready()
    try:
        job = TrainJob.read(job_file)
        return TrainingProcesses(job, job_file, on_line, beside or {}, secrets or {}).supervise(cancelled)
    finally:
        fork_server.stop()


def trainer_command(job: TrainJob, job_file: Path) -> list[str]:
    """The command of the trainer: plain for one process, torchrun for several, on every host where hosts are named."""
    if job.train.hosts:
        return [sys.executable, "-m", "tasks.train.hosts", str(job_file)]
    if job.train.processes == 1:
        return [sys.executable, "-m", "tasks.train.trainer", str(job_file)]
    grace = str(time_limits.grace_s(job.reference, job.train))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--shutdown-timeout", grace]
    return [*torchrun, "--nproc-per-node", str(job.train.processes), "-m", "tasks.train.trainer", str(job_file)]


def worker_command(job: TrainJob, job_file: Path, index: int) -> list[str]:
    """The command of rollout worker `index`, with what the recipe puts before it."""
    before = filled(job.train.worker_launcher, "train.worker_launcher", index=index)
    return [*before, sys.executable, "-m", "tasks.train.rollout_worker.worker", str(job_file), "--index", str(index)]
