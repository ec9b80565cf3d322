"""Sampling engines behind one Protocol (`protocol.Engine`); importing this package loads no model library."""

from __future__ import annotations

from pathlib import Path

from tasks.config import EngineConfig
from tasks.engines.protocol import (
    Completion,
    EngineDrift,
    EngineError,
    InvalidRequest,
    MissingModel,
    Request,
    SamplingEngine,
    UnsupportedArchitecture,
)

__all__ = [
    "Completion",
    "EngineDrift",
    "EngineError",
    "InvalidRequest",
    "MissingModel",
    "Request",
    "SamplingEngine",
    "UnsupportedArchitecture",
    "open_engine",
]


def open_engine(
    config: EngineConfig, checkpoint: Path, *, dtype: str, adapter_rank: int | None = None
) -> SamplingEngine:
    """The engine `config.kind`, with the weights of the folder `checkpoint` in `dtype`.

    On a CPU it computes with `config.threads` threads. `adapter_rank` is the largest rank of adapters that it will be
    refreshed with; vLLM has to know beforehand. Raises EngineError (MissingModel, UnsupportedArchitecture).
    """
    if config.kind == "scripted":
        from tasks.engines.scripted_engine import ScriptedEngine

        return ScriptedEngine.open(checkpoint)
    if config.kind == "vllm":
        from tasks.engines.vllm_engine import VllmEngine

        sizes = {"max_batch": config.max_batch, "threads": config.threads}
        return VllmEngine(checkpoint, dtype=dtype, **sizes, options=config.vllm, adapter_rank=adapter_rank)
    import torch

    from tasks.engines.transformers_engine import TransformersEngine

    torch.set_num_threads(config.threads)
    kept = config.prefix_store_mb << 20
    return TransformersEngine(checkpoint, dtype=dtype, max_batch=config.max_batch, prefix_store_bytes=kept)
