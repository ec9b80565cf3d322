"""Log-probabilities of chosen tokens without ever holding a batch's logits.

Legend: N tokens, M hidden states that predict them, D hidden size, V vocabulary. Logits exist for one chunk of states
at a time, in float32; the backward pass computes them again from the stored log-sum-exp and adds each chunk's weight
gradient in place.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

WIDE = (torch.float32, torch.float64)
CACHED = 1 << 18
"""Logits that stay in a processor's cache from one pass over them to the next."""


def token_logprobs(
    hidden_MD: Tensor, weight_VD: Tensor, predictor_N: Tensor, targets_N: Tensor, *, chunk: int
) -> tuple[Tensor, Tensor]:
    """log softmax(hidden @ weight.T) at the targets, and the entropy of each distribution. Float32 or wider, shape N.

    Target n is predicted by hidden state `predictor_N[n]`; logits of a state that predicts several are computed once.
    The second result carries no gradient. `chunk` states have logits at once.
    """
    logp_N, entropy_N = _TokenLogprobs.apply(hidden_MD, weight_VD, predictor_N, targets_N, chunk)  # pyright: ignore[reportGeneralTypeIssues]
    return logp_N, entropy_N


class ResponseHead(nn.Module):
    """The model's output head, applied where response tokens are predicted. Shares `weight` with the model."""

    def __init__(self, weight_VD: nn.Parameter, chunk: int) -> None:
        super().__init__()
        self.weight = weight_VD
        self.chunk = chunk

    def forward(self, hidden_MD: Tensor, predictor_N: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """As `token_logprobs`."""
        return token_logprobs(hidden_MD, self.weight, predictor_N, targets_N, chunk=self.chunk)


def _logits(hidden_mD: Tensor, weight_VD: Tensor) -> Tensor:
    """Float32 logits of a chunk; products of bfloat16 factors are exact in float32, so only the output is widened."""
    if hidden_mD.dtype in WIDE:
        return hidden_mD @ weight_VD.T
    if hidden_mD.is_cuda:
        return torch.mm(hidden_mD, weight_VD.T, out_dtype=torch.float32)
    with _bfloat16_factors():
        return hidden_mD.float() @ weight_VD.float().T


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in float32 or wider, `left` rounded to the dtype of `right`."""
    if right.dtype in WIDE:
        return left @ right
    if right.is_cuda:
        return torch.mm(left.to(right.dtype), right, out_dtype=torch.float32)
    with _bfloat16_factors():
        return left.float() @ right.float()


@contextmanager
def _bfloat16_factors() -> Generator[None]:
    """Where the processor multiplies bfloat16: float32 products are of factors rounded to it, summed in float32."""
    matmul: Any = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_MD: Tensor, weight_VD: Tensor, predictor_N: Tensor, targets_N: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        wide = hidden_MD.dtype if hidden_MD.dtype in WIDE else torch.float32
        target_N = torch.zeros(targets_N.shape, dtype=wide, device=hidden_MD.device)
        lse_M, entropy_M = (torch.empty(len(hidden_MD), dtype=wide, device=hidden_MD.device) for _ in range(2))
        for start in range(0, len(hidden_MD), chunk):
            part = slice(start, start + chunk)
            logits_mV = _logits(hidden_MD[part], weight_VD)
            here_N, row_N = _rows(predictor_N, start, len(logits_mV))
            target_N = torch.where(here_N, logits_mV[row_N, targets_N], target_N)
            lse_M[part], entropy_M[part] = _summarise(logits_mV)
        ctx.save_for_backward(hidden_MD, weight_VD, predictor_N, targets_N, lse_M)
        ctx.chunk = chunk
        entropy_N = entropy_M[predictor_N]
        ctx.mark_non_differentiable(entropy_N)
        return target_N - lse_M[predictor_N], entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden_MD, weight_VD, predictor_N, targets_N, lse_M = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden_MD) if wants_hidden else None
        wide = weight_VD.dtype if weight_VD.dtype in WIDE else torch.float32
        weight_gradient = torch.zeros_like(weight_VD, dtype=wide) if wants_weight else None
        pull_N = gradients[0]
        pull_M = torch.zeros_like(lse_M).index_add_(0, predictor_N, pull_N)
        for start in range(0, len(hidden_MD), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logits_mV = _logits(hidden_MD[part], weight_VD)
            d_mV = _scaled_softmax(logits_mV, lse_M[part], -pull_M[part])
            here_N, row_N = _rows(predictor_N, start, len(logits_mV))
            d_mV.index_put_((row_N, targets_N), torch.where(here_N, pull_N, 0.0), accumulate=True)
            if hidden_gradient is not None:
                hidden_gradient[part] = _product(d_mV, weight_VD).to(hidden_gradient.dtype)
            if weight_gradient is not None and hidden_MD.dtype in WIDE:
                weight_gradient.addmm_(d_mV.T, hidden_MD[part])
            elif weight_gradient is not None:
                weight_gradient.add_(_product(d_mV.T, hidden_MD[part]))
        weight_gradient = None if weight_gradient is None else weight_gradient.to(weight_VD.dtype)
        return hidden_gradient, weight_gradient, None, None, None


def _rows(predictor_N: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Whether each target's state is among the `count` from `start` on, and its row there; some row if it is not."""
    row_N = predictor_N - start
    return (row_N >= 0) & (row_N < count), row_N.clamp(0, count - 1)


def _in_cache(x_mV: Tensor) -> int:
    """Rows of logits to make several passes over before the next ones: all on a GPU, on a CPU what its cache holds."""
    return len(x_mV) if x_mV.is_cuda else max(1, CACHED // x_mV.shape[1])


def _summarise(logits_mV: Tensor) -> tuple[Tensor, Tensor]:
    """Log-sum-exp and entropy of each row; spoils the logits."""
    found: list[tuple[Tensor, Tensor]] = []
    for rows_nV in logits_mV.split(_in_cache(logits_mV)):
        highest_n = rows_nV.amax(dim=1)
        weights_nV = rows_nV.sub_(highest_n[:, None]).exp()
        total_n = weights_nV.sum(dim=1)
        mean_n = torch.linalg.vecdot(weights_nV, rows_nV) / total_n
        found.append((highest_n + total_n.log(), total_n.log() - mean_n))
    lse, entropy = zip(*found, strict=True)
    return torch.cat(lse), torch.cat(entropy)


def _scaled_softmax(logits_mV: Tensor, lse_m: Tensor, scale_m: Tensor) -> Tensor:
    """The probabilities of each row times its scale, in place of the logits."""
    size = _in_cache(logits_mV)
    for rows_nV, lse_n, scale_n in zip(logits_mV.split(size), lse_m.split(size), scale_m.split(size), strict=True):
        rows_nV.sub_(lse_n[:, None]).exp_().mul_(scale_n[:, None])
    return logits_mV
