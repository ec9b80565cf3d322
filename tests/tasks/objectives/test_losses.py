"""Losses against closed forms, hand-computed values and an independent high-precision oracle."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from tasks.config import ObjectiveConfig
from tasks.objectives import losses, spo
from tasks.objectives.dispatch import Evaluated, Scales, objective_loss
from tests.refusals import refused


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TABLE = [
    ("a success predicted at -1", -1.0, 0.0, 1.0),
    ("a success predicted at 0", 0.0, 0.0, 0.0),
    ("a success predicted above 0", 2.0, 0.0, 0.0),
    ("a half chance predicted right", math.log(0.5), math.log(0.5), math.log(2)),
    ("a failure predicted at -ln 2", math.log(0.5), -math.inf, math.log(2)),
    ("a failure predicted above 0, at the clip", 3.0, -math.inf, -math.log(1 - math.exp(-0.1))),
    ("a target above 0 counts as 0", -1.0, 5.0, 1.0),
]


@pytest.mark.parametrize("name, prediction, target, expected", TABLE)
def test_cross_entropy_has_the_hand_computed_value(
    name: str, prediction: float, target: float, expected: float
) -> None:
    found = losses.cross_entropy(tensor(prediction), tensor(target), epsilon=0.1)
    assert found.item() == pytest.approx(expected, abs=1e-12), name


def test_squared_loss_is_in_reward_units() -> None:
    beta = 1 / math.log(100_000)
    assert losses.squared(tensor(0.0), tensor(-1 / beta), beta=beta).item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("prediction", "target", "expected"),
    [
        (0.0, -math.inf, math.log(2)),
        (math.log(3), math.log(3), -0.75 * math.log(0.75) - 0.25 * math.log(0.25)),
        (-math.log(4), 0.0, -0.5 * math.log(0.2) - 0.5 * math.log(0.8)),
    ],
)
def test_sigmoid_loss_has_the_hand_computed_value(prediction: float, target: float, expected: float) -> None:
    found = losses.sigmoid_cross_entropy(tensor(prediction), tensor(target))
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_sigmoid_loss_is_smallest_where_prediction_equals_target() -> None:
    grid = torch.linspace(-8, 3, 1101, dtype=torch.float64)
    loss = losses.sigmoid_cross_entropy(grid, tensor(-2.5))
    assert grid[loss.argmin()].item() == pytest.approx(-2.5)


@pytest.mark.parametrize("y", [-1e-12, -1e-6, -0.1, -0.69, -0.7, -5.0, -40.0, -700.0])
def test_log1mexp_is_accurate_and_its_gradient_finite(y: float) -> None:
    x = tensor(y).requires_grad_(True)
    value = losses.log1mexp(x)
    value.backward()
    with mpmath.workdps(50):
        exact = mpmath.log(1 - mpmath.exp(mpmath.mpf(y)))
        slope = -mpmath.exp(mpmath.mpf(y)) / (1 - mpmath.exp(mpmath.mpf(y)))
    assert value.item() == pytest.approx(float(exact), rel=1e-12)
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(float(slope), rel=1e-9)


@pytest.mark.parametrize("y", [-5.0, -0.2, -0.05, 0.0, 4.0])
def test_straight_through_gradient_is_the_closed_form_at_the_clipped_value(y: float) -> None:
    """d/dy of -(1 - x) log(1 - e^c) is (1 - x) e^c / (1 - e^c) with c = min(y, -eps), whatever y is above the clip."""
    prediction = tensor(y).requires_grad_(True)
    losses.cross_entropy_of_probability(prediction, tensor(0.0), epsilon=0.1).backward()
    c = min(y, -0.1)
    assert prediction.grad is not None
    assert prediction.grad.item() == pytest.approx(math.exp(c) / (1 - math.exp(c)), rel=1e-12)


def test_the_slope_of_a_failure_is_at_most_one_over_epsilon() -> None:
    prediction = torch.linspace(-3, 50, 500, dtype=torch.float64).requires_grad_(True)
    losses.cross_entropy_of_probability(prediction, tensor(0.0), epsilon=0.1).sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.max() <= 1 / 0.1


def test_cross_entropy_is_unbiased_in_its_monte_carlo_target() -> None:
    """The mean loss over estimates is the loss of the mean estimate (3.1.3)."""
    prediction, estimates = tensor(-0.7), tensor(0.0, 0.25, 1.0, 0.5)
    each = losses.cross_entropy_of_probability(prediction.expand(4), estimates, epsilon=0.1).mean()
    whole = losses.cross_entropy_of_probability(prediction, estimates.mean(), epsilon=0.1)
    assert each.item() == pytest.approx(whole.item(), abs=1e-14)


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    a = torch.randn(2, 5, generator=generator, dtype=torch.float64) * mask
    return tensor(-2.0, -4.0), a.requires_grad_(True), tensor(0.0, -11.5), mask


def test_squared_advantage_regression_equals_squared_terminal_regression() -> None:
    y0, a, r, _ = batch()
    by_advantage = losses.squared(a.sum(1), r - y0, beta=0.1)
    terminal = spo.terminal_q_regression_squared(y0, a, r, beta=0.1)
    assert torch.allclose(by_advantage, terminal, rtol=1e-14)
    left = torch.autograd.grad(by_advantage.sum(), a, retain_graph=True)[0]
    right = torch.autograd.grad(terminal.sum(), a)[0]
    assert torch.allclose(left, right, rtol=1e-14)


def test_every_reverse_q_error_equals_the_terminal_error() -> None:
    """y_t - R_t = y_T - r/beta for all t (3.1.2)."""
    y0, a, r, _ = batch()
    error = spo.cumulative_value(y0, a) - spo.reverse_value(r, a)
    terminal = spo.terminal_value(y0, a) - r
    assert torch.allclose(error, terminal[:, None].expand_as(error), rtol=1e-13)


def test_reverse_q_gradients_grow_towards_the_beginning() -> None:
    """Term t flows into a_1..a_t, so a_s collects T - s + 1 equal terms (3.1.2)."""
    y0, a, r, mask = batch()
    loss = spo.non_terminal_q_regression_squared(y0, a, r, mask, beta=0.1, reduction="sum")
    gradient = torch.autograd.grad(loss.sum(), a)[0][0]
    assert torch.allclose(gradient / gradient[-1], tensor(5, 4, 3, 2, 1))


@pytest.mark.parametrize("columns", [1, 2, 5, 8, 33])
def test_prefix_sums_are_cumulative_sums_with_their_gradient(columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    x = torch.randn(3, columns, generator=generator, dtype=torch.float64).requires_grad_(True)
    upstream = torch.randn(3, columns, generator=generator, dtype=torch.float64)
    assert torch.allclose(spo.prefix_sums(x), x.cumsum(1), rtol=0, atol=1e-13)
    found = torch.autograd.grad((spo.prefix_sums(x) * upstream).sum(), x)[0]
    wanted = torch.autograd.grad((x.cumsum(1) * upstream).sum(), x)[0]
    assert torch.allclose(found, wanted, rtol=0, atol=1e-13)


def test_padding_columns_change_nothing() -> None:
    y0, a, r, mask = batch()
    for reduction in ("mean", "sum"):
        short = spo.non_terminal_q_regression_cross_entropy(
            y0[1:], a[1:, :2], r[1:], mask[1:, :2], epsilon=0.1, reduction=reduction
        )
        padded = spo.non_terminal_q_regression_cross_entropy(
            y0[1:], a[1:], r[1:], mask[1:], epsilon=0.1, reduction=reduction
        )
        assert torch.allclose(short, padded, rtol=1e-14)


@pytest.mark.parametrize("kind", ["monte_carlo", "policy_gradient"])
def test_an_objective_without_its_annotations_is_refused(kind: str) -> None:
    y0, a, r, mask = batch()
    data = Evaluated(a, torch.zeros_like(a), mask, y0, r)
    with refused("MissingAnnotation", kind):
        objective_loss(ObjectiveConfig(kind=kind), data, Scales(0.1, 0.1))  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_monte_carlo_targets_of_a_small_beta_are_finite_in_float32(loss: str) -> None:
    beta = 0.005
    logp_BT, mask_BT = torch.tensor([[-1.0]]), torch.tensor([[True]])
    data = Evaluated(
        logp_BT,
        torch.tensor([[-2.0]]),
        mask_BT,
        y0_B=torch.tensor([-1.5]),
        terminal_B=torch.tensor([-1 / beta]),
        log_x_BT=torch.tensor([[-1 / beta]]),
        annotated_BT=mask_BT,
    )
    found = objective_loss(ObjectiveConfig(kind="monte_carlo", loss=loss), data, Scales(beta, 0.1))  # type: ignore[arg-type]
    expected = (1 - 0.5 * beta) ** 2 if loss == "squared" else -math.log1p(-math.exp(-0.5))
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, math.log(2)])
def test_the_steepest_slope_of_a_failure_is_the_one_at_the_bound(epsilon: float) -> None:
    y = torch.tensor([-5.0, -epsilon, -epsilon / 2, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    losses.cross_entropy_of_probability(y, torch.zeros(5, dtype=torch.float64), epsilon=epsilon).sum().backward()
    assert y.grad is not None
    assert y.grad[1:].tolist() == pytest.approx([1 / math.expm1(epsilon)] * 4)
    assert y.grad.max() == y.grad[1]


def test_likelihood_is_the_cross_entropy_of_a_successs_tokens_and_nothing_for_a_failure() -> None:
    logp_BT = torch.tensor([[-1.0, -3.0, 0.0], [-2.0, -2.0, -2.0]], dtype=torch.float64, requires_grad=True)
    mask_BT = torch.tensor([[True, True, False], [True, True, True]])
    evaluated = Evaluated(logp_BT, torch.zeros(2, 3), mask_BT, tensor(-1.0, -1.0), tensor(0.0, -11.5))
    scales = Scales(beta=0.1, clip_epsilon=0.1)
    mean_B = objective_loss(ObjectiveConfig(kind="likelihood"), evaluated, scales)
    assert mean_B.tolist() == [2.0, 0.0]
    mean_B.sum().backward()
    assert logp_BT.grad is not None
    assert logp_BT.grad.tolist() == [[-0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]
    sum_B = objective_loss(ObjectiveConfig(kind="likelihood", reduction="sum"), evaluated, scales)
    assert sum_B.tolist() == [4.0, 0.0]
