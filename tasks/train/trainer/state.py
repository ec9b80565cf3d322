"""What a checkpoint holds beside weights and optimizer: where the mix of batches stands, and the reference weights."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MixState:
    """Everything that decides the next batches; saved with every checkpoint."""

    cursors: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Source -> (epoch, trajectories of it already used)."""
    watermark: int = 0
    """Snapshot up to which online trajectories have been read."""
    waiting: tuple[str, ...] = ()
    """Online trajectories read but not yet used, in order."""


@dataclass(frozen=True, slots=True)
class ReferenceSteps:
    """Which of the run's published weights are the reference; saved with every checkpoint."""

    present: int = 0
    """Step of the weights that are pi_0; 0: the reference the run began with."""
    nominee: int = 0
    """Step of the weights that will be, once there are enough samples of them; 0: none."""
