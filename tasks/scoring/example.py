"""Trajectories as the trainer sees them, and what a forward pass over some of them gives.

Legend: B sequences, T response tokens, N response tokens of all sequences end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.config import SourceName
from tasks.objectives.dispatch import Evaluated


@dataclass(frozen=True, slots=True)
class Example:
    """One trajectory to train on. Token ids are those that were sampled; the end token is among them when sampled."""

    trajectory_id: str
    problem_id: str
    source: SourceName
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    terminal: float
    """r/beta, nats."""
    y0: float
    """Soft value of the prompt, nats."""
    stopped: bool
    """True when the response ends with the end token."""
    behaviour_logprobs: tuple[float, ...] | None = None
    """Of the response tokens under what sampled them, nats."""
    sampled_logp: float | None = None
    """Log-probability of the response under the weights that sampled it, before temperature and nucleus, nats; None
    where that is not known."""
    sampled_step: int | None = None
    """Optimizer steps of this run behind the weights that sampled it; None for what the run did not sample."""
    token_values: tuple[tuple[int, float], ...] = ()
    """(prefix length in response tokens, logarithm of the estimate of E[exp(r/beta)], nats), prefix lengths from 1."""
    group: str | None = None
    """The first trajectory of those that are compared with it: all responses to a prompt, or a pair; None: alone."""
    group_values: tuple[float, ...] = ()
    """What the group says of it, one number per objective of its source."""

    @property
    def length(self) -> int:
        """Tokens of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def input_ids(self) -> tuple[int, ...]:
        """What a model has to read: prompt and response without the last token, after which nothing is predicted."""
        return (*self.prompt_ids, *self.response_ids)[:-1]


def to_rows(flat_N: Tensor, lengths: Sequence[int]) -> Tensor:
    """Values of consecutive sequences as right-padded rows, padding 0. Shape B T; gradients pass."""
    return torch.nn.utils.rnn.pad_sequence(list(flat_N.split(list(lengths))), batch_first=True)


def evaluated(examples: Sequence[Example], logp_N: Tensor, ref_logp_N: Tensor) -> Evaluated:
    """What the objectives need, from log-probabilities of the examples' response tokens end to end."""
    lengths = [len(example.response_ids) for example in examples]
    logp_BT = to_rows(logp_N, lengths)
    log_x_BT, annotated_BT = _annotations(examples, logp_BT)
    return Evaluated(
        logp_BT=logp_BT,
        ref_logp_BT=to_rows(ref_logp_N, lengths),
        mask_BT=response_mask(lengths, logp_BT),
        y0_B=_column([example.y0 for example in examples], logp_BT),
        terminal_B=_column([example.terminal for example in examples], logp_BT),
        behaviour_logp_BT=behaviour_rows(examples, logp_BT),
        log_x_BT=log_x_BT,
        annotated_BT=annotated_BT,
        group_BO=_column([example.group_values for example in examples], logp_BT) if examples[0].group_values else None,
    )


def response_mask(lengths: Sequence[int], like_BT: Tensor) -> Tensor:
    """True on the response tokens of right-padded rows. Shape B T."""
    columns_T = torch.arange(like_BT.shape[1], device=like_BT.device)
    return columns_T[None, :] < torch.tensor(lengths, device=like_BT.device)[:, None]


def behaviour_rows(examples: Sequence[Example], like_BT: Tensor) -> Tensor | None:
    """Log-probabilities under what sampled, padding 0; None when one of the examples has none. Shape B T."""
    flat: list[float] = []
    for example in examples:
        if example.behaviour_logprobs is None:
            return None
        flat += example.behaviour_logprobs
    return to_rows(_column(flat, like_BT), [len(example.response_ids) for example in examples])


def _column(values: Sequence[float] | Sequence[tuple[float, ...]], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _annotations(examples: Sequence[Example], like_BT: Tensor) -> tuple[Tensor | None, Tensor | None]:
    if not any(example.token_values for example in examples):
        return None, None
    log_x_BT = torch.zeros_like(like_BT, requires_grad=False)
    annotated_BT = torch.zeros_like(like_BT, dtype=torch.bool)
    for row, example in enumerate(examples):
        for position, log_x in example.token_values:
            log_x_BT[row, position - 1] = log_x
            annotated_BT[row, position - 1] = True
    return log_x_BT, annotated_BT
