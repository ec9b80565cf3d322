"""Refreshing the reference: every so many steps a snapshot of the policy becomes pi_0 (an extension, section 6).

At a multiple of `train.reference_refresh_interval` the weights published there are nominated. The workers keep sampling
from them, at temperature 1 and top-p 1, until every problem has `train.reference_refresh_samples` judged responses of
the nominee; meanwhile training goes on under the present reference. Then the counts are stored under the nominee's
policy id, the soft values come from them, and the nominee is the reference. When to stop sampling depends on numbers
of samples alone, never on their results, so the estimates stay unbiased.

The step of the change is recorded with the counts: a resumed run changes at the same step, with the same values.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.checkpoints.checkpoint import policy_id
from tasks.scoring.reference import load_reference
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.session import RankZeroState, Session, open_store
from tasks.train.trainer.state import ReferenceSteps
from warehouse import Warehouse
from warehouse.queries import query

COUNTS = query(__name__, "counts")
RECORDED = query(__name__, "recorded")


def renew(session: Session) -> bool:
    """Nominate the policy after the present step, or make the nominee the reference when it is time.

    Returns whether the reference changed. Collective.
    """
    interval, references = session.job.train.reference_refresh_interval, session.references
    if not interval:
        return False
    if not references.nominee:
        due = session.step % interval == 0
        if due:
            session.settle()  # `time_has_come` and workers look for the nominee's folder
        session.references = replace(references, nominee=session.step if due else 0)
        return False
    rank_zero = session.rank_zero
    if not session.engine.share(rank_zero is not None and time_has_come(session, rank_zero)):
        return False
    session.references = ReferenceSteps(present=references.nominee)
    install(session)
    return True


def install(session: Session) -> None:
    """Make `session.references.present` the reference of the session: weights, soft values, fingerprint."""
    job = session.job
    folder = published_weights.folder_of(job.kept, session.references.present)
    dtype = job.config.reference.dtype
    device = session.engine.device
    session.reference.close()  # before: there may be no room for two
    session.reference = load_reference(folder, job.train, dtype, device)
    if session.rank_zero is None:
        return
    warehouse = session.rank_zero.warehouse
    session.rank_zero.store = open_store(warehouse, job, folder, device.type)
    session.rank_zero.mix.revalue(values_under(warehouse, job, folder))


def values_under(warehouse: Warehouse, job: TrainJob, folder: Path) -> dict[str, float]:
    """y_0 per problem under the weights in `folder`, of the counts with which they became the reference.

    Other runs may count samples of the same weights, and this one may have stored some twice, when it trained some
    steps anew: the first change is the one that stands. Problems that they never solve are kept with `q0.prior`.
    """
    nominee, changes = policy_id(folder), f"reference/{job.run_id}/"
    own = sorted(batch for batch in warehouse.committed_under(changes) if batch.endswith(f"/{nominee}"))
    of_change = own[0] if own else changes  # the latter by version 0.1
    counts = job.counts.model_copy(update={"reference": nominee, "until": None, "only": of_change})
    q0 = job.config.q0.model_copy(update={"zero_successes": "keep"})
    config = job.config.model_copy(update={"q0": q0})
    return prompt_values(warehouse, job.model_copy(update={"counts": counts, "config": config}))


def time_has_come(session: Session, rank_zero: RankZeroState) -> bool:
    """Whether the nominee becomes the reference after this step; its counts are stored then."""
    job, warehouse = session.job, rank_zero.warehouse
    nominee = policy_id(published_weights.folder_of(job.kept, session.references.nominee))
    step = f"reference/{job.run_id}/{session.step:08d}"
    batch = f"{step}/{nominee}"  # of these weights: steps may be trained anew
    if warehouse.committed([batch]) or warehouse.value(RECORDED, [step, nominee]):  # the latter by version 0.1
        return True
    if session.step <= rank_zero.last_recorded:
        return False
    found = warehouse.rows(COUNTS, (job.run_id, nominee, nominee))
    sampled = {row["problem_id"] for row in found if row["n"] >= job.train.reference_refresh_samples}
    if not sampled.issuperset(rank_zero.mix.examples.values):
        return False
    warehouse.append(batch, {"reference_counts": [_counts_row(row, nominee, job) for row in found]}, run_id=job.run_id)
    message = f"after step {session.step} the policy of step {session.references.nominee} is the reference"
    rank_zero.recorder.event("reference", message)
    return True


def _counts_row(row: dict[str, Any], reference: str, job: TrainJob) -> dict[str, Any]:
    return row | {"reference": reference, "sampling": job.counts.sampling, "template_id": job.counts.template_id}
