"""Sampling engines behind one Protocol (`protocol.Engine`); importing this package loads no model library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tasks.checkpoints.errors import EngineError, MissingModel, UnsupportedArchitecture
from tasks.config import EngineConfig, ShardsConfig
from tasks.engines.protocol import Completion, EngineDied, EngineDrift, InvalidRequest, Request, SamplingEngine

__all__ = [
    "Completion",
    "EngineDied",
    "EngineDrift",
    "EngineError",
    "InvalidRequest",
    "MissingModel",
    "Request",
    "SamplingEngine",
    "UnsupportedArchitecture",
    "open_engine",
    "open_here",
]


def open_engine(
    config: EngineConfig,
    checkpoint: Path,
    *,
    dtype: str,
    adapter_rank: int | None = None,
    shards: ShardsConfig | None = None,
) -> SamplingEngine:
    """The engine `config.kind`, with the weights of the folder `checkpoint` in `dtype`, where `config` says.

    That is in this process or in processes of its own (`tasks.engines.devices.engine_processes`), elsewhere where
    `shards` says so: behind its launcher, or on its Ray cluster. On a CPU each computes with `config.threads` threads.
    `adapter_rank` is the largest rank of adapters that it will be refreshed with; vLLM has to know beforehand. Raises
    EngineError (MissingModel, UnsupportedArchitecture, EngineDied).
    """
    from tasks.engines.devices import engine_processes, visible_gpus

    launcher, number = _elsewhere(shards) if shards else ((), 0)
    elsewhere: list[tuple[str, ...]] = [()] * number
    if places := elsewhere or engine_processes(config, visible_gpus(of_torch=config.python is None)):
        from tasks.engines.process_engine import ProcessEngine

        weights: dict[str, Any] = {"dtype": dtype, "adapter_rank": adapter_rank}
        return ProcessEngine(config, checkpoint, **weights, places=places, launcher=launcher)
    return open_here(config, checkpoint, dtype=dtype, adapter_rank=adapter_rank)


def _elsewhere(shards: ShardsConfig) -> tuple[tuple[str, ...], int]:
    """The command that starts engines elsewhere, and how many; nothing and 0: they are here."""
    if shards.runner == "ray" and shards.address is not None:
        reserved = (str(shards.cpus), str(shards.gpus))
        return (sys.executable, "-m", "tasks.engines.ray_launcher", shards.address, *reserved), shards.tasks
    return shards.launcher, shards.engines


def open_here(config: EngineConfig, checkpoint: Path, *, dtype: str, adapter_rank: int | None = None) -> SamplingEngine:
    """The same in this process, whatever `config` says of processes."""
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
