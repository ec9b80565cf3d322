"""What is known of each token of a response: advantages, success, entropy, surprise, and values along it.

Advantages are in nats, A_t / beta = log pi(token) - log pi_0(token) (paper: Eq. 9); the value after a token is the
prompt's soft value plus the advantages so far (Eq. 12).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tasks.estimators import beta_interval
from tasks.explorer.drawing import Dot, Line, Plot, plot
from tasks.explorer.visible import plain, visible

LEVELS = 10
"""Shades of a colour in the style sheet, on each side of nothing."""
COLOURS = ("advantage", "success", "entropy", "surprise", "none")


@dataclass(frozen=True, slots=True)
class Shown:
    """One token as the page shows it."""

    text: Markup
    shade: str
    """Class of the style sheet."""
    hint: str
    pivotal: bool
    measured: bool


@dataclass(frozen=True, slots=True)
class Along:
    """What is known along a response; a list is empty where nothing is known."""

    texts: Sequence[str]
    advantages: Sequence[float]
    values: Sequence[float]
    """y_t after each token (nats)."""
    surprise: Sequence[float | None]
    """-log-probability of each token under what sampled it (nats)."""
    entropies: Sequence[float]
    """Entropy of the chosen policy over what comes at each token (nats)."""
    estimates: Sequence[dict[str, Any]]
    """position, n, k, pivotal; at least two of them, in order, or none."""

    def success(self, position: int) -> float:
        """S after `position` tokens: the estimate there, else interpolated between its neighbours."""
        before = [row for row in self.estimates if row["position"] <= position][-1]
        after = next((row for row in self.estimates if row["position"] >= position), before)
        low, high = before["k"] / before["n"], after["k"] / after["n"]
        if after["position"] == before["position"]:
            return low
        return low + (high - low) * (position - before["position"]) / (after["position"] - before["position"])


@lru_cache(maxsize=8)
def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of a checkpoint: its own file read directly, which takes milliseconds, where there is one."""
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    from tasks.checkpoints import checkpoint

    return checkpoint.load_tokenizer(folder)


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    """The text each token adds; together they are the decoded response. Part of a character adds nothing yet."""
    texts: list[str] = []
    so_far = ""
    for end in range(1, len(token_ids) + 1):
        decoded = str(tokenizer.decode(token_ids[:end], skip_special_tokens=True))
        if decoded.endswith("\ufffd") and end < len(token_ids):
            texts.append("")
            continue
        texts.append(decoded[len(so_far) :])
        so_far = decoded
    return texts


def tokens(along: Along, colour: str) -> list[Shown]:
    """Every token in the shade of what `colour` names, with its numbers behind it."""
    measured = {row["position"]: row for row in along.estimates}
    return [_shown(along, index, measured.get(index + 1), colour) for index in range(len(along.texts))]


def _shown(along: Along, index: int, estimate: dict[str, Any] | None, colour: str) -> Shown:
    facts = [f"token {index + 1}: {plain(along.texts[index])!r}"]
    level = 0.0
    if along.advantages:
        value = f", value {along.values[index]:.2f} nats" if along.values else ""
        facts.append(f"advantage {along.advantages[index]:+.3f} nats{value}")
        level = math.tanh(along.advantages[index] / 2) if colour == "advantage" else level
    if along.estimates:
        share = along.success(index + 1)
        counts = f" ({estimate['k']}/{estimate['n']})" if estimate else " (interpolated)"
        facts.append(f"S {share:.2f}{counts}")
        level = share if colour == "success" else level
    if along.entropies:
        facts.append(f"entropy {along.entropies[index]:.2f} nats")
        level = min(1.0, along.entropies[index] / 2) if colour == "entropy" else level
    surprise = along.surprise[index] if along.surprise else None
    if surprise is not None:
        facts.append(f"surprise {surprise:.2f} nats, probability {math.exp(-surprise):.3f}")
        level = min(1.0, surprise / 4) if colour == "surprise" else level
    return Shown(
        text=visible(along.texts[index].replace("\n", "⏎\n")) if along.texts[index] else Markup("∎"),
        shade=_shade(level),
        hint="; ".join(facts),
        pivotal=bool(estimate and estimate["pivotal"]),
        measured=estimate is not None,
    )


def _shade(level: float) -> str:
    number = round(LEVELS * abs(level))
    return "" if number == 0 else f"{'up' if level > 0 else 'down'}{number}"


@dataclass(frozen=True, slots=True)
class PivotalToken:
    """A row of the table of pivotal tokens; shares with the rollouts behind them where there are any."""

    number: int
    text: Markup
    before: str
    after: str
    change: str


def pivotal_tokens(along: Along) -> list[PivotalToken]:
    """The tokens that change S, in order."""
    return [_pivotal(along, row["position"]) for row in along.estimates if row["pivotal"] and along.texts]


def _pivotal(along: Along, position: int) -> PivotalToken:
    counts = {row["position"]: f" ({row['k']}/{row['n']})" for row in along.estimates}
    before, after = along.success(position - 1), along.success(position)
    return PivotalToken(
        position,
        visible(repr(along.texts[position - 1])),
        f"{before:.2f}{counts.get(position - 1, '')}",
        f"{after:.2f}{counts[position]}",
        f"{after - before:+.2f}",
    )


def success_of_value(y: float, beta: float) -> float:
    """S of a soft value y in nats: the inverse of y = ln(S + (1 - S) e^(-1/beta)), 0 below its floor and 1 above 0."""
    floor = math.exp(-1 / beta)
    return min(1.0, max(0.0, (math.exp(min(y, 0.0)) - floor) / (1 - floor)))


def charts(along: Along, beta: float, label: str) -> list[tuple[str, Markup]]:
    """Success along the tokens from rollouts, and values in nats: Monte-Carlo counts against a policy's own."""
    length = len(along.texts)
    lines: list[Line] = []
    if along.estimates:
        dots = [_estimate(row) for row in along.estimates]
        lines.append(Line("rollouts of pi_0", dots))
    own = [success_of_value(value, beta) for value in along.values]
    if own:
        lines.append(Line(label, [Dot(i + 1, v) for i, v in enumerate(own)], step=True))
    marks = [(float(row["position"]), "pivotal token") for row in along.estimates if row["pivotal"]]
    found = [("Success S along the tokens", plot(Plot("Success S", lines, "tokens so far", share=True, marks=marks)))]
    nats = [
        Line(line.label, [_in_nats(dot, beta) for dot in line.dots], step=line.step)
        for line in lines[:1]
        if along.estimates
    ]
    if along.values:
        nats.append(Line(label, [Dot(i + 1, v) for i, v in enumerate(along.values)], step=True))
    if along.entropies:
        entropy = Line(label, [Dot(i + 1, v) for i, v in enumerate(along.entropies)], step=True)
        found.append(("Entropy of each token in nats", plot(Plot("Entropy", [entropy], "token", marks=marks))))
    found.append(("Value y = Q/beta in nats", plot(Plot("Value", nats, "tokens so far", marks=marks, least=0.5))))
    return [(title, chart) for title, chart in found if chart and length]


def _estimate(row: dict[str, Any]) -> Dot:
    share = row["k"] / row["n"]
    low, high = (share, share) if row["n"] == 1 else beta_interval(int(row["n"]), int(row["k"]))
    return Dot(row["position"], share, low, high, f"after {row['position']} tokens: {row['k']} of {row['n']} pass")


def _in_nats(dot: Dot, beta: float) -> Dot:
    floor = math.exp(-1 / beta)

    def nats(share: float) -> float:
        return math.log(share + (1 - share) * floor)

    return Dot(dot.x, nats(dot.y), nats(dot.low or 0.0), nats(dot.high or 0.0), dot.note)


def advantages(row: dict[str, Any], reference: Sequence[float]) -> list[float]:
    """Of the policy that sampled the response, from what is stored; empty where a log-probability is missing.

    Those after temperature and nucleus belong to another distribution and say nothing about the policy.
    """
    own = row["sampled_logprobs"] or []
    if row["logprob_kind"] != "raw" or len(own) != len(reference) or any(value is None for value in own):
        return []
    return [float(a) - float(b) for a, b in zip(own, reference, strict=True)]


def values_along(start: float, found: Sequence[float]) -> list[float]:
    """y_t after each token. Paper: Eq. 12."""
    return list(accumulate(found, initial=start))[1:]


def failing_test(detail: str) -> int | None:
    """Position of the test that a verdict's detail names ("test 3: ..."), from 0; None when it names none."""
    match = re.match(r"test (\d+):", detail or "")
    return int(match[1]) - 1 if match else None
