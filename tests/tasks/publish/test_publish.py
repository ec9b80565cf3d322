"""What is published loads elsewhere and computes the same, its card says what the warehouse says, a push arrives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard, ModelCard, metadata_load
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from flows.cli.main import app
from tasks.checkpoints import adapter, checkpoint
from tasks.config import EngineConfig
from tasks.engines import open_engine
from tasks.engines.protocol import Request
from tasks.extras.publish import facts, hub, parts
from tasks.extras.publish.facts import NothingToPublish, Publishable
from tasks.extras.publish.parts import Part
from tasks.run import runs
from tasks.run.manifests import TrainManifest
from tasks.run.stage import Context
from tasks.run.stage_names import STAGE_NAMES
from tests.tasks.conftest import Lab
from tests.tasks.publish.hub_stub import running


@contextmanager
def opened(lab: Lab, run_id: str = "micro-1") -> Any:
    with lab.store() as store:
        yield Context(run_id, runs.load_config(store, run_id), store, lab.home)


def planned(lab: Lab, run_id: str = "micro-1", *wanted: str, licence: str = "") -> tuple[Publishable, list[Part]]:
    with opened(lab, run_id) as context:
        found = facts.gather(context)
        return found, parts.plan(context, found, "someone/policy", wanted, licence)


def written(lab: Lab, name: str, folder: Path, run_id: str = "micro-1") -> Path:
    with opened(lab, run_id) as context:
        (part,) = parts.plan(context, facts.gather(context), "someone/policy", [name], "apache-2.0")
        return parts.write(context, part, folder)


def test_plain_transformers_continue_as_the_projects_engine_does(finished: Lab, tmp_path: Path) -> None:
    folder = written(finished, "model", tmp_path / "policy")
    with opened(finished) as context:
        rows = context.warehouse.rows("SELECT DISTINCT text FROM prompts ORDER BY text LIMIT 4")
        source = context.manifest(TrainManifest).policies[-1].path
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    asked = [tokenizer(row["text"], return_tensors="pt", add_special_tokens=False) for row in rows]
    answers = [plain.generate(**ids, max_new_tokens=40, do_sample=False)[0] for ids in asked]
    with closing(open_engine(EngineConfig(threads=1), source, dtype="float32")) as engine:
        prompts = [tuple(ids["input_ids"][0].tolist()) for ids in asked]
        requests = [Request(prompt, n=1, seed=0, temperature=0.0, max_tokens=40) for prompt in prompts]
        own = {one.request: list(one.token_ids) for one in engine.sample(requests)}
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        assert answer.tolist() == [*prompt, *own[number]]


def test_the_folder_is_a_whole_checkpoint_with_the_policys_weights(finished: Lab, tmp_path: Path) -> None:
    folder = written(finished, "model", tmp_path / "policy")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert "learning_curve.png" in names
    assert not names & {"published.json", "policy.json"}
    with opened(finished) as context:
        assert checkpoint.policy_id(folder) == context.manifest(TrainManifest).policies[-1].policy_id
    with pytest.raises(NothingToPublish):
        written(finished, "model", folder)


def test_published_generation_settings_are_where_responses_end_and_no_way_of_sampling(tmp_path: Path) -> None:
    settings = {"eos_token_id": [2, 1], "do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}), encoding="utf-8")
    assert json.loads(parts.generation_settings(tmp_path)) == {"eos_token_id": [2, 1], "pad_token_id": 0}


def sampled(folder: Path) -> Path:
    """The checkpoint with settings that sample otherwise than training does, as instruct models have them."""
    file = folder / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings |= {"do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20}
    file.write_text(json.dumps(settings), encoding="utf-8")
    return folder


def assert_sampled_plainly(context: Context, found: Publishable, folder: Path) -> None:
    """The published model says where its responses end, and nothing of its base's sampling."""
    (part,) = parts.plan(context, found, "someone/policy", ["model"])
    assert [one.name for one in part.files].count("generation_config.json") == 1
    parts.write(context, part, folder)
    settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    assert settings["eos_token_id"] == checkpoint.stop_ids(folder)[0]
    assert settings.keys() <= {"eos_token_id", "bos_token_id", "pad_token_id"}


def test_a_published_model_does_not_sample_as_its_base_did(finished: Lab, tmp_path: Path) -> None:
    with opened(finished) as context:
        found = facts.gather(context)
        kept = sampled(Path(shutil.copytree(found.policy.path, tmp_path / "kept")))
        found = replace(found, policy=found.policy.model_copy(update={"path": kept}))
        assert_sampled_plainly(context, found, tmp_path / "policy")


def test_trajectories_load_as_a_data_set_without_evaluation_problems(finished: Lab, tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    folder = written(finished, "trajectories", tmp_path / "rows")
    assert metadata_load(folder / "README.md")["license"] == "apache-2.0"
    assert "Hidden tests" in DatasetCard.load(folder / "README.md").text
    cache = str(tmp_path / "cache")
    rows = datasets.load_dataset(str(folder), "trajectories", split="train", cache_dir=cache)
    prompts = datasets.load_dataset(str(folder), "prompts", split="train", cache_dir=cache)
    assert len(rows) == finished.value(
        "SELECT count(DISTINCT trajectory_id) FROM trajectories WHERE run_id = 'micro-1'"
    )
    trained = finished.value("SELECT count(DISTINCT id) FROM (SELECT unnest(trajectory_ids) AS id FROM train_batches)")
    assert sum(times > 0 for times in rows["times_trained"]) == trained
    assert set(rows["prompt_id"]) == set(prompts["prompt_id"])
    evaluated = finished.value("SELECT list(problem_id) FROM problems WHERE split = 'evaluation'")
    assert not set(prompts["problem_id"]) & set(evaluated)


def test_a_dry_run_shows_files_and_cards_and_writes_nothing(
    finished: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(finished.home))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    shown = CliRunner().invoke(app, ["publish", "micro-1", str(tmp_path / "out"), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "model.safetensors" in shown.stdout
    assert "trajectories/train-00000-of-00001.parquet" in shown.stdout
    assert not (tmp_path / "out").exists()


def test_a_push_arrives_whole_through_the_hubs_own_client(
    finished: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with running(token="hf_right") as stub, opened(finished) as context:
        for part in parts.plan(context, facts.gather(context), "someone/policy", (), "apache-2.0"):
            folder = parts.write(context, part, tmp_path / part.name)
            hub.push(part, folder, private=True, say=print, endpoint=stub.address)
        assert set(stub.repositories) == {"models/someone/policy", "datasets/someone/policy-trajectories"}
        assert all(stub.private.values())
        model = stub.repositories["models/someone/policy"]
        kept = context.manifest(TrainManifest).policies[-1].path
        assert model["model.safetensors"] == (kept / "model.safetensors").read_bytes()
        assert b"someone/policy" in model["README.md"]
        assert stub.repositories["datasets/someone/policy-trajectories"].keys() == {
            "README.md",
            "prompts/train-00000-of-00001.parquet",
            "trajectories/train-00000-of-00001.parquet",
        }


def test_a_push_with_a_wrong_token_leaves_nothing_and_does_not_show_it(
    finished: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (part, _) = planned(finished)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with running(token="hf_right") as stub:
        with pytest.raises(hub.NotPushed) as refused:
            hub.push(part, tmp_path, private=True, say=print, endpoint=stub.address)
        assert not stub.repositories
    assert "hf_wrong" not in str(refused.value)


def test_what_is_not_there_is_named(finished: Lab, with_models: Lab) -> None:
    run_id = with_models.start("fresh")
    with opened(with_models, run_id) as context, pytest.raises(NothingToPublish):
        facts.gather(context)
    with opened(finished) as context, pytest.raises(NothingToPublish):
        facts.gather(context, step=3)
    with pytest.raises(NothingToPublish):
        planned(finished, "micro-1", "adapter")


def test_a_run_with_adapters_publishes_the_adapter_alone_too(copied: Callable[[], Lab], tmp_path: Path) -> None:
    import torch
    from peft import PeftModel

    lab = copied()
    run_id, stages = lab.start("adapted", {"train.lora": {"rank": 4, "alpha": 8}}), STAGE_NAMES
    began = lab.value("SELECT snapshot_out FROM stages WHERE stage = 'corpus' AND run_id = 'micro-1'")
    lab.run(run_id, *stages[: stages.index("evaluate")], pin=began)
    found, all_parts = planned(lab, run_id)
    assert [part.name for part in all_parts] == ["model", "adapter", "trajectories"]
    folder = written(lab, "adapter", tmp_path / "adapter", run_id)
    assert ModelCard.load(folder / "README.md").data.library_name == "peft"
    base = checkpoint.load_weights(found.reference, "float32")
    merged = checkpoint.load_weights(found.policy.path, "float32").state_dict()
    own = PeftModel.from_pretrained(base, str(folder)).merge_and_unload().state_dict()
    assert own.keys() == merged.keys()
    assert all(torch.allclose(own[name], merged[name], atol=1e-6) for name in merged)

    based = sampled(Path(shutil.copytree(found.reference, tmp_path / "base")))
    kept = Path(shutil.copytree(found.policy.path, tmp_path / "kept"))
    settings = adapter.settings(kept) | {adapter.BASE_FIELD: str(based)}
    (kept / adapter.CONFIG).write_text(json.dumps(settings), encoding="utf-8")
    with opened(lab, run_id) as context:
        found = replace(found, policy=found.policy.model_copy(update={"path": kept}))
        assert_sampled_plainly(context, found, tmp_path / "policy")
