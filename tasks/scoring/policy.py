"""The model as the objectives need it: prompt and response in, log-probabilities of the response tokens out.

One class serves pi_theta and pi_0, so that both are evaluated by the same code, dtype and kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks.checkpoints.checkpoint import load_weights
from tasks.checkpoints.inspection import changed_logits
from tasks.config import TrainConfig
from tasks.engines.positions import does_not_fit
from tasks.scoring import attention, lora
from tasks.scoring.errors import UnsupportedModel
from tasks.scoring.logprobs import ResponseHead
from tasks.scoring.packing import Layout, Pack


class Policy(nn.Module):
    """A causal language model whose forward pass gives response log-probabilities. Dropout is off."""

    def __init__(self, causal_lm: Any, *, layout: Layout, chunk: int) -> None:
        super().__init__()
        _require_plain_head(causal_lm)
        attention.register()
        causal_lm.set_attn_implementation("sdpa" if layout == "padded" else attention.NAME)
        self.causal_lm = causal_lm
        self.head = ResponseHead(causal_lm.get_output_embeddings().weight, chunk)
        self.layout: Layout = layout

    def forward(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """Log-probability of every response token of the pack and the entropy there; float32, shape N each.

        Raises UnsupportedModel for a sequence that is longer than the model has positions for.
        """
        self._require_positions(pack)
        return self.head(hidden_states(self.causal_lm.base_model, pack), pack.predictor_N, pack.targets_N)

    def _require_positions(self, pack: Pack) -> None:
        computed = pack.ids.shape[1] if pack.tree is None else pack.tree.longest
        longest = computed + 1  # the last token is predicted, not read
        if reason := does_not_fit(longest, self.causal_lm):
            raise UnsupportedModel(f"{reason}, and corpus.max_tokens where it is larger")


def hidden_states(trunk: Any, pack: Pack) -> Tensor:
    """Last hidden states of the tokens that predict response tokens. Shape M, hidden size."""
    extra: dict[str, Any] = {} if pack.tree is None else {"tree": pack.tree}
    output = trunk(
        input_ids=pack.ids,
        position_ids=pack.position_ids,
        attention_mask=pack.attention_mask,
        use_cache=False,
        **extra,
    )
    hidden: Tensor = output.last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1])[pack.predictors_M]


def load_policy(folder: Path, config: TrainConfig, dtype: str, *, trained: bool) -> Policy:
    """The policy of a checkpoint folder. `trained` is False for pi_0: it then takes no gradients."""
    causal_lm = load_weights(folder, dtype)
    if trained and config.lora is not None:
        lora.add_adapters(causal_lm, config.lora)
    policy = Policy(causal_lm, layout=config.packing, chunk=config.logprob_chunk_tokens)
    policy.eval()
    if not trained:
        policy.requires_grad_(False)
    if trained and config.gradient_checkpointing:
        policy.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
        policy.causal_lm.train()
        _without_dropout(policy)
    return policy


def full_logprobs(policy: Policy, prompt_ids: tuple[int, ...], response_ids: tuple[int, ...]) -> Tensor:
    """The response's log-probabilities by the model's own forward pass, alone and with all logits. Shape T.

    The independent way: what start-up compares the trainer's way with.
    """
    model = policy.causal_lm
    device = next(policy.parameters()).device
    ids = torch.tensor([(*prompt_ids, *response_ids)], device=device)
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        with torch.no_grad():
            logits: Tensor = model(input_ids=ids, use_cache=False).logits[0].float()
    finally:
        model.set_attn_implementation(before)
    logp = logits[len(prompt_ids) - 1 : -1].log_softmax(dim=-1)
    return logp.gather(1, ids[0, len(prompt_ids) :, None])[:, 0]


def _require_plain_head(causal_lm: Any) -> None:
    head = causal_lm.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        raise UnsupportedModel(
            f"{type(causal_lm).__name__}: the output head must be a linear map without bias", code="OutputHead"
        )
    if changed := changed_logits(causal_lm.config.to_dict()):
        raise UnsupportedModel(f"{type(causal_lm).__name__}: config.{changed} changes the logits", code="ChangedLogits")


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if hasattr(part, "attention_dropout"):
            setattr(part, "attention_dropout", 0.0)  # noqa: B010
