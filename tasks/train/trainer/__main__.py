"""`python -m tasks.train.trainer JOB.json`: one trainer process, plainly or under torchrun.

Standard output carries line-JSON progress and nothing else; what libraries print goes to standard error.
Exit status: 0 finished, 3 stopped on request after a checkpoint, 1 an error (its last line says which).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tasks.scoring.errors import ScoringError
from tasks.train.shared.errors import STOPPED, Interrupted, TrainerError


def main(argv: list[str]) -> int:
    """Train the job of the file `argv[0]`."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def report(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")

    os.environ.setdefault("TQDM_DISABLE", "1")
    from tasks.train.shared.job import TrainJob
    from tasks.train.trainer.loop import train

    try:
        train(TrainJob.read(Path(argv[0])), report)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return STOPPED
    except (TrainerError, ScoringError) as error:
        report({"error": str(error), "kind": type(error).__name__})
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
