"""Trajectories that a run uses again or finds there: replay, those of earlier runs, pairs of pi_0's samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from tasks.config.base import Count, Factor, PositiveInt, Section

if TYPE_CHECKING:
    from tasks.config.objectives import SourceConfig, SourceName
    from tasks.config.train import TrainConfig

ReplayRule = Literal["uniform", "first_in_first_out", "recent", "positive", "balanced"]
RewardClasses = Literal["as_found", "balanced", "successes", "failures"]


class ReplayConfig(Section):
    """The source `replay` (docs/guides/training.md#replay): online trajectories of this run, used again.

    The paper uses each once. Read when `train.sources.replay` has a share, or `train.sampling_interval` is above 1.
    """

    uses: PositiveInt = 4
    """Most uses of a trajectory, the first included."""
    window: PositiveInt = 40
    """Optimizer steps after its first use in which a trajectory can be drawn again. All of them are held in memory."""
    rule: ReplayRule = "uniform"
    """`uniform`: all alike. `first_in_first_out`: the longest unused. `recent`: the chance falls linearly over the
    window. `positive`: successes weigh `positive_weight`. `balanced`: equal chance for successes and failures of a
    problem."""
    positive_weight: Factor = 3.0
    """Weight of a success relative to a failure, for `rule` `positive`."""

    @model_validator(mode="after")
    def _rule_reads_its_settings(self) -> ReplayConfig:
        if self.rule != "positive":
            self.refuse_ignored("positive_weight", reason=f"rule {self.rule!r} weighs successes as failures")
        return self


class EarlierConfig(Section):
    """The source `earlier` (docs/guides/corpus.md#earlier-runs): online trajectories of earlier runs with the same
    prompts and tests. The snapshot of the corpus fixes them. Read when `train.sources.earlier` has a share."""

    classes: RewardClasses = "as_found"
    """`as_found`: all. `balanced`: as many successes as failures in every batch. `successes`, `failures`: these
    alone."""
    runs: PositiveInt = 8
    """Number of newest earlier runs to draw from."""
    run_ids: Annotated[tuple[str, ...], Field(exclude_if=lambda given: not given)] = ()
    """Only these runs. Empty: all."""
    from_step: Count = 0
    """Only trajectories sampled by weights of at least this optimizer step."""
    to_step: Count | None = None
    """Only trajectories sampled by weights of at most this optimizer step. None: any."""
    per_problem: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Most trajectories per problem and reward class, the newest first."""

    @model_validator(mode="after")
    def _steps_are_ordered(self) -> EarlierConfig:
        if self.to_step is not None and self.to_step < self.from_step:
            raise ValueError(f"from_step {self.from_step} is after to_step {self.to_step}: no step lies between")
        return self


class PairsConfig(Section):
    """The source `pairs`, for `dpo` (docs/reference/methods.md): a success and a failure of pi_0 on one prompt.

    Both come from Q0 and the corpus at the start of training. No response is in two pairs. Read when
    `train.sources.pairs` has a share.
    """

    per_problem: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Most pairs per problem."""


def learn_as_online(sources: dict[SourceName, SourceConfig]) -> dict[SourceName, SourceConfig]:
    """The sources; `replay` without objectives of its own has those of `online`, whose trajectories it draws again."""
    online, replay = sources.get("online"), sources.get("replay")
    if online is None or replay is None or "objectives" in replay.model_fields_set:
        return sources
    learnt: dict[SourceName, SourceConfig] = {"replay": replay.model_copy(update={"objectives": online.objectives})}
    return sources | learnt


def forget_learnt(tree: dict[str, Any]) -> None:
    """Take `replay`'s objectives out of a dumped configuration where they are `online`'s: `learn_as_online` gives them
    again, also when `online`'s have been changed."""
    sources = tree["train"]["sources"]
    online, replay = sources.get("online"), sources.get("replay")
    if online and replay and replay["objectives"] == online["objectives"]:
        del replay["objectives"]


def check_replay(train: TrainConfig) -> None:
    """Raise ValueError where replay would have to use trajectories more often, or for longer, than it may."""
    sampled, between = train.counts(1)["online"], train.sampling_interval
    again = sum(train.counts(step)["replay"] for step in range(1, between + 1))
    if again > (train.replay.uses - 1) * sampled:
        needed = 1 + -(-again // sampled)
        raise ValueError(
            f"replay takes {again} trajectories in the time in which {sampled} are sampled: each would be used "
            f"{1 + again / sampled:g} times, replay.uses allows {train.replay.uses}; set it to {needed} or more"
        )
    most, held = max(train.counts(step)["replay"] for step in (1, min(2, between))), train.replay.window // between
    if most > held * sampled:
        raise ValueError(
            f"replay takes {most} different trajectories for a batch, and {held * sampled} are sampled within a "
            f"replay.window of {train.replay.window} steps; set it to {-(-most // sampled) * between} or more"
        )
