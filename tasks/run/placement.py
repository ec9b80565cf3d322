"""Which process of a training run gets which GPUs of this machine.

Trainer processes come first, one GPU each; then rollout workers and the evaluator, as many as their engine is wide.
Stages before and after training run alone, and their engines may have every GPU (`engine_places`). Processes that a
command starts elsewhere (`train.worker_launcher`, the other `train.hosts`) take none of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from tasks.config import RunConfig
from tasks.config.placeholders import filled
from tasks.engines.devices import engine_places, engine_width
from tasks.run.errors import Oversubscribed

TRAINER, EVALUATOR = "trainer", "evaluator"


def worker_name(index: int) -> str:
    """The name of rollout worker `index`."""
    return f"worker-{index}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The GPUs of every process of a training run on this machine; nothing anywhere on a machine without."""

    gpus: Mapping[str, tuple[str, ...]]
    """By process; those that run elsewhere are not among them."""
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the processes are that take GPUs of another place."""
    idle: tuple[str, ...] = ()
    """GPUs that no process of training uses."""
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """GPUs that several processes use, and these."""

    def environment(self, process: str) -> dict[str, str]:
        """What to set for `process` so that it sees its GPUs alone; nothing on a machine without, or elsewhere."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus[process])} if process in self.gpus else {}

    def lines(self) -> list[str]:
        """Who gets which GPU, for people; empty on a machine without."""
        if not self.gpus:
            return []
        told = [f"{name}: {_named(gpus)}" for name, gpus in self.gpus.items()]
        told += [f"{name}: {where}" for name, where in self.elsewhere.items()]
        told += [f"{gpu} is shared by {', '.join(names)}" for gpu, names in self.shared.items()]
        return [*told, *([f"idle while training: {', '.join(self.idle)}"] if self.idle else [])]


def place(config: RunConfig, gpus: Sequence[str]) -> Placement:
    """Where the processes of training in a run of `config` go on a machine with these GPUs.

    Raises Oversubscribed when they are too few, unless `train.share_gpus`; then workers and evaluator share in turn
    what the trainer leaves, or all GPUs where it leaves too few. Raises InvalidConfig where a host is unknown here.
    """
    train, width = config.train, engine_width(config.engine)
    workers = [worker_name(index) for index in range(train.rollout_workers if train.sampled_by(1) else 0)]
    here = [] if train.worker_launcher else workers
    engines = [*here, *([EVALUATOR] if config.evaluate.during_training else [])]
    hosts = filled(train.hosts, "train.hosts")
    filled(train.worker_launcher, "train.worker_launcher")
    elsewhere = {f"{TRAINER} on {line.split()[0]}": "its first GPUs" for line in hosts[1:]}
    elsewhere |= dict.fromkeys(workers if train.worker_launcher else (), "where train.worker_launcher starts it")
    if not gpus:
        return Placement({}, elsewhere)
    ranks = train.processes_here
    wanted = {TRAINER: ranks} | dict.fromkeys(engines, width)
    if ranks > len(gpus) or max(wanted.values()) > len(gpus) or (_over(wanted, gpus) and not train.share_gpus):
        raise Oversubscribed(_refusal(config, wanted, gpus))
    rest = engine_places(gpus[ranks:], width) or engine_places(gpus, width)
    taken = dict(zip(engines, islice(cycle(rest), len(engines)), strict=True)) if rest else dict.fromkeys(engines, ())
    placed: dict[str, tuple[str, ...]] = {TRAINER: tuple(gpus[:ranks]), **taken}
    users = {gpu: tuple(name for name, own in placed.items() if gpu in own) for gpu in gpus}
    return Placement(
        placed,
        elsewhere,
        tuple(gpu for gpu, names in users.items() if not names),
        {gpu: names for gpu, names in users.items() if len(names) > 1},
    )


def _over(wanted: Mapping[str, int], gpus: Sequence[str]) -> bool:
    return sum(wanted.values()) > len(gpus)


def _refusal(config: RunConfig, wanted: Mapping[str, int], gpus: Sequence[str]) -> str:
    asked = ", ".join(f"{name} {count}" for name, count in wanted.items() if count)
    start = f"this machine has {_named(gpus)}, and training wants {sum(wanted.values())} ({asked})"
    if wanted[TRAINER] > len(gpus):
        slots = "slots of the first of train.hosts" if config.train.hosts else "train.processes"
        return f"{start}; trainer processes cannot share a GPU: lower the {slots} to {len(gpus)} or less"
    if max(wanted.values()) > len(gpus):
        return f"{start}; one engine is wider than the machine: lower engine.vllm.tensor_parallel_size"
    ways = ["lower train.rollout_workers or train.processes", "start workers elsewhere (train.worker_launcher)"]
    ways += ["set evaluate.during_training to false"] if EVALUATOR in wanted else []
    return f"{start}; {', or '.join(ways)}, or let processes share GPUs: train.share_gpus = true"


def _named(gpus: Iterable[str]) -> str:
    names = list(gpus)
    return f"GPU{'' if len(names) == 1 else 's'} {', '.join(names)}" if names else "no GPU"
