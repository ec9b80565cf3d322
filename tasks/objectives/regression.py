"""Squared regressions of a response's log-ratio, and the logistic one of pairs (docs/reference/methods.md).

Legend: B sequences; `log_ratio_B` = log pi_theta(y|x) - log pi_ref(y|x), summed over tokens, pi_ref being the policy
that it is regularised towards; arguments in nats, squared losses in reward units (nats times beta), of shape B. The
squared ones have the zero of the paper's terminal Q-regression, log_ratio = r/beta - log Z, and differ in what log Z
is.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def optimal_advantage_regression(
    value_B: Tensor, log_ratio_B: Tensor, terminal_B: Tensor, *, beta: float, regression_beta: float
) -> Tensor:
    """(beta_2 log pi/pi_ref - (r - V*))^2, V* = beta value.

    Brantley et al. 2025 (A*-PO, arXiv 2505.20686): V* from samples of pi_0, which is Q0's soft value; with
    regression_beta = beta it is terminal Q-regression with the squared loss. Ritter et al. 2026 (OAPL, arXiv
    2602.19362): pi_ref is what sampled, and V* comes from the group (`groups.optimal_value`).
    """
    return (regression_beta * log_ratio_B - beta * (terminal_B - value_B)).square()


def trajectory_balance(log_z_B: Tensor, log_ratio_B: Tensor, terminal_B: Tensor, *, beta: float) -> Tensor:
    """(beta (log Z + log pi/pi_0 - r/beta))^2 with log Z a constant of the group (`groups.log_partition`).

    Bartoldson et al. 2025 (TBA, arXiv 2503.18929), in reward units: beta^2 times theirs.
    """
    return (beta * (log_z_B.detach() + log_ratio_B - terminal_B)).square()


def direct_preference(log_ratio_B: Tensor, partner_log_ratio_B: Tensor, preferred_B: Tensor, *, beta: float) -> Tensor:
    """-log sigmoid(beta (log-ratio of the success - log-ratio of the failure)) for each of the two.

    Rafailov et al. 2023 (DPO, arXiv 2305.18290), Eq. 7. `partner_log_ratio_B` is a constant, so each of a pair carries
    its own half of the gradient, and the two together the pair's. `preferred_B` is True for successes.
    """
    margin_B = log_ratio_B - partner_log_ratio_B.detach()
    return -functional.logsigmoid(beta * margin_B.where(preferred_B, -margin_B))
