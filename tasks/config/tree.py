"""The whole configuration of a run: one frozen tree, checked once.

Every field's default is the paper's value where the paper gives one (Cohen et al. 2025, sections in brackets).
Unknown fields are refused by name. `RunConfig.model_dump_json()` is stored with the run.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from tasks.config.base import BehaviourConfig, PositiveInt, Section, Seed
from tasks.config.offline import CorpusConfig, PivotalConfig, Q0Config
from tasks.config.problems import EvaluationSet, ProblemsConfig
from tasks.config.sampling import EngineConfig, ReferenceConfig, SandboxConfig, ShardsConfig
from tasks.config.subject import SubjectConfig
from tasks.config.train import TrainConfig

EVALUATION = "eval"
"""Recipe of what `spo eval` makes; its runs are `eval-1`, `eval-2`."""
MOST_VLLM_RANK = 512
"""Rank of the largest adapter that vLLM takes."""


class EvaluateConfig(Section):
    """pass@k (5)."""

    samples: PositiveInt = 20
    """Samples per evaluation problem and policy (paper: 20)."""
    ks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1, 5, 10)
    """The k of pass@k, each at most `samples` (paper: 1 and 10)."""
    during_training: bool = False
    """Evaluate kept weights beside training, at low priority. Off on a single GPU that training fills; the stage does
    the rest afterwards."""
    behaviour: BehaviourConfig = BehaviourConfig(temperature=(0.4, 0.4), top_p=0.95)
    """How evaluation samples are drawn (paper: temperature 0.4, top-p 0.95)."""
    transfer: tuple[EvaluationSet, ...] = ()
    """Other sets, on which reference and final policy are compared after training. A set added later trains nothing
    again."""

    @model_validator(mode="after")
    def _transfer_is_read(self) -> EvaluateConfig:
        if any(one.source == "miniature" for one in self.transfer):
            raise ValueError("a set in `transfer` is read from files or the hub, or is 'basics'; not 'miniature'")
        return self

    @model_validator(mode="after")
    def _k_at_most_n(self) -> EvaluateConfig:
        if len(set(self.ks)) < len(self.ks):
            raise ValueError(f"ks names one k twice: {self.ks}")
        self.behaviour.refuse_ignored("weights", reason="the reference and every kept policy are evaluated")
        if max(self.ks) > self.samples:
            raise ValueError(f"pass@{max(self.ks)} cannot be estimated from {self.samples} samples: k must be <= n")
        return self


class RunConfig(Section):
    """Everything that decides what a run computes."""

    recipe: Annotated[str, Field(pattern=r"^[^./\\][^/\\]*$")] = "tiny"
    """Name of the recipe; it numbers the runs: `tiny-1`, `tiny-2`."""
    seed: Seed = 0
    """Seed of training: data order, prompts, responses."""
    problems: ProblemsConfig = ProblemsConfig()
    """Read by the stage `prepare`."""
    reference: ReferenceConfig = ReferenceConfig()
    """Made or fetched by the stage `prepare`."""
    sandbox: SandboxConfig = SandboxConfig()
    """For every stage that judges programs."""
    engine: EngineConfig = EngineConfig()
    """For every stage that samples responses."""
    q0: Q0Config = Q0Config()
    """Read by the stage `q0`."""
    shards: ShardsConfig = ShardsConfig()
    """For the stages that sample responses."""
    corpus: CorpusConfig = CorpusConfig()
    """Read by the stage `corpus`."""
    pivotal: PivotalConfig = PivotalConfig()
    """Read by the stage `pivotal`."""
    train: TrainConfig = TrainConfig()
    """Read by the stage `train`."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Read by the stage `evaluate`."""
    subject: SubjectConfig | None = None
    """Subject of `spo eval`; a run of the pipeline has none."""

    @model_validator(mode="after")
    def _evaluations_are_called_so(self) -> RunConfig:
        if (self.subject is not None) != (self.recipe == EVALUATION):
            raise ValueError(f"subject belongs to recipe {EVALUATION!r}, which `spo eval` makes; leave both out")
        if self.subject is not None and not self.evaluate.transfer:
            raise ValueError("evaluate.transfer is empty: there is no problem to evaluate on")
        return self

    @model_validator(mode="after")
    def _policy_knows_the_vocabulary(self) -> RunConfig:
        if self.problems.source != "miniature" or self.reference.model != "miniature":
            return self
        asked, taught = self.problems.depth, self.reference.pretrain.depth
        if (asked is None) != (taught is None) or (asked or 0) > (taught or 0):
            raise ValueError(
                f"problems.depth {asked} does not go with reference.pretrain.depth {taught}: set both, the second as "
                f"large at least, for the wide vocabulary, or neither for the small one"
            )
        return self

    @model_validator(mode="after")
    def _corpus_is_there(self) -> RunConfig:
        """What learns from the corpus has one."""
        if self.corpus.sources:
            return self
        offline = self.train.sources.get("offline")
        if self.train.algorithm == "spo" and offline is not None and offline.share > 0:
            raise ValueError("corpus.sources is empty: the source 'offline' of training would have no trajectory")
        if self.pivotal.trajectories:
            raise ValueError(
                "corpus.sources is empty: there would be no trajectory to search; set pivotal.trajectories to 0"
            )
        return self

    @model_validator(mode="after")
    def _searched_tokens_are_there(self) -> RunConfig:
        """What draws on a search has one of its own: others' grow while the run trains."""
        if self.pivotal.trajectories or self.train.algorithm != "spo":
            return self
        for name in ("pivotal", "pivotal_rollouts"):
            source = self.train.sources.get(name)
            if source is not None and source.share > 0:
                raise ValueError(
                    f"pivotal.trajectories is 0: the source {name!r} of training would have no search; set "
                    f"train.sources.{name}.share to 0, or pivotal.trajectories"
                )
        return self

    @model_validator(mode="after")
    def _known_programs_are_scored(self) -> RunConfig:
        """What q0.zero_successes 'corpus' reads is there, and is read."""
        if self.q0.zero_successes != "corpus":
            return self
        if not (self.corpus.sources and self.corpus.reference_logprobs):
            raise ValueError(
                "q0.zero_successes 'corpus' reads what pi_0 thinks of the corpus: corpus.sources must name one, and "
                "corpus.reference_logprobs be true"
            )
        return self

    @model_validator(mode="after")
    def _shares_of_tests_need_no_fate(self) -> RunConfig:
        """With fractional rewards every prompt has a soft value, also one that is never solved."""
        if self.train.reward == "fractional":
            reason = "with train.reward 'fractional' the section q0 needs neither: values come from shares of tests"
            self.q0.refuse_ignored("zero_successes", "prior", reason=reason)
        return self

    @model_validator(mode="after")
    def _engine_takes_the_adapters(self) -> RunConfig:
        lora = self.train.lora
        if self.engine.kind == "vllm" and lora is not None and lora.rank > MOST_VLLM_RANK:
            raise ValueError(
                f"vLLM takes adapters up to rank {MOST_VLLM_RANK}; train.lora.rank is {lora.rank}: lower it"
            )
        return self

    @model_validator(mode="after")
    def _engine_holds_a_sequence(self) -> RunConfig:
        room = self.engine.vllm.get("max_model_len")
        longest = self.problems.max_prompt_tokens + self.engine.max_response_tokens
        if isinstance(room, int) and room < longest:
            raise ValueError(
                f"engine.vllm.max_model_len {room} is less than problems.max_prompt_tokens + "
                f"engine.max_response_tokens = {longest}"
            )
        return self

    @model_validator(mode="after")
    def _something_is_evaluated(self) -> RunConfig:
        if self.evaluate.during_training and not (self.problems.evaluation or self.problems.evaluation_sets):
            raise ValueError("evaluate.during_training needs evaluation problems, and problems.evaluation is 0")
        return self
