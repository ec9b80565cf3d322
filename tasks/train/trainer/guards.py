"""Checks that stop a run, or warn, before it is spoilt. On by default."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tasks.config import GuardConfig
from tasks.engines.canary import MEAN_DRIFT, TAIL, Drift
from tasks.scoring.errors import UnsupportedModel
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import full_logprobs
from tasks.scoring.reference import Reference
from tasks.train.shared.errors import ReferenceDrift
from tasks.train.trainer.metrics import Figures

CHECKED = 4
"""Sequences in a check of exactness."""
HISTORY = 50
"""Steps that a collapse is told from."""
RECENT = 5
"""The last of them, whose mean or median is compared."""


def check_layout(reference: Reference, examples: Sequence[Example], dtype: str) -> float:
    """Drift (nats a token) of the layout's pass from the model's own forward pass. Raises UnsupportedModel.

    Of the reference, which is whole on every process: ZeRO 3 divides the policy's weights.
    """
    few, policy = examples[:CHECKED], reference.policy
    together = reference.evaluate(lay_out(few, policy.layout).to(reference.device))
    alone = torch.cat([full_logprobs(policy, e.prompt_ids, e.response_ids) for e in few])
    found = Drift.between(together.tolist(), alone.tolist())
    if not found.within(MEAN_DRIFT[dtype]):
        raise UnsupportedModel(
            f"{type(policy.causal_lm).__name__}: log-probabilities of the {policy.layout} layout differ from the "
            f"model's own by {found}; set train.packing = "
            f'"{"shared" if policy.layout == "padded" else "padded"}"'
        )
    return found.mean


def check_start(scored: Sequence[Tensor], reference: Reference, examples: Sequence[Example]) -> None:
    """Every advantage is exactly 0 before the first step, or ReferenceDrift.

    `scored`: log pi_theta of the examples' response tokens, by the pass of training itself (`Session.scored`).
    """
    pack = lay_out(examples, reference.policy.layout).to(reference.device)
    worst = _worst(torch.cat(list(scored)), reference.evaluate(pack))
    if worst != 0:
        raise ReferenceDrift(
            f"before the first step the policy and the reference differ by {worst:.3g} nats per token; both must come "
            f"from the same checkpoint, in the same dtype, by the same kernels"
        )


def check_stored(
    reference: Reference, examples: Sequence[Example], stored: Mapping[str, Sequence[float]], most: float
) -> float:
    """Difference of stored and fresh reference log-probabilities (nats a token), in the worst of a few sequences.

    `most` is the largest that passes for noise (`canary.MEAN_DRIFT`). Raises ReferenceDrift.
    """
    few = [example for example in examples if example.trajectory_id in stored][:CHECKED]
    if not few:
        return 0.0
    pack = lay_out(few, reference.policy.layout).to(reference.device)
    fresh = reference.evaluate(pack).split([len(example.response_ids) for example in few])
    found = {
        e.trajectory_id: Drift.between(f.tolist(), stored[e.trajectory_id]) for e, f in zip(few, fresh, strict=True)
    }
    if wrong := {identity: drift for identity, drift in found.items() if not drift.within(most)}:
        raise ReferenceDrift.over(
            wrong,
            f"stored reference log-probabilities differ from fresh ones by {next(iter(wrong.values()))} (allowed "
            f"{most:g} and {TAIL * most:g}), trajectories {list(wrong)}; the reference or its environment has changed "
            f"without its fingerprint: quarantine the batches that stored them",
        )
    return max(drift.mean for drift in found.values())


def _worst(left: Tensor, right: Tensor) -> float:
    return float((left.float() - right.float()).abs().max())


class CollapseWatch:
    """Warns when the figures of the last steps look like the beginning of a collapse (docs/decisions/0005).

    A single step says little: one failure above 0 can carry a whole batch's gradient and be gone in the next.
    """

    def __init__(
        self, config: GuardConfig, *, regression: bool = True, imitation: bool = False, binary: bool = True
    ) -> None:
        """`binary`: rewards are 0 and -1 alone, so that a batch of failures says nothing.

        `regression`: y_T is what is trained by the paper's losses, so that failures above 0 are a symptom.

        `imitation`: nothing but successes is meant to be learned from.
        """
        self.config = config
        self.regression = regression
        self.imitation = imitation
        self.binary = binary
        self._past: deque[Figures] = deque(maxlen=HISTORY)

    def warnings(self, figures: Figures) -> dict[str, str]:
        """One line per symptom, by its kind."""
        self._past.append(figures)
        if len(self._past) < 2 * RECENT:
            return self._one_class()
        config, found = self.config, self._one_class()
        pulled, clipped = self._recent("pull_above", 0.0), self._recent("clipped_fraction", 0.0)
        if self.regression and pulled > config.warn_pull_above:
            found["pull"] = (
                f"{pulled:.0%} of the pull at the policy comes from failures with y_T above 0, which only push "
                f"down: raise train.clip_epsilon, mix in offline data, or lower the learning rate"
            )
        if self.regression and clipped > config.warn_clipped_fraction:
            found["clipped"] = f"{clipped:.0%} of the failures have y_T above 0: pi_0 finds them nearly impossible"
        stopped = self._sampled("online/stop_fraction", 1.0)
        if stopped < config.warn_stop_fraction:
            found["stop"] = f"only {stopped:.0%} of the online responses end with the end token"
        stale = self._sampled("replay/log_ratio", 0.0)
        if stale > config.warn_log_ratio:
            found["stale"] = (
                f"the policy is {stale:.2g} nats a token from the weights that sampled what replay draws: lower "
                f"train.replay.window, or publish weights more often"
            )
        away = abs(self._recent("value", 0.0) - self._recent("return", 0.0))
        if self._recent("explained_variance", 1.0) <= 0 and away > config.warn_value_error:
            found["value"] = (
                f"the value model explains nothing of the returns and is {away:.2g} away from them on average, so that "
                f"advantages follow the place in the response: raise ppo.value_learning_rate, set ppo.value_start to "
                f"'mean_return', or ppo.trace to 1"
            )
        return found | self._drift("grad_norm", config.warn_grad_norm_ratio) | self._length(config.warn_length_ratio)

    def _one_class(self) -> dict[str, str]:
        """Whether the rewards of all sources together are of one class, in each of the last steps."""
        if not self.binary:
            return {}
        recent = list(self._past)[-RECENT:]
        found = [item for step in recent for item in step.items() if item[0].endswith("/pass_fraction")]
        values = {value for _, value in found}
        if len(recent) < RECENT or values not in ({0.0}, {1.0}) or (values == {1.0} and self.imitation):
            return {}
        sources = ", ".join(sorted({name.removesuffix("/pass_fraction") for name, _ in found}))
        kind, missing = ("successes", "fails") if values == {1.0} else ("failures", "succeeds")
        return {"one class": f"in {RECENT} steps there were {kind} only ({sources}): nothing says what {missing}"}

    def _recent(self, name: str, default: float) -> float:
        return statistics.mean(figures.get(name, default) for figures in list(self._past)[-RECENT:])

    def _sampled(self, name: str, default: float) -> float:
        """Mean over the last steps that have this figure: not every batch has new trajectories, or replayed ones."""
        values = [figures[name] for figures in self._past if name in figures][-RECENT:]
        return statistics.mean(values) if values else default

    def _drift(self, name: str, most: float) -> dict[str, str]:
        """Whether the median of the last steps is more than `most` times that of the ones before."""
        values = [figures[name] for figures in self._past if name in figures]
        before, now = statistics.median(values[:-RECENT] or [0.0]), statistics.median(values[-RECENT:] or [0.0])
        if not now > most * before > 0:
            return {}
        return {name: f"{name} is {now:.3g}, {now / before:.1f} times what it was"}

    def _length(self, most: float) -> dict[str, str]:
        first = [figures["online/length"] for figures in list(self._past)[:RECENT] if "online/length" in figures]
        now = self._sampled("online/length", 0.0)
        before = statistics.mean(first) if first else 0.0
        if not before or 1 / most < now / before < most:
            return {}
        then = f"{len(self._past)} steps ago it was {before:.1f}"
        return {"length": f"online responses have {now:.1f} tokens on average; {then}"}
