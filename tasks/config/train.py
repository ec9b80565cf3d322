"""The section `train`."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tasks.config.base import BehaviourConfig, Count, Factor, Parallel, PositiveInt, Section
from tasks.config.curriculum import CurriculumConfig, PromptRule
from tasks.config.hostfile import host_of
from tasks.config.methods import check_methods
from tasks.config.objectives import PPOConfig, SourceConfig, SourceName
from tasks.config.optimizer import AdapterConfig, GuardConfig, OptimizerConfig
from tasks.config.reuse import EarlierConfig, PairsConfig, ReplayConfig, check_replay, learn_as_online

PAPER_BETA = 1 / math.log(100_000)
Y_T_IS_TRAINED = {"terminal", "reverse_q", "advantage", "monte_carlo", "policy_gradient", "a_star_po"}
"""Objectives that hold y_T against r/beta."""


def half_online() -> dict[SourceName, SourceConfig]:
    """Half of every batch from the present policy, half from the offline corpus (5)."""
    return {"online": SourceConfig(share=0.5), "offline": SourceConfig(share=0.5)}


class TrainConfig(Section):
    """Training by SPO (sections 3 and 5) or PPO (3.1.4)."""

    algorithm: Literal["spo", "ppo"] = "spo"
    """`spo`: the paper's method. `ppo`: its baseline (3.1.4), on the source `online` alone, at temperature 1 and top-p
    1."""
    beta: Annotated[float, Field(ge=0.001, le=100)] = PAPER_BETA
    """Temperature of the soft objective, in reward units (paper: 1 / ln 100000 = 0.0869). A failure is worth -1 / beta
    nats."""
    clip_epsilon: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Least distance of a clipped prediction from 0, in nats (3.1.1). A failure's slope is at most 1/(e^epsilon - 1);
    purely online training wants 0.7 (docs/guides/training.md)."""
    sigmoid_scale: Factor = 1.0
    """Factor on log units inside the sigmoid of advantage regression (3.1.1); the paper names none."""
    ratio_clip: Annotated[float, Field(gt=0, le=10)] = 0.2
    """Clip distance of the ratio in policy-gradient losses (3.1.4); the paper names none."""
    ppo: PPOConfig = PPOConfig()
    """Not read by `spo`."""
    reward: Literal["binary", "fractional"] = "binary"
    """`binary`: 0 or -1. `fractional` (extension): share of tests passed minus 1; training problems then run every
    test."""
    steps: PositiveInt = 100_000
    """Optimizer steps of the run (paper: 100,000)."""
    batch_size: PositiveInt = 128
    """Sequences of one optimizer step, over all processes (paper: 128). Every source's share must be a whole number."""
    micro_batch_tokens: PositiveInt = 4096
    """Most tokens in one forward pass, shared beginnings counted once. It bounds memory and does not change results."""
    packing: Literal["shared", "packed", "padded"] = "shared"
    """`shared`: common beginnings are computed once. `packed`: whole sequences in one row. `padded`: padded rows with a
    mask, for models with other than causal attention."""
    logprob_chunk_tokens: PositiveInt = 1024
    """Response tokens whose logits exist at once; bounds memory."""
    reference_weights: Literal["auto", "device", "cpu"] = "auto"
    """Location of pi_0's weights. `device`: beside the policy. `cpu`: in main memory, layer by layer on the device;
    same numbers, less GPU memory. `auto`: `cpu` on a GPU with `zero_stage` 3."""
    reference_store_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """Memory (MB) for known log pi_0, at 4 bytes a token. No influence on results."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    deterministic: bool = True
    """Refuse kernels whose results vary; exact resume needs it."""
    sources: dict[SourceName, SourceConfig] = Field(default_factory=half_online)
    """Sources of a batch. `online`: rollout workers. `offline`: the corpus. `pivotal`: searched trajectories with token
    values. `pivotal_rollouts`: the search's rollouts. `replay`: this run's used trajectories. `earlier`: earlier runs'
    trajectories. `pairs`: a success and a failure of pi_0. A source that cannot fill its share makes the batch
    smaller."""
    replay: ReplayConfig = ReplayConfig()
    """Reuse of online trajectories."""
    earlier: EarlierConfig = EarlierConfig()
    """Reuse of earlier runs' trajectories."""
    pairs: PairsConfig = PairsConfig()
    """Pairs of successes and failures."""
    sampling_interval: PositiveInt = 1
    """Optimizer steps per sampled batch; in the steps between, `replay` also gives the share of `online`."""
    prompts: PromptRule = "uniform"
    """Selection of problems for online responses. `uniform`: as in the paper. `learnability`: in proportion to the
    expected p (1 - p). `thompson`: the largest p (1 - p) of drawn p. p is the policy's chance of success."""
    curriculum: CurriculumConfig = CurriculumConfig()
    """Beliefs about the problems."""
    behaviour: BehaviourConfig = BehaviourConfig()
    """How online responses are drawn (paper: temperature 0.1 to 0.8, top-p 0.95)."""
    reference_refresh_interval: Count = 0
    """Steps between two nominations of the policy as new reference (6); 0: never."""
    reference_refresh_samples: PositiveInt = 50
    """Judged responses of the nominee per problem before it becomes the reference."""
    model_update_interval: PositiveInt = 10
    """Optimizer steps between two publications of weights to the workers (paper: 10)."""
    rollout_workers: Annotated[int, Field(ge=0, le=4096)] = 1
    """Processes that sample and judge beside the trainer; each has its own engine and sandbox."""
    worker_launcher: tuple[str, ...] = ()
    """Command that starts a worker elsewhere, e.g. ("srun", "--ntasks=1", "--gpus=1"); `{index}` is its number. It
    passes standard input and output on and ends its worker when it ends."""
    rollout_batch: PositiveInt = 32
    """Responses a worker samples, judges and appends at a time."""
    responses_per_prompt: PositiveInt = 4
    """Responses to one prompt in a rollout batch; group methods get all of them in one batch."""
    max_batches_ahead: Count = 2
    """Optimizer batches that may wait untrained. 0: strict alternation of sampling and training."""
    hand_over: Literal["disk", "memory"] = "disk"
    """Path of published weights to the workers: the run's folder, or shared memory (`/dev/shm`)."""
    publish: Annotated[Literal["auto", "waiting", "background"], Field(exclude_if=lambda given: given == "auto")] = (
        "auto"
    )
    """`waiting`: training waits for the whole publication. `background`: training waits for a copy, a thread writes
    it; needs memory for one more copy. `auto`: `background` from 1 GB of weights on, but not with PPO or in strict
    alternation."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the policy."""
    lora: AdapterConfig | None = None
    """Train low-rank adapters; the reference is the same model without them. Needs peft and a ZeRO stage below 3."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """Parts that DeepSpeed divides over processes: 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights. In
    bfloat16 stage 0 is stage 1."""
    processes: Parallel = 1
    """Trainer processes on this machine, one per GPU; `hosts` replace it."""
    threads: Annotated[Parallel, Field(exclude_if=lambda given: given == 1)] = 1
    """CPU threads of one trainer process. Results repeat bit for bit with the same number."""
    share_gpus: bool = False
    """Let workers and evaluator share GPUs with each other and the trainer. Off: too few GPUs are refused
    (docs/guides/scaling.md)."""
    hosts: tuple[str, ...] = ()
    """Machines that train together, as lines of a hostfile: `name slots=8`. The first runs the flow; all share
    SPO_HOME. `{env:NAME}` is an environment variable. Empty: this machine (docs/guides/scaling.md)."""
    remote_shell: tuple[str, ...] = ("ssh", "-oBatchMode=yes")
    """Command that starts processes on other hosts; host and command are appended, or replace `{host}`. Empty: all
    here."""
    rendezvous_port: Annotated[int, Field(ge=1, le=65_535)] = 29500
    """Port of the first host at which all processes meet."""
    disk_mb_s: Annotated[float, Field(ge=1, le=1_000_000)] = 100.0
    """Slowest rate (MB/s) of checkpoints to disk, all processes together. Time limits follow from it and the model's
    size."""
    checkpoint_interval: PositiveInt = 20
    """Optimizer steps between two checkpoints; a crash costs at most these."""
    keep_checkpoints: PositiveInt = 2
    """Newest checkpoints kept; each holds the weights and AdamW's state."""
    snapshot_interval: PositiveInt = 20
    """Optimizer steps between weights kept for evaluation (the learning curve)."""
    guards: GuardConfig = GuardConfig()
    """Checks after every step."""
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)
    """Trackers besides the warehouse. TensorBoard files are always written; others need their packages."""

    _replay_learns_as_online = field_validator("sources")(learn_as_online)

    @property
    def processes_here(self) -> int:
        """Trainer processes on the machine that the flow runs on, which is the first of `hosts`."""
        return host_of(self.hosts[0])[1] if self.hosts else self.processes

    @property
    def background_possible(self) -> bool:
        """Whether weights may be published while the next steps are taken: nobody waits for each step's."""
        return self.algorithm != "ppo" and not ("online" in self.learnt_from and self.max_batches_ahead == 0)

    @property
    def learnt_from(self) -> dict[SourceName, SourceConfig]:
        """The sources that batches are drawn from."""
        replayed: set[SourceName] = {"replay"} if self.sampling_interval > 1 else set()
        return {name: source for name, source in self.sources.items() if source.share > 0 or name in replayed}

    def counts(self, step: int) -> dict[SourceName, int]:
        """Sequences that each source is to give for a step's batch, in the recipe's order."""
        found: dict[SourceName, int] = {
            name: round(source.share * self.batch_size) for name, source in self.learnt_from.items()
        }
        if (step - 1) % self.sampling_interval:
            found["replay"] += found["online"]
            found["online"] = 0
        return found

    def sampled_by(self, step: int) -> int:
        """Online trajectories that the steps up to `step` take."""
        if "online" not in self.learnt_from:
            return 0
        return -(-step // self.sampling_interval) * self.counts(1)["online"]

    @property
    def objective_kinds(self) -> set[str]:
        """The kinds of the objectives that are minimised; none with PPO, which has its own."""
        if self.algorithm == "ppo":
            return set()
        return {objective.kind for source in self.learnt_from.values() for objective in source.objectives}

    @property
    def group_size(self) -> int:
        """Responses to one prompt that stay together, in arrival, batches and replay; 1 where no objective compares."""
        names: tuple[SourceName, ...] = ("online", "replay")
        kinds = [o for name in names if name in self.learnt_from for o in self.learnt_from[name].objectives]
        return self.responses_per_prompt if any(objective.in_groups for objective in kinds) else 1

    @property
    def regression(self) -> bool:
        """Whether an objective holds y_T against r/beta, so that failures above 0 are a symptom."""
        return bool(self.objective_kinds & Y_T_IS_TRAINED)

    @model_validator(mode="after")
    def _methods_get_what_they_need(self) -> TrainConfig:
        check_methods(self)
        if "pairs" not in self.learnt_from:
            self.refuse_ignored("pairs", reason="no source 'pairs' with a share")
        return self

    @model_validator(mode="after")
    def _batch_is_shared_out(self) -> TrainConfig:
        if self.optimizer.decay_steps > self.steps:
            raise ValueError(f"optimizer.decay_steps {self.optimizer.decay_steps} are more than steps, {self.steps}")
        total = sum(source.share for source in self.sources.values())
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"the sources' shares must add up to 1, they add up to {total:g}")
        for name, source in self.sources.items():
            count = source.share * self.batch_size
            if not math.isclose(count, round(count), abs_tol=1e-9):
                raise ValueError(
                    f"batch_size {self.batch_size} cannot be divided: source {name!r} with share "
                    f"{source.share:g} would get {count:g} sequences"
                )
        return self

    @model_validator(mode="after")
    def _objectives_fit_their_sources(self) -> TrainConfig:
        for name, source in self.sources.items():
            kinds = {objective.kind for objective in source.objectives}
            if name != "pivotal" and "monte_carlo" in kinds:
                raise ValueError(f"source {name!r} has no token values: objective 'monte_carlo' belongs to 'pivotal'")
            if name != "online" and "policy_gradient" in kinds:
                raise ValueError(
                    f"source {name!r} was not sampled by the policy: objective 'policy_gradient' belongs to 'online'"
                )
            if self.reward == "fractional" and source.share and "monte_carlo" in kinds:
                raise ValueError(
                    "objective 'monte_carlo' knows successes only: it cannot be used with fractional rewards"
                )
        if "advantage" not in self.objective_kinds:
            self.refuse_ignored("sigmoid_scale", reason="objective 'advantage' alone reads it, and no source has it")
        clipped = any(o.clips_ratios for source in self.learnt_from.values() for o in source.objectives)
        if self.algorithm == "spo" and not clipped:
            self.refuse_ignored("ratio_clip", reason="there is no policy-gradient loss that is clipped")
        return self

    @model_validator(mode="after")
    def _reuse_possible(self) -> TrainConfig:
        used = self.learnt_from
        if "earlier" not in used:
            self.refuse_ignored("earlier", reason="no source 'earlier' with a share")
        if self.algorithm == "ppo":
            return self  # which refuses the sources by name
        if self.sampling_interval > 1 and "replay" not in self.sources:
            raise ValueError(
                "sampling_interval above 1 needs the source 'replay', which gives the online share in the steps "
                "between; its own share may be 0"
            )
        if "replay" not in used:
            self.refuse_ignored("replay", reason="no source 'replay' with a share")
            return self
        if "online" not in used:
            raise ValueError("the source 'replay' draws online trajectories again: give 'online' a share, too")
        check_replay(self)
        return self

    @model_validator(mode="after")
    def _workers_have_work(self) -> TrainConfig:
        if "online" not in self.learnt_from:
            reason = "no source 'online' with a share, so that there are no rollout workers"
            self.refuse_ignored("worker_launcher", "hand_over", "prompts", reason=reason)
        elif self.rollout_workers == 0:
            raise ValueError("the source 'online' needs rollout_workers > 0")
        if self.prompts == "uniform":
            self.refuse_ignored("curriculum", reason="prompts are drawn uniformly; set prompts to 'learnability'")
        if self.worker_launcher and self.hand_over == "memory":
            raise ValueError(
                "workers that worker_launcher starts elsewhere cannot read this machine's memory: "
                "set hand_over to 'disk'"
            )
        if self.responses_per_prompt > self.rollout_batch:
            raise ValueError(
                f"responses_per_prompt {self.responses_per_prompt} do not fit into a rollout_batch of "
                f"{self.rollout_batch} responses"
            )
        if self.max_batches_ahead == 0 and self.model_update_interval > 1:
            raise ValueError("max_batches_ahead 0 needs model_update_interval 1: every batch has weights of its own")
        if "online" in self.learnt_from and self.max_batches_ahead == 0:
            self._require_whole_turns()
        if self.publish == "background" and not self.background_possible:
            raise ValueError(
                "publish 'background' would leave workers sampling with older weights than max_batches_ahead 0 or PPO "
                "wants of them: leave it out"
            )
        return self

    def _require_whole_turns(self) -> None:
        """What a turn samples is what a step takes: of leftovers, the next step would learn with a newer policy."""
        taken = self.sampled_by(1)
        if self.rollout_workers > 1:
            raise ValueError(
                f"max_batches_ahead 0 needs one rollout worker: of {self.rollout_workers} one may sample again while "
                f"the step waits for another; give one more engine.processes, or set max_batches_ahead to 1"
            )
        if taken % self.rollout_batch:
            raise ValueError(
                f"max_batches_ahead 0 samples what a step takes: rollout_batch {self.rollout_batch} does not divide "
                f"the {taken} online trajectories of a step"
            )

    @model_validator(mode="after")
    def _machines_agree(self) -> TrainConfig:
        if self.lora is not None and self.zero_stage == 3:
            raise ValueError("lora cannot be sharded by ZeRO stage 3: set zero_stage to 0, 1 or 2")
        if self.lora is not None and self.reference_weights == "cpu":
            raise ValueError("reference_weights 'cpu' would be ignored: lora's pi_0 is the policy itself; leave it out")
        if not self.hosts:
            self.refuse_ignored("remote_shell", "rendezvous_port", reason="there are no `hosts` to start processes on")
            return self
        slots = [host_of(line)[1] for line in self.hosts]
        if self.processes not in (1, slots[0]):
            raise ValueError(
                f"processes {self.processes} contradicts hosts, whose first has {slots[0]} slots: leave processes out"
            )
        return self

    @model_validator(mode="after")
    def _refresh_possible(self) -> TrainConfig:
        if not self.reference_refresh_interval:
            reason = "the reference is never refreshed; set reference_refresh_interval"
            self.refuse_ignored("reference_refresh_samples", reason=reason)
            return self
        online = self.sources.get("online")
        needs = {
            "algorithm = 'spo'": self.algorithm == "spo",
            "no lora (its reference is the model without adapters)": self.lora is None,
            "reward = 'binary'": self.reward == "binary",
            "a share for the source 'online'": online is not None and online.share > 0,
            "no share for pivotal sources (their targets belong to the first reference)": not any(
                source.share > 0 and name.startswith("pivotal") for name, source in self.sources.items()
            ),
            "behaviour.temperature = [1.0, 1.0] and top_p = 1.0 (its soft values come from online samples)": (
                self.behaviour.exact
            ),
            "behaviour.weights = 'latest'": self.behaviour.weights == "latest",
            "max_batches_ahead above 0 (workers stay with the nominee for many steps)": self.max_batches_ahead > 0,
            "prompts = 'uniform' (every problem needs samples of the nominee)": self.prompts == "uniform",
            "a multiple of model_update_interval": self.reference_refresh_interval % self.model_update_interval == 0,
        }
        missing = [need for need, met in needs.items() if not met]
        if missing:
            raise ValueError(f"reference_refresh_interval needs {'; '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _policy_gradient_possible(self) -> TrainConfig:
        if self.algorithm != "ppo" and "policy_gradient" not in self.objective_kinds:
            return self
        if not self.behaviour.exact or self.behaviour.weights != "latest":
            raise ValueError(
                "policy gradients need responses drawn from the policy itself: set behaviour.temperature = [1.0, 1.0], "
                "behaviour.top_p = 1.0 and behaviour.weights = 'latest'"
            )
        return self

    @model_validator(mode="after")
    def _algorithm_reads_its_settings(self) -> TrainConfig:
        if self.algorithm == "spo":
            self.refuse_ignored("ppo", reason="algorithm 'spo' does not read it; set algorithm to 'ppo'")
            return self
        if reused := sorted(self.learnt_from.keys() & {"replay", "earlier"}):
            raise ValueError(
                f"algorithm 'ppo' cannot use the source {reused[0]!r}: its importance weights hold for what the "
                f"present policy sampled; set the share to 0 and sampling_interval to 1, or raise ppo.epochs"
            )
        if self.sampling_interval > 1:
            raise ValueError("algorithm 'ppo' samples every batch: set sampling_interval to 1; ppo.epochs repeats it")
        if self.learnt_from.keys() != {"online"}:
            raise ValueError("algorithm 'ppo' learns from its own samples: give the source 'online' the share 1.0")
        if self.batch_size % self.ppo.minibatches:
            raise ValueError(f"batch_size {self.batch_size} is no multiple of ppo.minibatches {self.ppo.minibatches}")
        reason = "algorithm 'ppo' has its own objective"
        self.sources["online"].refuse_ignored("objectives", reason=reason)
        return self
