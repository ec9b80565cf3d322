"""PPO's objectives against their definitions."""

from __future__ import annotations

import pytest
import torch

from tasks.objectives import ppo

MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])


def values(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * MASK


def test_generalized_advantage_equals_its_sum() -> None:
    reward, value, discount, trace = values(0), values(1), 0.9, 0.8
    found = ppo.generalized_advantage(reward, value, MASK, discount=discount, trace=trace)
    for row, length in ((0, 4), (1, 2)):
        after = [*value[row, 1:length].tolist(), 0.0]
        delta = [float(reward[row, t]) + discount * after[t] - float(value[row, t]) for t in range(length)]
        for t in range(length):
            wanted = sum((discount * trace) ** k * delta[t + k] for k in range(length - t))
            assert abs(float(found[row, t]) - wanted) < 1e-12
    assert found[1, 2:].abs().sum() == 0


@pytest.mark.parametrize("trace", [0.0, 0.6, 0.95])
def test_generalized_advantage_is_the_weighted_mean_of_the_n_step_advantages(trace: float) -> None:
    """The other way to define it: (1 - trace) sum_n trace^(n-1) A_n, the last step taking the weight that is left."""
    reward, value, discount, length = values(0)[0].tolist(), values(1)[0].tolist(), 0.9, 4
    found = ppo.generalized_advantage(values(0), values(1), MASK, discount=discount, trace=trace)[0].tolist()
    for t in range(length):
        total, left = 0.0, 1.0
        for n in range(1, length - t + 1):
            end = t + n
            ahead = discount**n * value[end] if end < length else 0.0
            n_step = sum(discount**k * reward[t + k] for k in range(n)) + ahead - value[t]
            weight = left if end == length else (1 - trace) * trace ** (n - 1)
            total, left = total + weight * n_step, left - weight
        assert found[t] == pytest.approx(total, abs=1e-12)


def test_regularized_rewards_add_up_to_the_soft_return() -> None:
    """Eq. 1: r/beta minus the summed log-ratio to the reference."""
    ratio, terminal = values(2), torch.tensor([0.0, -11.5], dtype=torch.float64)
    reward = ppo.kl_regularized_rewards(terminal, ratio, MASK)
    assert torch.allclose(reward.sum(1), terminal - (ratio * MASK).sum(1))
    assert reward[1, 1] == terminal[1] - ratio[1, 1]


def test_clipped_loss_has_no_gradient_outside_the_clip_where_it_would_go_further() -> None:
    logp = torch.tensor([[0.5, -0.5, 0.5, -0.5]], dtype=torch.float64).requires_grad_(True)
    advantage = torch.tensor([[1.0, -1.0, -1.0, 1.0]], dtype=torch.float64)
    mask = torch.ones(1, 4, dtype=torch.bool)
    ppo.clipped_policy_loss(logp, torch.zeros_like(logp), advantage, mask, clip=0.2).sum().backward()
    assert logp.grad is not None
    assert logp.grad[0, :2].tolist() == [0.0, 0.0]
    assert torch.allclose(logp.grad[0, 2:], -(advantage * logp.exp())[0, 2:])


def test_value_loss_takes_the_larger_of_clipped_and_plain() -> None:
    value = torch.tensor([[2.0, 0.1]], dtype=torch.float64)
    loss = ppo.value_loss(
        value, torch.zeros_like(value), torch.zeros_like(value), torch.ones(1, 2, dtype=torch.bool), clip=0.5
    )
    assert torch.allclose(loss, torch.tensor([(0.5 * 4.0 + 0.5 * 0.01) / 2], dtype=torch.float64))
