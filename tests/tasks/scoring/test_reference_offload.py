"""pi_0 with its layers in main memory computes what it computes on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.scoring.packing import lay_out
from tasks.scoring.reference import load_reference, waits_in_main_memory
from tests.tasks.train.conftest import config, examples, save_reference, tiny_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("tied", [True, False])
def test_layers_in_main_memory_give_the_same_numbers_and_leave_the_device(tied: bool, tmp_path: Path) -> None:
    folder = save_reference(tmp_path / "reference", tiny_model(tied=tied))
    pack = lay_out(examples(4))
    whole = load_reference(folder, config(packing="packed").train, "float32", CPU)
    offloaded = load_reference(folder, config(packing="packed", reference_weights="cpu").train, "float32", CPU)
    layers = [m for m in offloaded.policy.causal_lm.base_model.modules() if list(m.parameters(recurse=False))]
    waiting = {layer: layer.weight.data_ptr() for layer in layers}
    there: list[int] = []

    def look(layer: Any, *_: Any) -> None:
        there.append(sum(one.weight.data_ptr() != waiting[one] for one in layers))
        assert layer.weight.data_ptr() != waiting[layer]

    for layer in layers:
        layer.register_forward_pre_hook(look)
    for _ in range(2):
        assert torch.equal(offloaded.evaluate(pack), whole.evaluate(pack))
        assert {layer: layer.weight.data_ptr() for layer in layers} == waiting, "what is on the device between passes"
    assert there == [1] * (2 * len(layers)), "one layer at a time"


@pytest.mark.parametrize(
    ("stage", "where", "device", "waits"),
    [
        (3, "auto", "cuda", True),
        (2, "auto", "cuda", False),
        (3, "device", "cuda", False),
        (3, "auto", "cpu", False),
        (0, "cpu", "cpu", True),
    ],
)
def test_a_divided_policy_on_a_gpu_takes_its_reference_off_it_and_nothing_else_does(
    stage: int, where: str, device: str, waits: bool
) -> None:
    train = config(zero_stage=stage, reference_weights=where).train
    assert waits_in_main_memory(train, torch.device(device)) == waits
