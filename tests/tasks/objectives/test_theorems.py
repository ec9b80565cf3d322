"""Section 2 of the paper, by enumerating every sequence. The functions under test are the ones that train."""

from __future__ import annotations

import pytest
import torch

from tasks.objectives import spo
from tests.tasks.objectives import enumeration as e

TOLERANCE = 1e-12
SEEDS = range(5)


def values_of(logits: torch.Tensor, w: e.World, y0: float) -> torch.Tensor:
    """y_0..y_T of every sequence under the cumulative parametrization. Shape V^T, T + 1."""
    mask = torch.ones(len(e.SEQUENCES), e.LENGTH, dtype=torch.bool)
    a = spo.advantage(e.token_logprobs(logits), e.token_logprobs(w.ref_logits), mask)
    start = torch.full((len(e.SEQUENCES),), y0, dtype=torch.float64)
    return torch.cat([start[:, None], spo.cumulative_value(start, a)], dim=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_2_1_optimal_policy_and_right_start_give_the_true_value(seed: int) -> None:
    w = e.world(seed)
    y0 = e.true_values(w)[()]
    assert torch.allclose(values_of(e.optimal_logits(w), w, y0)[:, 1:], e.value_table(w), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_2_1_another_policy_or_start_does_not(seed: int) -> None:
    w = e.world(seed)
    y0, table = e.true_values(w)[()], e.value_table(w)
    assert (values_of(e.random_logits(seed + 50), w, y0)[:, 1:] - table).abs().max() > 1e-2
    assert (values_of(e.optimal_logits(w), w, y0 + 0.1)[:, 1:] - table).abs().max() > 1e-2


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_2_2_bellman_consistency_holds_for_any_policy(seed: int) -> None:
    w = e.world(seed)
    y = values_of(e.random_logits(seed + 50), w, -1.3)
    by_prefix = {s[:t]: y[i, t] for i, s in enumerate(e.SEQUENCES) for t in range(e.LENGTH + 1)}
    ref = w.ref_logits.log_softmax(1)
    for prefix in e.PREFIXES:
        following = torch.stack([by_prefix[(*prefix, token)] for token in range(e.VOCABULARY)])
        backed_up = torch.logsumexp(ref[e.ROW[prefix]] + following, 0)
        assert abs(backed_up - by_prefix[prefix]) < TOLERANCE


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_2_3_path_consistency_holds_on_every_interval(seed: int) -> None:
    w = e.world(seed)
    logits = e.random_logits(seed + 50)
    mask = torch.ones(len(e.SEQUENCES), e.LENGTH, dtype=torch.bool)
    a = spo.advantage(e.token_logprobs(logits), e.token_logprobs(w.ref_logits), mask)
    y = values_of(logits, w, -0.7)
    for first in range(1, e.LENGTH + 1):
        for last in range(first, e.LENGTH + 1):
            assert torch.allclose(a[:, first - 1 : last].sum(1), y[:, last] - y[:, first - 1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_2_4_right_terminal_values_make_all_values_right(seed: int) -> None:
    """Solve for the logits that make y_T = r/beta everywhere, then look at every other prefix."""
    w = e.world(seed)
    y0 = e.true_values(w)[()]
    y = values_of(e.optimal_logits(w), w, y0)
    assert torch.allclose(y[:, -1], w.terminal, rtol=0, atol=TOLERANCE)
    a = y[:, 1:] - y[:, :-1]
    assert torch.allclose(spo.terminal_value(y[:, 0], a), w.terminal, rtol=0, atol=TOLERANCE)
    ref = w.ref_logits.log_softmax(1)
    known = {s: y[i, -1] for i, s in enumerate(e.SEQUENCES)}
    for prefix in reversed(e.PREFIXES):
        following = torch.stack([known[(*prefix, token)] for token in range(e.VOCABULARY)])
        known[prefix] = torch.logsumexp(ref[e.ROW[prefix]] + following, 0)
    truth = e.true_values(w)
    assert all(abs(known[prefix] - truth[prefix]) < TOLERANCE for prefix in truth)


def test_eq_2_is_the_maximum_of_the_regularized_reward() -> None:
    """Eq. 1 and Eq. 4: L(pi) = V - beta KL[pi, pi*], so no policy does better than pi*."""
    w = e.world()
    ref, best = e.token_logprobs(w.ref_logits).sum(1), e.token_logprobs(e.optimal_logits(w)).sum(1)
    soft_value = e.true_values(w)[()]
    for seed in SEEDS:
        logp = e.token_logprobs(e.random_logits(seed)).sum(1)
        objective = (logp.exp() * (w.terminal - (logp - ref))).sum()
        assert abs(objective - (soft_value - (logp.exp() * (logp - best)).sum())) < TOLERANCE
        assert objective < soft_value


def test_eq_6_optimal_policy_is_the_reference_reweighted_by_advantages() -> None:
    w = e.world()
    truth = e.true_values(w)
    ref, best = w.ref_logits.log_softmax(1), e.optimal_logits(w).log_softmax(1)
    for prefix in e.PREFIXES:
        for token in range(e.VOCABULARY):
            advantage = truth[(*prefix, token)] - truth[prefix]
            assert abs(ref[e.ROW[prefix], token] + advantage - best[e.ROW[prefix], token]) < TOLERANCE


def test_eq_7_the_optimal_advantage_is_the_difference_of_true_values() -> None:
    w = e.world()
    truth, mask = e.true_values(w), torch.ones(len(e.SEQUENCES), e.LENGTH, dtype=torch.bool)
    found = spo.advantage(e.token_logprobs(e.optimal_logits(w)), e.token_logprobs(w.ref_logits), mask)
    wanted = [[truth[s[: t + 1]] - truth[s[:t]] for t in range(e.LENGTH)] for s in e.SEQUENCES]
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=TOLERANCE)


def test_eq_9_forward_and_backward_values_agree_at_the_optimum() -> None:
    w = e.world()
    mask = torch.ones(len(e.SEQUENCES), e.LENGTH, dtype=torch.bool)
    a = spo.advantage(e.token_logprobs(e.optimal_logits(w)), e.token_logprobs(w.ref_logits), mask)
    start = torch.full((len(e.SEQUENCES),), e.true_values(w)[()], dtype=torch.float64)
    forward, backward = spo.cumulative_value(start, a), spo.reverse_value(w.terminal, a)
    assert torch.allclose(forward, backward, rtol=0, atol=TOLERANCE)
