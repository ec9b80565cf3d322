"""What is published loads elsewhere and computes the same, its card says what the warehouse says, a push arrives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard, ModelCard, metadata_load

from tasks.config import EngineConfig
from tasks.engines import adapter, checkpoint, open_engine
from tasks.engines.protocol import Request
from tasks.publish import facts, parts
from tasks.publish.facts import NothingToPublish, Publishable
from tasks.publish.parts import Part
from tasks.run import runs
from tasks.run.manifests import TrainManifest
from tasks.run.stage import Context
from tests.tasks.conftest import Lab, trained_with
from tests.tasks.publish.hub_stub import running
from warehouse.superseding import content

PLAIN = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
for prompt in prompts:
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    answer = model.generate(**ids, max_new_tokens=40, do_sample=False)
    print(json.dumps(answer[0, ids["input_ids"].shape[1]:].tolist()))
assert not [name for name in sys.modules if name.partition(".")[0] in ("tasks", "warehouse", "flows")]
"""


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


def spo(lab: Lab, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPO_HOME": str(lab.home), "HF_HUB_DISABLE_XET": "1", **variables}
    for name in {"SPO_WAREHOUSE", "HF_TOKEN", "HF_HUB_OFFLINE"} - variables.keys():
        environment.pop(name, None)
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580)


def test_plain_transformers_continue_as_the_projects_engine_does(finished: Lab, tmp_path: Path) -> None:
    folder = written(finished, "model", tmp_path / "policy")
    with opened(finished) as context:
        rows = context.warehouse.rows("SELECT DISTINCT text FROM prompts ORDER BY text LIMIT 4")
        source = context.manifest(TrainManifest).policies[-1].path
    prompts = [row["text"] for row in rows]
    result = subprocess.run(
        [sys.executable, "-c", PLAIN, str(folder), json.dumps(prompts)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    tokenizer = checkpoint.load_tokenizer(source)
    with closing(open_engine(EngineConfig(threads=1), source, dtype="float32")) as engine:
        ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
        requests = [Request(tuple(one), n=1, seed=0, temperature=0.0, max_tokens=40) for one in ids]
        own = {one.request: list(one.token_ids) for one in engine.sample(requests)}
    assert found == [own[number] for number in range(len(prompts))]


def test_the_folder_is_a_whole_checkpoint_with_the_policys_weights(finished: Lab, tmp_path: Path) -> None:
    folder = written(finished, "model", tmp_path / "policy")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert "learning_curve.png" in names
    assert not names & {"published.json", "policy.json"}
    with opened(finished) as context:
        assert checkpoint.policy_id(folder) == context.manifest(TrainManifest).policies[-1].policy_id
    with pytest.raises(NothingToPublish, match="is not empty"):
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


def test_another_runs_verdicts_on_the_same_responses_change_nothing(copied: Callable[[], Lab], tmp_path: Path) -> None:
    """Another run with other tests draws pi_0's responses under the same names, and judges them otherwise."""
    lab = copied()

    def published(folder: str) -> list[dict[str, Any]]:
        path = written(lab, "trajectories", tmp_path / folder) / "trajectories" / "train-00000-of-00001.parquet"
        return pq.read_table(path).to_pylist()

    before, trained_on = published("before"), planned(lab)[0].trained_on
    with lab.store() as store:
        rows = store.rows("SELECT * FROM trajectories WHERE source = 'reference'")
        other = {"suite_hash": "other", "reward": -1.0, "verdict": "wrong_answer"}
        store.append("other/1", {"trajectories": [content(row) | other for row in rows]}, run_id="other")
        unjudged = {"reward": None, "verdict": None}
        store.append("other/2", {"trajectories": [content(row) | unjudged for row in rows]}, run_id="other")
    assert any(row["reward"] == 0 for row in before if row["times_trained"])
    assert published("after") == before
    assert planned(lab)[0].trained_on == trained_on


def test_a_dry_run_shows_files_and_cards_and_writes_nothing(finished: Lab, tmp_path: Path) -> None:
    shown = spo(finished, "publish", "micro-1", str(tmp_path / "out"), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "model.safetensors" in shown.stdout
    assert "## What it must not be used for" in shown.stdout
    assert "trajectories/train-00000-of-00001.parquet" in shown.stdout
    assert not (tmp_path / "out").exists()


def test_a_push_arrives_whole_through_the_hubs_own_client(finished: Lab) -> None:
    with running(token="hf_right") as hub:
        pushed = spo(finished, "publish", "micro-1", "hf:someone/policy", HF_ENDPOINT=hub.address, HF_TOKEN="hf_right")
        assert pushed.returncode == 0, pushed.stdout + pushed.stderr
        assert set(hub.repositories) == {"models/someone/policy", "datasets/someone/policy-trajectories"}
        assert all(hub.private.values())
        model = hub.repositories["models/someone/policy"]
        with opened(finished) as context:
            kept = context.manifest(TrainManifest).policies[-1].path
        assert model["model.safetensors"] == (kept / "model.safetensors").read_bytes()
        assert b"someone/policy" in model["README.md"]
        assert hub.repositories["datasets/someone/policy-trajectories"].keys() == {
            "README.md",
            "prompts/train-00000-of-00001.parquet",
            "trajectories/train-00000-of-00001.parquet",
        }


def test_a_push_without_a_token_or_with_a_wrong_one_says_what_to_do(finished: Lab, tmp_path: Path) -> None:
    with running(token="hf_right") as hub:
        where = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path)}
        without = spo(finished, "publish", "micro-1", "hf:someone/policy", **where)
        assert without.returncode == 1
        assert "needs a token" in without.stderr
        wrong = spo(finished, "publish", "micro-1", "hf:someone/policy", HF_TOKEN="hf_wrong", **where)
        assert wrong.returncode == 1
        assert "someone/policy was not pushed" in wrong.stderr
        assert "hf_wrong" not in wrong.stderr
        assert not hub.repositories


def test_what_is_not_there_is_named(finished: Lab, with_models: Lab) -> None:
    run_id = with_models.start("fresh")
    with opened(with_models, run_id) as context, pytest.raises(NothingToPublish, match="has trained no policy yet"):
        facts.gather(context)
    with opened(finished) as context, pytest.raises(NothingToPublish, match="kept no weights of step 3; it has 2, 4"):
        facts.gather(context, step=3)
    with pytest.raises(NothingToPublish, match="was trained without"):
        planned(finished, "micro-1", "adapter")


def test_a_run_with_adapters_publishes_the_adapter_alone_too(copied: Callable[[], Lab], tmp_path: Path) -> None:
    import torch
    from peft import PeftModel

    lab, run_id = trained_with(copied(), {"train.lora": {"rank": 4, "alpha": 8}})
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
