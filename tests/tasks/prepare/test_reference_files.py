"""Whether the reference policy is still the one that a run was prepared with."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tasks.checkpoints import checkpoint
from tasks.prepare.stage import STAGE
from tasks.run.errors import OtherWeights, StageError
from tasks.run.provenance import begin_training
from tests.tasks.conftest import Lab
from tests.tasks.engines.conftest import END, write_adapter
from tests.tasks.small_model import small_model, small_run, with_turns


def test_a_chat_template_that_was_edited_in_place_gives_other_prompts(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    first = lab.run(small_run(lab, model), "prepare")["prepare"].manifest
    (model / "chat_template.jinja").write_text("USER {{ messages[0].content }} ANSWER", encoding="utf-8")
    again = lab.run(small_run(lab, model), "prepare")["prepare"].manifest
    assert again.policy_id == first.policy_id
    assert again.template_id != first.template_id
    shown = "SELECT count(*) FROM prompts WHERE batch_id = '{}' AND starts_with(text, 'USER ') AND text LIKE '% ANSWER'"
    assert lab.value(shown.format(again.prompts_batch)) == 6
    assert lab.value(shown.format(first.prompts_batch)) == 0


@pytest.mark.parametrize("change", ["weights", "base", "none"])
def test_an_adapter_is_prepared_anew_when_it_or_its_base_has_changed(change: str, tmp_path: Path) -> None:
    lab, base = Lab(tmp_path), small_model(tmp_path / "base")
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    first = lab.run(small_run(lab, adapter), "prepare")["prepare"].manifest
    assert STAGE.usable(first)
    rounded = Path(shutil.copytree(first.reference, tmp_path / f"merged-{first.policy_id}"))
    assert not STAGE.usable(first.model_copy(update={"reference": rounded, "made_of": {}}))
    if change == "weights":
        other = write_adapter(tmp_path / "other", base, seed=2)
        os.replace(other / "adapter_model.safetensors", adapter / "adapter_model.safetensors")
    elif change == "base":
        small_model(base, seed=1)
    again = lab.run(small_run(lab, adapter), "prepare")["prepare"]
    assert again.skipped == (change == "none")
    assert (again.manifest.policy_id == first.policy_id) == (change == "none")


def test_a_run_whose_training_has_begun_keeps_what_it_began_with_or_is_refused(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    run_id = small_run(lab, model)
    first = lab.run(run_id, "prepare")["prepare"].manifest
    with lab.store() as store:
        begin_training(store, run_id, "key", store.snapshot())
    (model / "chat_template.jinja").write_text("another {{ messages[0].content }}", encoding="utf-8")
    assert lab.run(run_id, "prepare")["prepare"].manifest == first
    small_model(model, seed=1)
    with pytest.raises(OtherWeights, match=f"training of run '{run_id}' began with policy {first.policy_id}"):
        lab.run(run_id, "prepare")


def test_a_tokenizer_that_ends_responses_where_sampling_goes_on_is_refused(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    settings = model / "tokenizer_config.json"
    known = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps(known | {"eos_token": "a"}), encoding="utf-8")
    with pytest.raises(StageError, match=r"ends responses with token \d+ \('a'\), at which sampling would not stop"):
        lab.run(small_run(lab, model), "prepare")
    (model / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [END, _id(model, "a")]}), encoding="utf-8"
    )
    assert lab.run(small_run(lab, model), "prepare")["prepare"].manifest


def test_a_chat_template_that_ends_turns_where_sampling_goes_on_is_refused(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    turn = with_turns(model)
    words = rf"ends answers with token {turn} \('<turn>'\).* reference.template to 'few_shot' .*\(now {END}\)"
    with pytest.raises(StageError, match=words):
        lab.run(small_run(lab, model), "prepare")
    examples = {"reference": {"model": str(model), "template": "few_shot"}, "problems.max_prompt_tokens": 4096}
    assert lab.run(small_run(lab, model, **examples), "prepare")["prepare"].manifest
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, turn]}), encoding="utf-8")
    assert lab.run(small_run(lab, model), "prepare")["prepare"].manifest


def _id(model: Path, token: str) -> int:
    return int(checkpoint.load_tokenizer(model).convert_tokens_to_ids(token))
