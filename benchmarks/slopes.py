"""Slopes of each loss at the start, their balances, and the information of a sample, from the losses themselves.

    python -m benchmarks.slopes

Prints the tables of docs/evidence/regime.md; a test compares them. The slope of a trajectory is the derivative of its
loss by log pi_theta, averaged over its tokens; below 0 it makes the trajectory likelier. Before the first step all
advantages are 0, so that y_T = y_0 = ln(S + (1 - S) exp(-1/beta)).

S is pi_0's chance of success, p the share of successes in a batch; y_T is in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from tasks.config import ObjectiveConfig
from tasks.config.train import PAPER_BETA
from tasks.estimators import soft_value_of_share
from tasks.objectives.dispatch import Evaluated, Scales, objective_loss

TOKENS = 20
"""Length of a response; programs of the miniature tasks take about as many."""
CHANCES = (0.01, 0.02, 0.05, 0.15, 0.30)
SHOWN = (0.02, 0.15)
"""Chances of the tables: a problem of the paper's regime and one of the built-in task."""
FAILURE = -1 / PAPER_BETA
"""r/beta of a failure, nats."""
LOSSES = {
    "cross-entropy": ObjectiveConfig(),
    "squared": ObjectiveConfig(loss="squared"),
    "advantage, sigmoid": ObjectiveConfig(kind="advantage", loss="sigmoid"),
    "reverse Q, squared": ObjectiveConfig(kind="reverse_q", loss="squared"),
    "reverse Q, cross-entropy": ObjectiveConfig(kind="reverse_q"),
}
SCALES = Scales(PAPER_BETA, clip_epsilon=0.1)
"""As the half-online recipes have them."""
soft_value = partial(soft_value_of_share, beta=PAPER_BETA)
"""y_0 of a prompt that pi_0 solves with this chance, in nats."""


def token_slopes(objective: ObjectiveConfig, chance: float, advantage_T: Tensor, *, success: bool) -> Tensor:
    """d loss / d log pi_theta of every token of a response with these advantages, nats. Shape T, float64."""
    logp_BT = advantage_T.double()[None].clone().requires_grad_()
    trajectory = Evaluated(
        logp_BT=logp_BT,
        ref_logp_BT=torch.zeros_like(logp_BT),
        mask_BT=torch.ones_like(logp_BT, dtype=torch.bool),
        y0_B=torch.tensor([soft_value(chance)], dtype=torch.float64),
        terminal_B=torch.tensor([0.0 if success else FAILURE], dtype=torch.float64),
    )
    loss_B = objective_loss(objective, trajectory, SCALES)
    return torch.autograd.grad(loss_B.sum(), logp_BT)[0][0]


def slope(objective: ObjectiveConfig, chance: float, y_T: float, *, success: bool) -> float:
    """Mean slope over the tokens of a response whose advantages are all the same and lead to `y_T`."""
    advantage_T = torch.full((TOKENS,), (y_T - soft_value(chance)) / TOKENS, dtype=torch.float64)
    return float(token_slopes(objective, chance, advantage_T, success=success).mean())


def balance(objective: ObjectiveConfig, chance: float, passing: float) -> float:
    """The y_T at which successes and failures that the policy cannot tell apart pull alike, `passing` of them right."""

    def net(y_T: float) -> float:
        up = slope(objective, chance, y_T, success=True)
        return passing * up + (1 - passing) * slope(objective, chance, y_T, success=False)

    return _root(net, FAILURE, -1e-9)


def trajectories_needed(objective: ObjectiveConfig, chance: float) -> float:
    """Trajectories of pi_0 with the information of one under slopes of mean 0: the inverse of the squared ratios.

    The signal of a batch is the covariance of slope and score, in proportion to (g_fail - g_success) S (1 - S); its
    noise is in proportion to the root of E[g^2]. Slopes of mean 0 have the best ratio there is, S (1 - S).
    """
    y_0 = soft_value(chance)
    up, down = (slope(objective, chance, y_0, success=one) for one in (True, False))
    noise = chance * up**2 + (1 - chance) * down**2
    return noise / ((down - up) ** 2 * chance * (1 - chance))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Zero of a rising function; the upper end if it stays below 0."""
    if function(high) < 0:
        return high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def at_the_start() -> str:
    """Markdown: slopes at y_T = y_0, their balance, and trajectories needed, by loss and S."""
    rows: list[Sequence[str]] = []
    for name, objective in LOSSES.items():
        for chance in SHOWN:
            y_0 = soft_value(chance)
            up, down = (slope(objective, chance, y_0, success=one) for one in (True, False))
            half = (1 + chance) / 2
            share = half * -up / (half * -up + (1 - half) * down)
            cells = (f"{up:.3f}", f"{down:.4f}", f"{down / -up:.2g}", f"{share:.0%}")
            rows.append((name, f"{chance:.0%}", *cells, f"{trajectories_needed(objective, chance):.1f}"))
    head = ("loss", "S", "success", "failure", "failure / success", "successes' share, half online", "trajectories")
    return _markdown(head, *rows)


def balances() -> str:
    """Markdown: the y_T of balance for responses that the policy cannot tell apart, online (p = S) and half online."""
    rows: list[Sequence[str]] = []
    for name, objective in LOSSES.items():
        cells = [name]
        for passing in (lambda s: s, lambda s: (1 + s) / 2):
            cells += [f"{balance(objective, s, passing(s)):.1f}" for s in SHOWN]
        rows.append(cells)
    start = ["y_0", *[f"{soft_value(s):.1f}" for s in SHOWN] * 2]
    head = ("loss", "online, S = 2%", "online, 15%", "half online, 2%", "half online, 15%")
    return _markdown(head, start, *rows)


def learnt_late() -> str:
    """Markdown: slopes of a success whose last quarter of tokens has gained half of what it must gain."""
    advantage_T = torch.zeros(TOKENS, dtype=torch.float64)
    rows: list[Sequence[str]] = []
    for chance in SHOWN:
        advantage_T[-TOKENS // 4 :] = -soft_value(chance) / 2 / (TOKENS // 4)
        cells = [f"{chance:.0%}"]
        for name in ("cross-entropy", "reverse Q, cross-entropy", "squared", "reverse Q, squared"):
            slopes = token_slopes(LOSSES[name], chance, advantage_T, success=True)
            cells.append(f"{float(slopes.mean()):.3f}")
        rows.append(cells)
    head = ("S", "cross-entropy", "reverse Q, cross-entropy", "squared", "reverse Q, squared")
    return _markdown(head, *rows)


def _markdown(*lines: Sequence[str]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:]))


TABLES = (at_the_start, balances, learnt_late)

if __name__ == "__main__":
    print("\n\n".join(table() for table in TABLES))
