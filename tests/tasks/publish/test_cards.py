"""What the cards of a published model, adapter and data set say."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tasks.checkpoints import adapter
from tasks.extras.publish import card, facts, parts
from tasks.extras.publish.facts import Publishable
from tasks.run.manifests import TrainManifest
from tests.tasks.conftest import Lab
from tests.tasks.publish.test_publish import opened, planned, written
from warehouse.upkeep import maintenance


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


def test_paths_in_settings_keep_their_last_part_alone() -> None:
    tree = {"problems": {"path": "/data/sets/problems.jsonl"}, "files": ["~/mine.jsonl", "owner/name"], "seed": 1}
    assert facts.without_paths(tree) == {
        "problems": {"path": "problems.jsonl"},
        "files": ["mine.jsonl", "owner/name"],
        "seed": 1,
    }


def trained_from(found: Publishable, **reference: str) -> Publishable:
    """The same policy, as if it had been trained from this model."""
    changed = found.config.reference.model_copy(update=reference)
    config = found.config.model_copy(update={"reference": changed})
    name, title = facts._base(config)
    history = replace(found.history, config=config)
    return replace(found, history=history, base_model=name, base_title=title)


def loaded_by(card_text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which the card's snippet loads the base."""
    snippet = ast.parse(card_text.partition("```python\n")[2].partition("```")[0])
    calls = [node for node in ast.walk(snippet) if isinstance(node, ast.Call)]
    (call,) = [one for one in calls if ast.unparse(one.func) == "AutoModelForCausalLM.from_pretrained"]
    named = {one.arg or "": ast.literal_eval(one.value) for one in call.keywords}
    return tuple(ast.literal_eval(one) for one in call.args), named


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
    assert loaded_by(part.card) == ((reference["model"] if hub else "BASE_MODEL",), arguments)
