"""The sections `reference`, `engine`, `shards` and `sandbox`: who writes programs, where, and who judges them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from tasks.config.base import Depth, Fraction, Parallel, PositiveFraction, PositiveInt, Section, Seed

NAMED_MODELS = ("miniature", "smollm")
"""What `reference.model` may say besides folders and names on the hub."""


class PretrainConfig(Section):
    """Training of the miniature reference policy, for `reference.model = "miniature"`.

    The paper starts from a published model, so no value is the paper's.
    """

    steps: PositiveInt = 300
    """Optimizer steps. Too few leave a policy that writes no valid Python."""
    sequences_per_step: PositiveInt = 96
    """Generated problems, each with a program, in one optimizer step."""
    learning_rate: PositiveFraction = 3e-3
    """Highest learning rate of AdamW; it follows a cosine."""
    hidden_size: PositiveInt = 96
    """Width of the network, an even multiple of `heads`."""
    layers: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of transformer layers."""
    heads: PositiveInt = 4
    """Attention heads of a layer."""
    vocabulary: Annotated[int, Field(ge=260, le=1_000_000)] = 512
    """Tokens of its tokenizer: 256 bytes, 4 marks and the learned ones."""
    depth: Depth = None
    """Most filters and maps in its training problems, at least `problems.depth`. None: the small vocabulary."""
    mistake_rate: Fraction = 0.65
    """Probability that a confusable operation is written wrongly. 0 leaves nothing to learn, 1 no success."""
    seed: Seed = 0
    """Seed of weights and training pairs."""

    @model_validator(mode="after")
    def _heads_fit(self) -> PretrainConfig:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size {self.hidden_size} is no even multiple of heads {self.heads}")
        return self


class ReferenceConfig(Section):
    """The reference policy pi_0, which also initialises pi_theta (section 2.1)."""

    model: str = "miniature"
    """`miniature`, `smollm` (SmolLM2-135M-Instruct), a hub name, or a checkpoint folder (paper: Llama 3.1 8B
    Instruct)."""
    gguf_file: str | None = None
    """GGUF file inside `model`; it is converted once. None: an ordinary checkpoint."""
    revision: str | None = None
    """Commit on the hub, recorded with the policy. None: the newest."""
    temperature: Annotated[float, Field(ge=0.1, le=1)] = 1.0
    """pi_0 is the model with its logits divided by this. Other temperatures multiply it. 0.7 helps SmolLM2-135M."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number type of the weights in training and sampling. `bfloat16` halves the memory; engine and trainer then agree
    less closely."""
    template: Literal["auto", "chat", "few_shot"] = "auto"
    """`chat`: the tokenizer's chat template. `few_shot`: worked examples, for base and very small models. `auto`:
    `chat` where the tokenizer has a template."""
    pretrain: PretrainConfig = PretrainConfig()
    """Not read for any other model."""

    @model_validator(mode="after")
    def _miniature_is_made_here(self) -> ReferenceConfig:
        if self.model == "miniature":
            self.refuse_ignored(
                "gguf_file", "revision", "temperature", reason="the miniature policy is made here, not read"
            )
        if self.model == "smollm":
            self.refuse_ignored("gguf_file", "revision", reason="the model 'smollm' is one file of one package")
        return self


class SandboxConfig(Section):
    """Judging of programs."""

    backend: Literal["auto", "embedded", "docker"] = "auto"
    """`embedded`: confined processes of this machine. `docker`: the same inside a container without network. `auto`:
    `embedded`. No backend falls back to another."""
    workers: Parallel = 2
    """Sandbox workers per judging process. More than the free CPU cores make judging slower; verdicts stay the same."""
    cpu_limit_s: Annotated[float, Field(ge=0.01, le=3600)] | None = None
    """CPU seconds per test, part of a verdict's identity. An endless loop costs three times as much. None: the
    problem's own limit."""
    memory_limit_mb: Annotated[int, Field(ge=32, le=1_048_576)] | None = None
    """Memory per test (MiB), part of a verdict's identity. The interpreter takes 15. None: the problem's own limit."""
    mode: Literal["test", "batch"] = "test"
    """`test`: a process per test. `batch`: several tests in one process, for programs that leave nothing behind;
    doubtful results are judged again alone."""
    packages: tuple[str, ...] = ()
    """Folders with packages that programs may import (`pip install --target FOLDER numpy`); with Docker, folders of the
    image. Part of a suite's identity."""
    preimports: tuple[str, ...] = ()
    """Modules that every runner imports once, e.g. `["numpy"]`."""
    known_verdicts_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Memory (MB) of a judging process for known verdicts, 210 bytes each. No influence on results."""
    image: str | None = None
    """Container image with `python3` of this version. None: an image of the running interpreter. Docker only."""
    runtime: str | None = None
    """Container runtime, e.g. `runsc` for gVisor. None: the engine's own. Docker only."""
    container_memory_mb: Annotated[int, Field(ge=512, le=1_048_576)] | None = None
    """Memory (MiB) of one container. None: 3072. A suite that leaves less than 512 is refused. Docker only."""

    @model_validator(mode="after")
    def _containers_are_docker(self) -> SandboxConfig:
        given = [name for name in ("image", "runtime", "container_memory_mb") if getattr(self, name) is not None]
        if given and self.backend != "docker":
            raise ValueError(f'sandbox.{given[0]} is for containers; set sandbox.backend = "docker" or leave it out')
        if self.packages and self.backend == "docker" and self.image is None:
            raise ValueError(
                "sandbox.packages are folders of the containers' image: name one that has them, sandbox.image"
            )
        return self

    def judge_arguments(self) -> dict[str, Any]:
        """What `sandbox.Judge` is to be called with."""
        options: dict[str, Any] = {"packages": self.packages}
        if self.image is not None:
            options["image"] = self.image
        if self.runtime is not None:
            options["runtime"] = self.runtime
        if self.container_memory_mb is not None:
            options["memory_bytes"] = self.container_memory_mb << 20
        names = {"backend": self.backend, "workers": self.workers, "mode": self.mode, "preimports": self.preimports}
        return names | {"backend_options": options}


VLLM_SET_ELSEWHERE = {
    "model": "set reference.model",
    "tokenizer": "it is the reference's; set reference.model",
    "dtype": "set reference.dtype",
    "max_num_seqs": "set engine.max_batch",
    "logprobs_mode": "training needs the raw log-probabilities",
    "worker_extension_cls": "the engine brings its own",
}
"""Arguments of `vllm.LLM` that are decided elsewhere, and where."""


VLLM_NUMBERS: dict[str, Any] = {"gpu_memory_utilization": PositiveFraction, "tensor_parallel_size": Parallel}
"""Arguments of `vllm.LLM` that are checked here, since each process of a run would fail on them by itself."""


class EngineConfig(Section):
    """The sampler of token sequences."""

    kind: Literal["transformers", "vllm", "scripted"] = "transformers"
    """`transformers`: the project's own decoder. `vllm`: for large models on a GPU. `scripted`: fixed responses, for
    tests."""
    max_batch: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Most sequences decoded at once."""
    prefix_store_mb: Annotated[int, Field(ge=0, le=1_048_576)] = 256
    """Memory (MiB) for keys and values of prompts that the `transformers` engine keeps between calls; 0: none."""
    threads: Parallel = 1
    """CPU threads of one engine process."""
    processes: Annotated[int | None, Field(ge=0, le=4096, exclude_if=lambda given: given is None)] = None
    """Engine processes of each stage, rollout worker and evaluator. None: one per visible GPU (per
    `tensor_parallel_size` GPUs); without GPUs one for vLLM, else none. 0: inside the sampling process. Samples do not
    depend on it."""
    python: Annotated[str | None, Field(exclude_if=lambda given: given is None)] = None
    """Interpreter of the engine processes, e.g. `.venv-vllm/bin/python` (vLLM and Prefect cannot share an environment).
    None: this interpreter."""
    max_response_tokens: PositiveInt = 96
    """Length limit of a response, in tokens; a longer response is a failure. Another limit samples Q0 anew."""
    vllm: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Further arguments of `vllm.LLM`, e.g. `gpu_memory_utilization`, `tensor_parallel_size`, `max_model_len`."""

    @model_validator(mode="after")
    def _processes_are_own(self) -> EngineConfig:
        if self.processes == 0 and self.kind == "vllm":
            raise ValueError("processes 0: vLLM runs in a process of its own; leave processes out or raise it")
        if self.processes == 0 and self.python is not None:
            raise ValueError("python would be ignored: processes is 0, which samples in the asking process")
        return self

    @model_validator(mode="after")
    def _options_are_read(self) -> EngineConfig:
        if self.vllm and self.kind != "vllm":
            raise ValueError(
                f"vllm would be ignored: kind is {self.kind!r}; leave it out, or override it with null, or set kind to "
                f"'vllm'"
            )
        for name, numbers in VLLM_NUMBERS.items():
            try:
                TypeAdapter[Any](numbers).validate_python(self.vllm.get(name, 1), strict=True)
            except ValidationError as error:
                raise ValueError(f"vllm.{name}: {error.errors()[0]['msg']}, got {self.vllm[name]!r}") from None
        if taken := sorted(VLLM_SET_ELSEWHERE.keys() & self.vllm.keys()):
            raise ValueError(f"vllm.{taken[0]} is not for recipes: {VLLM_SET_ELSEWHERE[taken[0]]}")
        return self


class ShardsConfig(Section):
    """Machines that the stages sample on. The samples do not depend on them."""

    runner: Literal["here", "ray"] = "here"
    """`here`: the stage's own process. `ray`: a Ray cluster (`pip install -e '.[ray]'`); Q0's tasks judge on the nodes,
    other stages judge locally (docs/guides/scaling.md)."""
    address: str | None = None
    """Address of the Ray cluster, e.g. `auto` or `ray://head:10001`. None: Ray starts on this machine, for Q0 alone."""
    tasks: Parallel = 8
    """Most tasks of Q0, and engines of the other stages, on the cluster."""
    cpus: Annotated[float, Field(ge=0, le=4096)] = 1.0
    """CPUs that a task or engine reserves on its node."""
    gpus: Annotated[float, Field(ge=0, le=4096)] = 0.0
    """GPUs that a task or engine reserves on its node."""
    launcher: Annotated[tuple[str, ...], Field(exclude_if=lambda given: not given)] = ()
    """Command that starts engine processes elsewhere, e.g. ("ssh", "gpu-{index}"). It passes standard input and output
    on and ends with its input. Paths must be the same there; programs are judged locally."""
    engines: Annotated[int, Field(ge=0, le=4096, exclude_if=lambda given: given == 0)] = 0
    """Number of engine processes that `launcher` starts."""

    @model_validator(mode="after")
    def _cluster_is_used(self) -> ShardsConfig:
        if self.runner == "here":
            reason = "runner 'here' samples in the stage's own process; set runner to 'ray'"
            self.refuse_ignored("address", "tasks", "cpus", "gpus", reason=reason)
        else:
            self.refuse_ignored(
                "launcher", "engines", reason="runner 'ray' starts its engines on the nodes of the cluster"
            )
        if bool(self.launcher) != bool(self.engines):
            raise ValueError("launcher and engines go together: the command, and how many engine processes it starts")
        return self
