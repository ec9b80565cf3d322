"""The plain baseline beside the paper's losses: rejection fine-tuning. Legend: B sequences, T response tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.objectives.spo import LossReduction, reduce_tokens


def likelihood(logp_BT: Tensor, terminal_B: Tensor, mask_BT: Tensor, *, reduction: LossReduction) -> Tensor:
    """-log pi_theta over the tokens of successes (r = 0); 0 for failures. Shape B."""
    loss_B = reduce_tokens(-logp_BT, mask_BT, reduction)
    return torch.where(terminal_B >= 0, loss_B, torch.zeros_like(loss_B))
