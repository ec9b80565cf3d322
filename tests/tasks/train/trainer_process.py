"""A trainer process for tests: forked with everything imported, or under torchrun."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
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
    """The processes of a trainer forked from the fork server, with pipes like those of a `subprocess.Popen`."""

    def __init__(self, job_file: Path, errors: Path, processes: int = 1) -> None:
        self._errors = errors
        errors.write_bytes(b"")
        reading, writing = os.pipe()
        group = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        ranks = [group | dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)) for rank in range(processes)]
        ranks = ranks if processes > 1 else [{}]
        given = str(job_file), str(errors)
        self._processes = [process_of(_train, *given, DupFd(writing), rank) for rank in ranks]
        for process in self._processes:
            process.start()
        os.close(writing)
        self.stdout: IO[bytes] | None = os.fdopen(reading, "rb")

    @property
    def returncode(self) -> int | None:
        """Exit status, the negative number of the signal that killed it, None while it runs."""
        found = [process.exitcode for process in self._processes]
        return None if None in found else next(filter(None, found), 0)

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, bytes]:
        """The rest of its output and all of its errors, once it has ended (`timeout` counts from its last output)."""
        assert self.stdout is not None
        with self.stdout as lines:
            output = lines.read()
        for process in self._processes:
            process.join(timeout)
        return output, self._errors.read_bytes()

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal."""
        for process in self._processes:
            assert process.pid is not None
            os.kill(process.pid, sig)

    def kill(self) -> None:
        """Kill -9."""
        self.send_signal(signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(job: TrainJob, *, torchrun: bool = True) -> TrainerProcess:
    """The trainer of a job whose file lies beside its folder; several processes by torchrun or without it."""
    job_file = job.run_dir.parent / "job.json"
    if job.train.processes == 1 or not torchrun:
        return ForkedTrainer(job_file, job_file.with_suffix(".errors"), job.train.processes)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        trainer_command(job, job_file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def _train(job_file: str, errors: str, output: Any, group: Mapping[str, str]) -> None:
    from tasks.train.trainer.__main__ import main

    os.environ.update(group)
    with open(errors, "ab") as log:
        os.dup2(log.fileno(), 2)
    os.dup2(output.detach(), 1)
    sys.exit(main([job_file]))
