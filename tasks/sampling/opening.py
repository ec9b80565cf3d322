"""A sampler as a run's configuration asks for it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sandbox import Judge
from tasks.checkpoints import checkpoint as checkpoints
from tasks.config import BehaviourConfig, RunConfig, ShardsConfig
from tasks.engines import open_engine
from tasks.problems.prompt import template_for
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Sampler
from warehouse import Warehouse


@contextmanager
def open_configured_sampler(
    config: RunConfig,
    folder: Path,
    behaviour: BehaviourConfig,
    warehouse: Warehouse,
    *,
    trained: bool = False,
    shards: ShardsConfig | None = None,
) -> Generator[Sampler]:
    """A sampler over the weights in `folder` that judges in the run's sandbox and knows the warehouse's verdicts.

    `trained`: it will load what the run's trainer publishes, which may be adapters. `shards`: where its engines are.
    Raises EngineError and SandboxError when the engine or the sandbox cannot be opened.
    """
    rank = config.train.lora.rank if trained and config.train.lora else None
    with (
        closing(
            open_engine(config.engine, folder, dtype=config.reference.dtype, adapter_rank=rank, shards=shards)
        ) as engine,
        Judge(**config.sandbox.judge_arguments()) as judge,
    ):
        tokenizer: Any = checkpoints.load_tokenizer(folder)
        sampler = Sampler(
            engine,
            tokenizer,
            judge,
            behaviour=behaviour,
            max_response_tokens=config.engine.max_response_tokens,
            sandbox_config=config.sandbox,
            known=KnownVerdicts(warehouse, most_mb=config.sandbox.known_verdicts_mb),
            template=template_for(config.reference, tokenizer),
        )
        with closing(sampler):
            yield sampler
