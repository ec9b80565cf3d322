"""What the trainer's pass cannot compute is refused by name, with the setting that helps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import NemotronConfig, NemotronForCausalLM, StableLmConfig, StableLmForCausalLM

from tasks.scoring.packing import Layout, lay_out
from tasks.scoring.policy import Policy
from tests.refusals import refused
from tests.tasks.engines.conftest import build, tiny_settings
from tests.tasks.train.conftest import examples


@pytest.mark.parametrize(
    ("kind", "settings"), [(StableLmForCausalLM, StableLmConfig), (NemotronForCausalLM, NemotronConfig)]
)
def test_attention_that_takes_no_further_arguments_wants_the_padded_layout(kind: Any, settings: Any) -> None:
    model = kind(settings(**tiny_settings())).eval()
    with torch.no_grad():
        with refused("UnsupportedModel", "train.packing"):
            Policy(model, layout="shared", chunk=64)(lay_out(examples(2), "shared"))
        assert Policy(model, layout="padded", chunk=64)(lay_out(examples(2), "padded"))[0].isfinite().all()


@pytest.mark.parametrize("layout", ["shared", "padded"])
def test_a_sequence_longer_than_the_models_positions_is_refused_with_what_to_lower(layout: Layout) -> None:
    model = build("llama")
    pack = lay_out(examples(4), layout)
    longest = max(len(one.prompt_ids) + len(one.response_ids) for one in pack.examples)
    with torch.no_grad():
        model.config.max_position_embeddings = longest
        Policy(model, layout=layout, chunk=64)(pack)
        model.config.max_position_embeddings = longest - 1
        with refused("UnsupportedModel", longest, longest - 1):
            Policy(model, layout=layout, chunk=64)(pack)
