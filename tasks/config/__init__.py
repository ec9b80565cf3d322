"""The configuration of a run: models, recipes and their checks; docs/configuration.md lists every field.

base              what every section is built from; errors
problems, sampling, offline, train (objectives, optimizer), tree
                  the sections, and RunConfig of them all
recipes           a recipe and overrides as a RunConfig
submission_schema the same as a JSON schema, for Prefect
"""

from tasks.config.base import BehaviourConfig, ConfigError, InvalidConfig, PositiveInt, Section, UnknownRecipe
from tasks.config.objectives import ObjectiveConfig, PPOConfig, SourceConfig, SourceName
from tasks.config.offline import OtherModelConfig, PivotalConfig, Q0Config
from tasks.config.optimizer import AdapterConfig, GuardConfig
from tasks.config.problems import EvaluationSet, ProblemFiles, ProblemsConfig
from tasks.config.recipes import absolute, absolute_paths, changed, load, merge, validate
from tasks.config.sampling import EngineConfig, PretrainConfig, ReferenceConfig, SandboxConfig, ShardsConfig
from tasks.config.submission_schema import overrides_schema
from tasks.config.train import PAPER_BETA, TrainConfig
from tasks.config.tree import RunConfig

__all__ = [
    "PAPER_BETA",
    "AdapterConfig",
    "BehaviourConfig",
    "ConfigError",
    "EngineConfig",
    "EvaluationSet",
    "GuardConfig",
    "InvalidConfig",
    "ObjectiveConfig",
    "OtherModelConfig",
    "PPOConfig",
    "PivotalConfig",
    "PositiveInt",
    "PretrainConfig",
    "ProblemFiles",
    "ProblemsConfig",
    "Q0Config",
    "ReferenceConfig",
    "RunConfig",
    "SandboxConfig",
    "Section",
    "ShardsConfig",
    "SourceConfig",
    "SourceName",
    "TrainConfig",
    "UnknownRecipe",
    "absolute",
    "absolute_paths",
    "changed",
    "load",
    "merge",
    "overrides_schema",
    "validate",
]
