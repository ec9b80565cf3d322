"""What the methods of docs/reference/methods.md need of a training section; what cannot be sound is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.config.objectives import ON_POLICY, ObjectiveConfig, SourceName

if TYPE_CHECKING:
    from tasks.config.train import TrainConfig

Used = tuple[SourceName, ObjectiveConfig]
FROM_THE_POLICY = ON_POLICY | {"oapl"}
"""Objectives that read the probabilities of what sampled: they must be those of its weights."""
SUCCESSES_ONLY = ("max_rl", "pass_at_k", "dpo")
"""Objectives that know success and failure, not shares of tests."""


def check_methods(train: TrainConfig) -> None:
    """Raise ValueError where an objective gets data that it is not sound on, or no whole groups."""
    if train.prompts != "uniform" and train.reward == "fractional":
        raise ValueError(f"prompts {train.prompts!r} go by chances of success, not shares of tests: set 'uniform'")
    if train.algorithm == "ppo":  # which has none of these objectives
        return
    used = list(_used(train))
    for name, objective in used:
        _check_source(name, objective)
        if train.reward == "fractional" and objective.kind in SUCCESSES_ONLY:
            raise ValueError(f"objective {objective.kind!r} knows successes only: it cannot use fractional rewards")
    for _, objective in used:
        if objective.kind in FROM_THE_POLICY and not train.behaviour.exact:
            raise ValueError(
                f"objective {objective.kind!r} needs responses drawn from the weights that sample: set "
                f"behaviour.temperature = [1.0, 1.0] and behaviour.top_p = 1.0"
            )
        if objective.kind in ON_POLICY and train.behaviour.weights != "latest":
            raise ValueError(f"objective {objective.kind!r} is on-policy: set behaviour.weights = 'latest'")
    if train.group_size > 1 or any(objective.in_groups for _, objective in used):
        _check_groups(train, [objective for _, objective in used])
    if train.counts(1).get("pairs", 0) % 2:
        raise ValueError(
            f"source 'pairs' would get {train.counts(1)['pairs']} sequences, half a pair: make its share of "
            f"batch_size {train.batch_size} an even number"
        )


def _used(train: TrainConfig) -> Iterator[Used]:
    for name, source in train.learnt_from.items():
        for objective in source.objectives:
            yield name, objective


def _check_source(name: SourceName, objective: ObjectiveConfig) -> None:
    kind = objective.kind
    if kind == "dpo" and name != "pairs":
        raise ValueError(f"source {name!r} does not come in pairs: objective 'dpo' belongs to 'pairs'")
    if objective.in_groups and name not in ("online", "replay"):
        raise ValueError(
            f"source {name!r} does not come in groups: objective {kind!r} compares all responses to a prompt, "
            f"it belongs to 'online' and 'replay'"
        )
    if kind in ON_POLICY and name == "replay" and objective.truncation is None:
        raise ValueError(
            f"objective {kind!r} is on-policy, and the source 'replay' draws what older weights sampled: give it "
            f"truncated importance weights (truncation = 2.0), or set the share to 0 and sampling_interval to 1"
        )


def _check_groups(train: TrainConfig, objectives: list[ObjectiveConfig]) -> None:
    size = train.responses_per_prompt
    kind = next(objective.kind for objective in objectives if objective.in_groups)
    if size < 2:
        raise ValueError(f"objective {kind!r} compares responses to one prompt: set responses_per_prompt to 2 or more")
    if train.rollout_batch % size:
        raise ValueError(
            f"objective {kind!r} needs whole groups: rollout_batch {train.rollout_batch} is no multiple of "
            f"responses_per_prompt {size}"
        )
    for step in (1, min(2, train.sampling_interval)):
        for name in ("online", "replay"):
            if train.counts(step).get(name, 0) % size:
                raise ValueError(
                    f"objective {kind!r} needs whole groups: source {name!r} gives {train.counts(step)[name]} of "
                    f"batch_size {train.batch_size}, which is no multiple of responses_per_prompt {size}"
                )
    if "replay" in train.learnt_from and train.replay.rule in ("positive", "balanced"):
        raise ValueError(
            f"replay.rule {train.replay.rule!r} weighs single responses, and objective {kind!r} needs whole groups: "
            f"take 'uniform', 'recent' or 'first_in_first_out'"
        )
    most = max((objective.k for objective in objectives if objective.kind == "pass_at_k"), default=1)
    if most > size:
        raise ValueError(f"pass@{most} cannot be estimated from responses_per_prompt {size}: k must be at most that")
