"""The whole configuration of a run: one frozen tree, checked once.

Every field's default is the paper's value where the paper gives one (Cohen et al. 2025, sections in brackets).
Unknown fields are refused by name. `RunConfig.model_dump_json()` is stored with the run.
"""

from __future__ import annotations

from pydantic import model_validator

from tasks.config.base import BehaviourConfig, PositiveInt, Section
from tasks.config.offline import CorpusConfig, PivotalConfig, Q0Config
from tasks.config.problems import ProblemsConfig
from tasks.config.sampling import EngineConfig, ReferenceConfig, SandboxConfig, ShardsConfig
from tasks.config.train import TrainConfig


class EvaluateConfig(Section):
    """pass@k (5)."""

    samples: PositiveInt = 20
    """Samples per evaluation problem and policy (paper: 20)."""
    ks: tuple[PositiveInt, ...] = (1, 5, 10)
    """The k of pass@k, each at most `samples` (paper: 1 and 10)."""
    during_training: bool = False
    """Evaluate the weights kept every `train.snapshot_interval` steps in a process beside training, at low priority;
    on a single GPU that training fills leave it off. What is not done when training ends is done afterwards."""
    behaviour: BehaviourConfig = BehaviourConfig(temperature=(0.4, 0.4), top_p=0.95)
    """How evaluation samples are drawn (paper: temperature 0.4, top-p 0.95)."""

    @model_validator(mode="after")
    def _k_at_most_n(self) -> EvaluateConfig:
        if max(self.ks) > self.samples:
            raise ValueError(f"pass@{max(self.ks)} cannot be estimated from {self.samples} samples: k must be <= n")
        return self


class RunConfig(Section):
    """Everything that decides what a run computes."""

    recipe: str = "tiny"
    """Name of the recipe; runs are numbered under it: `tiny-1`, `tiny-2`. A recipe file gives its own name."""
    seed: int = 0
    """Seed of training: the order of the data, the prompts that are drawn, the responses to them. Compare runs over
    several seeds."""
    problems: ProblemsConfig = ProblemsConfig()
    """Problems to train and to evaluate on."""
    reference: ReferenceConfig = ReferenceConfig()
    """The reference policy pi_0."""
    sandbox: SandboxConfig = SandboxConfig()
    """How programs are judged."""
    engine: EngineConfig = EngineConfig()
    """What samples responses."""
    q0: Q0Config = Q0Config()
    """Soft values of the prompts."""
    shards: ShardsConfig = ShardsConfig()
    """Where Q0's samples are drawn."""
    corpus: CorpusConfig = CorpusConfig()
    """The offline corpus."""
    pivotal: PivotalConfig = PivotalConfig()
    """The search for pivotal tokens."""
    train: TrainConfig = TrainConfig()
    """Training of the policy."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Evaluation by pass@k."""
