"""`python -m tasks.train.trainer JOB.json`: one trainer process, plainly or under torchrun.

What it prints and how it ends: tasks/train/shared/process.py.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

from tasks.scoring.errors import ScoringError
from tasks.train.shared.errors import TrainerError
from tasks.train.shared.process import ReportLine, run_process


def main(argv: list[str]) -> int:
    """Train the job of the file `argv[0]`."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")

    def body(report: ReportLine) -> None:
        import torch  # after standard output is taken away from what it prints

        from tasks.train.shared import time_limits, trainer_lock
        from tasks.train.shared.job import TrainJob
        from tasks.train.trainer.loop import train

        job = TrainJob.read(Path(argv[0]))
        torch.set_num_threads(job.train.threads)
        patience_s = time_limits.patience_s(job.reference, job.train)
        first = os.environ.get("RANK", "0") == "0"
        with trainer_lock.held(job.run_dir, patience_s, _say) if first else nullcontext():
            train(job, report)

    return run_process(body, refusals=(TrainerError, ScoringError), status=1)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
