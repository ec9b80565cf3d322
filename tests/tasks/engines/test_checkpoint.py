from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.checkpoints import checkpoint, model_sources
from tasks.checkpoints.tempered import tempered
from tasks.config import EngineConfig, ReferenceConfig
from tasks.engines import open_engine
from tasks.engines.canary import check_drift
from tasks.engines.protocol import Request
from tasks.train.shared import published_weights
from tests.refusals import refused
from tests.tasks.engines.conftest import END, build, save, save_tokenizer, tiny_settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = save(build("llama"), tmp_path / "model")
    save_tokenizer(folder)
    return folder


def test_the_policy_id_names_the_weights_and_not_the_folder(folder: Path, other_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert checkpoint.policy_id(copy) == checkpoint.policy_id(folder)
    assert checkpoint.policy_id(other_folder) != checkpoint.policy_id(folder)
    assert len(checkpoint.policy_id(folder)) == 16


def test_the_policy_id_changes_with_what_the_config_computes_only(folder: Path) -> None:
    before = checkpoint.policy_id(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"transformers_version": "0.0"}), encoding="utf-8")
    assert checkpoint.policy_id(folder) == before
    path.write_text(json.dumps(config | {"rms_norm_eps": 0.1}), encoding="utf-8")
    assert checkpoint.policy_id(folder) != before


def test_a_recorded_policy_id_is_the_computed_one(folder: Path) -> None:
    computed = checkpoint.compute_policy_id(folder)
    assert checkpoint.record_policy_id(folder) == computed
    assert checkpoint.policy_id(folder) == computed
    assert checkpoint.compute_policy_id(folder) == computed


def test_a_recorded_policy_id_is_not_believed_of_weights_that_came_later(folder: Path, tmp_path: Path) -> None:
    recorded = checkpoint.record_policy_id(folder)
    other = save(build("llama", seed=3), tmp_path / "other")
    shutil.copyfile(other / "model.safetensors", folder / "model.safetensors")
    assert checkpoint.policy_id(folder) == checkpoint.compute_policy_id(folder) != recorded


def test_an_id_that_was_given_to_copied_weights_outlives_a_copy(folder: Path) -> None:
    checkpoint.record_policy_id(folder, "of the exact adapter")
    os.utime(folder / "model.safetensors")
    assert checkpoint.policy_id(folder) == "of the exact adapter"


def test_the_tokenizer_hash_follows_the_vocabulary_and_not_the_weights(folder: Path, tmp_path: Path) -> None:
    other = save(build("llama", seed=3), tmp_path / "other")
    save_tokenizer(other)
    assert checkpoint.tokenizer_hash(other) == checkpoint.tokenizer_hash(folder)
    path = other / "tokenizer.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"a"', '"\u00e4"').replace('"A"', '"\u00c4"'), encoding="utf-8"
    )
    assert checkpoint.tokenizer_hash(other) != checkpoint.tokenizer_hash(folder)


def test_a_model_and_its_tokenizer_are_loaded_in_evaluation_mode(folder: Path) -> None:
    model, tokenizer = checkpoint.load_weights(folder, "bfloat16"), checkpoint.load_tokenizer(folder)
    assert not model.training
    assert str(model.dtype) == "torch.bfloat16"
    assert tokenizer.eos_token_id == END
    assert checkpoint.stop_ids(folder) == (END,)


def test_several_end_tokens_are_all_known(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}), encoding="utf-8")
    assert checkpoint.stop_ids(folder) == (1, 5)


def test_end_tokens_beside_the_config_are_part_of_the_policy(folder: Path) -> None:
    generation, config = folder / "generation_config.json", json.loads((folder / "config.json").read_text())
    plain = checkpoint.compute_policy_id(folder)
    for same in (END, [END], None):
        generation.write_text(json.dumps({"eos_token_id": same}), encoding="utf-8")
        assert checkpoint.compute_policy_id(folder) == plain
    generation.write_text(json.dumps({"eos_token_id": [5, END]}), encoding="utf-8")
    more = checkpoint.compute_policy_id(folder)
    generation.write_text(json.dumps({"eos_token_id": [END, 5]}), encoding="utf-8")
    assert checkpoint.compute_policy_id(folder) == more != plain
    assert checkpoint.is_policy(folder, plain), "as it was named before end tokens counted"
    generation.unlink()
    assert checkpoint.compute_policy_id(folder) == plain
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None}), encoding="utf-8")
    assert not checkpoint.is_policy(folder, plain)


@pytest.mark.parametrize(
    ("missing", "code"),
    [("config.json", "NoConfig"), ("model.safetensors", "NoWeights"), ("", "MissingModel")],
)
def test_an_incomplete_checkpoint_is_refused_by_what_it_lacks(folder: Path, missing: str, code: str) -> None:
    target = folder / missing
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with refused(code, folder):
        checkpoint.load_weights(folder, "float32")


def test_a_folder_without_tokenizer_says_so(llama_folder: Path) -> None:
    with refused("NoTokenizer", llama_folder):
        checkpoint.load_tokenizer(llama_folder)


def test_a_local_folder_resolves_to_itself(folder: Path, tmp_path: Path) -> None:
    assert model_sources.resolve(ReferenceConfig(model=str(folder)), tmp_path / "cache") == folder


def test_an_unreachable_model_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for model, code in {
        "nobody/nothing": "Unreachable",
        "./no/such/folder": "Unreachable",
        "miniature": "NotPrepared",
    }.items():
        with refused(code):
            model_sources.resolve(ReferenceConfig(model=model), tmp_path)


def test_a_missing_gguf_file_is_named(folder: Path, tmp_path: Path) -> None:
    with refused("NoSuchGguf", "model.Q4.gguf"):
        model_sources.resolve(ReferenceConfig(model=str(folder), gguf_file="model.Q4.gguf"), tmp_path)


def test_the_engine_of_a_config_samples(folder: Path) -> None:
    engine = open_engine(EngineConfig(max_batch=3), folder, dtype="float32")
    assert len(list(engine.sample([Request((2, 3), 5, seed=0, max_tokens=3)]))) == 5
    engine.close()


def test_importing_the_engines_loads_no_model_library() -> None:
    code = (
        "import sys, tasks.engines; print([m for m in ('torch', 'transformers', 'vllm', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_drift_beyond_the_tolerance_is_an_error() -> None:
    assert check_drift([-1.0, -2.0], [-1.0, -2.00005], 1e-4) == pytest.approx(2.5e-5)
    with refused("EngineDrift", 1.25):
        check_drift([-1.0, -2.0], [-1.0, -4.5], 1e-4)
    with refused("EngineDrift", "nan"):
        check_drift([float("nan")], [-1.0], 1e-4)
    with refused("OtherLength"):
        check_drift([-1.0], [-1.0, -2.0], 1e-4)


def test_an_engine_without_its_library_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with refused("VllmMissing", "engine.python"):
        open_engine(EngineConfig(kind="vllm"), folder, dtype="float32")


def test_a_folder_that_lacks_weights_is_refused_and_not_filled_with_random_ones(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    lost = next(name for name in weights if "up_proj" in name)
    save_file({name: weight for name, weight in weights.items() if name != lost}, path, metadata={"format": "pt"})
    with refused("WeightsMissing", "LlamaForCausalLM", lost):
        checkpoint.load_weights(folder, "float32")


def test_a_tied_head_is_no_missing_weight(tmp_path: Path) -> None:
    tied = LlamaForCausalLM(LlamaConfig(**tiny_settings(tie_word_embeddings=True)))
    folder = save(tied, tmp_path / "tied")
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    checkpoint.load_weights(folder, "float32")


def test_a_base_whose_generation_settings_contradict_each_other_can_be_published(folder: Path, tmp_path: Path) -> None:
    settings = {"eos_token_id": END, "temperature": 0.6, "top_p": 0.9, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = checkpoint.load_weights(folder, "float32")
    published = published_weights.publish(tmp_path / "weights", 4, model, model.state_dict(), like=folder)
    assert checkpoint.stop_ids(published.folder) == (END,)
    again = checkpoint.load_weights(published.folder, "float32")
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())
    assert tempered(folder, checkpoint.policy_id(folder), 0.5, tmp_path / "cache").is_dir()
