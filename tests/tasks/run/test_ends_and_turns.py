"""Two processes with the same work: the second says whom it waits for. A signal from outside is no failure."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tasks import config
from tasks.checks import plan
from tasks.run import runs
from tasks.run import stage as stages
from tasks.run.manifests import PrepareManifest
from tasks.run.stage import Context, run_stage
from tasks.stages import STAGES
from warehouse import Warehouse


def test_who_does_the_same_work_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    told, waiting = list[str](), threading.Event()

    def tell(*shown: object) -> None:
        told.append(str(shown[-1]))
        waiting.set()

    with Warehouse.open(tmp_path / "warehouse") as store, Warehouse.open(tmp_path / "warehouse") as other:
        context = Context("tiny-1", config.validate({}), store, tmp_path, progress=tell)

        def second() -> None:
            with stages.turn(context, "stage/key", short_wait_s=0.2):
                told.append("its turn")

        thread = threading.Thread(target=second)
        with other.lock("stage/key", timeout_s=5):
            thread.start()
            assert waiting.wait(20)
            assert len(told) == 1
        thread.join(20)
    assert f"held by process {os.getpid()}" in told[0]
    assert told[1] == "its turn"


@pytest.mark.parametrize(("error", "state"), [(KeyboardInterrupt(), "cancelled"), (OSError("gone"), "failed")])
def test_a_stage_that_was_stopped_from_outside_is_cancelled_and_not_failed(
    tmp_path: Path, error: BaseException, state: str
) -> None:
    def body(_: Context) -> PrepareManifest:
        raise error

    with Warehouse.open(tmp_path / "warehouse") as store:
        run_id = runs.create(store, config.validate({}), origin="test")
        context = Context(run_id, runs.load_config(store, run_id), store, tmp_path)
        with pytest.raises(type(error)):
            run_stage(replace(STAGES["prepare"], body=body), context)
        assert plan.statuses(store, run_id, tmp_path)[0].state == state
