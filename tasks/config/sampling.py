"""The sections `reference`, `engine`, `shards` and `sandbox`: who writes programs, where, and who judges them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tasks.config.base import Fraction, PositiveInt, Section


class PretrainConfig(Section):
    """How the miniature reference policy is made; used only by `reference.model = "miniature"`."""

    steps: PositiveInt = 300
    sequences_per_step: PositiveInt = 96
    learning_rate: float = 3e-3
    hidden_size: PositiveInt = 96
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    vocabulary: PositiveInt = 512
    mistake_rate: Fraction = 0.65
    """Probability that a systematically confused operation is written wrongly."""
    seed: int = 0


class ReferenceConfig(Section):
    """The reference policy pi_0, which also initialises pi_theta (section 2.1)."""

    model: str = "miniature"
    """`miniature`, a hub name such as `HuggingFaceTB/SmolLM2-135M-Instruct`, or a local checkpoint folder."""
    gguf_file: str | None = None
    """File inside `model` when the checkpoint is a GGUF."""
    revision: str | None = None
    """Hub revision (a commit); recorded with the policy."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    template: str = "auto"
    """Prompt template: `chat` (the tokenizer's chat template), `few_shot` (worked examples as comments,
    for base and very small models), or `auto` (`chat` when the tokenizer has a chat template)."""
    pretrain: PretrainConfig = PretrainConfig()


class SandboxConfig(Section):
    """Where and how programs are judged."""

    backend: Literal["auto", "embedded", "docker"] = "auto"
    """`auto` is `embedded`; nothing falls back to less than it says."""
    workers: PositiveInt = 2
    """Sandbox workers per judging process."""
    cpu_limit_s: float | None = None
    """CPU seconds a test may take; None: the problem's own limit."""
    memory_limit_mb: int | None = None
    """Memory a test may take; None: the problem's own limit."""
    mode: Literal["test", "batch"] = "test"


class EngineConfig(Section):
    """What samples token sequences."""

    kind: Literal["transformers", "vllm", "scripted"] = "transformers"
    max_batch: PositiveInt = 256
    """Most sequences decoded at once; bounds memory."""
    threads: PositiveInt = 1
    """Threads of one engine process on a CPU."""
    max_response_tokens: PositiveInt = 96
    """Length limit of a response; a response cut off here is a failure."""
    vllm: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Further arguments of `vllm.LLM`, e.g. `gpu_memory_utilization`, `tensor_parallel_size`, `max_model_len`."""


class ShardsConfig(Section):
    """Who samples and judges Q0's shards; the result is the same wherever they run."""

    runner: Literal["here", "ray"] = "here"
    """`here`: the stage's own process. `ray`: tasks on a Ray cluster (`pip install .[ray]`), each with an engine and a
    sandbox of its own; the warehouse and SPO_HOME must be reachable from every node (docs/scaling.md)."""
    address: str | None = None
    """Address of the Ray cluster, e.g. `auto` or `ray://head:10001`; None starts Ray on this machine."""
    tasks: PositiveInt = 8
    """Most tasks the shards are divided into; about the number of engines the cluster has room for."""
    cpus: float = Field(default=1.0, ge=0)
    """CPUs that a task reserves on its node."""
    gpus: float = Field(default=0.0, ge=0)
    """GPUs that a task reserves on its node: 1 for one vLLM engine per GPU."""
