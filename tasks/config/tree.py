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
    """Read by the stage `q0`."""
    corpus: CorpusConfig = CorpusConfig()
    """Read by the stage `corpus`."""
    pivotal: PivotalConfig = PivotalConfig()
    """Read by the stage `pivotal`."""
    train: TrainConfig = TrainConfig()
    """Read by the stage `train`."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Read by the stage `evaluate`."""
