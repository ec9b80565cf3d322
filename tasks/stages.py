"""The stages of the pipeline, in order: the only list of stages there is."""

from __future__ import annotations

from typing import Any

from tasks.corpus import stage as corpus
from tasks.evaluate import stage as evaluate
from tasks.pivotal import stage as pivotal
from tasks.prepare import stage as prepare
from tasks.q0 import stage as q0
from tasks.report import stage as report
from tasks.run.stage import Stage
from tasks.run.stage_names import STAGE_NAMES, StageName
from tasks.train import stage as train

STAGES: dict[StageName, Stage[Any]] = {
    stage.name: stage
    for stage in (
        prepare.STAGE,
        q0.STAGE,
        corpus.STAGE,
        pivotal.STAGE,
        train.STAGE,
        evaluate.STAGE,
        report.STAGE,
    )
}
if tuple(STAGES) != STAGE_NAMES:
    raise TypeError(f"the stages {', '.join(STAGES)} are not those that `StageName` lists in this order")
