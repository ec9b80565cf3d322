"""Which GPUs an engine may use, and how many engine processes a configuration asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata
from itertools import takewhile
from pathlib import Path

from tasks.config import EngineConfig

GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver lists the GPUs of a machine."""


def visible_gpus(*, of_torch: bool = True) -> list[str]:
    """The GPUs that this process may use, as names for CUDA_VISIBLE_DEVICES.

    None with a build of torch for CPUs, unless another interpreter's (`of_torch` False) will use them.
    """
    if of_torch and metadata.version("torch").endswith("+cpu"):
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return list(takewhile(lambda name: name and not name.startswith("-"), named.split(",")))  # -1 hides the rest
    return [str(number) for number in range(len(list(GPUS.glob("*"))))]


def engine_width(engine: EngineConfig) -> int:
    """GPUs that one engine uses at once where there are any."""
    if engine.kind == "scripted":
        return 0
    width = 1
    for side in ("tensor_parallel_size", "pipeline_parallel_size") if engine.kind == "vllm" else ():
        width *= int(engine.vllm.get(side, 1))
    return width


def engine_places(gpus: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """The GPUs of as many engines as fit, `width` each; none where an engine needs no GPU or more than there are."""
    return [tuple(gpus[at : at + width]) for at in range(0, len(gpus) - width + 1, width)] if width else []


def engine_processes(engine: EngineConfig, gpus: Sequence[str]) -> list[tuple[str, ...]]:
    """The GPUs of each engine process that `engine` asks for; empty where it is to run in the asking process itself.

    With more processes than places they share these in turn.
    """
    places = engine_places(gpus, engine_width(engine))
    apart = engine.kind == "vllm" or engine.python is not None
    count = engine.processes if engine.processes is not None else len(places) or int(apart)
    return [places[number % len(places)] if places else () for number in range(count)]
