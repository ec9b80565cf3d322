"""The configuration of a run: models, recipes and their checks; docs/reference/settings.md lists every field.

base              what every section is built from; errors
problems, sampling, offline, train (objectives, optimizer), tree
                  the sections, and RunConfig of them all
recipes           a recipe and overrides as a RunConfig
submission_schema the same as a JSON schema, for Prefect
"""

from tasks.config.base import BehaviourConfig, ConfigError, InvalidConfig, PositiveInt, Section, UnknownRecipe
from tasks.config.curriculum import CurriculumConfig, PromptRule
from tasks.config.objectives import OTHER_METHODS, ObjectiveConfig, PPOConfig, SourceConfig, SourceName
from tasks.config.offline import OtherModelConfig, PivotalConfig, Q0Config
from tasks.config.optimizer import AdapterConfig, GuardConfig
from tasks.config.problems import BUILT_IN, EvaluationSet, ProblemFiles, ProblemsConfig
from tasks.config.recipes import absolute, absolute_paths, changed, differing, load, merge, validate
from tasks.config.reuse import EarlierConfig, PairsConfig, ReplayConfig, ReplayRule
from tasks.config.sampling import (
    NAMED_MODELS,
    EngineConfig,
    PretrainConfig,
    ReferenceConfig,
    SandboxConfig,
    ShardsConfig,
)
from tasks.config.subject import SubjectConfig
from tasks.config.submission_schema import overrides_schema
from tasks.config.train import PAPER_BETA, TrainConfig
from tasks.config.tree import EVALUATION, MOST_VLLM_RANK, RunConfig

__all__ = [
    "BUILT_IN",
    "EVALUATION",
    "MOST_VLLM_RANK",
    "NAMED_MODELS",
    "OTHER_METHODS",
    "PAPER_BETA",
    "AdapterConfig",
    "BehaviourConfig",
    "ConfigError",
    "CurriculumConfig",
    "EarlierConfig",
    "EngineConfig",
    "EvaluationSet",
    "GuardConfig",
    "InvalidConfig",
    "ObjectiveConfig",
    "OtherModelConfig",
    "PPOConfig",
    "PairsConfig",
    "PivotalConfig",
    "PositiveInt",
    "PretrainConfig",
    "ProblemFiles",
    "ProblemsConfig",
    "PromptRule",
    "Q0Config",
    "ReferenceConfig",
    "ReplayConfig",
    "ReplayRule",
    "RunConfig",
    "SandboxConfig",
    "Section",
    "ShardsConfig",
    "SourceConfig",
    "SourceName",
    "SubjectConfig",
    "TrainConfig",
    "UnknownRecipe",
    "absolute",
    "absolute_paths",
    "changed",
    "differing",
    "load",
    "merge",
    "overrides_schema",
    "validate",
]
