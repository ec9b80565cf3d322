"""Log-probabilities of chosen tokens without ever holding a batch's logits.

Legend: N tokens, D hidden size, V vocabulary. Logits exist for one chunk of tokens at a time, in float32; the backward
pass computes them again from the stored log-sum-exp and adds each chunk's weight gradient in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WIDE = (torch.float32, torch.float64)


def token_logprobs(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, *, chunk: int) -> tuple[Tensor, Tensor]:
    """log softmax(hidden @ weight.T) at the targets, and the entropy of each distribution. Float32 or wider, shape N.

    The second result carries no gradient. `chunk` tokens have logits at once.
    """
    logp_N, entropy_N = _TokenLogprobs.apply(hidden_ND, weight_VD, targets_N, chunk)  # pyright: ignore[reportGeneralTypeIssues]
    return logp_N, entropy_N


class ResponseHead(nn.Module):
    """The model's output head, applied to response tokens alone. Shares `weight` with the model."""

    def __init__(self, weight_VD: nn.Parameter, chunk: int) -> None:
        super().__init__()
        self.weight = weight_VD
        self.chunk = chunk

    def forward(self, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """As `token_logprobs`."""
        return token_logprobs(hidden_ND, self.weight, targets_N, chunk=self.chunk)


def _logits(hidden_nD: Tensor, weight_VD: Tensor) -> Tensor:
    """Float32 logits of a chunk; products of bfloat16 factors are exact in float32, so only the output is widened."""
    if hidden_nD.dtype in WIDE:
        return hidden_nD @ weight_VD.T
    if hidden_nD.is_cuda:
        return torch.mm(hidden_nD, weight_VD.T, out_dtype=torch.float32)
    return hidden_nD.float() @ weight_VD.float().T


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in float32 or wider, `left` rounded to the dtype of `right`."""
    if right.dtype in WIDE:
        return left @ right
    if right.is_cuda:
        return torch.mm(left.to(right.dtype), right, out_dtype=torch.float32)
    return left.float() @ right.float()


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        pieces = [
            _chunk_forward(hidden_nD, weight_VD, targets_n)
            for hidden_nD, targets_n in zip(hidden_ND.split(chunk), targets_N.split(chunk), strict=True)
        ]
        logp_N, entropy_N, lse_N = (torch.cat(part) for part in zip(*pieces, strict=True))
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N, lse_N)
        ctx.chunk = chunk
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        hidden_ND, weight_VD, targets_N, lse_N = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden_ND) if wants_hidden else None
        wide = weight_VD.dtype if weight_VD.dtype in WIDE else torch.float32
        weight_gradient = torch.zeros_like(weight_VD, dtype=wide) if wants_weight else None
        for start in range(0, hidden_ND.shape[0], ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logits_nV = _logits(hidden_ND[part], weight_VD)
            d_nV = logits_nV.sub_(lse_N[part, None]).exp_().neg_()
            d_nV.scatter_add_(1, targets_N[part, None], torch.ones_like(lse_N[part, None]))
            d_nV.mul_(gradients[0][part, None])
            if hidden_gradient is not None:
                hidden_gradient[part] = _product(d_nV, weight_VD).to(hidden_gradient.dtype)
            if weight_gradient is not None and hidden_ND.dtype in WIDE:
                weight_gradient.addmm_(d_nV.T, hidden_ND[part])
            elif weight_gradient is not None:
                weight_gradient.add_(_product(d_nV.T, hidden_ND[part]))
        return hidden_gradient, None if weight_gradient is None else weight_gradient.to(weight_VD.dtype), None, None


def _chunk_forward(hidden_nD: Tensor, weight_VD: Tensor, targets_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p of the targets, entropy, log-sum-exp; the logits are dropped on return."""
    logits_nV = _logits(hidden_nD, weight_VD)
    lse_n = logits_nV.logsumexp(dim=1)
    logp_n = logits_nV.gather(1, targets_n[:, None])[:, 0] - lse_n
    p_nV = (logits_nV - lse_n[:, None]).exp_()
    entropy_n = lse_n - p_nV.mul_(logits_nV).sum(dim=1)
    return logp_n, entropy_n, lse_n
