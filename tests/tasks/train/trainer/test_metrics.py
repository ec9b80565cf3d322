"""Where figures go besides the warehouse."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.train.trainer.metrics import by_age, open_trackers, peak_memory_mb
from tasks.train.trainer.recorder import Recorder
from tasks.train.trainer.spo_step import SequenceRecord
from tests.refusals import refused
from tests.tasks.train.conftest import RUN, config, make_job
from tests.tasks.train.forked import answer_of
from warehouse import Warehouse

RECORDING_PACKAGE = """
import json, pathlib
FILE = pathlib.Path(__file__).with_suffix(".jsonl")
def _write(call, **arguments):
    with FILE.open("a") as file:
        file.write(json.dumps([call, arguments]) + "\\n")
def init(**arguments): _write("init", **arguments)
def log(figures, step): _write("log", figures=figures, step=step)
def finish(): _write("finish")
"""


@pytest.fixture(params=["wandb", "trackio"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of the tracker's name that writes every call into a file beside it."""
    name = str(request.param)
    (tmp_path / f"{name}.py").write_text(RECORDING_PACKAGE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_tracker_gets_every_step_and_a_resumed_run_continues_its_entry(
    tracker: str, tmp_path: Path, reference: Path
) -> None:
    job = make_job(tmp_path, reference, config(report_to=[tracker]))
    for _ in range(2):
        (opened,) = open_trackers(job)
        opened.write(3, {"loss": 0.5})
        opened.close()
    calls: list[Any] = [json.loads(line) for line in (tmp_path / f"{tracker}.jsonl").read_text().splitlines()]
    assert [call for call, _ in calls] == ["init", "log", "finish"] * 2
    first, second = calls[0][1], calls[3][1]
    assert first == second
    assert (first["name"], first["resume"], first.get("id", RUN)) == (RUN, "allow", RUN)
    assert first["config"]["train"]["beta"] == job.train.beta
    assert calls[1][1] == {"figures": {"train/loss": 0.5}, "step": 3}


def test_a_tracker_that_is_not_installed_is_refused_with_what_to_do(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with refused("TrainerError", "trackio"):
        open_trackers(make_job(tmp_path, reference, config(report_to=["trackio"])))


def test_tensorboard_files_are_always_written_and_a_warning_is_one_event(tmp_path: Path, reference: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    job = make_job(tmp_path, reference, config(report_to=[]))
    with Warehouse.open(job.warehouse) as warehouse:
        recorder = Recorder(warehouse, job, after=0)
        recorder.record(1, [], {"loss": 0.25}, [], snapshot=0)
        recorder.event("warning", "step 1: odd")
        recorder.close()
        events = warehouse.rows("SELECT stage, kind, message FROM run_events")
    assert events == [{"stage": "train", "kind": "warning", "message": "step 1: odd"}]
    found = EventAccumulator(str(job.run_dir / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("train/loss")] == [(1, 0.25)]


def test_what_later_weights_of_a_first_course_sampled_is_young() -> None:
    record = SequenceRecord("t", "online", 1, True, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None, 7)
    found = by_age([record, replace(record, sampled_step=1), replace(record, sampled_step=0)], 6)
    assert (found["age/0/sequences"], found["age/5/sequences"]) == (1.0, 2.0)


def _peaks() -> tuple[float, float]:
    before = peak_memory_mb()
    block = bytearray(b"x") * (300 << 20)
    del block
    return before, peak_memory_mb()


def test_peak_memory_counts_what_was_held_and_given_back() -> None:
    before, after = answer_of(_peaks)  # in this process, other tests may have held more before
    assert 10 < before < after - 250
