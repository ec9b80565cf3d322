"""Which GPUs are seen, and how many engines fit on them."""

from __future__ import annotations

from importlib import metadata

import pytest

from tasks.engines import devices


def test_a_stage_that_runs_alone_may_fill_the_machine_with_engines() -> None:
    assert devices.engine_places(["0", "1", "2"], 1) == [("0",), ("1",), ("2",)]
    assert devices.engine_places(["0", "1", "2"], 2) == [("0", "1")]
    assert devices.engine_places(["0"], 2) == devices.engine_places(["0"], 0) == []


def test_a_cpu_build_of_torch_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,MIG-1")
    assert devices.visible_gpus() == ([] if metadata.version("torch").endswith("+cpu") else ["2", "MIG-1"])
    assert devices.visible_gpus(of_torch=False) == ["2", "MIG-1"]


@pytest.mark.parametrize(("named", "seen"), [("", []), ("-1", []), ("0,-1,1", ["0"]), ("1,0", ["1", "0"])])
def test_a_negative_number_hides_itself_and_what_follows(
    named: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert devices.visible_gpus(of_torch=False) == seen
