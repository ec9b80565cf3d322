"""Failure signatures: each shows on curves that have it, and none on a healthy run."""

from __future__ import annotations

import math

import pytest

from tasks.report.diagnostics import Curve, TrainingHistory, policy_collapse, signatures

BETA = 1 / math.log(100_000)


def curve(*values: float) -> Curve:
    return [(20 * i, value) for i, value in enumerate(values)]


def ramp(first: float, last: float, points: int = 40) -> Curve:
    return [(i, first + (last - first) * i / (points - 1)) for i in range(points)]


def healthy(**changes: Curve) -> TrainingHistory:
    figures = {
        "online/pass_fraction": ramp(0.15, 0.6),
        "online/y_T": ramp(-6, -2),
        "online/entropy": ramp(0.5, 0.3),
        "clipped_fraction": ramp(0.0, 0.03),
        "grad_norm": ramp(1.0, 2.0),
    }
    return TrainingHistory(curve(0.13, 0.4, 0.6), curve(0.2, 0.6, 0.85), figures | changes, BETA)


def names(history: TrainingHistory) -> list[str]:
    return [signature.name for signature in signatures(history)]


def test_healthy_run_and_unknown_run_show_nothing() -> None:
    assert names(healthy()) == []
    assert names(TrainingHistory()) == []


@pytest.mark.parametrize(
    "name,changes",
    [
        ("No reward signal", {"online/pass_fraction": ramp(0.05, 0.0)}),
        ("No reward signal", {"online/pass_fraction": ramp(0.5, 1.0, 100)[:50] + [(i, 1.0) for i in range(50, 100)]}),
        ("Clipped-value instability", {"clipped_fraction": ramp(0.0, 0.6)}),
        ("Clipped-value instability", {"grad_norm": [(i, 1.0 if i < 20 else 93.0) for i in range(40)]}),
        ("Divergence from the reference", {"online/y_T": ramp(-6, 8)}),
        ("Divergence from the reference", {"kl": ramp(0, 30)}),
        ("Entropy collapse", {"online/entropy": ramp(0.5, 0.001)}),
    ],
)
def test_signature_is_named_when_its_curve_shows_it(name: str, changes: dict[str, Curve]) -> None:
    assert names(healthy(**changes)) == [name]


@pytest.mark.parametrize(
    "one,ten",
    [
        (curve(0.13, 0.5, 0.7), curve(0.6, 0.6, 0.6)),
        (curve(0.13, 0.5, 0.7), curve(0.6, 0.65, 0.75)),
        (curve(0.13, 0.5, 0.7), curve(0.8, 0.75, 0.72)),
    ],
)
def test_policy_collapse_is_pass_at_1_rising_while_pass_at_10_stays(one: Curve, ten: Curve) -> None:
    found = policy_collapse(one, ten)
    assert found is not None
    assert "13.0% to 70.0%" in found.text


def test_signatures_name_the_k_that_were_evaluated() -> None:
    texts = [one.text for one in signatures(TrainingHistory(curve(0.1, 0.7), curve(0.6, 0.6), ks=(5, 20)))]
    assert "pass@5 went from 10.0% to 70.0% while pass@20 went from" in texts[0]
    (lost,) = signatures(TrainingHistory(curve(0.5, 0.1), curve(0.6, 0.6), ks=(5, 20)))
    assert lost.text.startswith("pass@5 was 50.0%")


def test_solved_problems_are_no_collapse() -> None:
    assert policy_collapse(curve(0.2, 0.9, 0.95), curve(0.6, 0.98, 1.0)) is None


def test_lost_ability_names_the_best_snapshot() -> None:
    history = TrainingHistory(curve(0.13, 0.3, 0.0), curve(0.2, 0.49, 0.0))
    (found,) = signatures(history)
    assert found.name == "Loss of ability"
    assert "step 20" in found.text


def test_alarms_come_before_what_to_watch() -> None:
    history = healthy(**{"clipped_fraction": ramp(0, 0.6), "online/y_T": ramp(-6, 8)})
    assert [signature.severity for signature in signatures(history)] == ["alarm", "watch"]


def test_short_curves_raise_no_alarm() -> None:
    assert names(healthy(**{"online/pass_fraction": ramp(0.0, 0.0, 5)})) == []
