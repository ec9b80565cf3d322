"""PPO's learned value model (paper 3.1.4): a second network of the policy's shape with one number per token.

Legend: N response tokens of all sequences end to end, M tokens that predict them, D hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks.config import TrainConfig
from tasks.scoring.packing import Pack
from tasks.scoring.policy import Policy, hidden_states, load_policy


class ValueModel(nn.Module):
    """Expected return before each response token, in reward units; `start` everywhere at first."""

    def __init__(self, trunk: Any, start: float = 0.0) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(trunk.config.hidden_size, 1, dtype=next(trunk.parameters()).dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, start)

    def forward(self, pack: Pack) -> Tensor:
        """Values of the states that the pack's response tokens were chosen in. Float32 or wider, shape N."""
        hidden_MD = hidden_states(self.trunk, pack)
        weight_D, bias = self.head.weight[0], self.head.bias[0]
        wide = torch.promote_types(hidden_MD.dtype, torch.float32)
        return (hidden_MD.to(wide) @ weight_D.to(wide) + bias.to(wide))[pack.predictor_N]


class ActorCritic(nn.Module):
    """Policy and value model under one engine: one optimizer, one checkpoint."""

    def __init__(self, policy: Policy, value_model: ValueModel) -> None:
        super().__init__()
        self.policy = policy
        self.value_model = value_model

    def forward(self, pack: Pack) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, entropies and values at the pack's response tokens; shape N each."""
        logp_N, entropy_N = self.policy(pack)
        return logp_N, entropy_N, self.value_model(pack)


def load_value_model(folder: Path, config: TrainConfig, dtype: str, start: float = 0.0) -> ValueModel:
    """A value model with the network of a checkpoint folder, without its output head, that says `start` at first."""
    return ValueModel(load_policy(folder, config, dtype, trained=True).causal_lm.base_model, start)
