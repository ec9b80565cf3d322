"""Publishing the policy: what a publication writes, and the thread of the first process that writes beside training.

Only gathering the weights must happen while training waits (`Session.publish`). Writing, hashing, flushing and moving
LATEST take the longer the larger the model is, and need nothing but the gathered copy.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tasks.checkpoints.checkpoint import tokenizer_hash
from tasks.config import TrainConfig
from tasks.scoring import lora
from tasks.train.shared import published_weights
from tasks.train.shared.errors import PublishingFailed
from tasks.train.shared.job import TrainJob
from tasks.train.shared.published_weights import Canary, Published
from tasks.train.trainer.deepspeed_engine import whole_size

LARGE_BYTES = 1_000_000_000
"""Weights of so many bytes or more are published in the background where `train.publish` is "auto"."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is published of a step."""

    step: int
    model: Any
    """The module whose weights they are; read for its configuration alone."""
    state: dict[str, Tensor]
    """Its weights on the CPU, or those of its adapters; empty at step 0, which publishes the reference itself."""
    canaries: list[Canary]
    announced: bool
    """Whether LATEST moves to them."""


def is_published(train: TrainConfig, name: str) -> bool:
    """Whether the weights of that name are published: all of them, or the adapters where those alone are trained."""
    return train.lora is None or lora.is_adapters(name)


def in_background(train: TrainConfig, model: nn.Module) -> bool:
    """Whether the weights of `model` are published while training goes on."""
    if train.publish != "auto":
        return train.publish == "background"
    published = [p for name, p in model.named_parameters() if is_published(train, name)]
    size = sum(whole_size(p) * p.element_size() for p in published)
    return train.background_possible and size >= LARGE_BYTES


def write(job: TrainJob, gathered: Gathered) -> Published:
    """Publish what was gathered, keep a copy where others than the workers need it, and delete what nobody needs."""
    step, train = gathered.step, job.train
    published = _written(job, gathered)
    if job.weights != job.kept and step > 0 and kept(step, train):
        published = published_weights.keep(published, job.kept)
    lasting = {s for s in range(train.steps + 1) if kept(s, train)}  # later ones, too, where steps are taken again
    published_weights.prune(job.weights, lasting if job.weights == job.kept else set())
    return published


def _written(job: TrainJob, gathered: Gathered) -> Published:
    """The gathered weights in a folder: the adapters where those alone are trained, else the whole model."""
    step, model, state, canaries = gathered.step, gathered.model, gathered.state, gathered.canaries
    config = job.train.lora
    if step == 0:
        return published_weights.publish_reference(job.weights, job.reference, canaries, linked=config is not None)
    if config is None:
        return published_weights.publish(
            job.weights, step, model, state, like=job.reference, canaries=canaries, announced=gathered.announced
        )
    base = job.reference.resolve()

    def write_adapter(folder: Path) -> None:
        lora.save_adapter(model, state, config, base, folder)

    return published_weights.publish_adapter(
        job.weights, step, write_adapter, base=job.counts.reference, canaries=canaries, announced=gathered.announced
    )


def kept(step: int, train: TrainConfig) -> bool:
    """Whether the weights of `step` outlast their use by the workers: every adapter does, and what others need."""
    if train.lora is not None:
        return True
    intervals = [n for n in (train.snapshot_interval, train.reference_refresh_interval) if n]
    return step == train.steps or (step > 0 and any(step % interval == 0 for interval in intervals))


def policy_row(job: TrainJob, published: Published, model: nn.Module) -> dict[str, Any]:
    """The row of `policies` for published weights of `model`."""
    return {
        "policy_id": published.policy_id,
        "kind": "final" if published.step == job.train.steps else "snapshot",
        "path": str(job.kept / published.folder.name),
        "parent_policy_id": job.counts.reference,
        "step": published.step,
        "tokenizer_hash": tokenizer_hash(job.reference),
        "parameters": sum(whole_size(p) for name, p in model.named_parameters() if not lora.is_adapters(name)),
    }


class Publications:
    """Publications by a thread of their own, one at a time; each one's outcome is given once."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="publishing")
        self._under_way: tuple[int, Future[Published]] | None = None

    def begin(self, step: int, work: Callable[[], Published]) -> None:
        """Let the thread do `work`, which publishes `step`; the outcome of the one before must have been taken."""
        assert self._under_way is None, "one publication at a time"
        self._under_way = step, self._thread.submit(work)

    def taken(self, *, wait: bool) -> Published | None:
        """What was published since the last call; None when nothing was, or without `wait` while it is being written.

        Raises PublishingFailed when it could not be.
        """
        if self._under_way is None or not (wait or self._under_way[1].done()):
            return None
        step, outcome = self._under_way
        self._under_way = None
        if (error := outcome.exception()) is not None:
            raise PublishingFailed(
                f"publishing the weights of step {step} failed beside training ({type(error).__name__}: {error}); mend "
                f"that and resume: the run continues from its last complete checkpoint"
            ) from error
        return outcome.result()

    def close(self) -> None:
        """Let what is being written come to its end, whatever that is."""
        self._thread.shutdown(wait=True)
