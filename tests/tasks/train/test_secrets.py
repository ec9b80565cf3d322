from __future__ import annotations

import sys
from pathlib import Path

from tasks.sampling.reference_counts import CountsFilter
from tasks.train.shared.job import TrainJob
from tasks.train.supervisor import TrainingProcesses
from tests.tasks.train.conftest import config
from warehouse.location import parse_location

LOCATION = "postgresql://user:secret@host/db?schema=spo&data=/shared/"


def test_every_process_of_a_run_gets_the_credentials_in_its_environment_and_no_file_holds_them(tmp_path: Path) -> None:
    parsed = parse_location(LOCATION)
    job = TrainJob(
        run_id="run",
        warehouse=str(parsed),
        run_dir=tmp_path,
        reference=tmp_path,
        config=config(),
        counts=CountsFilter(
            reference="r", sampling="s", template_id="t", problems_batch="p", prompts_batch="q", left_out="l"
        ),
        problems_batch="problems",
        prompts_batch="prompts",
    )
    job_file = job.write(tmp_path / "job.json")
    run = TrainingProcesses(job, job_file, lambda _: None, {"helper": [sys.executable]}, parsed.credentials())
    children = [run.trainer, *run.workers, *run.helpers]
    assert len(children) == 2 + job.train.rollout_workers
    assert [child.environment["PGPASSWORD"] for child in children] == ["secret"] * len(children)
    assert "secret" not in job_file.read_text(encoding="utf-8") + repr(run) + str([child.command for child in children])
    assert parse_location(job.warehouse).postgres == parsed.postgres
