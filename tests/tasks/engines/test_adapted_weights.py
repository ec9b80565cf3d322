"""Adapters: the base is loaded once, each next adapter starts from it, and what is merged is what peft applies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.checkpoints import adapted_weights, checkpoint, model_sources
from tasks.checkpoints.adapter import WEIGHTS
from tasks.checkpoints.errors import EngineError
from tasks.config import ReferenceConfig
from tasks.engines.protocol import Request
from tasks.engines.transformers_engine import TransformersEngine
from tests.refusals import refused
from tests.tasks.engines.conftest import build, save, save_tokenizer, write_adapter

PROMPT = tuple(range(3, 13))
SEQUENCE = (PROMPT, tuple(range(20, 40)))
REQUESTS = [Request(PROMPT, 4, seed=1, max_tokens=12)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save(build("llama"), tmp_path / "base")


@pytest.fixture
def engine(base: Path) -> Iterator[TransformersEngine]:
    opened = TransformersEngine(base, dtype="float32", max_batch=8, device="cpu")
    yield opened
    opened.close()


def expected(folder: Path, dtype: str = "float32") -> list[float]:
    return TransformersEngine(folder, dtype=dtype, max_batch=8, device="cpu").score([SEQUENCE])[0]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_merged_weights_compute_what_peft_computes_beside_the_base(kind: str, tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    base = save(build(kind), tmp_path / "base")
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    ids = torch.tensor([SEQUENCE[0] + SEQUENCE[1]])
    applied = peft.PeftModel.from_pretrained(checkpoint.load_weights(base, "float32"), folder)
    with torch.no_grad():
        wanted = applied(ids).logits.log_softmax(-1)
        found = checkpoint.load_weights(folder, "float32")(ids).logits.log_softmax(-1)
        alone = checkpoint.load_weights(base, "float32")(ids).logits.log_softmax(-1)
    assert torch.allclose(found, wanted, atol=1e-4)
    assert (found - alone).abs().max() > 0.05


def together(these: list[torch.Tensor], those: list[torch.Tensor]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(these, those, strict=True))


def test_a_change_smaller_than_bfloat16_tells_apart_is_kept_on_average(tmp_path: Path) -> None:
    base = save(build("llama"), tmp_path / "base")
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor * (0.003 if "lora_B" in name else 1) for name, tensor in tensors.items()}, folder / WEIGHTS)
    own = checkpoint.load_weights(base, "bfloat16").state_dict()
    changed = checkpoint.load_weights(folder, "bfloat16").state_dict()
    again = checkpoint.load_weights(folder, "bfloat16").state_dict()
    adapter = adapted_weights.read(folder)
    wanted, found, nearest = [], [], []
    for name, (down, up) in adapter.factors.items():
        weight = own[f"{name}.weight"].float()
        wanted.append(adapter.scale * up @ down)
        found.append(changed[f"{name}.weight"].float() - weight)
        nearest.append((weight + wanted[-1]).bfloat16().float() - weight)
    there = together(wanted, wanted)
    assert together(nearest, wanted) < 0.5 * there, "rounded to the nearest, most of it would be lost"
    assert together(found, wanted) == pytest.approx(there, rel=0.1)
    assert all(torch.equal(changed[name], again[name]) for name in changed)
    assert all(torch.equal(changed[name], own[name]) for name in own.keys() - {f"{n}.weight" for n in adapter.factors})


def test_rounding_at_random_takes_either_neighbour_and_keeps_the_mean() -> None:
    values = torch.tensor([1.0, -1.0, 0.0, 1 + 2**-9, -1 - 2**-9, 1e-30]).repeat(4096, 1)
    found = adapted_weights.rounded_at_random(values, seed=3)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found[:, :3].float(), values[:, :3]), "what bfloat16 holds stays"
    assert set(found[:, 3].tolist()) == {1.0, 1 + 2**-7}
    assert set(found[:, 4].tolist()) == {-1.0, -1 - 2**-7}
    assert found.float().mean(0) == pytest.approx(values.mean(0), rel=3e-3)
    above = adapted_weights.rounded_at_random(values * 1.001, seed=3)
    assert ((above - found) * values >= 0).all(), "nothing that grows shrinks"


def test_an_engine_takes_one_adapter_after_the_other_and_the_base_again(
    engine: TransformersEngine, base: Path, tmp_path: Path
) -> None:
    first, second = (write_adapter(tmp_path / f"step-{seed}", base, seed) for seed in (1, 2))
    of_base = engine.score([SEQUENCE])[0]
    wanted = {folder: expected(folder) for folder in (first, second)}
    before = list(engine.sample(REQUESTS))
    for folder in (first, second, first):
        engine.refresh(folder)
        assert engine.policy_id == checkpoint.policy_id(folder)
        assert engine.score([SEQUENCE])[0] == wanted[folder], "to the bit: nothing of the one before is left"
        drawn = list(engine.sample(REQUESTS))
        assert [one.token_ids for one in drawn] != [one.token_ids for one in before]
        scores = engine.score([(PROMPT, one.token_ids) for one in drawn])
        for one, score in zip(drawn, scores, strict=True):
            assert one.logprobs == pytest.approx(score, abs=1e-4)
    engine.refresh(base)
    assert engine.score([SEQUENCE])[0] == of_base
    assert engine.policy_id == checkpoint.policy_id(base)


def test_an_adapter_that_does_not_fit_leaves_the_one_before(
    engine: TransformersEngine, base: Path, tmp_path: Path
) -> None:
    good = write_adapter(tmp_path / "good", base, seed=1)
    engine.refresh(good)
    wanted = engine.score([SEQUENCE])[0]
    odd = Path(shutil.copytree(good, tmp_path / "odd"))
    tensors = load_file(odd / WEIGHTS)
    name = next(name for name in tensors if name.endswith("q_proj.lora_A.weight"))
    save_file(tensors | {name: torch.zeros(4, 7)}, odd / WEIGHTS)
    with refused("WrongShape"):
        engine.refresh(odd)
    save_file({name.replace("layers.0", "layers.7"): value for name, value in tensors.items()}, odd / WEIGHTS)
    with refused("UnknownLayer", "layers.7"):
        engine.refresh(odd)
    save_file(tensors | {"base_model.model.lm_head.weight": torch.zeros(1)}, odd / WEIGHTS)
    with refused("NotLinear", "lm_head"):
        engine.refresh(odd)

    other = write_adapter(tmp_path / "other", base, seed=2)
    save_file({name: value * float("nan") for name, value in load_file(other / WEIGHTS).items()}, other / WEIGHTS)
    with pytest.raises(EngineError):
        engine.refresh(other)
    assert engine.policy_id == checkpoint.policy_id(good)
    assert engine.score([SEQUENCE])[0] == wanted


def test_an_adapter_of_another_base_loads_that_base(engine: TransformersEngine, base: Path, tmp_path: Path) -> None:
    other = save(build("llama", 5), tmp_path / "other")
    folder = write_adapter(tmp_path / "adapter", other, seed=1)
    engine.refresh(folder)
    assert engine.score([SEQUENCE])[0] == expected(folder)
    checkpoint.record_policy_id(folder, base=checkpoint.policy_id(base))
    with refused("OtherBase"):
        TransformersEngine(folder, dtype="float32", max_batch=8, device="cpu")


def test_rank_stabilised_adapters_are_scaled_by_the_root(base: Path, tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_rslora": True}))
    wanted = peft.PeftModel.from_pretrained(checkpoint.load_weights(base, "float32"), folder).merge_and_unload()
    found = checkpoint.load_weights(folder, "float32").state_dict()
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in wanted.state_dict().items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "pissa_niter_16"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", "loftq"),
        ("init_lora_weights", "corda"),
        ("init_lora_weights", "lora_ga"),
        ("use_qalora", True),
        ("alora_invocation_tokens", [1, 2]),
        ("layer_replication", [[0, 1], [0, 2]]),
    ],
)
def test_an_adapter_that_is_more_than_a_change_of_its_base_is_refused_by_name(
    base: Path, tmp_path: Path, name: str, value: Any
) -> None:
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with refused("NotExchangeable", name):
        checkpoint.load_weights(folder, "float32")


@pytest.mark.parametrize("start", [True, False, None, "gaussian", "orthogonal", "eva"])
def test_an_adapter_whose_start_leaves_its_base_alone_is_taken(base: Path, tmp_path: Path, start: Any) -> None:
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    path = folder / "adapter_config.json"
    wanted = checkpoint.load_weights(folder, "float32").state_dict()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"init_lora_weights": start}))
    found = checkpoint.load_weights(folder, "float32").state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_of_a_bfloat16_base_as_a_model_of_its_own_computes_what_a_worker_does_with_it(
    dtype: Literal["float32", "bfloat16"], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    build("llama_wide").to(torch.bfloat16).save_pretrained(base)
    save_tokenizer(base)
    folder = write_adapter(tmp_path / "adapter", base, seed=1)
    tensors = load_file(folder / WEIGHTS)
    small = {name: value * 3e-3 if "lora_B" in name else value for name, value in tensors.items()}
    save_file(small, folder / WEIGHTS)
    reference = ReferenceConfig(model=str(folder), dtype=dtype)
    merged = model_sources.resolve(reference, tmp_path / "cache")
    assert checkpoint.policy_id(merged) == checkpoint.policy_id(folder)
    assert expected(merged, dtype) == pytest.approx(expected(folder, dtype), abs=1e-5)
    wanted, found = (checkpoint.load_weights(one, dtype).state_dict() for one in (folder, merged))
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
