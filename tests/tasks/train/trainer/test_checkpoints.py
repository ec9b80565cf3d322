"""Which checkpoints are written, and which are taken for the run's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasks.checkpoints.checkpoint import PUBLISHED_FILE
from tasks.config import validate
from tasks.train.shared import published_weights
from tasks.train.trainer import checkpoint, publisher
from tasks.train.trainer.session import Session, require_same_warehouse
from tasks.train.trainer.state import MixState, ReferenceSteps
from tests.refusals import refused
from warehouse import Warehouse


class Settled(Session):
    """A session in which nothing is being published."""

    def settle(self) -> None:
        return


def test_a_step_that_has_its_checkpoint_gets_no_second_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that is asked in a step where one was due would write it again, and delete the first meanwhile."""
    written: list[int] = []

    def save(job: Any, _engine: Any, step: int, *_: Any) -> None:
        written.append(step)
        (job.checkpoints / f"{checkpoint.PREFIX}{step:08d}").mkdir(parents=True)

    monkeypatch.setattr(checkpoint, "save", save)
    flushed: list[None] = []
    mix = SimpleNamespace(state=MixState)
    rank_zero = SimpleNamespace(recorder=SimpleNamespace(flush=lambda: flushed.append(None)), mix=mix)
    engine = SimpleNamespace(share=lambda value: value)
    job = SimpleNamespace(checkpoints=tmp_path / "checkpoints")
    session = Settled.__new__(Settled)
    session.job, session.engine, session.rank_zero = cast("Any", job), cast("Any", engine), cast("Any", rank_zero)
    session.references, session.before = ReferenceSteps(), MixState()
    for step in (2, 2, 3):
        session.step = step
        session.save(drawing=step == 2)
    assert written == [2, 3]
    assert len(flushed) == 3, "what was recorded is visible either way"


def test_a_checkpoint_of_steps_that_the_warehouse_has_never_seen_is_another_ones(tmp_path: Path) -> None:
    job = cast("Any", SimpleNamespace(run_id="tiny-1", run_dir=tmp_path, checkpoints=tmp_path / "checkpoints"))
    with Warehouse.open(tmp_path / "warehouse") as store:
        with refused("ResumeImpossible", "'tiny-1'"):
            require_same_warehouse(store, job, 6)
        batch = {"step": 6, "trajectory_ids": ["t0"], "sources": ["online"]}
        store.append("train/tiny-1/6", {"train_batches": [batch]}, run_id="tiny-1")
        require_same_warehouse(store, job, 6)
        store.append("bad", {"quarantine": [{"bad_batch_id": "train/tiny-1/6", "reason": "bad"}]}, run_id="hand")
        require_same_warehouse(store, job, 6)
        with refused("ResumeImpossible", "6 steps"):
            require_same_warehouse(store, job, 7)


def test_a_run_that_takes_steps_again_keeps_the_weights_of_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = {"checkpoint_interval": 100, "snapshot_interval": 20, "model_update_interval": 10}
    train = validate({"train": {"steps": 400} | intervals}).train
    job = cast("Any", SimpleNamespace(weights=tmp_path, kept=tmp_path, train=train))

    def written(_: Any, gathered: Any) -> published_weights.Published:
        folder = published_weights.folder_of(tmp_path, gathered.step)
        folder.mkdir(exist_ok=True)
        text = f'{{"step": {gathered.step}, "policy_id": "p", "canaries": []}}'
        (folder / PUBLISHED_FILE).write_text(text)
        (tmp_path / published_weights.LATEST).write_text(folder.name)
        return published_weights.Published(gathered.step, "p", folder)

    monkeypatch.setattr(publisher, "_written", written)
    for step in (*range(0, 191, 10), 110):  # killed, and resumed from step 100
        publisher.write(job, cast("Any", SimpleNamespace(step=step)))
    steps = [one.step for one in published_weights.kept(tmp_path, every=20, last=400)]
    assert steps == list(range(20, 181, 20))
    assert [one.step for one in published_weights.kept(tmp_path, every=20, last=60)] == [20, 40, 60]
