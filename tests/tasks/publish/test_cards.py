"""What the cards of a published model, adapter and data set say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tasks.config import validate
from tasks.engines import adapter
from tasks.estimators import average_paired_difference
from tasks.publish import card, facts, parts
from tasks.publish.facts import Publishable
from tasks.report import chart_sections
from tasks.run.manifests import TrainManifest
from tests.tasks.conftest import Lab
from tests.tasks.publish.test_publish import opened, planned, written
from warehouse import maintenance


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
