"""`python -m tasks.train.trainer JOB.json`: one trainer process, plainly or under torchrun.

What it prints and how it ends: tasks/train/shared/process.py.
"""

from __future__ import annotations

import os
import sys
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

        from tasks.train.shared.job import TrainJob
        from tasks.train.trainer.loop import train

        job = TrainJob.read(Path(argv[0]))
        torch.set_num_threads(job.train.threads)
        train(job, report)

    return run_process(body, refusals=(TrainerError, ScoringError), status=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
