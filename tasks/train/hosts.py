"""`python -m tasks.train.hosts JOB.json`: the trainer on several machines, one torchrun on each of `train.hosts`.

The first host is this machine; the others are reached over `train.remote_shell` (ssh), must have the project at the
same path, and share the run's folder with this one. Only the first process of all reads and writes the warehouse, so
the others need no credentials. Standard input is passed on: when it closes, every process stops with a checkpoint. When
the processes of one machine end, those of all others are ended; the exit status is that of the first to fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tasks.config.hostfile import host_of
from tasks.config.placeholders import filled
from tasks.train.shared import time_limits, trainer_lock
from tasks.train.shared.errors import TrainerError
from tasks.train.shared.job import TrainJob

POLL_S = 0.2
PORT_WAIT_S = 60.0
"""Time that the torchruns of a trainer that has ended get to end as well."""
PASSED_ON = ("PYTHONPATH", "OMP_NUM_THREADS", "SPO_HOME", "HF_HOME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Environment variables that the other machines get too; no secret is among them."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that trains."""

    name: str
    processes: int


def hosts(lines: Sequence[str]) -> list[Host]:
    """The machines that the lines of a hostfile (`name slots=8`) describe. Raises TrainerError and InvalidConfig."""
    found: list[Host] = []
    for line in filled(lines, "train.hosts"):
        try:
            found.append(Host(*host_of(line)))
        except ValueError as error:
            raise TrainerError(f"train.{error}") from error
    return found


def command(job: TrainJob, job_file: Path, rank: int) -> list[str]:
    """What is started here for machine number `rank`."""
    machines = hosts(job.train.hosts)
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(len(machines)), "--node-rank", str(rank), "--nproc-per-node", str(machines[rank].processes)),
        *("--shutdown-timeout", str(time_limits.grace_s(job.reference, job.train))),
        *("--master-addr", machines[0].name, "--master-port", str(job.train.rendezvous_port)),
        *("-m", "tasks.train.trainer", str(job_file)),
    ]
    if rank == 0 or not job.train.remote_shell:
        return torchrun
    settings = [f"{name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
    there = f"cd {shlex.quote(os.getcwd())} && exec env {shlex.join([*settings, *torchrun])}"
    name, named = machines[rank].name, any("{host}" in part for part in job.train.remote_shell)
    shell = filled(job.train.remote_shell, "train.remote_shell", host=name)
    return [*shell, there] if named else [*shell, name, there]


class ProcessGroup:
    """The torchruns of all machines."""

    def __init__(self, commands: Sequence[Sequence[str]], grace_s: float) -> None:
        """`grace_s`: time the processes get to write their checkpoint before they are killed."""
        self._grace_s = grace_s
        given, self._input = os.pipe()
        self.processes = [subprocess.Popen(line, stdin=given, start_new_session=True) for line in commands]
        os.close(given)
        self._deadline: float | None = None

    def stop(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Ask all of them to stop with a checkpoint."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace_s
            os.close(self._input)

    def wait(self) -> int:
        """The exit status: 0 when all machines finish, else that of the first that failed."""
        failed = 0
        while True:
            ended = [process.poll() for process in self.processes]
            failed = failed or next((status for status in ended if status), 0)
            if all(status is not None for status in ended):
                return failed
            if failed:
                self.stop()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._kill()
            time.sleep(POLL_S)

    def _kill(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Start the trainer of the job `argv[0]` on all its machines and wait."""
    job_file = Path(argv[0])
    job = TrainJob.read(job_file)
    try:
        _await_earlier(job)
    except TrainerError as error:
        _report({"error": str(error), "kind": type(error).__name__})
        return 1
    commands = [command(job, job_file, rank) for rank in range(len(job.train.hosts))]
    group = ProcessGroup(commands, time_limits.grace_s(job.reference, job.train))
    signal.signal(signal.SIGTERM, group.stop)
    if job.end_on_stdin_eof:
        threading.Thread(target=lambda: (_drain(), group.stop()), daemon=True).start()
    return group.wait()


def _await_earlier(job: TrainJob) -> None:
    """Wait for a trainer of the run that is ending, whose torchrun has the port: beside it each start would fail.

    Raises TrainerError when it does not end. A port that stays taken is for torchrun to name.
    """
    patience_s = time_limits.patience_s(job.reference, job.train)
    trainer_lock.await_end(job.run_dir, patience_s, lambda message: _report({"warning": message}))
    deadline = time.monotonic() + PORT_WAIT_S
    while not _free(job.train.rendezvous_port) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _report(line: dict[str, str]) -> None:
    """One line for the supervisor, as trainers write them (tasks/train/shared/process.py)."""
    print(json.dumps(line), flush=True)


def _drain() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
