"""The sections `q0`, `corpus` and `pivotal`: what is drawn from the reference policy before training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.config.base import (
    BehaviourConfig,
    Count,
    Fraction,
    Parallel,
    PositiveFraction,
    PositiveInt,
    Section,
    Temperature,
)


class Q0Config(Section):
    """Estimation of the prompts' soft values from samples of pi_0 at temperature 1, top-p 1 (3.1.3)."""

    samples: PositiveInt = 800
    """Samples per prompt, earlier runs' included (paper: 800). The error of a soft value is about sqrt((1 - S) / (n S))
    nats."""
    problems_per_shard: PositiveInt = 8
    """Problems in one unit of work; a crash costs at most one."""
    adaptive: bool = False
    """Distribute the same total by uncertainty of the soft value (tasks/q0/allocation.py). The paper samples all
    prompts alike."""
    narrow_nats: Annotated[float, Field(gt=0, le=100)] = 0.2
    """`adaptive`: sampling of a prompt ends when the 95% interval of its soft value is this narrow (nats)."""
    zero_top_up: Count = 0
    """Prompts without a success get further samples, up to this many in all; 0: none."""
    zero_successes: Literal["keep", "corpus", "drop"] = "drop"
    """Prompts that stay without a success. `drop`: leave them out of training. `keep`: use `prior`. `corpus`: use
    pi_0's probability of the corpus's correct programs (docs/guides/corpus.md). Refused with fractional rewards."""
    prior: Annotated[float, Field(gt=0, le=10)] = 0.5
    """Pseudo-successes of kept prompts without a success (Jeffreys): S = prior / (n + 1). With `corpus` only for
    prompts without a program."""
    count_rollouts: bool = True
    """Also count pi_0's samples from other runs' rollout workers. Off where runs are compared. Never with fractional
    rewards."""

    @model_validator(mode="after")
    def _settings_are_read(self) -> Q0Config:
        if not self.adaptive:
            self.refuse_ignored("narrow_nats", reason="every prompt gets `samples` samples; set adaptive to true")
            if 0 < self.zero_top_up <= self.samples:
                raise ValueError(
                    f"zero_top_up {self.zero_top_up} would be ignored: every prompt gets {self.samples} samples; "
                    f"give it more than that, or 0"
                )
        if self.zero_successes == "drop":
            reason = "prompts without a success are dropped; set zero_successes to 'keep' or 'corpus'"
            self.refuse_ignored("prior", reason=reason)
        return self


class OtherModelConfig(Section):
    """Another, larger model whose chain-of-thought samples join the corpus (5)."""

    name: Annotated[str, Field(min_length=1)]
    """Its name in the warehouse; another name samples everything again."""
    endpoint: str | None = None
    """Address of an OpenAI-compatible server, e.g. `http://localhost:8000/v1`. None: `model` is sampled here."""
    model: Annotated[str, Field(min_length=1)]
    """With `endpoint`: the model's name there. Without: a hub name or checkpoint folder (paper: a Llama of 70 B)."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; an endpoint on this machine needs none."""
    samples: PositiveInt = 4
    """Samples per training problem, counting those of earlier runs."""
    temperature: Temperature = 0.7
    """Sampling temperature; 0 is greedy."""
    top_p: PositiveFraction = 0.95
    """Nucleus; 1 is the whole vocabulary."""
    max_tokens: PositiveInt = 2048
    """Length limit of its answers, in its own tokens; longer ones count as failures."""
    prompt: str = (
        "Solve this problem. Think step by step first: what is asked, which method is fast enough, which cases are "
        "easy to miss. Then write the complete Python 3 program in one ```python block; {style}."
    )
    """Text before the statement. `{style}` is replaced by how the program is called."""
    keep: Literal["text", "program"] = "text"
    """Target of training: the whole answer, or only the program in it."""
    requests: Parallel = 8
    """Concurrent requests to the endpoint."""

    @model_validator(mode="after")
    def _endpoint_is_asked(self) -> OtherModelConfig:
        if self.endpoint is None:
            reason = "without `endpoint` the model is sampled here"
            self.refuse_ignored("key_variable", "requests", reason=reason)
        elif not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(f"endpoint {self.endpoint!r} is no address; it starts with http:// or https://")
        return self


BROUGHT = {"human", "other_model", "prior_spo", "prior_ppo"}
"""Sources that rows of a file can belong to."""


class CorpusConfig(Section):
    """The offline corpus (section 5)."""

    reference_samples: Count = 20
    """Samples of pi_0 per training problem at `behaviour`, on top of what Q0 drew; the paper gives no number."""
    behaviour: BehaviourConfig = BehaviourConfig(weights="reference", temperature=(0.1, 1.0), top_p=0.95)
    """How pi_0 is sampled for the corpus (paper: at a random temperature, whose range it does not give)."""
    sources: tuple[Literal["reference", "human", "prior_spo", "prior_ppo", "other_model", "pivotal_rollout"], ...] = (
        "reference",
        "human",
        "prior_spo",
        "prior_ppo",
        "other_model",
    )
    """Allowed sources. `reference`: pi_0's samples. `human`: known programs. `prior_*`: earlier runs' online
    trajectories. `other_model`: answers of `other_models`. `pivotal_rollout`: rollouts of earlier pivotal searches (not
    in the paper's corpus)."""
    other_models: tuple[OtherModelConfig, ...] = ()
    """Models to sample; their answers are judged and encoded in the policy's tokens."""
    files: tuple[str, ...] = ()
    """JSON Lines or Parquet files of responses or programs (docs/guides/corpus.md). Relative paths start at the folder
    of `spo run`."""
    correct_only: bool = True
    """Keep correct responses only, as the paper does."""
    max_tokens: PositiveInt | None = None
    """Longest response to keep, in tokens. None: `engine.max_response_tokens`."""
    near_duplicates: Fraction = 0.8
    """Jaccard similarity of five-token shingles from which two programs of one problem are duplicates; 1: exact copies
    only."""
    per_problem: PositiveInt = 32
    """Most trajectories kept per problem; the paper names no number."""
    reference_logprobs: bool = True
    """Compute log pi_0 of the drawn members here instead of during training."""

    @model_validator(mode="after")
    def _possible(self) -> CorpusConfig:
        if len(set(self.sources)) < len(self.sources):
            raise ValueError(f"sources names one twice: {', '.join(self.sources)}")
        if self.behaviour.weights != "reference":
            raise ValueError("behaviour.weights must be 'reference': the corpus is sampled from pi_0 alone")
        if "reference" not in self.sources and self.reference_samples:
            reason = "'reference' is not in sources, so that pi_0 is not sampled"
            self.refuse_ignored("reference_samples", reason=reason)
        if "other_model" not in self.sources:
            self.refuse_ignored("other_models", reason="'other_model' is not in sources")
        names = [model.name for model in self.other_models]
        if len(set(names)) < len(names):
            raise ValueError(f"two of other_models have one name, and would share their samples: {', '.join(names)}")
        if not set(self.sources) & BROUGHT:
            reason = f"files bring rows of {', '.join(sorted(BROUGHT))}, and none of these is in sources"
            self.refuse_ignored("files", reason=reason)
        return self


class PivotalConfig(Section):
    """Pivotal token search (3.1.3)."""

    trajectories: Count = 64
    """Correct trajectories to search; 0 skips the stage (paper: 50,000)."""
    method: Literal["bisection", "change_points"] = "change_points"
    """`bisection`: test the ends of each interval, as published. `change_points`: weigh all counts of a trajectory
    together (docs/guides/pivotal.md)."""
    rollouts: PositiveInt = 10
    """Rollouts per node (paper: 10). Ten place a chance of success within about 0.3."""
    min_difference: PositiveFraction = 0.2
    """Smallest difference of success probabilities at a pivotal token; the paper names none."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """`bisection`: two-sided significance level. `change_points`: least probability that a token is pivotal."""
    explore: PositiveFraction = 0.2
    """`change_points`: split intervals in which S jumps with at least this probability. Lower finds more and costs
    more."""
    max_nodes: PositiveInt = 32
    """Budget per trajectory, in nodes of `rollouts` rollouts."""
    looks: tuple[PositiveInt, ...] = ()
    """Rollouts of a node at each look, increasing, e.g. (5, 10, 20). Empty: `rollouts`, for `change_points` also twice
    and four times as many."""
    line_ends: bool = False
    """Prefer line ends as split points."""

    @model_validator(mode="after")
    def _looks_increase(self) -> PivotalConfig:
        if any(b <= a for a, b in zip(self.looks, self.looks[1:], strict=False)):
            raise ValueError(f"looks must increase, got {self.looks}")
        if self.looks and self.looks[0] > self.max_nodes * self.rollouts:
            raise ValueError(
                f"the first of looks, {self.looks[0]} rollouts, is more than a trajectory may cost: "
                f"max_nodes x rollouts = {self.max_nodes * self.rollouts}"
            )
        return self

    @model_validator(mode="after")
    def _method_is_followed(self) -> PivotalConfig:
        if self.method == "bisection":
            self.refuse_ignored("explore", reason="method 'bisection' splits where the ends differ")
        elif self.explore > self.confidence:
            raise ValueError(
                f"explore {self.explore:g} is above confidence {self.confidence:g}: what is sure enough to be called "
                f"pivotal would not be looked at"
            )
        return self
