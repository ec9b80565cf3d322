"""Who gets which GPU: one table, and what is refused by name."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from tasks.config import RunConfig, validate
from tasks.run import placement
from tasks.run.errors import Oversubscribed

WIDE = {"kind": "vllm", "vllm": {"tensor_parallel_size": 2}}
TWO_HOSTS = {"hosts": ["one slots=8", "two slots=8"], "rollout_workers": 4}


def config(train: dict[str, Any], engine: dict[str, Any] | None = None, *, evaluator: bool = False) -> RunConfig:
    tree: dict[str, Any] = {"train": train, "evaluate": {"during_training": evaluator}}
    return validate(tree | ({"engine": engine} if engine else {}))


def placed(found: RunConfig, count: int) -> dict[str, str]:
    """By process its GPUs, as it is told them."""
    where = placement.place(found, [str(number) for number in range(count)])
    return {name: where.environment(name)["CUDA_VISIBLE_DEVICES"] for name in where.gpus}


@pytest.mark.parametrize(
    ("found", "count", "expected"),
    [
        (config({}), 0, {}),
        (config({}), 2, {"trainer": "0", "worker-0": "1"}),
        (config({"processes": 2, "rollout_workers": 2}), 4, {"trainer": "0,1", "worker-0": "2", "worker-1": "3"}),
        (config({}, evaluator=True), 4, {"trainer": "0", "worker-0": "1", "evaluator": "2"}),
        (
            config({"processes": 2, "rollout_workers": 2}, WIDE, evaluator=True),
            8,
            {"trainer": "0,1", "worker-0": "2,3", "worker-1": "4,5", "evaluator": "6,7"},
        ),
        (
            config(TWO_HOSTS),
            12,
            {"trainer": "0,1,2,3,4,5,6,7"} | {f"worker-{i}": str(8 + i) for i in range(4)},
        ),
        (
            config({**TWO_HOSTS, "worker_launcher": ["srun", "--gpus=1"]}),
            8,
            {"trainer": "0,1,2,3,4,5,6,7"},
        ),
        (config({"sources": {"offline": {"share": 1.0}}}), 1, {"trainer": "0"}),
        (config({}, {"kind": "scripted"}), 1, {"trainer": "0", "worker-0": ""}),
        (config({"share_gpus": True}), 1, {"trainer": "0", "worker-0": "0"}),
        (
            config({"processes": 2, "rollout_workers": 3, "share_gpus": True}),
            4,
            {"trainer": "0,1", "worker-0": "2", "worker-1": "3", "worker-2": "2"},
        ),
        (
            config({**TWO_HOSTS, "share_gpus": True}),
            8,
            {"trainer": "0,1,2,3,4,5,6,7"} | {f"worker-{i}": str(i) for i in range(4)},
        ),
        (
            config({"share_gpus": True, "rollout_workers": 2}, WIDE),
            2,
            {"trainer": "0", "worker-0": "0,1", "worker-1": "0,1"},
        ),
    ],
)
def test_gpus_are_given_out_by_one_table(found: RunConfig, count: int, expected: dict[str, str]) -> None:
    assert placed(found, count) == expected


@pytest.mark.parametrize(
    ("found", "count", "says"),
    [
        (config(TWO_HOSTS), 8, "wants 12 .trainer 8, worker-0 1, .*train.share_gpus = true"),
        (config({}), 1, "has GPU 0, and training wants 2 .*train.worker_launcher"),
        (config({}, evaluator=True), 2, "evaluator 1.*set evaluate.during_training to false"),
        (config({"processes": 4, "share_gpus": True}), 2, "cannot share a GPU: lower the train.processes to 2"),
        (config({**TWO_HOSTS, "share_gpus": True}), 4, "slots of the first of train.hosts to 4"),
        (config({"share_gpus": True}, WIDE), 1, "lower engine.vllm.tensor_parallel_size"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(found: RunConfig, count: int, says: str) -> None:
    with pytest.raises(Oversubscribed, match=says):
        placed(found, count)


def test_people_are_told_who_shares_what_is_elsewhere_and_what_is_idle() -> None:
    shared = placement.place(config({"share_gpus": True}), ["GPU-a"])
    assert shared.lines() == ["trainer: GPU GPU-a", "worker-0: GPU GPU-a", "GPU-a is shared by trainer, worker-0"]
    spread = {"hosts": ["one slots=1", "two slots=1"], "worker_launcher": ["srun"]}
    assert placement.place(config(spread), ["0", "1"]).lines() == [
        "trainer: GPU 0",
        "trainer on two: its first GPUs",
        "worker-0: where train.worker_launcher starts it",
        "idle while training: 1",
    ]
    assert placement.place(config({}), []).lines() == []


def test_a_stage_that_runs_alone_may_fill_the_machine_with_engines() -> None:
    assert placement.engine_places(["0", "1", "2"], 1) == [("0",), ("1",), ("2",)]
    assert placement.engine_places(["0", "1", "2"], 2) == [("0", "1")]
    assert placement.engine_places(["0"], 2) == placement.engine_places(["0"], 0) == []


def test_a_cpu_build_of_torch_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,MIG-1")
    monkeypatch.setattr(metadata, "version", lambda _name: "2.13.0+cu130")
    assert placement.visible_gpus() == ["2", "MIG-1"]
    monkeypatch.setattr(metadata, "version", lambda _name: "2.13.0+cpu")
    assert placement.visible_gpus() == []
