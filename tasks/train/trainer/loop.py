"""The training loop."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.config import TrainConfig
from tasks.engines.canary import MEAN_DRIFT
from tasks.scoring.example import Example
from tasks.train.shared import atomic, published_weights
from tasks.train.shared.errors import GuardTripped, Interrupted, ReferenceDrift
from tasks.train.shared.job import TrainJob
from tasks.train.shared.process import ReportLine
from tasks.train.trainer import guards, movement, reference_refresh
from tasks.train.trainer.algorithm import Update
from tasks.train.trainer.metrics import Figures, peak_memory_mb, summarize
from tasks.train.trainer.session import RankZeroState, Session, open_session

PACE_STEPS = 50
NOT_COMPARED = (
    "the layout of training was not compared with the model's own forward pass: pi_0's weights wait in main memory "
    "(train.reference_weights); with 'device' they are compared"
)


def train(job: TrainJob, report: ReportLine) -> dict[str, Any]:
    """Train until the last step; returns the manifest. Raises Interrupted after a checkpoint when asked to stop."""
    with open_session(job) as session:
        pace = StepRate()
        imitation = job.train.objective_kinds == {"likelihood"}
        binary = job.train.reward == "binary"
        watch = guards.CollapseWatch(
            job.train.guards, regression=job.train.regression, imitation=imitation, binary=binary
        )
        if session.references.present:
            reference_refresh.install(session)
        if session.rank_zero is not None:
            _tell(session, session.rank_zero, session.rank_zero.mix.shortages(), report)
        first = session.step
        if session.engine.share(session.rank_zero is not None and nothing_to_sample_from(session)):
            session.hand_over()
        while session.step < job.train.steps:
            try:
                figures = advance(session, checked=session.step == first)
            except Interrupted:
                figures = None
            except GuardTripped as error:
                raise session.checkpoint_before_abort(error) from error
            if session.engine.share(figures is None or session.stop()):
                session.save(drawing=figures is None)
                raise Interrupted(f"asked to stop; checkpoint of step {session.step} written")
            if session.rank_zero is not None and figures is not None:
                _warn(session, session.rank_zero, watch, figures, report)
                report(progress(session, figures, pace.steps_per_s()))
        return _finish(session)


def nothing_to_sample_from(session: Session) -> bool:
    """Whether workers find no weights, or in shared memory those of an earlier stay on this machine."""
    job, found = session.job, published_weights.latest(session.job.weights)
    if found is None:
        return True
    return job.weights != job.kept and found.step <= session.step - job.train.model_update_interval


def advance(session: Session, *, checked: bool = False) -> Figures:
    """One optimizer step with everything that belongs to it; returns its figures (empty on other processes)."""
    job, engine, step = session.job, session.engine, session.step + 1
    began = time.monotonic()
    batch, stored = session.next_batch(step)
    waited = time.monotonic() - began
    if checked or step % job.train.guards.canary_interval == 0:
        check(session, batch, stored)
    with movement.measured(session, batch, step) as moved:
        update = session.algorithm.update(engine, session.reference, batch, stored, step)
    session.step = step
    seconds = time.monotonic() - began
    publish_s = 0.0
    if due(step, job.train, job.train.model_update_interval, job.train.snapshot_interval):
        # before recording: a worker that waits for the record finds the new weights
        publish_s = session.publish(step, announced=due(step, job.train, job.train.model_update_interval))
    figures: Figures = {}
    if session.rank_zero is not None:
        figures = record(
            session,
            session.rank_zero,
            batch,
            update,
            moved | {"seconds": seconds, "wait_s": waited, "publish_s": publish_s},
        )
    if reference_refresh.renew(session):
        session.publish(step)
    if due(step, job.train, job.train.checkpoint_interval):
        session.save()
    return figures


def due(step: int, train: TrainConfig, *intervals: int) -> bool:
    """Whether something that happens every so many steps, and after the last one, happens after `step`."""
    return step == train.steps or any(step % interval == 0 for interval in intervals)


def check(session: Session, batch: Sequence[Example], stored: dict[str, Sequence[float]]) -> None:
    """The guards that need a forward pass: layout, zero advantages before the first step, stored log-probabilities."""
    few = session.engine.share(list(batch[: guards.CHECKED]) if session.rank_zero is not None else None)
    if session.step == 0:
        if session.reference.waits_elsewhere:
            if session.rank_zero is not None:
                print(NOT_COMPARED, file=sys.stderr, flush=True)
        else:
            guards.check_layout(session.reference, few, session.job.config.reference.dtype)
        guards.check_start(session.scored(few), session.reference, few)
    drift = None
    if session.rank_zero is not None:
        try:
            most = session.job.train.guards.max_logprob_drift or MEAN_DRIFT[session.job.config.reference.dtype]
            guards.check_stored(session.reference, batch, stored, most)
        except ReferenceDrift as error:
            drift = error
    session.engine.raise_together(drift)


def record(
    session: Session, rank_zero: RankZeroState, batch: Sequence[Example], update: Update, figures: Figures
) -> Figures:
    """Write the step down; returns all its figures."""
    by_id = {(r.source, r.trajectory_id): r for r in update.records}
    records = [by_id[example.source, example.trajectory_id] for example in batch]
    figures = summarize(records, session.step) | update.figures | figures
    figures["peak_memory_mb"] = peak_memory_mb()
    figures["tokens_per_s"] = sum(example.length for example in batch) / figures["seconds"]
    state = rank_zero.mix.state()
    rank_zero.recorder.record(session.step, records, figures, rank_zero.store.add(update.computed), state.watermark)
    return figures


class StepRate:
    """How fast steps come, over the last ones: the first are slow, and workers start and pause."""

    def __init__(self) -> None:
        self._ends = deque([time.monotonic()], maxlen=PACE_STEPS + 1)

    def steps_per_s(self) -> float:
        """The rate, a step having ended now."""
        self._ends.append(time.monotonic())
        return (len(self._ends) - 1) / (self._ends[-1] - self._ends[0])


def progress(session: Session, figures: Figures, rate: float) -> dict[str, Any]:
    """A progress line: done, total, unit, rates, time left (s), and a note for people."""
    done, total = session.step, session.job.train.steps
    errors = " ".join(
        f"|y_T-r| {name} {figures[key]:.2f}"
        for name, key in (("pass", "value_error/pass"), ("fail", "value_error/fail"))
        if key in figures
    )
    note = (
        f"loss {figures['loss']:.3f} {errors} norm {figures['grad_norm']:.2f} "
        f"{figures['tokens_per_s']:.0f} tokens/s wait {figures['wait_s']:.1f}s"
    )
    if session.warned:
        note += f", warned of: {', '.join(sorted(session.warned))}"
    return {
        "done": done,
        "total": total,
        "unit": "steps",
        "note": note,
        "steps_per_s": round(rate, 4),
        "left_s": round((total - done) / rate, 1),
    }


def _warn(
    session: Session, rank_zero: RankZeroState, watch: guards.CollapseWatch, figures: Figures, report: ReportLine
) -> None:
    _tell(session, rank_zero, watch.warnings(figures), report)


def _tell(session: Session, rank_zero: RankZeroState, warnings: Mapping[str, str], report: ReportLine) -> None:
    """Each kind of warning once, where people look: in the log, in the progress and in the run's history."""
    for kind, warning in warnings.items():
        if kind in session.warned:
            continue
        session.warned.add(kind)
        print(f"step {session.step}: {warning}", file=sys.stderr, flush=True)
        report({"warning": warning, "step": session.step})
        rank_zero.recorder.event("warning", f"step {session.step}: {warning}")


def _finish(session: Session) -> dict[str, Any]:
    job = session.job
    if session.engine.share(session.published is None):
        session.publish(session.step)
    session.settle()
    manifest: dict[str, Any] = {}
    if session.rank_zero is not None and session.published is not None:
        session.rank_zero.recorder.flush()
        manifest = {
            "run_id": job.run_id,
            "steps": session.step,
            "policy_id": session.published.policy_id,
            "path": str(session.published.folder),
            "snapshot": session.rank_zero.warehouse.snapshot(),
            "reference": job.counts.reference,
            "problems": len(session.rank_zero.mix.examples.values),
        }
        atomic.write_text(job.manifest, json.dumps(manifest, indent=2))
    return manifest
