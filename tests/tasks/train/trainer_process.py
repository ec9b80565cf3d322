"""A trainer process for tests: forked with everything imported where it is one process, under torchrun otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Protocol

from tasks.train.shared.job import TrainJob
from tasks.train.supervisor import trainer_command
from tests.fork_server import preload, process_of

preload("tests.tasks.train.preloading")


class TrainerProcess(Protocol):
    """What tests use of a `subprocess.Popen`."""

    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> Any: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, bytes]: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...


class ForkedTrainer:
    """A trainer forked from the fork server, with pipes like those of a `subprocess.Popen`."""

    def __init__(self, job_file: Path, errors: Path) -> None:
        self._errors = errors
        reading, writing = os.pipe()
        self._process = process_of(_train, str(job_file), str(errors), DupFd(writing))
        self._process.start()
        os.close(writing)
        self.stdout: IO[bytes] | None = os.fdopen(reading, "rb")

    @property
    def returncode(self) -> int | None:
        """Exit status, the negative number of the signal that killed it, None while it runs."""
        return self._process.exitcode

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, bytes]:
        """The rest of its output and all of its errors, once it has ended (`timeout` counts from its last output)."""
        assert self.stdout is not None
        with self.stdout as lines:
            output = lines.read()
        self._process.join(timeout)
        return output, self._errors.read_bytes()

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, sig)

    def kill(self) -> None:
        """Kill -9."""
        self.send_signal(signal.SIGKILL)


def start(job: TrainJob) -> TrainerProcess:
    """The trainer of a job whose file lies beside its folder."""
    job_file = job.run_dir.parent / "job.json"
    if job.train.processes == 1:
        return ForkedTrainer(job_file, job_file.with_suffix(".errors"))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        trainer_command(job, job_file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def _train(job_file: str, errors: str, output: Any) -> None:
    from tasks.train.trainer.__main__ import main

    with open(errors, "wb") as log:
        os.dup2(log.fileno(), 2)
    os.dup2(output.detach(), 1)
    sys.exit(main([job_file]))
