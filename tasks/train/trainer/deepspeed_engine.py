"""DeepSpeed behind a handful of methods; the only module that imports it.

DeepSpeed compiles a shared-memory communication operator on first use on a CPU. It is switched off here: gloo does
the same work, no compiler is needed, and results do not depend on whether one is present.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tasks.config import TrainConfig
from tasks.scoring.packing import Pack
from tasks.train.shared import time_limits
from tasks.train.shared.errors import NonFinite, ResumeImpossible, TrainerError
from tasks.train.trainer.first_process import FirstProcess
from tasks.train.trainer.schedule import rate_factor

Found = TypeVar("Found")

TAG = "state"
MOST_REDUCED = 500_000_000
"""Gradients that are reduced at once."""
UNIVERSAL = {"universal_checkpoint_info": {"universal_checkpoint_version": 0.2}}
"""What DeepSpeed's conversion for another number of processes asks to find in a checkpoint."""


def whole_size(parameter: nn.Parameter) -> int:
    """Numbers of a parameter, also where ZeRO 3 has divided it and this process has none or a part of them."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


class DeepSpeedEngine:
    """A module under training: forward, backward, step; save and load; collectives between the processes."""

    def __init__(
        self,
        module: nn.Module,
        config: TrainConfig,
        *,
        dtype: str,
        device: torch.device,
        groups: list[dict[str, Any]] | None = None,
        timeout_s: int = time_limits.LEAST_GROUP_TIMEOUT_S,
    ) -> None:
        """`groups`: the optimizer's parameter groups; None: all trained parameters at the recipe's rate.

        `timeout_s`: how long processes wait for each other before they take one for hung.
        """
        self.device = device
        self.config = config
        self.updates = 0
        """Optimizer updates made by this process."""
        self.stage = max(config.zero_stage, 1) if dtype == "bfloat16" else config.zero_stage
        """ZeRO stage. Beside bfloat16 weights are float32 ones, which DeepSpeed keeps from stage 1 on."""
        self._norm = float("nan")
        self._deepspeed = _import_deepspeed()
        timeout = timedelta(seconds=timeout_s)
        self._meeting = _join(self._deepspeed, device, timeout)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        apart = self.world > 1 and device.type == "cuda"
        self._objects: Any = dist.new_group(backend="gloo", timeout=timeout) if apart else None
        self._first: FirstProcess | None = None
        if self.world > 1:
            group = dist.new_group(backend="gloo", timeout=timeout)
            self._first = FirstProcess(group, beat_s=time_limits.BEAT_S, timeout_s=timeout_s)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._partly_frozen = len(trained) < len(list(module.parameters()))
        self.optimizer = torch.optim.AdamW(
            groups or trained,
            lr=config.optimizer.learning_rate,
            betas=config.optimizer.betas,
            weight_decay=config.optimizer.weight_decay,
        )
        self._clips_itself = self.stage == 0
        if self._clips_itself:
            self.optimizer.register_step_pre_hook(self._clip)
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda done: rate_factor(done, config))
        self._engine: Any = self._deepspeed.initialize(
            model=module,
            model_parameters=trained,
            optimizer=self.optimizer,
            lr_scheduler=schedule,
            config=self._settings(dtype, sum(map(whole_size, trained))),
            dist_init_required=False,
        )[0]
        self._engine.eval() if not config.gradient_checkpointing else None

    def forward(self, pack: Pack) -> tuple[Tensor, ...]:
        """What the module says of the pack's response tokens: log-probabilities, entropies, ...; shape N each."""
        return self._engine(pack)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of this process's part of the step's loss (a mean over all sequences of the step).

        DeepSpeed averages over processes, so the part is scaled up by their number.
        """
        self._engine.backward(loss * self.world)

    def step(self) -> float:
        """Reduce, clip, update, zero; returns the gradient norm before clipping. Raises NonFinite."""
        self._engine.step()
        norm = self._norm if self._clips_itself else float(self._engine.get_global_grad_norm() or 0.0)
        if not torch.isfinite(torch.tensor(norm)):  # DeepSpeed has left the update out
            raise NonFinite(f"the gradient norm is {norm}; nothing was updated")
        self.updates += 1
        return norm

    @property
    def state_bytes(self) -> int:
        """About how much a checkpoint takes: what is trained, its moments, and float32 weights where it has others."""
        trained = [p for p in self._engine.module.parameters() if p.requires_grad]
        sizes = [(whole_size(p), p.element_size()) for p in trained]
        return sum(count * (size + 8 + (0 if size == 4 else 4)) for count, size in sizes)

    @property
    def learning_rate(self) -> float:
        """The rate that the next step uses (of the first parameter group)."""
        return float(self._engine.get_lr()[0])

    def save(self, folder: Path) -> None:
        """What is trained, optimizer and schedule of all processes into `folder`. Collective."""
        self._engine.save_checkpoint(
            str(folder), tag=TAG, client_state=UNIVERSAL, exclude_frozen_parameters=self._partly_frozen
        )

    def load(self, folder: Path, *, processes: int) -> None:
        """The opposite of `save`, for the same ZeRO stage. Collective. Raises ResumeImpossible.

        `processes` saved it. When that is another number, DeepSpeed's universal form is made on the way, from which
        each process takes its new part; without ZeRO every process holds everything anyway.
        """
        if processes == self.world or self.stage == 0:
            self._load(folder)
            return
        universal = folder / "universal"
        self.first_does(lambda: _make_universal(folder / TAG, universal / TAG))
        self._engine._config.load_universal_checkpoint = True
        try:
            self._load(universal)
        finally:
            self._engine._config.load_universal_checkpoint = False
        self._keep_groups_apart()
        self.barrier()
        if self.rank == 0:
            shutil.rmtree(universal)

    def _load(self, folder: Path) -> None:
        path, _ = self._engine.load_checkpoint(str(folder), tag=TAG, load_module_strict=not self._partly_frozen)
        if path is None:
            raise ResumeImpossible(f"{folder} holds no DeepSpeed state; delete it to resume from an older checkpoint")

    def _keep_groups_apart(self) -> None:
        """Give groups their own rates and counts of steps again.

        From the universal form ZeRO 3 takes one group's settings, and one tensor that counts steps, for all of them.
        """
        for group, rate in zip(self.optimizer.param_groups, self._engine.lr_scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        for state in self.optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"] = state["step"].clone()

    def consolidated(
        self, model: nn.Module, wanted: Callable[[str], bool] = lambda _: True, *, apart: bool = False
    ) -> dict[str, Tensor]:
        """The state of `model` (a part of the policy) on the CPU; empty but on the first process. Collective.

        `wanted` says of which names. `apart`: in memory of its own, so that later steps do not change it.
        """
        if self.config.zero_stage < 3:
            whole = {} if self.rank else model.state_dict()
            return on_cpu({name: value for name, value in whole.items() if wanted(name)}, apart=apart)
        state: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            with self._deepspeed.zero.GatheredParameters([parameter]):
                if self.rank == 0 and wanted(name):
                    state[name] = parameter.detach().to("cpu", copy=True)
        if self.rank == 0:
            persistent = {name for name in model.state_dict() if wanted(name)} - set(state)
            buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
            state |= on_cpu(buffers, apart=apart)
        return state

    def share(self, value: Any) -> Any:
        """The first process's `value`, on all. Collective."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._objects)
        return box[0]

    def scatter(self, values: Sequence[Any] | None) -> Any:
        """The first process's `values[rank]`; what the others give is not looked at. Collective."""
        given = list(values or ())
        if self.world == 1:
            return given[0]
        box: list[Any] = [None]
        dist.scatter_object_list(box, given if self.rank == 0 else None, src=0, group=self._objects)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Every process's value in order of rank, on the first; empty on the others. Collective."""
        if self.world == 1:
            return [value]
        box: list[Any] | None = [None] * self.world if self.rank == 0 else None
        dist.gather_object(value, box, dst=0, group=self._objects)
        return box or []

    def first_does(self, work: Callable[[], Found]) -> Found | None:
        """What `work` returns, on the first process, however long it takes; None on the others. Collective.

        A TrainerError of `work` is raised by all. `work` must not use the engine.
        """
        return work() if self._first is None else self._first.does(work)

    def raise_together(self, error: TrainerError | None) -> None:
        """Raise the first error that a process has, on all of them: one alone would leave the others waiting."""
        if self.world > 1:
            found = [one for one in self.gather(error) if one is not None]
            error = self.share(found[0] if found else None)
        if error is not None:
            raise error

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()
        if self._meeting is not None:
            self._meeting.cleanup()

    def _clip(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.optimizer.max_grad_norm)
        self._norm = float(norm)
        if not torch.isfinite(norm):
            raise NonFinite(f"the gradient norm is {self._norm}; nothing was updated")

    def _settings(self, dtype: str, size: int) -> dict[str, Any]:
        return {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "managed_gradient_accumulation": False,
            "gradient_clipping": 0.0 if self._clips_itself else self.config.optimizer.max_grad_norm,
            "zero_optimization": zero_settings(self.stage, self.device, size),
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": dtype == "bfloat16"},
            "data_types": {"grad_accum_dtype": "fp32"},
            "steps_per_print": 1_000_000_000,
        }


def zero_settings(stage: int, device: torch.device, size: int) -> dict[str, Any]:
    """DeepSpeed's settings of ZeRO for `size` trained numbers.

    It refuses to overlap communication where gradients are not divided. Its buffers have room for 500 million numbers
    whatever the model, and deterministic algorithms fill them at every step.
    """
    overlap = stage >= 2 and device.type == "cuda"
    return {"stage": stage, "overlap_comm": overlap, "reduce_bucket_size": max(1, min(MOST_REDUCED, size))}


def on_cpu(state: dict[str, Tensor], *, apart: bool) -> dict[str, Tensor]:
    """The tensors on the CPU; weights that are tied stay so. `apart`: in memory of their own."""
    moved: dict[Any, Tensor] = {}
    names: dict[str, Any] = {}
    for name, value in state.items():
        names[name] = where = value.data_ptr(), value.dtype, value.shape, value.stride()
        if where not in moved:
            moved[where] = value.detach().to("cpu", copy=apart)
    return {name: moved[where] for name, where in names.items()}


def _make_universal(folder: Path, target: Path) -> None:
    """The DeepSpeed checkpoint in `folder` in the form that any number of processes can load."""
    from deepspeed.checkpoint import ds_to_universal

    shutil.rmtree(target, ignore_errors=True)
    ds_to_universal.main(
        argparse.Namespace(
            input_folder=str(folder),
            output_folder=str(target),
            num_extract_workers=1,
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=False,
        )
    )


def _import_deepspeed() -> Any:
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _join(deepspeed: Any, device: torch.device, timeout: timedelta) -> tempfile.TemporaryDirectory[str] | None:
    """Join the process group that torchrun set up, or make one of a single process without opening a port.

    The folder is where such a process meets itself; it is needed as long as the group is.
    """
    if dist.is_initialized():
        return None
    backend = "nccl" if device.type == "cuda" else "gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)
        return None
    os.environ.update(RANK="0", LOCAL_RANK=os.environ.get("LOCAL_RANK", "0"), WORLD_SIZE="1")
    meeting = tempfile.TemporaryDirectory(prefix="spo-trainer-", ignore_cleanup_errors=True)
    deepspeed.init_distributed(
        dist_backend=backend,
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{meeting.name}/store",
        rank=0,
        world_size=1,
    )
    return meeting
