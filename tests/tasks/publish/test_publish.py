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

from tasks.config import EngineConfig, validate
from tasks.engines import adapter, checkpoint, open_engine
from tasks.engines.protocol import Request
from tasks.estimators import average_paired_difference
from tasks.publish import card, facts, parts
from tasks.publish.facts import NothingToPublish, Publishable
from tasks.publish.parts import Part
from tasks.report import chart_sections
from tasks.run import runs
from tasks.run.manifests import TrainManifest
from tasks.run.stage import Context
from tests.tasks.conftest import Lab, trained_with
from tests.tasks.publish.hub_stub import running
from warehouse import maintenance
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


def test_the_card_says_what_the_warehouse_says(finished: Lab, tmp_path: Path) -> None:
    folder = written(finished, "model", tmp_path / "policy")
    card = ModelCard.load(folder / "README.md")
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    with opened(finished) as context:
        last = context.manifest(TrainManifest).policies[-1]
        point = context.warehouse.value("SELECT pass_at_1 FROM learning_curve WHERE policy_id = ?", [last.policy_id])
        online = context.warehouse.value(
            "SELECT count(DISTINCT id) FROM (SELECT unnest(trajectory_ids) AS id FROM train_batches WHERE run_id = ?) "
            "JOIN trajectories ON trajectory_id = id AND source = 'online'",
            ["micro-1"],
        )
    assert results["pass@1"] == pytest.approx(point, abs=1e-4)
    assert set(results) == {"pass@1", "pass@10"}
    assert card.data.license == "apache-2.0"
    assert f"| online | this project | {online:,} |" in card.text
    assert last.policy_id in card.text
    assert "## What it must not be used for" in card.text
    assert "![learning curve](learning_curve.png)" in card.text


def test_no_card_names_a_folder_of_this_machine(finished: Lab) -> None:
    _, all_parts = planned(finished)
    assert [part.name for part in all_parts] == ["model", "trajectories"]
    for part in all_parts:
        assert str(finished.home) not in part.card
        assert str(Path.home()) not in part.card


def test_cards_count_problems_by_the_host_of_their_address_and_call_no_claim_correct(copied: Callable[[], Lab]) -> None:
    lab = copied()

    def change(connection: Any, schema: str) -> int:
        connection.execute(f"UPDATE {schema}.problems SET source = 'https://judge.example/' || problem_id")
        connection.execute(f"UPDATE {schema}.trajectories SET verdict = 'claimed' WHERE source = 'human'")
        return 0

    maintenance.rewrite(lab.location, change)
    found, _ = planned(lab)
    assert {row["source"] for row in found.problems} == {"judge.example"}
    assert len(found.problems) == len({(row["split"], row["problem_set"]) for row in found.problems})
    (human,) = [row for row in found.trained_on if row["source"] == "human"]
    assert (human["claimed"], human["correct"]) == (human["trajectories"], 0)
    for text in (card.model_card(found, "me/tiny", "", []), card.data_card(found, "me/data", {"trajectories": 1}, "")):
        assert f"{human['claimed']:,} have the rewards that their source claims" in text


def test_a_card_says_nothing_of_before_where_the_reference_policy_was_not_evaluated_and_what_rewards_are(
    finished: Lab,
) -> None:
    found, _ = planned(finished)
    without = replace(found, history=replace(found.history, points=found.history.points[1:]))
    assert "| before |" in card.model_card(found, "me/tiny", "", [])
    text = card.model_card(without, "me/tiny", "", [])
    assert "| after |" in text
    assert "before" not in text.split("## Evaluation")[1].split("## Training data")[0]
    assert all(" \u2192 " not in one.value for one in chart_sections.facts(without.history))
    assert "0 (every test passed) and -1" in card.data_card(found, "me/data", {"trajectories": 1}, "")
    train = found.config.train.model_copy(update={"reward": "fractional"})
    fractional = found.config.model_copy(update={"train": train})
    shares = replace(found, history=replace(found.history, config=fractional))
    assert "share of tests passed - 1" in card.data_card(shares, "me/data", {"trajectories": 1}, "")


def test_paths_in_settings_keep_their_last_part_alone() -> None:
    tree = {"problems": {"path": "/data/sets/problems.jsonl"}, "files": ["~/mine.jsonl", "owner/name"], "seed": 1}
    assert facts.without_paths(tree) == {
        "problems": {"path": "problems.jsonl"},
        "files": ["mine.jsonl", "owner/name"],
        "seed": 1,
    }


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


def test_the_card_claims_built_in_splits_only_where_both_are_built_in(finished: Lab) -> None:
    found, _ = planned(finished)
    assert "are built to be others" in card._overlaps(found)
    sets = [{"source": "humaneval", "path": "problems.jsonl"}]
    config = validate({"problems": {"source": "basics", "evaluation_sets": sets}})
    other = replace(found, history=replace(found.history, config=config))
    assert card._overlaps(other).startswith("0 training problems were left out")


def test_the_card_says_that_the_interval_of_one_problem_is_unknown() -> None:
    change = average_paired_difference({"set": {"p": (10, 1)}}, {"set": {"p": (10, 3)}}, 1)
    assert card._difference(change) == "+20.0 [unknown]"


def test_the_cards_say_at_which_temperature_the_policy_was_trained(finished: Lab) -> None:
    found, _ = planned(finished)
    cool = found.config.model_copy(update={"reference": found.config.reference.model_copy(update={"temperature": 0.7})})
    cooled = replace(found, history=replace(found.history, config=cool))
    assert "weights hold a temperature of 0.7" in card.model_card(cooled, "me/model", "", ())
    assert "sampled from it at temperature 0.7, not 1" in card.adapter_card(cooled, "me/adapter", "me/model", "")
    for written_card in (card.model_card(found, "m", "", ()), card.adapter_card(found, "a", "m", "")):
        assert "temperature of" not in written_card.partition("## Recipe")[0]
        assert "at temperature" not in written_card.partition("## Recipe")[0]


def trained_from(found: Publishable, **reference: str) -> Publishable:
    """The same policy, as if it had been trained from this model."""
    changed = found.config.reference.model_copy(update=reference)
    config = found.config.model_copy(update={"reference": changed})
    name, title = facts._base(config)
    history = replace(found.history, config=config)
    return replace(found, history=history, base_model=name, base_title=title)


def loaded_by(card_text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the card's snippet asks transformers for, run as it stands."""
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(
        "transformers.AutoModelForCausalLM.from_pretrained", lambda *names, **given: asked.append((names, given))
    )
    monkeypatch.setattr("peft.PeftModel.from_pretrained", lambda *_: None)
    exec(card_text.partition("```python\n")[2].partition("```")[0], {})
    (found,) = asked
    return found


@pytest.mark.parametrize(
    ("reference", "arguments"),
    [
        ({"model": "owner/model"}, {}),
        ({"model": "owner/model", "revision": "a" * 40}, {"revision": "a" * 40}),
        (
            {"model": "owner/model-GGUF", "revision": "v2", "gguf_file": "m.Q8_0.gguf"},
            {"revision": "v2", "gguf_file": "m.Q8_0.gguf"},
        ),
        ({"model": "/data/mine", "revision": "v2", "gguf_file": "m.gguf"}, {"gguf_file": "m.gguf"}),
    ],
)
def test_an_adapter_is_published_with_the_revision_and_the_file_of_its_base(
    reference: dict[str, str],
    arguments: dict[str, str],
    finished: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from peft import PeftConfig

    kept, folder = tmp_path / "kept", tmp_path / "adapter"
    kept.mkdir()
    base = {adapter.BASE_FIELD: "/here/base", "revision": None, "peft_type": "LORA", "task_type": "CAUSAL_LM"}
    (kept / adapter.CONFIG).write_text(json.dumps(base), encoding="utf-8")
    (kept / adapter.WEIGHTS).write_bytes(b"")
    with opened(finished) as context:
        found = trained_from(facts.gather(context), **reference)
        found = replace(found, policy=found.policy.model_copy(update={"path": kept}))
        (part,) = parts.plan(context, found, "me/tiny", ["adapter"])
        parts.write(context, part, folder)
    settings: Any = PeftConfig.from_pretrained(str(folder))
    hub = reference["model"].startswith("owner/")
    assert settings.base_model_name_or_path == (reference["model"] if hub else None)
    assert settings.revision == arguments.get("revision")
    assert loaded_by(part.card, monkeypatch) == ((reference["model"] if hub else "BASE_MODEL",), arguments)


def test_the_card_says_which_revision_and_file_of_the_base_was_trained_from(finished: Lab) -> None:
    found, _ = planned(finished)
    files = trained_from(found, model="owner/model-GGUF", revision="v2", gguf_file="m.Q8_0.gguf")
    text = card.model_card(files, "me/tiny", "", ())
    assert "trained from owner/model-GGUF (revision v2, file m.Q8_0.gguf) with" in text
    assert 'base_model: "owner/model-GGUF"\n' in text
    text = card.model_card(trained_from(found, model="owner/model"), "me/tiny", "", ())
    assert "trained from owner/model with" in text
